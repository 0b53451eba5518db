//! Starts the guardian and, through it, the leader.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::spec::{AttemptSpec, CorePolicy, SuperviseError};
use super::stub::{EVENTS_FD, Orders, Word};
use crate::os::cgroup::Cgroup;
use crate::os::wake::wait_readable;
use crate::os::{process, pty};

/// Longest time from the go to the program's start: what takes longer waits for a share that does not answer.
const START: Duration = Duration::from_secs(60);
/// Largest core of the bounded policy.
const BOUNDED_CORE: u64 = 8 << 30;

/// A guardian that waits for its go.
pub struct Started {
    /// The guardian.
    pub guardian: Child,
    /// Its control pipe: write `G` to go; close to end everything.
    pub control: PipeWriter,
    /// Its words, line by line.
    pub words: BufReader<PipeReader>,
    /// Terminal, our side.
    pub pty: File,
    /// Separate stderr, our side.
    pub stderr: Option<PipeReader>,
    /// Engine events, our side.
    pub events: Option<PipeReader>,
}

/// `RLIMIT_CORE` of a policy: `None` is no limit.
#[must_use]
pub fn core_limit(policy: CorePolicy, free: Option<u64>) -> Option<u64> {
    match policy {
        CorePolicy::Off => Some(0),
        CorePolicy::Bounded => Some(free.map_or(BOUNDED_CORE, |f| (f / 4).min(BOUNDED_CORE))),
        CorePolicy::Full => None,
    }
}

