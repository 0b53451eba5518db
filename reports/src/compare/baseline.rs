//! A report held against an earlier one.

use std::collections::BTreeMap;

use crate::metrics::{Better, describe, is_suspect, names, value};
use crate::model::{Class, ComparedMetric, ExitCode, Leg, Report};

use super::metric::compare_metric;
use super::variables::{Variable, variables};

/// How a metric changed from the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Better by more than the tolerance, and not by chance.
    Better,
    /// Within the tolerance, or a change that chance explains.
    Same,
    /// Worse by more than the tolerance, and not by chance: a regression.
    Worse,
    /// Beyond the tolerance, with too few samples to tell.
    Unproven,
    /// No admissible figure on one side.
    Void,
}

/// A leg whose usual outcome is another one than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictChange {
    /// Classes and kinds of the counted attempts in the baseline, each once.
    pub before: Vec<String>,
    /// The same now.
    pub now: Vec<String>,
    /// Faulted before and does not now, or the reverse.
    pub worse: bool,
}

/// One leg in both reports.
#[derive(Debug, Clone, PartialEq)]
pub struct LegDiff {
    /// Its name.
    pub name: String,
    /// What it is configured with that it was not before.
    pub variables: Vec<Variable>,
    /// A changed outcome; `None` when it is the same.
    pub verdict: Option<VerdictChange>,
    /// Whether it generates the same tokens; `None` when not observed.
    pub same_tokens: Option<bool>,
    /// The metrics, the baseline as a.
    pub metrics: Vec<(ComparedMetric, Change)>,
}

/// Two reports compared.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportDiff {
    /// Run id of the baseline.
    pub base: String,
    /// Run id of the current report.
    pub current: String,
    /// Tolerance in percent.
    pub tolerance_pct: f64,
    /// Identity facts that differ: name, before, now.
    pub conditions: Vec<(String, String, String)>,
    /// Legs in both.
    pub legs: Vec<LegDiff>,
    /// Legs only in the baseline.
    pub gone: Vec<String>,
    /// Legs only in the current report.
    pub added: Vec<String>,
}

impl ReportDiff {
    /// Whether anything got worse for certain: a metric, an outcome, or tokens that are not the same.
    #[must_use]
    pub fn regressed(&self) -> bool {
        self.legs.iter().any(|leg| {
            leg.verdict.as_ref().is_some_and(|v| v.worse)
                || leg.same_tokens == Some(false)
                || leg.metrics.iter().any(|(_, c)| *c == Change::Worse)
        })
    }

    /// `Regression`, `Inconclusive` when no figure could be compared or a loss is unproven, else `Pass`.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        if self.regressed() {
            return ExitCode::Regression;
        }
        let mut changes = self.legs.iter().flat_map(|l| &l.metrics).map(|(_, c)| *c);
        let compared = self
            .legs
            .iter()
            .flat_map(|l| &l.metrics)
            .any(|(_, c)| *c != Change::Void);
        if !compared || changes.any(|c| c == Change::Unproven) {
            ExitCode::Inconclusive
        } else {
            ExitCode::Pass
        }
    }
}

/// Compares a report with a baseline, leg by leg of the same name. A metric is worse when its median lost more than
/// `tolerance_pct` percent and the 95 % interval of the ratio lies wholly on the worse side.
#[must_use]
pub fn compare_reports(base: &Report, current: &Report, tolerance_pct: f64) -> ReportDiff {
    let only = |x: &Report, y: &Report| -> Vec<String> {
        let legs = x.legs.iter().filter(|l| y.leg(&l.name).is_none());
        legs.map(|l| l.name.clone()).collect()
    };
    ReportDiff {
        base: base.run.id.clone(),
        current: current.run.id.clone(),
        tolerance_pct,
        conditions: conditions(base, current),
        legs: current
            .legs
            .iter()
            .filter_map(|now| Some(leg_diff(base.leg(&now.name)?, now, tolerance_pct)))
            .collect(),
        gone: only(base, current),
        added: only(current, base),
    }
}

