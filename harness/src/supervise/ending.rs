//! How an attempt is ended: dump, SIGTERM, grace, SIGKILL, and the moment at which we give up on a process.

use std::collections::BTreeSet;

use super::tree::Tree;
use crate::os::cgroup::Cgroup;
use crate::os::process;
use crate::os::procfs::{self, Stat};

/// Seconds that a run may go on after a fatal line, so that it can print and dump what it has.
pub const FATAL_DRAIN_NS: u64 = 5_000_000_000;
/// Time for a tree to end by itself after its leader did.
pub const SETTLE_NS: u64 = 250_000_000;
/// A process that is still there this long after SIGKILL, in whatever state, is unkillable: freeing memory takes
/// its time, but not this long. Uninterruptible sleep has a limit of its own in the spec.
pub const UNKILLABLE_ANY_NS: u64 = 60_000_000_000;
/// Longest time that a process may write its core after it was due to end.
pub const CORE_NS: u64 = 60_000_000_000;

/// Where in its ending an attempt is. Moments are counted ns of the loop's stopwatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The leader runs.
    Running,
    /// A fatal line was seen; ends at the moment.
    Draining(u64),
    /// Stacks are being taken; ends at the moment at the latest.
    Dumping(u64),
    /// SIGTERM was sent; SIGKILL at the moment.
    Terminating(u64),
    /// The leader ended by itself; what is left has until the moment.
    Settling(u64),
    /// SIGKILL was sent at the moment.
    Killing(u64),
    /// Nothing is left, or we gave up.
    Over,
}

/// Who is in the tree and alive now: control group, everything below the guardian, and what the kernel told.
#[must_use]
pub fn alive(
    tree: &Tree,
    cgroup: &Cgroup,
    guardian: i32,
    leader: i32,
    events_are_complete: bool,
) -> Vec<Stat> {
    let stats = procfs::all_stats();
    let mut pids: BTreeSet<i32> = cgroup.pids().into_iter().collect();
    pids.extend(
        procfs::descendants_in(&stats, guardian)
            .iter()
            .map(|s| s.pid),
    );
    let told: BTreeSet<i32> = tree.live_pids().into_iter().collect();
    stats
        .into_iter()
        .filter(|s| !s.is_zombie() && s.pid != guardian)
        .filter(|s| {
            // Without complete events a remembered pid may be somebody else's by now: the session must fit.
            pids.contains(&s.pid)
                || told.contains(&s.pid) && (events_are_complete || s.session == leader)
        })
        .collect()
}

/// Sends a signal to all; also wakes stopped processes, so that they can act on it.
pub fn signal_all(alive: &[Stat], signal: i32) {
    for s in alive {
        let _ = process::kill(s.pid, signal);
        if signal != libc::SIGSTOP && signal != libc::SIGCONT {
            let _ = process::kill(s.pid, libc::SIGCONT);
        }
    }
}

/// SIGKILL for the control group and for everybody named.
pub fn kill_all(alive: &[Stat], cgroup: &Cgroup) {
    let _ = cgroup.kill_all();
    for s in alive {
        let _ = process::kill(s.pid, libc::SIGKILL);
    }
}

/// Whether we give up, `since_ns` after SIGKILL.
#[must_use]
pub fn is_unkillable(alive: &[Stat], since_ns: u64, d_limit_ns: u64) -> bool {
    !alive.is_empty()
        && (since_ns >= d_limit_ns && alive.iter().any(|s| s.state == 'D')
            || since_ns >= UNKILLABLE_ANY_NS.max(d_limit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: char) -> Stat {
        procfs::parse_stat(&format!(
            "77 (x) {state} 1 2 3 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 10 3"
        ))
        .unwrap()
    }

    #[test]
    fn only_what_survives_long_enough_is_unkillable() {
        let s = 1_000_000_000;
        assert!(!is_unkillable(&[], 1000 * s, 10 * s));
        assert!(!is_unkillable(&[stat('D')], 9 * s, 10 * s));
        assert!(is_unkillable(&[stat('D')], 10 * s, 10 * s));
        assert!(
            !is_unkillable(&[stat('R')], 10 * s, 10 * s),
            "it may be freeing its memory"
        );
        assert!(is_unkillable(&[stat('R')], 60 * s, 10 * s));
    }
}
