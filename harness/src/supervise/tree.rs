//! The process tree of an attempt: who belongs to it and how each one ended.
//!
//! Fed from two sides: the kernel's process events (every fork and exit, root only) and the guardian's `waitid`
//! (its own children: the leader and every orphan). Where both speak of one process, `waitid` wins.

use std::collections::{HashMap, HashSet};

use legwork_reports::model::{Descendant, ProcessEnd};

use crate::os::proc_events::ProcEvent;
use crate::os::procfs;

/// Ends that were successes are kept up to this number; failures always.
const SUCCESSES_KEPT: usize = 256;
/// Pids remembered.
const PIDS_KEPT: usize = 100_000;
/// Failures kept.
const FAILURES_KEPT: usize = 10_000;

#[derive(Debug, Clone, Default)]
struct Proc {
    ppid: Option<i32>,
    comm: Option<String>,
    cwd: Option<std::path::PathBuf>,
}

/// A process that ended.
#[derive(Debug, Clone)]
pub struct Gone {
    /// Its pid.
    pub pid: i32,
    /// Its parent when first seen.
    pub ppid: Option<i32>,
    /// Its name.
    pub comm: Option<String>,
    /// Its working directory when last seen.
    pub cwd: Option<std::path::PathBuf>,
    /// How it ended.
    pub end: Option<ProcessEnd>,
    /// When, CLOCK_MONOTONIC ns.
    pub mono_ns: u64,
}

/// The tree.
#[derive(Debug, Default)]
pub struct Tree {
    guardian: i32,
    leader: i32,
    live: HashMap<i32, Proc>,
    gone: Vec<Gone>,
    successes_left_out: u64,
    seen: HashSet<i32>,
    dumping: HashSet<i32>,
    /// Ends by a signal or a core that nobody has looked at yet.
    fresh_cores: Vec<Gone>,
}

impl Tree {
    /// A tree below the guardian, which itself does not count.
    #[must_use]
    pub fn new(guardian: i32) -> Self {
        Tree {
            guardian,
            ..Tree::default()
        }
    }

    /// The leader is known now.
    pub fn set_leader(&mut self, pid: i32) {
        self.leader = pid;
        self.add(pid, Some(self.guardian));
    }

    /// A process belongs to the tree.
    pub fn add(&mut self, pid: i32, ppid: Option<i32>) {
        if pid == self.guardian || pid <= 1 {
            return;
        }
        if self.seen.len() < PIDS_KEPT {
            self.seen.insert(pid);
        }
        let p = self.live.entry(pid).or_default();
        p.ppid = p.ppid.or(ppid);
        if p.comm.is_none() {
            p.comm = procfs::comm(pid);
        }
    }

    /// Takes an event of the kernel; events about other trees are left aside.
    pub fn event(&mut self, e: &ProcEvent) {
        match e {
            ProcEvent::Fork { parent, child, .. } => {
                if self.live.contains_key(parent) || *parent == self.guardian {
                    let inherited = self.live.get(parent).cloned();
                    self.add(*child, Some(*parent));
                    if let (Some(c), Some(p)) = (self.live.get_mut(child), inherited) {
                        c.comm = c.comm.take().or(p.comm);
                        c.cwd = p.cwd;
                    }
                }
            }
            ProcEvent::Exec { pid, .. } => {
                if let Some(p) = self.live.get_mut(pid) {
                    p.comm = procfs::comm(*pid); // the name before exec is another program's
                    p.cwd = procfs::cwd(*pid).or(p.cwd.take());
                }
            }
            ProcEvent::Comm { pid, comm } => {
                if let Some(p) = self.live.get_mut(pid) {
                    p.comm = Some(comm.clone());
                }
            }
            ProcEvent::CoreDump { pid, .. } => {
                if let Some(p) = self.live.get_mut(pid) {
                    p.cwd = procfs::cwd(*pid).or(p.cwd.take());
                    if let Some(c) = procfs::comm(*pid) {
                        p.comm = Some(c);
                    }
                    self.dumping.insert(*pid);
                }
            }
            // The main thread may have ended long before its process: the last thread's status is the process's.
            ProcEvent::ThreadExit { pid, status } => {
                let end = crate::os::process::end_of_status(*status);
                if end.signal.is_some()
                    && let Some(g) = self.gone.iter_mut().rev().find(|g| g.pid == *pid)
                    && g.end.is_some_and(|e| e.signal.is_none())
                    && *pid != self.leader
                {
                    g.end = Some(end);
                    if end.crashed() {
                        self.fresh_cores.push(g.clone());
                    }
                }
            }
            ProcEvent::Exit {
                mono_ns,
                pid,
                status,
            } => {
                if self.live.contains_key(pid) {
                    let comm = procfs::comm(*pid); // still a zombie, with luck
                    self.ended(
                        *pid,
                        comm,
                        Some(crate::os::process::end_of_status(*status)),
                        *mono_ns,
                    );
                }
            }
        }
    }

