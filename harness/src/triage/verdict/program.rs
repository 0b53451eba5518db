//! Question 5: only the program spoke.

use legwork_reports::model::{Class, Confidence, StackState};

use super::decision::{Decision, Evidence};
use crate::triage::finding::{Finding, Word};
use crate::triage::settle::Settle;
use crate::triage::stack_gate;

use Class::{Board, Host, Inconclusive, Infra, Kernel};
use Confidence::{High, Low, Medium};

/// Words that only repeat how a process ended.
fn echo(w: Word) -> bool {
    matches!(w, Word::CrashEcho)
}

/// Words that say little: taken when nothing better was said.
fn weak(w: Word) -> bool {
    matches!(
        w,
        Word::Traceback
            | Word::Terminate
            | Word::EngineFatal
            | Word::HsaError
            | Word::PeerLost
            | Word::WaitedInVain
    )
}

/// The first thing that the program said about its end.
#[must_use]
pub fn first(ev: &Evidence<'_>) -> Option<(usize, Word)> {
    let pick =
        |f: &dyn Fn(Word) -> bool| ev.words().find(|(_, _, w)| f(*w)).map(|(i, _, w)| (i, w));
    pick(&|w| !echo(w) && !weak(w)).or_else(|| pick(&|w| !echo(w)))
}

/// Whether a word speaks of the GPU's state rather than of a fault of the program's own.
#[must_use]
pub fn told_of_reset(w: Word) -> bool {
    matches!(
        w,
        Word::HwException
            | Word::LaunchFailure
            | Word::VulkanLost
            | Word::HsaError
            | Word::EngineFatal
            | Word::Terminate
            | Word::Traceback
            | Word::HostAssert
            | Word::PeerLost
            | Word::DeviceLost
            | Word::WaitedInVain
    )
}

/// The verdict on the program's own words.
#[must_use]
pub fn judge(ev: &Evidence<'_>) -> Option<Decision> {
    if ev.ending.success() && !ev.hidden_crash {
        return None;
    }
    let (i, word) = first(ev)?;
    let d = one(ev, i, word)?;
    let echo = ev.said(&[Word::CrashEcho]);
    Some(d.with(
        echo,
        "how the shell reports the end: a consequence of the line above",
    ))
}

fn shader(ev: &Evidence<'_>, i: usize, kind: &str, why: &str) -> Decision {
    let gate = stack_gate::judge(ev.facts);
    if let Some(v) = ev.ctx.gfx_override() {
        return Decision::by(
            i,
            Kernel,
            kind,
            Medium,
            format!(
                "{why}, and HSA_OVERRIDE_GFX_VERSION={v} makes the board run code of another target"
            ),
        )
        .settle(&[Settle::NoOverride]);
    }
    let mut d = match gate.state {
        StackState::Bad => Decision::by(i, Inconclusive, kind, Medium, format!("{why}; but this stack is known to fault by itself in the same words"))
            .or(Kernel, kind, "if it faults on a sound stack too")
            .or(Board, kind, "if it passes there")
            .settle(&[Settle::CwsrOff, Settle::FixedStack, Settle::OtherBoard, Settle::Serialise]),
        // A flat address outside all apertures is not what a badly restored wave is known for.
        StackState::Unknown if kind == "gpu-page-fault" => Decision::by(i, Inconclusive, kind, Medium, format!("{why}; but without the kernel log's client, and on a gfx1151 stack that is not known to be sound, it may be the stack's own fault"))
            .or(Kernel, kind, "if the stack has the VGPR-size fix and a shader made the access")
            .or(Board, kind, "if the command processor made the access, or the stack lacks the fix")
            .settle(&[Settle::KernelLog, Settle::RecordStack, Settle::CwsrOff, Settle::FixedStack, Settle::Serialise]),
        _ if ev.known_good() => Decision::by(i, Inconclusive, kind, Medium, format!("{why}; but the GPU code is known to work elsewhere"))
            .or(Board, kind, "if the same leg passes on a second board")
            .settle(&[Settle::OtherBoard, Settle::Repeat]),
        _ => Decision::by(i, Kernel, kind, Medium, why)
            .or(Board, kind, "if the same leg passes on a second board of the same type"),
    };
    if gate.state != StackState::NotApplicable {
        d.gate = Some(gate);
    }
    d
}

