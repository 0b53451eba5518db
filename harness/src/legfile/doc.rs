//! The document as written: one struct per mapping, unknown keys refused.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use legwork_reports::admissible::Binaries;
use legwork_reports::compare::Pair;
use legwork_reports::gates::Gate;

use super::{At, Dur, EngineKeys, ScalarText, Size};

/// A leg set: legs to run on a board, the gates that must hold, the arms to compare.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LegFile {
    /// Name of the leg set: letters, digits, `.`, `_` and `-`. It names the run's folder.
    pub name: At<String>,
    /// The question that the leg set answers.
    #[serde(default)]
    pub question: Option<String>,
    /// Order of the attempts; default interleaved.
    #[serde(default)]
    pub order: Option<Order>,
    /// Seed of a shuffled order; drawn and recorded when absent.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Counted attempts per leg; default 1.
    #[serde(default)]
    pub repeat: Option<At<u32>>,
    /// Rounds that run first and are discarded; default 0.
    #[serde(default)]
    pub warmup: Option<At<u32>>,
    /// Inherited variables that may pass to the legs: names, or prefixes that end in `_`.
    #[serde(default)]
    pub env_allow: Vec<At<String>>,
    /// Whether the legs' programs must be the same file content or must differ; checked before anything runs.
    #[serde(default)]
    pub arms: Option<Binaries>,
    /// What a failed leg does to the rest; default continue.
    #[serde(default)]
    pub on_fail: Option<OnFail>,
    /// Facts of the identity block that must hold before anything runs, e.g. `gpu.gfx: gfx1151`.
    /// A value that starts with `~` is a regular expression; a key `file:PATH` pins a file's SHA-256.
    #[serde(default)]
    pub pins: BTreeMap<String, At<ScalarText>>,
    /// Time that the lease leaves for the whole run.
    #[serde(default)]
    pub max_runtime: Option<At<Dur>>,
    /// Part of `max_runtime` kept for archiving and the report; default 60s.
    #[serde(default)]
    pub reserve: Option<At<Dur>>,
    /// Settings that lie under every leg: a leg's own value wins, maps merge.
    #[serde(default)]
    pub defaults: Option<DefaultsDoc>,
    /// The legs, at least one.
    pub legs: Vec<At<LegDoc>>,
    /// Conditions that must hold.
    #[serde(default)]
    pub gates: Vec<At<Gate>>,
    /// Pairs of arms to compare.
    #[serde(default)]
    pub compare: Vec<At<Pair>>,
}

/// Order of the attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// All attempts of a leg, then the next leg.
    Sequential,
    /// One attempt of each leg per round, every second round in reverse.
    #[default]
    Interleaved,
    /// One attempt of each leg per round, each round shuffled by the seed.
    Shuffled,
}

impl Order {
    /// The word used in leg files and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Interleaved => "interleaved",
            Order::Shuffled => "shuffled",
        }
    }
}

/// What a failed leg does to the rest of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFail {
    /// The next attempt runs.
    #[default]
    Continue,
    /// No further attempt runs; what is missing is owed.
    Stop,
}

/// What becomes of a core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CorePolicy {
    /// No core is written.
    Off,
    /// A core is kept up to a bound set by the free space.
    #[default]
    Bounded,
    /// A core is kept whatever its size.
    Full,
}

/// State of the page cache for the model file before each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// The file's pages are dropped.
    Cold,
    /// The file is read once.
    Warm,
}

