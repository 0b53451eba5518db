//! Holding a gate against the legs of a run.

use std::collections::BTreeMap;

use crate::format::quote;
use crate::model::{Attempt, Class, GateResult, GateStatus, Leg};
use crate::stats;

use super::check::Check;
use super::observe::{Observation, figure, first_difference, observe, within};
use super::{Gate, Of, Same};

/// A gate's outcome, and leg by leg.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The outcome as it is reported.
    pub result: GateResult,
    /// The outcome of each leg's own attempts. Of a `same` gate the attempts that differ from the first one fail.
    pub by_leg: BTreeMap<String, GateStatus>,
}

/// Judges a gate: one result per expectation.
///
/// Bounds on figures of speed look at admissible attempts only, so speed must have been judged before.
#[must_use]
pub fn evaluate(gate: &Gate, legs: &[Leg]) -> Vec<GateResult> {
    judge(gate, legs).into_iter().map(|j| j.result).collect()
}

/// As [`evaluate`], with the outcome leg by leg.
#[must_use]
pub fn judge(gate: &Gate, legs: &[Leg]) -> Vec<Judged> {
    let all: Vec<&str> = legs.iter().map(|l| l.name.as_str()).collect();
    let names = gate.leg_names(&all);
    gate.expect
        .checks()
        .iter()
        .map(|check| judge_check(gate, check, &names, legs))
        .collect()
}

/// What was seen of one leg: attempts (or none, for a figure of the whole leg) and observations.
struct Seen<'a> {
    leg: &'a str,
    observations: Vec<(Option<u32>, Observation)>,
}

fn judge_check(gate: &Gate, check: &Check, names: &[&str], legs: &[Leg]) -> Judged {
    let mut seen: Vec<Seen> = Vec::new();
    let mut reference: Option<&Attempt> = None;
    for name in names {
        let mut observations = Vec::new();
        match legs.iter().find(|l| l.name == *name) {
            None => observations.push((None, Observation::absent("not in this run"))),
            Some(leg) if leg.counted().next().is_none() => {
                observations.push((None, Observation::absent("no counted attempt")));
            }
            Some(leg) => match check {
                Check::Same(what) => {
                    for attempt in leg.counted() {
                        let o = same(*what, &mut reference, attempt);
                        observations.push((Some(attempt.n), o));
                    }
                }
                Check::Metric(metric, bound) if bound.of != Of::Each => {
                    let o = figure_of_leg(metric, bound, leg);
                    observations.push((None, o));
                }
                _ => {
                    let each = leg.counted();
                    observations.extend(each.filter_map(|a| Some((Some(a.n), observe(check, a)?))));
                }
            },
        }
        seen.push(Seen {
            leg: name,
            observations,
        });
    }
    only_one_sequence_is_no_comparison(check, &mut seen);
    let undecided = check.follows_verdict()
        && seen.iter().all(|s| {
            let leg = legs.iter().find(|l| l.name == s.leg);
            let failing = s
                .observations
                .iter()
                .filter(|(_, o)| o.status == GateStatus::Fail);
            { failing }.all(|(n, _)| {
                leg.into_iter()
                    .flat_map(Leg::counted)
                    .any(|a| Some(a.n) == *n && a.verdict.class == Class::Inconclusive)
            })
        });
    let by_leg: BTreeMap<String, GateStatus> = seen
        .iter()
        .map(|s| {
            let statuses = s.observations.iter().map(|(_, o)| o.status);
            (s.leg.to_owned(), combine(statuses))
        })
        .collect();
    let status = combine(by_leg.values().copied());
    Judged {
        result: GateResult {
            name: gate.title(&check.words()),
            legs: names.iter().map(|n| (*n).to_owned()).collect(),
            status,
            expected: check.expected(),
            observed: words(&seen),
            token: check.is_token(),
            excuses: check.excuses(),
            undecided: undecided && status == GateStatus::Fail,
        },
        by_leg,
    }
}

/// A failure is certain whatever else is missing; a pass needs everything.
pub(super) fn combine(statuses: impl IntoIterator<Item = GateStatus>) -> GateStatus {
    let mut any = false;
    let mut missing = false;
    for status in statuses {
        any = true;
        match status {
            GateStatus::Fail => return GateStatus::Fail,
            GateStatus::NotMeasurable => missing = true,
            GateStatus::Pass => {}
        }
    }
    if any && !missing {
        GateStatus::Pass
    } else {
        GateStatus::NotMeasurable
    }
}

