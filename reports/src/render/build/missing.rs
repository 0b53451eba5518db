//! What was not measured, and what is not claimed.

use crate::format::clean;
use crate::metrics::{describe, value};
use crate::model::{Attempt, Class, GateStatus, LegKind, Report, RunVerdict, Stamps};

use super::super::document::{Block, Section};

/// Figures that an engine leg is expected to give.
const EXPECTED: [&str; 8] = [
    "load_s",
    "ttft_s",
    "prefill_tok_s",
    "decode_tok_s",
    "weights_gib",
    "completion_tokens",
    "peak_rss_gib",
    "kv_bytes",
];

/// Anything that was looked for and not seen: absent is not zero.
pub(super) fn not_measured(report: &Report) -> Option<Section> {
    let mut out = Vec::new();
    for leg in &report.legs {
        let all: Vec<&Attempt> = leg.counted().collect();
        if all.is_empty() {
            out.push(format!(
                "{}: nothing, it has no counted attempt",
                clean(&leg.name)
            ));
            continue;
        }
        let mut missing: Vec<String> = Vec::new();
        if leg.kind == Some(LegKind::Engine) {
            let figures = EXPECTED.iter().filter_map(|name| {
                let without: Vec<_> = all.iter().filter(|a| value(a, name).is_none()).collect();
                of_attempts(&describe(name).title, &without, all.len())
            });
            missing.extend(figures);
            let hits: Vec<_> = all
                .iter()
                .filter(|a| a.reference_tier_hits.is_none())
                .collect();
            missing.extend(of_attempts("reference-tier hits", &hits, all.len()));
            let tokens: Vec<_> = all.iter().filter(|a| a.token_ids.is_none()).collect();
            missing.extend(of_attempts("token ids", &tokens, all.len()));
        }
        let silent: Vec<_> = all
            .iter()
            .filter(|a| a.output_bytes.is_none_or(|n| n == 0))
            .collect();
        missing.extend(of_attempts("output (CAPTURE_FAILED)", &silent, all.len()));
        if !missing.is_empty() {
            out.push(format!("{}: {}", clean(&leg.name), missing.join(", ")));
        }
    }
    for g in report
        .gates
        .iter()
        .filter(|g| g.status == GateStatus::NotMeasurable)
    {
        out.push(format!("gate `{}`: {}", clean(&g.name), clean(&g.observed)));
    }
    let unread: Vec<&str> = report
        .identity
        .iter()
        .filter(|(_, v)| v.is_null())
        .map(|(k, _)| k.as_str())
        .collect();
    if !unread.is_empty() {
        out.push(format!("identity: {}", clean(&unread.join(", "))));
    }
    let blocks = vec![Block::List(out.clone())];
    (!out.is_empty()).then(|| Section::new("not-measured", "Not measured", blocks))
}

fn of_attempts(what: &str, without: &[&&Attempt], all: usize) -> Option<String> {
    match without.len() {
        0 => None,
        n if n == all => Some(what.to_owned()),
        _ => {
            let numbers: Vec<String> = without.iter().map(|a| format!("#{}", a.n)).collect();
            Some(format!("{what} ({})", numbers.join(" ")))
        }
    }
}

/// What a reader might take from the figures and must not.
pub(super) fn not_claimed(report: &Report) -> Option<Section> {
    let mut out = Vec::new();
    for leg in &report.legs {
        let mut reasons: Vec<&str> = leg
            .counted()
            .filter_map(|a| a.speed.void_reason.as_deref())
            .collect();
        reasons.dedup();
        if let Some(first) = reasons.first() {
            let all = leg.counted().all(|a| !a.speed.admissible);
            let void: Vec<String> = leg
                .counted()
                .filter(|a| !a.speed.admissible)
                .map(|a| format!("#{}", a.n))
                .collect();
            let of = if all {
                "any speed".to_owned()
            } else {
                format!("the speed in {}", void.join(" "))
            };
            out.push(format!(
                "{of} of {}: VOID({})",
                clean(&leg.name),
                clean(first)
            ));
        }
        if leg.counted().any(|a| a.stamps == Some(Stamps::Suspect)) {
            out.push(format!(
                "times read from the stamps of {}: the writer buffered its lines",
                clean(&leg.name)
            ));
        }
        let faulted = leg.faults.is_some_and(|f| f.faulted > 0);
        if faulted && leg.counted().any(|a| a.verdict.class == Class::Clean) {
            out.push(format!(
                "that {} works: it faulted in some attempts and not in others",
                clean(&leg.name)
            ));
        }
    }
    for c in report.comparisons.iter().filter(|c| c.confounded) {
        out.push(format!(
            "which of {} makes {} differ from {}",
            clean(&c.variables.join(", ")),
            clean(&c.b),
            clean(&c.a)
        ));
    }
    let small = report
        .comparisons
        .iter()
        .filter(|c| c.metrics.iter().any(|m| m.note.is_some()))
        .map(|c| format!("{} against {}", clean(&c.b), clean(&c.a)));
    let small: Vec<String> = small.collect();
    if !small.is_empty() {
        out.push(format!(
            "that a difference, or its absence, is more than chance: too few attempts ({})",
            small.join(", ")
        ));
    }
    if report.verdict == RunVerdict::Pass {
        let counted: usize = report.legs.iter().map(|l| l.counted().count()).sum();
        out.push(format!(
            "that faults rarer than about 1 in {} attempts do not happen",
            counted.max(1)
        ));
    }
    let blocks = vec![Block::List(out.clone())];
    (!out.is_empty()).then(|| Section::new("not-claimed", "Not claimed", blocks))
}
