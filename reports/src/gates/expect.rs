//! What a gate expects, as a leg file says it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Class, Stamps};

use super::Bound;

/// One value or a list of values, any of which will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected one value or a list of values")]
pub enum OneOrMany<T> {
    /// One value.
    One(T),
    /// Any of these.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match self {
            OneOrMany::One(value) => std::slice::from_ref(value),
            OneOrMany::Many(values) => values,
        }
    }
}

/// A signal by name (`SIGSEGV`, `segv`) or number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the name or the number of a signal")]
pub enum SignalSpec {
    /// Its number.
    Number(i32),
    /// Its name, with or without `SIG`, in any case.
    Name(String),
}

/// What must be equal across legs and attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Same {
    /// The generated token ids.
    TokenIds,
    /// The generated text.
    Text,
}

/// What a gate expects. Every key given must hold for every counted attempt of the gate's legs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// The leader's exit code. 0 does not hold when a process below the leader crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<OneOrMany<i32>>,
    /// The signal that ended the leader, or a process below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<OneOrMany<SignalSpec>>,
    /// Whether a deadline of the leg ended the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<bool>,
    /// The generated text, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_equals: Option<String>,
    /// The beginning of the generated text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_starts_with: Option<String>,
    /// A part of the generated text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_contains: Option<String>,
    /// The generated token ids, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// The least number of generated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_completion_tokens: Option<u64>,
    /// Uses of the reference tier. 0 is judged only when op-provider lines were seen: none printed is no evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_tier_hits: Option<u64>,
    /// What must be equal across the gate's legs and all their attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same: Option<Same>,
    /// The class of each attempt's verdict. `inconclusive` decides nothing unless it is expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<OneOrMany<Class>>,
    /// `true`: no process outlived the leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_leaks: Option<bool>,
    /// Whether stamps can be read as times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamps: Option<Stamps>,
    /// Wall time of an attempt, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<Bound>,
    /// Load time, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_s: Option<Bound>,
    /// Load rate, GiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_gib_s: Option<Bound>,
    /// Time to the first token, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_s: Option<Bound>,
    /// Prompt processing, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_s: Option<Bound>,
    /// First to last token, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_s: Option<Bound>,
    /// Prompt tokens per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_tok_s: Option<Bound>,
    /// Generated tokens per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_tok_s: Option<Bound>,
    /// Size of the weights, GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_gib: Option<Bound>,
    /// Peak resident memory, GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_gib: Option<Bound>,
    /// KV cache, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_bytes: Option<Bound>,
    /// Tokens of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<Bound>,
    /// Tokens generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<Bound>,
    /// Bounds of any other metric, by its name in `report.json`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Bound>,
}
