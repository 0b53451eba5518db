//! What would settle an open question, in words that `legwork run` and a shell accept.

use super::context::Context;

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Every kernel and copy waits.
    Serialise,
    /// The same leg on a second board of the same type.
    OtherBoard,
    /// Context save off.
    CwsrOff,
    /// A stack without known defects.
    FixedStack,
    /// Half the batch or context.
    Smaller,
    /// The allocator that is the default.
    DefaultAllocator,
    /// Nobody else on the GPU.
    QuietGpu,
    /// More of the kernel log.
    KernelLog,
    /// The state dump that the driver made.
    Devcoredump,
    /// The same leg without the target override.
    NoOverride,
    /// A known-good workload as control.
    KnownGood,
    /// The same leg again.
    Repeat,
    /// A cold start of the machine.
    ColdStart,
    /// The runtime's own log.
    RuntimeLog,
    /// The same GPU code on the host, bounds-checked.
    Simt,
    /// No hardware scheduler.
    NoHws,
    /// IOMMU out of the way.
    IommuPt,
    /// A memory checker on the host program.
    Asan,
    /// The kernel log as root.
    Privileged,
    /// Where the time goes.
    Profile,
    /// No pinning of mapped files.
    NoMmap,
    /// Record the stack.
    RecordStack,
    /// The power switch's and the operator's log.
    PowerLog,
    /// pstore and the previous boot's log.
    Pstore,
    /// Capture again.
    Recapture,
    /// Core and backtrace.
    Core,
}

impl Settle {
    /// The step in words.
    #[must_use]
    pub fn words(self, ctx: &Context) -> String {
        let _ = ctx;
        match self {
            Settle::Serialise => "legwork repro RUN --env AMD_SERIALIZE_KERNEL=3 --env AMD_SERIALIZE_COPY=3: the fault then lies at the call that returns it",
            Settle::OtherBoard => "the same repro on a second board of the same type (legwork repro RUN there): it fails too = GPU code, it passes = board",
            Settle::CwsrOff => "boot with amdgpu.cwsr_enable=0 (MES other than 0x83), then legwork repro RUN: it still faults = GPU code",
            Settle::FixedStack => "legwork repro RUN on a stack with the gfx1151 VGPR-size fix (kernel 6.18.4 or newer, ROCm 7.2.1 or newer, MES other than 0x83)",
            Settle::Smaller => "legwork repro RUN with a smaller batch or context (engine: max_tokens, batch; e.g. half)",
            Settle::DefaultAllocator => "legwork repro RUN --env VT_ROCM_MANAGED_ALLOC=0 (the default allocator)",
            Settle::QuietGpu => "legwork repro RUN with no other client on the GPU (legwork doctor lists them)",
            Settle::KernelLog => "the kernel log from before the first line shown: the page-fault line names pid and unit",
            Settle::Devcoredump => "the devcoredump (/sys/class/drm/card*/device/devcoredump/data, kept about five minutes): it may hold a fault that the log lacks",
            Settle::NoOverride => "legwork repro RUN without HSA_OVERRIDE_GFX_VERSION, with GPU code built for this target",
            Settle::KnownGood => "a known-good workload on this board as control (legwork run smoke --device rocm): it fails too = board",
            Settle::Repeat => "legwork repro RUN --repeat 5: one failure in few is a race or a board, all alike is the code",
            Settle::ColdStart => "power the machine off and on, then legwork repro RUN",
            Settle::RuntimeLog => "legwork repro RUN --env AMD_LOG_LEVEL=4: the runtime then names the call and its addresses",
            Settle::Simt => "legwork repro RUN --device simt: an access out of bounds then names kernel, line and thread",
            Settle::NoHws => "boot with amdgpu.sched_policy=2 (no hardware scheduler) and run again; a wave dump at the stall",
            Settle::IommuPt => "boot with iommu=pt and run again; whether a pinned host buffer was freed while in use",
            Settle::Asan => "the host program under AddressSanitizer or valgrind",
            Settle::Privileged => "legwork run as a user who may read /dev/kmsg (legwork doctor says how)",
            Settle::Profile => "legwork repro RUN --env VT_KERNEL_TRACE=1: the longest kernel of the same prompt",
            Settle::NoMmap => "legwork repro RUN with the model read instead of mapped (engine: mmap: false; llama.cpp: --no-mmap)",
            Settle::RecordStack => "record kernel, ROCm, amdgpu.cwsr_enable and MES version (legwork doctor) with the attempt",
            Settle::PowerLog => "the power switch's or operator's log for that minute",
            Settle::Pstore => "pstore and the kernel log of the previous boot (journalctl -k -b -1)",
            Settle::Recapture => "legwork repro RUN: the capture failed, not necessarily the leg",
            Settle::Core => "legwork repro RUN with core: full and gdb installed: the backtrace names the frame",
        }
        .to_owned()
    }
}
