//! What an attempt is asked to be, what the caller hears while it runs, and what it turned out to be.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use legwork_reports::model;
use regex::Regex;
use serde::{Deserialize, Serialize};

/// How much of a crashing process is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorePolicy {
    /// `RLIMIT_CORE` 0: no core file.
    Off,
    /// A core of at most a quarter of the free space (and 8 GiB), compressed.
    #[default]
    Bounded,
    /// A core of any size.
    Full,
}

/// The deadlines of an attempt. `None` means that there is none.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// From spawn to the end of the leader.
    pub total: Option<Duration>,
    /// No output, no CPU time in the tree and no GPU activity for this long.
    pub idle: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long a process in uninterruptible sleep may survive SIGKILL before it is called unkillable.
    pub unkillable_after: Duration,
    /// Per phase, by name (`load`, `prefill`, `decode` from engine events; declared names from rules).
    pub phases: BTreeMap<String, Duration>,
    /// CLOCK_MONOTONIC nanoseconds at which the lease, less its reserve for archiving, ends.
    pub lease_end_mono_ns: Option<u64>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            total: None,
            idle: None,
            grace: Duration::from_secs(10),
            unkillable_after: Duration::from_secs(10),
            phases: BTreeMap::new(),
            lease_end_mono_ns: None,
        }
    }
}

/// A phase of a foreign command: it begins at the first line matching `from` and ends at the first later line
/// matching `to` (which may be the same line).
#[derive(Debug, Clone)]
pub struct PhaseRule {
    /// Its name.
    pub name: String,
    /// First line of the phase.
    pub from: Regex,
    /// Last line of the phase.
    pub to: Regex,
}

/// One attempt to supervise.
#[derive(Debug, Clone)]
pub struct AttemptSpec {
    /// Program and arguments; `argv[0]` is an absolute path. Never a shell line.
    pub argv: Vec<String>,
    /// Working directory of the child.
    pub cwd: PathBuf,
    /// The child's complete environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// The attempt's folder; must exist. All files of the attempt are written here.
    pub dir: PathBuf,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Core policy.
    pub core: CorePolicy,
    /// Bytes of output kept (head and tail); the rest is counted, cut and marked.
    pub output_cap: u64,
    /// Terminal size: columns, rows.
    pub size: (u16, u16),
    /// Give stderr a pipe of its own (`stderr.raw`) instead of the pty.
    pub separate_stderr: bool,
    /// Phases of a foreign command.
    pub phase_rules: Vec<PhaseRule>,
    /// Open a pipe for engine events and name its descriptor in `LEGWORK_EVENTS_FD`.
    pub events: bool,
    /// End the attempt soon after a line that no run survives (GPU hang, memory access fault …).
    pub fatal_patterns: bool,
    /// Limit on the memory of the tree, bytes (cgroup).
    pub memory_max: Option<u64>,
    /// Places whose free space is watched while the attempt runs: the run directory, the stage.
    pub disks: Vec<PathBuf>,
    /// Free bytes below which the attempt is ended, so that the report can still be written; `None` is the smaller of
    /// 512 MiB and a twentieth of the file system.
    pub disk_floor: Option<u64>,
    /// Fake board: a directory read instead of `/` for `/sys`, `/proc/…` of the board and `/dev/kmsg`.
    pub sysroot: Option<PathBuf>,
    /// The executable that serves as spawn stub (`EXE spawn-stub …`); default this executable.
    pub stub_exe: Option<PathBuf>,
    /// Interval of telemetry samples; zero switches telemetry off.
    pub telemetry_every: Duration,
    /// On a deadline, take stacks (`/proc`, gdb) before ending the tree.
    pub dump_on_deadline: bool,
    /// On a deadline, end the leader with SIGABRT first, so that it leaves a core.
    pub abort_on_deadline: bool,
}

