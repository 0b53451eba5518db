//! Stacks of a tree that is about to be ended: what each process and thread waits for, and a backtrace by gdb.
//!
//! Written to `stacks.txt` and `backtrace.txt`; bounded in processes, threads, bytes and seconds. Works for a process
//! in uninterruptible sleep too: gdb is not tried there, since attaching would hang.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::os::helper;
use crate::os::procfs::{self, Stat};

const MOST_PROCESSES: usize = 32;
const MOST_THREADS: usize = 128;
/// Longest time for all backtraces of one snapshot.
pub const GDB_TIME: Duration = Duration::from_secs(20);

/// What a snapshot left.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Processes described.
    pub processes: usize,
    /// gdb gave a backtrace.
    pub backtrace: bool,
    /// What is missing, and why.
    pub notes: Vec<String>,
    /// `pid comm state wchan` of every process in uninterruptible sleep.
    pub sleepers: Vec<String>,
    /// Kernel functions that they wait in.
    pub wchans: Vec<String>,
    /// Kernel stack of the first of them, where it may be read.
    pub stack: Option<String>,
}

/// As [`take`], but no longer than `limit`: a process that hangs inside the kernel with its memory locked holds
/// whoever reads its maps.
#[must_use]
pub fn take_within(dir: &Path, label: &str, alive: &[Stat], limit: Duration) -> Snapshot {
    let so_far = Arc::new(Mutex::new(Snapshot::default()));
    let (shared, dir, label, alive) = (
        Arc::clone(&so_far),
        dir.to_owned(),
        label.to_owned(),
        alive.to_vec(),
    );
    let taking = std::thread::spawn(move || {
        let done = take_into(&dir, &label, &alive, &|s| {
            if let Ok(mut p) = shared.lock() {
                p.clone_from(s);
            }
        });
        if let Ok(mut p) = shared.lock() {
            *p = done;
        }
    });
    let until = Instant::now() + limit;
    while !taking.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut snap = so_far.lock().map(|s| s.clone()).unwrap_or_default();
    if !taking.is_finished() {
        snap.notes
            .push("reading memory maps was given up: a process holds its own locked".into());
    }
    snap
}

/// Takes stacks of `alive` into files of `dir`, named with `label`.
#[must_use]
pub fn take(dir: &Path, label: &str, alive: &[Stat]) -> Snapshot {
    take_into(dir, label, alive, &|_| {})
}

fn take_into(dir: &Path, label: &str, alive: &[Stat], tell: &dyn Fn(&Snapshot)) -> Snapshot {
    let mut snap = Snapshot::default();
    let mut text = format!("# stacks taken at: {label}\n");
    for s in alive.iter().take(MOST_PROCESSES) {
        describe(&mut text, s, &mut snap);
    }
    append(dir, "stacks.txt", &text, &mut snap.notes);
    tell(&snap);
    text.clear();
    // Last, since these wait for a lock of the process.
    for s in alive.iter().take(MOST_PROCESSES) {
        memory(&mut text, s);
    }
    if alive.len() > MOST_PROCESSES {
        snap.notes.push(format!(
            "{} further processes left out",
            alive.len() - MOST_PROCESSES
        ));
    }
    append(dir, "stacks.txt", &text, &mut snap.notes);
    let Some(gdb) = helper::find("gdb") else {
        snap.notes
            .push("no backtrace: gdb is not installed (apt-get install gdb)".into());
        return snap;
    };
    let until = Instant::now() + GDB_TIME;
    // The busiest and largest first: that is where the work was.
    let mut order: Vec<&Stat> = alive.iter().filter(|s| s.state != 'D').collect();
    order.sort_by_key(|s| std::cmp::Reverse((s.cpu_ticks, s.rss_pages)));
    for s in order.into_iter().take(4) {
        let left = until.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(1) {
            break;
        }
        let mut c = Command::new(&gdb);
        c.args([
            "-nx",
            "-batch",
            "-iex",
            "set auto-load off",
            "-iex",
            "set debuginfod enabled off",
        ])
        .args([
            "-ex",
            "set pagination off",
            "-ex",
            "thread apply all bt 64",
            "-p",
        ])
        .arg(s.pid.to_string());
        if let Ok(o) = helper::run_bounded(c, left, 4 << 20) {
            let mut t = format!("# gdb, pid {} ({}), at: {label}\n", s.pid, s.comm);
            t.push_str(&String::from_utf8_lossy(&o.output));
            if o.timed_out {
                t.push_str("\n# gdb was ended: its time was over\n");
            }
            t.push('\n');
            snap.backtrace |= o.success;
            append(dir, "backtrace.txt", &t, &mut snap.notes);
        }
    }
    snap
}