    /// The guardian reaped a child, or we did.
    pub fn reaped(&mut self, pid: i32, comm: Option<String>, end: ProcessEnd, mono_ns: u64) {
        if let Some(g) = self.gone.iter_mut().rev().find(|g| g.pid == pid) {
            g.end = Some(end);
            g.comm = g.comm.take().or(comm);
            return;
        }
        if !self.live.contains_key(&pid) {
            if self.seen.contains(&pid) && end.success() {
                return; // a success that was left out of the list
            }
            self.add(pid, None);
        }
        self.ended(pid, comm, Some(end), mono_ns);
    }

    fn ended(&mut self, pid: i32, comm: Option<String>, end: Option<ProcessEnd>, mono_ns: u64) {
        let p = self.live.remove(&pid).unwrap_or_default();
        self.dumping.remove(&pid);
        let gone = Gone {
            pid,
            ppid: p.ppid,
            comm: comm.or(p.comm),
            cwd: p.cwd,
            end,
            mono_ns,
        };
        if end.is_some_and(|e| e.crashed()) {
            self.fresh_cores.push(gone.clone());
        }
        let success = end.is_some_and(|e| e.success());
        if success && self.gone.len() >= SUCCESSES_KEPT || self.gone.len() >= FAILURES_KEPT {
            self.successes_left_out += u64::from(success);
            return;
        }
        self.gone.push(gone);
    }

    /// Forgets processes that are no longer in `/proc`; used where the kernel tells no events.
    pub fn sweep(&mut self, alive: &HashSet<i32>, mono_ns: u64) {
        let lost: Vec<i32> = self
            .live
            .keys()
            .copied()
            .filter(|p| !alive.contains(p))
            .collect();
        for pid in lost {
            if pid != self.leader {
                self.ended(pid, None, None, mono_ns);
            }
        }
    }

    /// Ends, as unknown, those that are no longer there.
    pub fn sweep_gone(&mut self, mono_ns: u64) {
        let alive = self
            .live
            .keys()
            .copied()
            .filter(|&p| procfs::stat(p).is_some_and(|s| !s.is_zombie()))
            .collect();
        self.sweep(&alive, mono_ns);
    }

    /// Adds who is below the guardian now.
    pub fn look_around(&mut self) {
        for d in procfs::descendants_in(&procfs::all_stats(), self.guardian) {
            self.add(d.pid, Some(d.ppid));
        }
    }

    /// Pids that are believed to live.
    #[must_use]
    pub fn live_pids(&self) -> Vec<i32> {
        self.live.keys().copied().collect()
    }

    /// Whether a pid ever belonged to the tree.
    #[must_use]
    pub fn knows(&self, pid: i32) -> bool {
        self.seen.contains(&pid)
    }

    /// Whether somebody writes a core right now, as far as the kernel told.
    #[must_use]
    pub fn somebody_dumps(&self) -> bool {
        !self.dumping.is_empty()
    }

