//! The table, held against an oracle written the other way round, over every combination.

use super::*;

const CLASSES: [Class; 6] = [
    Class::Clean,
    Class::Kernel,
    Class::Board,
    Class::Host,
    Class::Infra,
    Class::Inconclusive,
];
const CONFIDENCES: [Confidence; 3] = [Confidence::Low, Confidence::Medium, Confidence::High];

/// Collects everything that speaks for a code and takes the one that the table names first.
fn oracle(i: &Inputs) -> (RunVerdict, u8) {
    let mut codes: Vec<(u32, u8)> = Vec::new();
    for (class, confidence) in &i.attempts {
        let low = if *confidence == Confidence::Low {
            10
        } else {
            0
        };
        match class {
            Class::Kernel => codes.push((low + 1, 11)),
            Class::Board => codes.push((low + 2, 12)),
            Class::Host => codes.push((low + 3, 13)),
            Class::Infra => codes.push((low + 4, 14)),
            Class::Inconclusive => codes.push((50, 4)),
            Class::Clean => {}
        }
    }
    for gate in &i.gates {
        match gate {
            GateStatus::Fail => codes.push((30, 10)),
            GateStatus::NotMeasurable => codes.push((50, 4)),
            GateStatus::Pass => {}
        }
    }
    if i.ended_badly {
        codes.push((30, 10));
    }
    if i.regressed {
        codes.push((40, 20));
    }
    if i.owed || i.warmup_faulted {
        codes.push((50, 4));
    }
    codes.sort_unstable();
    let first = codes.first().map_or(0, |(_, code)| *code);
    let failed = ![0, 4].contains(&first);
    let word = match first {
        0 => RunVerdict::Pass,
        4 => RunVerdict::Inconclusive,
        _ => RunVerdict::Fail,
    };
    if i.interrupted {
        let word = if failed {
            RunVerdict::Fail
        } else {
            RunVerdict::Inconclusive
        };
        (word, 30)
    } else if i.counted == 0 {
        (RunVerdict::Inconclusive, 3)
    } else {
        (word, first)
    }
}

