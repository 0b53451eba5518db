//! Every expectation: held, not held, not observed.

use super::*;
use crate::examples::{clean_attempt, engine_leg, exit};
use crate::model::*;

fn leg(name: &str, attempts: Vec<Attempt>) -> Leg {
    Leg {
        attempts,
        ..engine_leg(name, name == "a", &[])
    }
}

fn admissible(mut a: Attempt) -> Attempt {
    a.speed = Speed {
        admissible: true,
        void_reason: None,
    };
    a
}

/// The one result of a gate with one expectation over leg `a`.
fn one(expect: Expect, attempts: Vec<Attempt>) -> GateResult {
    let gate = Gate {
        leg: Some("a".into()),
        expect,
        ..Gate::default()
    };
    let mut results = evaluate(&gate, &[leg("a", attempts)]);
    assert_eq!(results.len(), 1);
    results.remove(0)
}

fn status(expect: &Expect, change: impl FnOnce(&mut Attempt)) -> (GateStatus, String) {
    let mut a = admissible(clean_attempt(1, 1, 8.0));
    change(&mut a);
    let r = one(expect.clone(), vec![a]);
    (r.status, r.observed)
}

use GateStatus::{Fail, NotMeasurable, Pass};

fn set<T>(value: T, put: impl FnOnce(&mut Expect, Option<T>)) -> Expect {
    let mut e = Expect::default();
    put(&mut e, Some(value));
    e
}

#[test]
fn exit_codes() {
    let zero = Expect {
        exit: exit(0),
        ..Expect::default()
    };
    assert_eq!(status(&zero, |_| {}), (Pass, "0".into()));
    assert_eq!(status(&zero, |a| a.exit.code = Some(3)), (Fail, "3".into()));
    let killed = |a: &mut Attempt| {
        a.exit.code = None;
        a.exit.signal = Some(11);
        a.exit.core_dumped = true;
    };
    assert_eq!(status(&zero, killed), (Fail, "SIGSEGV, core".into()));
    assert_eq!(
        status(&zero, |a| a.exit.code = None),
        (NotMeasurable, "status lost".into())
    );
    let pipe = |a: &mut Attempt| {
        a.descendants.push(Descendant {
            pid: 77,
            ppid: Some(70),
            comm: Some("crash".into()),
            end: Some(ProcessEnd {
                code: None,
                signal: Some(11),
                core_dumped: true,
            }),
            ended_s: None,
        });
    };
    assert_eq!(
        status(&zero, pipe),
        (Fail, "0, but crash (pid 77): SIGSEGV".into())
    );
    let list = set(OneOrMany::Many(vec![1, 3]), |e, v| e.exit = v);
    assert_eq!(status(&list, |a| a.exit.code = Some(3)).0, Pass);
    assert_eq!(status(&list, |_| {}).0, Fail);
    let late = |a: &mut Attempt| a.exit.timed_out = Some(TimedOut::Total);
    assert_eq!(status(&zero, late), (Fail, "timeout (total)".into()));
    assert_eq!(status(&set(true, |e, v| e.timed_out = v), late).0, Pass);
}

#[test]
fn signals_by_name_and_number_of_the_leader_or_below() {
    let segv = set(OneOrMany::One(SignalSpec::Name("segv".into())), |e, v| {
        e.signal = v
    });
    let six = set(OneOrMany::One(SignalSpec::Number(6)), |e, v| e.signal = v);
    let by = |n: i32| move |a: &mut Attempt| (a.exit.code, a.exit.signal) = (None, Some(n));
    assert_eq!(status(&segv, by(11)).0, Pass);
    assert_eq!(status(&segv, by(6)).0, Fail);
    assert_eq!(status(&six, by(6)).0, Pass);
    assert_eq!(status(&six, |_| {}), (Fail, "exit 0".into()));
    assert_eq!(status(&six, |a| a.exit.code = None).0, NotMeasurable);
    let below = |a: &mut Attempt| {
        a.descendants.push(Descendant {
            pid: 7,
            ppid: None,
            comm: None,
            end: Some(ProcessEnd {
                signal: Some(6),
                ..ProcessEnd::default()
            }),
            ended_s: None,
        });
    };
    assert_eq!(
        status(&six, below),
        (Pass, "SIGABRT below the leader".into())
    );
}

