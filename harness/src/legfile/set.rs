//! A checked leg set: what the plan is made from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use legwork_reports::admissible::Binaries;
use legwork_reports::compare::Pair;
use legwork_reports::gates::Gate;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::doc::{Cache, CorePolicy, OnFail, Order};
use super::engine_keys::EngineKeys;

/// Where a leg set came from, as run.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file, or `builtin:NAME`.
    pub name: String,
    /// Folder that relative paths in the leg file start from.
    pub base: PathBuf,
    /// The text.
    pub text: String,
    /// SHA-256 of the text, lower-case hex.
    pub sha256: String,
}

/// A leg set that has passed every check.
#[derive(Debug, Clone)]
pub struct LegSet {
    /// Its name.
    pub name: String,
    /// The question it asks.
    pub question: Option<String>,
    /// Order of the attempts.
    pub order: Order,
    /// Seed of the order, when the file gives one.
    pub seed: Option<u64>,
    /// Discarded rounds first.
    pub warmup: u32,
    /// Inherited variables that may pass.
    pub env_allow: Vec<String>,
    /// What must hold of the arms' binaries.
    pub arms: Option<Binaries>,
    /// Identity facts that must hold.
    pub pins: BTreeMap<String, String>,
    /// Time for the whole run.
    pub max_runtime: Option<Duration>,
    /// Part of it kept for the report.
    pub reserve: Duration,
    /// The legs.
    pub legs: Vec<LegSpec>,
    /// The gates.
    pub gates: Vec<Gate>,
    /// The comparisons.
    pub compare: Vec<Pair>,
    /// The file as read.
    pub source: Source,
}

/// What a leg runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// `legwork engine generate` with these flags.
    Engine(Box<EngineKeys>),
    /// A program and its arguments.
    Command(Vec<String>),
    /// A script file, run from a copy.
    Script {
        /// The script file.
        path: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// Working directory of a leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cwd {
    /// Where legwork was started.
    Start,
    /// The attempt's folder.
    Attempt,
    /// The stage.
    Stage,
    /// An absolute path.
    Path(PathBuf),
}

/// Deadlines of a leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutSpec {
    /// Whole attempt.
    pub total: Option<Duration>,
    /// No sign of life.
    pub idle: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// SIGABRT on a deadline, for a core.
    pub abort: bool,
    /// Per phase.
    pub phases: BTreeMap<String, Duration>,
}

/// A phase by its lines. Both expressions compile: they were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseSpec {
    /// Its name.
    pub name: String,
    /// Begins at the first line that matches.
    pub from: String,
    /// Ends at the first line after it that matches.
    pub to: String,
}

/// One leg, defaults merged.
#[derive(Debug, Clone)]
pub struct LegSpec {
    /// Its name.
    pub name: String,
    /// The arm that isolates the variable.
    pub control: bool,
    /// Its speed is never quoted.
    pub diagnostic: bool,
    /// Counted attempts.
    pub repeat: u32,
    /// What it runs.
    pub work: Work,
    /// Files copied beside the command or script.
    pub stage: Vec<String>,
    /// Environment that it declares.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: Cwd,
    /// Deadlines.
    pub timeout: TimeoutSpec,
    /// What becomes of a core.
    pub core: CorePolicy,
    /// Bytes of output kept.
    pub output_cap: u64,
    /// Phases of a foreign command.
    pub phases: Vec<PhaseSpec>,
    /// Own pipe for stderr.
    pub separate_stderr: bool,
    /// Memory bound of the process tree.
    pub memory_max: Option<u64>,
    /// Page cache state for the model file.
    pub cache: Option<Cache>,
    /// End at once on a fatal line.
    pub fatal_patterns: bool,
    /// What a failure does to the rest.
    pub on_fail: OnFail,
}

/// Changes that the command line makes to a leg set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Only these legs; `*` stands for any characters.
    pub legs: Vec<String>,
    /// Counted attempts.
    pub repeat: Option<u32>,
    /// Discarded rounds.
    pub warmup: Option<u32>,
    /// Variables for every leg.
    pub env: Vec<(String, String)>,
    /// Engine device for every engine leg.
    pub device: Option<String>,
    /// Engine model for every engine leg.
    pub model: Option<String>,
    /// Total deadline of every leg.
    pub timeout: Option<Duration>,
    /// Seed of the order.
    pub seed: Option<u64>,
    /// Time for the whole run.
    pub max_runtime: Option<Duration>,
    /// Stop at the first failed leg.
    pub stop_on_fail: bool,
}

/// A selection that does not fit the leg set.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SelectError {
    /// No such leg.
    #[error("no leg `{name}` in leg set `{set}`; {help}")]
    NoSuchLeg {
        /// The name asked for.
        name: String,
        /// The leg set.
        set: String,
        /// The nearest name, or all names.
        help: String,
    },
}

impl LegSpec {
    /// What the leg executes, as people would type it.
    #[must_use]
    pub fn command_line(&self) -> Vec<String> {
        match &self.work {
            Work::Engine(keys) => ["legwork", "engine", "generate"]
                .into_iter()
                .map(str::to_owned)
                .chain(keys.argv())
                .collect(),
            Work::Command(argv) => argv.clone(),
            Work::Script { path, args } => std::iter::once(path.clone())
                .chain(args.iter().cloned())
                .collect(),
        }
    }
}

impl LegSet {
    /// Applies what the command line asks for. Gates and comparisons that look at a leg which is left out go with it.
    ///
    /// # Errors
    /// When a leg is asked for that is not in the set.
    pub fn select(&mut self, selection: &Selection) -> Result<(), SelectError> {
        let names: Vec<String> = self.legs.iter().map(|l| l.name.clone()).collect();
        for name in &selection.legs {
            if !name.contains('*') && !names.contains(name) {
                return Err(SelectError::NoSuchLeg {
                    name: name.clone(),
                    set: self.name.clone(),
                    help: super::error::suggestion(name, names.iter().map(String::as_str))
                        .unwrap_or_default(),
                });
            }
        }
        if !selection.legs.is_empty() {
            let kept = |name: &str| selection.legs.iter().any(|pattern| glob(pattern, name));
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            self.gates
                .retain(|g| g.leg_names(&all).iter().all(|name| kept(name)));
            self.compare.retain(|c| kept(&c.a) && kept(&c.b));
            self.legs.retain(|l| kept(&l.name));
        }
        for leg in &mut self.legs {
            if let Some(repeat) = selection.repeat {
                leg.repeat = repeat;
            }
            if let Some(total) = selection.timeout {
                leg.timeout.total = Some(total);
            }
            for (key, value) in &selection.env {
                leg.env.insert(key.clone(), value.clone());
            }
            if selection.stop_on_fail {
                leg.on_fail = OnFail::Stop;
            }
            if let Work::Engine(keys) = &mut leg.work {
                if let Some(device) = &selection.device {
                    keys.device = Some(device.clone());
                }
                if let Some(model) = &selection.model {
                    keys.model = Some(model.clone());
                }
            }
        }
        if let Some(warmup) = selection.warmup {
            self.warmup = warmup;
        }
        self.seed = selection.seed.or(self.seed);
        self.max_runtime = selection.max_runtime.or(self.max_runtime);
        Ok(())
    }
}

/// `*` stands for any characters.
fn glob(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).any(|i| rest.is_char_boundary(i) && glob(tail, &rest[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*-cold", "mmap-cold", true),
            ("*", "", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c", false),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
    }
}
