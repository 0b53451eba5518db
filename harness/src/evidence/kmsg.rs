//! The kernel's log inside the attempt's window, with sequence numbers.
//!
//! `/dev/kmsg` is opened and moved to its end before the child is spawned; every record read from there on lies
//! inside the window. Each read returns one record `priority,sequence,µs,flags;text` with continuation lines
//! (` KEY=value`). A gap in the sequence numbers is a loss and is reported. Where `/dev/kmsg` may not be read,
//! `journalctl` and `dmesg` are asked afterwards for the time of the window. On a fake board a script takes the
//! place of the device.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::os::wake::{Wake, wait_readable};
use crate::os::{clock, helper, root::Root};
use crate::supervise::spec::KernelLogInfo;

/// Bytes of kernel log kept per attempt.
const KERNEL_LOG_CAP: u64 = 64 << 20;

/// Where records come from.
#[derive(Debug)]
enum Source {
    Kmsg(File),
    Script(Script),
    Asked { why: String },
}

/// The window's reader.
#[derive(Debug)]
pub struct Window {
    source: Source,
    path: PathBuf,
    begun_wall: chrono::DateTime<chrono::Utc>,
    begun_boot_ns: u64,
}

/// Ends the window: set the moment (CLOCK_MONOTONIC ns) until which records still count.
#[derive(Debug)]
pub struct WindowEnd {
    at: AtomicU64,
    wake: Wake,
}

impl WindowEnd {
    /// A window that is open.
    pub fn new() -> io::Result<Self> {
        Ok(WindowEnd {
            at: AtomicU64::new(0),
            wake: Wake::new()?,
        })
    }
    /// The window ends at this CLOCK_MONOTONIC moment.
    pub fn close_at(&self, mono_ns: u64) {
        self.at.store(mono_ns.max(1), Ordering::SeqCst);
        self.wake.set();
    }
    fn due(&self) -> bool {
        let at = self.at.load(Ordering::SeqCst);
        at != 0 && clock::mono_ns() >= at
    }
    /// Sleeps until something can have changed.
    fn pause(&self, other: RawFd) {
        let at = self.at.load(Ordering::SeqCst);
        if at == 0 {
            let _ = wait_readable(&[other, self.wake.fd()], 1000);
        } else {
            let left = at.saturating_sub(clock::mono_ns()) / 1_000_000 + 1;
            let _ = wait_readable(&[other], i32::try_from(left).unwrap_or(1000).min(1000));
        }
    }
}

impl Window {
    /// Opens the log and moves to its end. Never fails: without access it remembers why.
    #[must_use]
    pub fn open(root: &Root, dir: &Path, start_ns: u64) -> Self {
        let source = if root.is_fake() {
            match root.text("/dev/kmsg") {
                Some(t) => Source::Script(Script::parse(&t, start_ns)),
                None => Source::Asked {
                    why: "the fake board holds no dev/kmsg".into(),
                },
            }
        } else {
            let open = || -> io::Result<File> {
                let mut f = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                    .open("/dev/kmsg")?;
                f.seek(SeekFrom::End(0))?;
                Ok(f)
            };
            match open() {
                Ok(f) => Source::Kmsg(f),
                Err(e) => Source::Asked {
                    why: format!(
                        "/dev/kmsg: {e} (run as root, or: sysctl kernel.dmesg_restrict=0)"
                    ),
                },
            }
        };
        Window {
            source,
            path: dir.join("kernel.log"),
            begun_wall: clock::wall(),
            begun_boot_ns: clock::boot_ns(),
        }
    }

    /// Reads until `end` is due. `on_record` sees the text of each record as it is read.
    pub fn follow(
        mut self,
        end: &Arc<WindowEnd>,
        mut on_record: impl FnMut(&str),
    ) -> KernelLogInfo {
        let mut log = Log::new(&self.path);
        match &mut self.source {
            Source::Kmsg(f) => {
                log.info.source = "kmsg".into();
                follow_kmsg(f, end, &mut log, &mut on_record);
            }
            Source::Script(s) => {
                log.info.source = "sysroot".into();
                s.follow(end, &mut log, &mut on_record);
            }
            Source::Asked { why } => {
                let why = std::mem::take(why);
                while !end.due() {
                    end.pause(-1);
                }
                self.ask(&mut log, &why);
            }
        }
        log.finish()
    }

