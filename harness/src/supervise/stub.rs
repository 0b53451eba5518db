//! The spawn stub: the hidden subcommand `spawn-stub` that every attempt is started through.
//!
//! One process (the *guardian*) forks the leader, prepares it (own session, terminal, control group, limits) and
//! executes the leg's program in it. The guardian stays: it is the leader's parent and the subreaper of its tree, so
//! it learns the status of the leader and of every orphan from `waitid`, and tells the harness by JSON lines. It
//! reads a pipe from the harness; when that closes, because the harness is done or was killed, the guardian ends
//! whatever is left of the tree. A leg that kills its parent kills the guardian, not the harness, which is the next
//! subreaper above and goes on.
//!
//! Argument: one descriptor number, of a file that holds [`Orders`] as JSON.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use legwork_reports::model::ProcessEnd;
use serde::{Deserialize, Serialize};

use super::spec::SpawnStep;
use crate::os::process::{self, Which};
use crate::os::{clock, procfs, pty};

/// Exit code of the stub when it was called wrongly; everything else it says over its pipe.
pub const STUB_FAILED: i32 = 113;

/// What the stub is to do; descriptors are numbers that are open in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Complete environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Terminal (slave side).
    pub tty_fd: RawFd,
    /// Write end for stderr, if it is separate.
    pub stderr_fd: Option<RawFd>,
    /// Write end for engine events; the leader gets it as descriptor 3.
    pub events_fd: Option<RawFd>,
    /// Read end: `G` is go, end of file is the end.
    pub control_fd: RawFd,
    /// Write end for [`Word`]s.
    pub report_fd: RawFd,
    /// Files of control groups to write `0` into.
    pub cgroup_procs: Vec<PathBuf>,
    /// `cgroup.kill` and the like: folders of the groups.
    pub cgroup_dirs: Vec<PathBuf>,
    /// `RLIMIT_CORE`, bytes; `None` is unlimited.
    pub core_limit: Option<u64>,
    /// `oom_score_adj` of the leader.
    pub oom_score_adj: i32,
    /// `coredump_filter` of the leader.
    pub coredump_filter: Option<u32>,
}

/// Descriptor that the leader finds its event pipe at.
pub const EVENTS_FD: RawFd = 3;

/// What the guardian says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Word {
    /// The leader exists; what it does next is its own affair, killing its parent included.
    Leader {
        /// Its pid.
        pid: i32,
    },
    /// The leader runs its program.
    Running,
    /// The leader could not be started.
    Failed {
        /// Where.
        step: SpawnStep,
        /// Why.
        errno: i32,
        /// What was missing or refused, if it is a file.
        what: String,
    },
    /// Less than asked, but it runs.
    Note {
        /// In words.
        text: String,
    },
    /// A child of the guardian ended.
    End {
        /// Its pid.
        pid: i32,
        /// Its name.
        comm: Option<String>,
        /// How.
        end: ProcessEnd,
        /// When it was reaped.
        mono_ns: u64,
        /// Largest resident size of it or of a child that it waited for, bytes.
        max_rss: u64,
    },
    /// The guardian has no child left.
    Empty,
}

/// What a failed step between fork and exec says over the error pipe.
#[derive(Debug, Serialize, Deserialize)]
struct Fault {
    step: SpawnStep,
    errno: i32,
    what: String,
    fatal: bool,
}

/// Entry point of the hidden subcommand; returns the process's exit code.
#[must_use]
pub fn main() -> i32 {
    let Some(fd) = std::env::args()
        .nth(2)
        .and_then(|a| a.parse::<RawFd>().ok())
    else {
        eprintln!("legwork spawn-stub is started by legwork itself; run `legwork --help`");
        return STUB_FAILED;
    };
    // SAFETY: the harness passes this open descriptor to us and nobody else in this process uses it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let mut text = String::new();
    let orders: Orders = match file
        .rewind()
        .and_then(|()| file.read_to_string(&mut text))
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_str(&text).map_err(|e| e.to_string()))
    {
        Ok(o) => o,
        Err(e) => {
            eprintln!("legwork spawn-stub: no orders: {e}");
            return STUB_FAILED;
        }
    };
    drop(file);
    guard(&orders)
}

