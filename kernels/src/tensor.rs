//! Activations, caches and weights, on the host or on a device.
//!
//! A [`Tensor`] is a flat run of elements; shapes live in the operations' arguments. Host storage is reached as slices,
//! so that CPU providers need no `unsafe`; device storage is reached as an address that only device providers use.

use std::fmt;
use std::sync::Arc;

use crate::blocks::BlockType;
use crate::device::DeviceKind;

/// Type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// 32-bit signed integer: token ids, positions, cache slots, selections.
    I32,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }

    /// Name as in `--kv-dtype`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
        }
    }
}

/// What can go wrong with a tensor's storage.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TensorError {
    /// Too few elements behind a view.
    #[error(
        "a view of {need} {dtype:?} elements at offset {offset} does not fit a tensor of {len}"
    )]
    Short {
        /// Elements asked for.
        need: usize,
        /// Where the view starts.
        offset: usize,
        /// Elements of the tensor.
        len: usize,
        /// Element type.
        dtype: DType,
    },
    /// Asked for as another element type.
    #[error("the tensor holds {have:?}, not {want:?}")]
    Type {
        /// Element type of the tensor.
        have: DType,
        /// Element type asked for.
        want: DType,
    },
    /// CPU code asked for the slice of a tensor that lives on a device.
    #[error("the tensor lives on device {device}, whose memory the CPU cannot address")]
    NotHost {
        /// Where it lives.
        device: DeviceKind,
    },
    /// Device code asked for the address of a tensor that lives on the host.
    #[error("the tensor lives in host memory, not on a device")]
    NotDevice,
    /// The device said no.
    #[error("device memory: {0}")]
    Device(String),
}

/// A device's memory block, freed on drop.
pub trait DeviceMemory: Send + Sync + fmt::Debug {
    /// The device's address of the first byte.
    fn address(&self) -> u64;
    /// Size in bytes.
    fn bytes(&self) -> usize;
    /// Kind of device.
    fn device(&self) -> DeviceKind;
    /// Copies from the host, ordered with the device's compute stream.
    ///
    /// # Errors
    /// The device refused the copy.
    fn upload(&mut self, offset: usize, from: &[u8]) -> Result<(), TensorError>;
    /// Copies to the host after all earlier work on the device's compute stream.
    ///
    /// # Errors
    /// The device refused the copy, or an earlier launch failed.
    fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), TensorError>;
}

/// Hands out memory.
pub trait MemoryDomain: Send + Sync {
    /// Kind of device.
    fn device(&self) -> DeviceKind;
    /// A block of zeroed memory; `None` means host memory.
    ///
    /// # Errors
    /// The device has not that much memory.
    fn allocate(&self, bytes: usize) -> Result<Option<Box<dyn DeviceMemory>>, TensorError>;
}

/// Host memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostDomain;

impl MemoryDomain for HostDomain {
    fn device(&self) -> DeviceKind {
        DeviceKind::Cpu
    }
    fn allocate(&self, _bytes: usize) -> Result<Option<Box<dyn DeviceMemory>>, TensorError> {
        Ok(None)
    }
}

#[derive(Debug)]
enum Storage {
    F32(Vec<f32>),
    // f16 and bf16 bits
    U16(Vec<u16>),
    I32(Vec<i32>),
    Device(Box<dyn DeviceMemory>),
}

/// A flat run of elements.
#[derive(Debug)]
pub struct Tensor {
    storage: Storage,
    dtype: DType,
    len: usize,
}

impl Tensor {
    /// Zeroed elements in `domain`.
    ///
    /// # Errors
    /// The device has not that much memory.
    pub fn zeros(domain: &dyn MemoryDomain, dtype: DType, len: usize) -> Result<Self, TensorError> {
        let storage = match domain.allocate(len * dtype.bytes())? {
            Some(memory) => Storage::Device(memory),
            None => match dtype {
                DType::F32 => Storage::F32(vec![0.0; len]),
                DType::F16 | DType::BF16 => Storage::U16(vec![0; len]),
                DType::I32 => Storage::I32(vec![0; len]),
            },
        };
        Ok(Tensor {
            storage,
            dtype,
            len,
        })
    }

