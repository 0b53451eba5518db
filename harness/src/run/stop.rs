//! The user's and the job runner's wish to stop: ^C once is a graceful end with a report, twice ends the children at once;
//! SIGTERM is the runner's, and the report is written within its grace.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::supervise::Stop;

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static TERMINATIONS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_interrupt(_: i32) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn on_terminate(_: i32) {
    TERMINATIONS.fetch_add(1, Ordering::Relaxed);
}

/// What has been asked for so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StopFlags;

impl StopFlags {
    /// Listens to SIGINT, SIGTERM and SIGHUP from now on.
    #[must_use]
    pub fn install() -> StopFlags {
        for (signal, handler) in [
            (Signal::SIGINT, on_interrupt as extern "C" fn(i32)),
            (Signal::SIGTERM, on_terminate),
            (Signal::SIGHUP, on_terminate),
        ] {
            let action = SigAction::new(
                SigHandler::Handler(handler),
                SaFlags::SA_RESTART,
                SigSet::empty(),
            );
            // SAFETY: both handlers only add to an atomic, which is async-signal-safe.
            let _ = unsafe { sigaction(signal, &action) };
        }
        StopFlags
    }

    /// What the supervisor is to do.
    #[must_use]
    pub fn wanted(self) -> Stop {
        match (
            INTERRUPTS.load(Ordering::Relaxed),
            TERMINATIONS.load(Ordering::Relaxed),
        ) {
            (0, 0) => Stop::No,
            (i, t) if i + t >= 2 => Stop::Kill,
            _ => Stop::Graceful,
        }
    }

    /// Whether no further attempt is to begin.
    #[must_use]
    pub fn stopping(self) -> bool {
        self.wanted() != Stop::No
    }

    /// Whether it was the job runner, not the user.
    #[must_use]
    pub fn terminated(self) -> bool {
        TERMINATIONS.load(Ordering::Relaxed) > 0
    }
}
