//! A run: one execution of a leg set.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Attempt;

/// Value of `schema` in `report.json`.
pub const REPORT_SCHEMA: &str = "legwork.report";
/// Value of `version` in `report.json`; the part before the dot changes when a reader must change.
pub const REPORT_VERSION: &str = "1.0";

/// The whole of `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Always `legwork.report`.
    pub schema: String,
    /// Format version.
    pub version: String,
    /// What was run, where and when.
    pub run: RunInfo,
    /// The identity block: one fact by dotted name, `null` where it could not be read.
    pub identity: BTreeMap<String, serde_json::Value>,
    /// The legs, in the order of the leg file.
    pub legs: Vec<Leg>,
    /// Arms compared.
    pub comparisons: Vec<Comparison>,
    /// Gates judged.
    pub gates: Vec<GateResult>,
    /// The run's verdict.
    pub verdict: RunVerdict,
    /// The exit code that goes with it.
    pub exit_code: u8,
    /// Legs still missing before the question is answered.
    pub owed: Vec<Owed>,
    /// What the reader should know besides.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What was run, where and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// The run directory's name.
    pub id: String,
    /// Name of the leg set.
    pub leg_set: String,
    /// The question that the leg set asks.
    pub question: Option<String>,
    /// Start, wall clock.
    pub started: DateTime<Utc>,
    /// End, wall clock; `null` while it runs or when it was lost.
    pub finished: Option<DateTime<Utc>>,
    /// Host name.
    pub host: Option<String>,
    /// Boot id at the start.
    pub boot_id: Option<String>,
    /// Seed of the order.
    pub seed: u64,
    /// `sequential`, `interleaved` or `shuffled`.
    #[serde(default)]
    pub order: Option<String>,
    /// Version of legwork.
    pub legwork: String,
    /// SHA-256 of the leg file as run.
    pub leg_file_sha256: Option<String>,
}

/// The run's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunVerdict {
    /// Every leg clean and every gate held.
    Pass,
    /// A leg or a gate failed.
    Fail,
    /// The evidence does not decide.
    Inconclusive,
}

/// One configuration that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// Its name.
    pub name: String,
    /// Whether it is the control.
    pub control: bool,
    /// Whether it is diagnostic: its speed is never quoted.
    pub diagnostic: bool,
    /// The environment that the leg declares.
    pub env: BTreeMap<String, String>,
    /// What was executed, for people.
    pub command: Vec<String>,
    /// Variables by which it differs from the control; more than one is confounded.
    pub differs: Vec<String>,
    /// Its attempts, in the order run.
    pub attempts: Vec<Attempt>,
    /// Counted attempts that the plan asked for.
    pub designed: u32,
}

/// How one gate came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateStatus {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// It could not be judged: what it looks at was not observed.
    NotMeasurable,
}

/// A gate and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateResult {
    /// The gate in words, e.g. `default: exit = 0`.
    pub name: String,
    /// The legs it looks at.
    pub legs: Vec<String>,
    /// How it came out.
    pub status: GateStatus,
    /// What was expected.
    pub expected: String,
    /// What was seen, attempt by attempt.
    pub observed: String,
}

/// One metric of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetric {
    /// Name of the metric, e.g. `decode_tok_s`.
    pub metric: String,
    /// Samples of arm a.
    pub a: Vec<f64>,
    /// Samples of arm b.
    pub b: Vec<f64>,
    /// Median of a; `null` without samples.
    pub a_median: Option<f64>,
    /// Median of b.
    pub b_median: Option<f64>,
    /// Median of b over median of a.
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio, 95 %, and how it was computed is said in `method`.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Two-sided p of the difference.
    pub p: Option<f64>,
    /// The method by which interval and p were computed.
    pub method: String,
    /// Why no figure is printed.
    pub void_reason: Option<String>,
}

/// Two arms compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Name of arm a.
    pub a: String,
    /// Name of arm b.
    pub b: String,
    /// The variables in which they differ.
    pub variables: Vec<String>,
    /// More than one variable differs: the effect cannot be attributed.
    pub confounded: bool,
    /// Whether both arms' texts or token ids are equal; `null` when not observed.
    pub same_tokens: Option<bool>,
    /// Index of the first token that differs.
    pub first_difference: Option<u64>,
    /// The metrics.
    pub metrics: Vec<ComparedMetric>,
}

/// A leg still missing before a question is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Owed {
    /// What is to be run.
    pub leg: String,
    /// Why.
    pub why: String,
}