/// Starts the guardian with everything prepared; the leader does not run yet.
pub fn start(spec: &AttemptSpec, cgroup: &Cgroup) -> Result<Started, SuperviseError> {
    let io = SuperviseError::io;
    let pty = pty::open(spec.size).map_err(io("open a pseudo-terminal"))?;
    let (control_rx, control) = io::pipe().map_err(io("make a pipe"))?;
    let (words, report_tx) = io::pipe().map_err(io("make a pipe"))?;
    let stderr = spec
        .separate_stderr
        .then(io::pipe)
        .transpose()
        .map_err(io("make a pipe"))?;
    let events = spec
        .events
        .then(io::pipe)
        .transpose()
        .map_err(io("make a pipe"))?;
    for rx in [&stderr, &events].into_iter().flatten() {
        pty::set_nonblocking(&rx.0).map_err(io("make a pipe non-blocking"))?;
    }
    let mut env = spec.env.clone();
    let gpu_core = crate::evidence::board_dump::gpu_core_env(&spec.dir);
    if spec.core != CorePolicy::Off
        && Path::new("/dev/kfd").exists()
        && !env.iter().any(|(k, _)| *k == gpu_core.0)
    {
        env.push(gpu_core);
    }
    if spec.events {
        env.retain(|(k, _)| k != "LEGWORK_EVENTS_FD");
        env.push(("LEGWORK_EVENTS_FD".into(), EVENTS_FD.to_string()));
    }
    let orders = Orders {
        argv: spec.argv.clone(),
        env,
        cwd: spec.cwd.clone(),
        tty_fd: pty.slave.as_raw_fd(),
        stderr_fd: stderr.as_ref().map(|p| p.1.as_raw_fd()),
        events_fd: events.as_ref().map(|p| p.1.as_raw_fd()),
        control_fd: control_rx.as_raw_fd(),
        report_fd: report_tx.as_raw_fd(),
        cgroup_procs: cgroup.procs_files(),
        cgroup_dirs: cgroup.dirs(),
        core_limit: core_limit(spec.core, process::free_bytes(&spec.dir)),
        oom_score_adj: 500, // under memory pressure the leg goes, not the harness that keeps the record
        coredump_filter: match spec.core {
            CorePolicy::Off => None,
            CorePolicy::Bounded => Some(0x11), // private anonymous memory and ELF headers
            CorePolicy::Full => Some(0x33),
        },
    };
    let orders = orders_file(&orders).map_err(io("hand orders to the spawn stub"))?;
    let mut pass: Vec<RawFd> = vec![
        orders.as_raw_fd(),
        pty.slave.as_raw_fd(),
        control_rx.as_raw_fd(),
        report_tx.as_raw_fd(),
    ];
    pass.extend(stderr.as_ref().map(|p| p.1.as_raw_fd()));
    pass.extend(events.as_ref().map(|p| p.1.as_raw_fd()));
    let exe = spec
        .stub_exe
        .clone()
        .unwrap_or_else(|| "/proc/self/exe".into());
    let mut command = Command::new(&exe);
    command
        .arg0("legwork")
        .arg("spawn-stub")
        .arg(orders.as_raw_fd().to_string())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            for &fd in &pass {
                if libc::fcntl(fd, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let guardian = command.spawn().map_err(SuperviseError::io(format!(
        "start the spawn stub {}",
        exe.display()
    )))?;
    Ok(Started {
        guardian,
        control,
        words: BufReader::new(words),
        pty: pty.master,
        stderr: stderr.map(|p| p.0),
        events: events.map(|p| p.0),
    })
    // Our copies of the child's ends close here.
}

impl Started {
    /// Lets the leader start; returns its pid and what it had to do without.
    pub fn go(&mut self, program: &str) -> Result<(i32, Vec<String>), SuperviseError> {
        self.control
            .write_all(b"G")
            .map_err(SuperviseError::io("tell the spawn stub to go"))?;
        let mut notes = Vec::new();
        let mut leader = None;
        let until = Instant::now() + patience();
        loop {
            let mut line = String::new();
            // The stub writes whole lines, so a readable pipe does not keep us waiting in the middle of one.
            while self.words.buffer().is_empty()
                && !wait_readable(&[self.words.get_ref().as_raw_fd()], 1000)
                    .first()
                    .copied()
                    .unwrap_or(false)
            {
                if Instant::now() >= until {
                    return Err(self.stuck(program, leader));
                }
            }
            let n = self
                .words
                .read_line(&mut line)
                .map_err(SuperviseError::io("hear from the spawn stub"))?;
            if n == 0 {
                if let Some(pid) = leader {
                    return Ok((pid, notes)); // the leg was quick to kill its parent
                }
                let status = self
                    .guardian
                    .wait()
                    .map(|s| s.to_string())
                    .unwrap_or_default();
                return Err(SuperviseError::Io {
                    what: format!("the spawn stub ended before the child ran ({status})"),
                    source: io::Error::other("no word from it"),
                });
            }
            match serde_json::from_str::<Word>(&line) {
                Ok(Word::Leader { pid }) => leader = Some(pid),
                Ok(Word::Running) => {
                    if let Some(pid) = leader {
                        return Ok((pid, notes));
                    }
                }
                Ok(Word::Note { text }) => notes.push(text),
                Ok(Word::Failed { step, errno, what }) => {
                    let mut message = io::Error::from_raw_os_error(errno).to_string();
                    if !what.is_empty() && what != program {
                        message = format!("{what}: {message}");
                    }
                    let program = program.to_owned();
                    return Err(SuperviseError::Spawn {
                        program,
                        step,
                        errno,
                        message,
                    });
                }
                _ => {}
            }
        }
    }
}

impl Started {
    /// The leader neither runs nor fails: it waits inside the kernel for its folder or its program.
    fn stuck(&mut self, program: &str, leader: Option<i32>) -> SuperviseError {
        let wchan = leader
            .and_then(|p| crate::os::procfs::read_text(format!("/proc/{p}/wchan")))
            .filter(|w| w != "0")
            .map_or_else(String::new, |w| format!(", waiting in {w}"));
        for pid in leader
            .into_iter()
            .chain(i32::try_from(self.guardian.id()).ok())
        {
            let _ = process::kill(pid, libc::SIGKILL);
        }
        SuperviseError::Spawn {
            program: program.to_owned(),
            step: super::spec::SpawnStep::Chdir,
            errno: libc::ETIMEDOUT,
            message: format!(
                "the program did not start within {} s{wchan}: timed out, its folder or file may lie on a share that does not answer",
                patience().as_secs()
            ),
        }
    }
}

/// [`START`], or `LEGWORK_PATIENCE_S`: how long anything on a share may take to answer.
fn patience() -> Duration {
    crate::stage::patience().min(START)
}

/// Orders go through an unlinked memory file: no limit on their size, nothing in `/proc/PID/cmdline`.
fn orders_file(o: &Orders) -> io::Result<File> {
    // SAFETY: the name is a valid C string; the result is checked before it is owned.
    let fd = unsafe { libc::memfd_create(c"legwork-orders".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is a fresh, open descriptor that nobody else owns.
    let mut f = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    f.write_all(&serde_json::to_vec(o)?)?;
    f.rewind()?;
    Ok(f)
}
