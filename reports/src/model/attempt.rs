//! One attempt: one child run of one leg.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Verdict;

/// How a process ended, as `waitid` told it: three separate facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEnd {
    /// The exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Whether the kernel says that it dumped core.
    pub core_dumped: bool,
}

impl ProcessEnd {
    /// Exited by itself with code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.code == Some(0) && self.signal.is_none()
    }
    /// Ended by a signal that means a crash: ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.core_dumped || matches!(self.signal, Some(4 | 5 | 6 | 7 | 8 | 11 | 31))
    }
}

/// Which deadline ended an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimedOut {
    /// The attempt's total time.
    Total,
    /// No output, no CPU time and no GPU activity for too long.
    Idle,
    /// A phase took too long; its name.
    Phase(String),
    /// The lease ends, less the reserve for archiving.
    Lease,
}

/// How the attempt's leader ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// The leader's exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended the leader, if one did.
    pub signal: Option<i32>,
    /// Whether the kernel says that the leader dumped core.
    pub core_dumped: bool,
    /// Set when a deadline of ours ended the attempt.
    pub timed_out: Option<TimedOut>,
}

impl Exit {
    /// The end of the leader alone, without the deadline.
    #[must_use]
    pub fn end(&self) -> ProcessEnd {
        ProcessEnd {
            code: self.code,
            signal: self.signal,
            core_dumped: self.core_dumped,
        }
    }
}

/// The end of a process below the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Descendant {
    /// Process id.
    pub pid: i32,
    /// Its parent when it was first seen.
    pub ppid: Option<i32>,
    /// Its name, cut to 15 characters by the kernel.
    pub comm: Option<String>,
    /// How it ended; `null` when it was still alive at the end of the attempt.
    pub end: Option<ProcessEnd>,
    /// Seconds after the attempt's start at which it ended.
    pub ended_s: Option<f64>,
}

/// A process that outlived the leader and had to be killed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// Process id.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// Seconds that it had lived when it was found.
    pub age_s: Option<f64>,
}

/// Phase durations in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Start of the load to weights ready.
    pub load_s: Option<f64>,
    /// Request accepted to first token.
    pub ttft_s: Option<f64>,
    /// Prompt processing.
    pub prefill_s: Option<f64>,
    /// First token to last token.
    pub decode_s: Option<f64>,
    /// Phases that a foreign command's leg declared, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub declared: BTreeMap<String, f64>,
}

/// What the engine, or the supervisor, measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// Size of the weights, GiB.
    pub weights_gib: Option<f64>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens per second.
    pub prefill_tok_s: Option<f64>,
    /// Generated tokens per second after the first one.
    pub decode_tok_s: Option<f64>,
    /// Peak resident memory of the process tree, GiB.
    pub peak_rss_gib: Option<f64>,
    /// Bytes of the KV cache.
    pub kv_bytes: Option<u64>,
    /// Bytes read per second at load, GiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_gib_s: Option<f64>,
    /// Whatever else was measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, f64>,
}

/// Whether this attempt's speed may be quoted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Speed {
    /// True when every condition holds.
    pub admissible: bool,
    /// The first condition that does not, as printed in `VOID(reason)`.
    pub void_reason: Option<String>,
}

/// Whether the stamps of the captured lines can be read as times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    /// Lines were read as they were written, as far as can be told.
    Ok,
    /// Many lines came in one read after a long silence: the writer buffered them.
    Suspect,
}

/// Where an attempt's phase durations come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PhaseSource {
    /// Stamped by the engine itself, at the source.
    Events,
    /// Derived from the moments at which lines were read.
    Stamps,
}

/// Paths of the attempt's files, relative to the run directory.
pub type Files = BTreeMap<String, String>;

/// One child run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// 1-based number of the attempt in the run.
    pub n: u32,
    /// Round, 1-based; warm-up rounds count from 1 too.
    pub round: u32,
    /// A warm-up attempt: run and discarded.
    pub warmup: bool,
    /// When it started, wall clock.
    pub started: chrono::DateTime<chrono::Utc>,
    /// Wall time in seconds, by CLOCK_MONOTONIC.
    pub wall_s: f64,
    /// How the leader ended.
    pub exit: Exit,
    /// Ends of the processes below it: all that crashed or failed, and those still alive.
    pub descendants: Vec<Descendant>,
    /// Whose fault it was.
    pub verdict: Verdict,
    /// Phase durations.
    pub phases: Phases,
    /// Measurements.
    pub metrics: Metrics,
    /// Whether its speed may be quoted.
    pub speed: Speed,
    /// Generated text; `null` when none was seen.
    pub text: Option<String>,
    /// Generated token ids; `null` when the engine printed none.
    pub token_ids: Option<Vec<u32>>,
    /// Uses of the reference tier; `null` when the engine printed no count.
    pub reference_tier_hits: Option<u64>,
    /// Op-provider lines or events seen: a zero hit count without them is no evidence.
    pub provider_lines: Option<u64>,
    /// Processes that outlived the leader.
    pub leaks: Vec<Leak>,
    /// Bytes captured from the child; `null` when capture itself failed.
    pub output_bytes: Option<u64>,
    /// Whether stamps can be read as times; `null` when there are none.
    pub stamps: Option<Stamps>,
    /// Where the phase durations come from; `null` when there are none or it is not known.
    #[serde(default)]
    pub phases_from: Option<PhaseSource>,
    /// Why generation stopped, in the engine's word: `length`, `stop`, …
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Boot id read when the attempt had ended; a change voids every figure from then on.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// What the supervisor saw that voids the speed: a model on a network share, a stopped clock, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void_notes: Vec<String>,
    /// The attempt's files.
    pub files: Files,
}

impl Attempt {
    /// An attempt of which nothing is known yet but when it began: every observation is absent, its verdict is
    /// `inconclusive`, its speed is void.
    #[must_use]
    pub fn new(n: u32, round: u32, started: chrono::DateTime<chrono::Utc>) -> Self {
        Attempt {
            n,
            round,
            warmup: false,
            started,
            wall_s: 0.0,
            exit: Exit::default(),
            descendants: Vec::new(),
            verdict: Verdict::new(
                super::Class::Inconclusive,
                "not-judged",
                super::Confidence::Low,
                "not judged yet",
            ),
            phases: Phases::default(),
            metrics: Metrics::default(),
            speed: Speed {
                admissible: false,
                void_reason: Some("not judged".to_owned()),
            },
            text: None,
            token_ids: None,
            reference_tier_hits: None,
            provider_lines: None,
            leaks: Vec::new(),
            output_bytes: None,
            stamps: None,
            phases_from: None,
            finish_reason: None,
            boot_id: None,
            void_notes: Vec::new(),
            files: Files::new(),
        }
    }

    /// The first process of the attempt that crashed below the leader, if one did.
    #[must_use]
    pub fn crashed_descendant(&self) -> Option<&Descendant> {
        self.descendants
            .iter()
            .find(|d| d.end.is_some_and(|end| end.crashed()))
    }
}
