//! An opened device with what its operations need: codebooks, scratch memory, the launch recording.

use super::args::{KernelArgs, bytes_of};
use super::driver::{Driver, Launch};
use super::error::GpuError;
use super::memory::{GpuDomain, GpuMemory};
use super::trace::Trace;
use crate::blocks::{BlockType, grids};
use crate::device::{DeviceKind, MemoryFacts};
use crate::knobs::Knobs;
use crate::tensor::DeviceMemory;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Scratch buffers, by what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scratch {
    Q8,
    Q8Scale,
    Q8Sum,
    QueryLatent,
    Latent,
    Part,
    Stat,
    Gate,
    Up,
    ExpertOut,
    Perm,
    Tiles,
}

/// A device, ready for operations. The engine keeps one and lends it to every [`crate::ops::Ctx`].
#[derive(Debug)]
pub struct Gpu {
    driver: Arc<dyn Driver>,
    grids: HashMap<BlockType, GpuMemory>,
    scratch: HashMap<Scratch, GpuMemory>,
    trace: Option<Trace>,
    /// Splits of the keys in attention; `None` lets the device's size decide.
    pub splits: Option<i32>,
}

impl Gpu {
    /// Opens a device of a kind. `kernels` is a folder of code objects that replaces the embedded ones.
    ///
    /// # Errors
    /// There is no such device, with the reason; or its kernels are missing.
    pub fn open(kind: DeviceKind, knobs: &Knobs, kernels: Option<&Path>) -> Result<Self, GpuError> {
        let driver: Arc<dyn Driver> = match kind {
            DeviceKind::Simt => crate::simt::open()?,
            DeviceKind::Rocm => super::hip::open(0, knobs.managed_alloc, kernels)?,
            DeviceKind::Cuda => super::cuda::open(0, kernels)?,
            DeviceKind::Cpu => {
                return Err(GpuError::Absent {
                    device: kind,
                    reason: "the CPU is not opened as a GPU".to_owned(),
                });
            }
        };
        let trace = if knobs.kernel_trace {
            Some(Trace::create(&super::trace::path())?)
        } else {
            None
        };
        Self::with_driver(driver, trace)
    }

    /// A device over an opened driver.
    ///
    /// # Errors
    /// The codebooks could not be copied.
    pub fn with_driver(driver: Arc<dyn Driver>, trace: Option<Trace>) -> Result<Self, GpuError> {
        let mut gpu = Gpu {
            driver,
            grids: HashMap::new(),
            scratch: HashMap::new(),
            trace,
            splits: None,
        };
        gpu.put_grid(
            &[BlockType::IQ1_S, BlockType::IQ1_M],
            &words8(&grids::IQ1.0),
        )?;
        gpu.put_grid(&[BlockType::IQ2_XXS], &words8(&grids::IQ2_XXS.0))?;
        gpu.put_grid(&[BlockType::IQ2_XS], &words8(&grids::IQ2_XS.0))?;
        gpu.put_grid(&[BlockType::IQ2_S], &words8(&grids::IQ2_S.0))?;
        gpu.put_grid(&[BlockType::IQ3_XXS], &words4(&grids::IQ3_XXS.0))?;
        gpu.put_grid(&[BlockType::IQ3_S], &words4(&grids::IQ3_S.0))?;
        Ok(gpu)
    }

    fn put_grid(&mut self, types: &[BlockType], bytes: &[u8]) -> Result<(), GpuError> {
        for ty in types {
            let memory =
                GpuMemory::new(self.driver.clone(), bytes.len(), &format!("codebook {ty}"))?;
            self.driver.upload(memory.address(), bytes)?;
            self.grids.insert(*ty, memory);
        }
        Ok(())
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// Kind of device.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.driver.kind()
    }

    /// Memory of this device.
    #[must_use]
    pub fn domain(&self) -> GpuDomain {
        GpuDomain::new(self.driver.clone())
    }

    /// What the registry needs to know of the memory.
    #[must_use]
    pub fn memory_facts(&self) -> MemoryFacts {
        let facts = self.driver.facts();
        let reach = if facts.host_addressable {
            "; tensors here are reached by device address only"
        } else {
            ""
        };
        MemoryFacts {
            host_addressable: false,
            reason: format!(
                "allocator={}, {}{reach}",
                facts.allocator.call, facts.allocator.reason
            ),
        }
    }

    /// The address of a type's codebook, or 0.
    pub(crate) fn grid(&self, ty: BlockType) -> u64 {
        self.grids.get(&ty).map_or(0, DeviceMemory::address)
    }

    /// At least `bytes` of scratch memory. Its content is whatever the last user left.
    pub(crate) fn scratch(&mut self, what: Scratch, bytes: usize) -> Result<u64, GpuError> {
        if let Some(memory) = self.scratch.get(&what)
            && memory.bytes() >= bytes
        {
            return Ok(memory.address());
        }
        // The old block may still be read by launches in flight; a driver frees only after them.
        let size = bytes.next_multiple_of(1 << 12);
        let memory = GpuMemory::new(self.driver.clone(), size, &format!("scratch {what:?}"))?;
        let address = memory.address();
        self.scratch.insert(what, memory);
        Ok(address)
    }

    /// Starts a kernel.
    pub(crate) fn launch<A: KernelArgs>(
        &mut self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        args: &A,
    ) -> Result<(), GpuError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let launch = Launch {
            kernel,
            grid,
            threads,
            args: bytes_of(args),
        };
        let Some(trace) = &mut self.trace else {
            return self.driver.launch(&launch);
        };
        let slot = trace.begin(&launch);
        let result = self.driver.launch(&launch);
        trace.issued(slot, result.is_ok());
        if let Ok(mark) = self.driver.mark() {
            trace.follow(&*self.driver, slot, mark);
        }
        result
    }

    /// Waits for all work; an earlier kernel's failure shows here.
    ///
    /// # Errors
    /// Earlier work failed.
    pub fn synchronize(&mut self) -> Result<(), GpuError> {
        self.driver.synchronize()?;
        if let Some(trace) = &mut self.trace {
            trace.all_done();
        }
        Ok(())
    }
}

fn words8<const N: usize>(grid: &[u64; N]) -> Vec<u8> {
    grid.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn words4<const N: usize>(grid: &[u32; N]) -> Vec<u8> {
    grid.iter().flat_map(|w| w.to_le_bytes()).collect()
}