/// Settings under every leg.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefaultsDoc {
    /// Run the built-in engine with these flags.
    #[serde(default)]
    pub engine: Option<At<EngineKeys>>,
    /// Run this command: program and arguments, no shell.
    #[serde(default)]
    pub command: Option<At<Vec<String>>>,
    /// Run this script file from a local copy.
    #[serde(default)]
    pub script: Option<At<String>>,
    /// Arguments of the script.
    #[serde(default)]
    pub args: Option<At<Vec<String>>>,
    /// Files copied beside the command or script before the run.
    #[serde(default)]
    pub stage: Option<Vec<At<String>>>,
    /// Environment of the leg.
    #[serde(default)]
    pub env: BTreeMap<String, At<ScalarText>>,
    /// Working directory: `start` (where legwork was started; default for commands and scripts), `attempt` (the
    /// attempt's folder; default for the engine), `stage` (the local copy's folder), or an absolute path.
    #[serde(default)]
    pub cwd: Option<At<String>>,
    /// Deadlines.
    #[serde(default)]
    pub timeout: Option<TimeoutDoc>,
    /// What becomes of a core; default bounded.
    #[serde(default)]
    pub core: Option<CorePolicy>,
    /// Bytes of output kept per attempt; default 64MiB.
    #[serde(default)]
    pub output_cap: Option<Size>,
    /// Phases of a foreign command, by regular expressions on its output lines.
    #[serde(default)]
    pub phases: BTreeMap<String, At<PhaseDoc>>,
    /// Capture stderr through its own pipe instead of the terminal.
    #[serde(default)]
    pub separate_stderr: Option<bool>,
    /// Memory bound of the process tree, where a cgroup can be made.
    #[serde(default)]
    pub memory_max: Option<Size>,
    /// State of the page cache for the model file before each attempt.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// End an attempt at once when the program prints that the GPU died; default true.
    #[serde(default)]
    pub fatal_patterns: Option<bool>,
    /// What a failure of this leg does to the rest.
    #[serde(default)]
    pub on_fail: Option<OnFail>,
}

/// One leg: a configuration to run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LegDoc {
    /// Name, unique in the set: letters, digits, `.`, `_` and `-`.
    pub name: At<String>,
    /// The arm that isolates the variable. At most one leg.
    #[serde(default)]
    pub control: bool,
    /// A leg for diagnosis: its speed is never quoted.
    #[serde(default)]
    pub diagnostic: bool,
    /// Counted attempts of this leg instead of the set's.
    #[serde(default)]
    pub repeat: Option<At<u32>>,
    /// Run the built-in engine with these flags.
    #[serde(default)]
    pub engine: Option<At<EngineKeys>>,
    /// Run this command: program and arguments, no shell.
    #[serde(default)]
    pub command: Option<At<Vec<String>>>,
    /// Run this script file from a local copy.
    #[serde(default)]
    pub script: Option<At<String>>,
    /// Arguments of the script.
    #[serde(default)]
    pub args: Option<At<Vec<String>>>,
    /// Files copied beside the command or script before the run.
    #[serde(default)]
    pub stage: Option<Vec<At<String>>>,
    /// Environment of the leg.
    #[serde(default)]
    pub env: BTreeMap<String, At<ScalarText>>,
    /// Working directory: `start`, `attempt`, `stage` or an absolute path.
    #[serde(default)]
    pub cwd: Option<At<String>>,
    /// Deadlines.
    #[serde(default)]
    pub timeout: Option<TimeoutDoc>,
    /// What becomes of a core.
    #[serde(default)]
    pub core: Option<CorePolicy>,
    /// Bytes of output kept per attempt.
    #[serde(default)]
    pub output_cap: Option<Size>,
    /// Phases of a foreign command, by regular expressions on its output lines.
    #[serde(default)]
    pub phases: BTreeMap<String, At<PhaseDoc>>,
    /// Capture stderr through its own pipe instead of the terminal.
    #[serde(default)]
    pub separate_stderr: Option<bool>,
    /// Memory bound of the process tree, where a cgroup can be made.
    #[serde(default)]
    pub memory_max: Option<Size>,
    /// State of the page cache for the model file before each attempt.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// End an attempt at once when the program prints that the GPU died; default true.
    #[serde(default)]
    pub fatal_patterns: Option<bool>,
    /// What a failure of this leg does to the rest.
    #[serde(default)]
    pub on_fail: Option<OnFail>,
}

/// Deadlines of an attempt.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeoutDoc {
    /// Whole attempt.
    #[serde(default)]
    pub total: Option<Dur>,
    /// No output, no CPU time and no GPU activity for this long.
    #[serde(default)]
    pub idle: Option<Dur>,
    /// Between SIGTERM and SIGKILL; default 10s.
    #[serde(default)]
    pub grace: Option<Dur>,
    /// On a deadline end the program with SIGABRT instead of SIGTERM, so that it leaves a core; default false.
    #[serde(default)]
    pub abort: Option<bool>,
    /// Per phase, by name: `load`, `prefill`, `decode`, or one that `phases` declares.
    #[serde(default)]
    pub phases: BTreeMap<String, Dur>,
}

/// A phase of a foreign command.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseDoc {
    /// The phase begins at the first line that matches.
    pub from: At<String>,
    /// The phase ends at the first line after it that matches.
    pub to: At<String>,
}

/// What `legwork schema` can print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaText {
    /// Leg files.
    Leg,
    /// `report.json`.
    Report,
}
