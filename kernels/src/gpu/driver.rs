//! What a device must offer: memory, copies, launches, time stamps, graphs, attributes. Three drivers implement it.

use super::error::GpuError;
use crate::device::DeviceKind;
use std::fmt;

/// Facts of an opened device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Marketing name.
    pub name: String,
    /// Instruction set: `gfx1151`, `sm_90`, `simt`.
    pub target: String,
    /// Multiprocessors; on RDNA the work-group processors.
    pub multiprocessors: u32,
    /// Bytes of device memory that the runtime reports; unreliable on an APU.
    pub memory: u64,
    /// Whether the GPU shares the host's memory.
    pub integrated: bool,
    /// Which allocator is in use and why.
    pub allocator: Allocator,
    /// Whether the CPU may use device addresses.
    pub host_addressable: bool,
    /// Runtime and driver versions, in their own notation.
    pub runtime: String,
}

/// The allocator behind device memory, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocator {
    /// The call: `hipMalloc`, `hipMallocManaged`, `cuMemAlloc`, `host`.
    pub call: &'static str,
    /// Why it was chosen, in words that a user can check.
    pub reason: String,
}

/// One launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Kernel name.
    pub kernel: &'static str,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// The argument struct.
    pub args: &'a [u8],
}

/// A point in the device's stream.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Mark(pub u64);

/// A recorded sequence of launches.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct GraphId(pub u64);

/// A device. All work goes to one stream and runs in order.
pub trait Driver: Send + Sync + fmt::Debug {
    /// Kind of device.
    fn kind(&self) -> DeviceKind;
    /// What is known of it.
    fn facts(&self) -> &DeviceFacts;
    /// Zeroed memory; `label` names it in reports.
    ///
    /// # Errors
    /// Memory is exhausted.
    fn allocate(&self, bytes: usize, label: &str) -> Result<u64, GpuError>;
    /// Gives memory back, after all work that may use it.
    fn free(&self, address: u64);
    /// Copies from the host.
    ///
    /// # Errors
    /// The copy failed.
    fn upload(&self, to: u64, from: &[u8]) -> Result<(), GpuError>;
    /// Copies to the host after all earlier work.
    ///
    /// # Errors
    /// The copy, or earlier work, failed.
    fn download(&self, to: &mut [u8], from: u64) -> Result<(), GpuError>;
    /// Copies within the device.
    ///
    /// # Errors
    /// The copy failed.
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), GpuError>;
    /// Starts a kernel.
    ///
    /// # Errors
    /// There is no such kernel, or the launch failed.
    fn launch(&self, launch: &Launch<'_>) -> Result<(), GpuError>;
    /// Waits for all work.
    ///
    /// # Errors
    /// Earlier work failed.
    fn synchronize(&self) -> Result<(), GpuError>;
    /// Puts a time stamp into the stream.
    ///
    /// # Errors
    /// The runtime refused.
    fn mark(&self) -> Result<Mark, GpuError>;
    /// Milliseconds between two time stamps, waiting for the second.
    ///
    /// # Errors
    /// Earlier work failed.
    fn elapsed_ms(&self, from: Mark, to: Mark) -> Result<f32, GpuError>;
    /// Whether everything before the mark is over, without waiting. A mark may be asked about once after it was over.
    fn is_done(&self, _mark: Mark) -> bool {
        true
    }
    /// Begins to record launches instead of running them. Until the recording ends there must be no copy, mark or allocation.
    ///
    /// # Errors
    /// The device cannot.
    fn capture_begin(&self) -> Result<(), GpuError> {
        Err(GpuError::Unsupported {
            device: self.kind(),
            what: "graph capture",
        })
    }
    /// Ends the recording.
    ///
    /// # Errors
    /// Something that cannot be recorded happened meanwhile.
    fn capture_end(&self) -> Result<GraphId, GpuError> {
        Err(GpuError::Unsupported {
            device: self.kind(),
            what: "graph capture",
        })
    }
    /// Runs a recording.
    ///
    /// # Errors
    /// The launch failed.
    fn graph_launch(&self, _graph: GraphId) -> Result<(), GpuError> {
        Err(GpuError::Unsupported {
            device: self.kind(),
            what: "graph launch",
        })
    }
    /// Forgets a recording, after all work that may run it.
    fn graph_free(&self, _graph: GraphId) {}
    /// Host memory that the device copies from without a detour, if the runtime has such.
    ///
    /// # Errors
    /// Memory is exhausted.
    fn pinned(&self, _bytes: usize) -> Result<Option<u64>, GpuError> {
        Ok(None)
    }
    /// Gives pinned memory back.
    fn free_pinned(&self, _address: u64) {}
    /// Starts a copy from pinned memory; it is done when a later mark is.
    ///
    /// # Errors
    /// The copy failed to start.
    fn upload_pinned(&self, _to: u64, _from: u64, _bytes: usize) -> Result<(), GpuError> {
        Err(GpuError::Unsupported {
            device: self.kind(),
            what: "pinned copies",
        })
    }
    /// Waits until everything before the mark is done.
    ///
    /// # Errors
    /// Earlier work failed.
    fn wait(&self, _mark: Mark) -> Result<(), GpuError> {
        self.synchronize()
    }
}