    /// Asks journalctl, then dmesg, for the window's lines.
    fn ask(&self, log: &mut Log, why: &str) {
        log.info.source = "none".into();
        let since = self.begun_wall.timestamp();
        if let Some(p) = helper::find("journalctl") {
            let mut c = Command::new(p);
            c.args(["-k", "-o", "short-monotonic", "--no-pager", "-q", "-b"])
                .arg(format!("--since=@{since}"));
            if let Ok(o) = helper::run_bounded(c, Duration::from_secs(10), 16 << 20)
                && o.success
            {
                log.info.source = "journalctl".into();
                log.info.note = Some(format!(
                    "{why}; lines by second, no sequence numbers: losses are unseen"
                ));
                self.take_lines(log, &o.output);
                return;
            }
        }
        if let Some(p) = helper::find("dmesg")
            && let Ok(o) = helper::run_bounded(Command::new(p), Duration::from_secs(10), 16 << 20)
            && o.success
        {
            log.info.source = "dmesg".into();
            log.info.note = Some(format!("{why}; no sequence numbers: losses are unseen"));
            self.take_lines(log, &o.output);
            return;
        }
        log.info.note = Some(format!(
            "{why}; journalctl and dmesg gave nothing: the kernel's word is missing"
        ));
    }

    /// Keeps the lines `[ 12.345] text` whose stamp lies after the start.
    fn take_lines(&self, log: &mut Log, bytes: &[u8]) {
        #[allow(clippy::cast_precision_loss)]
        let begun = self.begun_boot_ns as f64 / 1e9 - 0.001;
        for l in String::from_utf8_lossy(bytes).lines() {
            let stamp = l
                .trim_start()
                .strip_prefix('[')
                .and_then(|r| r.split(']').next())
                .and_then(|s| s.trim().parse::<f64>().ok());
            if stamp.is_some_and(|s| s >= begun) {
                log.write(l.as_bytes());
                log.info.records += 1;
            }
        }
    }
}

fn follow_kmsg(
    f: &mut File,
    end: &Arc<WindowEnd>,
    log: &mut Log,
    on_record: &mut impl FnMut(&str),
) {
    let mut buf = vec![0u8; 8192 + 1024];
    loop {
        let due = end.due(); // looked at before reading, so that the last read drains the ring
        match f.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => log.record(&buf[..n], on_record),
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN) => {
                    if due {
                        break;
                    }
                    end.pause(f.as_raw_fd());
                }
                Some(libc::EPIPE) => log.overrun = true, // overwritten before we read it; the next read goes on
                Some(libc::EINTR) => {}
                _ => {
                    log.info.note = Some(format!("/dev/kmsg stopped: {e}"));
                    while !end.due() {
                        end.pause(-1);
                    }
                    break;
                }
            },
        }
    }
}

struct Log {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    overrun: bool,
    info: KernelLogInfo,
}

impl Log {
    fn new(path: &Path) -> Self {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let info = KernelLogInfo {
            note: file
                .as_ref()
                .err()
                .map(|e| format!("{}: {e}", path.display())),
            ..KernelLogInfo::default()
        };
        Log {
            path: path.to_owned(),
            file: file.ok(),
            written: 0,
            overrun: false,
            info,
        }
    }

    fn write(&mut self, line: &[u8]) {
        if self.written > KERNEL_LOG_CAP {
            self.info
                .note
                .get_or_insert_with(|| "kernel.log was cut at its cap".into());
            return;
        }
        if let Some(f) = &mut self.file {
            let mut b = line.to_vec();
            if b.last() != Some(&b'\n') {
                b.push(b'\n');
            }
            if let Err(e) = f.write_all(&b) {
                self.info
                    .note
                    .get_or_insert_with(|| format!("{}: {e}", self.path.display()));
            }
            self.written += b.len() as u64;
        }
    }

    fn record(&mut self, raw: &[u8], on_record: &mut impl FnMut(&str)) {
        if let Some(seq) = sequence(raw) {
            if let Some(last) = self.info.last_seq {
                self.info.lost += seq.saturating_sub(last + 1);
            } else {
                self.info.first_seq = Some(seq);
            }
            self.info.last_seq = Some(seq);
        }
        self.info.records += 1;
        self.write(raw);
        let text = String::from_utf8_lossy(raw);
        let first = text.lines().next().unwrap_or_default();
        on_record(first.split_once(';').map_or(first, |(_, t)| t));
    }

    fn finish(mut self) -> KernelLogInfo {
        if self.overrun && self.info.lost == 0 {
            // Lost before our first record: how many is not known.
            self.info.lost = 1;
        }
        if self.info.lost > 0 {
            self.info.note.get_or_insert_with(|| {
                format!(
                    "{} kernel record(s) were lost inside the window",
                    self.info.lost
                )
            });
        }
        if let Some(f) = &self.file {
            let _ = f.sync_data();
        }
        self.info
    }
}

