//! The conditions, in their order.

use crate::model::{Attempt, Class, GateStatus, LegKind, PhaseSource, Speed, Stamps};

use super::BinaryFault;

/// What is known of an attempt's leg and run before its speed is judged.
#[derive(Debug, Clone, Default)]
pub struct LegFacts {
    /// What the leg runs.
    pub kind: Option<LegKind>,
    /// Whether it is diagnostic.
    pub diagnostic: bool,
    /// The outcome of its token gates; `None` without one.
    pub token_gate: Option<GateStatus>,
    /// The least number of variables by which it differs from the control or a leg it is compared with; 0 for the
    /// control and where there is none.
    pub variables: usize,
    /// Boot id at the start of the run.
    pub boot_id: Option<String>,
    /// What is wrong with its program.
    pub binary: Option<BinaryFault>,
    /// Whether the run was a quick one.
    pub quick: bool,
}

impl LegFacts {
    /// Judges one attempt's speed.
    #[must_use]
    pub fn speed(&self, attempt: &Attempt) -> Speed {
        let void_reason = void_reason(self, attempt);
        Speed {
            admissible: void_reason.is_none(),
            void_reason,
        }
    }
}

/// The first condition that does not hold; `None` when the speed may be quoted.
#[must_use]
pub fn void_reason(leg: &LegFacts, attempt: &Attempt) -> Option<String> {
    not_clean(attempt)
        .or_else(|| attempt.warmup.then(|| "warm-up".to_owned()))
        .or_else(|| leg.diagnostic.then(|| "diagnostic".to_owned()))
        .or_else(|| token_gate(leg, attempt).map(str::to_owned))
        .or_else(|| reference_tier(leg, attempt))
        .or_else(|| (leg.variables > 1).then(|| format!("CONFOUNDED({})", leg.variables)))
        .or_else(|| boot_changed(leg, attempt).then(|| "boot changed".to_owned()))
        .or_else(|| suspect(attempt).then(|| "stamps suspect".to_owned()))
        .or_else(|| {
            leg.binary.map(|fault| {
                let words = match fault {
                    BinaryFault::Differs => "binary differs",
                    BinaryFault::Identical => "binaries identical",
                };
                words.to_owned()
            })
        })
        .or_else(|| leg.quick.then(|| "quick run".to_owned()))
        .or_else(|| attempt.void_notes.first().cloned())
}

fn not_clean(attempt: &Attempt) -> Option<String> {
    let v = &attempt.verdict;
    (v.class != Class::Clean).then(|| format!("{}: {}", v.class, v.kind))
}

fn token_gate(leg: &LegFacts, attempt: &Attempt) -> Option<&'static str> {
    match leg.token_gate {
        Some(GateStatus::Pass) => None,
        Some(GateStatus::Fail) => Some("token gate FAIL"),
        Some(GateStatus::NotMeasurable) => Some("token gate not measurable"),
        None => {
            let m = &attempt.metrics;
            let generates = leg.kind == Some(LegKind::Engine)
                || attempt.token_ids.is_some()
                || m.completion_tokens.is_some()
                || m.decode_tok_s.is_some()
                || m.prefill_tok_s.is_some();
            generates.then_some("no token gate")
        }
    }
}

fn reference_tier(leg: &LegFacts, attempt: &Attempt) -> Option<String> {
    if leg.kind != Some(LegKind::Engine) {
        return None;
    }
    match (attempt.reference_tier_hits, attempt.provider_lines) {
        (None, _) => Some("reference-tier hits not printed".to_owned()),
        (Some(0), None | Some(0)) => Some("no op-provider lines".to_owned()),
        (Some(0), Some(_)) => None,
        (Some(hits), _) => Some(format!("reference-tier hits {hits}")),
    }
}

fn boot_changed(leg: &LegFacts, attempt: &Attempt) -> bool {
    matches!((&leg.boot_id, &attempt.boot_id), (Some(run), Some(now)) if run != now)
}

fn suspect(attempt: &Attempt) -> bool {
    let p = &attempt.phases;
    let has_phases = p.load_s.is_some()
        || p.ttft_s.is_some()
        || p.prefill_s.is_some()
        || p.decode_s.is_some()
        || !p.declared.is_empty();
    attempt.stamps == Some(Stamps::Suspect)
        && attempt.phases_from != Some(PhaseSource::Events)
        && has_phases
}
