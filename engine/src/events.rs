//! What the engine tells while it works: the stderr lines that users parse, and the same as JSON lines for the harness.
//!
//! Events go to the file descriptor that `LEGWORK_EVENTS_FD` names, one JSON object a line, each written with one call and
//! stamped with CLOCK_MONOTONIC at the source, so that no buffer stands between a fact and its time.

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use serde::Serialize;

/// The variable that names the descriptor.
pub const EVENTS_FD: &str = "LEGWORK_EVENTS_FD";

/// Something that happened. Times are in seconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // the variants' documentation and the field names say it
pub enum Event<'a> {
    /// The engine runs.
    Start {
        version: &'a str,
        pid: u32,
        argv: Vec<String>,
    },
    /// A model file is being opened.
    LoadBegin { path: &'a str },
    /// Headers of all shards are read.
    LoadHeader { secs: f64, bytes: u64 },
    /// Weights are where they will be used.
    LoadEnd {
        secs: f64,
        bytes: u64,
        weights_bytes: u64,
        gib_s: Option<f64>,
        mode: &'a str,
        cached_fraction: Option<f64>,
        read_secs: Option<f64>,
        copy_secs: Option<f64>,
        wait_secs: Option<f64>,
    },
    /// The device, and why it was taken.
    Device {
        device: &'a str,
        device_id: u8,
        reason: &'a str,
        threads: usize,
    },
    /// A provider was selected for the first time.
    OpProvider {
        op: &'a str,
        id: u16,
        device: &'a str,
        device_id: u8,
        selected: &'a str,
        priority: i32,
        registered: bool,
        reference: bool,
    },
    /// The KV cache's size.
    Kv {
        max_tokens: usize,
        bytes: usize,
        dtype: &'a str,
        requested: usize,
        resolved: usize,
        sequences: usize,
    },
    /// A generation begins.
    RunBegin {
        run: usize,
        of: usize,
        sequence: usize,
        prompt_tokens: usize,
    },
    /// The first token is known; seconds since the run began.
    FirstToken {
        run: usize,
        sequence: usize,
        secs: f64,
    },
    /// A token; its text may be empty while a character is incomplete.
    Token {
        run: usize,
        sequence: usize,
        index: usize,
        id: u32,
        text: &'a str,
    },
    /// A generation ended.
    RunEnd {
        run: usize,
        of: usize,
        sequence: usize,
        finish_reason: &'a str,
        prompt_tokens: usize,
        completion_tokens: usize,
        secs: f64,
        tok_s: f64,
        prefill_secs: f64,
        prefill_tok_s: f64,
        decode_secs: f64,
        decode_tok_s: Option<f64>,
        text: &'a str,
        token_ids: &'a [u32],
        sparse: bool,
    },
    /// Uses of the reference tier.
    ReferenceTierHits { hits: u64 },
    /// Peak resident memory.
    PeakRss { bytes: u64 },
    /// The engine gives up.
    Fatal { message: &'a str },
    /// The engine is done.
    End {},
}

#[derive(Serialize)]
struct Stamped<'a> {
    mono_ns: u64,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

/// Where events go.
#[derive(Debug, Default)]
pub struct Events {
    out: Option<Mutex<File>>,
}

/// The descriptor that the variable names cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{EVENTS_FD}={value:?} does not name an open file descriptor above 2")]
pub struct EventsError {
    value: String,
}

impl Events {
    /// Takes over the descriptor that the environment names, if it names one.
    ///
    /// # Errors
    /// The value is not the number of an open descriptor.
    pub fn from_env() -> Result<Self, EventsError> {
        let Ok(value) = std::env::var(EVENTS_FD) else {
            return Ok(Events::default());
        };
        let bad = || EventsError {
            value: value.clone(),
        };
        let fd: RawFd = value.parse().map_err(|_| bad())?;
        // SAFETY: F_GETFD only asks about the descriptor.
        if fd <= 2 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(bad());
        }
        // Children of the engine must not hold the harness's pipe open.
        // SAFETY: sets a flag of a descriptor that was just seen to be open.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: the descriptor is open, and the harness opened it for this process alone to own.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Events {
            out: Some(Mutex::new(File::from(fd))),
        })
    }

    /// Sends an event. A reader that went away is no reason to fail a run.
    pub fn send(&self, event: &Event<'_>) {
        let Some(out) = &self.out else { return };
        let Ok(mut line) = serde_json::to_vec(&Stamped {
            mono_ns: monotonic_ns(),
            event,
        }) else {
            return;
        };
        line.push(b'\n');
        if let Ok(mut out) = out.lock() {
            let _ = out.write_all(&line);
        }
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the `timespec` that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Peak resident memory of this process in bytes, if the system tells.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes the `rusage` that it is given.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed, then filled.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_maxrss).ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event = Event::FirstToken {
            run: 1,
            sequence: 0,
            secs: 0.5,
        };
        let line = serde_json::to_string(&Stamped {
            mono_ns: 7,
            event: &event,
        })
        .unwrap();
        assert_eq!(
            line,
            r#"{"mono_ns":7,"event":"first_token","run":1,"sequence":0,"secs":0.5}"#
        );
    }

    #[test]
    fn time_goes_on() {
        let a = monotonic_ns();
        assert!(monotonic_ns() >= a && a > 0);
    }
}
