//! Every condition by itself, and their order.

use super::*;
use crate::examples::{clean_attempt, engine_leg};
use crate::model::{Attempt, Class, GateStatus, LegKind, PhaseSource, Stamps};

fn facts() -> LegFacts {
    LegFacts {
        kind: Some(LegKind::Engine),
        token_gate: Some(GateStatus::Pass),
        boot_id: Some(crate::examples::BOOT.to_owned()),
        ..LegFacts::default()
    }
}

/// A change to a leg's facts or an attempt, and the reason that it must bring.
type Case = (&'static str, fn(&mut LegFacts, &mut Attempt), &'static str);

/// In the documented order.
const CASES: [Case; 15] = [
    (
        "not clean",
        |_, a| {
            a.verdict.class = Class::Board;
            a.verdict.kind = "smu-hang".into();
        },
        "board: smu-hang",
    ),
    ("warm-up", |_, a| a.warmup = true, "warm-up"),
    ("diagnostic", |f, _| f.diagnostic = true, "diagnostic"),
    (
        "token gate failed",
        |f, _| f.token_gate = Some(GateStatus::Fail),
        "token gate FAIL",
    ),
    (
        "token gate open",
        |f, _| f.token_gate = Some(GateStatus::NotMeasurable),
        "token gate not measurable",
    ),
    ("no token gate", |f, _| f.token_gate = None, "no token gate"),
    (
        "hits",
        |_, a| a.reference_tier_hits = Some(3),
        "reference-tier hits 3",
    ),
    (
        "hits absent",
        |_, a| a.reference_tier_hits = None,
        "reference-tier hits not printed",
    ),
    (
        "no lines",
        |_, a| a.provider_lines = Some(0),
        "no op-provider lines",
    ),
    ("confounded", |f, _| f.variables = 2, "CONFOUNDED(2)"),
    (
        "boot",
        |_, a| a.boot_id = Some("another".into()),
        "boot changed",
    ),
    (
        "stamps",
        |_, a| {
            a.stamps = Some(Stamps::Suspect);
            a.phases_from = Some(PhaseSource::Stamps);
        },
        "stamps suspect",
    ),
    (
        "binary",
        |f, _| f.binary = Some(BinaryFault::Differs),
        "binary differs",
    ),
    ("quick", |f, _| f.quick = true, "quick run"),
    (
        "note",
        |_, a| a.void_notes = vec!["model on a network share".into()],
        "model on a network share",
    ),
];

#[test]
fn a_clean_attempt_of_a_gated_leg_is_admissible() {
    let speed = facts().speed(&clean_attempt(1, 1, 8.0));
    assert!(speed.admissible);
    assert_eq!(speed.void_reason, None);
}

#[test]
fn each_condition_voids_by_itself() {
    for (name, change, reason) in CASES {
        let (mut f, mut a) = (facts(), clean_attempt(1, 1, 8.0));
        change(&mut f, &mut a);
        let speed = f.speed(&a);
        assert!(!speed.admissible, "{name}");
        assert_eq!(speed.void_reason.as_deref(), Some(reason), "{name}");
    }
}

#[test]
fn of_two_the_earlier_one_is_printed() {
    for (i, (first, change_first, reason)) in CASES.iter().enumerate() {
        for (second, change_second, other) in &CASES[i + 1..] {
            // Three token gates and three kinds of hits exclude each other.
            let family = |r: &str| match r {
                r if r.contains("token gate") => 1,
                r if r.starts_with("reference-tier") || r.contains("op-provider") => 2,
                _ => 0,
            };
            if family(reason) != 0 && family(reason) == family(other) {
                continue;
            }
            let (mut f, mut a) = (facts(), clean_attempt(1, 1, 8.0));
            change_second(&mut f, &mut a);
            change_first(&mut f, &mut a);
            assert_eq!(
                void_reason(&f, &a).as_deref(),
                Some(*reason),
                "{first} with {second}"
            );
        }
    }
}

#[test]
fn a_foreign_command_needs_what_it_reports() {
    let mut f = facts();
    f.kind = Some(LegKind::Command);
    f.token_gate = None;
    let mut a = clean_attempt(1, 1, 8.0);
    a.reference_tier_hits = None;
    a.provider_lines = None;
    assert_eq!(void_reason(&f, &a).as_deref(), Some("no token gate"));
    a.token_ids = None;
    a.metrics.completion_tokens = None;
    a.metrics.decode_tok_s = None;
    a.metrics.prefill_tok_s = None;
    assert_eq!(void_reason(&f, &a), None);
}

#[test]
fn suspect_stamps_void_only_what_comes_from_them() {
    let mut a = clean_attempt(1, 1, 8.0);
    a.stamps = Some(Stamps::Suspect);
    assert_eq!(void_reason(&facts(), &a), None, "phases come from events");
    a.phases_from = None;
    assert_eq!(void_reason(&facts(), &a).as_deref(), Some("stamps suspect"));
    a.phases = crate::model::Phases::default();
    assert_eq!(void_reason(&facts(), &a), None, "there are no phases");
}

#[test]
fn an_unknown_boot_id_is_no_change() {
    let mut a = clean_attempt(1, 1, 8.0);
    a.boot_id = None;
    assert_eq!(void_reason(&facts(), &a), None);
}

#[test]
fn programs() {
    let control = engine_leg("default", true, &[]);
    let mut other = engine_leg("other", false, &[]);
    assert_eq!(Binaries::MustMatch.judge(&control, &other), None);
    assert_eq!(
        Binaries::MustDiffer.judge(&control, &other),
        Some(BinaryFault::Identical)
    );
    other.binary_sha256 = Some("00".into());
    assert_eq!(
        Binaries::MustMatch.judge(&control, &other),
        Some(BinaryFault::Differs)
    );
    assert_eq!(Binaries::MustDiffer.judge(&control, &other), None);
    assert_eq!(Binaries::Any.judge(&control, &other), None);
    other.command[0] = "/other/program".into();
    assert_eq!(
        Binaries::MustMatch.judge(&control, &other),
        None,
        "declared by the command"
    );
    other.binary_sha256 = None;
    assert_eq!(
        Binaries::MustDiffer.judge(&control, &other),
        None,
        "not recorded"
    );
    assert_eq!(Binaries::MustDiffer.judge(&control, &control), None);
}
