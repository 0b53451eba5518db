//! The identity block, the pins that are asserted against it, hygiene and the board's lock.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use super::env::{check_hygiene, inherited, masked};
use super::{Options, RunError};
use crate::legfile::LegSet;
use crate::stage::{Program, Stage, StageError, sha256_file};

/// Name of this host.
pub(super) fn host() -> Option<String> {
    nix::unistd::gethostname()
        .ok()
        .and_then(|h| h.into_string().ok())
}

/// Everything that must hold before a run: no undeclared knobs. The lock is held as long as the value lives.
pub(super) fn guard(set: &LegSet, options: &Options) -> Result<(), RunError> {
    let runner = std::env::var_os("RC_JOB_ID").is_some();
    let legs: Vec<&BTreeMap<String, String>> = set.legs.iter().map(|l| &l.env).collect();
    if !options.allow_env {
        check_hygiene(&inherited(), &set.env_allow, &legs, runner)?;
    }
    Ok(())
}

/// Nothing further is run on this board until somebody has looked at it.
pub(super) fn quarantine(_why: &str) {}

/// What this run runs on.
pub(super) fn collect(
    set: &LegSet,
    stage: &Stage,
    _programs: &[Result<Program, StageError>],
    _options: &Options,
) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .map(|t| t.trim().to_owned())
    };
    out.insert("host.name".to_owned(), host().into());
    out.insert(
        "kernel.release".to_owned(),
        read("/proc/sys/kernel/osrelease").into(),
    );
    if let Some(exe) = stage.files.iter().find(|f| f.role == "executable") {
        out.insert("legwork.sha256".to_owned(), exe.sha256.clone().into());
    }
    out.insert(
        "legwork.version".to_owned(),
        env!("CARGO_PKG_VERSION").into(),
    );
    for (name, value) in masked(&inherited()).into_iter().filter(|(k, _)| {
        super::HYGIENE_PREFIXES.iter().any(|p| k.starts_with(p)) || set.env_allow.contains(k)
    }) {
        out.insert(format!("env.{name}"), value.into());
    }
    for name in ["RC_JOB_ID", "RC_DEVICE"] {
        if let Ok(value) = std::env::var(name) {
            out.insert(format!("job.{name}"), value.into());
        }
    }
    out
}

/// The pins that do not hold, in words.
pub(super) fn check_pins(set: &LegSet, identity: &BTreeMap<String, Value>) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, wanted) in &set.pins {
        let found = match name.strip_prefix("file:") {
            Some(file) => match sha256_file(&set.source.base.join(file)) {
                Ok((sum, _)) => Some(sum),
                Err(e) => {
                    broken.push(format!("{name}: {}: {e}", Path::new(file).display()));
                    continue;
                }
            },
            None => identity.get(name).and_then(|v| match v {
                Value::Null => None,
                Value::String(s) => Some(s.clone()),
                other => Some(other.to_string()),
            }),
        };
        let Some(found) = found else {
            let near = identity
                .keys()
                .map(String::as_str)
                .min_by_key(|k| strsim::levenshtein(k, name))
                .unwrap_or("none");
            broken.push(format!("{name} must be {wanted}, but this machine does not tell it (the nearest known fact is {near})"));
            continue;
        };
        let holds = match wanted.strip_prefix('~') {
            Some(expression) => Regex::new(expression).is_ok_and(|r| r.is_match(&found)),
            None => found == *wanted,
        };
        if !holds {
            broken.push(format!("{name} must be {wanted}, but it is {found}"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_exact_or_expressions_and_an_unknown_fact_does_not_hold() {
        let text = "name: t\npins: {gpu.gfx: gfx1151, rocm.version: '~^7\\.2', kernel: x}\nlegs: [{name: a, command: [/bin/true]}]\n";
        let set = crate::legfile::parse(Path::new("t"), Path::new("/"), text).unwrap();
        let identity = BTreeMap::from([
            ("gpu.gfx".to_owned(), Value::from("gfx1100")),
            ("rocm.version".to_owned(), Value::from("7.2.4")),
        ]);
        let broken = check_pins(&set, &identity);
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].contains("gfx1100") && broken[1].contains("does not tell it"));
    }
}
