//! From observations to conclusions: everything in a report that is not observed is computed here, in one order.

use std::collections::BTreeMap;

use crate::admissible::{Binaries, LegFacts};
use crate::compare::{self, Pair};
use crate::gates::{self, Gate};
use crate::model::ExitCode;
use crate::model::{Class, GateStatus, Leg, Owed, Report, RunVerdict};
use crate::verdict;

/// What the leg file asks of the run's outcome.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Its gates.
    pub gates: Vec<Gate>,
    /// Its comparisons. Without any, every leg is compared with the control.
    pub compare: Vec<Pair>,
    /// What it says of the legs' programs.
    pub binaries: Binaries,
    /// Legs that are owed for reasons that only the caller knows: a leg that was not started, a probe still missing.
    pub owed: Vec<Owed>,
    /// A metric is worse than in a baseline report.
    pub regressed: bool,
}

/// Fills in `differs`, `faults` and `speed` of the legs, the gates, the comparisons, what is owed, the verdict and the
/// exit code. What was there before is replaced, so it may be called again.
///
/// The order matters: token gates come before speed, speed before bounds on speed and before comparisons.
pub fn conclude(report: &mut Report, plan: &Plan) {
    let pairs = pairs(report, plan);
    differ_from_control(report);
    for leg in &mut report.legs {
        leg.faults = Some(compare::fault_ratio(leg));
    }
    judge_speed(report, plan, &pairs);
    report.gates = plan
        .gates
        .iter()
        .flat_map(|g| gates::evaluate(g, &report.legs))
        .collect();
    report.comparisons = pairs
        .iter()
        .filter_map(|pair| compare::compare_arms(report, pair))
        .collect();
    report.owed = compare::owed(report);
    report.owed.extend(plan.owed.iter().cloned());
    let mut inputs = verdict::inputs(report);
    inputs.regressed |= plan.regressed;
    let (verdict, code): (RunVerdict, ExitCode) = verdict::judge(&inputs);
    report.verdict = verdict;
    report.exit_code = code.code();
}

/// The comparisons asked for; without any, the control against every other leg.
fn pairs(report: &Report, plan: &Plan) -> Vec<Pair> {
    if !plan.compare.is_empty() {
        return plan.compare.clone();
    }
    let Some(control) = report.legs.iter().find(|l| l.control) else {
        return Vec::new();
    };
    let others = report.legs.iter().filter(|l| !l.control);
    others.map(|l| Pair::new(&control.name, &l.name)).collect()
}

fn differ_from_control(report: &mut Report) {
    let Some(control) = report.legs.iter().find(|l| l.control).cloned() else {
        for leg in &mut report.legs {
            leg.differs.clear();
        }
        return;
    };
    for leg in &mut report.legs {
        let variables = compare::variables(&control, leg).into_iter();
        leg.differs = variables.map(|v| v.name).collect();
    }
}

fn judge_speed(report: &mut Report, plan: &Plan, pairs: &[Pair]) {
    let token_gates = token_gates(report, plan);
    let facts: Vec<LegFacts> = report
        .legs
        .iter()
        .map(|leg| {
            let control = report.legs.iter().find(|l| l.control);
            LegFacts {
                kind: leg.kind,
                diagnostic: leg.diagnostic,
                token_gate: token_gates.get(&leg.name).copied(),
                variables: least_variables(report, leg, pairs),
                boot_id: report.run.boot_id.clone(),
                binary: control.and_then(|c| plan.binaries.judge(c, leg)),
                quick: report.run.quick,
            }
        })
        .collect();
    for (leg, facts) in report.legs.iter_mut().zip(&facts) {
        for attempt in &mut leg.attempts {
            attempt.speed = facts.speed(attempt);
        }
    }
}

/// The outcome of each leg's token gates over its own clean attempts: a leg is not held guilty of another's missing
/// tokens, nor an attempt of another's fault. An attempt that is not clean is void by itself.
fn token_gates(report: &Report, plan: &Plan) -> BTreeMap<String, GateStatus> {
    let mut out: BTreeMap<String, GateStatus> = BTreeMap::new();
    let mut legs = report.legs.clone();
    for leg in &mut legs {
        leg.attempts.retain(|a| a.verdict.class == Class::Clean);
    }
    for gate in &plan.gates {
        for judged in gates::judge(gate, &legs) {
            if !judged.result.token {
                continue;
            }
            for (leg, status) in judged.by_leg {
                let so_far = out.entry(leg).or_insert(status);
                *so_far = worse(*so_far, status);
            }
        }
    }
    out
}

fn worse(a: GateStatus, b: GateStatus) -> GateStatus {
    use GateStatus::{Fail, NotMeasurable, Pass};
    match (a, b) {
        (Fail, _) | (_, Fail) => Fail,
        (NotMeasurable, _) | (_, NotMeasurable) => NotMeasurable,
        (Pass, Pass) => Pass,
    }
}

/// The least number of variables by which a leg differs from the control, or from any leg that it is compared with.
fn least_variables(report: &Report, leg: &Leg, pairs: &[Pair]) -> usize {
    if leg.control {
        return 0;
    }
    let control = report.legs.iter().find(|l| l.control);
    let partners = pairs.iter().filter_map(|p| {
        if p.b == leg.name {
            report.leg(&p.a)
        } else if p.a == leg.name {
            report.leg(&p.b)
        } else {
            None
        }
    });
    control
        .into_iter()
        .chain(partners)
        .filter(|other| other.name != leg.name)
        .map(|other| compare::variables(other, leg).len())
        .min()
        .unwrap_or(0)
}
