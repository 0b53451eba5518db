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
    /// The run's own files (leg file as run, journal, reports) by name, relative to the run directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: super::Files,
}

impl Report {
    /// An empty report of `run`: nothing judged yet.
    #[must_use]
    pub fn new(run: RunInfo) -> Self {
        Report {
            schema: REPORT_SCHEMA.to_owned(),
            version: REPORT_VERSION.to_owned(),
            run,
            identity: BTreeMap::new(),
            legs: Vec::new(),
            comparisons: Vec::new(),
            gates: Vec::new(),
            verdict: RunVerdict::Inconclusive,
            exit_code: super::ExitCode::Inconclusive.code(),
            owed: Vec::new(),
            warnings: Vec::new(),
            files: super::Files::new(),
        }
    }

    /// The leg of that name.
    #[must_use]
    pub fn leg(&self, name: &str) -> Option<&Leg> {
        self.legs.iter().find(|l| l.name == name)
    }
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
    /// A shortened run, to see that everything works: its speed is never quoted.
    #[serde(default)]
    pub quick: bool,
    /// Stopped by the user before the plan was done.
    #[serde(default)]
    pub interrupted: bool,
    /// The command line that runs it again.
    #[serde(default)]
    pub reproduce: Option<String>,
}

impl RunInfo {
    /// A run of which only the names, the seed and the start are known.
    #[must_use]
    pub fn new(id: &str, leg_set: &str, started: DateTime<Utc>, seed: u64) -> Self {
        RunInfo {
            id: id.to_owned(),
            leg_set: leg_set.to_owned(),
            question: None,
            started,
            finished: None,
            host: None,
            boot_id: None,
            seed,
            order: None,
            legwork: env!("CARGO_PKG_VERSION").to_owned(),
            leg_file_sha256: None,
            quick: false,
            interrupted: false,
            reproduce: None,
        }
    }
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

/// What a leg runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LegKind {
    /// The built-in engine.
    Engine,
    /// A command.
    Command,
    /// A script, staged and run from its copy.
    Script,
}

/// How many of a leg's attempts faulted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultRatio {
    /// Counted attempts whose class is `kernel`, `board` or `host`.
    pub faulted: u64,
    /// Counted attempts that were decided and did run: all but those of class `infra` and `inconclusive`.
    pub of: u64,
    /// 95 % interval of the fault probability (Clopper-Pearson); `null` when `of` is 0.
    pub ci95: Option<[f64; 2]>,
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
    /// What it runs; `null` when not recorded.
    #[serde(default)]
    pub kind: Option<LegKind>,
    /// The settings of its engine, by key (`model`, `prompt`, …), for the one-variable check.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, serde_json::Value>,
    /// SHA-256 of the program as staged.
    #[serde(default)]
    pub binary_sha256: Option<String>,
    /// How many of its attempts faulted.
    #[serde(default)]
    pub faults: Option<FaultRatio>,
}

impl Leg {
    /// A leg with a name and nothing else.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Leg {
            name: name.to_owned(),
            control: false,
            diagnostic: false,
            env: BTreeMap::new(),
            command: Vec::new(),
            differs: Vec::new(),
            attempts: Vec::new(),
            designed: 0,
            kind: None,
            settings: BTreeMap::new(),
            binary_sha256: None,
            faults: None,
        }
    }

    /// Its attempts without the warm-ups.
    pub fn counted(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|a| !a.warmup)
    }
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
    /// A token gate: it looks at the text or the token ids, and a leg's speed waits for it.
    #[serde(default)]
    pub token: bool,
    /// The gate asks for a failure (a class, a signal, an exit code other than 0): while it holds, attempts of its
    /// legs that fail do not fail the run.
    #[serde(default)]
    pub excuses: bool,
    /// It fails only in attempts that the evidence does not decide, and not by what they generated: their verdict, not
    /// this gate, says what happened, so the run is inconclusive rather than failed.
    #[serde(default)]
    pub undecided: bool,
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
    /// Unit of the samples; empty for a plain number.
    #[serde(default)]
    pub unit: String,
    /// What the number of samples can and cannot show, in words.
    #[serde(default)]
    pub note: Option<String>,
    /// Smallest difference, in percent of a's mean, that these samples would show in four of five runs.
    #[serde(default)]
    pub detectable_pct: Option<f64>,
    /// The loss, in percent of a's median, that was declared as tolerable.
    #[serde(default)]
    pub max_loss_pct: Option<f64>,
    /// Whether b is worse than a by more than that; `null` when nothing was declared or it cannot be told.
    #[serde(default)]
    pub regressed: Option<bool>,
}

/// Fault ratios of two arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedFaults {
    /// Faults of arm a.
    pub a: FaultRatio,
    /// Faults of arm b.
    pub b: FaultRatio,
    /// Two-sided p (Fisher's exact test); `null` when an arm has no decided attempt.
    pub p: Option<f64>,
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
    /// Faults of both arms.
    #[serde(default)]
    pub faults: Option<ComparedFaults>,
}

/// A leg still missing before a question is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Owed {
    /// What is to be run.
    pub leg: String,
    /// Why.
    pub why: String,
}
