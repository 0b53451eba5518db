//! The program's own words: ROCr, HSA, HIP, CUDA, ggml, PyTorch, our engine, glibc, shells, errno texts.
//!
//! Order matters within a line only: the first row that matches names it.

use super::Row;
use super::sources::{CUDA, ENGINE, ERRNO, GGML, GLIBC, HIP, HSA, RADV, ROCR, SHELL, TORCH};
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
    // ROCr
    Row {
        template: "*Memory access fault by GPU node-{d}",
        make: say!(MemoryAccessFault),
        source: ROCR,
    },
    Row {
        template: "*HW Exception by GPU node-{d}",
        make: say!(HwException),
        source: ROCR,
    },
    // HSA status
    Row {
        template: "*HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION{d}",
        make: say!(ApertureViolation),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION{d}",
        make: say!(IllegalInstruction),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_MEMORY_FAULT{d}",
        make: say!(MemoryAccessFault),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_EXCEPTION{d}",
        make: say!(QueueException),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_OUT_OF_RESOURCES{d}",
        make: say!(OutOfResources),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_INVALID_ISA{d}",
        make: say!(NoCodeObject),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_INVALID_CODE_OBJECT{d}",
        make: say!(NoCodeObject),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS{d}",
        make: say!(NoCodeObject),
        source: HSA,
    },
    Row {
        template: "*HSA_STATUS_ERROR{d}",
        make: say!(HsaError),
        source: HSA,
    },
    Row {
        template: "*Memory critical error by agent node-{d}",
        make: say!(MemoryCritical),
        source: ROCR,
    },
    Row {
        template: "*Device-side assertion {d} failed",
        make: say!(DeviceAssert),
        source: HIP,
    },
    Row {
        template: "*Device-side assertion `{d}",
        make: say!(DeviceAssert),
        source: HIP,
    },
    Row {
        template: "*device-side assert triggered{d}",
        make: say!(DeviceAssert),
        source: CUDA,
    },
    Row {
        template: "*hipErrorAssert{d}",
        make: say!(DeviceAssert),
        source: HIP,
    },
    // Our engine
    Row {
        template: "*vt: no kernel for op {d}",
        make: say!(OpRefused),
        source: ENGINE,
    },
    // No GPU code
    Row {
        template: "*No compatible code objects found for: {d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*device kernel image is invalid{d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*no kernel image is available for execution on the device{d}",
        make: say!(NoCodeObject),
        source: CUDA,
    },
    Row {
        template: "*hipErrorNoBinaryForGpu{d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*Unable to find code object for all current devices{d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*hipErrorInvalidKernelFile{d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*hipErrorInvalidImage{d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*invalid device function{d}",
        make: say!(NoCodeObject),
        source: HIP,
    },
    Row {
        template: "*Cannot read {d}TensileLibrary",
        make: say!(NoCodeObject),
        source: HIP,
    },
    // GPU errors by HIP and CUDA name
    Row {
        template: "*an illegal memory access was encountered{d}",
        make: say!(IllegalAddress),
        source: CUDA,
    },
    Row {
        template: "*hipErrorIllegalAddress{d}",
        make: say!(IllegalAddress),
        source: HIP,
    },
    Row {
        template: "*cudaErrorIllegalAddress{d}",
        make: say!(IllegalAddress),
        source: CUDA,
    },
    Row {
        template: "*CUDA_ERROR_ILLEGAL_ADDRESS{d}",
        make: say!(IllegalAddress),
        source: CUDA,
    },
    Row {
        template: "*an illegal instruction was encountered{d}",
        make: say!(IllegalInstruction),
        source: CUDA,
    },
    Row {
        template: "*misaligned address{d}",
        make: say!(IllegalAddress),
        source: CUDA,
    },
    Row {
        template: "*uncorrectable ECC error encountered{d}",
        make: say!(DeviceEcc),
        source: CUDA,
    },
    Row {
        template: "*hipErrorECCNotCorrectable{d}",
        make: say!(DeviceEcc),
        source: HIP,
    },
    Row {
        template: "*the launch timed out and was terminated{d}",
        make: say!(LaunchTimeout),
        source: CUDA,
    },
    Row {
        template: "*hipErrorLaunchTimeOut{d}",
        make: say!(LaunchTimeout),
        source: HIP,
    },
    Row {
        template: "*unspecified launch failure{d}",
        make: say!(LaunchFailure),
        source: CUDA,
    },
    Row {
        template: "*hipErrorLaunchFailure{d}",
        make: say!(LaunchFailure),
        source: HIP,
    },
    Row {
        template: "*GPU is lost{d}",
        make: say!(DeviceLost),
        source: CUDA,
    },
    Row {
        template: "*VK_ERROR_DEVICE_LOST{d}",
        make: say!(VulkanLost),
        source: RADV,
    },
    Row {
        template: "*vk::DeviceLostError{d}",
        make: say!(VulkanLost),
        source: RADV,
    },
    Row {
        template: "*ErrorDeviceLost{d}",
        make: say!(VulkanLost),
        source: RADV,
    },
    Row {
        template: "*The CS has been cancelled because the context is lost{d}",
        make: say!(VulkanLost),
        source: RADV,
    },
    // Memory budgets
    Row {
        template: "*HIP out of memory{d}",
        make: say!(DeviceOom),
        source: TORCH,
    },
    Row {
        template: "*CUDA out of memory{d}",
        make: say!(DeviceOom),
        source: TORCH,
    },
    Row {
        template: "*hipErrorOutOfMemory{d}",
        make: say!(DeviceOom),
        source: HIP,
    },
    Row {
        template: "*cudaErrorMemoryAllocation{d}",
        make: say!(DeviceOom),
        source: CUDA,
    },
    Row {
        template: "*CUDA_ERROR_OUT_OF_MEMORY{d}",
        make: say!(DeviceOom),
        source: CUDA,
    },
    Row {
        template: "*cudaMalloc failed: out of memory{d}",
        make: say!(DeviceOom),
        source: GGML,
    },
    Row {
        template: "*hipMalloc failed{d}",
        make: say!(DeviceOom),
        source: GGML,
    },
    Row {
        template: "*CUDA error: out of memory{d}",
        make: say!(DeviceOom),
        source: GGML,
    },
    Row {
        template: "*ROCm error: out of memory{d}",
        make: say!(DeviceOom),
        source: GGML,
    },
    Row {
        template: "*failed to allocate {d}buffer of size",
        make: say!(DeviceOom),
        source: GGML,
    },
    Row {
        template: "*radv/amdgpu: Failed to allocate a buffer{d}",
        make: say!(DeviceOom),
        source: RADV,
    },
    Row {
        template: "*radv/amdgpu: Not enough memory for command submission{d}",
        make: say!(DeviceOom),
        source: RADV,
    },
    Row {
        template: "*ErrorOutOfDeviceMemory{d}",
        make: say!(DeviceOom),
        source: RADV,
    },
    Row {
        template: "*VK_ERROR_OUT_OF_DEVICE_MEMORY{d}",
        make: say!(DeviceOom),
        source: RADV,
    },
    Row {
        template: "*Device memory allocation of size {d} failed",
        make: say!(DeviceOom),
        source: GGML,
    },
    Row {
        template: "*std::bad_alloc{d}",
        make: say!(HostOom),
        source: GLIBC,
    },
    Row {
        template: "*Cannot allocate memory{d}",
        make: say!(HostOom),
        source: ERRNO,
    },
    Row {
        template: "*memory allocation of {d} bytes failed",
        make: say!(HostOom),
        source: ERRNO,
    },
    Row {
        template: "*MemoryError{d}",
        make: say!(HostOom),
        source: TORCH,
    },
    Row {
        template: "*failed to mlock{d}",
        make: |_| None,
        source: GGML,
    },
    // Driver and device presence
    Row {
        template: "*hipErrorNoDevice{d}",
        make: say!(NoDevice),
        source: HIP,
    },
    Row {
        template: "*no ROCm-capable device is detected{d}",
        make: say!(NoDevice),
        source: HIP,
    },
    Row {
        template: "*no CUDA-capable device is detected{d}",
        make: say!(NoDevice),
        source: CUDA,
    },
    Row {
        template: "*Unable to open /dev/kfd{d}",
        make: say!(NoDevice),
        source: ROCR,
    },
    Row {
        template: "*ROCk module is NOT loaded{d}",
        make: say!(NoDevice),
        source: ROCR,
    },
    Row {
        template: "*failed to initialize ROCm: {d}",
        make: say!(NoDevice),
        source: GGML,
    },
    Row {
        template: "*No HIP GPUs are available{d}",
        make: say!(NoDevice),
        source: TORCH,
    },
    // Surroundings
    Row {
        template: "*No space left on device{d}",
        make: say!(DiskFull),
        source: ERRNO,
    },
    Row {
        template: "*Disk quota exceeded{d}",
        make: say!(DiskFull),
        source: ERRNO,
    },
    Row {
        template: "*Host is down{d}",
        make: say!(HostDown),
        source: ERRNO,
    },
    Row {
        template: "*Stale file handle{d}",
        make: say!(HostDown),
        source: ERRNO,
    },
    Row {
        template: "*Transport endpoint is not connected{d}",
        make: say!(HostDown),
        source: ERRNO,
    },
    Row {
        template: "*No route to host{d}",
        make: say!(HostDown),
        source: ERRNO,
    },
    Row {
        template: "*read error: {d}",
        make: say!(ReadError),
        source: GGML,
    },
    Row {
        template: "*Input/output error{d}",
        make: say!(ReadError),
        source: ERRNO,
    },
    Row {
        template: "*[Errno 5]{d}",
        make: say!(ReadError),
        source: ERRNO,
    },
    Row {
        template: "*Remote I/O error{d}",
        make: say!(ReadError),
        source: ERRNO,
    },
    Row {
        template: "*Bus error{d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "*error while loading shared libraries: {d}",
        make: say!(EnvMissing),
        source: SHELL,
    },
    Row {
        template: "*: command not found{d}",
        make: say!(EnvMissing),
        source: SHELL,
    },
    Row {
        template: "*ModuleNotFoundError: {d}",
        make: say!(EnvMissing),
        source: TORCH,
    },
    Row {
        template: "*version `{d}' not found",
        make: say!(EnvMissing),
        source: SHELL,
    },
    Row {
        template: "*NCCL WARN {d}",
        make: say!(PeerLost),
        source: CUDA,
    },
    Row {
        template: "*Watchdog caught collective operation timeout{d}",
        make: say!(PeerLost),
        source: TORCH,
    },
    // Input files
    Row {
        template: "*invalid magic characters{d}",
        make: say!(BadInput),
        source: GGML,
    },
    Row {
        template: "*tensor data is not within the file bounds{d}",
        make: say!(BadInput),
        source: GGML,
    },
    Row {
        template: "*unknown model architecture: {d}",
        make: say!(BadInput),
        source: GGML,
    },
    Row {
        template: "*file is corrupted or incomplete{d}",
        make: say!(BadInput),
        source: GGML,
    },
    // The host program gives up
    Row {
        template: "*double free or corruption{d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*free(): invalid {d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*free(): double free{d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*malloc(): {d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*corrupted size vs. prev_size{d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*corrupted double-linked list{d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*munmap_chunk(): invalid pointer{d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*realloc(): invalid {d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*stack smashing detected{d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*AddressSanitizer: {d}",
        make: say!(HeapCorrupt),
        source: GLIBC,
    },
    Row {
        template: "*GGML_ASSERT({d}",
        make: say!(HostAssert),
        source: GGML,
    },
    Row {
        template: "*Assertion `{d}' failed",
        make: say!(HostAssert),
        source: GLIBC,
    },
    Row {
        template: "*thread '{d}' panicked at",
        make: say!(HostAssert),
        source: SHELL,
    },
    Row {
        template: "*thread '{d}' (",
        make: |_| None,
        source: SHELL,
    },
    Row {
        template: "*terminate called{d}",
        make: say!(Terminate),
        source: GLIBC,
    },
    Row {
        template: "*engine-fatal: {d}",
        make: say!(EngineFatal),
        source: ENGINE,
    },
    Row {
        template: "*Traceback (most recent call last){d}",
        make: say!(Traceback),
        source: TORCH,
    },
    Row {
        template: "*stream.query() still False after {d}",
        make: say!(WaitedInVain),
        source: TORCH,
    },
    // Echoes
    Row {
        template: "*Segmentation fault{d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "*Illegal instruction{d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "*Floating point exception{d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "Aborted{d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "*Aborted (core dumped){d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "Killed{d}",
        make: say!(CrashEcho),
        source: SHELL,
    },
    Row {
        template: "*dumped core",
        make: say!(CrashEcho),
        source: SHELL,
    },
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
