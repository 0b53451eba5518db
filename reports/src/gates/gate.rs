//! A gate as a leg file says it, and what can be wrong with one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::signal_number;

use super::{Expect, SignalSpec};

/// A gate: what must hold for some legs before their figures count.
///
/// ```yaml
/// - {leg: default, expect: {exit: 0, text_starts_with: " Paris", reference_tier_hits: 0}}
/// - {legs: [default, managed], expect: {same: token_ids}}
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// A name for the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The one leg that it looks at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<String>,
    /// The legs that it looks at. Without `leg` and `legs`: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legs: Option<Vec<String>>,
    /// What is expected of them.
    pub expect: Expect,
}

/// What is wrong with a gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// It names a leg that the set does not have.
    #[error("gate looks at leg `{0}`, which this leg set does not have")]
    UnknownLeg(String),
    /// Both `leg` and `legs`.
    #[error("gate has both `leg` and `legs`: keep one of them")]
    LegAndLegs,
    /// `legs: []`.
    #[error("gate has an empty list of `legs`: name some, or leave `legs` out to look at all legs")]
    NoLegs,
    /// Nothing is expected.
    #[error("gate expects nothing: give `expect` at least one key")]
    ExpectsNothing,
    /// An empty list of values.
    #[error("gate has an empty list for `{0}`: nothing could pass it")]
    EmptyList(&'static str),
    /// A signal without a number.
    #[error(
        "gate expects signal `{0}`, which is no signal's name: write SIGSEGV, ABRT, … or a number from 1 to 64"
    )]
    UnknownSignal(String),
    /// `no_leaks: false`.
    #[error("gate has `no_leaks: false`: leave the key out where leaks do not matter")]
    NoLeaksFalse,
    /// A bound without min and max.
    #[error("gate bounds `{0}` by nothing: give `min`, `max` or both")]
    EmptyBound(String),
    /// A bound that nothing can meet.
    #[error("gate bounds `{0}` by min {1} and max {2}: nothing can lie between them")]
    CrossedBound(String, String, String),
    /// Both `exit` and `signal`.
    #[error(
        "gate expects `exit` and `signal` at once: an attempt that ends by a signal has no exit code"
    )]
    ExitAndSignal,
}

impl Gate {
    /// The names of the legs that it looks at, of the set's `all` in order.
    #[must_use]
    pub fn leg_names<'a>(&'a self, all: &[&'a str]) -> Vec<&'a str> {
        match (&self.leg, &self.legs) {
            (Some(leg), _) => vec![leg.as_str()],
            (None, Some(legs)) => legs.iter().map(String::as_str).collect(),
            (None, None) => all.to_vec(),
        }
    }

    /// What is wrong with this gate in a set that has the legs `all`; empty when nothing is.
    #[must_use]
    pub fn check(&self, all: &[&str]) -> Vec<GateError> {
        let mut wrong = Vec::new();
        if self.leg.is_some() && self.legs.is_some() {
            wrong.push(GateError::LegAndLegs);
        }
        if self.legs.as_ref().is_some_and(Vec::is_empty) {
            wrong.push(GateError::NoLegs);
        }
        let named = self.leg.iter().chain(self.legs.iter().flatten());
        wrong.extend(
            named
                .filter(|leg| !all.contains(&leg.as_str()))
                .map(|leg| GateError::UnknownLeg(leg.clone())),
        );
        self.check_expect(&mut wrong);
        wrong
    }

    fn check_expect(&self, wrong: &mut Vec<GateError>) {
        let e = &self.expect;
        if *e == Expect::default() {
            wrong.push(GateError::ExpectsNothing);
        }
        if e.exit.as_ref().is_some_and(|v| v.as_slice().is_empty()) {
            wrong.push(GateError::EmptyList("exit"));
        }
        if e.verdict.as_ref().is_some_and(|v| v.as_slice().is_empty()) {
            wrong.push(GateError::EmptyList("verdict"));
        }
        if e.exit.is_some() && e.signal.is_some() {
            wrong.push(GateError::ExitAndSignal);
        }
        if let Some(signals) = &e.signal {
            if signals.as_slice().is_empty() {
                wrong.push(GateError::EmptyList("signal"));
            }
            wrong.extend(signals.as_slice().iter().filter_map(|s| match s {
                SignalSpec::Number(n) if (1..=64).contains(n) => None,
                SignalSpec::Number(n) => Some(GateError::UnknownSignal(n.to_string())),
                SignalSpec::Name(name) if signal_number(name).is_some() => None,
                SignalSpec::Name(name) => Some(GateError::UnknownSignal(name.clone())),
            }));
        }
        if e.no_leaks == Some(false) {
            wrong.push(GateError::NoLeaksFalse);
        }
        for (name, bound) in e.bounds() {
            match (bound.min, bound.max) {
                (None, None) => wrong.push(GateError::EmptyBound(name.to_owned())),
                (Some(min), Some(max)) if min > max => wrong.push(GateError::CrossedBound(
                    name.to_owned(),
                    min.to_string(),
                    max.to_string(),
                )),
                _ => {}
            }
        }
    }

    /// The gate in words, one line per expectation, e.g. `default: exit = 0`.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        self.expect
            .checks()
            .iter()
            .map(|check| self.title(&check.words()))
            .collect()
    }

    /// The words of one expectation under the gate's name or legs.
    pub(super) fn title(&self, words: &str) -> String {
        let legs = match (&self.name, &self.leg, &self.legs) {
            (Some(name), _, _) => name.clone(),
            (None, Some(leg), _) => leg.clone(),
            (None, None, Some(legs)) => legs.join(", "),
            (None, None, None) => "all legs".to_owned(),
        };
        format!("{legs}: {words}")
    }
}
