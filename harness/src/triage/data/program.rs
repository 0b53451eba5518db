//! The program's own words: ROCr, HSA, HIP, CUDA, ggml, PyTorch, our engine, glibc, shells, errno texts.
//!
//! Order matters within a line only: the first row that matches names it.

use super::sources::{CUDA, ENGINE, ERRNO, GGML, GLIBC, HIP, HSA, RADV, ROCR, SHELL, TORCH};
use super::{Row, row};
use crate::triage::finding::{Finding, Word};
use crate::triage::pattern::Caps;

macro_rules! say {
    ($word:ident) => {
        |c: &Caps<'_>| {
            Some(Finding::Program {
                word: Word::$word,
                detail: detail(c),
            })
        }
    };
}

fn detail(c: &Caps<'_>) -> String {
    let d = c.text("d");
    let cut = d.char_indices().nth(120).map_or(d.len(), |(i, _)| i);
    d[..cut].to_owned()
}

/// The rows, from the most specific to the least.
pub const ROWS: &[Row] = &[
    // The reset's reason, where ROCr knows one.
    row(
        "*HW Exception by GPU node-{n}reason :{d}ECC",
        say!(DeviceEcc),
        ROCR,
    ),
    // ROCr
    row(
        "*Memory access fault by GPU node-{d}",
        say!(MemoryAccessFault),
        ROCR,
    ),
    row("*HW Exception by GPU node-{d}", say!(HwException), ROCR),
    // HSA status
    row(
        "*HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION{d}",
        say!(ApertureViolation),
        HSA,
    ),
    row(
        "*HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION{d}",
        say!(IllegalInstruction),
        HSA,
    ),
    row(
        "*HSA_STATUS_ERROR_MEMORY_FAULT{d}",
        say!(MemoryAccessFault),
        HSA,
    ),
    row("*HSA_STATUS_ERROR_EXCEPTION{d}", say!(QueueException), HSA),
    row(
        "*HSA_STATUS_ERROR_OUT_OF_RESOURCES{d}",
        say!(OutOfResources),
        HSA,
    ),
    row("*HSA_STATUS_ERROR_INVALID_ISA{d}", say!(NoCodeObject), HSA),
    row(
        "*HSA_STATUS_ERROR_INVALID_CODE_OBJECT{d}",
        say!(NoCodeObject),
        HSA,
    ),
    row(
        "*HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS{d}",
        say!(NoCodeObject),
        HSA,
    ),
    row("*HSA_STATUS_ERROR{d}", say!(HsaError), HSA),
    row(
        "*Memory critical error by agent node-{d}",
        say!(MemoryCritical),
        ROCR,
    ),
    row("*Device-side assertion {d} failed", say!(DeviceAssert), HIP),
    row("*Device-side assertion `{d}", say!(DeviceAssert), HIP),
    row("*device-side assert triggered{d}", say!(DeviceAssert), CUDA),
    row("*hipErrorAssert{d}", say!(DeviceAssert), HIP),
    // Our engine
    row("*vt: no kernel for op {d}", say!(OpRefused), ENGINE),
    // No GPU code
    row(
        "*No compatible code objects found for: {d}",
        say!(NoCodeObject),
        HIP,
    ),
    row(
        "*device kernel image is invalid{d}",
        say!(NoCodeObject),
        HIP,
    ),
    row(
        "*no kernel image is available for execution on the device{d}",
        say!(NoCodeObject),
        CUDA,
    ),
    row("*hipErrorNoBinaryForGpu{d}", say!(NoCodeObject), HIP),
    row(
        "*Unable to find code object for all current devices{d}",
        say!(NoCodeObject),
        HIP,
    ),
    row("*hipErrorInvalidKernelFile{d}", say!(NoCodeObject), HIP),
    row("*hipErrorInvalidImage{d}", say!(NoCodeObject), HIP),
    row("*invalid device function{d}", say!(NoCodeObject), HIP),
    row("*Cannot read {d}TensileLibrary", say!(NoCodeObject), HIP),
    // GPU errors by HIP and CUDA name
    row(
        "*an illegal memory access was encountered{d}",
        say!(IllegalAddress),
        CUDA,
    ),
    row("*hipErrorIllegalAddress{d}", say!(IllegalAddress), HIP),
    row("*cudaErrorIllegalAddress{d}", say!(IllegalAddress), CUDA),
    row("*CUDA_ERROR_ILLEGAL_ADDRESS{d}", say!(IllegalAddress), CUDA),
    row(
        "*an illegal instruction was encountered{d}",
        say!(IllegalInstruction),
        CUDA,
    ),
    row("*misaligned address{d}", say!(IllegalAddress), CUDA),
    row(
        "*uncorrectable ECC error encountered{d}",
        say!(DeviceEcc),
        CUDA,
    ),
    row("*hipErrorECCNotCorrectable{d}", say!(DeviceEcc), HIP),
    row(
        "*the launch timed out and was terminated{d}",
        say!(LaunchTimeout),
        CUDA,
    ),
    row("*hipErrorLaunchTimeOut{d}", say!(LaunchTimeout), HIP),
    row("*unspecified launch failure{d}", say!(LaunchFailure), CUDA),
    row("*hipErrorLaunchFailure{d}", say!(LaunchFailure), HIP),
    row("*GPU is lost{d}", say!(DeviceLost), CUDA),
    row("*VK_ERROR_DEVICE_LOST{d}", say!(VulkanLost), RADV),
    row("*vk::DeviceLostError{d}", say!(VulkanLost), RADV),
    row("*ErrorDeviceLost{d}", say!(VulkanLost), RADV),
    row(
        "*The CS has been cancelled because the context is lost{d}",
        say!(VulkanLost),
        RADV,
    ),
    // Memory budgets
    row("*HIP out of memory{d}", say!(DeviceOom), TORCH),
    row("*CUDA out of memory{d}", say!(DeviceOom), TORCH),
    row("*hipErrorOutOfMemory{d}", say!(DeviceOom), HIP),
    row("*cudaErrorMemoryAllocation{d}", say!(DeviceOom), CUDA),
    row("*CUDA_ERROR_OUT_OF_MEMORY{d}", say!(DeviceOom), CUDA),
    row(
        "*cudaMalloc failed: out of memory{d}",
        say!(DeviceOom),
        GGML,
    ),
    row("*hipMalloc failed{d}", say!(DeviceOom), GGML),
    row("*CUDA error: out of memory{d}", say!(DeviceOom), GGML),
    row("*ROCm error: out of memory{d}", say!(DeviceOom), GGML),
    row(
        "*failed to allocate {d}buffer of size",
        say!(DeviceOom),
        GGML,
    ),
    row(
        "*radv/amdgpu: Failed to allocate a buffer{d}",
        say!(DeviceOom),
        RADV,
    ),
    row(
        "*radv/amdgpu: Not enough memory for command submission{d}",
        say!(DeviceOom),
        RADV,
    ),
    row("*ErrorOutOfDeviceMemory{d}", say!(DeviceOom), RADV),
    row("*VK_ERROR_OUT_OF_DEVICE_MEMORY{d}", say!(DeviceOom), RADV),
    row(
        "*Device memory allocation of size {d} failed",
        say!(DeviceOom),
        GGML,
    ),
    row("*std::bad_alloc{d}", say!(HostOom), GLIBC),
    row("*Cannot allocate memory{d}", say!(HostOom), ERRNO),
    row(
        "*memory allocation of {d} bytes failed",
        say!(HostOom),
        ERRNO,
    ),
    row("*MemoryError{d}", say!(HostOom), TORCH),
    row("*failed to mlock{d}", |_| None, GGML),
    // Driver and device presence
    row("*hipErrorNoDevice{d}", say!(NoDevice), HIP),
    row(
        "*no ROCm-capable device is detected{d}",
        say!(NoDevice),
        HIP,
    ),
    row(
        "*no CUDA-capable device is detected{d}",
        say!(NoDevice),
        CUDA,
    ),
    row("*Unable to open /dev/kfd{d}", say!(NoDevice), ROCR),
    row("*ROCk module is NOT loaded{d}", say!(NoDevice), ROCR),
    row("*failed to initialize ROCm: {d}", say!(NoDevice), GGML),
    row("*No HIP GPUs are available{d}", say!(NoDevice), TORCH),
    // Surroundings
    row("*No space left on device{d}", say!(DiskFull), ERRNO),
    row("*Disk quota exceeded{d}", say!(DiskFull), ERRNO),
    row("*Host is down{d}", say!(HostDown), ERRNO),
    row("*Stale file handle{d}", say!(HostDown), ERRNO),
    row(
        "*Transport endpoint is not connected{d}",
        say!(HostDown),
        ERRNO,
    ),
    row("*No route to host{d}", say!(HostDown), ERRNO),
    row("*read error: {d}", say!(ReadError), GGML),
    row("*Input/output error{d}", say!(ReadError), ERRNO),
    row("*[Errno 5]{d}", say!(ReadError), ERRNO),
    row("*Remote I/O error{d}", say!(ReadError), ERRNO),
    row("*Bus error{d}", say!(CrashEcho), SHELL),
    row(
        "*error while loading shared libraries: {d}",
        say!(EnvMissing),
        SHELL,
    ),
    row("*: command not found{d}", say!(EnvMissing), SHELL),
    row("*ModuleNotFoundError: {d}", say!(EnvMissing), TORCH),
    row("*version `{d}' not found", say!(EnvMissing), SHELL),
    row("*NCCL WARN {d}", say!(PeerLost), CUDA),
    row(
        "*Watchdog caught collective operation timeout{d}",
        say!(PeerLost),
        TORCH,
    ),
    // Input files
    row("*invalid magic characters{d}", say!(BadInput), GGML),
    row(
        "*tensor data is not within the file bounds{d}",
        say!(BadInput),
        GGML,
    ),
    row("*unknown model architecture: {d}", say!(BadInput), GGML),
    row("*file is corrupted or incomplete{d}", say!(BadInput), GGML),
    // The host program gives up
    row("*double free or corruption{d}", say!(HeapCorrupt), GLIBC),
    row("*free(): invalid {d}", say!(HeapCorrupt), GLIBC),
    row("*free(): double free{d}", say!(HeapCorrupt), GLIBC),
    row("*malloc(): {d}", say!(HeapCorrupt), GLIBC),
    row("*corrupted size vs. prev_size{d}", say!(HeapCorrupt), GLIBC),
    row("*corrupted double-linked list{d}", say!(HeapCorrupt), GLIBC),
    row(
        "*munmap_chunk(): invalid pointer{d}",
        say!(HeapCorrupt),
        GLIBC,
    ),
    row("*realloc(): invalid {d}", say!(HeapCorrupt), GLIBC),
    row("*stack smashing detected{d}", say!(HeapCorrupt), GLIBC),
    row("*AddressSanitizer: {d}", say!(HeapCorrupt), GLIBC),
    row("*GGML_ASSERT({d}", say!(HostAssert), GGML),
    row("*Assertion `{d}' failed", say!(HostAssert), GLIBC),
    row("*thread '{d}' panicked at", say!(HostAssert), SHELL),
    row("*thread '{d}' (", |_| None, SHELL),
    row("*terminate called{d}", say!(Terminate), GLIBC),
    row("*engine-fatal: {d}", say!(EngineFatal), ENGINE),
    row(
        "*Traceback (most recent call last){d}",
        say!(Traceback),
        TORCH,
    ),
    row(
        "*stream.query() still False after {d}",
        say!(WaitedInVain),
        TORCH,
    ),
    // Echoes
    row("*Segmentation fault{d}", say!(CrashEcho), SHELL),
    row("*Illegal instruction{d}", say!(CrashEcho), SHELL),
    row("*Floating point exception{d}", say!(CrashEcho), SHELL),
    row("Aborted{d}", say!(CrashEcho), SHELL),
    row("*Aborted (core dumped){d}", say!(CrashEcho), SHELL),
    row("Killed{d}", say!(CrashEcho), SHELL),
    row("*dumped core", say!(CrashEcho), SHELL),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    fn word(line: &str) -> Option<Word> {
        match find(ROWS, line.as_bytes())?.0 {
            Finding::Program { word, .. } => Some(word),
            _ => None,
        }
    }

    #[test]
    fn runtime_messages_are_recognised() {
        assert_eq!(
            word(
                "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7f. Reason: Unknown."
            ),
            Some(Word::MemoryAccessFault)
        );
        assert_eq!(
            word(
                ":0:rocdevice.cpp :3587: 8 us:  Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION: The agent attempted to execute an illegal shader instruction. code: 0x2a"
            ),
            Some(Word::IllegalInstruction)
        );
        assert_eq!(
            word(
                "engine-fatal: EngineCore busy loop threw: vt: no kernel for op MlaPrefillAttention (id 33) on device rocm (type 5)"
            ),
            Some(Word::OpRefused)
        );
        assert_eq!(
            word("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB."),
            Some(Word::DeviceOom)
        );
        assert_eq!(word("a story about the memory of a fault"), None);
    }
}
