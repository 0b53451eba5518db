//! Shares that die or hang: nothing in the harness's own process waits for one.
//!
//! A process that waits for a share may be beyond the reach of SIGKILL until the share answers (and then the harness
//! could not even end itself). So whatever touches a share is done by a child with a time limit, which is given up
//! when it does not answer: a question (`probe`) by a bare fork, work (`copy`, `hash`, `archive`) by this executable
//! as `share-worker`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::copy::{StagedFile, copy_verified, sha256_file};
use super::{StageError, mount_of};
use crate::os::{helper, process};

/// Hidden verb of the working child.
pub const VERB: &str = "share-worker";

/// How long a share may take to answer: a minute, or `LEGWORK_PATIENCE_S`.
#[must_use]
pub fn patience() -> Duration {
    std::env::var("LEGWORK_PATIENCE_S")
        .ok()
        .and_then(|v| v.trim().parse().ok())
        .filter(|s| *s > 0)
        .map_or(Duration::from_secs(60), Duration::from_secs)
}

/// Patience for that many bytes: at 5 MB/s.
fn patience_for(bytes: u64) -> Duration {
    patience() + Duration::from_secs(bytes / 5_000_000)
}

/// Whether a path lies on another machine or is served by a process. Asks nobody.
#[must_use]
pub fn is_remote(path: &Path) -> bool {
    mount_of(path).is_some_and(|m| m.network())
}

/// What a share answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is there.
    Fine,
    /// An error of the file system, not of the path.
    Gone(String),
    /// No answer in time.
    Hangs,
}

/// Asks the file system of a path whether it is there.
#[must_use]
pub fn probe(path: &Path, limit: Duration) -> Answer {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return Answer::Fine;
    };
    // SAFETY: the child of this fork calls only functions that are async-signal-safe on memory that exists already.
    let pid = match unsafe { libc::fork() } {
        -1 => return Answer::Fine,
        0 => {
            // SAFETY: a C string and a zeroed struct that live through the calls; _exit ends the copy at once.
            unsafe {
                let mut s: libc::statvfs = std::mem::zeroed();
                let mut e = 0;
                if libc::statvfs(name.as_ptr(), &raw mut s) != 0 {
                    e = *libc::__errno_location();
                }
                if e == 0 {
                    let fd = libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                    if fd < 0 {
                        e = *libc::__errno_location();
                    } else if libc::read(fd, [0u8; 1].as_mut_ptr().cast(), 1) < 0 {
                        e = *libc::__errno_location(); // EISDIR for a folder
                    }
                }
                libc::_exit(e & 0xff)
            }
        }
        pid => pid,
    };
    let until = Instant::now() + limit;
    let mut killed = false;
    loop {
        if let Ok(Some(ended)) = process::wait(process::Which::Pid(pid), true) {
            return match ended.end.code {
                Some(e) if is_lost(e) => {
                    Answer::Gone(std::io::Error::from_raw_os_error(e).to_string())
                }
                Some(_) => Answer::Fine,
                None => Answer::Hangs,
            };
        }
        if Instant::now() >= until {
            if killed {
                return Answer::Hangs; // it is beyond SIGKILL: left to whoever reaps it
            }
            killed = process::kill(pid, libc::SIGKILL).is_ok();
        }
        std::thread::sleep(Duration::from_millis(5));
        if killed && Instant::now() >= until + Duration::from_millis(500) {
            return Answer::Hangs;
        }
    }
}

/// Longest time that a share may take to answer a question.
const QUESTION: Duration = Duration::from_secs(10);

/// Patience with a question.
pub(crate) fn question() -> Duration {
    patience().min(QUESTION)
}

/// Whether a path can be asked for things: local, or on a share that answers.
#[must_use]
pub fn answers(path: &Path) -> bool {
    !is_remote(path) || probe(path, question()) == Answer::Fine
}

/// Errors that speak of the file system as a whole.
fn is_lost(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOTCONN
            | libc::ECONNABORTED
            | libc::ECONNRESET
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ESTALE
            | libc::EIO
            | libc::ETIMEDOUT
            | libc::ENODEV
            | libc::ENXIO
            | libc::EREMOTEIO
            | libc::ESHUTDOWN
    )
}

/// Copies a file as [`copy_verified`] does; one that lies on a share, or goes to one, by a child with a time limit.
///
/// # Errors
/// Those of the copy, and `ETIMEDOUT` when the share does not answer.
pub fn copy_patiently(
    role: &str,
    source: &Path,
    target: &Path,
    mode: Option<u32>,
) -> Result<StagedFile, StageError> {
    // Read through /proc: this executable is local, or was made so before.
    if source.starts_with("/proc") || !is_remote(source) {
        return copy_verified(role, source, target, mode);
    }
    let order = Order::Copy {
        role: role.to_owned(),
        from: source.to_owned(),
        to: target.to_owned(),
        mode,
    };
    match work(&order, patience_for(size_on(source))) {
        Ok(Reply::Copied(staged)) => Ok(staged),
        Ok(Reply::Failed(errno)) => Err(StageError::io("reading", source)(
            std::io::Error::from_raw_os_error(errno),
        )),
        Ok(_) => Err(StageError::io("copying", source)(std::io::Error::other(
            "the working child answered something else",
        ))),
        Err(e) => {
            let _ = std::fs::remove_file(target);
            Err(StageError::io("reading", source)(e))
        }
    }
}

