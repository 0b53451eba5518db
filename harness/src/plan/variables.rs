//! In what two legs differ. An effect can be laid at a variable's door only if nothing else differs.

use std::collections::{BTreeMap, BTreeSet};

use legwork_reports::model::Owed;

use crate::legfile::{Cache, Cwd, LegSet, LegSpec, Work};

/// One variable in which a leg differs from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its name, e.g. `env.VT_CPU_MOE` or `engine.prompt`.
    pub variable: String,
    /// Value in the first leg; `None` when it is not set there.
    pub from: Option<String>,
    /// Value in the second leg.
    pub to: Option<String>,
}

impl Difference {
    /// `env.X=1`, or `env.X unset`.
    #[must_use]
    pub fn setting(&self) -> String {
        match &self.to {
            Some(value) => format!("{}={}", self.variable, short(value)),
            None => format!("{} unset", self.variable),
        }
    }
}

fn short(value: &str) -> String {
    if value.chars().count() <= 40 {
        return value.to_owned();
    }
    format!("{}…", value.chars().take(39).collect::<String>())
}

/// Everything about a leg that can change what the program does. Deadlines, capture and core policy do not.
fn settings(leg: &LegSpec) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    match &leg.work {
        Work::Engine(keys) => {
            out.insert("program".to_owned(), "engine".to_owned());
            for (key, value) in keys.settings() {
                // A switch that is off is a switch that is absent; a prompt is one variable, wherever it is kept.
                if value == "false" {
                    continue;
                }
                let key = if key == "prompt_file" { "prompt" } else { key };
                out.insert(format!("engine.{key}"), value);
            }
        }
        Work::Command(argv) => {
            out.insert(
                "program".to_owned(),
                argv.first().cloned().unwrap_or_default(),
            );
            out.insert(
                "args".to_owned(),
                argv.get(1..).unwrap_or_default().join(" "),
            );
        }
        Work::Script { path, args } => {
            out.insert("program".to_owned(), path.clone());
            out.insert("args".to_owned(), args.join(" "));
        }
    }
    for (key, value) in &leg.env {
        out.insert(format!("env.{key}"), value.clone());
    }
    match &leg.cwd {
        Cwd::Path(path) => out.insert("cwd".to_owned(), path.to_string_lossy().into_owned()),
        Cwd::Start => out.insert("cwd".to_owned(), "start".to_owned()),
        Cwd::Attempt | Cwd::Stage => None,
    };
    if let Some(cache) = leg.cache {
        out.insert(
            "cache".to_owned(),
            if cache == Cache::Cold { "cold" } else { "warm" }.to_owned(),
        );
    }
    if let Some(bytes) = leg.memory_max {
        out.insert("memory_max".to_owned(), bytes.to_string());
    }
    out
}

/// The variables in which `leg` differs from `control`. Two programs differ in one variable: the program.
#[must_use]
pub fn differences(control: &LegSpec, leg: &LegSpec) -> Vec<Difference> {
    let (a, b) = (settings(control), settings(leg));
    let other_program = a.get("program") != b.get("program");
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter()
        .filter(|key| a.get(*key) != b.get(*key))
        // The arguments of another program, and the engine's own flags, are part of that program.
        .filter(|key| {
            !other_program
                || !(key.starts_with("engine.") || key.as_str() == "args" || key.as_str() == "cwd")
        })
        .map(|key| Difference {
            variable: key.clone(),
            from: a.get(key).cloned(),
            to: b.get(key).cloned(),
        })
        .collect()
}

/// As [`differences`], by the names of two legs; empty when one is not there.
#[must_use]
pub fn pair_differences(set: &LegSet, a: &str, b: &str) -> Vec<Difference> {
    let find = |name: &str| set.legs.iter().find(|l| l.name == name);
    match (find(a), find(b)) {
        (Some(a), Some(b)) => differences(a, b),
        _ => Vec::new(),
    }
}

/// For every confounded leg: the legs with one of its variables each that the set does not hold.
#[must_use]
pub fn owed(set: &LegSet, differs: &[Vec<Difference>]) -> Vec<Owed> {
    let single = |wanted: &Difference| {
        differs
            .iter()
            .any(|found| matches!(found.as_slice(), [only] if only == wanted))
    };
    let mut out: Vec<Owed> = Vec::new();
    for (leg, found) in set
        .legs
        .iter()
        .zip(differs)
        .filter(|(_, found)| found.len() > 1)
    {
        for difference in found.iter().filter(|d| !single(d)) {
            let missing = format!("control with {} alone", difference.setting());
            match out.iter_mut().find(|o| o.leg == missing) {
                Some(owed) => owed.why.push_str(&format!(", {}", leg.name)),
                None => out.push(Owed {
                    leg: missing,
                    why: format!("CONFOUNDED({}): {}", found.len(), leg.name),
                }),
            }
        }
    }
    out
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

    #[test]
    fn one_variable_is_named_and_owes_nothing() {
        let plan = plan(&set("  - {name: m, env: {VT_X: \"1\"}}\n"), 0);
        assert_eq!(
            plan.differs[1]
                .iter()
                .map(Difference::setting)
                .collect::<Vec<_>>(),
            ["env.VT_X=1"]
        );
        assert!(
            plan.owed.is_empty() && plan.warnings.is_empty(),
            "{:?}",
            plan.warnings
        );
    }

    #[test]
    fn two_variables_are_confounded_and_the_missing_single_legs_are_owed() {
        let plan = plan(
            &set("  - {name: both, env: {X: \"1\", Y: \"1\"}}\n  - {name: x, env: {X: \"1\"}}\n"),
            0,
        );
        assert_eq!(plan.differs[1].len(), 2);
        assert_eq!(
            plan.owed.iter().map(|o| o.leg.as_str()).collect::<Vec<_>>(),
            ["control with env.Y=1 alone"]
        );
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
    fn another_program_is_one_variable() {
        let plan = plan(&set("  - {name: f, command: [/bin/true, -x]}\n"), 0);
        assert_eq!(
            plan.differs[1]
                .iter()
                .map(|d| d.variable.as_str())
                .collect::<Vec<_>>(),
            ["program"]
        );
    }
}
