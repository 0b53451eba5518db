//! The board lock: one run at a time on one machine's board.
//!
//! A file locked with `flock`, so that the lock goes with the process however it ends, and a record beside it that says
//! who holds it: pid, boot id, lease, expiry. Where a lease broker hands out the board, its lease is the first lock and
//! this one only keeps two runs inside one lease apart.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::supervise::leftovers::boot_id;

/// Who holds the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process.
    pub pid: u32,
    /// Boot under which the pid holds.
    pub boot_id: Option<String>,
    /// `RC_JOB_ID`, if there is one.
    pub rc_job_id: Option<String>,
    /// `RC_DEVICE`, if there is one.
    pub rc_device: Option<String>,
    /// Since when.
    pub since: DateTime<Utc>,
    /// When the lease ends, if that is known.
    pub expires: Option<DateTime<Utc>>,
    /// What it is for.
    pub run: String,
}

/// Why the board was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("the board is in use: {} (wait for it, or see {})", describe(holder.as_deref()), record.display())]
    Held {
        /// Who, if it said so.
        holder: Option<Box<Holder>>,
        /// The record.
        record: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("board lock {}: {source} (choose another place with LEGWORK_STATE_DIR)", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
}

fn describe(h: Option<&Holder>) -> String {
    h.map_or_else(
        || "by a process that did not say who it is".into(),
        |h| {
            format!(
                "`{}`, pid {}{}, since {}",
                h.run,
                h.pid,
                h.rc_job_id
                    .as_ref()
                    .map_or(String::new(), |j| format!(", job {j}")),
                h.since.format("%H:%M:%S UTC")
            )
        },
    )
}

/// The lock; dropped, it is free.
#[derive(Debug)]
pub struct Lock {
    file: File,
    record: PathBuf,
    holder: Holder,
}

/// Where locks and quarantines live: `LEGWORK_STATE_DIR`, `/run/legwork` as root, else the user's runtime folder.
#[must_use]
pub fn state_dir() -> PathBuf {
    if let Some(d) = std::env::var_os("LEGWORK_STATE_DIR") {
        return d.into();
    }
    if crate::os::process::is_root() {
        return "/run/legwork".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || std::env::temp_dir().join(format!("legwork-{}", nix::unistd::getuid())),
        |d| PathBuf::from(d).join("legwork"),
    )
}

impl Lock {
    /// Takes the lock of `board` in `dir`, waiting at most `wait`.
    pub fn take(
        dir: &Path,
        board: &str,
        run: &str,
        expires: Option<DateTime<Utc>>,
        wait: Duration,
    ) -> Result<Self, LockError> {
        let path = dir.join(format!("{board}.lock"));
        let record = dir.join(format!("{board}.holder.json"));
        let io = |e| LockError::Io {
            path: path.clone(),
            source: e,
        };
        fs::create_dir_all(dir).map_err(io)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .read(true)
            .open(&path)
            .map_err(io)?;
        let until = Instant::now() + wait;
        loop {
            // SAFETY: flock takes a descriptor number that we own.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                break;
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::WouldBlock {
                return Err(io(e));
            }
            if Instant::now() >= until {
                return Err(LockError::Held {
                    holder: holder(&record).map(Box::new),
                    record,
                });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let holder = Holder {
            pid: std::process::id(),
            boot_id: boot_id(),
            rc_job_id: std::env::var("RC_JOB_ID").ok(),
            rc_device: std::env::var("RC_DEVICE").ok(),
            since: Utc::now(),
            expires,
            run: run.to_owned(),
        };
        let lock = Lock {
            file,
            record,
            holder,
        };
        lock.write().map_err(|e| LockError::Io {
            path: lock.record.clone(),
            source: e,
        })?;
        Ok(lock)
    }

    fn write(&self) -> io::Result<()> {
        let part = self.record.with_extension("part");
        let mut f = File::create(&part)?;
        f.write_all(&serde_json::to_vec_pretty(&self.holder)?)?;
        f.sync_all()?;
        fs::rename(part, &self.record)
    }

    /// Who we said we are.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.record);
        // SAFETY: flock takes a descriptor number that we own.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Who wrote the record, if it can be read.
#[must_use]
pub fn holder(record: &Path) -> Option<Holder> {
    serde_json::from_slice(&fs::read(record).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_has_one_holder_and_says_who() {
        let d = tempfile::tempdir().unwrap();
        let a = Lock::take(d.path(), "gpu0", "first", None, Duration::ZERO).unwrap();
        assert_eq!(a.holder().pid, std::process::id());
        let e =
            Lock::take(d.path(), "gpu0", "second", None, Duration::from_millis(150)).unwrap_err();
        assert!(e.to_string().contains("`first`, pid"), "{e}");
        assert!(Lock::take(d.path(), "gpu1", "other board", None, Duration::ZERO).is_ok());
        drop(a);
        let b = Lock::take(d.path(), "gpu0", "second", None, Duration::ZERO).unwrap();
        drop(b);
        assert!(
            holder(&d.path().join("gpu0.holder.json")).is_none(),
            "nothing is left behind"
        );
        let f = d.path().join("file");
        fs::write(&f, "").unwrap();
        assert!(matches!(
            Lock::take(&f, "x", "y", None, Duration::ZERO),
            Err(LockError::Io { .. })
        ));
    }
}
