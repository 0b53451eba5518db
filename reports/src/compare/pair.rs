//! A comparison as a leg file asks for it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Two arms to compare: `{a: default, b: managed}`. `a` is what `b` is measured against.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The leg that is measured against: as a rule the control.
    pub a: String,
    /// The leg that is compared with it.
    pub b: String,
    /// The metrics to compare; all that both arms have when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<String>>,
    /// How many percent worse than a's median b's median may be, by metric. A loss beyond it that is no chance is a
    /// regression (exit code 20).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_loss_pct: BTreeMap<String, f64>,
}

/// What is wrong with a comparison.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// It names a leg that the set does not have.
    #[error("comparison names leg `{0}`, which this leg set does not have")]
    UnknownLeg(String),
    /// A leg against itself.
    #[error("comparison holds leg `{0}` against itself: name two legs")]
    Itself(String),
    /// A loss that is no number from 0 up.
    #[error("comparison allows `{0}` a loss of {1} %: give a number from 0 up")]
    BadLoss(String, String),
}

impl Pair {
    /// Two arms, all metrics, no bound.
    #[must_use]
    pub fn new(a: &str, b: &str) -> Self {
        Pair {
            a: a.to_owned(),
            b: b.to_owned(),
            ..Pair::default()
        }
    }

    /// What is wrong with this comparison in a set that has the legs `all`; empty when nothing is.
    #[must_use]
    pub fn check(&self, all: &[&str]) -> Vec<PairError> {
        let mut wrong: Vec<PairError> = [&self.a, &self.b]
            .into_iter()
            .filter(|leg| !all.contains(&leg.as_str()))
            .map(|leg| PairError::UnknownLeg(leg.clone()))
            .collect();
        if self.a == self.b {
            wrong.push(PairError::Itself(self.a.clone()));
        }
        let losses = self.max_loss_pct.iter();
        wrong.extend(
            losses
                .filter(|(_, loss)| !loss.is_finite() || **loss < 0.0)
                .map(|(name, loss)| PairError::BadLoss(name.clone(), loss.to_string())),
        );
        wrong
    }
}