    /// Host tensor of f32.
    #[must_use]
    pub fn from_f32(values: Vec<f32>) -> Self {
        Tensor {
            len: values.len(),
            storage: Storage::F32(values),
            dtype: DType::F32,
        }
    }

    /// Host tensor of i32.
    #[must_use]
    pub fn from_i32(values: Vec<i32>) -> Self {
        Tensor {
            len: values.len(),
            storage: Storage::I32(values),
            dtype: DType::I32,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.bytes()
    }

    /// A view from element `offset` to the end.
    #[must_use]
    pub fn at(&self, offset: usize) -> Ref<'_> {
        Ref {
            tensor: self,
            offset,
        }
    }

    /// A writable view from element `offset` to the end.
    #[must_use]
    pub fn at_mut(&mut self, offset: usize) -> Mut<'_> {
        Mut {
            tensor: self,
            offset,
        }
    }

    /// Copies values in from the host, wherever the tensor lives.
    ///
    /// # Errors
    /// Wrong type, too long, or the device refused.
    pub fn write_f32(&mut self, offset: usize, values: &[f32]) -> Result<(), TensorError> {
        self.check(DType::F32, offset, values.len())?;
        match &mut self.storage {
            Storage::F32(v) => v[offset..offset + values.len()].copy_from_slice(values),
            Storage::Device(d) => d.upload(offset * 4, as_bytes(values))?,
            _ => {
                return Err(TensorError::Type {
                    have: self.dtype,
                    want: DType::F32,
                });
            }
        }
        Ok(())
    }

    /// Copies values in from the host, wherever the tensor lives.
    ///
    /// # Errors
    /// Wrong type, too long, or the device refused.
    pub fn write_i32(&mut self, offset: usize, values: &[i32]) -> Result<(), TensorError> {
        self.check(DType::I32, offset, values.len())?;
        match &mut self.storage {
            Storage::I32(v) => v[offset..offset + values.len()].copy_from_slice(values),
            Storage::Device(d) => d.upload(offset * 4, as_bytes(values))?,
            _ => {
                return Err(TensorError::Type {
                    have: self.dtype,
                    want: DType::I32,
                });
            }
        }
        Ok(())
    }

    /// Copies values out to the host, wherever the tensor lives.
    ///
    /// # Errors
    /// Wrong type, too long, or the device refused.
    pub fn read_f32(&self, offset: usize, out: &mut [f32]) -> Result<(), TensorError> {
        self.check(DType::F32, offset, out.len())?;
        match &self.storage {
            Storage::F32(v) => out.copy_from_slice(&v[offset..offset + out.len()]),
            Storage::Device(d) => d.download(offset * 4, as_bytes_mut(out))?,
            _ => {
                return Err(TensorError::Type {
                    have: self.dtype,
                    want: DType::F32,
                });
            }
        }
        Ok(())
    }

    /// Copies values out to the host, wherever the tensor lives.
    ///
    /// # Errors
    /// Wrong type, too long, or the device refused.
    pub fn read_i32(&self, offset: usize, out: &mut [i32]) -> Result<(), TensorError> {
        self.check(DType::I32, offset, out.len())?;
        match &self.storage {
            Storage::I32(v) => out.copy_from_slice(&v[offset..offset + out.len()]),
            Storage::Device(d) => d.download(offset * 4, as_bytes_mut(out))?,
            _ => {
                return Err(TensorError::Type {
                    have: self.dtype,
                    want: DType::I32,
                });
            }
        }
        Ok(())
    }

    fn check(&self, want: DType, offset: usize, need: usize) -> Result<(), TensorError> {
        if self.dtype != want {
            return Err(TensorError::Type {
                have: self.dtype,
                want,
            });
        }
        match offset.checked_add(need) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(TensorError::Short {
                need,
                offset,
                len: self.len,
                dtype: self.dtype,
            }),
        }
    }

    fn not_host(&self, want: DType) -> TensorError {
        match &self.storage {
            Storage::Device(d) => TensorError::NotHost { device: d.device() },
            _ => TensorError::Type {
                have: self.dtype,
                want,
            },
        }
    }
}

