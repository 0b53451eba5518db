//! What one attempt shows of one expectation.

use crate::format::{count, exit_words, quote, seconds, shorten, signal_name, with_unit};
use crate::metrics::{describe, is_suspect, value};
use crate::model::{Attempt, Class, GateStatus};

use super::Bound;
use super::check::{Check, ids_words, stamps_word};

/// What was seen and what it means for the gate.
pub(super) struct Observation {
    pub(super) status: GateStatus,
    pub(super) seen: String,
}

impl Observation {
    pub(super) fn held(holds: bool, seen: impl Into<String>) -> Self {
        Observation {
            status: if holds {
                GateStatus::Pass
            } else {
                GateStatus::Fail
            },
            seen: seen.into(),
        }
    }

    pub(super) fn absent(seen: impl Into<String>) -> Self {
        Observation {
            status: GateStatus::NotMeasurable,
            seen: seen.into(),
        }
    }
}

/// Holds one attempt against an expectation that looks at attempts one by one; `None` for the others.
pub(super) fn observe(check: &Check, attempt: &Attempt) -> Option<Observation> {
    Some(match check {
        Check::Exit(codes) => exit(codes, attempt),
        Check::Signal(signals) => signal(signals, attempt),
        Check::TimedOut(expected) => Observation::held(
            attempt.exit.timed_out.is_some() == *expected,
            exit_words(&attempt.exit),
        ),
        Check::TextEquals(t) => text(attempt, |seen| seen == t),
        Check::TextStartsWith(t) => text(attempt, |seen| seen.starts_with(t.as_str())),
        Check::TextContains(t) => text(attempt, |seen| seen.contains(t.as_str())),
        Check::TokenIds(ids) => match &attempt.token_ids {
            None => Observation::absent("no token ids"),
            Some(seen) if seen == ids => Observation::held(true, "as expected"),
            Some(seen) => {
                let at = first_difference(seen, ids);
                let words = format!("{}, first difference at index {at}", ids_words(seen));
                Observation::held(false, words)
            }
        },
        Check::MinCompletionTokens(least) => {
            let counted = attempt.metrics.completion_tokens;
            let listed = attempt.token_ids.as_ref().map(|t| t.len() as u64);
            match counted.or(listed) {
                None => Observation::absent("tokens not counted"),
                Some(n) => Observation::held(n >= *least, count(n)),
            }
        }
        Check::ReferenceTierHits(expected) => reference_tier_hits(*expected, attempt),
        Check::Verdict(classes) => {
            let class = attempt.verdict.class;
            let seen = format!("{class} ({})", attempt.verdict.kind);
            if classes.contains(&class) {
                Observation::held(true, class.as_str())
            } else if class == Class::Inconclusive {
                Observation::absent(seen)
            } else {
                Observation::held(false, seen)
            }
        }
        Check::NoLeaks => match attempt.leaks.as_slice() {
            [] => Observation::held(true, "none"),
            leaks => {
                let names: Vec<String> = leaks
                    .iter()
                    .map(|l| match l.age_s {
                        Some(age) => format!("{} (pid {}, {})", l.comm, l.pid, seconds(age)),
                        None => format!("{} (pid {})", l.comm, l.pid),
                    })
                    .collect();
                Observation::held(false, shorten(&names.join(", "), 160))
            }
        },
        Check::Stamps(expected) => match attempt.stamps {
            None => Observation::absent("no stamps"),
            Some(seen) => Observation::held(seen == *expected, stamps_word(seen)),
        },
        Check::Same(_) => return None,
        Check::Metric(name, bound) => match figure(name, attempt) {
            Err(why) => Observation::absent(why),
            Ok(v) => within(name, bound, v),
        },
    })
}

/// A figure held against its bound.
pub(super) fn within(name: &str, bound: &Bound, v: f64) -> Observation {
    Observation::held(bound.holds(v), with_unit(Some(v), describe(name).unit))
}

/// The figure `name` of an attempt, or why there is none that may be used.
pub(super) fn figure(name: &str, attempt: &Attempt) -> Result<f64, String> {
    let v = value(attempt, name).ok_or("not measured")?;
    if is_suspect(attempt, name) {
        return Err("stamps suspect".to_owned());
    }
    if describe(name).speed && !attempt.speed.admissible {
        let reason = attempt.speed.void_reason.as_deref().unwrap_or("not judged");
        return Err(format!("VOID({reason})"));
    }
    Ok(v)
}

fn exit(codes: &[i32], attempt: &Attempt) -> Observation {
    let seen = exit_words(&attempt.exit);
    let (Some(code), None) = (attempt.exit.code, attempt.exit.signal) else {
        return match attempt.exit.signal {
            Some(_) => Observation::held(false, seen),
            None => Observation::absent("status lost"),
        };
    };
    // A pipeline hides a crash behind the last command's 0: the crash is what happened.
    if code == 0
        && let Some(crashed) = attempt.crashed_descendant()
    {
        let signal = crashed.end.and_then(|e| e.signal);
        let how = signal.map_or_else(|| "dumped core".to_owned(), signal_name);
        let who = crashed.comm.as_deref().unwrap_or("a process below it");
        return Observation::held(false, format!("0, but {who} (pid {}): {how}", crashed.pid));
    }
    Observation::held(
        codes.contains(&code) && attempt.exit.timed_out.is_none(),
        seen,
    )
}

fn signal(signals: &[i32], attempt: &Attempt) -> Observation {
    let below = attempt
        .descendants
        .iter()
        .filter_map(|d| d.end.and_then(|e| e.signal))
        .find(|s| signals.contains(s));
    if let Some(s) = below {
        return Observation::held(true, format!("{} below the leader", signal_name(s)));
    }
    match (attempt.exit.signal, attempt.exit.code) {
        (Some(s), _) => Observation::held(signals.contains(&s), exit_words(&attempt.exit)),
        (None, Some(code)) => Observation::held(false, format!("exit {code}")),
        (None, None) => Observation::absent("status lost"),
    }
}

fn text(attempt: &Attempt, holds: impl Fn(&str) -> bool) -> Observation {
    match &attempt.text {
        Some(seen) => Observation::held(holds(seen), quote(seen, 60)),
        None if attempt.output_bytes.is_none_or(|n| n == 0) => {
            Observation::absent("no text: CAPTURE_FAILED")
        }
        None => Observation::absent("no text"),
    }
}

fn reference_tier_hits(expected: u64, attempt: &Attempt) -> Observation {
    let lines = attempt.provider_lines.unwrap_or(0);
    match attempt.reference_tier_hits {
        None => Observation::absent("not printed"),
        Some(0) if lines == 0 => Observation::absent("0, but no op-provider lines: no evidence"),
        Some(hits) => Observation::held(
            hits == expected,
            format!("{} ({} op-provider lines)", count(hits), count(lines)),
        ),
    }
}

/// The first index at which two sequences differ, the shorter one's end included.
pub(super) fn first_difference<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
