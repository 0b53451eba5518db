//! Variables, confounding, figures, owed legs, baselines.

use super::*;
use crate::examples::{clean_attempt, engine_leg, gates, inconclusive, kernel_fault, pass};
use crate::model::{Class, ExitCode, Leg, LegKind, Report, RunInfo};
use crate::{Plan, conclude};
use serde_json::json;

fn names(a: &Leg, b: &Leg) -> Vec<String> {
    variables(a, b).into_iter().map(|v| v.name).collect()
}

fn command(argv: &[&str]) -> Leg {
    Leg {
        kind: Some(LegKind::Command),
        command: argv.iter().map(|s| (*s).to_owned()).collect(),
        ..Leg::new("c")
    }
}

#[test]
fn variables_of_engine_legs_are_environment_and_settings() {
    let a = engine_leg("a", true, &[("VT_CPU_MOE", "1")]);
    let mut b = engine_leg("b", false, &[("HSA_ENABLE_SDMA", "0"), ("VT_CPU_MOE", "0")]);
    assert_eq!(names(&a, &a), Vec::<String>::new());
    assert_eq!(names(&a, &b), ["HSA_ENABLE_SDMA", "VT_CPU_MOE"]);
    b.settings.insert("threads".into(), json!(4));
    b.settings.insert("model".into(), json!("m.gguf"));
    // The command line follows from the settings and from where it was staged: it is no variable of its own.
    b.command = vec!["/tmp/elsewhere".into()];
    assert_eq!(
        names(&a, &b),
        [
            "HSA_ENABLE_SDMA",
            "VT_CPU_MOE",
            "engine.model",
            "engine.threads"
        ]
    );
    let words: Vec<String> = variables(&a, &b).iter().map(Variable::words).collect();
    assert_eq!(
        words,
        [
            "HSA_ENABLE_SDMA: – → 0",
            "VT_CPU_MOE: 1 → 0",
            "engine.model: builtin:mini → m.gguf",
            "engine.threads: – → 4"
        ]
    );
}

#[test]
fn variables_of_commands_are_their_options() {
    let a = command(&["./cli", "--threads", "4", "-n", "-1", "--mmap", "m.gguf"]);
    let b = command(&["./cli", "--threads=8", "-n", "-1", "--mmap", "m.gguf"]);
    assert_eq!(names(&a, &b), ["--threads"]);
    let c = command(&["./cli", "--threads", "4", "-n", "-1", "other.gguf"]);
    assert_eq!(names(&a, &c), ["--mmap", "argument 1"]);
    // Another program is one variable, whatever its options.
    assert_eq!(names(&a, &command(&["./other", "-x", "-y"])), ["command"]);
    assert_eq!(names(&a, &engine_leg("e", false, &[])), ["command"]);
}

#[test]
fn confounded_arms_owe_the_legs_that_change_one_variable() {
    let report = inconclusive();
    let c = &report.comparisons[0];
    assert!(c.confounded);
    assert_eq!(
        c.variables,
        [
            "AMD_SERIALIZE_KERNEL",
            "HSA_ENABLE_SDMA",
            "VT_ROCM_MANAGED_ALLOC"
        ]
    );
    assert!(c.metrics.iter().all(|m| m.ratio.is_none()));
    let legs: Vec<&str> = report.owed.iter().map(|o| o.leg.as_str()).collect();
    assert_eq!(
        legs,
        [
            "managed-serialised × 1",
            "{name: default-AMD_SERIALIZE_KERNEL, env: {AMD_SERIALIZE_KERNEL: \"3\"}}",
            "{name: default-HSA_ENABLE_SDMA, env: {HSA_ENABLE_SDMA: \"0\"}}",
            "{name: default-VT_ROCM_MANAGED_ALLOC, env: {VT_ROCM_MANAGED_ALLOC: \"1\"}}",
        ]
    );
}

#[test]
fn a_leg_that_changes_one_variable_discharges_what_is_owed() {
    let mut report = inconclusive();
    let mut single = engine_leg("serialised", false, &[("AMD_SERIALIZE_KERNEL", "3")]);
    single.attempts = vec![clean_attempt(9, 1, 1.0)];
    report.legs.push(single);
    let owed = owed(&report);
    assert_eq!(
        owed.iter()
            .filter(|o| o.why.starts_with("isolates"))
            .count(),
        2
    );
}