fn one(ev: &Evidence<'_>, i: usize, word: Word) -> Option<Decision> {
    let by = |class, kind: &str, c, why: &str| Decision::by(i, class, kind, c, why);
    Some(match word {
        Word::MemoryAccessFault => shader(ev, i, "gpu-page-fault", "ROCr reports a GPU memory fault that nothing handled, in this process"),
        Word::IllegalAddress => shader(ev, i, "gpu-page-fault", "the runtime reports an illegal access by this process's GPU work"),
        Word::ApertureViolation => shader(ev, i, "gpu-aperture-violation", "a wave of this process used a flat address outside every aperture: a wild or unfilled pointer, or LDS or scratch out of range"),
        Word::IllegalInstruction => by(Kernel, "gpu-illegal-instruction", High, "a wave of this process met an encoding that the GPU does not have: wrong or miscompiled GPU code"),
        Word::DeviceAssert => by(Kernel, "gpu-trap", High, "GPU code of this process stopped itself by an assertion or trap"),
        Word::QueueException => {
            if let Some(a) = ev.said(&[Word::DeviceAssert]) {
                by(Kernel, "gpu-trap", High, "GPU code stopped itself by an assertion or trap").with(Some(a), "the assertion's own text")
            } else {
                by(Inconclusive, "gpu-trap", Medium, "a queue exception that the runtime could not classify: trap, abort, mathematics or the board")
                    .or(Kernel, "gpu-trap", "if the GPU code has an assertion, a trap or an abort")
                    .settle(&[Settle::Repeat, Settle::Serialise, Settle::OtherBoard])
            }
        }
        Word::NoCodeObject => by(Kernel, "no-code-object", High, "the build holds no usable GPU code for this target"),
        Word::OpRefused => {
            let cpu = matches!(&ev.events[i].finding, Finding::Program { detail, .. } if detail.contains("device cpu"));
            if cpu {
                by(Host, "op-refused", High, "the engine has no kernel for an op on the CPU and says so")
            } else {
                by(Kernel, "op-refused", High, "the engine has no native kernel for an op on this device and refuses by name")
            }
        }
        Word::DeviceEcc => by(Board, "ras-error", High, "the runtime reports an uncorrectable memory error"),
        Word::DeviceLost => by(Board, "device-lost", Medium, "the runtime reports that the device is gone").settle(&[Settle::KernelLog]),
        Word::HwException => by(Inconclusive, "gpu-hang", Medium, "ROCr was told of a reset; that says nothing about the cause, and no kernel line shows it")
            .settle(&[Settle::KernelLog, Settle::Devcoredump, Settle::Serialise, Settle::Repeat]),
        Word::VulkanLost => by(Inconclusive, "gpu-hang", Medium, "the Vulkan device was lost; the cause is not in the evidence")
            .settle(&[Settle::KernelLog, Settle::Devcoredump, Settle::QuietGpu]),
        Word::LaunchFailure => by(Inconclusive, "gpu-launch-failure", Medium, "the runtime lost its GPU context without naming a cause")
            .settle(&[Settle::KernelLog, Settle::Serialise, Settle::RuntimeLog]),
        Word::LaunchTimeout => by(Inconclusive, "launch-timeout", Medium, "a launch ran too long: a long kernel and a hang look the same")
            .settle(&[Settle::Smaller, Settle::Profile]),
        Word::OutOfResources => by(Inconclusive, "out-of-resources", Medium, "a queue or an allocation failed; this is not proof of out of memory")
            .settle(&[Settle::KernelLog, Settle::RuntimeLog, Settle::Smaller]),
        Word::HsaError => by(Inconclusive, "hsa-error", Low, "the HSA runtime failed without a status that names the cause")
            .settle(&[Settle::KernelLog, Settle::RuntimeLog]),
        Word::MemoryCritical => by(Board, "hsa-memory-critical", Low, "the HSA runtime's own accounting failed: driver stack")
            .settle(&[Settle::FixedStack, Settle::Repeat]),
        Word::QueueCreate => by(Inconclusive, "queue-create-failed", Low, "a queue was refused").settle(&[Settle::KernelLog]),
        Word::ResetNeeded => by(Board, "device-lost", Medium, "the runtime asks for a reset of the device"),
        Word::NoDevice => by(Infra, "no-device", Medium, "no GPU could be opened: driver not loaded, no permission on /dev/kfd, or hidden by the environment")
            .settle(&[Settle::Privileged]),
        Word::DeviceOom => by(Host, "oom-device", High, "an allocation of GPU memory was refused: a budget, not a fault")
            .settle(&[]),
        Word::HostOom => by(Host, "oom-host", High, "an allocation of host memory was refused"),
        Word::HostAssert => by(Host, "abort-host", Medium, "the host program stopped itself by an assertion"),
        Word::HeapCorrupt => by(Host, "abort-host", Medium, "the C library found memory of the host program corrupt").settle(&[Settle::Asan]),
        Word::Terminate => by(Host, "abort-host", Medium, "an exception that nothing caught ended the host program"),
        Word::EngineFatal => by(Host, "engine-fatal", Medium, "the engine gave up with a message of its own"),
        Word::Traceback => by(Host, "program-error", Medium, "the program ended by an error of its own"),
        Word::DiskFull => by(Infra, "disk-full", High, "no space left: there is no kernel line for it, only the program's word"),
        Word::HostDown => by(Infra, "share-lost", Medium, "the share's server is gone, by the program's word"),
        Word::ReadError => by(Infra, "read-error", Medium, "reads fail with the error of a lost share or disk, but no kernel line says which")
            .settle(&[Settle::KernelLog]),
        Word::EnvMissing => by(Infra, "env-missing", High, "a program or library is missing where the attempt ran"),
        Word::BadInput => by(Infra, "bad-input", Medium, "an input file is damaged or of another kind").or(Host, "bad-input", "if the reader is wrong"),
        Word::PeerLost => by(Inconclusive, "peer-lost", Low, "another rank or peer did not answer").settle(&[Settle::Repeat, Settle::KernelLog]),
        Word::WaitedInVain => by(Inconclusive, "hang-no-kernel-log", Medium, "the program waited in vain for its GPU work, and the kernel log is silent: a kernel that never ends and a stopped GPU look the same")
            .settle(&[Settle::Smaller, Settle::KnownGood, Settle::NoHws, Settle::Simt]),
        Word::CrashEcho => return None,
    })
}
