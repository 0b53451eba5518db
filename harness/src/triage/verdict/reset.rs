//! The machine went away under the attempt.

use legwork_reports::model::{Class, Confidence};

use super::decision::{Decision, Evidence};
use crate::evidence::previous_boot::{Ended, PreviousBoot};
use crate::triage::finding::{Finding, ResetCause};
use crate::triage::settle::Settle;

use Class::{Board, Inconclusive, Infra};
use Confidence::{Low, Medium};

/// Why the machine was booted again. What hardware says of itself (machine checks, sync floods, heat, the GPU) was asked
/// before. Then: a kernel that died (a panic, a dump in pstore) is the board's, a reset from outside or a shutdown in
/// order is somebody's, and without a reason and without a dump the evidence does not decide (fault rules, section 5).
#[must_use]
pub fn ask(ev: &Evidence<'_>) -> Option<Decision> {
    if !ev.ending.host_reset {
        return None;
    }
    let before = ev.ctx.previous_boot.clone().unwrap_or_default();
    let reason = ev.kernel().find_map(|(i, e, _)| match &e.finding {
        Finding::HostReset { cause, words } => Some((i, *cause, words.clone())),
        _ => None,
    });
    let d = died(ev, &before)
        .or_else(|| {
            reason
                .as_ref()
                .map(|(i, cause, words)| by_reason(*i, *cause, words, &before))
        })
        .unwrap_or_else(|| without_reason(ev, &before));
    Some(match reason {
        Some((i, _, _)) => d.with(Some(i), "the next boot names the reason of the reset"),
        None => d,
    })
}

/// The kernel said that it dies, or left a dump.
fn died(ev: &Evidence<'_>, before: &PreviousBoot) -> Option<Decision> {
    let bug = ev.kernel().find_map(|(i, e, _)| match &e.finding {
        Finding::KernelBug { gpu: false, what } => Some((i, what.clone(), e)),
        _ => None,
    });
    let settle = [Settle::Pstore, Settle::OtherBoard];
    match bug {
        Some((i, what, e)) => {
            let panic = e.lines.iter().any(|(_, l)| l.contains("Kernel panic"))
                || ev.kernel().any(|(_, e, _)| {
                    e.lines.iter().any(|(_, l)| l.contains("Kernel panic"))
                });
            Some(if panic || before.pstore > 0 {
                Decision::by(
                    i,
                    Board,
                    "host-reset",
                    Medium,
                    format!("the machine's kernel died under the attempt ({what}) and the machine was booted again"),
                )
                .or(Inconclusive, "kernel-bug", "if the trace lies in code that has nothing to do with the board")
                .settle(&settle)
            } else {
                Decision::by(
                    i,
                    Inconclusive,
                    "kernel-bug",
                    Medium,
                    format!("the kernel failed before the machine was reset: {what}"),
                )
                .or(Board, "kernel-bug", "if memory or CPU are sick")
                .settle(&settle)
            })
        }
        None if before.pstore > 0 => Some(
            Decision::fact(
                "pstore",
                format!("{} file(s) of a dying kernel", before.pstore),
                "host-reset",
                Board,
                "host-reset",
                Medium,
                "the machine's kernel left a dump in pstore before the machine was booted again: it did not go down by itself in order",
            )
            .or(Infra, "external-reset", "if the dump is that of an ordinary reboot (printk.always_kmsg_dump)")
            .settle(&[Settle::Pstore, Settle::OtherBoard]),
        ),
        None => None,
    }
}

fn by_reason(i: usize, cause: ResetCause, words: &str, before: &PreviousBoot) -> Decision {
    match cause {
        ResetCause::External | ResetCause::Power => Decision::by(i, Infra, "external-reset", Medium, "the next boot says that the machine was reset from outside (pin, button, power switch), and no panic, machine check or GPU line came before")
            .or(Board, "host-reset", "if the button was pressed because the machine hung")
            .settle(&[Settle::PowerLog]),
        ResetCause::Software => {
            let orderly = before.ended == Some(Ended::Orderly);
            Decision::by(
                i,
                Infra,
                "external-reset",
                if orderly { Medium } else { Low },
                if orderly {
                    "software asked for the reset, and the journal shows a shutdown in order: somebody rebooted the machine"
                } else {
                    "the next boot says that software asked for the reset"
                },
            )
            .settle(&[Settle::PowerLog, Settle::Pstore])
        }
        // A watchdog, or a reason without a name: the machine stopped by itself if its log just ends.
        _ if before.ended == Some(Ended::Abrupt) => Decision::by(i, Board, "host-reset", Low, format!("the machine was reset ({words}), and its log ends without a shutdown: it hung or fell over"))
            .or(Infra, "external-reset", "if somebody reset it")
            .settle(&[Settle::Pstore, Settle::PowerLog, Settle::OtherBoard]),
        _ => Decision::by(i, Inconclusive, "host-reset", Medium, format!("the machine was reset ({words}); what hung it is not in the evidence"))
            .or(Board, "host-reset", "if it happens on this board only")
            .settle(&[Settle::Pstore, Settle::OtherBoard]),
    }
}