    /// Crashes that were not handed out yet.
    pub fn take_crashes(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.fresh_cores)
    }

    /// How a process ended, if it is known.
    #[must_use]
    pub fn end_of(&self, pid: i32) -> Option<ProcessEnd> {
        self.gone.iter().rev().find(|g| g.pid == pid)?.end
    }

    /// Every pid of the tree, sorted.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut v: Vec<i32> = self.seen.iter().copied().collect();
        v.sort_unstable();
        v
    }

    /// Processes below the leader that vanished without a known end.
    #[must_use]
    pub fn unknown_ends(&self) -> usize {
        self.gone
            .iter()
            .filter(|g| g.end.is_none() && g.pid != self.leader)
            .count()
    }

    /// The ends below the leader, crashes and failures first among equals in time order, then those still alive.
    #[must_use]
    pub fn descendants(&self, start_ns: u64, still_alive: &[i32]) -> Vec<Descendant> {
        #[allow(clippy::cast_precision_loss)]
        let since = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let mut out: Vec<Descendant> = self
            .gone
            .iter()
            .filter(|g| g.pid != self.leader && g.end.is_some())
            .map(|g| Descendant {
                pid: g.pid,
                ppid: g.ppid,
                comm: g.comm.clone(),
                end: g.end,
                ended_s: Some(since(g.mono_ns)),
            })
            .collect();
        for &pid in still_alive.iter().filter(|&&p| p != self.leader) {
            let p = self.live.get(&pid).cloned().unwrap_or_default();
            out.push(Descendant {
                pid,
                ppid: p.ppid,
                comm: p.comm.or_else(|| procfs::comm(pid)),
                end: None,
                ended_s: None,
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_behind_a_pipe_is_kept_and_foreign_processes_are_not() {
        let mut t = Tree::new(900_000_000);
        t.set_leader(900_000_001);
        let fork = |parent, child| ProcEvent::Fork {
            mono_ns: 5,
            parent,
            child,
        };
        t.event(&fork(900_000_001, 900_000_002));
        t.event(&fork(900_000_002, 900_000_003)); // a grandchild
        t.event(&fork(77, 900_000_009)); // somebody else's
        t.event(&ProcEvent::Exit {
            mono_ns: 1_000_000_000,
            pid: 900_000_003,
            status: 0x8b,
        });
        t.event(&ProcEvent::Exit {
            mono_ns: 1_000_000_000,
            pid: 900_000_009,
            status: 0x8b,
        });
        t.event(&ProcEvent::Exit {
            mono_ns: 2_000_000_000,
            pid: 900_000_002,
            status: 0,
        });
        t.reaped(
            900_000_001,
            Some("sh".into()),
            ProcessEnd {
                code: Some(0),
                ..Default::default()
            },
            3,
        );
        let d = t.descendants(0, &[]);
        assert_eq!(d.len(), 2);
        assert_eq!(d[0].pid, 900_000_003);
        assert_eq!(d[0].ppid, Some(900_000_002));
        let end = d[0].end.unwrap();
        assert!(end.crashed() && end.core_dumped && end.signal == Some(11));
        assert_eq!(d[0].ended_s, Some(1.0));
        assert_eq!(t.take_crashes().len(), 1);
        assert!(t.take_crashes().is_empty());
        assert!(t.end_of(900_000_001).unwrap().success());
        assert_eq!(t.pids(), [900_000_001, 900_000_002, 900_000_003]);
    }

    #[test]
    fn a_crash_after_the_main_thread_ended_is_a_crash_of_the_process() {
        let mut t = Tree::new(900_000_000);
        t.set_leader(900_000_001);
        t.event(&ProcEvent::Fork {
            mono_ns: 1,
            parent: 900_000_001,
            child: 900_000_002,
        });
        t.event(&ProcEvent::Exit {
            mono_ns: 2,
            pid: 900_000_002,
            status: 0,
        });
        t.event(&ProcEvent::ThreadExit {
            pid: 900_000_002,
            status: 0x8b,
        });
        assert_eq!(t.end_of(900_000_002).unwrap().signal, Some(11));
        assert_eq!(t.take_crashes().len(), 1);
    }

    #[test]
    fn who_is_gone_without_a_word_is_unknown() {
        let mut t = Tree::new(900_000_000);
        t.set_leader(900_000_001);
        t.add(900_000_002, Some(900_000_001));
        t.sweep_gone(5);
        assert_eq!((t.unknown_ends(), t.end_of(900_000_002)), (1, None));
    }

    #[test]
    fn waitid_wins_over_the_event() {
        let mut t = Tree::new(900_000_000);
        t.set_leader(900_000_001);
        t.event(&ProcEvent::Exit {
            mono_ns: 1,
            pid: 900_000_001,
            status: 0,
        });
        t.reaped(
            900_000_001,
            None,
            ProcessEnd {
                code: Some(3),
                ..Default::default()
            },
            2,
        );
        assert_eq!(t.end_of(900_000_001).unwrap().code, Some(3));
    }
}
