//! In what the legs differ. An effect can be laid at a variable's door only if nothing else differs. The rules are those
//! of the report, so that the plan promises what the report will say.

use legwork_reports::compare::{self, Pair, Variable};
use legwork_reports::model::{Leg, LegKind, Owed, Report, RunInfo};

use crate::legfile::{Cache, LegSet, LegSpec, Work};

/// A leg as the report tells of it, without attempts.
#[must_use]
pub fn report_leg(leg: &LegSpec) -> Leg {
    let (kind, mut settings) = match &leg.work {
        Work::Engine(keys) => {
            // A switch that is off is a switch that is absent; a prompt is one variable, wherever it is kept.
            let settings = keys
                .settings()
                .into_iter()
                .filter(|(_, value)| value != "false")
                .map(|(key, value)| {
                    let key = if key == "prompt_file" { "prompt" } else { key };
                    (
                        key.to_owned(),
                        serde_json::from_str(&value).unwrap_or(serde_json::Value::String(value)),
                    )
                });
            (LegKind::Engine, settings.collect())
        }
        Work::Command(_) => (LegKind::Command, std::collections::BTreeMap::new()),
        Work::Script { .. } => (LegKind::Script, std::collections::BTreeMap::new()),
    };
    if let (Some(cache), LegKind::Engine) = (leg.cache, kind) {
        settings.insert(
            "cache".to_owned(),
            if cache == Cache::Cold { "cold" } else { "warm" }.into(),
        );
    }
    Leg {
        control: leg.control,
        diagnostic: leg.diagnostic,
        env: leg.env.clone(),
        command: leg.command_line(),
        designed: leg.repeat,
        kind: Some(kind),
        settings,
        ..Leg::new(&leg.name)
    }
}

/// Per leg: the variables in which it differs from the control; empty for the control and without a control.
#[must_use]
pub fn differences(set: &LegSet) -> Vec<Vec<Variable>> {
    let legs: Vec<Leg> = set.legs.iter().map(report_leg).collect();
    let control = legs.iter().find(|l| l.control);
    legs.iter()
        .map(|leg| control.map_or_else(Vec::new, |c| compare::variables(c, leg)))
        .collect()
}

/// The variables in which two legs differ; empty when one is not there.
#[must_use]
pub fn pair_differences(set: &LegSet, a: &str, b: &str) -> Vec<Variable> {
    let find = |name: &str| set.legs.iter().find(|l| l.name == name).map(report_leg);
    match (find(a), find(b)) {
        (Some(a), Some(b)) => compare::variables(&a, &b),
        _ => Vec::new(),
    }
}

/// The legs that confounded comparisons leave missing, as the report will name them.
#[must_use]
pub fn owed(set: &LegSet) -> Vec<Owed> {
    let mut report = Report::new(RunInfo::new("", &set.name, chrono::DateTime::UNIX_EPOCH, 0));
    // Nothing has run yet: attempts are not what is owed here.
    report.legs = set
        .legs
        .iter()
        .map(|l| Leg {
            designed: 0,
            ..report_leg(l)
        })
        .collect();
    let control = set.legs.iter().find(|l| l.control);
    let pairs: Vec<Pair> = match (set.compare.is_empty(), control) {
        (false, _) => set.compare.clone(),
        (true, Some(control)) => set
            .legs
            .iter()
            .filter(|l| !l.control)
            .map(|l| Pair::new(&control.name, &l.name))
            .collect(),
        (true, None) => Vec::new(),
    };
    report.comparisons = pairs
        .iter()
        .filter_map(|p| compare::compare_arms(&report, p))
        .collect();
    compare::owed(&report)
}

/// A value that fits into a table.
pub(super) fn setting(variable: &Variable) -> String {
    match &variable.b {
        Some(value) if value.chars().count() > 40 => format!(
            "{}={}…",
            variable.name,
            value.chars().take(39).collect::<String>()
        ),
        Some(value) => format!("{}={value}", variable.name),
        None => format!("{} unset", variable.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use std::path::Path;

    fn set(legs: &str) -> LegSet {
        let text = format!(
            "name: t\ndefaults:\n  engine: {{model: builtin:mini, prompt: p}}\n  env: {{A: \"0\"}}\nlegs:\n  - {{name: c, control: true}}\n{legs}"
        );
        crate::legfile::parse(Path::new("t.yaml"), Path::new("/"), &text).unwrap()
    }

    fn names(found: &[Variable]) -> Vec<&str> {
        found.iter().map(|v| v.name.as_str()).collect()
    }

    #[test]
    fn one_variable_is_named_and_owes_nothing() {
        let plan = plan(&set("  - {name: m, env: {VT_X: \"1\"}}\n"), 0);
        assert_eq!(names(&plan.differs[1]), ["VT_X"]);
        assert!(
            plan.owed.is_empty() && plan.warnings.is_empty(),
            "{:?}",
            plan.warnings
        );
    }

    #[test]
    fn two_variables_are_confounded_and_the_missing_single_leg_is_owed() {
        let plan = plan(
            &set("  - {name: both, env: {X: \"1\", Y: \"1\"}}\n  - {name: x, env: {X: \"1\"}}\n"),
            0,
        );
        assert_eq!(plan.differs[1].len(), 2);
        assert_eq!(plan.owed.len(), 1, "{:?}", plan.owed);
        assert!(plan.owed[0].leg.contains('Y'), "{:?}", plan.owed);
        assert!(
            plan.warnings[0].starts_with("CONFOUNDED(2)"),
            "{:?}",
            plan.warnings
        );
    }

    #[test]
    fn deadlines_and_a_switch_that_is_off_are_no_variables() {
        let plan = plan(
            &set("  - {name: d, timeout: {total: 1s}, core: off, engine: {mmap: false}}\n"),
            0,
        );
        assert!(plan.differs[1].is_empty(), "{:?}", plan.differs[1]);
        assert!(plan.warnings[0].contains("does not differ"));
    }

    #[test]
    fn a_prompt_from_a_file_is_the_variable_prompt() {
        let plan = plan(
            &set("  - {name: f, engine: {prompt_file: x.txt}}\n  - {name: k, cache: cold}\n"),
            0,
        );
        assert_eq!(names(&plan.differs[1]), ["engine.prompt"]);
        assert_eq!(names(&plan.differs[2]), ["engine.cache"]);
    }
}
