//! The run's verdict and its exit code.
//!
//! Asked in this order; the first row that applies decides.
//!
//! | # | when | verdict | exit code |
//! |---|---|---|---|
//! | 1 | the user stopped the run | `fail` if any of rows 3–6 applies, else `inconclusive` | 30 |
//! | 2 | no counted attempt was run | `inconclusive` | 3 |
//! | 3 | a counted attempt faulted and no gate that holds asks for it: `kernel` 11, `board` 12, `host` 13, `infra` 14 | `fail` | 11–14 |
//! | 4 | a gate does not hold, other than by how undecided attempts ended | `fail` | 10 |
//! | 5 | a counted attempt ended badly although its class is `clean` | `fail` | 10 |
//! | 6 | a metric got worse than its bound | `fail` | 20 |
//! | 7 | a counted attempt is `inconclusive`, a gate is not measurable, a leg is owed, or a warm-up attempt faulted | `inconclusive` | 4 |
//! | 8 | none of these | `pass` | 0 |
//!
//! Row 3, when attempts disagree: attempts judged with medium or high confidence come before those with low, and among
//! equals the order is kernel, board, host, infra. The class that names our own code comes first because it is the one
//! that somebody has to act on; a class that is only a default never hides one that was seen. A certain failure beats
//! `inconclusive`: what else is unknown does not undo it. A failing attempt is excused while a gate holds that asks for
//! it (`verdict: kernel`, `signal: SIGSEGV`, `exit: 3`, `timed_out: true`).

use crate::model::{Attempt, Class, Confidence, ExitCode, GateStatus, Report, RunVerdict};

/// What the verdict is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inputs {
    /// Class and confidence of every counted attempt that is not excused.
    pub attempts: Vec<(Class, Confidence)>,
    /// Counted attempts, excused ones included.
    pub counted: usize,
    /// A clean attempt whose leader, or a process below it, did not end well, and that is not excused.
    pub ended_badly: bool,
    /// The gates' outcomes.
    pub gates: Vec<GateStatus>,
    /// A metric got worse than its bound.
    pub regressed: bool,
    /// A leg is owed.
    pub owed: bool,
    /// A warm-up attempt faulted: its figures are discarded, that it faulted is not.
    pub warmup_faulted: bool,
    /// Stopped by the user.
    pub interrupted: bool,
}

/// The verdict and the exit code; the table stands in the module's documentation.
#[must_use]
pub fn judge(inputs: &Inputs) -> (RunVerdict, ExitCode) {
    let failure = failure(inputs);
    if inputs.interrupted {
        let verdict = if failure.is_some() {
            RunVerdict::Fail
        } else {
            RunVerdict::Inconclusive
        };
        return (verdict, ExitCode::Interrupted);
    }
    if inputs.counted == 0 {
        return (RunVerdict::Inconclusive, ExitCode::NothingSelected);
    }
    if let Some(code) = failure {
        return (RunVerdict::Fail, code);
    }
    let undecided = inputs
        .attempts
        .iter()
        .any(|(c, _)| *c == Class::Inconclusive)
        || inputs.gates.contains(&GateStatus::NotMeasurable)
        || inputs.owed
        || inputs.warmup_faulted;
    if undecided {
        (RunVerdict::Inconclusive, ExitCode::Inconclusive)
    } else {
        (RunVerdict::Pass, ExitCode::Pass)
    }
}

/// What failed for certain: rows 3 to 6.
fn failure(inputs: &Inputs) -> Option<ExitCode> {
    if let Some(code) = worst_class(&inputs.attempts).and_then(code_of) {
        return Some(code);
    }
    if inputs.gates.contains(&GateStatus::Fail) || inputs.ended_badly {
        return Some(ExitCode::Failed);
    }
    inputs.regressed.then_some(ExitCode::Regression)
}

/// The class that decides: by confidence (low or better), then by the order of classes.
#[must_use]
pub fn worst_class(attempts: &[(Class, Confidence)]) -> Option<Class> {
    attempts
        .iter()
        .filter(|(class, _)| code_of(*class).is_some())
        .min_by_key(|(class, confidence)| (*confidence == Confidence::Low, rank(*class)))
        .map(|(class, _)| *class)
}

fn rank(class: Class) -> u8 {
    match class {
        Class::Kernel => 0,
        Class::Board => 1,
        Class::Host => 2,
        Class::Infra => 3,
        Class::Inconclusive => 4,
        Class::Clean => 5,
    }
}

fn code_of(class: Class) -> Option<ExitCode> {
    match class {
        Class::Kernel => Some(ExitCode::KernelFault),
        Class::Board => Some(ExitCode::BoardFault),
        Class::Host => Some(ExitCode::HostFault),
        Class::Infra => Some(ExitCode::Infra),
        Class::Clean | Class::Inconclusive => None,
    }
}

/// Gathers the inputs from a report whose gates, comparisons and owed legs are filled in.
#[must_use]
pub fn inputs(report: &Report) -> Inputs {
    let mut out = Inputs {
        gates: report
            .gates
            .iter()
            .map(|g| match g.undecided {
                true => GateStatus::NotMeasurable,
                false => g.status,
            })
            .collect(),
        regressed: report
            .comparisons
            .iter()
            .flat_map(|c| &c.metrics)
            .any(|m| m.regressed == Some(true)),
        owed: !report.owed.is_empty(),
        interrupted: report.run.interrupted,
        ..Inputs::default()
    };
    for leg in &report.legs {
        let excused = report
            .gates
            .iter()
            .any(|g| g.excuses && g.status == GateStatus::Pass && g.legs.contains(&leg.name));
        for attempt in &leg.attempts {
            if attempt.warmup {
                let faulted = code_of(attempt.verdict.class).is_some();
                out.warmup_faulted |= faulted && !excused;
                continue;
            }
            out.counted += 1;
            if excused {
                continue;
            }
            let class = attempt.verdict.class;
            out.attempts.push((class, attempt.verdict.confidence));
            out.ended_badly |= class == Class::Clean && !ended_well(attempt);
        }
    }
    out
}

fn ended_well(attempt: &Attempt) -> bool {
    attempt.exit.end().success()
        && attempt.exit.timed_out.is_none()
        && attempt.crashed_descendant().is_none()
}

#[cfg(test)]
mod tests;