impl AttemptSpec {
    /// A spec with the defaults of a leg file: 64 MiB of output, 120×40 terminal, bounded cores, fatal patterns on.
    #[must_use]
    pub fn new(argv: Vec<String>, cwd: PathBuf, dir: PathBuf) -> Self {
        AttemptSpec {
            argv,
            cwd,
            env: Vec::new(),
            dir,
            timeouts: Timeouts::default(),
            core: CorePolicy::Bounded,
            output_cap: 64 << 20,
            size: (120, 40),
            separate_stderr: false,
            phase_rules: Vec::new(),
            events: false,
            fatal_patterns: true,
            memory_max: None,
            disks: Vec::new(),
            disk_floor: None,
            sysroot: None,
            stub_exe: None,
            telemetry_every: Duration::from_secs(1),
            dump_on_deadline: true,
            abort_on_deadline: false,
        }
    }
}

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The pty (stdout, and stderr unless it was separated).
    Out,
    /// The separate stderr pipe.
    Err,
}

/// A line of output as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// CLOCK_MONOTONIC nanoseconds at which its last bytes were read.
    pub mono_ns: u64,
    /// The same moment, wall clock.
    pub wall: DateTime<Utc>,
    /// Where it came from.
    pub stream: Stream,
    /// Its text without the line end; invalid UTF-8 replaced.
    pub text: String,
    /// No newline was seen yet: the line goes on in the next record.
    pub partial: bool,
}

/// One JSON line of the engine's event pipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineEvent {
    /// Its name, e.g. `load_end`.
    pub event: String,
    /// CLOCK_MONOTONIC nanoseconds at the source.
    #[serde(default)]
    pub mono_ns: u64,
    /// Everything else.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

impl EngineEvent {
    /// A field as a number.
    #[must_use]
    pub fn f64(&self, key: &str) -> Option<f64> {
        self.fields.get(key).and_then(serde_json::Value::as_f64)
    }
    /// A field as a non-negative integer.
    #[must_use]
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.fields.get(key).and_then(serde_json::Value::as_u64)
    }
    /// A field as text.
    #[must_use]
    pub fn str(&self, key: &str) -> Option<&str> {
        self.fields.get(key).and_then(serde_json::Value::as_str)
    }
}

/// What the caller wants of a running attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stop {
    /// Go on.
    #[default]
    No,
    /// Stop the whole job (^Z): the tree is stopped, the clocks stand still until the harness is continued.
    Suspend,
    /// End it: SIGTERM, grace, SIGKILL.
    Graceful,
    /// End it now.
    Kill,
}

/// How far an attempt is; handed to [`Control::tick`] a few times a second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Seconds since the start, stopped time left out.
    pub elapsed_s: f64,
    /// Bytes of output so far.
    pub output_bytes: u64,
    /// Lines of output so far.
    pub lines: u64,
    /// The phase that runs now, if one is known.
    pub phase: Option<String>,
    /// Resident memory of the tree now, if it could be read.
    pub rss_bytes: Option<u64>,
    /// CPU seconds of the tree so far.
    pub cpu_s: Option<f64>,
    /// GPU busy, percent.
    pub gpu_busy_pct: Option<f64>,
    /// Processes alive in the tree.
    pub processes: usize,
    /// Seconds since the last sign of life (output, CPU time, GPU).
    pub idle_s: f64,
}

/// The caller's ear and hand on a running attempt. All methods have defaults that do nothing.
pub trait Control {
    /// A line was captured. Live view only: under a flood lines are left out here, never in the files.
    fn on_line(&mut self, _line: &Line) {}
    /// An engine event was captured. Live view only; see [`AttemptOutcome::events`].
    fn on_event(&mut self, _event: &EngineEvent) {}
    /// Called a few times a second.
    fn tick(&mut self, _progress: &Progress) {}
    /// Asked several times a second.
    fn stop_requested(&self) -> Stop {
        Stop::No
    }
}

/// A [`Control`] that listens to nothing.
#[derive(Debug, Default)]
pub struct NoControl;
impl Control for NoControl {}

