//! What a harness that was killed in the middle of an attempt left behind, and ending it.
//!
//! While an attempt runs, `running.json` in its folder names the processes and control groups. The guardian ends the
//! tree when the harness is gone; where the guardian is gone too, [`end`] does so when the run is resumed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use crate::os::{cgroup, process, procfs};

const FILE: &str = "running.json";

/// `running.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Boot id under which the pids hold.
    pub boot_id: Option<String>,
    /// The guardian and its start, clock ticks after boot.
    pub guardian: (i32, Option<u64>),
    /// The leader and its start.
    pub leader: (i32, Option<u64>),
    /// Folders of the attempt's control groups.
    pub cgroups: Vec<PathBuf>,
}

/// This boot's id.
#[must_use]
pub fn boot_id() -> Option<String> {
    procfs::read_text("/proc/sys/kernel/random/boot_id").map(|t| t.trim().to_owned())
}

pub(super) fn note(a: &Attempt<'_>) {
    let with_start = |pid| (pid, procfs::stat(pid).map(|s| s.start_ticks));
    let r = Running {
        boot_id: boot_id(),
        guardian: with_start(a.guardian_pid),
        leader: with_start(a.leader),
        cgroups: a.cgroup.dirs(),
    };
    if let Ok(t) = serde_json::to_vec(&r) {
        let _ = std::fs::write(a.spec.dir.join(FILE), t);
    }
}

pub(super) fn forget(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(FILE));
}

/// Ends what an attempt's folder says is still running; returns the pids that it had to kill. Pids of an earlier boot,
/// or that began at another time than was noted, belong to somebody else and are left alone.
pub fn end(dir: &Path) -> Vec<i32> {
    let Some(r) = std::fs::read(dir.join(FILE))
        .ok()
        .and_then(|t| serde_json::from_slice::<Running>(&t).ok())
    else {
        return Vec::new();
    };
    let mut killed = Vec::new();
    if r.boot_id.is_some() && r.boot_id == boot_id() {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let left = left(&r);
            if left.is_empty() || Instant::now() > until {
                break;
            }
            for pid in left {
                let _ = process::kill(pid, libc::SIGKILL);
                if !killed.contains(&pid) {
                    killed.push(pid);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for d in &r.cgroups {
            let _ = std::fs::remove_dir(d);
        }
    }
    forget(dir);
    killed
}

fn left(r: &Running) -> Vec<i32> {
    let ours = |(pid, start): (i32, Option<u64>)| {
        procfs::stat(pid).is_some_and(|s| Some(s.start_ticks) == start && !s.is_zombie())
    };
    let stats = procfs::all_stats();
    let mut pids: Vec<i32> = r.cgroups.iter().flat_map(|d| cgroup::members(d)).collect();
    for root in [r.guardian, r.leader] {
        if ours(root) {
            pids.push(root.0);
            pids.extend(procfs::descendants_in(&stats, root.0).iter().map(|s| s.pid));
        }
    }
    if r.leader.1.is_some() {
        // Those who stayed in the leader's session although it is gone.
        let since = r.leader.1.unwrap_or(u64::MAX);
        pids.extend(
            stats
                .iter()
                .filter(|s| s.session == r.leader.0 && s.start_ticks >= since && !s.is_zombie())
                .map(|s| s.pid),
        );
    }
    pids.retain(|&p| p > 1 && procfs::stat(p).is_some_and(|s| !s.is_zombie()));
    pids.sort_unstable();
    pids.dedup();
    pids
}
