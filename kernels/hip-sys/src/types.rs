//! The few types and constants of the HIP ABI that callers need. Numbers are those of HIP 5.2 to 7.14, where they agree.

use std::ffi::{c_int, c_void};

/// Status of a call; see [`crate::error_name`].
pub type HipError = c_int;
/// A stream.
pub type Stream = *mut c_void;
/// An event.
pub type Event = *mut c_void;
/// A loaded code object.
pub type Module = *mut c_void;
/// A kernel of a module.
pub type Function = *mut c_void;
/// A recorded graph.
pub type Graph = *mut c_void;
/// A graph ready to launch.
pub type GraphExec = *mut c_void;
/// A node of a graph.
pub type GraphNode = *mut c_void;
/// An address in device memory.
pub type DevicePtr = *mut c_void;

/// The call succeeded.
pub const SUCCESS: HipError = 0;
/// Memory is exhausted.
pub const OUT_OF_MEMORY: HipError = 2;
/// No device at all.
pub const NO_DEVICE: HipError = 100;
/// Not a device number.
pub const INVALID_DEVICE: HipError = 101;
/// The code object has no kernel for this device.
pub const NO_BINARY_FOR_GPU: HipError = 209;
/// Asked before it was done.
pub const NOT_READY: HipError = 600;

/// `hipMemcpyKind`.
pub mod copy_kind {
    /// Host to device.
    pub const HOST_TO_DEVICE: i32 = 1;
    /// Device to host.
    pub const DEVICE_TO_HOST: i32 = 2;
    /// Device to device.
    pub const DEVICE_TO_DEVICE: i32 = 3;
}

/// `hipStreamNonBlocking`.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// `hipEventDisableTiming`.
pub const EVENT_DISABLE_TIMING: u32 = 2;
/// `hipEventDefault`.
pub const EVENT_DEFAULT: u32 = 0;
/// `hipHostMallocDefault`.
pub const HOST_MALLOC_DEFAULT: u32 = 0;
/// `hipMemAttachGlobal`.
pub const MEM_ATTACH_GLOBAL: u32 = 1;
/// `hipDeviceScheduleBlockingSync`.
pub const SCHEDULE_BLOCKING_SYNC: u32 = 4;
/// `hipStreamCaptureModeThreadLocal`.
pub const CAPTURE_THREAD_LOCAL: c_int = 1;

/// `hipDeviceAttribute_t`: only values that did not change between HIP 5.2 and 7.14. `hipDeviceProp_t` did change, and is
/// never used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    /// Whether several kernels may run at once.
    ConcurrentKernels = 8,
    /// Whether host and device may touch managed memory at once.
    ConcurrentManagedAccess = 9,
    /// Whether the GPU shares the host's memory.
    Integrated = 16,
    /// Bytes of level 2 cache.
    L2CacheSize = 19,
    /// Whether managed memory exists.
    ManagedMemory = 24,
    /// Threads of a block.
    MaxThreadsPerBlock = 56,
    /// Multiprocessors: work-group processors on RDNA, half the compute units.
    MultiprocessorCount = 63,
    /// Whether kernels may touch pageable host memory.
    PageableMemoryAccess = 65,
    /// Bytes of shared memory a block may have.
    MaxSharedMemoryPerBlock = 74,
    /// Lanes of a wave.
    WarpSize = 87,
}