/// Why the supervisor ended the attempt itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KillReason {
    /// The total deadline.
    Total,
    /// The idle deadline.
    Idle,
    /// A phase's deadline; its name.
    Phase(String),
    /// The lease's end.
    Lease,
    /// A line that no run survives; the line.
    FatalPattern(String),
    /// The caller asked.
    Stopped,
    /// The caller asked twice.
    Killed,
    /// Output went on far past its cap.
    LogFlood,
    /// Free space fell below its floor.
    DiskFull,
}

impl KillReason {
    /// The deadline behind it, in the report's words.
    #[must_use]
    pub fn timed_out(&self) -> Option<model::TimedOut> {
        Some(match self {
            KillReason::Total => model::TimedOut::Total,
            KillReason::Idle => model::TimedOut::Idle,
            KillReason::Phase(name) => model::TimedOut::Phase(name.clone()),
            KillReason::Lease => model::TimedOut::Lease,
            _ => return None,
        })
    }
}

/// A thread of a core file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreThread {
    /// Thread id.
    pub tid: i32,
    /// Program counter.
    pub pc: Option<u64>,
    /// The mapped file that holds the program counter.
    pub module: Option<String>,
}

/// A mapped file named in a core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreModule {
    /// Path as mapped.
    pub path: String,
    /// Lowest address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// GNU build id, hex, where one was found in the core.
    pub build_id: Option<String>,
}

/// A core file that was found and kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreFile {
    /// The process that left it.
    pub pid: i32,
    /// Its name.
    pub comm: Option<String>,
    /// Where it is kept, relative to the attempt's folder; `None` when it was seen but could not be kept.
    pub path: Option<String>,
    /// Bytes of the core as dumped.
    pub size: u64,
    /// SHA-256 of the core as dumped.
    pub sha256: Option<String>,
    /// The dump was cut (limit or disk).
    pub truncated: bool,
    /// Signal.
    pub signal: Option<i32>,
    /// `si_code`.
    pub si_code: Option<i32>,
    /// Fault address.
    pub address: Option<u64>,
    /// Program counter of the thread that crashed.
    pub pc: Option<u64>,
    /// The mapped file that holds that program counter: the faulting module.
    pub module: Option<String>,
    /// Offset of the program counter in that file.
    pub module_offset: Option<u64>,
    /// The process's threads; the first is the one that crashed.
    pub threads: Vec<CoreThread>,
    /// Mapped files.
    pub modules: Vec<CoreModule>,
    /// Backtrace file relative to the attempt's folder.
    pub backtrace: Option<String>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

/// How the kernel's log was captured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelLogInfo {
    /// `kmsg`, `journalctl`, `dmesg`, `sysroot` or `none`.
    pub source: String,
    /// Records inside the window.
    pub records: u64,
    /// Records that the ring buffer lost inside the window (sequence gaps).
    pub lost: u64,
    /// Sequence number of the first record of the window.
    pub first_seq: Option<u64>,
    /// Sequence number of the last record of the window.
    pub last_seq: Option<u64>,
    /// Why there is less than there could be.
    pub note: Option<String>,
}

/// A collector that worked, or did not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectorNote {
    /// Its name, e.g. `proc-connector`.
    pub name: String,
    /// Whether it delivered.
    pub ok: bool,
    /// What was missing, or what it delivered.
    pub note: String,
}

/// Processes that SIGKILL did not end, and what they wait in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Their pids.
    pub pids: Vec<i32>,
    /// Kernel functions in which they wait.
    pub wchan: Vec<String>,
    /// Kernel stack of the first that may be read.
    pub stack: Option<String>,
}