fn without_reason(ev: &Evidence<'_>, before: &PreviousBoot) -> Decision {
    let text = ev
        .ctx
        .exit
        .clone()
        .unwrap_or_else(|| "boot id changed".to_owned());
    if before.ended == Some(Ended::Orderly) {
        return Decision::fact(
            "journal",
            "the journal of the boot before ends with a shutdown",
            "host-reset",
            Infra,
            "external-reset",
            Medium,
            "the machine was shut down in order while the attempt ran: somebody, or a program, rebooted it",
        )
        .settle(&[Settle::PowerLog]);
    }
    let seen = if before.ended == Some(Ended::Abrupt) {
        "the machine went down without a shutdown during the attempt: a hang, a reset or a power cut; neither a reset reason nor a machine check nor a panic is in the evidence"
    } else {
        "the machine was reset during the attempt, and neither a reset reason nor a machine check nor a panic is in the evidence"
    };
    Decision::fact(
        "boot_id",
        text,
        "host-reset",
        Inconclusive,
        "host-reset",
        Medium,
        seen,
    )
    .or(Board, "host-reset", "if it happens on this board only")
    .settle(&[Settle::Pstore, Settle::PowerLog, Settle::OtherBoard])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::context::BootId;
    use crate::triage::{Case, Context, Source, triage};

    fn judged(kernel: &str, before: PreviousBoot) -> (Class, String, Confidence) {
        let v = triage(&Case {
            kernel: Some(Source::Text(kernel.into())),
            output: None,
            context: Context {
                boot_id: Some(BootId {
                    before: Some("a".into()),
                    after: Some("b".into()),
                }),
                previous_boot: Some(before),
                ..Context::default()
            },
        });
        (v.class, v.kind, v.confidence)
    }

    /// What is known of the boot before, against what is believed.
    #[test]
    fn a_reset_is_the_boards_only_with_a_reason() {
        let abrupt = PreviousBoot {
            ended: Some(Ended::Abrupt),
            ..PreviousBoot::default()
        };
        let dump = PreviousBoot {
            pstore: 1,
            ..abrupt.clone()
        };
        let orderly = PreviousBoot {
            ended: Some(Ended::Orderly),
            ..PreviousBoot::default()
        };
        let panic = "[ 900.1] Kernel panic - not syncing: Fatal exception in interrupt\n";
        let pin = "[    0.4] x86/amd: Previous system reset reason [0x00010800]: system reset pin BP_SYS_RST_L was tripped\n";
        let soft = "[    0.4] x86/amd: Previous system reset reason [0x02000800]: software wrote 0x6 to reset control register 0xCF9\n";
        let flood = "[    0.4] x86/amd: Previous system reset reason [0x08000800]: an uncorrected error caused a data fabric sync flood event\n";
        for (kernel, before, class, kind, confidence) in [
            (
                "",
                PreviousBoot::default(),
                Inconclusive,
                "host-reset",
                Medium,
            ),
            ("", abrupt.clone(), Inconclusive, "host-reset", Medium),
            ("", orderly.clone(), Infra, "external-reset", Medium),
            ("", dump.clone(), Board, "host-reset", Medium),
            (panic, abrupt.clone(), Board, "host-reset", Medium),
            (panic, dump, Board, "host-reset", Medium),
            (flood, abrupt.clone(), Board, "mce", Confidence::High),
            (pin, abrupt, Infra, "external-reset", Medium),
            (soft, PreviousBoot::default(), Infra, "external-reset", Low),
            (soft, orderly, Infra, "external-reset", Medium),
        ] {
            assert_eq!(
                judged(kernel, before.clone()),
                (class, kind.to_owned(), confidence),
                "{kernel:?} {before:?}"
            );
        }
    }
}
