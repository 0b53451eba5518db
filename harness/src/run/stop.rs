//! The user's and the job runner's wish to stop: ^C once is a graceful end with a report, twice ends the children at once;
//! SIGTERM is the runner's, and the report is written within its grace. ^Z stops the leg and then legwork, until it is
//! continued.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::os::procfs;
use crate::supervise::Stop;

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static TERMINATIONS: AtomicU32 = AtomicU32::new(0);
/// ^Z was pressed and is not acted on yet.
static SUSPEND: AtomicBool = AtomicBool::new(false);
/// A leg runs: it has to be stopped first, by the supervisor.
static LEG_RUNS: AtomicBool = AtomicBool::new(false);
/// Somebody with job control is there to continue us.
static CAN_SUSPEND: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_: i32) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn on_terminate(_: i32) {
    TERMINATIONS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn on_suspend(_: i32) {
    if !CAN_SUSPEND.load(Ordering::Relaxed) {
        return; // as the kernel does for a process group that nobody watches
    }
    if LEG_RUNS.load(Ordering::SeqCst) {
        SUSPEND.store(true, Ordering::SeqCst);
    } else {
        // SAFETY: raise is async-signal-safe; it stops this process until it is continued.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

/// Whether a shell is there that can continue us: above our process group, in our session.
fn watched() -> bool {
    let Some(me) = i32::try_from(std::process::id())
        .ok()
        .and_then(procfs::stat)
    else {
        return false;
    };
    let mut parent = procfs::stat(me.ppid);
    for _ in 0..64 {
        match parent {
            Some(p) if p.pgrp == me.pgrp => parent = procfs::stat(p.ppid),
            Some(p) => return p.session == me.session,
            None => return false,
        }
    }
    false
}

/// What has been asked for so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StopFlags;

/// A leg runs as long as this lives.
#[derive(Debug)]
pub struct LegRuns(());

impl Drop for LegRuns {
    fn drop(&mut self) {
        LEG_RUNS.store(false, Ordering::SeqCst);
        if SUSPEND.swap(false, Ordering::SeqCst) {
            // It came too late for the supervisor.
            // SAFETY: stops this process until it is continued.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }
}

impl StopFlags {
    /// Listens to SIGINT, SIGTERM, SIGHUP and SIGTSTP from now on.
    #[must_use]
    pub fn install() -> StopFlags {
        CAN_SUSPEND.store(watched(), Ordering::Relaxed);
        for (signal, handler) in [
            (Signal::SIGINT, on_interrupt as extern "C" fn(i32)),
            (Signal::SIGTERM, on_terminate),
            (Signal::SIGHUP, on_terminate),
            (Signal::SIGTSTP, on_suspend),
        ] {
            let action = SigAction::new(
                SigHandler::Handler(handler),
                SaFlags::SA_RESTART,
                SigSet::empty(),
            );
            // SAFETY: the handlers only touch atomics and call raise, which is async-signal-safe.
            let _ = unsafe { sigaction(signal, &action) };
        }
        StopFlags
    }

    /// From now on a leg runs, and ^Z is left to its supervisor.
    #[must_use]
    pub fn leg_runs(self) -> LegRuns {
        LEG_RUNS.store(true, Ordering::SeqCst);
        LegRuns(())
    }

    /// What the supervisor is to do; a suspension is handed out once.
    #[must_use]
    pub fn for_supervisor(self) -> Stop {
        match self.wanted() {
            Stop::No if SUSPEND.swap(false, Ordering::SeqCst) => Stop::Suspend,
            other => other,
        }
    }

    /// Whether and how the run is to end.
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
