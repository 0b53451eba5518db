//! What the integration tests share: a private folder, the real binary in it, and its report.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; helpers of tests fail as the tests do

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use legwork_reports::model::Report;

/// A private folder in which legwork runs.
pub struct Bench {
    pub dir: tempfile::TempDir,
}

/// What a run left.
pub struct Ran {
    pub output: Output,
    pub code: i32,
    /// The run directory, when one was made.
    pub run: Option<PathBuf>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary with an environment that is the same on every machine.
    pub fn legwork(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_legwork"));
        command.args(args).current_dir(self.path()).env_clear();
        for name in ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // Tests run side by side: on a machine with a board each has its own lock.
        command.env("LEGWORK_STATE_DIR", self.path().join("state"));
        command
    }

    /// `legwork ARGS`, to its end.
    pub fn call(&self, args: &[&str]) -> Ran {
        let output = self.legwork(args).output().unwrap();
        self.ran(output)
    }

    /// Runs the leg set in `text`.
    pub fn run(&self, text: &str, extra: &[&str]) -> Ran {
        self.write("set.yaml", text);
        let args: Vec<&str> = ["run", "set.yaml", "--out", "runs"]
            .into_iter()
            .chain(extra.iter().copied())
            .collect();
        self.call(&args)
    }

    pub fn ran(&self, output: Output) -> Ran {
        let code = output.status.code().unwrap_or(-1);
        Ran {
            output,
            code,
            run: self.newest_run(),
        }
    }

    /// The newest run directory: names begin with the time.
    pub fn newest_run(&self) -> Option<PathBuf> {
        let mut runs: Vec<PathBuf> = std::fs::read_dir(self.path().join("runs"))
            .ok()?
            .flatten()
            .map(|e| e.path())
            .collect();
        runs.sort();
        runs.pop()
    }
}

impl Ran {
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Everything that was said, for messages of failed assertions.
    pub fn said(&self) -> String {
        format!(
            "exit {}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            self.stdout(),
            self.stderr()
        )
    }

    pub fn dir(&self) -> &Path {
        self.run
            .as_deref()
            .unwrap_or_else(|| panic!("no run directory\n{}", self.said()))
    }

    pub fn report(&self) -> Report {
        let path = self.dir().join("report.json");
        let text = std::fs::read(&path)
            .unwrap_or_else(|e| panic!("{}: {e}\n{}", path.display(), self.said()));
        serde_json::from_slice(&text).unwrap()
    }

    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Ran {
        assert_eq!(self.code, code, "{}", self.said());
        self
    }
}
