//! `/proc/PID`: bounded reads that never fail loudly, since processes end while they are looked at.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: i32,
    /// Name, cut to 15 characters by the kernel.
    pub comm: String,
    /// State letter (`R S D Z T t I X`).
    pub state: char,
    /// Parent.
    pub ppid: i32,
    /// Process group.
    pub pgrp: i32,
    /// Session.
    pub session: i32,
    /// User plus system CPU time, clock ticks, own threads.
    pub cpu_ticks: u64,
    /// Start after boot, clock ticks.
    pub start_ticks: u64,
    /// Resident pages.
    pub rss_pages: u64,
    /// Threads.
    pub threads: u32,
}

impl Stat {
    /// Dead, but not yet reaped.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Parses one line of `/proc/PID/stat`; the name may hold spaces and parentheses.
#[must_use]
pub fn parse_stat(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let pid = text.get(..open)?.trim().parse().ok()?;
    let comm = text.get(open + 1..close)?.to_owned();
    let f: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    let n = |i: usize| f.get(i).and_then(|s| s.parse::<i64>().ok());
    Some(Stat {
        pid,
        comm,
        state: f.first()?.chars().next()?,
        ppid: i32::try_from(n(1)?).ok()?,
        pgrp: i32::try_from(n(2)?).ok()?,
        session: i32::try_from(n(3)?).ok()?,
        cpu_ticks: u64::try_from(n(11)?).ok()? + u64::try_from(n(12)?).ok()?,
        start_ticks: f.get(19)?.parse().ok()?,
        rss_pages: f.get(21)?.parse().ok()?,
        threads: u32::try_from(n(17)?).ok()?,
    })
}

/// Reads at most `cap` bytes of a file; `None` when it cannot be read.
#[must_use]
pub fn read_capped(path: impl Into<PathBuf>, cap: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    File::open(path.into())
        .ok()?
        .take(cap)
        .read_to_end(&mut out)
        .ok()?;
    Some(out)
}

/// Reads at most 64 KiB of text.
#[must_use]
pub fn read_text(path: impl Into<PathBuf>) -> Option<String> {
    read_capped(path, 64 << 10).map(|b| String::from_utf8_lossy(&b).into_owned())
}

/// `/proc/PID/stat`.
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&read_text(format!("/proc/{pid}/stat"))?)
}

/// `/proc/PID/comm`.
#[must_use]
pub fn comm(pid: i32) -> Option<String> {
    let c = read_text(format!("/proc/{pid}/comm"))?;
    let c = c.trim_end_matches('\n');
    (!c.is_empty()).then(|| c.to_owned())
}

/// The process's working directory.
#[must_use]
pub fn cwd(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// A value of `/proc/PID/status` in kB, e.g. `VmHWM`, as bytes.
#[must_use]
pub fn status_kb(pid: i32, key: &str) -> Option<u64> {
    let text = read_text(format!("/proc/{pid}/status"))?;
    status_field(&text, key)?
        .split_ascii_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|k| k * 1024)
}

/// The text after `key:` in a status-like file.
#[must_use]
pub fn status_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
}

/// Whether the process is writing a core right now.
#[must_use]
pub fn is_dumping_core(pid: i32) -> bool {
    read_text(format!("/proc/{pid}/status"))
        .is_some_and(|t| status_field(&t, "CoreDumping") == Some("1"))
}

/// All process ids.
#[must_use]
pub fn all_pids() -> Vec<i32> {
    std::fs::read_dir("/proc").map_or_else(
        |_| Vec::new(),
        |d| {
            d.flatten()
                .filter_map(|e| e.file_name().to_str()?.parse().ok())
                .collect()
        },
    )
}

/// All processes' stat lines.
#[must_use]
pub fn all_stats() -> Vec<Stat> {
    all_pids().into_iter().filter_map(stat).collect()
}

/// The processes below `root` in `stats`, `root` left out.
#[must_use]
pub fn descendants_in(stats: &[Stat], root: i32) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for s in stats {
        children.entry(s.ppid).or_default().push(s);
    }
    let mut out: Vec<Stat> = Vec::new();
    let mut queue = vec![root];
    while let Some(p) = queue.pop() {
        for c in children.remove(&p).unwrap_or_default() {
            queue.push(c.pid);
            out.push(c.clone());
        }
    }
    out
}

/// Clock ticks per second.
#[must_use]
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf has no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) })
        .ok()
        .filter(|&t| t > 0)
        .unwrap_or(100)
}

/// Bytes per page.
#[must_use]
pub fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
        .ok()
        .filter(|&t| t > 0)
        .unwrap_or(4096)
}

/// Seconds that a process has lived.
#[must_use]
pub fn age_s(s: &Stat) -> Option<f64> {
    let up: f64 = read_text("/proc/uptime")?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()?;
    #[allow(clippy::cast_precision_loss)]
    let start = s.start_ticks as f64 / ticks_per_second() as f64;
    Some((up - start).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let s = parse_stat(
            "77 (a) b (c) D 1 2 3 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 4 0 5555 1000000 321 1844",
        )
        .unwrap();
        assert_eq!(
            (s.pid, s.comm.as_str(), s.state, s.ppid),
            (77, "a) b (c", 'D', 1)
        );
        assert_eq!(
            (s.cpu_ticks, s.threads, s.start_ticks, s.rss_pages),
            (42, 4, 5555, 321)
        );
        assert_eq!(parse_stat("77 (x"), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("1 (x) R 1"), None);
    }

    #[test]
    fn our_own_entry_reads_back() {
        let me = i32::try_from(std::process::id()).unwrap();
        let s = stat(me).unwrap();
        assert_eq!(s.pid, me);
        assert!(status_kb(me, "VmHWM").unwrap() > 100_000);
        assert!(age_s(&s).unwrap() < 3600.0);
        assert!(!descendants_in(&all_stats(), 1).iter().any(|d| d.pid == 1));
    }
}