/// The sequence number of a `/dev/kmsg` record.
fn sequence(raw: &[u8]) -> Option<u64> {
    let head = raw.split(|&b| b == b';').next()?;
    std::str::from_utf8(head)
        .ok()?
        .split(',')
        .nth(1)?
        .parse()
        .ok()
}

/// A scripted kernel log of a fake board.
///
/// Lines `@SECONDS` set the moment (after the attempt's start) of the records that follow; records before the first
/// such line were logged before the window and only move the sequence. A record is `prio,seq,µs,flags;text`, where
/// `*` for seq is the next number and `*` for µs the moment itself; `!N` skips N sequence numbers (a loss).
#[derive(Debug)]
struct Script {
    due: Vec<(u64, Vec<u8>)>,
}

impl Script {
    fn parse(text: &str, start_ns: u64) -> Self {
        let mut at: Option<u64> = None;
        let mut next_seq = 1u64;
        let mut due: Vec<(u64, Vec<u8>)> = Vec::new();
        for l in text.lines() {
            if let Some(s) = l.strip_prefix('@') {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let ns = (s.trim().parse::<f64>().unwrap_or(0.0).max(0.0) * 1e9) as u64;
                at = Some(start_ns.saturating_add(ns));
            } else if let Some(n) = l.strip_prefix('!') {
                next_seq = next_seq.saturating_add(n.trim().parse().unwrap_or(1));
            } else if l.starts_with(' ') {
                if let (Some((_, r)), Some(_)) = (due.last_mut(), at) {
                    r.push(b'\n');
                    r.extend_from_slice(l.as_bytes());
                }
            } else if let Some((head, body)) = l.split_once(';') {
                let mut f: Vec<String> = head.split(',').map(str::to_owned).collect();
                f.resize(4, "-".into());
                if f[1] == "*" {
                    f[1] = next_seq.to_string();
                }
                next_seq = f[1].parse::<u64>().unwrap_or(next_seq).saturating_add(1);
                if let Some(at) = at {
                    if f[2] == "*" {
                        f[2] = (at / 1000).to_string();
                    }
                    due.push((at, format!("{};{body}", f.join(",")).into_bytes()));
                }
            }
        }
        Script { due }
    }

    fn follow(&mut self, end: &Arc<WindowEnd>, log: &mut Log, on_record: &mut impl FnMut(&str)) {
        let mut todo = std::mem::take(&mut self.due).into_iter().peekable();
        loop {
            let due = end.due();
            let now = clock::mono_ns();
            while let Some((_, r)) = todo.next_if(|(at, _)| *at <= now) {
                log.record(&r, on_record);
            }
            if due {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_in_the_sequence_are_losses() {
        let d = tempfile::tempdir().unwrap();
        let mut log = Log::new(&d.path().join("kernel.log"));
        let mut seen = Vec::new();
        let mut on = |t: &str| seen.push(t.to_owned());
        log.record(b"6,100,5000,-;first\n", &mut on);
        log.record(
            b"6,101,5001,-;second\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c5:00.0\n",
            &mut on,
        );
        log.record(b"3,105,5002,-;after a loss; with a semicolon\n", &mut on);
        let i = log.finish();
        assert_eq!(
            (i.records, i.lost, i.first_seq, i.last_seq),
            (3, 3, Some(100), Some(105))
        );
        assert_eq!(seen, ["first", "second", "after a loss; with a semicolon"]);
        let text = std::fs::read_to_string(d.path().join("kernel.log")).unwrap();
        assert!(text.contains("6,101,5001,-;second\n SUBSYSTEM=pci\n"));
    }

    #[test]
    fn a_script_plays_only_what_lies_inside_the_window() {
        let d = tempfile::tempdir().unwrap();
        std::fs::create_dir(d.path().join("dev")).unwrap();
        std::fs::write(
            d.path().join("dev/kmsg"),
            "6,*,1,-;before\n@0\n3,*,*,-;inside\n!2\n3,*,*,-;after a gap\n@3600\n3,*,*,-;much later\n",
        )
        .unwrap();
        let start = clock::mono_ns();
        let w = Window::open(&Root::new(Some(d.path())), d.path(), start);
        let end = Arc::new(WindowEnd::new().unwrap());
        end.close_at(clock::mono_ns());
        let mut seen = Vec::new();
        let i = w.follow(&end, |t| seen.push(t.to_owned()));
        assert_eq!(seen, ["inside", "after a gap"]);
        assert_eq!((i.records, i.lost, i.source.as_str()), (2, 2, "sysroot"));
    }
}
