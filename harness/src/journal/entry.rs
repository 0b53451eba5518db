//! What is recorded.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use legwork_reports::model::Attempt;
use serde::{Deserialize, Serialize};

use crate::legfile::Selection;
use crate::plan::Step;
use crate::stage::StagedFile;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the line, from 1.
    pub seq: u64,
    /// Wall clock.
    pub at: DateTime<Utc>,
    /// CLOCK_MONOTONIC in nanoseconds: order and distance survive a clock step.
    pub mono_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// The run began.
    RunBegin {
        /// Name of the run directory.
        run: String,
        /// Leg set.
        leg_set: String,
        /// The leg file, or the built-in's name.
        leg_file: String,
        /// What the command line changed.
        selection: Box<Selection>,
        /// SHA-256 of the leg file.
        leg_file_sha256: String,
        /// Seed of the order.
        seed: u64,
        /// The attempts as planned.
        steps: Vec<Step>,
        /// Process id of the harness.
        pid: u32,
        /// Boot id.
        boot_id: Option<String>,
        /// Which load of the GPU's driver.
        #[serde(default)]
        driver: Option<String>,
        /// The command line.
        argv: Vec<String>,
        /// Version.
        legwork: String,
        /// Folder that relative paths of the leg file start from.
        base: PathBuf,
    },
    /// Everything that is executed has been copied.
    Staged {
        /// The stage.
        dir: PathBuf,
        /// The copies.
        files: Vec<StagedFile>,
    },
    /// An attempt is about to be spawned.
    StepBegin {
        /// Which.
        step: Step,
        /// Its folder, relative to the run directory.
        dir: String,
        /// Boot id.
        boot_id: Option<String>,
    },
    /// An attempt ended and was judged.
    StepEnd {
        /// Which.
        step: Step,
        /// Its leg.
        leg: String,
        /// Everything known of it.
        attempt: Box<Attempt>,
    },
    /// An attempt was not begun.
    StepSkipped {
        /// Which.
        step: Step,
        /// Why.
        why: String,
    },
    /// A step whose attempt was lost is run once more, as a step of its own.
    Again {
        /// Number of the step that was lost.
        of: u32,
        /// The step that makes up for it.
        step: Step,
    },
    /// An attempt's folder was copied to the archive.
    Archived {
        /// Which.
        n: u32,
        /// Where to.
        to: PathBuf,
        /// Files copied.
        files: usize,
        /// Why it failed, when it did.
        error: Option<String>,
    },
    /// Something was decided.
    Decision {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// A later process took the run up again.
    Resumed {
        /// Its process id.
        pid: u32,
        /// Boot id now.
        boot_id: Option<String>,
        /// Processes of the dead run that were still alive and were ended.
        reaped: Vec<i32>,
    },
    /// The report is written.
    RunEnd {
        /// The run's verdict.
        verdict: String,
        /// Exit code.
        exit_code: u8,
    },
}