fn guard(o: &Orders) -> i32 {
    // SAFETY: these descriptors were passed to us by the harness for this use only.
    let (mut control, report) = unsafe {
        (
            File::from(OwnedFd::from_raw_fd(o.control_fd)),
            OwnedFd::from_raw_fd(o.report_fd),
        )
    };
    let mut report = File::from(report);
    for fd in [o.control_fd, o.report_fd] {
        set_cloexec(fd);
    }
    ignore_job_signals();
    let _ = nix::unistd::setsid();
    let _ = process::become_subreaper();
    let mut go = [0u8; 1];
    if !matches!(control.read(&mut go), Ok(1)) {
        return 0; // the harness changed its mind
    }
    let (mut fault_rx, fault_tx) = match io::pipe() {
        Ok(p) => p,
        Err(e) => {
            say(&mut report, &failed(SpawnStep::Fork, &e, ""));
            return STUB_FAILED;
        }
    };
    // SAFETY: this process has one thread, so the child may run any code.
    let leader = match unsafe { libc::fork() } {
        -1 => {
            say(
                &mut report,
                &failed(SpawnStep::Fork, &io::Error::last_os_error(), ""),
            );
            return STUB_FAILED;
        }
        0 => {
            let fault = become_leg(o, fault_tx.as_raw_fd());
            if let Ok(t) = serde_json::to_vec(&fault) {
                let _ = File::from(OwnedFd::from(fault_tx)).write_all(&line(t));
            }
            // SAFETY: _exit ends the process at once; nothing of the parent's is flushed twice.
            unsafe { libc::_exit(STUB_FAILED) }
        }
        pid => pid,
    };
    drop(fault_tx);
    say(&mut report, &Word::Leader { pid: leader });
    for fd in [Some(o.tty_fd), o.stderr_fd, o.events_fd]
        .into_iter()
        .flatten()
    {
        // SAFETY: passed to us by the harness; only the leader needs them from here on.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let mut faults = String::new();
    let _ = fault_rx.read_to_string(&mut faults); // ends at exec
    for f in faults
        .lines()
        .filter_map(|l| serde_json::from_str::<Fault>(l).ok())
    {
        if f.fatal {
            let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(leader), None);
            say(
                &mut report,
                &Word::Failed {
                    step: f.step,
                    errno: f.errno,
                    what: f.what,
                },
            );
            return 0;
        }
        let why = io::Error::from_raw_os_error(f.errno);
        say(
            &mut report,
            &Word::Note {
                text: format!("{}: {why}", f.what),
            },
        );
    }
    say(&mut report, &Word::Running);
    reap_until_told(o, &control, &mut report)
}