/// What an attempt turned out to be.
#[derive(Debug, Clone)]
pub struct AttemptOutcome {
    /// Process id of the leader.
    pub leader_pid: i32,
    /// How the leader ended.
    pub exit: model::Exit,
    /// Start, wall clock.
    pub started: DateTime<Utc>,
    /// Start, CLOCK_MONOTONIC ns.
    pub start_mono_ns: u64,
    /// End of the leader (or of our patience with it), CLOCK_MONOTONIC ns.
    pub end_mono_ns: u64,
    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC at the start, ns: relates kernel stamps.
    pub boot_offset_ns: i64,
    /// Wall time of the attempt, stopped time left out.
    pub wall_s: f64,
    /// Ends of the processes below the leader: crashes, failures and those still alive; successes only up to a bound.
    pub descendants: Vec<model::Descendant>,
    /// Every pid that belonged to the tree, the leader included (bounded).
    pub pids: Vec<i32>,
    /// Processes that outlived the leader.
    pub leaks: Vec<model::Leak>,
    /// Bytes captured; `None` when capture itself failed (`CAPTURE_FAILED`).
    pub output_bytes: Option<u64>,
    /// Whether stamps can be read as times; `None` without lines.
    pub stamps: Option<model::Stamps>,
    /// Seconds per phase, by name.
    pub phases: BTreeMap<String, f64>,
    /// Engine events (bounded; all are in `events.jsonl`).
    pub events: Vec<EngineEvent>,
    /// Peak resident memory of the tree.
    pub peak_rss_bytes: Option<u64>,
    /// Kernel log.
    pub kernel_log: KernelLogInfo,
    /// Cores.
    pub cores: Vec<CoreFile>,
    /// Set when we ended it.
    pub killed_by_us: Option<KillReason>,
    /// Output was cut at its cap.
    pub truncated: bool,
    /// A process survived SIGKILL.
    pub unkillable: bool,
    /// Who that is.
    pub stuck: Option<Stuck>,
    /// What the caller should know besides.
    pub warnings: Vec<String>,
    /// Collectors and what they delivered.
    pub collectors: Vec<CollectorNote>,
    /// Files of the attempt: name → path relative to the attempt's folder.
    pub files: model::Files,
}

/// Where in the stub a spawn failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpawnStep {
    /// The stub did not get its orders.
    Orders,
    /// `fork`.
    Fork,
    /// `setsid` or the controlling terminal.
    Session,
    /// Standard streams.
    Streams,
    /// Resource limits.
    Limits,
    /// Working directory.
    Chdir,
    /// `execve`.
    Exec,
}

/// Why an attempt could not be supervised. A child that runs and fails is no error.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The spec asks for something impossible.
    #[error("attempt: {0}")]
    Spec(String),
    /// The child could not be started.
    #[error("cannot start {program}: {}: {message}{}", step_words(*.step), hint(*.step, *.errno))]
    Spawn {
        /// What was to run.
        program: String,
        /// Where it failed.
        step: SpawnStep,
        /// The system's error number.
        errno: i32,
        /// In words.
        message: String,
    },
    /// The attempt's files could not be written or a facility failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
}

impl SuperviseError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| SuperviseError::Io { what, source }
    }
}

fn step_words(step: SpawnStep) -> &'static str {
    match step {
        SpawnStep::Orders => "the spawn stub got no orders",
        SpawnStep::Fork => "fork",
        SpawnStep::Session => "new session",
        SpawnStep::Streams => "standard streams",
        SpawnStep::Limits => "resource limits",
        SpawnStep::Chdir => "working directory",
        SpawnStep::Exec => "exec",
    }
}

fn hint(step: SpawnStep, errno: i32) -> &'static str {
    match (step, errno) {
        (SpawnStep::Exec, libc::EACCES) => {
            " (no execute permission, or the file system is mounted noexec: stage it to a local disk)"
        }
        (SpawnStep::Exec, libc::ENOENT) => {
            " (the file, or the interpreter it names, does not exist)"
        }
        (SpawnStep::Exec, libc::ENOEXEC) => {
            " (neither a program for this machine nor a script with a #! line)"
        }
        _ => "",
    }
}
