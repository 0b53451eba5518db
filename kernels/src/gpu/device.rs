//! An opened device with what its operations need: codebooks, scratch memory, the launch recording.

use super::args::{KernelArgs, bytes_of};
use super::driver::{Driver, GraphId, Launch};
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
    NormQ8,
    NormQ8Scale,
    NormQ8Sum,
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

/// Launches that were recorded, to be run again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording {
    graph: GraphId,
    /// How many launches it holds.
    pub launches: u32,
}

/// Whether decode steps are replayed from recordings, and the setting or fact that decides. Serialised launches are asked for
/// to find the kernel that fails, so they win over everything but a plain no.
fn graphs(
    kind: DeviceKind,
    knobs: &Knobs,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    if knobs.graph == Some(false) {
        return Err("VT_GRAPH=0".to_owned());
    }
    let serial: &[&str] = match kind {
        DeviceKind::Rocm => &["AMD_SERIALIZE_KERNEL", "HIP_LAUNCH_BLOCKING"],
        DeviceKind::Cuda => &["CUDA_LAUNCH_BLOCKING"],
        DeviceKind::Cpu | DeviceKind::Simt => &[],
    };
    for name in serial {
        if let Some(value) = env(name).filter(|v| !v.is_empty() && v != "0") {
            return Err(format!("{name}={value} runs launches one by one"));
        }
    }
    if knobs.graph == Some(true) {
        return Ok("VT_GRAPH=1".to_owned());
    }
    if knobs.kernel_trace {
        return Err("VT_KERNEL_TRACE=1 follows every launch".to_owned());
    }
    if kind == DeviceKind::Simt {
        return Err("simt runs launches one by one unless VT_GRAPH=1".to_owned());
    }
    Ok("the default".to_owned())
}

/// Activation rows in 8 bits, and what they were made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounded {
    /// The f32 rows: address, distance in elements, number, length.
    pub x: u64,
    pub stride: usize,
    pub rows: usize,
    pub n: usize,
    /// Bytes, scales, scaled sums.
    pub q: u64,
    pub d: u64,
    pub s: u64,
    /// How often the host had written to device memory.
    pub host_writes: u64,
}

/// A device, ready for operations. The engine keeps one and lends it to every [`crate::ops::Ctx`].
#[derive(Debug)]
pub struct Gpu {
    driver: Arc<dyn Driver>,
    grids: HashMap<BlockType, GpuMemory>,
    scratch: HashMap<Scratch, GpuMemory>,
    trace: Option<Trace>,
    graphs: Result<String, String>,
    // rounded activations whose source has not changed: of the last norm, and of the last other rounding
    rounded: [Option<Rounded>; 2],
    // launches of the recording under way
    recording: Option<u32>,
    generation: u64,
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
            DeviceKind::Cuda => super::cuda::open(0, knobs.managed_alloc, kernels)?,
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
        let mut gpu = Self::with_driver(driver, trace)?;
        gpu.graphs = graphs(kind, knobs, &|name| std::env::var(name).ok());
        Ok(gpu)
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
            graphs: Err("nothing asked for them".to_owned()),
            rounded: [None, None],
            recording: None,
            generation: 0,
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

    /// Whether steps may be recorded and replayed: why, or why not.
    ///
    /// # Errors
    /// The reason against it.
    pub fn graphs(&self) -> Result<&str, &str> {
        self.graphs.as_deref().map_err(String::as_str)
    }

    /// Changes when memory that recorded launches may use was given back: recordings of an older generation are void.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Begins to record launches instead of running them. The same launches must have run before, so that scratch memory and
    /// kernels are there.
    ///
    /// # Errors
    /// The device cannot.
    pub fn record(&mut self) -> Result<(), GpuError> {
        self.driver.capture_begin()?;
        self.recording = Some(0);
        Ok(())
    }

    /// Ends the recording, also after a launch failed.
    ///
    /// # Errors
    /// Something that cannot be recorded happened meanwhile.
    pub fn recorded(&mut self) -> Result<Recording, GpuError> {
        let launches = self.recording.take().unwrap_or(0);
        self.driver
            .capture_end()
            .map(|graph| Recording { graph, launches })
    }

    /// Runs a recording of this generation.
    ///
    /// # Errors
    /// The launch failed.
    pub fn replay(&mut self, recording: Recording) -> Result<(), GpuError> {
        let Some(trace) = &mut self.trace else {
            return self.driver.graph_launch(recording.graph);
        };
        let slot = trace.begin(&Launch {
            kernel: "(graph)",
            grid: [recording.launches, 1, 1],
            threads: 1,
            args: &recording.graph.0.to_le_bytes(),
        });
        let result = self.driver.graph_launch(recording.graph);
        trace.issued(slot, result.is_ok());
        if let Ok(mark) = self.driver.mark() {
            trace.follow(&*self.driver, slot, mark);
        }
        result
    }

