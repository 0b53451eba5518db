//! What a line of evidence says, typed.

mod page_fault;
mod word;

use super::lexer::Stamp;
use super::pci::Pci;

pub use page_fault::PageFault;
pub use word::Word;

/// A process that a line names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Proc {
    /// Its name, cut to 15 characters by the kernel.
    pub comm: String,
    /// Its pid (for a thread's own line: the thread's).
    pub pid: Option<u64>,
    /// The pid of the thread, where a line names both.
    pub thread: Option<u64>,
    /// The name of the thread.
    pub thread_comm: String,
}

impl Proc {
    /// Whether the line says that nobody in particular is meant: pid 0, no name.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        self.pid.unwrap_or(0) == 0
            && (self.comm.is_empty() || self.comm == "<unknown>" || self.comm == "unknown")
    }
}

/// A step of a GPU reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetStep {
    /// `GPU reset begin!`, with the source number of newer drivers.
    Begin {
        /// `Source: N`.
        source: Option<u8>,
    },
    /// A reset was due but `amdgpu.gpu_recovery=0` forbids it.
    Disabled,
    /// MODE1, MODE2, BACO, …
    Method(String),
    /// It worked.
    Succeeded,
    /// It did not; the driver's code.
    Failed(i64),
}

/// PCI Express error severities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Corrected by the hardware.
    Corrected,
    /// Not corrected, link still usable.
    NonFatal,
    /// Not corrected, link down.
    Fatal,
}

/// Who was killed for memory, and by whose limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomScope {
    /// The machine ran out.
    Global,
    /// A memory cgroup reached its limit.
    Cgroup,
    /// A user-space killer acted on pressure.
    UserSpace,
}

/// What one piece of evidence says.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// A page fault of the GPU.
    GpuPageFault(Box<PageFault>),
    /// The hardware scheduler of gfx11 and later does not answer.
    MesTimeout {
        /// The message that it did not answer.
        msg: String,
    },
    /// The hardware scheduler of gfx9 and gfx10 does not answer.
    HwsTimeout,
    /// A kernel-managed ring timed out.
    RingTimeout {
        /// Name of the ring.
        ring: String,
        /// The job was dropped and the engine went on.
        soft_recovered: bool,
        /// Whose job was on it.
        process: Option<Proc>,
    },
    /// A step of a reset.
    GpuReset(ResetStep),
    /// A GPU that could not be initialised.
    GpuInitFailed {
        /// What failed.
        what: String,
    },
    /// The device does not answer on its bus.
    DeviceLost,
    /// Power-management firmware does not answer.
    SmuFailure {
        /// Its mailbox (as opposed to a follow-up complaint).
        mailbox: bool,
    },
    /// A wave raised an error interrupt.
    SqInterrupt {
        /// 0 and 3: poisoned data, 1: illegal instruction, 2: memory violation.
        kind: u8,
        /// Raised inside the trap handler.
        privileged: Option<u8>,
    },
    /// RAS or ECC of a GPU.
    RasError {
        /// Hardware block.
        block: String,
        /// Corrected by the hardware.
        correctable: bool,
        /// A counter value that is an all-ones register read.
        bogus: bool,
    },
    /// A machine check.
    Mce {
        /// Corrected by the hardware.
        corrected: bool,
    },
    /// A PCI Express error.
    Aer {
        /// How bad.
        severity: Severity,
        /// The device that reported it, where named.
        origin: Option<Pci>,
    },
    /// Too hot: shutdown-level for a GPU, throttling for a CPU.
    Thermal {
        /// Whether the driver stops the machine or the GPU.
        critical: bool,
    },
    /// Killed for memory.
    OomKill {
        /// By whom.
        scope: OomScope,
        /// The victim.
        process: Option<Proc>,
        /// The victim's cgroup or unit.
        unit: String,
    },
    /// A CPU-side crash that the kernel saw.
    CpuFault {
        /// `segfault`, `general protection fault`, `trap invalid opcode`, …
        what: String,
        /// Who.
        process: Proc,
        /// The file in which the instruction lies.
        module: String,
        /// Instruction pointer or offset, for comparison between crashes.
        ip: Option<u64>,
    },
    /// A task blocked for minutes.
    HungTask {
        /// Who.
        process: Proc,
        /// What its stack shows: `gpu`, `share`, `storage` or empty.
        frames: &'static str,
    },
    /// A network share does not answer.
    ShareLost {
        /// It answered again.
        recovered: bool,
    },
    /// A disk or file system fails.
    StorageLost {
        /// Device or file system.
        what: String,
    },
    /// No space left on a device.
    DiskFull,
    /// A network card fails.
    NetworkLost,
    /// KFD's memory budget is exhausted.
    SvmLimit,
    /// KFD refuses a queue: driver and runtime do not match.
    QueueCreateFailed {
        /// errno.
        code: i64,
    },
    /// An NVIDIA error number.
    Xid {
        /// The number.
        code: u16,
        /// The process, where named.
        process: Option<Proc>,
        /// `caused by previous Xid N`.
        previous: Option<u16>,
    },
    /// Why the machine was reset before this boot.
    HostReset {
        /// What reset it.
        cause: ResetCause,
        /// The kernel's words.
        words: String,
    },
    /// An I/O address that the IOMMU does not map.
    IommuFault {
        /// The event log overflowed.
        overflow: bool,
    },
    /// The kernel itself failed: oops, lockup, panic.
    KernelBug {
        /// What it says.
        what: String,
        /// A GPU driver is in its trace.
        gpu: bool,
    },
    /// A frightening line that means nothing by itself.
    Harmless {
        /// Why it means nothing.
        why: &'static str,
    },
    /// What a reset prints, or a fault leaves behind.
    Boilerplate {
        /// What it is.
        what: &'static str,
    },
    /// A hint that does not decide.
    Hint {
        /// What it hints at.
        what: &'static str,
    },
    /// What the program said.
    Program {
        /// Its meaning.
        word: Word,
        /// The part of the line that matters: op, address, code.
        detail: String,
    },
}

