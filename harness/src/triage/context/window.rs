//! The attempt's span of the kernel log.

use serde::{Deserialize, Serialize};

use super::scalars::text;
use crate::triage::lexer::Stamp;

/// A span of the kernel log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// First stamp, as in the log.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Last stamp.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// First CLOCK_MONOTONIC nanosecond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_mono_ns: Option<u64>,
    /// Last CLOCK_MONOTONIC nanosecond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_mono_ns: Option<u64>,
    /// First `/dev/kmsg` sequence number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<u64>,
    /// Last `/dev/kmsg` sequence number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_seq: Option<u64>,
}

impl Window {
    /// Whether a line at this stamp and sequence number lies inside. Lines that carry neither do.
    #[must_use]
    pub fn contains(&self, stamp: &Stamp, seq: Option<u64>) -> bool {
        if let Some(seq) = seq
            && (self.from_seq.is_some() || self.to_seq.is_some())
        {
            return self.from_seq.is_none_or(|f| seq >= f) && self.to_seq.is_none_or(|t| seq <= t);
        }
        // The kernel's log clock may differ from CLOCK_MONOTONIC by a few milliseconds.
        const SLACK_US: u64 = 50_000;
        if let Some(us) = stamp.mono_us {
            if self.from_mono_ns.is_some_and(|f| us + SLACK_US < f / 1000) {
                return false;
            }
            if self.to_mono_ns.is_some_and(|t| us > t / 1000 + SLACK_US) {
                return false;
            }
        }
        let bound = |s: &Option<String>| s.as_deref().and_then(Stamp::parse);
        if let Some(f) = bound(&self.from)
            && stamp.compare(&f) == Some(std::cmp::Ordering::Less)
        {
            return false;
        }
        if let Some(t) = bound(&self.to)
            && stamp.compare(&t) == Some(std::cmp::Ordering::Greater)
        {
            return false;
        }
        true
    }
}