    /// Gives a recording back.
    pub fn forget(&mut self, recording: Recording) {
        self.driver.graph_free(recording.graph);
    }

    /// Remembers that activations have been rounded; `norm` chooses which of the two earlier ones this replaces.
    pub(crate) fn round(&mut self, norm: bool, rounded: Rounded) {
        self.rounded[usize::from(!norm)] = Some(Rounded {
            host_writes: super::memory::host_writes(),
            ..rounded
        });
    }

    /// The rounded form of activation rows, if it is there and its source has not changed since.
    pub(crate) fn rounded(&self, x: u64, stride: usize, rows: usize, n: usize) -> Option<Rounded> {
        let now = super::memory::host_writes();
        let same = |r: &&Rounded| {
            let apart = r.rows == rows && r.n == n && (rows == 1 || r.stride == stride);
            // rows without gaps may be cut otherwise: units of 32 stay what they are
            let dense = |stride, rows, n| rows == 1 || stride == n;
            let joined =
                dense(r.stride, r.rows, r.n) && dense(stride, rows, n) && r.rows * r.n == rows * n;
            r.host_writes == now && r.x == x && (apart || joined)
        };
        self.rounded.iter().flatten().find(same).copied()
    }

    /// Tells that `bytes` from `address` on will be written: what was rounded from there is void.
    pub(crate) fn written(&mut self, address: u64, bytes: usize) {
        for entry in &mut self.rounded {
            let hit = entry.as_ref().is_some_and(|r| {
                let end = r.x + ((r.rows.saturating_sub(1) * r.stride + r.n) * 4) as u64;
                address < end && r.x < address.saturating_add(bytes as u64)
            });
            if hit {
                *entry = None;
            }
        }
    }

    /// Forgets what was rounded.
    pub(crate) fn forget_rounded(&mut self) {
        self.rounded = [None, None];
    }

    /// At least `bytes` of scratch memory. Its content is whatever the last user left.
    pub(crate) fn scratch(&mut self, what: Scratch, bytes: usize) -> Result<u64, GpuError> {
        if let Some(memory) = self.scratch.get(&what)
            && memory.bytes() >= bytes
        {
            return Ok(memory.address());
        }
        if self.recording.is_some() {
            return Err(GpuError::Unsupported {
                device: self.kind(),
                what: "scratch memory that grows while launches are recorded",
            });
        }
        // The old block may still be read by launches in flight; a driver frees only after them.
        let size = bytes.next_multiple_of(1 << 12);
        let memory = GpuMemory::new(self.driver.clone(), size, &format!("scratch {what:?}"))?;
        let address = memory.address();
        if self.scratch.insert(what, memory).is_some() {
            self.generation += 1;
        }
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
        if let Some(launches) = &mut self.recording {
            *launches += 1;
            return self.driver.launch(&launch);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        kind: DeviceKind,
        graph: Option<bool>,
        trace: bool,
        set: &str,
    ) -> Result<String, String> {
        let knobs = Knobs {
            graph,
            kernel_trace: trace,
            ..Knobs::default()
        };
        graphs(kind, &knobs, &|name| {
            set.split_once('=')
                .filter(|(k, _)| *k == name)
                .map(|(_, v)| v.to_owned())
        })
    }

    #[test]
    fn graphs_are_on_where_nothing_speaks_against_them() {
        use DeviceKind::{Cuda, Rocm, Simt};
        assert!(decide(Rocm, None, false, "").is_ok());
        assert!(decide(Cuda, None, false, "AMD_SERIALIZE_KERNEL=3").is_ok());
        assert!(decide(Rocm, None, false, "AMD_SERIALIZE_KERNEL=0").is_ok());
        assert!(decide(Simt, None, false, "").is_err());
        assert!(decide(Simt, Some(true), true, "").is_ok());
        assert_eq!(
            decide(Rocm, Some(false), false, ""),
            Err("VT_GRAPH=0".to_owned())
        );
        let why = decide(Rocm, Some(true), false, "AMD_SERIALIZE_KERNEL=3").unwrap_err();
        assert!(why.contains("AMD_SERIALIZE_KERNEL=3"), "{why}");
        let why = decide(Cuda, None, true, "").unwrap_err();
        assert!(why.contains("VT_KERNEL_TRACE=1"), "{why}");
        assert!(decide(Cuda, Some(true), false, "CUDA_LAUNCH_BLOCKING=1").is_err());
    }
}