fn reap_until_told(o: &Orders, control: &File, report: &mut File) -> i32 {
    let mut mask = nix::sys::signal::SigSet::empty();
    mask.add(nix::sys::signal::Signal::SIGCHLD);
    let _ = mask.thread_block();
    let sfd = nix::sys::signalfd::SignalFd::with_flags(
        &mask,
        nix::sys::signalfd::SfdFlags::SFD_NONBLOCK | nix::sys::signalfd::SfdFlags::SFD_CLOEXEC,
    );
    let mut empty_said = false;
    loop {
        let none_left = reap(report);
        if none_left && !empty_said {
            say(report, &Word::Empty);
        }
        empty_said = none_left;
        let mut fds = [
            libc::pollfd {
                fd: control.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
            libc::pollfd {
                fd: sfd.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                events: libc::POLLIN,
                revents: 0,
            },
        ];
        // SAFETY: the array is valid for its length. The timeout covers a kernel without signalfd.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, 1000) };
        if let Ok(s) = &sfd {
            while let Ok(Some(_)) = s.read_signal() {}
        }
        if fds[0].revents != 0 {
            let mut b = [0u8; 16];
            let mut c = control;
            if !matches!(c.read(&mut b), Ok(n) if n > 0) {
                break;
            }
        }
    }
    end_everything(o, report);
    0
}

/// Reaps all that has ended; true when there is no child left.
fn reap(report: &mut File) -> bool {
    loop {
        match process::wait(Which::Any, false) {
            Ok(Some(e)) => {
                let comm = procfs::comm(e.pid); // while it is still a zombie
                let max_rss = process::wait(Which::Pid(e.pid), true)
                    .ok()
                    .flatten()
                    .map_or(0, |r| r.max_rss);
                let mono_ns = clock::mono_ns();
                say(
                    report,
                    &Word::End {
                        pid: e.pid,
                        comm,
                        end: e.end,
                        mono_ns,
                        max_rss,
                    },
                );
            }
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

fn end_everything(o: &Orders, report: &mut File) {
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        for d in &o.cgroup_dirs {
            let _ = std::fs::write(d.join("cgroup.kill"), "1");
            for p in crate::os::cgroup::members(d) {
                let _ = process::kill(p, libc::SIGKILL);
            }
        }
        for s in procfs::descendants_in(&procfs::all_stats(), me) {
            let _ = process::kill(s.pid, libc::SIGKILL);
        }
        if reap(report) || Instant::now() > until {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for d in &o.cgroup_dirs {
        let _ = std::fs::remove_dir(d);
    }
}

fn say(report: &mut File, w: &Word) {
    if let Ok(t) = serde_json::to_vec(w) {
        let _ = report.write_all(&line(t));
    }
}

fn line(mut t: Vec<u8>) -> Vec<u8> {
    t.push(b'\n');
    t
}

fn failed(step: SpawnStep, e: &io::Error, what: &str) -> Word {
    Word::Failed {
        step,
        errno: e.raw_os_error().unwrap_or(0),
        what: what.to_owned(),
    }
}

fn set_cloexec(fd: RawFd) {
    // SAFETY: fcntl on a descriptor number touches no memory.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

fn ignore_job_signals() {
    for s in [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGTSTP,
        libc::SIGPIPE,
    ] {
        // SAFETY: ignoring a signal installs no handler of ours.
        unsafe { libc::signal(s, libc::SIG_IGN) };
    }
}

/// Turns this freshly forked process into the leg. Returns only when it could not.
fn become_leg(o: &Orders, fault_fd: RawFd) -> Fault {
    let fault = |step, what: &str| {
        let e = io::Error::last_os_error();
        Fault {
            step,
            errno: e.raw_os_error().unwrap_or(0),
            what: what.to_owned(),
            fatal: true,
        }
    };
    let note = |what: String, e: &io::Error| {
        let f = Fault {
            step: SpawnStep::Limits,
            errno: e.raw_os_error().unwrap_or(0),
            what,
            fatal: false,
        };
        if let Ok(t) = serde_json::to_vec(&f) {
            let t = line(t);
            // SAFETY: the buffer is valid for its length.
            unsafe { libc::write(fault_fd, t.as_ptr().cast(), t.len()) };
        }
    };
    if nix::unistd::setsid().is_err() {
        return fault(SpawnStep::Session, "setsid");
    }
    if pty::make_controlling(&o.tty_fd).is_err() {
        return fault(SpawnStep::Session, "controlling terminal");
    }
    for p in &o.cgroup_procs {
        if let Err(e) = std::fs::write(p, "0") {
            note(
                format!("cannot enter the control group {}", p.display()),
                &e,
            );
        }
    }
    let core = o.core_limit.unwrap_or(libc::RLIM_INFINITY);
    if let Err(e) = set_core_limit(core) {
        note("RLIMIT_CORE".into(), &e);
    }
    if let Err(e) = std::fs::write("/proc/self/oom_score_adj", o.oom_score_adj.to_string()) {
        note("oom_score_adj".into(), &e);
    }
    if let Some(f) = o.coredump_filter
        && let Err(e) = std::fs::write("/proc/self/coredump_filter", format!("{f:#x}"))
    {
        note("coredump_filter".into(), &e);
    }
    // The error pipe must survive the shuffle below and close at exec.
    // SAFETY: descriptor numbers only.
    let high = |fd: RawFd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) };
    let (tty, err, ev) = (high(o.tty_fd), o.stderr_fd.map(high), o.events_fd.map(high));
    let Ok(null) = CString::new("/dev/null") else {
        return fault(SpawnStep::Streams, "/dev/null");
    };
    // SAFETY: descriptor numbers, and a string that lives through the call.
    let ok = unsafe {
        let null = libc::open(null.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        null >= 0
            && libc::dup2(null, 0) == 0
            && libc::dup2(tty, 1) == 1
            && libc::dup2(err.unwrap_or(tty), 2) == 2
            && ev.is_none_or(|e| libc::dup2(e, EVENTS_FD) == EVENTS_FD)
    };
    if !ok {
        return fault(SpawnStep::Streams, "standard streams");
    }
    let first_closed =
        libc::c_uint::try_from(if ev.is_some() { EVENTS_FD + 1 } else { 3 }).unwrap_or(3);
    // SAFETY: marks descriptors for closing at exec; touches no memory.
    if unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first_closed,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    } != 0
    {
        for fd in RawFd::try_from(first_closed).unwrap_or(3)..1024 {
            set_cloexec(fd);
        }
    }
    if let Err(e) = std::env::set_current_dir(&o.cwd) {
        return Fault {
            step: SpawnStep::Chdir,
            errno: e.raw_os_error().unwrap_or(0),
            what: o.cwd.display().to_string(),
            fatal: true,
        };
    }
    reset_signals();
    let invalid = || Fault {
        step: SpawnStep::Exec,
        errno: libc::EINVAL,
        what: "an argument or a variable holds a NUL byte".to_owned(),
        fatal: true,
    };
    let c = |s: &str| CString::new(s).ok();
    let Some(argv) = o.argv.iter().map(|a| c(a)).collect::<Option<Vec<_>>>() else {
        return invalid();
    };
    let Some(env) = o
        .env
        .iter()
        .map(|(k, v)| c(&format!("{k}={v}")))
        .collect::<Option<Vec<_>>>()
    else {
        return invalid();
    };
    let Some(program) = argv.first() else {
        return invalid();
    };
    let _ = nix::unistd::execve(program, &argv, &env);
    fault(
        SpawnStep::Exec,
        &String::from_utf8_lossy(std::ffi::OsStr::from_bytes(program.as_bytes()).as_bytes()),
    )
}

fn set_core_limit(bytes: u64) -> io::Result<()> {
    // SAFETY: both calls read or fill a struct that lives through them.
    unsafe {
        let mut have: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_CORE, &raw mut have) != 0 {
            return Err(io::Error::last_os_error());
        }
        let want = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: bytes.max(have.rlim_max),
        };
        if libc::setrlimit(libc::RLIMIT_CORE, &raw const want) == 0 {
            return Ok(());
        }
        // Without the right to raise the hard limit: as much as there is.
        let less = libc::rlimit {
            rlim_cur: bytes.min(have.rlim_max),
            rlim_max: have.rlim_max,
        };
        if libc::setrlimit(libc::RLIMIT_CORE, &raw const less) == 0 && bytes <= have.rlim_max {
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}

fn reset_signals() {
    for s in 1..=64 {
        if s != libc::SIGKILL && s != libc::SIGSTOP {
            // SAFETY: restores defaults; numbers that are no signals are refused by the kernel.
            unsafe { libc::signal(s, libc::SIG_DFL) };
        }
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}
