//! The identity block, the pins that are asserted against it, hygiene and the board's lock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

use super::env::{check_hygiene, inherited, masked};
use super::{Options, RunError};
use crate::board::identity::{self, Ask};
use crate::board::lock::{self, Lock};
use crate::board::quarantine;
use crate::legfile::{LegSet, Work};
use crate::os::root::Root;
use crate::stage::{Program, Stage, StageError, sha256_patiently};

/// Name of this host.
pub(super) fn host() -> Option<String> {
    nix::unistd::gethostname()
        .ok()
        .and_then(|h| h.into_string().ok())
}

/// Everything that must hold before a run: no undeclared knobs, a board that is not set aside and not in use. The lock is
/// held as long as the value lives; a set that cannot touch a GPU, or a machine without one, needs none.
pub(super) fn guard(set: &LegSet, options: &Options) -> Result<Option<Lock>, RunError> {
    let runner = std::env::var_os("RC_JOB_ID").is_some();
    let legs: Vec<&BTreeMap<String, String>> = set.legs.iter().map(|l| &l.env).collect();
    if !options.allow_env {
        check_hygiene(&inherited(), &set.env_allow, &legs, runner)?;
    }
    let Some(board) = board_name(set, options) else {
        return Ok(None);
    };
    let dir = lock::state_dir();
    if let Some(q) = quarantine::active(&dir, &board) {
        return Err(RunError::Board(format!(
            "the board `{board}` is set aside since {}: {} (run {}); when somebody has looked at it: legwork doctor --clear-quarantine",
            q.since.format("%Y-%m-%d %H:%M:%SZ"),
            q.reason,
            q.run
        )));
    }
    let expires = set
        .max_runtime
        .and_then(|m| chrono::Duration::from_std(m).ok())
        .map(|m| chrono::Utc::now() + m);
    let taken = Lock::take(&dir, &board, &set.name, expires, options.wait_for_board);
    taken.map(Some).map_err(|e| RunError::Board(e.to_string()))
}

/// What the board is called in locks; `None` when this set cannot use one or there is none.
pub(super) fn board_name(set: &LegSet, options: &Options) -> Option<String> {
    let on_host = |leg: &crate::legfile::LegSpec| match &leg.work {
        Work::Engine(keys) => matches!(keys.device.as_deref(), Some("cpu" | "simt")),
        Work::Command(_) | Work::Script { .. } => false,
    };
    if set.legs.iter().all(on_host) {
        return None;
    }
    let root = Root::new(options.sysroot.as_deref());
    let there = ["/dev/kfd", "/dev/nvidia0", "/dev/dri/renderD128"]
        .iter()
        .any(|d| root.exists(d));
    there.then(current_board)
}

/// The board of this job: the runner's device name, else `gpu0`.
#[must_use]
pub fn current_board() -> String {
    let name = std::env::var("RC_DEVICE").unwrap_or_else(|_| "gpu0".to_owned());
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect()
}

/// Other processes that hold the GPU while this set is to use it.
pub(super) fn gpu_users(set: &LegSet, options: &Options) -> Vec<String> {
    if options.sysroot.is_some() || board_name(set, options).is_none() {
        return Vec::new();
    }
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let users = crate::board::users::foreign(&[own]);
    users
        .iter()
        .map(|u| format!("{} (pid {})", u.comm, u.pid))
        .collect()
}

/// Nothing further is run on this board until somebody has looked at it.
pub(super) fn set_aside(set: &LegSet, options: &Options, why: &str, run: &str) -> Option<String> {
    let board = board_name(set, options)?;
    quarantine::set(&lock::state_dir(), &board, why, run)
        .err()
        .map(|e| format!("the board could not be set aside: {e}"))
}

/// What this run runs on.
pub(super) fn collect(
    set: &LegSet,
    stage: &Stage,
    programs: &[Result<Program, StageError>],
    options: &Options,
    run_dir: &Path,
) -> BTreeMap<String, Value> {
    let ours = inherited();
    let env: BTreeMap<String, String> = ours
        .iter()
        .filter(|(k, _)| {
            super::HYGIENE_PREFIXES.iter().any(|p| k.starts_with(p))
                || set.env_allow.contains(k)
                || k.starts_with("RC_")
        })
        .cloned()
        .collect();
    let mut files: Vec<(String, PathBuf)> = stage
        .files
        .iter()
        .filter(|f| f.role == "executable")
        .map(|f| ("legwork".to_owned(), f.path.clone()))
        .collect();
    let mut models: Vec<PathBuf> = Vec::new();
    for (leg, program) in set.legs.iter().zip(programs) {
        if let (Ok(program), false) = (program, matches!(leg.work, Work::Engine(_)))
            && let Some(first) = program.argv.first()
        {
            files.push((leg.name.clone(), PathBuf::from(first)));
        }
        models.extend(
            super::cache::model_files(leg)
                .into_iter()
                .filter(|f| crate::stage::answers(f) && f.is_file()),
        );
    }
    models.sort();
    models.dedup();
    let ask = Ask {
        programs: files,
        ld_library_path: ours
            .into_iter()
            .find(|(k, _)| k == "LD_LIBRARY_PATH")
            .map(|(_, v)| v),
        models,
        tree: Some(set.source.base.clone()).filter(|t| crate::stage::answers(t)),
        env: masked(&env.into_iter().collect::<Vec<_>>()),
        disk: Some(run_dir.to_owned()),
        hash_cache: Some(lock::state_dir().join("hashes.json")),
    };
    let mut out = identity::block(&Root::new(options.sysroot.as_deref()), &ask);
    out.insert(
        "legwork.version".to_owned(),
        env!("CARGO_PKG_VERSION").into(),
    );
    // Short names for the one board that a job has: what pins and triage ask for.
    for (short, long) in [
        ("gpu.pci", "gpu.0.pci"),
        ("gpu.gfx", "kfd.0.gfx"),
        ("gpu.cwsr_size", "kfd.0.cwsr_size"),
        ("gpu.vram_bytes", "gpu.0.vram_total_bytes"),
        ("firmware.mes", "gpu.0.fw.mes"),
    ] {
        if let Some(value) = out.get(long).filter(|v| !v.is_null()).cloned() {
            out.insert(short.to_owned(), value);
        }
    }
    out
}

/// The pins that do not hold, in words.
pub(super) fn check_pins(set: &LegSet, identity: &BTreeMap<String, Value>) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, wanted) in &set.pins {
        let found = match name.strip_prefix("file:") {
            Some(file) => match sha256_patiently(&set.source.base.join(file)) {
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
