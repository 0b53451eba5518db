//! Bounds of a metric.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of a metric, both inclusive. At least one is needed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The smallest value that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The largest value that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// What is held against the bounds: each counted attempt (the default), or one figure of them per leg.
    #[serde(default)]
    pub of: Of,
}

/// What is held against a bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// Each counted attempt.
    #[default]
    Each,
    /// The median of a leg's counted attempts.
    Median,
    /// The mean of a leg's counted attempts.
    Mean,
}

impl Bound {
    /// Whether `v` lies within the bounds.
    #[must_use]
    pub fn holds(&self, v: f64) -> bool {
        self.min.is_none_or(|min| v >= min) && self.max.is_none_or(|max| v <= max)
    }
}
