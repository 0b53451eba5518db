//! How a run is to be done, apart from what the leg file says.

use std::path::PathBuf;
use std::time::Duration;

/// How much is said while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// The result alone.
    Quiet,
    /// Progress and the result.
    #[default]
    Normal,
    /// The children's output too.
    Verbose,
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the run directories.
    pub out: PathBuf,
    /// Folder to which each finished attempt is copied.
    pub archive: Option<PathBuf>,
    /// Leave the staged copies on disk.
    pub keep_stage: bool,
    /// How much is said.
    pub verbosity: Verbosity,
    /// Colour in what is printed at the end.
    pub color: bool,
    /// Width of the terminal.
    pub width: u16,
    /// Progress line on a terminal instead of heartbeat lines.
    pub bar: bool,
    /// Time between two heartbeat lines.
    pub heartbeat: Duration,
    /// A tree that is read instead of `/` for `/sys`, `/dev/kmsg` and the like.
    pub sysroot: Option<PathBuf>,
    /// Wait this long for the board when another run holds it.
    pub wait_for_board: Duration,
    /// Run although undeclared variables are set.
    pub allow_env: bool,
    /// Run although a pin does not hold; said in the report.
    pub ignore_pins: bool,
    /// The command line, for the report.
    pub argv: Vec<String>,
    /// A shortened run.
    pub quick: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            out: PathBuf::from("runs"),
            archive: None,
            keep_stage: false,
            verbosity: Verbosity::Normal,
            color: false,
            width: 120,
            bar: false,
            heartbeat: Duration::from_secs(30),
            sysroot: None,
            wait_for_board: Duration::ZERO,
            allow_env: false,
            ignore_pins: false,
            argv: Vec::new(),
            quick: false,
        }
    }
}
