//! The expected-result model: how an attempt is made, and what it is held against.

#![allow(dead_code)] // each test binary uses its part of it

use std::path::{Path, PathBuf};

use legwork::supervise::{AttemptOutcome, AttemptSpec, Control, NoControl};
use legwork_reports::model::{Descendant, TimedOut};

/// What an attempt should have come to. `None` in `code` and `signal` means: it must have neither.
#[derive(Debug, Default)]
pub struct Expect<'a> {
    /// Exit code of the leader.
    pub code: Option<i32>,
    /// Signal of the leader.
    pub signal: Option<i32>,
    /// Deadline.
    pub timed_out: Option<TimedOut>,
    /// The whole of `output.raw`.
    pub output: Option<&'a str>,
    /// Survivors of the leader.
    pub leaks: usize,
}

/// An attempt to be made.
pub struct Run {
    spec: AttemptSpec,
    scratch: tempfile::TempDir,
}

/// An attempt that was made.
pub struct Made {
    pub outcome: AttemptOutcome,
    scratch: tempfile::TempDir,
}

/// Arguments of a helper.
pub fn helper(args: &[&str]) -> Vec<String> {
    let exe = std::env::current_exe()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    [exe, "helper".to_owned()]
        .into_iter()
        .chain(args.iter().map(|s| (*s).to_owned()))
        .collect()
}

/// A shell script; `$EXE` is this binary.
pub fn sh(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

impl Run {
    pub fn new(argv: Vec<String>, change: impl FnOnce(&mut AttemptSpec)) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, cwd) = (scratch.path().join("attempt"), scratch.path().join("cwd"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&cwd).unwrap();
        let mut spec = AttemptSpec::new(argv, cwd, dir);
        spec.env = vec![
            ("PATH".into(), "/usr/bin:/bin:/usr/sbin:/sbin".into()),
            (
                "EXE".into(),
                std::env::current_exe().unwrap().to_str().unwrap().into(),
            ),
        ];
        change(&mut spec);
        Run { spec, scratch }
    }

    pub fn go(self, control: &mut dyn Control) -> Made {
        let outcome = legwork::supervise::run(&self.spec, control).expect("the attempt runs");
        Made {
            outcome,
            scratch: self.scratch,
        }
    }
}

/// Makes an attempt with nobody listening.
pub fn attempt(argv: Vec<String>, change: impl FnOnce(&mut AttemptSpec)) -> Made {
    Run::new(argv, change).go(&mut NoControl)
}

impl Made {
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("attempt")
    }

    pub fn cwd(&self) -> PathBuf {
        self.scratch.path().join("cwd")
    }

    pub fn read(&self, name: &str) -> String {
        let p = self.dir().join(name);
        String::from_utf8(std::fs::read(&p).unwrap_or_else(|e| panic!("{}: {e}", p.display())))
            .unwrap()
    }

    /// Holds the outcome against the model.
    pub fn expect(&self, want: Expect<'_>) {
        let o = &self.outcome;
        let seen = format!(
            "exit {:?}, killed_by {:?}, warnings {:?}, output {:?}",
            o.exit,
            o.killed_by_us,
            o.warnings,
            std::fs::read_to_string(self.dir().join("output.raw"))
                .map(|t| t.chars().take(400).collect::<String>())
        );
        assert_eq!(
            (o.exit.code, o.exit.signal),
            (want.code, want.signal),
            "{seen}"
        );
        assert_eq!(o.exit.timed_out, want.timed_out, "{seen}");
        assert_eq!(o.leaks.len(), want.leaks, "{:?}; {seen}", o.leaks);
        if let Some(text) = want.output {
            assert_eq!(self.read("output.raw"), text, "{seen}");
        }
    }

    pub fn crashed_descendant(&self) -> Option<&Descendant> {
        self.outcome
            .descendants
            .iter()
            .find(|d| d.end.is_some_and(|e| e.crashed()))
    }

    /// Whether this machine leaves cores as files under the working directory.
    pub fn cores_are_files(&self) -> bool {
        let p = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        !p.starts_with(['|', '@', '/']) && Path::new(p.trim()).components().count() == 1
    }
}
