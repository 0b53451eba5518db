//! Appending to the journal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use chrono::Utc;
use nix::fcntl::{Flock, FlockArg};

use super::{Entry, Record};

/// The open journal of a run.
#[derive(Debug)]
pub struct Writer {
    /// Locked as long as it is open: two harnesses never write one journal.
    file: Flock<File>,
    seq: u64,
    fall: Option<Fall>,
}

/// Where this process is to die, for tests of resumption: `LEGWORK_KILL_AT=N-` just before record N is written, `N/` in
/// the middle of it, `N+` just after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fall {
    seq: u64,
    how: char,
}

impl Fall {
    fn ordered() -> Option<Fall> {
        let text = std::env::var("LEGWORK_KILL_AT").ok()?;
        let how = text.chars().last().filter(|c| "-/+".contains(*c))?;
        let seq = text.strip_suffix(how)?.parse().ok()?;
        Some(Fall { seq, how })
    }

    /// As `kill -9` would: nothing is flushed, nothing is told.
    fn fall() {
        // SAFETY: ends this process; nothing returns.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        loop {
            std::thread::park();
        }
    }
}

fn lock(file: File) -> std::io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| {
        std::io::Error::new(
            std::io::ErrorKind::WouldBlock,
            format!("another legwork writes this journal ({e})"),
        )
    })
}

impl Writer {
    /// Makes a new journal; an existing one is refused.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn create(path: &Path) -> std::io::Result<Writer> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)?;
        Ok(Writer {
            file: lock(file)?,
            seq: 0,
            fall: Fall::ordered(),
        })
    }

    /// Goes on with an existing journal whose last record had number `seq`. A line that was torn off is ended first, so
    /// that it spoils nothing that follows.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn reopen(path: &Path, seq: u64) -> std::io::Result<Writer> {
        let mut file = lock(OpenOptions::new().read(true).append(true).open(path)?)?;
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0u8; 1];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Writer {
            file,
            seq,
            fall: Fall::ordered(),
        })
    }

    /// Appends one record: a single write, so that two records never mix.
    ///
    /// # Errors
    /// When the disk is full or gone.
    pub fn append(&mut self, entry: Entry) -> std::io::Result<()> {
        self.seq += 1;
        let record = Record {
            seq: self.seq,
            at: Utc::now(),
            mono_ns: monotonic_ns(),
            entry,
        };
        let mut line = serde_json::to_vec(&record).map_err(std::io::Error::other)?;
        line.push(b'\n');
        let how = self.fall.filter(|f| f.seq == self.seq).map(|f| f.how);
        match how {
            Some('-') => Fall::fall(),
            Some('/') => {
                let _ = self.file.write_all(&line[..line.len() / 2]);
                Fall::fall();
            }
            _ => {}
        }
        self.file.write_all(&line)?;
        if how == Some('+') {
            Fall::fall();
        }
        Ok(())
    }

    /// Appends one record and waits until it is on the disk.
    ///
    /// # Errors
    /// When the disk is full or gone.
    pub fn append_sync(&mut self, entry: Entry) -> std::io::Result<()> {
        self.append(entry)?;
        self.file.sync_data()
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
fn monotonic_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000
            + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}
