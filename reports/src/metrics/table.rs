//! The table of known metrics and how each is read from an attempt.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::model::{Attempt, PhaseSource, Stamps};

use super::Unit;

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: a fact, not a merit.
    Neither,
}

/// The table of the report in which a metric stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Speed of prefill and decode.
    Speed,
    /// Loading.
    Load,
    /// Memory and caches.
    Memory,
    /// Counts.
    Count,
    /// Everything else that was measured.
    Other,
}

/// What is known of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name in leg files and in `report.json`.
    pub name: Cow<'static, str>,
    /// Its name in tables.
    pub title: Cow<'static, str>,
    /// Its unit.
    pub unit: Unit,
    /// Which way it is better.
    pub better: Better,
    /// A figure of speed: quoted only when its attempt is admissible.
    pub speed: bool,
    /// Where it stands in a report.
    pub place: Place,
}

const fn row(
    name: &'static str,
    title: &'static str,
    unit: Unit,
    better: Better,
    speed: bool,
    place: Place,
) -> Metric {
    Metric {
        name: Cow::Borrowed(name),
        title: Cow::Borrowed(title),
        unit,
        better,
        speed,
        place,
    }
}

use Better::{Higher, Lower, Neither};
use Unit::{Bytes, Gib, GibPerSecond, Seconds, Tokens, TokensPerSecond};

/// The metrics with a place of their own, in the order in which they are printed.
pub static METRICS: [Metric; 18] = [
    row(
        "decode_tok_s",
        "decode",
        TokensPerSecond,
        Higher,
        true,
        Place::Speed,
    ),
    row(
        "prefill_tok_s",
        "prefill",
        TokensPerSecond,
        Higher,
        true,
        Place::Speed,
    ),
    row(
        "ttft_s",
        "time to first token",
        Seconds,
        Lower,
        true,
        Place::Speed,
    ),
    row(
        "prefill_s",
        "prefill time",
        Seconds,
        Lower,
        true,
        Place::Speed,
    ),
    row(
        "decode_s",
        "decode time",
        Seconds,
        Lower,
        true,
        Place::Speed,
    ),
    row("load_s", "load", Seconds, Lower, true, Place::Load),
    row(
        "load_header_s",
        "mmap + header",
        Seconds,
        Lower,
        true,
        Place::Load,
    ),
    row(
        "load_weights_s",
        "weights",
        Seconds,
        Lower,
        true,
        Place::Load,
    ),
    row(
        "load_gib_s",
        "load rate",
        GibPerSecond,
        Higher,
        true,
        Place::Load,
    ),
    row(
        "weights_gib",
        "weights size",
        Gib,
        Neither,
        false,
        Place::Load,
    ),
    row("peak_rss_gib", "peak RSS", Gib, Lower, false, Place::Memory),
    row("vm_hwm_gib", "VmHWM", Gib, Lower, false, Place::Memory),
    row(
        "vram_peak_gib",
        "device memory peak",
        Gib,
        Lower,
        false,
        Place::Memory,
    ),
    row(
        "mem_available_min_gib",
        "MemAvailable min",
        Gib,
        Higher,
        false,
        Place::Memory,
    ),
    row("kv_bytes", "KV cache", Bytes, Neither, false, Place::Memory),
    row(
        "prompt_tokens",
        "prompt tokens",
        Tokens,
        Neither,
        false,
        Place::Count,
    ),
    row(
        "completion_tokens",
        "tokens",
        Tokens,
        Neither,
        false,
        Place::Count,
    ),
    row("wall_s", "wall", Seconds, Lower, false, Place::Other),
];

/// What is known of the metric `name`. A name outside [`METRICS`] tells its unit by its ending; rates count as
/// speed, whatever else not.
#[must_use]
pub fn describe(name: &str) -> Metric {
    if let Some(known) = METRICS.iter().find(|m| m.name == name) {
        return known.clone();
    }
    let unit = Unit::of_name(name);
    Metric {
        name: Cow::Owned(name.to_owned()),
        // The name may come from outside.
        title: Cow::Owned(crate::format::clean(name).replace('_', " ")),
        unit,
        better: if unit.is_rate() {
            Better::Higher
        } else if matches!(unit, Unit::Seconds | Unit::Milliseconds) {
            Better::Lower
        } else {
            Better::Neither
        },
        speed: unit.is_rate(),
        place: Place::Other,
    }
}

