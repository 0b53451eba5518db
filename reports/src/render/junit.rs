//! JUnit XML, for CI systems: one test case per attempt and per gate.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report as Junit, TestCase, TestCaseStatus, TestSuite};

use super::build::{answer, chain};
use super::terminal::chain_alone;
use super::{Options, RenderError};
use crate::format::{clean, exit_words};
use crate::model::{Attempt, Class, GateStatus, Leg, Report};

/// The report as JUnit XML. An attempt that faulted is a failure whose text is the chain of evidence; one that the
/// evidence does not decide, or that the surroundings spoilt, is an error; warm-ups and gates that cannot be measured are
/// skipped. Attempts that a gate asks to fail are successes.
pub(super) fn junit(report: &Report) -> Result<String, RenderError> {
    let run = &report.run;
    let mut junit = Junit::new(clean(&run.id));
    junit.set_timestamp(run.started);
    if let Some(took) = run
        .finished
        .and_then(|end| (end - run.started).to_std().ok())
    {
        junit.set_time(took);
    }
    for leg in &report.legs {
        let mut suite = TestSuite::new(format!("{}/{}", clean(&run.leg_set), clean(&leg.name)));
        let excused = report
            .gates
            .iter()
            .any(|g| g.excuses && g.status == GateStatus::Pass && g.legs.contains(&leg.name));
        for (name, value) in &leg.env {
            suite.add_property(Property::new(clean(name), clean(value)));
        }
        for attempt in &leg.attempts {
            suite.add_test_case(attempt_case(leg, attempt, excused));
        }
        junit.add_test_suite(suite);
    }
    let mut gates = TestSuite::new(format!("{}/gates", clean(&run.leg_set)));
    gates.add_property(Property::new("answer", answer(report)));
    for g in &report.gates {
        let status = match g.status {
            GateStatus::Pass => TestCaseStatus::success(),
            GateStatus::Fail => {
                let mut s = TestCaseStatus::non_success(NonSuccessKind::Failure);
                s.set_type("gate").set_message(format!(
                    "expected {}, seen {}",
                    clean(&g.expected),
                    clean(&g.observed)
                ));
                s
            }
            GateStatus::NotMeasurable => {
                let mut s = TestCaseStatus::skipped();
                s.set_message(format!("not measurable: {}", clean(&g.observed)));
                s
            }
        };
        let mut case = TestCase::new(clean(&g.name), status);
        case.set_classname("gates");
        gates.add_test_case(case);
    }
    if !report.gates.is_empty() {
        junit.add_test_suite(gates);
    }
    junit
        .to_string()
        .map_err(|e| RenderError::Junit(e.to_string()))
}

fn attempt_case(leg: &Leg, a: &Attempt, excused: bool) -> TestCase {
    let v = &a.verdict;
    let message = format!(
        "{}: {} ({} confidence): {}",
        v.class,
        clean(&v.kind),
        v.confidence,
        clean(&v.title)
    );
    let status = if a.warmup {
        let mut s = TestCaseStatus::skipped();
        s.set_message(format!("warm-up, discarded; it was {}", v.class));
        s
    } else if v.class == Class::Clean || excused {
        TestCaseStatus::success()
    } else {
        let kind = match v.class {
            Class::Infra | Class::Inconclusive => NonSuccessKind::Error,
            _ => NonSuccessKind::Failure,
        };
        let mut s = TestCaseStatus::non_success(kind);
        let evidence = chain_alone(&chain(v, ""), &Options::default());
        s.set_type(format!("{}/{}", v.class, clean(&v.kind)))
            .set_message(message)
            .set_description(evidence);
        s
    };
    let mut case = TestCase::new(format!("attempt {} round {}", a.n, a.round), status);
    case.set_classname(clean(&leg.name));
    case.set_timestamp(a.started);
    if let Ok(wall) = Duration::try_from_secs_f64(a.wall_s) {
        case.set_time(wall);
    }
    case.add_property(Property::new("exit", exit_words(&a.exit)));
    if let Some(reason) = &a.speed.void_reason {
        case.add_property(Property::new("speed", format!("VOID({})", clean(reason))));
    }
    case
}
