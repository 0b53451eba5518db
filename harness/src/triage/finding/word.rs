//! What a program can say about its end.

/// What a program said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// ROCr: `Memory access fault by GPU node-N`.
    MemoryAccessFault,
    /// ROCr: `HW Exception by GPU node-N`.
    HwException,
    /// HSA 0x29.
    ApertureViolation,
    /// HSA 0x2a.
    IllegalInstruction,
    /// HSA 0x1016.
    QueueException,
    /// HSA 0x1008.
    OutOfResources,
    /// Another HSA queue error.
    HsaError,
    /// A device-side assertion or trap, by its own text.
    DeviceAssert,
    /// hipErrorIllegalAddress, CUDA illegal memory access.
    IllegalAddress,
    /// hipErrorLaunchFailure (719).
    LaunchFailure,
    /// A launch that ran too long.
    LaunchTimeout,
    /// Out of device memory.
    DeviceOom,
    /// Out of host memory.
    HostOom,
    /// No usable GPU code for this device.
    NoCodeObject,
    /// HSA runtime accounting at exit.
    MemoryCritical,
    /// Queue creation refused.
    QueueCreate,
    /// No GPU could be opened.
    NoDevice,
    /// The engine refuses: no kernel for an op on a device.
    OpRefused,
    /// The engine died.
    EngineFatal,
    /// An assertion of the host program.
    HostAssert,
    /// The heap was found corrupt.
    HeapCorrupt,
    /// An uncaught exception.
    Terminate,
    /// A shell or runtime that reports a crash.
    CrashEcho,
    /// A Python traceback.
    Traceback,
    /// No space left.
    DiskFull,
    /// A read that failed in the way of a lost share or disk.
    ReadError,
    /// The share or host is gone.
    HostDown,
    /// Missing program, library or permission.
    EnvMissing,
    /// A model file that cannot be read for what it is.
    BadInput,
    /// A hardware error that the program's runtime passes on (ECC).
    DeviceEcc,
    /// A device that is gone.
    DeviceLost,
    /// The GPU must be reset, says the runtime.
    ResetNeeded,
    /// The program's own message that it waited in vain.
    WaitedInVain,
    /// Vulkan: device lost.
    VulkanLost,
    /// NCCL/RCCL or gloo lost a peer.
    PeerLost,
}