/// Hashes a file as [`sha256_file`] does; one on a share by a child with a time limit.
///
/// # Errors
/// Those of reading, and `ETIMEDOUT` when the share does not answer.
pub fn sha256_patiently(path: &Path) -> std::io::Result<(String, u64)> {
    if !is_remote(path) {
        return sha256_file(path);
    }
    let order = Order::Hash {
        path: path.to_owned(),
    };
    match work(&order, patience_for(size_on(path)))? {
        Reply::Hashed(sha, bytes) => Ok((sha, bytes)),
        Reply::Failed(errno) => Err(std::io::Error::from_raw_os_error(errno)),
        _ => Err(std::io::Error::other(
            "the working child answered something else",
        )),
    }
}

/// Size of a file on a share; a share that does not answer has none, and the work itself will say so.
fn size_on(path: &Path) -> u64 {
    match probe(path, patience()) {
        Answer::Fine => std::fs::metadata(path).map_or(0, |m| m.len()),
        _ => 0,
    }
}

/// Copies files of a run directory to an archive; how many, and the first error. An archive that does not answer within
/// its time is an `Err`.
///
/// # Errors
/// `ETIMEDOUT`, or why no child could be started.
pub fn archive_patiently(
    worker: &Path,
    run_dir: &Path,
    target: &Path,
    files: &[PathBuf],
    bytes: u64,
) -> std::io::Result<(usize, Option<String>)> {
    let order = Order::Archive {
        run_dir: run_dir.to_owned(),
        target: target.to_owned(),
        files: files.to_vec(),
    };
    match work_by(worker, &order, patience_for(bytes))? {
        Reply::Archived(n, error) => Ok((n, error)),
        _ => Err(std::io::Error::other(
            "the working child answered something else",
        )),
    }
}

/// What the child is to do.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Copy {
        role: String,
        from: PathBuf,
        to: PathBuf,
        mode: Option<u32>,
    },
    Hash {
        path: PathBuf,
    },
    Archive {
        run_dir: PathBuf,
        target: PathBuf,
        files: Vec<PathBuf>,
    },
}

/// What it came to.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Copied(StagedFile),
    Hashed(String, u64),
    Archived(usize, Option<String>),
    Failed(i32),
}

fn work(order: &Order, limit: Duration) -> std::io::Result<Reply> {
    work_by(Path::new("/proc/self/exe"), order, limit)
}

fn work_by(worker: &Path, order: &Order, limit: Duration) -> std::io::Result<Reply> {
    let mut orders = tempfile::NamedTempFile::new()?;
    serde_json::to_writer(&mut orders, order)?;
    let mut command = Command::new(worker);
    command.arg(VERB).arg(orders.path()).current_dir("/");
    let out = helper::run_bounded(command, limit, 1 << 20)?;
    if out.timed_out {
        return Err(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("no answer within {} s", limit.as_secs()),
        ));
    }
    serde_json::from_slice(&out.output).map_err(|_| {
        std::io::Error::other(format!(
            "the working child failed: {}",
            String::from_utf8_lossy(&out.output).trim()
        ))
    })
}

/// Entry point of the hidden verb; returns the process's exit code.
#[must_use]
pub fn worker_main() -> i32 {
    let order = std::env::args_os()
        .nth(2)
        .and_then(|p| std::fs::read(p).ok())
        .and_then(|t| serde_json::from_slice::<Order>(&t).ok());
    let Some(order) = order else {
        eprintln!("legwork {VERB} is started by legwork itself; run `legwork --help`");
        return super::super::supervise::stub::STUB_FAILED;
    };
    let errno = |e: &std::io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    let reply = match order {
        Order::Copy {
            role,
            from,
            to,
            mode,
        } => match copy_verified(&role, &from, &to, mode) {
            Ok(s) => Reply::Copied(s),
            Err(StageError::Io { source, .. }) => Reply::Failed(errno(&source)),
            Err(_) => Reply::Failed(libc::EIO),
        },
        Order::Hash { path } => match sha256_file(&path) {
            Ok((sha, n)) => Reply::Hashed(sha, n),
            Err(e) => Reply::Failed(errno(&e)),
        },
        Order::Archive {
            run_dir,
            target,
            files,
        } => {
            let (n, error) = copy_all(&run_dir, &target, &files);
            Reply::Archived(n, error)
        }
    };
    match serde_json::to_string(&reply) {
        Ok(t) => {
            println!("{t}");
            0
        }
        Err(_) => 1,
    }
}

/// Copies files of a run directory below `target`; those that are there are replaced.
pub(crate) fn copy_all(
    run_dir: &Path,
    target: &Path,
    files: &[PathBuf],
) -> (usize, Option<String>) {
    let mut copied = 0;
    for file in files {
        let to = target.join(file);
        if let Some(parent) = to.parent()
            && let Err(e) = std::fs::create_dir_all(parent)
        {
            return (copied, Some(format!("{}: {e}", parent.display())));
        }
        // A report is written more than once: the archive's copy is replaced.
        let _ = std::fs::remove_file(&to);
        if let Err(e) = copy_verified("archive", &run_dir.join(file), &to, Some(0o644)) {
            return (copied, Some(e.to_string()));
        }
        copied += 1;
    }
    (copied, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_missing_is_no_lost_share() {
        let d = tempfile::tempdir().unwrap();
        let soon = Duration::from_secs(20);
        assert_eq!(probe(d.path(), soon), Answer::Fine);
        assert_eq!(probe(&d.path().join("nothing"), soon), Answer::Fine);
        assert!(!is_remote(d.path()));
        assert!(is_lost(libc::ENOTCONN) && !is_lost(libc::ENOENT));
    }

    #[test]
    fn who_opens_a_pipe_that_nobody_writes_to_waits_no_longer_than_allowed() {
        let d = tempfile::tempdir().unwrap();
        let p = d.path().join("fifo");
        nix::unistd::mkfifo(&p, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert_eq!(probe(&p, Duration::from_millis(200)), Answer::Hangs);
    }
}
