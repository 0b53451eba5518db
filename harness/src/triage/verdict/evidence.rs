//! The chain of evidence: every line that was looked at, with its part.

use legwork_reports::model::{EvidenceLine, Role};

use super::decision::{Decision, Evidence};
use super::ending::describe;
use super::incident::Incident;
use crate::triage::finding::{Finding, Origin, Word};
use crate::triage::scope::{Owner, Place};

/// Lines of the chain; more are counted in a warning.
const MAX_LINES: usize = 80;
/// Lines of boilerplate or noise kept per explanation.
const MAX_SAME: usize = 6;

/// Builds the chain.
#[must_use]
pub fn lines(
    ev: &Evidence<'_>,
    incidents: &[Incident],
    d: &Decision,
    warnings: &mut Vec<String>,
) -> Vec<EvidenceLine> {
    let mut out = Vec::new();
    let first_decides = d.decides.iter().copied().min();
    let mut same: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    let mut left_out = 0u64;
    for (i, e) in ev.events.iter().enumerate() {
        let (role, why) = part(ev, incidents, d, first_decides, i);
        let deciding = matches!(role, Role::Decides | Role::Supports);
        let n = same
            .entry(format!("{role:?}{why}{}", e.finding.slug()))
            .or_insert(0);
        *n += 1;
        if !deciding && (*n > MAX_SAME || out.len() >= MAX_LINES) {
            left_out += e.count;
            continue;
        }
        let source = match e.origin {
            Origin::Kernel => "kernel.log",
            Origin::Output => "output.log",
        };
        let keep = if role == Role::Decides {
            e.lines.len()
        } else {
            1
        };
        for (k, (line, text)) in e.lines.iter().take(keep).enumerate() {
            let why = if k > 0 {
                "belongs to the line above".to_owned()
            } else if e.count > 1 {
                format!("{why} ({} times)", e.count)
            } else {
                why.clone()
            };
            out.push(EvidenceLine {
                source: source.to_owned(),
                line: Some(*line),
                text: text.clone(),
                finding: e.finding.slug().to_owned(),
                role,
                why,
            });
        }
    }
    if let Some((source, text, finding)) = &d.fact {
        out.push(EvidenceLine {
            source: (*source).to_owned(),
            line: None,
            text: text.clone(),
            finding: (*finding).to_owned(),
            role: Role::Decides,
            why: d.why.clone(),
        });
    }
    if d.fact.as_ref().is_none_or(|f| f.0 != "exit") && !ev.ending.unknown() {
        out.push(EvidenceLine {
            source: "exit".to_owned(),
            line: None,
            text: describe(ev),
            finding: "exit".to_owned(),
            role: exit_role(ev, d),
            why: exit_why(ev, d),
        });
    }
    if d.fact.as_ref().is_none_or(|f| f.0 != "core") {
        for c in ev.ctx.cores.iter().take(4) {
            out.push(EvidenceLine {
                source: "core".to_owned(),
                line: None,
                text: format!(
                    "{} pid {} signal {} in {}",
                    c.comm.as_deref().unwrap_or("?"),
                    c.pid.unwrap_or(0),
                    c.signal.unwrap_or(0),
                    c.module.as_deref().unwrap_or("an unnamed place")
                ),
                finding: "core".to_owned(),
                role: if first_decides.is_some() {
                    Role::Consequence
                } else {
                    Role::Supports
                },
                why: "the core of a process of the attempt".to_owned(),
            });
        }
    }
    if let Some(f) = &ev.ctx.in_flight {
        let gpu = first_decides.is_some_and(|i| ev.events[i].finding.speaks_of_gpu());
        out.push(EvidenceLine {
            source: "kernel-trace.bin".to_owned(),
            line: None,
            text: format!(
                "launch {} {} grid {}x{}x{} threads {}: {}; {} of the last {} launches not known to be over",
                f.seq, f.kernel, f.grid[0], f.grid[1], f.grid[2], f.threads, f.state, f.open, f.recorded
            ),
            finding: "launch-in-flight".to_owned(),
            role: if gpu { Role::Supports } else { Role::Ignored },
            why: if gpu {
                "the kernel that the engine had in flight when the GPU's trouble came: the first launch that was not known to be over"
            } else {
                "what the engine had in flight; nothing says that the GPU was in trouble"
            }
            .to_owned(),
        });
    }
    if let Some(f) = &ev.ctx.dumped_fault {
        out.push(EvidenceLine {
            source: f.file.clone(),
            line: None,
            text: f.text.clone(),
            finding: "gpu-page-fault".to_owned(),
            role: if d.kind == "mes-hang" { Role::Supports } else { Role::Ignored },
            why: "the last page fault that the driver remembers in its state dump; it may be older than the attempt".to_owned(),
        });
    }
    if let Some(g) = &d.gate {
        for r in &g.reasons {
            out.push(EvidenceLine {
                source: "identity".to_owned(),
                line: None,
                text: r.clone(),
                finding: "stack-gate".to_owned(),
                role: Role::Supports,
                why: "the software under the GPU".to_owned(),
            });
        }
    }
    if left_out > 0 {
        warnings.push(format!(
            "{left_out} more lines of the same kinds are not listed"
        ));
    }
    out
}