#[test]
fn a_leg_compared_with_its_own_control_is_not_confounded() {
    let mut report = Report::new(RunInfo::new("r", "s", crate::examples::at(0), 1));
    let mut legs = vec![
        engine_leg("default", true, &[]),
        engine_leg("one", false, &[("VT_A", "1")]),
        engine_leg("two", false, &[("VT_A", "1"), ("VT_B", "1")]),
    ];
    for (n, leg) in (1..).zip(&mut legs) {
        leg.designed = 1;
        leg.attempts = vec![clean_attempt(n, 1, 8.0)];
    }
    report.legs = legs;
    let void = |report: &Report| report.legs[2].attempts[0].speed.void_reason.clone();
    let mut plan = Plan {
        gates: gates(&["one", "two"]),
        ..Plan::default()
    };
    conclude(&mut report, &plan);
    assert_eq!(void(&report).as_deref(), Some("CONFOUNDED(2)"));
    assert_eq!(report.exit_code, ExitCode::Inconclusive.code());
    plan.compare = vec![Pair::new("one", "two")];
    conclude(&mut report, &plan);
    assert_eq!(void(&report), None);
    assert_eq!(report.exit_code, ExitCode::Pass.code());
}

#[test]
fn figures_of_inadmissible_attempts_are_in_no_sample() {
    let report = kernel_fault();
    let decode = |i: usize| {
        let m = report.comparisons[i].metrics.iter();
        m.into_iter()
            .find(|m| m.metric == "decode_tok_s")
            .unwrap()
            .clone()
    };
    let managed = decode(0);
    assert_eq!((managed.a.len(), managed.b.len()), (3, 1));
    assert_eq!(managed.b, [8.07]);
    let serialised = decode(1);
    assert_eq!(serialised.b, Vec::<f64>::new());
    assert_eq!(
        serialised.void_reason.as_deref(),
        Some("serialised: diagnostic")
    );
    assert_eq!(serialised.ratio, None);
    let faults = report.comparisons[0].faults.clone().unwrap();
    assert_eq!(
        (faults.a.faulted, faults.a.of, faults.b.faulted, faults.b.of),
        (0, 3, 2, 3)
    );
    // scipy 1.17.1: stats.fisher_exact([[0, 3], [2, 1]])[1] is 0.4.
    assert!((faults.p.unwrap() - 0.4).abs() < 1e-12);
}

#[test]
fn attempts_that_never_ran_or_are_undecided_are_no_trials() {
    let mut leg = engine_leg("l", false, &[]);
    let classes = [
        Class::Clean,
        Class::Kernel,
        Class::Infra,
        Class::Inconclusive,
        Class::Host,
        Class::Board,
    ];
    for (n, class) in (1..).zip(classes) {
        let mut a = clean_attempt(n, 1, 8.0);
        a.verdict.class = class;
        leg.attempts.push(a);
    }
    let f = fault_ratio(&leg);
    assert_eq!((f.faulted, f.of), (3, 4));
    assert_eq!(fault_ratio(&Leg::new("none")).ci95, None);
}

#[test]
fn ratio_interval_and_p_of_a_metric() {
    let m = compare_metric(
        "decode_tok_s",
        vec![25.877, 25.912, 25.641, 26.004, 25.733],
        vec![27.135, 27.744, 27.302, 26.998, 27.51, 27.221],
        None,
        None,
    );
    assert!((m.ratio.unwrap() - 27.2615 / 25.877).abs() < 1e-12);
    assert!((m.p.unwrap() - 0.004329004329004329).abs() < 1e-12);
    assert_eq!(m.unit, "tok/s");
    assert_eq!((m.note, m.regressed), (None, None));
    assert!(m.detectable_pct.is_some_and(|d| d > 0.5 && d < 3.0));
}

#[test]
fn a_loss_is_a_regression_only_beyond_its_bound_and_beyond_chance() {
    let regressed = |name: &str, b: &[f64], loss| {
        compare_metric(name, vec![10.0, 10.1, 10.2, 10.3], b.to_vec(), None, loss).regressed
    };
    let slow = [8.0, 8.1, 8.2, 8.3];
    assert_eq!(regressed("decode_tok_s", &slow, Some(5.0)), Some(true));
    assert_eq!(regressed("decode_tok_s", &slow, Some(30.0)), Some(false));
    assert_eq!(regressed("decode_tok_s", &slow, None), None);
    assert_eq!(
        regressed("load_s", &slow, Some(5.0)),
        Some(false),
        "less is better"
    );
    assert_eq!(
        regressed("load_s", &[12.0, 12.1, 12.4], Some(5.0)),
        Some(true)
    );
    assert_eq!(
        regressed("decode_tok_s", &[8.0, 8.1], Some(5.0)),
        None,
        "too few"
    );
    // Beyond the bound by its median, but chance reaches 1.
    assert_eq!(
        regressed("decode_tok_s", &[8.0, 8.1, 10.9, 11.0, 8.2], Some(5.0)),
        Some(false)
    );
    assert_eq!(
        regressed("kv_bytes", &slow, Some(5.0)),
        None,
        "neither way is better"
    );
}