#[test]
fn text() {
    let starts = set(" Paris".to_owned(), |e, v| e.text_starts_with = v);
    let contains = set("which".to_owned(), |e, v| e.text_contains = v);
    let equals = set(" Paris".to_owned(), |e, v| e.text_equals = v);
    assert_eq!(status(&starts, |_| {}).0, Pass);
    assert_eq!(status(&contains, |_| {}).0, Pass);
    assert_eq!(status(&equals, |_| {}).0, Fail);
    assert_eq!(status(&equals, |a| a.text = Some(" Paris".into())).0, Pass);
    assert_eq!(
        status(&starts, |a| a.text = Some("Paris".into())),
        (Fail, "\"Paris\"".into())
    );
    assert_eq!(
        status(&starts, |a| a.text = None),
        (NotMeasurable, "no text".into())
    );
    let nothing = |a: &mut Attempt| (a.text, a.output_bytes) = (None, Some(0));
    assert_eq!(
        status(&starts, nothing),
        (NotMeasurable, "no text: CAPTURE_FAILED".into())
    );
}

#[test]
fn token_ids_and_counts() {
    let ids = set(vec![1, 2, 3], |e, v| e.token_ids = v);
    assert_eq!(status(&ids, |a| a.token_ids = Some(vec![1, 2, 3])).0, Pass);
    assert_eq!(
        status(&ids, |a| a.token_ids = Some(vec![1, 9])),
        (Fail, "[1, 9], first difference at index 1".into())
    );
    assert_eq!(status(&ids, |a| a.token_ids = None).0, NotMeasurable);
    let least = set(8, |e, v| e.min_completion_tokens = v);
    assert_eq!(status(&least, |_| {}).0, Pass);
    assert_eq!(
        status(&least, |a| a.metrics.completion_tokens = Some(7)).0,
        Fail
    );
    let listed = |a: &mut Attempt| a.metrics.completion_tokens = None;
    assert_eq!(status(&least, listed), (Pass, "8".into()));
    let neither = |a: &mut Attempt| (a.metrics.completion_tokens, a.token_ids) = (None, None);
    assert_eq!(status(&least, neither).0, NotMeasurable);
}

#[test]
fn zero_reference_tier_hits_need_provider_lines() {
    let zero = set(0, |e, v| e.reference_tier_hits = v);
    assert_eq!(status(&zero, |_| {}).0, Pass);
    for lines in [None, Some(0)] {
        assert_eq!(status(&zero, |a| a.provider_lines = lines).0, NotMeasurable);
    }
    assert_eq!(
        status(&zero, |a| a.reference_tier_hits = None),
        (NotMeasurable, "not printed".into())
    );
    let some = |a: &mut Attempt| (a.reference_tier_hits, a.provider_lines) = (Some(3), None);
    assert_eq!(status(&zero, some).0, Fail);
    assert_eq!(
        status(&set(3, |e, v| e.reference_tier_hits = v), some).0,
        Pass
    );
}

#[test]
fn verdicts_leaks_and_stamps() {
    let clean = set(OneOrMany::One(Class::Clean), |e, v| e.verdict = v);
    let become_ = |class| move |a: &mut Attempt| a.verdict.class = class;
    assert_eq!(status(&clean, |_| {}).0, Pass);
    assert_eq!(status(&clean, become_(Class::Kernel)).0, Fail);
    assert_eq!(
        status(&clean, become_(Class::Inconclusive)).0,
        NotMeasurable
    );
    let either = set(
        OneOrMany::Many(vec![Class::Kernel, Class::Inconclusive]),
        |e, v| e.verdict = v,
    );
    assert_eq!(status(&either, become_(Class::Inconclusive)).0, Pass);
    let leaks = set(true, |e, v| e.no_leaks = v);
    assert_eq!(status(&leaks, |_| {}).0, Pass);
    let leak = |a: &mut Attempt| {
        a.leaks.push(Leak {
            pid: 9,
            comm: "sleep".into(),
            age_s: Some(61.0),
        });
    };
    assert_eq!(status(&leaks, leak), (Fail, "sleep (pid 9, 61.0 s)".into()));
    let stamps = set(Stamps::Ok, |e, v| e.stamps = v);
    assert_eq!(status(&stamps, |_| {}).0, Pass);
    assert_eq!(
        status(&stamps, |a| a.stamps = Some(Stamps::Suspect)).0,
        Fail
    );
    assert_eq!(status(&stamps, |a| a.stamps = None).0, NotMeasurable);
}

fn bound(min: Option<f64>, max: Option<f64>, of: Of) -> Bound {
    Bound { min, max, of }
}

