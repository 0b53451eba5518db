//! After a reboot in the middle of an attempt: what is left of the kernel that ran it.
//!
//! Three witnesses: pstore (what a dying kernel wrote into the firmware's store), the journal of the boot before, and
//! the first lines of this boot, in which firmware names the reason of the reset. They are kept beside the attempt
//! (`pstore/`, `kernel.previous.log`, `journal.previous.log`, `kernel.boot.log`), and `kernel.reset.log` puts what
//! belongs to the attempt in one order: its own kernel log, the rest of that boot, pstore, this boot's beginning.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::os::helper;
use crate::os::root::Root;

/// Seconds of this boot's log that can speak of the reset.
const BOOT_S: f64 = 120.0;
/// Bytes of one pstore file, and of one log.
const CAP: u64 = 16 << 20;

/// How the boot before ended, as far as its log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The system was shut down: somebody, or a program, asked for it.
    Orderly,
    /// The log stops without a shutdown.
    Abrupt,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreviousBoot {
    /// Files that pstore held.
    pub pstore: usize,
    /// Lines of that boot's kernel log at or after the attempt's start.
    pub kernel_lines: usize,
    /// How that boot ended; nothing when its journal is not kept.
    pub ended: Option<Ended>,
    /// What is missing, and the command that mends it.
    pub notes: Vec<String>,
}

/// Marks of a shutdown in the journal.
const SHUTDOWN: [&str; 9] = [
    "Journal stopped",
    "systemd-shutdown[",
    "Shutting down.",
    "Reached target System Reboot",
    "Reached target System Power Off",
    "Reached target System Shutdown",
    "Reached target reboot.target",
    "Reached target poweroff.target",
    "reboot: Restarting system",
];

/// Keeps what there is. `since_mono_ns` is the attempt's start on the CLOCK_MONOTONIC of its boot.
#[must_use]
pub fn keep(root: &Root, dir: &Path, since_mono_ns: Option<u64>) -> PreviousBoot {
    let mut found = PreviousBoot::default();
    let mut merged = fs::read_to_string(dir.join("kernel.log")).unwrap_or_default();
    #[allow(clippy::cast_precision_loss)]
    let since = since_mono_ns.map_or(0.0, |ns| ns as f64 / 1e9);

    match log_of(root, "kernel.previous.log", &["-k", "-b", "-1", "-n", "20000"]) {
        Some(text) => {
            let _ = fs::write(dir.join("kernel.previous.log"), &text);
            // The attempt's own log, raw records, ends somewhere in it: what it holds is not taken twice.
            let own = merged.clone();
            for l in text.lines().filter(|l| stamp(l).is_none_or(|s| s >= since)) {
                found.kernel_lines += 1;
                let words = l.split_once("kernel: ").map_or(l, |(_, w)| w);
                if !own.contains(words) {
                    push(&mut merged, l);
                }
            }
        }
        None => found.notes.push(
            "the journal of the boot before is not kept (mend: mkdir -p /var/log/journal && systemctl restart systemd-journald)"
                .into(),
        ),
    }
    if let Some(text) = log_of(root, "journal.previous.log", &["-b", "-1", "-n", "400"]) {
        let _ = fs::write(dir.join("journal.previous.log"), &text);
        found.ended = Some(if SHUTDOWN.iter().any(|w| text.contains(w)) {
            Ended::Orderly
        } else {
            Ended::Abrupt
        });
    }
    for (name, bytes) in pstore(root) {
        let kept = fs::create_dir_all(dir.join("pstore"))
            .and_then(|()| fs::write(dir.join("pstore").join(&name), &bytes));
        if kept.is_ok() {
            found.pstore += 1;
        }
        if let Ok(text) = String::from_utf8(bytes) {
            text.lines().for_each(|l| push(&mut merged, l));
        }
    }
    if found.pstore == 0 {
        found.notes.push("pstore holds nothing".into());
    }
    let boot = this_boot(root);
    if !boot.is_empty() {
        let _ = fs::write(dir.join("kernel.boot.log"), &boot);
        boot.lines().for_each(|l| push(&mut merged, l));
    }
    let _ = fs::write(dir.join("kernel.reset.log"), merged);
    found
}

