//! Gates and comparisons as written.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::At;

/// Text from any scalar: `1`, `"1"`, `true` and `abc` are the characters that stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalarText(pub String);

impl<'de> Deserialize<'de> for ScalarText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(ScalarText)
    }
}

impl JsonSchema for ScalarText {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ScalarText".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean"]})
    }
}

impl fmt::Display for ScalarText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A condition that must hold of one leg or between legs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateDoc {
    /// Name in the report; made from the condition when absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The leg.
    #[serde(default)]
    pub leg: Option<At<String>>,
    /// The legs.
    #[serde(default)]
    pub legs: Option<Vec<At<String>>>,
    /// The condition.
    pub expect: At<Expect>,
}

/// What is expected of every counted attempt of the gate's legs. Each key is a condition of its own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Exit code.
    #[serde(default)]
    pub exit: Option<i32>,
    /// The generated text begins with this.
    #[serde(default)]
    pub text_starts_with: Option<String>,
    /// The generated text holds this.
    #[serde(default)]
    pub text_contains: Option<String>,
    /// The generated text is exactly this.
    #[serde(default)]
    pub text: Option<String>,
    /// The generated text matches this regular expression.
    #[serde(default)]
    pub text_matches: Option<At<String>>,
    /// The token ids are exactly these.
    #[serde(default)]
    pub token_ids: Option<Vec<u32>>,
    /// Uses of the reference tier; an absent count does not hold.
    #[serde(default)]
    pub reference_tier_hits: Option<u64>,
    /// Tokens generated.
    #[serde(default)]
    pub completion_tokens: Option<u64>,
    /// Class of the verdict: clean, kernel, board, host, infra or inconclusive.
    #[serde(default)]
    pub verdict: Option<At<String>>,
    /// Equal in every attempt of every leg named: token_ids, text or exit.
    #[serde(default)]
    pub same: Option<At<Same>>,
    /// Lower bounds of metrics, by name.
    #[serde(default)]
    pub min: BTreeMap<String, At<f64>>,
    /// Upper bounds of metrics, by name.
    #[serde(default)]
    pub max: BTreeMap<String, At<f64>>,
}

/// What must be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Same {
    /// Token ids.
    TokenIds,
    /// Generated text.
    Text,
    /// Exit code and signal.
    Exit,
}

/// Two arms to compare.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareDoc {
    /// Arm a: the one that the ratio divides by.
    pub a: At<String>,
    /// Arm b.
    pub b: At<String>,
    /// Metrics to compare; default all that both arms measured.
    #[serde(default)]
    pub metrics: Vec<At<String>>,
    /// A metric may get worse in b by at most this share (0.05 is 5 %); more is a regression, exit code 20.
    #[serde(default)]
    pub max_regression: Option<At<f64>>,
}