/// Holds an attempt against the first one that has tokens (or text), which becomes the reference.
fn same<'a>(what: Same, reference: &mut Option<&'a Attempt>, attempt: &'a Attempt) -> Observation {
    let absent = match what {
        Same::TokenIds => attempt.token_ids.is_none().then_some("no token ids"),
        Same::Text => attempt.text.is_none().then_some("no text"),
    };
    if let Some(why) = absent {
        return Observation::absent(why);
    }
    let first: &Attempt = reference.get_or_insert(attempt);
    match what {
        Same::TokenIds => {
            let (a, b) = (ids(first), ids(attempt));
            if a == b {
                return Observation::held(true, "equal");
            }
            let at = first_difference(a, b);
            let pair = format!("{} instead of {}", id_at(b, at), id_at(a, at));
            Observation::held(false, format!("differs at index {at}: {pair}"))
        }
        Same::Text => {
            let (a, b) = (text(first), text(attempt));
            if a == b {
                return Observation::held(true, "equal");
            }
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let at = first_difference(&a, &b);
            let rest = |t: &[char]| quote(&t[at..].iter().collect::<String>(), 16);
            let pair = format!("{} instead of {}", rest(&b), rest(&a));
            Observation::held(false, format!("differs at character {at}: {pair}"))
        }
    }
}

fn ids(attempt: &Attempt) -> &[u32] {
    attempt.token_ids.as_deref().unwrap_or_default()
}

fn text(attempt: &Attempt) -> &str {
    attempt.text.as_deref().unwrap_or_default()
}

fn id_at(ids: &[u32], at: usize) -> String {
    ids.get(at)
        .map_or_else(|| "the end".to_owned(), ToString::to_string)
}

/// `same` over a single sequence has compared nothing.
fn only_one_sequence_is_no_comparison(check: &Check, seen: &mut [Seen]) {
    if !matches!(check, Check::Same(_)) {
        return;
    }
    let compared = seen
        .iter()
        .flat_map(|s| &s.observations)
        .filter(|(_, o)| o.status != GateStatus::NotMeasurable)
        .count();
    if compared == 1 {
        for (_, o) in seen.iter_mut().flat_map(|s| &mut s.observations) {
            if o.status == GateStatus::Pass {
                *o = Observation::absent("nothing to compare it with");
            }
        }
    }
}

/// A leg's median or mean held against a bound. All counted attempts must have the figure: the number of samples is
/// the plan's, not what happened to finish.
fn figure_of_leg(metric: &str, bound: &super::Bound, leg: &Leg) -> Observation {
    let figures: Result<Vec<f64>, String> = leg
        .counted()
        .map(|a| figure(metric, a).map_err(|why| format!("{why} (#{})", a.n)))
        .collect();
    match figures {
        Err(why) => Observation::absent(why),
        Ok(v) => {
            let one = match bound.of {
                Of::Mean => stats::mean(&v),
                Of::Median | Of::Each => stats::median(&v),
            };
            one.map_or_else(
                || Observation::absent("not measured"),
                |one| within(metric, bound, one),
            )
        }
    }
}

/// What was seen, leg by leg; equal observations of a leg are said once.
fn words(seen: &[Seen]) -> String {
    let several = seen.len() > 1;
    let legs: Vec<String> = seen
        .iter()
        .map(|s| {
            let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
            for (n, o) in &s.observations {
                let n = n.map(|n| format!("#{n}"));
                match groups.iter_mut().find(|(seen, _)| *seen == o.seen) {
                    Some((_, attempts)) => attempts.extend(n),
                    None => groups.push((&o.seen, n.into_iter().collect())),
                }
            }
            let alone = groups.len() == 1;
            let parts: Vec<String> = groups
                .into_iter()
                .map(|(seen, attempts)| match attempts.len() {
                    0 => seen.to_owned(),
                    1 if alone => seen.to_owned(),
                    n if alone => format!("{seen} ({n}×)"),
                    _ => format!("{seen} ({})", attempts.join(" ")),
                })
                .collect();
            if several {
                format!("{}: {}", s.leg, parts.join(", "))
            } else {
                parts.join(", ")
            }
        })
        .collect();
    legs.join(" · ")
}