fn push(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

/// `[ 12.345678]` at the beginning of a line, seconds.
fn stamp(line: &str) -> Option<f64> {
    line.trim_start()
        .strip_prefix('[')?
        .split(']')
        .next()?
        .trim()
        .parse()
        .ok()
}

/// A log of the boot before: the journal's, or on a fake board the file of that name in its top folder.
fn log_of(root: &Root, fake: &str, args: &[&str]) -> Option<String> {
    if root.is_fake() {
        return fs::read_to_string(root.resolve(format!("/{fake}"))).ok();
    }
    let mut c = Command::new(helper::find("journalctl")?);
    c.args(["-o", "short-monotonic", "--no-pager", "-q"])
        .args(args);
    let o = helper::run_bounded(c, Duration::from_secs(20), CAP as usize).ok()?;
    (o.success && !o.output.is_empty()).then(|| String::from_utf8_lossy(&o.output).into_owned())
}

fn pstore(root: &Root) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for place in ["/sys/fs/pstore", "/var/lib/systemd/pstore"] {
        if !root.exists(place) {
            continue;
        }
        // systemd moves them into a folder of their moment.
        let mut open: Vec<(PathBuf, u8)> = vec![(PathBuf::from(place), 0)];
        while let Some((at, depth)) = open.pop() {
            for name in root.list(&at) {
                let path = at.join(&name);
                if root.resolve(&path).is_dir() {
                    if depth < 2 {
                        open.push((path, depth + 1));
                    }
                } else if let Some(b) = root.read(&path, CAP)
                    && !b.is_empty()
                {
                    out.push((name, b));
                }
            }
        }
    }
    out.sort();
    out.truncate(64);
    out
}

/// The first records of this boot as `[ seconds] text`.
fn this_boot(root: &Root) -> String {
    let mut out = String::new();
    if root.is_fake() {
        return fs::read_to_string(root.resolve("/kernel.boot.log")).unwrap_or_default();
    }
    let Ok(mut f) = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/kmsg")
    else {
        return out;
    };
    let mut buf = vec![0u8; 16 << 10];
    for _ in 0..20_000 {
        let n = match f.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => continue,
            Err(_) => break,
        };
        let text = String::from_utf8_lossy(&buf[..n]);
        let first = text.lines().next().unwrap_or_default();
        let Some((head, body)) = first.split_once(';') else {
            continue;
        };
        let us: f64 = head
            .split(',')
            .nth(2)
            .and_then(|s| s.parse().ok())
            .unwrap_or(f64::MAX);
        if us / 1e6 > BOOT_S {
            break;
        }
        push(&mut out, &format!("[{:12.6}] {body}", us / 1e6));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(p: &Path, t: &str) {
        fs::create_dir_all(p.parent().unwrap()).unwrap();
        fs::write(p, t).unwrap();
    }

    #[test]
    fn three_witnesses_are_put_in_one_order() {
        let (d, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(
            &d.path().join("sys/fs/pstore/dmesg-efi-1"),
            "Panic#1 Part1\n<0>[  503.1] Kernel panic - not syncing: Fatal exception\n",
        );
        write(
            &d.path().join("kernel.previous.log"),
            "[    1.000000] host kernel: long before\n[  500.000000] host kernel: in the attempt\n[  501.000000] host kernel: amdgpu: more\n",
        );
        write(
            &d.path().join("journal.previous.log"),
            "[  499.0] host systemd[1]: Started x\n",
        );
        write(
            &d.path().join("kernel.boot.log"),
            "[    0.4] x86/amd: Previous system reset reason [0x00080800]: software wrote 0x6\n",
        );
        write(
            &out.path().join("kernel.log"),
            "6,900,500000000,-;in the attempt\n",
        );
        let p = keep(
            &Root::new(Some(d.path())),
            out.path(),
            Some(400_000_000_000),
        );
        assert_eq!(
            (p.pstore, p.kernel_lines, p.ended),
            (1, 2, Some(Ended::Abrupt))
        );
        let t = fs::read_to_string(out.path().join("kernel.reset.log")).unwrap();
        let at = |w: &str| t.find(w).unwrap_or_else(|| panic!("{w} in {t}"));
        assert!(at("6,900") < at("amdgpu: more") && at("amdgpu: more") < at("Kernel panic"));
        assert!(at("Kernel panic") < at("reset reason"));
        assert_eq!(t.matches("in the attempt").count(), 1);
        assert!(!t.contains("long before"));
        assert!(out.path().join("pstore/dmesg-efi-1").is_file());
    }

    #[test]
    fn a_shutdown_is_told_from_a_crash() {
        let (d, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(
            &d.path().join("journal.previous.log"),
            "[  9.0] host systemd-journald[300]: Journal stopped\n",
        );
        let p = keep(&Root::new(Some(d.path())), out.path(), None);
        assert_eq!((p.ended, p.pstore), (Some(Ended::Orderly), 0));
        assert_eq!(p.notes.len(), 2, "{:?}", p.notes);
    }
}
