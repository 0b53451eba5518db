//! Legs still missing before a question is answered.

use std::collections::BTreeSet;

use crate::model::{Comparison, Leg, Owed, Report};

use super::variables::{Variable, variables};

/// What a run still owes: counted attempts that were designed and did not happen, and, for every comparison across more
/// than one variable, the leg that changes each of them alone.
#[must_use]
pub fn owed(report: &Report) -> Vec<Owed> {
    let mut out: Vec<Owed> = Vec::new();
    for leg in &report.legs {
        let ran = leg.counted().count() as u64;
        let missing = u64::from(leg.designed).saturating_sub(ran);
        if missing > 0 {
            out.push(Owed {
                leg: format!("{} × {missing}", leg.name),
                why: format!(
                    "{ran} of {} designed attempts of `{}` were run",
                    leg.designed, leg.name
                ),
            });
        }
    }
    for comparison in report.comparisons.iter().filter(|c| c.confounded) {
        let (Some(a), Some(b)) = (report.leg(&comparison.a), report.leg(&comparison.b)) else {
            continue;
        };
        out.extend(single_variable_legs(report, comparison, a, b));
    }
    let mut seen = BTreeSet::new();
    out.retain(|o| seen.insert(o.leg.clone()));
    out
}

fn single_variable_legs(report: &Report, c: &Comparison, a: &Leg, b: &Leg) -> Vec<Owed> {
    let all = variables(a, b);
    all.iter()
        .filter(|v| !exists(report, a, v))
        .map(|v| Owed {
            leg: leg_words(a, v),
            why: format!(
                "isolates {} between `{}` and `{}`, which differ in {} variables",
                v.name,
                c.a,
                c.b,
                all.len()
            ),
        })
        .collect()
}

/// Whether a leg of the run differs from `a` in that variable alone, set to the same value.
fn exists(report: &Report, a: &Leg, wanted: &Variable) -> bool {
    report.legs.iter().any(|leg| {
        let differs = variables(a, leg);
        differs.len() == 1 && differs[0] == *wanted
    })
}

/// The missing leg, as a leg file would have it where it can: `{name: default-VT_X, env: {VT_X: "1"}}`.
fn leg_words(a: &Leg, v: &Variable) -> String {
    let slug: String = v
        .name
        .trim_start_matches("engine.")
        .trim_start_matches('-')
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let name = format!("{}-{slug}", a.name);
    let Some(value) = &v.b else {
        return format!("`{}` without {}", a.name, v.name);
    };
    // A JSON string is a YAML string too, whatever it holds.
    let quoted = serde_json::Value::String(value.clone()).to_string();
    if let Some(key) = v.name.strip_prefix("engine.") {
        format!("{{name: {name}, engine: {{{key}: {value}}}}}")
    } else if v.name == "command" || v.name.starts_with('-') || v.name.starts_with("argument ") {
        format!("`{}` with {} = {value}", a.name, v.name)
    } else {
        format!("{{name: {name}, env: {{{}: {quoted}}}}}", v.name)
    }
}
