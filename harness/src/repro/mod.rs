//! Running a failed attempt again as it was.
//!
//! A run directory is its own repro bundle: it holds the leg file as run, the command line's changes and the attempts. `choose`
//! picks the attempt, `again` narrows the leg set to that leg, and the new run's verdict is held against the old one by
//! title: equal titles are the same trouble.

use legwork_reports::model::{Attempt, Class, Report};
use thiserror::Error;

use crate::legfile::Selection;

/// Why nothing can be reproduced.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReproError {
    /// Every attempt was clean.
    #[error("every attempt of this run was clean: name the one to run again with --attempt N")]
    NothingFailed,
    /// No such attempt.
    #[error("this run has no attempt {0}; it has {1}")]
    NoSuchAttempt(u32, String),
}

/// An attempt to run again.
#[derive(Debug, Clone)]
pub struct Chosen<'a> {
    /// Its leg.
    pub leg: &'a str,
    /// The attempt.
    pub attempt: &'a Attempt,
}

/// The attempt with number `n`, or the first that was not clean (a counted one before a warm-up).
///
/// # Errors
/// When there is none.
pub fn choose(report: &Report, n: Option<u32>) -> Result<Chosen<'_>, ReproError> {
    let mut all: Vec<Chosen<'_>> = report
        .legs
        .iter()
        .flat_map(|leg| {
            leg.attempts.iter().map(|attempt| Chosen {
                leg: &leg.name,
                attempt,
            })
        })
        .collect();
    all.sort_by_key(|c| (c.attempt.warmup, c.attempt.n));
    match n {
        Some(n) => {
            let numbers = all
                .iter()
                .map(|c| c.attempt.n.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            all.into_iter()
                .find(|c| c.attempt.n == n)
                .ok_or(ReproError::NoSuchAttempt(n, numbers))
        }
        None => all
            .into_iter()
            .find(|c| c.attempt.verdict.class != Class::Clean)
            .ok_or(ReproError::NothingFailed),
    }
}

/// The selection that runs the chosen leg alone, `repeat` times, without warm-up.
#[must_use]
pub fn again(chosen: &Chosen<'_>, repeat: u32) -> Selection {
    Selection {
        legs: vec![chosen.leg.to_owned()],
        repeat: Some(repeat),
        warmup: Some(0),
        ..Selection::default()
    }
}

/// How often the new run shows the old trouble, in words.
#[must_use]
pub fn outcome(old: &Attempt, new: &Report) -> String {
    let attempts: Vec<&Attempt> = new.legs.iter().flat_map(|l| l.counted()).collect();
    let same = attempts
        .iter()
        .filter(|a| a.verdict.class == old.verdict.class && a.verdict.title == old.verdict.title)
        .count();
    let clean = attempts
        .iter()
        .filter(|a| a.verdict.class == Class::Clean)
        .count();
    let of = attempts.len();
    if old.verdict.class == Class::Clean {
        return format!("{clean} of {of} attempts were clean, as the first was");
    }
    match same {
        0 if clean == of => format!("not reproduced: {of} of {of} attempts were clean"),
        0 => format!(
            "not reproduced: {clean} of {of} attempts were clean, the others failed in another way"
        ),
        _ => format!(
            "reproduced in {same} of {of} attempts: {}",
            old.verdict.title
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_reports::model::{Confidence, Leg, RunInfo, Verdict};

    fn attempt(n: u32, class: Class, title: &str) -> Attempt {
        Attempt {
            verdict: Verdict::new(class, "k", Confidence::High, title),
            ..Attempt::new(n, n, chrono::DateTime::UNIX_EPOCH)
        }
    }

    fn report(attempts: Vec<Attempt>) -> Report {
        let mut report = Report::new(RunInfo::new("r", "s", chrono::DateTime::UNIX_EPOCH, 0));
        report.legs = vec![Leg {
            attempts,
            ..Leg::new("a")
        }];
        report
    }

    #[test]
    fn the_first_failure_is_chosen_unless_one_is_named() {
        let report = report(vec![
            attempt(1, Class::Clean, "t"),
            attempt(2, Class::Host, "t"),
            attempt(3, Class::Kernel, "u"),
        ]);
        assert_eq!(choose(&report, None).unwrap().attempt.n, 2);
        assert_eq!(choose(&report, Some(3)).unwrap().attempt.n, 3);
        assert_eq!(
            choose(&report, Some(9)).unwrap_err(),
            ReproError::NoSuchAttempt(9, "1, 2, 3".to_owned())
        );
    }

    #[test]
    fn equal_titles_are_the_same_trouble() {
        let old = attempt(1, Class::Host, "segv in x");
        assert!(
            outcome(
                &old,
                &report(vec![
                    attempt(1, Class::Host, "segv in x"),
                    attempt(2, Class::Clean, "t")
                ])
            )
            .starts_with("reproduced in 1 of 2")
        );
        assert!(
            outcome(&old, &report(vec![attempt(1, Class::Clean, "t")]))
                .starts_with("not reproduced: 1 of 1")
        );
        assert!(
            outcome(&old, &report(vec![attempt(1, Class::Host, "abort in y")]))
                .contains("another way")
        );
        assert_eq!(
            choose(&report(vec![attempt(1, Class::Clean, "t")]), None).unwrap_err(),
            ReproError::NothingFailed
        );
    }
}