fn exit_role(ev: &Evidence<'_>, d: &Decision) -> Role {
    if ev.ending.success() {
        return Role::Ignored;
    }
    if d.decides.is_empty() {
        Role::Supports
    } else {
        Role::Consequence
    }
}

fn exit_why(ev: &Evidence<'_>, d: &Decision) -> String {
    let gpu = ev
        .said(&[
            Word::MemoryAccessFault,
            Word::HwException,
            Word::ApertureViolation,
            Word::IllegalInstruction,
            Word::QueueException,
            Word::IllegalAddress,
        ])
        .is_some();
    if ev.ending.success() {
        "it exited with 0 all the same".to_owned()
    } else if ev.ending.signal == Some(6) && gpu {
        "SIGABRT behind a runtime's GPU message is GPU evidence, not a host abort".to_owned()
    } else if d.decides.is_empty() {
        "how it ended".to_owned()
    } else {
        "how it ended: follows from the deciding event".to_owned()
    }
}

fn part(
    ev: &Evidence<'_>,
    incidents: &[Incident],
    d: &Decision,
    first: Option<usize>,
    i: usize,
) -> (Role, String) {
    let e = &ev.events[i];
    if d.decides.contains(&i) {
        return (Role::Decides, d.why.clone());
    }
    if let Some((_, why)) = d.supports.iter().find(|(s, _)| *s == i) {
        let role = match e.finding {
            Finding::Program {
                word: Word::HwException | Word::LaunchFailure | Word::CrashEcho,
                ..
            } => Role::Consequence,
            Finding::CpuFault { .. }
                if first.is_some_and(|f| f < i) && why.contains("consequence") =>
            {
                Role::Consequence
            }
            _ => Role::Supports,
        };
        return (role, why.clone());
    }
    let owner = match ev.places[i] {
        Place::OutsideWindow => return (Role::Ignored, "outside the attempt's window".to_owned()),
        Place::OtherDevice => return (Role::Ignored, "another GPU".to_owned()),
        Place::Inside(o) => o,
    };
    let in_chain = first.is_some_and(|f| {
        incidents
            .iter()
            .any(|inc| inc.members.contains(&f) && inc.members.contains(&i))
            && i > f
    });
    match &e.finding {
        Finding::Harmless { why } => (Role::Ignored, format!("harmless: {why}")),
        Finding::Hint { what } => (Role::Supports, (*what).to_owned()),
        Finding::Boilerplate { what } if in_chain => (Role::Consequence, (*what).to_owned()),
        Finding::Boilerplate { what } => (Role::Ignored, format!("boilerplate: {what}")),
        Finding::GpuReset(_) if in_chain => (
            Role::Consequence,
            "a step of the reset that followed".to_owned(),
        ),
        Finding::Program {
            word: Word::CrashEcho,
            ..
        } => (Role::Consequence, "how a shell reports the end".to_owned()),
        Finding::Program { .. } if ev.ending.success() => {
            (Role::Ignored, "the attempt passed".to_owned())
        }
        Finding::Program { .. } => (
            Role::Consequence,
            "said after, or outranked by, what decided".to_owned(),
        ),
        _ if owner == Owner::Other => (Role::Ignored, "another process".to_owned()),
        _ if in_chain => (
            Role::Consequence,
            "follows from the deciding event".to_owned(),
        ),
        _ if first.is_some_and(|f| f < i) => (
            Role::Consequence,
            "came after the deciding event".to_owned(),
        ),
        _ => (Role::Ignored, "does not decide here".to_owned()),
    }
}
