//! The built-in leg set on the built-in model: the first thing that anybody runs.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

mod common;

use common::Bench;
use legwork_reports::model::{Class, GateStatus, RunVerdict};

#[test]
fn smoke_passes_on_any_machine() {
    let bench = Bench::new();
    let ran = bench.call(&["run", "smoke", "--out", "runs"]);
    ran.expect_code(0);
    let report = ran.report();
    assert_eq!(report.verdict, RunVerdict::Pass);
    assert_eq!(
        report
            .legs
            .iter()
            .map(|l| l.name.as_str())
            .collect::<Vec<_>>(),
        ["default", "split-projection", "sparse"]
    );
    for leg in &report.legs {
        assert_eq!(leg.counted().count(), 2, "{}", leg.name);
        for attempt in &leg.attempts {
            assert_eq!(
                attempt.verdict.class,
                Class::Clean,
                "{}: {:?}",
                leg.name,
                attempt.verdict
            );
            assert_eq!(attempt.reference_tier_hits, Some(0), "{}", leg.name);
            assert!(attempt.provider_lines.is_some_and(|n| n > 0));
            assert!(attempt.phases.load_s.is_some() && attempt.phases.ttft_s.is_some());
            assert!(attempt.metrics.weights_gib.is_some() && attempt.metrics.kv_bytes.is_some());
        }
    }
    let first = |name: &str| report.leg(name).unwrap().counted().next().unwrap().clone();
    assert!(first("default").text.unwrap().starts_with(" Paris"));
    assert_eq!(
        first("default").token_ids,
        first("split-projection").token_ids
    );
    // Past index_topk of the built-in model, so that the indexer has something to choose.
    assert!(first("sparse").metrics.prompt_tokens.unwrap() > 128);
    assert!(
        report.gates.iter().all(|g| g.status == GateStatus::Pass),
        "{:?}",
        report.gates
    );
    assert_eq!(
        report.leg("split-projection").unwrap().differs,
        ["VT_MLA_FUSED_NORM_ROPE"]
    );
    // The engine stamps its events itself, with the clock of the attempt.
    let events =
        std::fs::read_to_string(ran.dir().join("attempts/004-default-r1/events.jsonl")).unwrap();
    assert!(events.lines().count() > 10 && events.contains("\"run_end\""));
}

#[test]
fn a_knob_with_a_value_that_nobody_knows_is_the_engines_refusal() {
    let bench = Bench::new();
    let ran = bench.run(
        "name: t\nlegs:\n  - {name: a, engine: {model: builtin:mini, prompt: x, max_tokens: 1, device: cpu}, env: {VT_MLA_FUSED_NORM_ROPE: perhaps}}\n",
        &[],
    );
    assert_ne!(ran.code, 0, "{}", ran.said());
    let report = ran.report();
    let attempt = &report.legs[0].attempts[0];
    assert_ne!(attempt.verdict.class, Class::Clean);
    let log = std::fs::read_to_string(ran.dir().join("attempts/001-a-r1/output.log")).unwrap();
    assert!(
        log.contains("VT_MLA_FUSED_NORM_ROPE") && log.contains("perhaps"),
        "{log}"
    );
}

#[test]
fn every_key_of_a_leg_is_a_flag_of_the_engine() {
    let bench = Bench::new();
    let help = bench.call(&["engine", "generate", "--help"]).stdout();
    for (key, flag) in legwork::legfile::EngineKeys::FLAGS {
        assert!(
            help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")),
            "`{key}`: the engine has no {flag}\n{help}"
        );
    }
}