macro_rules! slice_accessors {
    ($get:ident, $variant:ident, $t:ty, $dtype:expr) => {
        /// The first `n` elements of the view as a host slice.
        ///
        /// # Errors
        /// Another element type, too short, or not in host memory.
        pub fn $get(&self, n: usize) -> Result<&'a [$t], TensorError> {
            self.tensor.check($dtype, self.offset, n)?;
            match &self.tensor.storage {
                Storage::$variant(v) => Ok(&v[self.offset..self.offset + n]),
                _ => Err(self.tensor.not_host($dtype)),
            }
        }
    };
}

/// A read-only view of a tensor.
#[derive(Debug, Clone, Copy)]
pub struct Ref<'a> {
    tensor: &'a Tensor,
    offset: usize,
}

impl<'a> Ref<'a> {
    slice_accessors!(f32, F32, f32, DType::F32);
    slice_accessors!(i32, I32, i32, DType::I32);

    /// The first `n` f16 or bf16 elements as their bits.
    ///
    /// # Errors
    /// Another element type, too short, or not in host memory.
    pub fn u16(&self, n: usize) -> Result<&'a [u16], TensorError> {
        let dtype = self.half_type()?;
        self.tensor.check(dtype, self.offset, n)?;
        match &self.tensor.storage {
            Storage::U16(v) => Ok(&v[self.offset..self.offset + n]),
            _ => Err(self.tensor.not_host(dtype)),
        }
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    /// Elements from the view's start to the tensor's end.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.tensor.len.saturating_sub(self.offset)
    }

    /// The view moved `n` elements on.
    #[must_use]
    pub fn skip(self, n: usize) -> Ref<'a> {
        Ref {
            tensor: self.tensor,
            offset: self.offset + n,
        }
    }

    /// The device's address of the first element, after checking that `n` elements follow.
    ///
    /// # Errors
    /// Too short, or in host memory.
    pub fn device_address(&self, n: usize) -> Result<u64, TensorError> {
        self.tensor.check(self.tensor.dtype, self.offset, n)?;
        match &self.tensor.storage {
            Storage::Device(d) => {
                Ok(d.address() + (self.offset * self.tensor.dtype.bytes()) as u64)
            }
            _ => Err(TensorError::NotDevice),
        }
    }

    fn half_type(&self) -> Result<DType, TensorError> {
        match self.tensor.dtype {
            d @ (DType::F16 | DType::BF16) => Ok(d),
            have => Err(TensorError::Type {
                have,
                want: DType::F16,
            }),
        }
    }
}

/// A writable view of a tensor.
#[derive(Debug)]
pub struct Mut<'a> {
    tensor: &'a mut Tensor,
    offset: usize,
}

impl Mut<'_> {
    /// The first `n` elements of the view as a host slice.
    ///
    /// # Errors
    /// Another element type, too short, or not in host memory.
    pub fn f32(&mut self, n: usize) -> Result<&mut [f32], TensorError> {
        self.tensor.check(DType::F32, self.offset, n)?;
        let error = self.tensor.not_host(DType::F32);
        match &mut self.tensor.storage {
            Storage::F32(v) => Ok(&mut v[self.offset..self.offset + n]),
            _ => Err(error),
        }
    }

    /// The first `n` elements of the view as a host slice.
    ///
    /// # Errors
    /// Another element type, too short, or not in host memory.
    pub fn i32(&mut self, n: usize) -> Result<&mut [i32], TensorError> {
        self.tensor.check(DType::I32, self.offset, n)?;
        let error = self.tensor.not_host(DType::I32);
        match &mut self.tensor.storage {
            Storage::I32(v) => Ok(&mut v[self.offset..self.offset + n]),
            _ => Err(error),
        }
    }

    /// The first `n` f16 or bf16 elements as their bits.
    ///
    /// # Errors
    /// Another element type, too short, or not in host memory.
    pub fn u16(&mut self, n: usize) -> Result<&mut [u16], TensorError> {
        let dtype = self.as_ref().half_type()?;
        self.tensor.check(dtype, self.offset, n)?;
        let error = self.tensor.not_host(dtype);
        match &mut self.tensor.storage {
            Storage::U16(v) => Ok(&mut v[self.offset..self.offset + n]),
            _ => Err(error),
        }
    }

    /// The same view, read-only.
    #[must_use]
    pub fn as_ref(&self) -> Ref<'_> {
        Ref {
            tensor: self.tensor,
            offset: self.offset,
        }
    }

    /// The same view for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> Mut<'_> {
        Mut {
            tensor: self.tensor,
            offset: self.offset,
        }
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    /// The device's address of the first element, after checking that `n` elements follow.
    ///
    /// # Errors
    /// Too short, or in host memory.
    pub fn device_address(&self, n: usize) -> Result<u64, TensorError> {
        self.as_ref().device_address(n)
    }
}