#[test]
fn a_regression_is_the_exit_code_of_a_run_that_is_otherwise_clean() {
    let mut report = pass();
    let mut pair = Pair::new("default", "split-projection");
    pair.max_loss_pct.insert("decode_tok_s".into(), 0.5);
    let plan = Plan {
        gates: gates(&["split-projection"]),
        compare: vec![pair.clone()],
        ..Plan::default()
    };
    conclude(&mut report, &plan);
    // `sparse` has lost its gate here, which only voids its speed.
    assert_eq!(report.exit_code, ExitCode::Regression.code());
    pair.max_loss_pct.insert("decode_tok_s".into(), 5.0);
    let plan = Plan {
        compare: vec![pair],
        ..plan
    };
    conclude(&mut report, &plan);
    assert_eq!(report.exit_code, ExitCode::Pass.code());
}

#[test]
fn tokens_are_compared_across_all_attempts() {
    let mut report = pass();
    report.legs[1].attempts[3].token_ids.as_mut().unwrap()[6] = 1;
    let c = compare_arms(&report, &Pair::new("default", "split-projection")).unwrap();
    assert_eq!((c.same_tokens, c.first_difference), (Some(false), Some(6)));
    for a in &mut report.legs[1].attempts {
        a.token_ids = None;
        a.text = None;
    }
    let c = compare_arms(&report, &Pair::new("default", "split-projection")).unwrap();
    assert_eq!((c.same_tokens, c.first_difference), (None, None));
    assert_eq!(compare_arms(&report, &Pair::new("default", "none")), None);
}

#[test]
fn mistakes_in_pairs_are_named() {
    let mut pair = Pair::new("a", "a");
    assert_eq!(pair.check(&["a"]), [PairError::Itself("a".into())]);
    pair.b = "b".into();
    pair.max_loss_pct.insert("decode_tok_s".into(), -1.0);
    assert_eq!(
        pair.check(&["a"]),
        [
            PairError::UnknownLeg("b".into()),
            PairError::BadLoss("decode_tok_s".into(), "-1".into())
        ]
    );
    assert!(serde_json::from_str::<Pair>(r#"{"a": "x", "b": "y", "c": 1}"#).is_err());
}

#[test]
fn a_report_is_no_worse_than_itself() {
    let diff = compare_reports(&pass(), &pass(), 5.0);
    assert_eq!(diff.exit_code(), ExitCode::Pass);
    assert!(diff.conditions.is_empty() && diff.gone.is_empty() && diff.added.is_empty());
    assert!(
        diff.legs
            .iter()
            .all(|l| l.verdict.is_none() && l.same_tokens == Some(true))
    );
}

#[test]
fn a_slower_report_is_a_regression_and_a_faster_one_is_better() {
    let mut slower = pass();
    for a in slower.legs.iter_mut().flat_map(|l| &mut l.attempts) {
        a.metrics.decode_tok_s = a.metrics.decode_tok_s.map(|v| v * 0.8);
    }
    slower
        .identity
        .insert("rocm.version".into(), json!("7.3.0"));
    let diff = compare_reports(&pass(), &slower, 5.0);
    assert_eq!(diff.exit_code(), ExitCode::Regression);
    assert_eq!(
        diff.conditions,
        [("rocm.version".into(), "7.2.4".into(), "7.3.0".into())]
    );
    let decode = |d: &ReportDiff| {
        d.legs[0]
            .metrics
            .iter()
            .find(|(m, _)| m.metric == "decode_tok_s")
            .unwrap()
            .1
    };
    assert_eq!(decode(&diff), Change::Worse);
    let back = compare_reports(&slower, &pass(), 5.0);
    assert_eq!(
        (decode(&back), back.exit_code()),
        (Change::Better, ExitCode::Pass)
    );
    assert_eq!(
        compare_reports(&pass(), &slower, 30.0).exit_code(),
        ExitCode::Pass
    );
}

#[test]
fn new_faults_and_other_tokens_are_regressions() {
    let mut faulty = pass();
    faulty.legs[0].attempts[1].verdict.class = Class::Kernel;
    let diff = compare_reports(&pass(), &faulty, 5.0);
    assert!(diff.legs[0].verdict.as_ref().unwrap().worse && diff.regressed());
    let diff = compare_reports(&faulty, &pass(), 5.0);
    assert!(!diff.legs[0].verdict.as_ref().unwrap().worse && !diff.regressed());
    let mut other = pass();
    for a in &mut other.legs[0].attempts {
        a.token_ids = Some(vec![1]);
    }
    assert!(compare_reports(&pass(), &other, 5.0).regressed());
    let mut renamed = pass();
    renamed.legs[0].name = "new".into();
    let diff = compare_reports(&pass(), &renamed, 5.0);
    assert_eq!(
        (diff.gone, diff.added),
        (vec!["default".to_owned()], vec!["new".to_owned()])
    );
}