/// The metric `name` of an attempt: a metric, a phase, a phase that the leg declared, or any other figure. `None` when
/// it was not observed or is not a number.
#[must_use]
pub fn value(attempt: &Attempt, name: &str) -> Option<f64> {
    let (m, p) = (&attempt.metrics, &attempt.phases);
    let found = match name {
        "decode_tok_s" => m.decode_tok_s,
        "prefill_tok_s" => m.prefill_tok_s,
        "load_gib_s" => m.load_gib_s,
        "weights_gib" => m.weights_gib,
        "peak_rss_gib" => m.peak_rss_gib,
        "kv_bytes" => m.kv_bytes.map(|v| v as f64),
        "prompt_tokens" => m.prompt_tokens.map(|v| v as f64),
        "completion_tokens" => m.completion_tokens.map(|v| v as f64),
        "load_s" => p.load_s,
        "ttft_s" => p.ttft_s,
        "prefill_s" => p.prefill_s,
        "decode_s" => p.decode_s,
        "wall_s" => Some(attempt.wall_s),
        other => m.other.get(other).copied(),
    };
    // A foreign command's leg may declare a phase of the same name.
    let declared = || p.declared.get(name.strip_suffix("_s")?).copied();
    found.or_else(declared).filter(|v| v.is_finite())
}

/// Whether the metric `name` of this attempt was derived from stamps that cannot be read as times.
#[must_use]
pub fn is_suspect(attempt: &Attempt, name: &str) -> bool {
    if attempt.stamps != Some(Stamps::Suspect) || attempt.phases_from == Some(PhaseSource::Events) {
        return false;
    }
    matches!(name, "load_s" | "ttft_s" | "prefill_s" | "decode_s")
        || attempt
            .phases
            .declared
            .contains_key(name.strip_suffix("_s").unwrap_or(name))
}

/// The names of all metrics that any of the attempts has, known ones first and in order, then the others by name.
/// Phases that a leg declared are named `<phase>_s`.
#[must_use]
pub fn names<'a>(attempts: impl IntoIterator<Item = &'a Attempt> + Clone) -> Vec<String> {
    let mut found: Vec<String> = METRICS
        .iter()
        .filter(|m| {
            attempts
                .clone()
                .into_iter()
                .any(|a| value(a, &m.name).is_some())
        })
        .map(|m| m.name.to_string())
        .collect();
    let mut others = BTreeSet::new();
    for attempt in attempts {
        others.extend(attempt.metrics.other.keys().cloned());
        others.extend(attempt.phases.declared.keys().map(|k| format!("{k}_s")));
    }
    others.retain(|n| !found.contains(n));
    found.extend(others);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> Attempt {
        let started = "2026-11-30T12:00:00Z".parse().expect("a date");
        let mut a = Attempt::new(1, 1, started);
        a.metrics.decode_tok_s = Some(8.0);
        a.metrics.other.insert("power_w".into(), 61.0);
        a.phases.declared.insert("compile".into(), 2.5);
        a
    }

    #[test]
    fn figures_are_found_by_name() {
        let a = attempt();
        assert_eq!(value(&a, "decode_tok_s"), Some(8.0));
        assert_eq!(value(&a, "power_w"), Some(61.0));
        assert_eq!(value(&a, "compile_s"), Some(2.5));
        assert_eq!(value(&a, "compile"), None);
        assert_eq!(value(&a, "load_s"), None);
        assert_eq!(value(&a, "no_such"), None);
        assert_eq!(
            names([&a]),
            ["decode_tok_s", "wall_s", "compile_s", "power_w"]
        );
    }

    #[test]
    fn what_is_not_a_number_was_not_observed() {
        let mut a = attempt();
        a.metrics.decode_tok_s = Some(f64::NAN);
        assert_eq!(value(&a, "decode_tok_s"), None);
    }

    #[test]
    fn phases_from_bunched_stamps_are_suspect() {
        let mut a = attempt();
        a.stamps = Some(Stamps::Suspect);
        assert!(is_suspect(&a, "load_s") && is_suspect(&a, "compile_s"));
        assert!(!is_suspect(&a, "wall_s"));
        a.phases_from = Some(PhaseSource::Events);
        assert!(!is_suspect(&a, "load_s"));
    }

    #[test]
    fn unknown_names_tell_what_they_are() {
        let m = describe("expert_fetch_gib_s");
        assert!(m.speed && m.better == Better::Higher);
        assert_eq!(describe("edge_c").unit, Unit::Celsius);
        assert!(!describe("edge_c").speed);
    }
}