/// Why a machine was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetCause {
    /// Uncorrected error, sync flood.
    Hardware,
    /// Reset pin, button, power switch.
    External,
    /// A watchdog.
    Watchdog,
    /// Too hot.
    Thermal,
    /// Asked for by software.
    Software,
    /// Power lost.
    Power,
}

impl Finding {
    /// Whether it is about a GPU at work: a fault, a hang, a reset, or a runtime's word of one.
    #[must_use]
    pub fn speaks_of_gpu(&self) -> bool {
        match self {
            Finding::GpuPageFault(_)
            | Finding::SqInterrupt { .. }
            | Finding::MesTimeout { .. }
            | Finding::HwsTimeout
            | Finding::RingTimeout { .. }
            | Finding::GpuReset(_)
            | Finding::Xid { .. } => true,
            Finding::Program { word, .. } => matches!(
                word,
                Word::MemoryAccessFault
                    | Word::ApertureViolation
                    | Word::IllegalInstruction
                    | Word::QueueException
                    | Word::IllegalAddress
                    | Word::DeviceAssert
                    | Word::HwException
                    | Word::LaunchFailure
            ),
            _ => false,
        }
    }

    /// The slug under which a finding appears in reports.
    #[must_use]
    pub fn slug(&self) -> &'static str {
        match self {
            Finding::GpuPageFault(_) => "gpu-page-fault",
            Finding::MesTimeout { .. } => "mes-timeout",
            Finding::HwsTimeout => "hws-timeout",
            Finding::RingTimeout { .. } => "ring-timeout",
            Finding::GpuReset(_) => "gpu-reset",
            Finding::GpuInitFailed { .. } => "gpu-init-failed",
            Finding::DeviceLost => "device-lost",
            Finding::SmuFailure { .. } => "smu-failure",
            Finding::SqInterrupt { .. } => "sq-interrupt",
            Finding::RasError { .. } => "ras-error",
            Finding::Mce { .. } => "mce",
            Finding::Aer { .. } => "pcie-aer",
            Finding::Thermal { .. } => "thermal",
            Finding::OomKill { .. } => "oom-kill",
            Finding::CpuFault { .. } => "cpu-fault",
            Finding::HungTask { .. } => "hung-task",
            Finding::ShareLost { .. } => "share-lost",
            Finding::StorageLost { .. } => "storage-lost",
            Finding::DiskFull => "disk-full",
            Finding::NetworkLost => "network-lost",
            Finding::SvmLimit => "svm-limit",
            Finding::QueueCreateFailed { .. } => "queue-create-failed",
            Finding::Xid { .. } => "xid",
            Finding::HostReset { .. } => "host-reset",
            Finding::IommuFault { .. } => "iommu-fault",
            Finding::KernelBug { .. } => "kernel-bug",
            Finding::Harmless { .. } => "harmless",
            Finding::Boilerplate { .. } => "boilerplate",
            Finding::Hint { .. } => "hint",
            Finding::Program { .. } => "program",
        }
    }

    /// The process that the finding names.
    #[must_use]
    pub fn process(&self) -> Option<&Proc> {
        match self {
            Finding::GpuPageFault(f) => f.process.as_ref(),
            Finding::RingTimeout { process, .. }
            | Finding::OomKill { process, .. }
            | Finding::Xid { process, .. } => process.as_ref(),
            Finding::CpuFault { process, .. } | Finding::HungTask { process, .. } => Some(process),
            _ => None,
        }
    }
}

/// Which log a finding was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The kernel log.
    Kernel,
    /// What the program printed.
    Output,
}

/// A finding and where it was read.
#[derive(Debug, Clone)]
pub struct Event {
    /// What it says.
    pub finding: Finding,
    /// Which log.
    pub origin: Origin,
    /// The device that it names.
    pub device: Option<Pci>,
    /// The driver that wrote it; empty for programs and untagged lines.
    pub driver: String,
    /// Its lines: number and text; the first is the one that names it.
    pub lines: Vec<(u64, String)>,
    /// Time of the first line.
    pub stamp: Stamp,
    /// Sequence number of the first line, in a raw kmsg log.
    pub seq: Option<u64>,
    /// How many equal findings this stands for.
    pub count: u64,
    /// Where the rule comes from.
    pub source: &'static str,
}

impl Event {
    /// Number of the first line.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.lines.first().map_or(0, |l| l.0)
    }

    /// Text of the first line.
    #[must_use]
    pub fn text(&self) -> &str {
        self.lines.first().map_or("", |l| l.1.as_str())
    }
}