#[test]
fn every_combination_is_as_the_table_says() {
    let mut attempts = Vec::new();
    for class in CLASSES {
        for confidence in CONFIDENCES {
            attempts.push((class, confidence));
        }
    }
    let gates: [&[GateStatus]; 6] = [
        &[],
        &[GateStatus::Pass],
        &[GateStatus::Fail],
        &[GateStatus::NotMeasurable],
        &[GateStatus::NotMeasurable, GateStatus::Fail],
        &[GateStatus::Pass, GateStatus::NotMeasurable],
    ];
    let mut seen = std::collections::BTreeSet::new();
    let mut cases = 0;
    for a in &attempts {
        for b in &attempts {
            for gates in gates {
                for flags in 0..32u32 {
                    let flag = |bit: u32| flags & (1 << bit) != 0;
                    let inputs = Inputs {
                        attempts: vec![*a, *b],
                        counted: 2,
                        ended_badly: flag(0),
                        gates: gates.to_vec(),
                        regressed: flag(1),
                        owed: flag(2),
                        warmup_faulted: flag(3),
                        interrupted: flag(4),
                    };
                    let (verdict, code) = judge(&inputs);
                    assert_eq!((verdict, code.code()), oracle(&inputs), "{inputs:?}");
                    seen.insert(code.code());
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 18 * 18 * 6 * 32);
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [0, 4, 10, 11, 12, 13, 14, 20, 30]
    );
}

#[test]
fn nothing_run_is_nothing_selected_unless_stopped() {
    let mut inputs = Inputs::default();
    assert_eq!(judge(&inputs).1, ExitCode::NothingSelected);
    inputs.interrupted = true;
    assert_eq!(
        judge(&inputs),
        (RunVerdict::Inconclusive, ExitCode::Interrupted)
    );
}

#[test]
fn a_default_never_hides_what_was_seen() {
    let low_kernel = (Class::Kernel, Confidence::Low);
    assert_eq!(
        worst_class(&[low_kernel, (Class::Infra, Confidence::Medium)]),
        Some(Class::Infra)
    );
    assert_eq!(
        worst_class(&[low_kernel, (Class::Board, Confidence::Low)]),
        Some(Class::Kernel)
    );
    assert_eq!(
        worst_class(&[(Class::Inconclusive, Confidence::High)]),
        None
    );
}

mod of_reports {
    use super::super::*;
    use crate::examples::{clean_attempt, engine_leg, exit};
    use crate::gates::{Expect, Gate, OneOrMany};
    use crate::model::{Leg, RunInfo};
    use crate::{Plan, conclude};

    fn report(change: impl FnOnce(&mut Attempt)) -> Report {
        let mut a = clean_attempt(1, 1, 8.0);
        change(&mut a);
        let mut report = Report::new(RunInfo::new("r", "s", crate::examples::at(0), 1));
        report.legs = vec![Leg {
            attempts: vec![a],
            designed: 1,
            ..engine_leg("default", true, &[])
        }];
        report
    }

    fn concluded(mut report: Report, expect: Option<Expect>) -> (RunVerdict, u8) {
        let gate = |expect| Gate {
            expect,
            ..Gate::default()
        };
        let plan = Plan {
            gates: expect.map(gate).into_iter().collect(),
            ..Plan::default()
        };
        conclude(&mut report, &plan);
        (report.verdict, report.exit_code)
    }

    #[test]
    fn a_failure_that_a_gate_asks_for_is_none() {
        let fault = |a: &mut Attempt| {
            a.verdict = crate::model::Verdict::new(Class::Kernel, "x", Confidence::High, "x");
            a.exit.code = Some(3);
        };
        assert_eq!(concluded(report(fault), None), (RunVerdict::Fail, 11));
        let asks = Expect {
            verdict: Some(OneOrMany::One(Class::Kernel)),
            ..Expect::default()
        };
        assert_eq!(
            concluded(report(fault), Some(asks.clone())),
            (RunVerdict::Pass, 0)
        );
        let three = Expect {
            exit: exit(3),
            ..Expect::default()
        };
        assert_eq!(
            concluded(report(fault), Some(three.clone())),
            (RunVerdict::Pass, 0)
        );
        // The gate that asks for a failure fails where there is none.
        assert_eq!(
            concluded(report(|_| {}), Some(asks)),
            (RunVerdict::Fail, 10)
        );
        assert_eq!(
            concluded(report(|_| {}), Some(three)),
            (RunVerdict::Fail, 10)
        );
    }

    #[test]
    fn a_clean_class_does_not_hide_a_bad_end() {
        assert_eq!(
            concluded(report(|a| a.exit.code = Some(1)), None),
            (RunVerdict::Fail, 10)
        );
        assert_eq!(concluded(report(|_| {}), None), (RunVerdict::Pass, 0));
    }

    #[test]
    fn an_undecided_attempt_makes_its_exit_gate_undecided() {
        let open = |a: &mut Attempt| {
            a.verdict.class = Class::Inconclusive;
            a.exit.code = Some(1);
        };
        let zero = Expect {
            exit: exit(0),
            ..Expect::default()
        };
        assert_eq!(
            concluded(report(open), Some(zero)),
            (RunVerdict::Inconclusive, 4)
        );
    }

    #[test]
    fn a_warm_up_that_faulted_is_not_forgotten() {
        let mut r = report(|_| {});
        let mut warm = clean_attempt(2, 1, 8.0);
        warm.warmup = true;
        warm.verdict.class = Class::Kernel;
        r.legs[0].attempts.push(warm);
        assert_eq!(concluded(r, None), (RunVerdict::Inconclusive, 4));
    }

    #[test]
    fn missing_attempts_are_owed() {
        let mut r = report(|_| {});
        r.legs[0].designed = 3;
        assert_eq!(concluded(r, None), (RunVerdict::Inconclusive, 4));
    }

    #[test]
    fn concluding_twice_is_concluding_once() {
        let mut once = crate::examples::kernel_fault();
        let plan = Plan {
            gates: crate::examples::gates(&["managed"]),
            compare: vec![
                crate::compare::Pair::new("default", "managed"),
                crate::compare::Pair::new("default", "serialised"),
            ],
            ..Plan::default()
        };
        let before = once.clone();
        conclude(&mut once, &plan);
        assert_eq!(once, before);
    }
}
