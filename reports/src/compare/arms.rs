//! Two legs of one run compared.

use crate::metrics::{Metric, describe, is_suspect, names, value};
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
            .filter(|n| in_arm(a, n) && in_arm(b, n) && is_compared(n))
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

/// Counts of tokens and sizes that follow from the model are facts, compared only when asked for.
fn is_compared(name: &str) -> bool {
    !matches!(
        name,
        "prompt_tokens" | "completion_tokens" | "weights_gib" | "load_header_s"
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

/// Why a leg has no sample: the first attempt's reason, or that it was not measured.
fn why_no_sample(leg: &Leg, metric: &Metric) -> String {
    let Some(first) = leg.counted().next() else {
        return format!("{}: no counted attempt", leg.name);
    };
    let measured = leg.counted().find(|a| value(a, &metric.name).is_some());
    match measured {
        None if first.verdict.class == Class::Clean => format!("{}: not measured", leg.name),
        _ if metric.speed => {
            let at = measured.unwrap_or(first);
            let reason = at.speed.void_reason.as_deref().unwrap_or("not measured");
            format!("{}: {reason}", leg.name)
        }
        _ if first.verdict.class != Class::Clean => {
            let v = &first.verdict;
            format!("{}: {}: {}", leg.name, v.class, v.kind)
        }
        _ => format!("{}: not measured", leg.name),
    }
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
