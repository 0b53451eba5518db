//! The environment that a leg sees: what is needed to run at all, what the leg set lets pass, what the leg declares.
//! Variables that steer GPU software and are set without being declared are refused, since nobody would know later
//! that they were there.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::board::hygiene::covers;

/// Inherited variables with these prefixes are refused unless they are declared or allowed.
pub use crate::board::hygiene::STEERING as HYGIENE_PREFIXES;

/// What a program needs to run at all; these pass without being declared.
const BASE: [&str; 17] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RC_JOB_ID",
    "RC_DEVICE",
];

/// Why the environment is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EnvError {
    /// Undeclared variables.
    #[error("these variables are set here, but the leg set neither declares nor allows them: {}; they would change what runs without a trace: unset them, declare them in a leg's `env`, or list them under `env_allow`", .0.join(", "))]
    Undeclared(Vec<String>),
}

fn allowed(name: &str, allow: &[String]) -> bool {
    allow.iter().any(|a| covers(a, name))
}

fn sensitive(name: &str) -> bool {
    HYGIENE_PREFIXES.iter().any(|p| name.starts_with(p))
}

/// The environment of a leg: its own variables over what passes of `inherited`.
#[must_use]
pub fn child_env(
    inherited: &[(String, String)],
    allow: &[String],
    declared: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut out: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in inherited {
        let base = BASE.contains(&name.as_str()) || name.starts_with("LC_");
        if base || allowed(name, allow) {
            out.insert(name.clone(), value.clone());
        }
    }
    out.entry("PATH".to_owned())
        .or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".to_owned());
    out.entry("TERM".to_owned())
        .or_insert_with(|| "dumb".to_owned());
    out.extend(declared.iter().map(|(k, v)| (k.clone(), v.clone())));
    out.into_iter().collect()
}

/// Refuses variables that steer GPU software and are neither allowed nor declared by every leg. The job runner sets
/// `CUDA_VISIBLE_DEVICES` for every job (`runner` is true then); that one passes.
///
/// # Errors
/// The names, sorted.
pub fn check_hygiene(
    inherited: &[(String, String)],
    allow: &[String],
    legs: &[&BTreeMap<String, String>],
    runner: bool,
) -> Result<(), EnvError> {
    let mut names: Vec<String> = inherited
        .iter()
        .map(|(name, _)| name)
        .filter(|name| sensitive(name) && !allowed(name, allow))
        .filter(|name| !legs.iter().all(|env| env.contains_key(*name)) || legs.is_empty())
        .filter(|name| !(runner && *name == "CUDA_VISIBLE_DEVICES"))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        Ok(())
    } else {
        Err(EnvError::Undeclared(names))
    }
}

/// This process's environment; names and values that are not UTF-8 are left out.
#[must_use]
pub fn inherited() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect()
}

/// The environment as recorded: values of names that look like secrets are masked.
#[must_use]
pub fn masked(env: &[(String, String)]) -> BTreeMap<String, String> {
    env.iter()
        .map(|(k, v)| (k.clone(), crate::board::hygiene::masked(k, v)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn only_what_is_needed_allowed_or_declared_reaches_a_leg() {
        let inherited = pairs(&[
            ("PATH", "/bin"),
            ("EDITOR", "vi"),
            ("LC_ALL", "C"),
            ("HSA_VISIBLE_DEVICES", "0"),
            ("ROCR_X", "1"),
            ("VT_X", "0"),
        ]);
        let declared = BTreeMap::from([("VT_X".to_owned(), "1".to_owned())]);
        let env = child_env(
            &inherited,
            &["HSA_VISIBLE_DEVICES".to_owned(), "ROCR_".to_owned()],
            &declared,
        );
        let names: Vec<&str> = env.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(
            names,
            [
                "HSA_VISIBLE_DEVICES",
                "LC_ALL",
                "PATH",
                "ROCR_X",
                "TERM",
                "VT_X"
            ]
        );
        assert_eq!(env.iter().find(|(k, _)| k == "VT_X").unwrap().1, "1");
    }

    #[test]
    fn an_undeclared_knob_is_refused_by_name() {
        let inherited = pairs(&[
            ("VT_CPU_MOE", "1"),
            ("HSA_X", "1"),
            ("HOME", "/"),
            ("CUDA_VISIBLE_DEVICES", "0"),
        ]);
        let leg = BTreeMap::new();
        let error = check_hygiene(&inherited, &["HSA_".to_owned()], &[&leg], true).unwrap_err();
        assert_eq!(error, EnvError::Undeclared(vec!["VT_CPU_MOE".to_owned()]));
        let leg = BTreeMap::from([("VT_CPU_MOE".to_owned(), "0".to_owned())]);
        assert_eq!(
            check_hygiene(&inherited, &["HSA_".to_owned()], &[&leg], true),
            Ok(())
        );
        assert!(check_hygiene(&inherited, &["HSA_".to_owned()], &[&leg], false).is_err());
    }

    #[test]
    fn secrets_do_not_reach_the_report() {
        let env = masked(&pairs(&[("HF_TOKEN", "abc"), ("VT_X", "1")]));
        assert!(
            !env["HF_TOKEN"].contains("abc") && env["VT_X"] == "1",
            "{env:?}"
        );
    }
}
