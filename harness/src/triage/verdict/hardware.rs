//! Question 2: did the hardware say so itself?

use legwork_reports::model::{Class, Confidence};

use super::decision::{Decision, Evidence};
use super::incident::Incident;
use crate::triage::data::nvidia::{XidClass, xid_class, xid_row};
use crate::triage::fault_status::Client;
use crate::triage::finding::{Event, Finding, ResetCause, ResetStep, Severity};
use crate::triage::scope::{Owner, may_be_gpu_path};
use crate::triage::settle::Settle;

/// Seconds after boot in which machine checks are reports about the boot before.
const BOOT_S: u64 = 60;

/// The first statement of hardware or firmware about itself.
#[must_use]
pub fn ask(ev: &Evidence<'_>, incidents: &[Incident]) -> Option<Decision> {
    let mut found: Vec<(usize, Decision)> = Vec::new();
    for (i, e, _) in ev.kernel() {
        if let Some(d) = one(ev, i, e) {
            found.push((i, d));
        }
    }
    // A sync flood's own reason line comes first in the next boot; the machine check behind it says more.
    if found.iter().any(|(_, d)| d.kind == "mce") {
        let first = found.iter().position(|(_, d)| d.kind == "mce")?;
        found.swap(0, first);
    }
    let (at, mut d) = found.first().cloned()?;
    for (i, other) in found.iter().skip(1) {
        if d.supports.len() < 8 {
            d.supports.push((*i, other.why.clone()));
        }
    }
    // Our own shader fault before a reset that then failed: the board is lost, but the fault came first.
    let own_fault = incidents.iter().find(|inc| {
        inc.owner <= Owner::Likely
            && inc.guilty < at
            && matches!(&ev.events[inc.guilty].finding, Finding::GpuPageFault(f) if f.client().is_shader() && !f.is_kernel_space())
    });
    if let Some(inc) = own_fault {
        if d.confidence == Confidence::High {
            d.confidence = Confidence::Medium;
        }
        d.supports.push((
            inc.guilty,
            "a shader fault of the attempt came before: what the hardware says outranks it"
                .to_owned(),
        ));
        d = d
            .or(
                Class::Kernel,
                "gpu-page-fault",
                "if the board is sound after a cold start and the same leg faults again",
            )
            .settle(&[Settle::OtherBoard, Settle::ColdStart]);
    }
    Some(d)
}

/// A later success on the same device takes a failed step back.
fn recovered(ev: &Evidence<'_>, i: usize, e: &Event) -> bool {
    ev.kernel().any(|(k, later, _)| {
        k > i
            && matches!(later.finding, Finding::GpuReset(ResetStep::Succeeded))
            && (later.device.is_none() || e.device.is_none() || later.device == e.device)
            && later
                .stamp
                .seconds_after(&e.stamp)
                .is_none_or(|g| g < 120.0)
    })
}

/// Whether a reset of the same device is under way.
fn in_reset(ev: &Evidence<'_>, i: usize) -> bool {
    let device = ev.events[i].device;
    ev.kernel()
        .filter(|(k, e, _)| {
            *k < i && (e.device.is_none() || device.is_none() || e.device == device)
        })
        .filter_map(|(_, e, _)| match &e.finding {
            Finding::GpuReset(ResetStep::Begin { .. }) => Some(true),
            Finding::GpuReset(ResetStep::Succeeded | ResetStep::Failed(_)) => Some(false),
            _ => None,
        })
        .last()
        .unwrap_or(false)
}