fn append(dir: &Path, name: &str, text: &str, notes: &mut Vec<String>) {
    use std::io::Write as _;
    let r = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join(name))
        .and_then(|mut f| f.write_all(text.as_bytes()));
    if let Err(e) = r {
        notes.push(format!("{name}: {e}"));
    }
}

fn describe(out: &mut String, s: &Stat, snap: &mut Snapshot) {
    let p = format!("/proc/{}", s.pid);
    let wchan = procfs::read_text(format!("{p}/wchan")).unwrap_or_default();
    if s.state == 'D' {
        snap.sleepers
            .push(format!("{} {} D {wchan}", s.pid, s.comm));
        if !wchan.is_empty() && wchan != "0" && !snap.wchans.contains(&wchan) {
            snap.wchans.push(wchan.clone());
        }
        if snap.stack.is_none() {
            snap.stack = procfs::read_text(format!("{p}/stack")).filter(|t| !t.trim().is_empty());
        }
    }
    let _ = writeln!(
        out,
        "\n== pid {} comm {} state {} ppid {}",
        s.pid, s.comm, s.state, s.ppid
    );
    let _ = writeln!(out, "wchan: {wchan}");
    for f in ["status", "stack", "syscall", "io"] {
        if let Some(t) = procfs::read_text(format!("{p}/{f}")) {
            let _ = writeln!(out, "-- {f}\n{}", t.trim_end());
        }
    }
    if let Ok(tasks) = std::fs::read_dir(format!("{p}/task")) {
        for t in tasks.flatten().take(MOST_THREADS) {
            let tid = t.file_name();
            if tid.to_str() == Some(&s.pid.to_string()) {
                continue;
            }
            let base = t.path();
            let line = |f: &str| procfs::read_text(base.join(f)).unwrap_or_default();
            let state = procfs::parse_stat(&line("stat")).map_or('?', |s| s.state);
            let _ = writeln!(
                out,
                "-- thread {} {} state {state} wchan {}\n{}",
                tid.to_string_lossy(),
                line("comm").trim_end(),
                line("wchan"),
                line("stack").trim_end()
            );
        }
    }
    snap.processes += 1;
}

/// Command line and maps.
fn memory(out: &mut String, s: &Stat) {
    let p = format!("/proc/{}", s.pid);
    let _ = writeln!(out, "\n== memory of pid {} comm {}", s.pid, s.comm);
    let cmdline = procfs::read_text(format!("{p}/cmdline"))
        .unwrap_or_default()
        .replace('\0', " ");
    let _ = writeln!(out, "cmdline: {cmdline}");
    if let Some(m) = procfs::read_capped(format!("{p}/maps"), 256 << 10) {
        let _ = writeln!(out, "-- maps\n{}", String::from_utf8_lossy(&m).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_stacks_are_described() {
        let d = tempfile::tempdir().unwrap();
        let me = procfs::stat(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mut text = String::new();
        let mut snap = Snapshot::default();
        describe(&mut text, &me, &mut snap);
        memory(&mut text, &me);
        append(d.path(), "stacks.txt", &text, &mut snap.notes);
        let t = std::fs::read_to_string(d.path().join("stacks.txt")).unwrap();
        assert!(t.contains(&format!("== pid {}", me.pid)));
        assert!(t.contains("-- status") && t.contains("-- maps") && t.contains("-- thread"));
        assert_eq!(snap.processes, 1);
    }
}
