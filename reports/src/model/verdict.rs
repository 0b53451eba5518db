//! What an attempt's evidence says, and why.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose fault it was.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Nothing went wrong.
    Clean,
    /// Our GPU code.
    Kernel,
    /// Hardware, firmware or driver.
    Board,
    /// The CPU-side process or its memory.
    Host,
    /// Share, disk, network, runner or the harness.
    Infra,
    /// The evidence does not decide.
    Inconclusive,
}

impl Class {
    /// The word used in reports and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Clean => "clean",
            Class::Kernel => "kernel",
            Class::Board => "board",
            Class::Host => "host",
            Class::Infra => "infra",
            Class::Inconclusive => "inconclusive",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How much the evidence carries.
///
/// `high`: the hardware, the driver or the operating system named the cause in words that have no other known reading.
/// `medium`: the usual reading of the evidence; a known but rarer cause prints the same lines.
/// `low`: a default chosen because nothing better was seen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// A default; nothing better was seen.
    Low,
    /// The usual reading.
    Medium,
    /// No other reading is known.
    High,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        })
    }
}

/// What part a line of evidence plays in a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It decided the class.
    Decides,
    /// It agrees with the deciding line.
    Supports,
    /// It follows from the deciding event and proves nothing by itself.
    Consequence,
    /// It was looked at and set aside; `why` says for what reason.
    Ignored,
}

/// One line of evidence, quoted as it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceLine {
    /// Where it was read: `kernel.log`, `output.log`, `exit`, `core`, `identity`, …
    pub source: String,
    /// 1-based line in that source; `null` when the source has no lines.
    pub line: Option<u64>,
    /// The line itself.
    pub text: String,
    /// The finding it became, e.g. `gpu-page-fault`.
    pub finding: String,
    /// Its part in the verdict.
    pub role: Role,
    /// Why it has that part, in a sentence.
    pub why: String,
}

/// What is known of the software stack under the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StackState {
    /// The gate does not apply to this hardware.
    NotApplicable,
    /// No known defect of the stack can have made these lines.
    Good,
    /// The stack has a known defect that prints the same lines.
    Bad,
    /// Not enough was recorded to tell.
    Unknown,
}

/// Whether the software stack could have faulted by itself (fault rules, section 4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackGate {
    /// What is known of the stack.
    pub state: StackState,
    /// The facts and the table rows that decided the state.
    pub reasons: Vec<String>,
}

/// Another reading of the same evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alternate {
    /// Class of the other reading.
    pub class: Class,
    /// Its kind.
    pub kind: String,
    /// When it would hold.
    pub why: String,
}

/// The verdict on one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Whose fault it was.
    pub class: Class,
    /// A slug such as `gpu-page-fault-cp`; `none` for a clean attempt.
    pub kind: String,
    /// How much the evidence carries.
    pub confidence: Confidence,
    /// The guilty first event with addresses, pids and numbers normalised; equal titles are the same trouble.
    pub title: String,
    /// The chain of evidence, in the order it was read.
    pub evidence: Vec<EvidenceLine>,
    /// Other readings of the same evidence, and when each would hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternates: Vec<Alternate>,
    /// What would settle it: empty unless the verdict is inconclusive or of low confidence.
    pub would_settle: Vec<String>,
    /// The stack gate, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_gate: Option<StackGate>,
    /// What the reader should know besides: lost kernel records, missing collectors, collateral of other processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Verdict {
    /// A verdict with no evidence yet.
    #[must_use]
    pub fn new(class: Class, kind: &str, confidence: Confidence, title: impl Into<String>) -> Self {
        Verdict {
            class,
            kind: kind.to_owned(),
            confidence,
            title: title.into(),
            evidence: Vec::new(),
            alternates: Vec::new(),
            would_settle: Vec::new(),
            stack_gate: None,
            warnings: Vec::new(),
        }
    }
}