fn conditions(base: &Report, current: &Report) -> Vec<(String, String, String)> {
    let mut all: BTreeMap<&String, (String, String)> = BTreeMap::new();
    let words = |v: Option<&serde_json::Value>| match v {
        None | Some(serde_json::Value::Null) => crate::format::ABSENT.to_owned(),
        Some(serde_json::Value::String(s)) => s.clone(),
        Some(other) => other.to_string(),
    };
    for name in base.identity.keys().chain(current.identity.keys()) {
        // What differs between any two runs is no condition.
        if ["boot_id", "uptime_s", "time", "pid"]
            .iter()
            .any(|n| name.ends_with(n))
        {
            continue;
        }
        let (b, c) = (base.identity.get(name), current.identity.get(name));
        if b != c {
            all.insert(name, (words(b), words(c)));
        }
    }
    all.into_iter()
        .map(|(name, (b, c))| (name.clone(), b, c))
        .collect()
}

fn leg_diff(base: &Leg, now: &Leg, tolerance_pct: f64) -> LegDiff {
    let both: Vec<_> = base.counted().chain(now.counted()).collect();
    let metrics = names(both)
        .into_iter()
        .filter(|n| describe(n).better != Better::Neither && !super::arms::says_the_same(n))
        .map(|name| {
            let samples = |leg: &Leg| -> Vec<f64> {
                leg.counted()
                    .filter(|a| {
                        let usable = if describe(&name).speed {
                            a.speed.admissible
                        } else {
                            a.verdict.class == Class::Clean
                        };
                        usable && !is_suspect(a, &name)
                    })
                    .filter_map(|a| value(a, &name))
                    .collect()
            };
            let (a, b) = (samples(base), samples(now));
            let void = match (a.is_empty(), b.is_empty()) {
                (false, false) => None,
                (true, _) => Some("no admissible figure in the baseline".to_owned()),
                (false, true) => Some("no admissible figure in this run".to_owned()),
            };
            let compared = compare_metric(&name, a, b, void, Some(tolerance_pct));
            let change = change(&compared, describe(&name).better, tolerance_pct);
            (compared, change)
        })
        .collect();
    let first = |leg: &Leg| leg.counted().find_map(|a| a.token_ids.clone());
    LegDiff {
        name: now.name.clone(),
        variables: variables(base, now),
        verdict: verdict_change(base, now),
        same_tokens: first(base).zip(first(now)).map(|(a, b)| a == b),
        metrics,
    }
}

fn change(m: &ComparedMetric, better: Better, tolerance_pct: f64) -> Change {
    let Some(ratio) = m.ratio else {
        return Change::Void;
    };
    match m.regressed {
        Some(true) => return Change::Worse,
        None => return Change::Unproven,
        Some(false) => {}
    }
    let gained = match better {
        Better::Higher => 100.0 * (ratio - 1.0),
        _ => 100.0 * (1.0 - ratio),
    };
    let whole = m.ratio_ci95.is_some_and(|[low, high]| match better {
        Better::Higher => low > 1.0,
        _ => high < 1.0,
    });
    let enough = m.a.len() >= 3 && m.b.len() >= 3;
    if gained > tolerance_pct && whole && enough {
        Change::Better
    } else {
        Change::Same
    }
}

fn verdict_change(base: &Leg, now: &Leg) -> Option<VerdictChange> {
    let outcomes = |leg: &Leg| -> Vec<String> {
        let mut all: Vec<String> = leg
            .counted()
            .map(|a| match a.verdict.class {
                Class::Clean => "clean".to_owned(),
                class => format!("{class} ({})", a.verdict.kind),
            })
            .collect();
        all.sort();
        all.dedup();
        all
    };
    let faults = |leg: &Leg| {
        leg.counted()
            .any(|a| matches!(a.verdict.class, Class::Kernel | Class::Board | Class::Host))
    };
    let (before, after) = (outcomes(base), outcomes(now));
    (before != after).then(|| VerdictChange {
        before,
        now: after,
        worse: faults(now) && !faults(base),
    })
}
