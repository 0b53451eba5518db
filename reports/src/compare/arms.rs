//! Two legs of one run compared.

use crate::metrics::{Better, Metric, describe, is_suspect, names, value};
use crate::model::{Class, Comparison, Leg, Report};

use super::metric::compare_metric;
use super::{Pair, compare_faults, variables};

/// Compares two legs of a report whose attempts' speed has been judged; `None` when one of them is not there.
///
/// Samples of a figure of speed are the admissible attempts', of other figures those of clean counted attempts on one
/// boot. No ratio is printed across more than one variable.
#[must_use]
pub fn compare_arms(report: &Report, pair: &Pair) -> Option<Comparison> {
    let (a, b) = (report.leg(&pair.a)?, report.leg(&pair.b)?);
    let variables: Vec<String> = variables(a, b).into_iter().map(|v| v.name).collect();
    let confounded = variables.len() > 1;
    let (same_tokens, first_difference) = same_tokens(a, b);
    let wanted = pair.metrics.clone().unwrap_or_else(|| {
        let both: Vec<_> = a.counted().chain(b.counted()).collect();
        let in_arm = |leg: &Leg, name: &str| leg.counted().any(|at| value(at, name).is_some());
        names(both)
            .into_iter()
            .filter(|n| in_arm(a, n) && in_arm(b, n))
            .filter(|n| describe(n).better != Better::Neither && !says_the_same(n))
            .collect()
    });
    let boot = report.run.boot_id.as_deref();
    let metrics = wanted
        .iter()
        .map(|name| {
            let metric = describe(name);
            let (in_a, in_b) = (samples(a, &metric, boot), samples(b, &metric, boot));
            let missing = [(a, &in_a), (b, &in_b)]
                .into_iter()
                .find(|(_, samples)| samples.is_empty())
                .map(|(leg, _)| why_no_sample(leg, &metric));
            let void =
                missing.or_else(|| confounded.then(|| format!("CONFOUNDED({})", variables.len())));
            let loss = pair.max_loss_pct.get(name).copied();
            compare_metric(name, in_a, in_b, void, loss)
        })
        .collect();
    Some(Comparison {
        a: a.name.clone(),
        b: b.name.clone(),
        variables,
        confounded,
        same_tokens,
        first_difference,
        metrics,
        faults: Some(compare_faults(a, b)),
    })
}

/// Times that say what a rate says already, compared only when asked for.
pub(super) fn says_the_same(name: &str) -> bool {
    matches!(
        name,
        "prefill_s" | "decode_s" | "load_header_s" | "load_weights_s"
    )
}

/// The samples of a leg that may be used.
fn samples(leg: &Leg, metric: &Metric, boot: Option<&str>) -> Vec<f64> {
    leg.counted()
        .filter(|a| {
            let usable = if metric.speed {
                a.speed.admissible
            } else {
                let same_boot = match (boot, a.boot_id.as_deref()) {
                    (Some(run), Some(now)) => run == now,
                    _ => true,
                };
                a.verdict.class == Class::Clean && same_boot
            };
            usable && !is_suspect(a, &metric.name)
        })
        .filter_map(|a| value(a, &metric.name))
        .collect()
}

/// Why a leg has no sample: what voids its first attempt, or that it was not measured.
fn why_no_sample(leg: &Leg, metric: &Metric) -> String {
    let void = leg.counted().find_map(|a| {
        let v = &a.verdict;
        if metric.speed {
            a.speed.void_reason.clone()
        } else {
            (v.class != Class::Clean).then(|| format!("{}: {}", v.class, v.kind))
        }
    });
    let suspect = || {
        let any = leg.counted().any(|a| is_suspect(a, &metric.name));
        any.then(|| "stamps suspect".to_owned())
    };
    let reason = void.or_else(suspect);
    let none = if leg.counted().next().is_none() {
        "no counted attempt"
    } else {
        "not measured"
    };
    format!("{}: {}", leg.name, reason.as_deref().unwrap_or(none))
}

/// Whether both arms generated the same, in every attempt that generated anything, and the first index that differs
/// from the first sequence of a. Token ids where both have them, else text. `None` when an arm has neither.
fn same_tokens(a: &Leg, b: &Leg) -> (Option<bool>, Option<u64>) {
    let ids = |leg: &Leg| -> Vec<Vec<u32>> {
        leg.counted()
            .filter_map(|at| at.token_ids.clone())
            .collect()
    };
    let texts = |leg: &Leg| -> Vec<Vec<u32>> {
        leg.counted()
            .filter_map(|at| Some(at.text.as_ref()?.chars().map(u32::from).collect()))
            .collect()
    };
    let (mut in_a, mut in_b) = (ids(a), ids(b));
    if in_a.is_empty() || in_b.is_empty() {
        (in_a, in_b) = (texts(a), texts(b));
    }
    let Some(first) = in_a.first().cloned() else {
        return (None, None);
    };
    if in_b.is_empty() {
        return (None, None);
    }
    let difference = in_a
        .iter()
        .chain(&in_b)
        .filter(|s| **s != first)
        .map(|s| s.iter().zip(&first).take_while(|(x, y)| x == y).count() as u64)
        .min();
    (Some(difference.is_none()), difference)
}
