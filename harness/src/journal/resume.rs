//! What becomes of each step of a run that did not end.

use std::path::Path;

use legwork_reports::model::Attempt;

use super::{Entry, Journal};
use crate::plan::Step;

/// What becomes of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// It ended and was judged: nothing is to be done.
    Done(Box<Attempt>),
    /// It was never begun, or begun without leaving anything: run it.
    Redo,
    /// It was begun and left evidence, but its end was not seen: it counts as an attempt of its own, and the step is run
    /// once more so that the designed number is reached.
    Lost {
        /// The folder with the evidence, relative to the run directory.
        dir: String,
        /// The machine was booted again in the meantime.
        rebooted: bool,
        /// When it began.
        begun: chrono::DateTime<chrono::Utc>,
        /// Boot id then.
        boot_id: Option<String>,
        /// CLOCK_MONOTONIC of that boot when it began, nanoseconds.
        begun_mono_ns: Option<u64>,
        /// An earlier resumption has already planned the step that makes up for it.
        made_up: bool,
    },
}

/// A step and its fate.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFate {
    /// The step.
    pub step: Step,
    /// Its fate.
    pub fate: Fate,
    /// The folder of its last beginning, relative to the run directory.
    pub dir: Option<String>,
    /// Its attempt is in the archive, as far as the journal knows.
    pub archived: bool,
}

/// Decides for every planned step. `boot_id` is this machine's now; `evidence` tells whether an attempt's folder
/// (relative to the run directory) holds anything that was captured.
#[must_use]
pub fn fates(
    journal: &Journal,
    boot_id: Option<&str>,
    evidence: impl Fn(&Path) -> bool,
) -> Vec<StepFate> {
    let planned = journal.records.iter().find_map(|r| match &r.entry {
        Entry::RunBegin { steps, .. } => Some(steps.clone()),
        _ => None,
    });
    let mut steps: Vec<Step> = planned.unwrap_or_default();
    steps.extend(journal.records.iter().filter_map(|r| match &r.entry {
        Entry::Again { step, .. } => Some(*step),
        _ => None,
    }));
    steps
        .into_iter()
        .map(|step| {
            let ended = journal.records.iter().rev().find_map(|r| match &r.entry {
                Entry::StepEnd {
                    step: s, attempt, ..
                } if s.n == step.n => Some(attempt.clone()),
                _ => None,
            });
            let begun = journal.records.iter().rev().find_map(|r| match &r.entry {
                Entry::StepBegin {
                    step: s,
                    dir,
                    boot_id,
                } if s.n == step.n => Some((dir.clone(), boot_id.clone(), r.at, r.mono_ns)),
                _ => None,
            });
            let dir = begun.as_ref().map(|b| b.0.clone());
            let fate = match (ended, begun) {
                (Some(attempt), _) => Fate::Done(attempt),
                (None, Some((dir, then, begun, mono_ns))) => {
                    let rebooted =
                        then.is_some() && boot_id.is_some() && then.as_deref() != boot_id;
                    if rebooted || evidence(Path::new(&dir)) {
                        {
                            let again = |r: &super::Record| matches!(&r.entry, Entry::Again { of, .. } if *of == step.n);
                            let made_up = journal.records.iter().any(again);
                            Fate::Lost { dir, rebooted, begun, boot_id: then, begun_mono_ns: Some(mono_ns).filter(|&n| n > 0), made_up }
                        }
                    } else {
                        Fate::Redo
                    }
                }
                (None, None) => Fate::Redo,
            };
            let archived = journal.records.iter().any(|r| {
                matches!(&r.entry, Entry::Archived { n, error: None, .. } if *n == step.n)
            });
            StepFate {
                step,
                fate,
                dir,
                archived,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Record;

    fn step(n: u32) -> Step {
        Step {
            n,
            leg: 0,
            round: n,
            warmup: false,
        }
    }

    fn journal(entries: Vec<Entry>) -> Journal {
        let begin = Entry::RunBegin {
            run: "r".into(),
            leg_set: "s".into(),
            leg_file: "f".into(),
            selection: Box::default(),
            leg_file_sha256: "0".into(),
            seed: 1,
            steps: vec![step(1), step(2)],
            pid: 1,
            boot_id: Some("one".into()),
            driver: None,
            argv: Vec::new(),
            legwork: "0".into(),
            base: "/".into(),
        };
        let records = std::iter::once(begin)
            .chain(entries)
            .zip(1u64..)
            .map(|(entry, seq)| Record {
                seq,
                at: chrono::DateTime::UNIX_EPOCH,
                mono_ns: 0,
                entry,
            })
            .collect();
        Journal {
            records,
            torn: Vec::new(),
        }
    }

    fn begun(n: u32) -> Entry {
        Entry::StepBegin {
            step: step(n),
            dir: format!("attempts/{n}"),
            boot_id: Some("one".into()),
        }
    }

    #[test]
    fn a_lost_step_is_made_up_for_once() {
        let again = Entry::Again {
            of: 1,
            step: step(3),
        };
        let fates = fates(&journal(vec![begun(1), again]), Some("one"), |_| true);
        assert_eq!(fates.len(), 3);
        assert!(matches!(fates[0].fate, Fate::Lost { made_up: true, .. }));
        assert_eq!((fates[2].step.n, &fates[2].fate), (3, &Fate::Redo));
    }

    /// Every combination of: begun or not, evidence or not, rebooted or not.
    #[test]
    fn every_case_of_an_open_step_is_decided() {
        for (has_begun, has_evidence, boot, expected) in [
            (false, false, "one", "redo"),
            (false, true, "one", "redo"),
            (false, false, "two", "redo"),
            (true, false, "one", "redo"),
            (true, true, "one", "lost"),
            (true, false, "two", "lost-rebooted"),
            (true, true, "two", "lost-rebooted"),
        ] {
            let journal = journal(if has_begun {
                vec![begun(1)]
            } else {
                Vec::new()
            });
            let fates = fates(&journal, Some(boot), |_| has_evidence);
            let word = match &fates[0].fate {
                Fate::Done(_) => "done",
                Fate::Redo => "redo",
                Fate::Lost {
                    rebooted: false, ..
                } => "lost",
                Fate::Lost { rebooted: true, .. } => "lost-rebooted",
            };
            assert_eq!(
                word, expected,
                "begun {has_begun}, evidence {has_evidence}, boot {boot}"
            );
            assert_eq!(fates[1].fate, Fate::Redo);
        }
    }
}