#[test]
fn bounds_of_each_attempt() {
    let fast = set(bound(Some(5.0), None, Of::Each), |e, v| e.decode_tok_s = v);
    assert_eq!(status(&fast, |_| {}), (Pass, "8.000 tok/s".into()));
    assert_eq!(
        status(&fast, |a| a.metrics.decode_tok_s = Some(4.9)).0,
        Fail
    );
    assert_eq!(
        status(&fast, |a| a.metrics.decode_tok_s = None),
        (NotMeasurable, "not measured".into())
    );
    // A figure that is not admissible is none to judge by.
    let void = |a: &mut Attempt| {
        a.speed = Speed {
            admissible: false,
            void_reason: Some("diagnostic".into()),
        };
    };
    assert_eq!(
        status(&fast, void),
        (NotMeasurable, "VOID(diagnostic)".into())
    );
    let small = set(bound(None, Some(0.1), Of::Each), |e, v| e.peak_rss_gib = v);
    assert_eq!(status(&small, void).0, Pass);
    let mut other = Expect::default();
    other
        .metrics
        .insert("power_w".into(), bound(None, Some(60.0), Of::Each));
    let power = |w: f64| {
        move |a: &mut Attempt| {
            a.metrics.other.insert("power_w".into(), w);
        }
    };
    assert_eq!(status(&other, power(59.0)).0, Pass);
    assert_eq!(status(&other, power(61.0)), (Fail, "61.00 W".into()));
    assert_eq!(status(&other, |_| {}).0, NotMeasurable);
}

#[test]
fn bounds_of_the_median_need_every_counted_attempt() {
    let median = set(bound(Some(5.0), None, Of::Median), |e, v| {
        e.decode_tok_s = v
    });
    let rates = |r: [f64; 3]| {
        let all = r.iter().enumerate();
        all.map(|(i, v)| admissible(clean_attempt(i as u32 + 1, 1, *v)))
            .collect::<Vec<_>>()
    };
    assert_eq!(one(median.clone(), rates([4.0, 6.0, 7.0])).status, Pass);
    assert_eq!(one(median.clone(), rates([4.0, 4.5, 7.0])).status, Fail);
    let mut missing = rates([4.0, 6.0, 7.0]);
    missing[1].metrics.decode_tok_s = None;
    let r = one(median, missing);
    assert_eq!(
        (r.status, r.observed.as_str()),
        (NotMeasurable, "not measured (#2)")
    );
}

fn same(what: Same, legs: Vec<Leg>) -> Judged {
    let gate = Gate {
        expect: set(what, |e, v| e.same = v),
        ..Gate::default()
    };
    judge(&gate, &legs).remove(0)
}

#[test]
fn same_shows_where_the_first_difference_lies() {
    let (a, mut b) = (clean_attempt(1, 1, 8.0), clean_attempt(2, 1, 8.0));
    let equal = same(
        Same::TokenIds,
        vec![leg("a", vec![a.clone()]), leg("b", vec![b.clone()])],
    );
    assert_eq!(equal.result.status, Pass);
    assert!(equal.result.token);
    b.token_ids.as_mut().unwrap()[3] = 7;
    let j = same(
        Same::TokenIds,
        vec![leg("a", vec![a.clone()]), leg("b", vec![b.clone()])],
    );
    assert_eq!(j.result.status, Fail);
    assert_eq!(
        j.result.observed,
        "a: equal · b: differs at index 3: 7 instead of 318"
    );
    assert_eq!((j.by_leg["a"], j.by_leg["b"]), (Pass, Fail));
    b.token_ids.as_mut().unwrap().truncate(2);
    let j = same(
        Same::TokenIds,
        vec![leg("a", vec![a.clone()]), leg("b", vec![b.clone()])],
    );
    assert_eq!(
        j.result.observed,
        "a: equal · b: differs at index 2: the end instead of 902"
    );
    b.text = Some(" Paros".into());
    let j = same(Same::Text, vec![leg("a", vec![a]), leg("b", vec![b])]);
    assert!(
        j.result
            .observed
            .contains("differs at character 4: \"os\" instead of"),
        "{}",
        j.result.observed
    );
}

#[test]
fn same_without_a_second_sequence_has_compared_nothing() {
    let (a, mut b) = (clean_attempt(1, 1, 8.0), clean_attempt(2, 1, 8.0));
    b.token_ids = None;
    let j = same(
        Same::TokenIds,
        vec![leg("a", vec![a.clone()]), leg("b", vec![b.clone()])],
    );
    assert_eq!(j.result.status, NotMeasurable);
    assert_eq!(j.by_leg["a"], NotMeasurable);
    // With two in one leg the other's silence leaves that leg's own equality standing.
    let two = vec![a.clone(), clean_attempt(3, 2, 8.0)];
    let j = same(Same::TokenIds, vec![leg("a", two), leg("b", vec![b])]);
    assert_eq!((j.by_leg["a"], j.by_leg["b"]), (Pass, NotMeasurable));
    assert_eq!(j.result.status, NotMeasurable);
}