fn one(ev: &Evidence<'_>, i: usize, e: &Event) -> Option<Decision> {
    use Class::Board;
    use Confidence::{High, Low, Medium};
    let by = |kind: &str, c, why: &str| Some(Decision::by(i, Board, kind, c, why));
    match &e.finding {
        Finding::RasError {
            correctable: false,
            bogus: false,
            ..
        } => by(
            "ras-error",
            High,
            "the GPU's RAS unit reports an error that it could not correct",
        ),
        Finding::SqInterrupt { kind: 0 | 3, .. } => by(
            "ras-error",
            High,
            "a wave met poisoned data (EDC/ECC): memory hardware",
        ),
        Finding::GpuReset(ResetStep::Begin { source: Some(2) }) => by(
            "ras-error",
            High,
            "the driver resets the GPU because of a RAS error (source 2)",
        ),
        Finding::Mce { corrected: false } => {
            let at_boot = e.stamp.mono_us.is_some_and(|us| us < BOOT_S * 1_000_000);
            if at_boot && ev.ending.success() {
                return None;
            }
            by(
                "mce",
                High,
                "an uncorrected machine check: CPU, memory or fabric hardware",
            )
        }
        Finding::HostReset { cause, words } if ev.ending.host_reset || ev.ending.unknown() => {
            match cause {
                ResetCause::Hardware => by(
                    "mce",
                    High,
                    "the machine was reset by an uncorrected hardware error",
                ),
                ResetCause::Thermal => by(
                    "thermal",
                    High,
                    "the machine was reset because it was too hot",
                ),
                _ => {
                    let _ = words;
                    None
                }
            }
        }
        Finding::Thermal { critical: true } => by(
            "thermal",
            High,
            "the driver stops the GPU or the machine because it is too hot",
        ),
        Finding::DeviceLost => {
            // A suspended device is inaccessible too; only a failed attempt makes it a loss.
            if ev.ending.success() {
                return None;
            }
            by(
                "device-lost",
                if e.driver == "snd_hda_intel" {
                    Medium
                } else {
                    High
                },
                "the device does not answer on its bus",
            )
        }
        Finding::GpuPageFault(f) if f.client() == Client::Gone => by(
            "device-lost",
            Medium,
            "the fault status reads as all ones: the device does not answer on its bus",
        ),
        Finding::Aer {
            severity: severity @ (Severity::NonFatal | Severity::Fatal),
            origin,
        } => {
            // With the GPU known, another device's link is not ours; a bridge may be.
            let ours = match origin.or(e.device) {
                Some(_) if ev.scope.gpus().is_empty() => may_be_gpu_path(&e.driver),
                Some(d) => ev.scope.on_our_gpu(Some(d)) || e.driver == "pcieport",
                None => may_be_gpu_path(&e.driver),
            };
            let other_device = origin
                .or(e.device)
                .is_some_and(|d| ev.others.iter().any(|o| o.same_device(d)));
            if !ours || other_device || ev.ending.success() && *severity == Severity::NonFatal {
                return None;
            }
            by(
                "pcie-aer",
                if *severity == Severity::Fatal {
                    High
                } else {
                    Medium
                },
                "the PCI Express link lost a transaction; faults after it are echoes",
            )
        }
        Finding::Xid { code, .. } if xid_class(*code) == XidClass::Hardware => {
            let name = xid_row(*code).map_or("hardware error", |r| r.name);
            Some(Decision::by(
                i,
                Board,
                format!("xid-{code}"),
                High,
                format!("Xid {code}: {name}"),
            ))
        }
        // Ring tests that fail while a hung chip is being stopped belong to the reset, however it ends.
        Finding::GpuInitFailed { .. } if in_reset(ev, i) => None,
        Finding::GpuInitFailed { .. } if !recovered(ev, i, e) => {
            by("gpu-init-failed", High, "the GPU could not be initialised")
        }
        Finding::GpuReset(ResetStep::Failed(_)) if !recovered(ev, i, e) => by(
            "gpu-reset-failed",
            High,
            "the reset itself failed: the board is unusable until it is started anew",
        ),
        Finding::KernelBug { gpu: true, .. } if !ev.ending.success() => by(
            "kernel-bug",
            Medium,
            "the GPU driver itself failed inside the kernel",
        ),
        Finding::RasError { bogus: true, .. } if !ev.ending.success() && !ev.ending.unknown() => {
            let _ = Low;
            None
        }
        _ => None,
    }
}