/// Bytes that a weight keeps alive: a file mapping, an arena, or static data.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Where a weight's blocks are.
#[derive(Clone)]
pub enum WeightData {
    /// `len` bytes from `offset` of shared host bytes.
    Host {
        /// Who owns the bytes.
        bytes: SharedBytes,
        /// First byte.
        offset: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Device memory.
    Device(Arc<dyn DeviceMemory>),
}

/// A weight in its file's block format: `n_mat` matrices of `n_out` rows of `n_in` elements, rows contiguous.
#[derive(Clone)]
pub struct Weight {
    /// Tensor name, for messages.
    pub name: String,
    /// Block format.
    pub ty: BlockType,
    /// Row length (GGUF `ne0`).
    pub n_in: usize,
    /// Rows of one matrix (`ne1`).
    pub n_out: usize,
    /// Matrices (`ne2`): experts or heads; 1 for a plain matrix.
    pub n_mat: usize,
    /// The blocks.
    pub data: WeightData,
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} [{}, {}, {}]",
            self.name, self.ty, self.n_in, self.n_out, self.n_mat
        )
    }
}

impl Weight {
    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.n_in / self.ty.block_len() * self.ty.block_bytes()
    }

    /// Bytes of one matrix.
    #[must_use]
    pub fn mat_bytes(&self) -> usize {
        self.row_bytes() * self.n_out
    }

    /// All bytes, in host memory.
    ///
    /// # Errors
    /// The weight lives on a device.
    pub fn host(&self) -> Result<&[u8], TensorError> {
        match &self.data {
            WeightData::Host { bytes, offset, len } => {
                let all: &[u8] = (**bytes).as_ref();
                all.get(*offset..*offset + *len).ok_or(TensorError::Short {
                    need: *len,
                    offset: *offset,
                    len: all.len(),
                    dtype: DType::F32,
                })
            }
            WeightData::Device(d) => Err(TensorError::NotHost { device: d.device() }),
        }
    }

    /// The bytes of matrix `m`, in host memory.
    ///
    /// # Errors
    /// The weight lives on a device.
    pub fn host_mat(&self, m: usize) -> Result<&[u8], TensorError> {
        let size = self.mat_bytes();
        let all = self.host()?;
        all.get(m * size..(m + 1) * size).ok_or(TensorError::Short {
            need: size,
            offset: m * size,
            len: all.len(),
            dtype: DType::F32,
        })
    }

    /// The device's address of the first byte.
    ///
    /// # Errors
    /// The weight lives in host memory.
    pub fn device_address(&self) -> Result<u64, TensorError> {
        match &self.data {
            WeightData::Device(d) => Ok(d.address()),
            WeightData::Host { .. } => Err(TensorError::NotDevice),
        }
    }
}

fn as_bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` types have no padding, and every byte pattern of a `u8` is valid.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

fn as_bytes_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes make a valid `f32` or `i32`.
    unsafe {
        std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), std::mem::size_of_val(values))
    }
}

/// Numbers without padding or invalid bit patterns.
trait Plain {}
impl Plain for f32 {}
impl Plain for i32 {}