#[test]
fn warm_ups_are_not_looked_at_and_no_attempt_is_no_pass() {
    let zero = Expect {
        exit: exit(0),
        ..Expect::default()
    };
    let mut warm = clean_attempt(1, 1, 8.0);
    warm.warmup = true;
    warm.exit.code = Some(9);
    let good = clean_attempt(2, 1, 8.0);
    assert_eq!(one(zero.clone(), vec![warm.clone(), good]).status, Pass);
    let r = one(zero.clone(), vec![warm]);
    assert_eq!(
        (r.status, r.observed.as_str()),
        (NotMeasurable, "no counted attempt")
    );
    let gate = Gate {
        leg: Some("z".into()),
        expect: zero,
        ..Gate::default()
    };
    let r = &evaluate(&gate, &[leg("a", vec![])])[0];
    assert_eq!(
        (r.status, r.observed.as_str()),
        (NotMeasurable, "not in this run")
    );
}

#[test]
fn a_failure_is_certain_whatever_else_is_missing() {
    use judge::combine;
    assert_eq!(combine([Pass, NotMeasurable, Fail]), Fail);
    assert_eq!(combine([Pass, NotMeasurable]), NotMeasurable);
    assert_eq!(combine([Pass, Pass]), Pass);
    assert_eq!(combine([]), NotMeasurable);
}

#[test]
fn how_an_undecided_attempt_ended_is_undecided() {
    let zero = Expect {
        exit: exit(0),
        ..Expect::default()
    };
    let mut open = clean_attempt(1, 1, 8.0);
    open.verdict.class = Class::Inconclusive;
    open.exit.code = Some(1);
    let r = one(zero.clone(), vec![open.clone()]);
    assert_eq!((r.status, r.undecided), (Fail, true));
    let mut failed = clean_attempt(2, 1, 8.0);
    failed.exit.code = Some(1);
    let r = one(zero, vec![open.clone(), failed]);
    assert_eq!((r.status, r.undecided), (Fail, false));
    // Wrong text is wrong whatever the attempt's verdict.
    let r = one(set("x".to_owned(), |e, v| e.text_equals = v), vec![open]);
    assert_eq!((r.status, r.undecided), (Fail, false));
}

#[test]
fn observations_are_grouped_by_what_was_seen() {
    let zero = Expect {
        exit: exit(0),
        ..Expect::default()
    };
    let mut bad = clean_attempt(2, 2, 8.0);
    bad.exit.code = Some(3);
    let all = vec![clean_attempt(1, 1, 8.0), bad, clean_attempt(3, 3, 8.0)];
    assert_eq!(one(zero, all).observed, "0 (#1 #3), 3 (#2)");
}

#[test]
fn mistakes_are_named() {
    let all = ["a", "b"];
    let wrong = |gate: &Gate| -> Vec<GateError> { gate.check(&all) };
    let gate: Gate = serde_json::from_str(r#"{"leg": "c", "legs": [], "expect": {}}"#).unwrap();
    assert_eq!(
        wrong(&gate),
        [
            GateError::LegAndLegs,
            GateError::NoLegs,
            GateError::UnknownLeg("c".into()),
            GateError::ExpectsNothing
        ]
    );
    let gate: Gate = serde_json::from_str(
        r#"{"expect": {"exit": [], "signal": ["SIGFOO", 65], "verdict": [], "no_leaks": false,
            "wall_s": {}, "decode_tok_s": {"min": 3, "max": 2}}}"#,
    )
    .unwrap();
    assert_eq!(
        wrong(&gate),
        [
            GateError::EmptyList("exit"),
            GateError::EmptyList("verdict"),
            GateError::ExitAndSignal,
            GateError::UnknownSignal("SIGFOO".into()),
            GateError::UnknownSignal("65".into()),
            GateError::NoLeaksFalse,
            GateError::EmptyBound("wall_s".into()),
            GateError::CrossedBound("decode_tok_s".into(), "3".into(), "2".into()),
        ]
    );
}

#[test]
fn unknown_keys_are_refused() {
    for json in [
        r#"{"leg": "a", "expekt": {}}"#,
        r#"{"leg": "a", "expect": {"exit_code": 0}}"#,
        r#"{"leg": "a", "expect": {"decode_tok_s": {"minimum": 1}}}"#,
        r#"{"leg": "a", "expect": {"same": "tokens"}}"#,
    ] {
        assert!(serde_json::from_str::<Gate>(json).is_err(), "{json}");
    }
}

#[test]
fn gates_read_as_the_leg_file_writes_them() {
    let gate: Gate = serde_json::from_str(
        r#"{"legs": ["a", "b"], "expect": {"exit": 0, "same": "token_ids", "verdict": "clean",
            "decode_tok_s": {"min": 5, "of": "median"}}}"#,
    )
    .unwrap();
    assert_eq!(gate.check(&["a", "b"]), []);
    assert_eq!(
        gate.describe(),
        [
            "a, b: exit = 0",
            "a, b: same token ids",
            "a, b: verdict = clean",
            "a, b: median decode_tok_s ≥ 5.000 tok/s",
        ]
    );
    let back: Gate = serde_json::from_str(&serde_json::to_string(&gate).unwrap()).unwrap();
    assert_eq!(back, gate);
}
