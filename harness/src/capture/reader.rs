//! The capture thread: reads, stamps, writes down, then tells.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, SecondsFormat, Utc};
use legwork_reports::model::Stamps;

use super::capped::{CappedFile, Kept};
use super::fatal;
use super::lines::LineCutter;
use super::phases::PhaseTracker;
use super::stamps::StampJudge;
use crate::os::clock;
use crate::os::wake::{Wake, wait_readable};
use crate::supervise::spec::{EngineEvent, Line, Stream};

/// Lines and events that may wait for the live view before further ones are left out of it.
const LIVE_BACKLOG: usize = 8192;
/// Lines of one tenth of a second that reach the live view: nobody reads faster, and the files have them all.
const LIVE_RATE: u32 = 500;
/// Events kept in memory for the outcome.
const EVENTS_KEPT: usize = 200_000;
/// A piece of a line is handed out after this much silence, milliseconds.
const PIECE_AFTER_MS: i32 = 150;
/// Bytes of one read.
const READ: usize = 64 << 10;

/// What the capture thread tells the supervisor while it runs.
#[derive(Debug)]
pub enum CaptureNews {
    /// Lines, in order.
    Lines(Vec<Line>),
    /// Engine events, in order.
    Events(Vec<EngineEvent>),
    /// A line that no run survives.
    Fatal(String),
    /// Output went far past its cap.
    Flood,
    /// Every descriptor is closed or drained: the thread ends.
    Done,
}

/// Figures that others may look at while the thread runs.
#[derive(Debug, Default)]
pub struct CaptureState {
    /// Bytes of output.
    pub bytes: AtomicU64,
    /// Complete lines.
    pub lines: AtomicU64,
    /// CLOCK_MONOTONIC ns of the last output or event.
    pub last_ns: AtomicU64,
    /// Live items handed over and not yet taken.
    pub backlog: AtomicUsize,
    /// Phases.
    pub phases: Mutex<PhaseTracker>,
}

/// What the thread works on.
pub struct CaptureSetup {
    /// Terminal, our side, non-blocking.
    pub pty: File,
    /// Separate stderr, non-blocking.
    pub stderr: Option<PipeReader>,
    /// Engine events, non-blocking.
    pub events: Option<PipeReader>,
    /// When set: drain what is there and end.
    pub stop: Wake,
    /// The attempt's folder.
    pub dir: PathBuf,
    /// Start of the attempt, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// Cap of `output.raw`, bytes.
    pub cap: u64,
    /// Bytes after which the output is a flood.
    pub flood_at: u64,
    /// Look for fatal lines.
    pub fatal: bool,
    /// Shared figures.
    pub state: Arc<CaptureState>,
    /// Where news go.
    pub tell: Box<dyn Fn(CaptureNews) + Send>,
}

/// What was captured.
#[derive(Debug, Default)]
pub struct Captured {
    /// `output.raw`.
    pub raw: Kept,
    /// `output.log`.
    pub log: Kept,
    /// `stderr.raw`.
    pub stderr: Option<Kept>,
    /// Judgement of the stamps.
    pub stamps: Option<Stamps>,
    /// Why they are suspect.
    pub stamps_why: Option<String>,
    /// Engine events.
    pub events: Vec<EngineEvent>,
    /// Lines of the event pipe that were no events.
    pub bad_events: u64,
    /// Events beyond the bound in memory (they are in the file).
    pub events_left_out: u64,
    /// A read error other than the end.
    pub read_error: Option<String>,
}

struct Files {
    raw: CappedFile,
    log: CappedFile,
    stderr: Option<CappedFile>,
    events: Option<CappedFile>,
}

struct Reader {
    set: CaptureSetup,
    files: Files,
    out: LineCutter,
    err: LineCutter,
    ev: LineCutter,
    judge: StampJudge,
    log_buf: Vec<u8>,
    live: Vec<Line>,
    live_events: Vec<EngineEvent>,
    flood_told: bool,
    /// Nobody holds the terminal; somebody of the session may open it again.
    hung_up: bool,
    draining: bool,
    /// Tenth of a second of the live view, and lines that it got.
    live_slot: (u64, u32),
    got: Captured,
}

/// Opens the files and prepares the thread's body. Errors are those of making the files.
pub fn prepare(set: CaptureSetup) -> io::Result<impl FnOnce() -> Captured + Send> {
    let file = |name: &str, cap: u64| CappedFile::create(&set.dir.join(name), cap);
    let files = Files {
        raw: file("output.raw", set.cap)?,
        log: file("output.log", set.cap.saturating_mul(2))?,
        stderr: set
            .stderr
            .is_some()
            .then(|| file("stderr.raw", set.cap))
            .transpose()?,
        events: set
            .events
            .is_some()
            .then(|| file("events.jsonl", set.cap.max(16 << 20)))
            .transpose()?,
    };
    let mut judge = StampJudge::default();
    judge.begin(set.start_ns);
    let reader = Reader {
        set,
        files,
        out: LineCutter::default(),
        err: LineCutter::default(),
        ev: LineCutter::default(),
        judge,
        log_buf: Vec::with_capacity(READ * 2),
        live: Vec::new(),
        live_events: Vec::new(),
        flood_told: false,
        hung_up: false,
        draining: false,
        live_slot: (0, 0),
        got: Captured::default(),
    };
    Ok(move || {
        crate::os::process::hurry_this_thread();
        reader.run()
    })
}

/// Which descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Pty,
    Stderr,
    Events,
}

impl Reader {
    fn run(mut self) -> Captured {
        let mut open = vec![Source::Pty];
        open.extend(self.set.stderr.is_some().then_some(Source::Stderr));
        open.extend(self.set.events.is_some().then_some(Source::Events));
        let mut buf = vec![0u8; READ];
        while !open.is_empty() {
            let mut ready = self.poll(&open);
            self.draining |= ready.stop;
            if self.hung_up && open.contains(&Source::Pty) {
                ready.sources.push(Source::Pty);
            }
            if ready.none && self.has_piece() {
                self.flush_pieces();
            }
            let mut read_any = false;
            for s in ready.sources {
                // The terminal hands out 4 KiB at a time: take some of them before writing and asking again.
                for _ in 0..16 {
                    match self.read(s, &mut buf) {
                        Some(0) => break,
                        Some(_) => read_any = true,
                        None => {
                            open.retain(|&o| o != s);
                            break;
                        }
                    }
                }
            }
            self.write_log();
            self.tell_live();
            if self.draining && !read_any {
                break;
            }
        }
        self.flush_pieces();
        self.write_log();
        self.tell_live();
        self.finish()
    }

    fn fd(&self, s: Source) -> RawFd {
        match s {
            Source::Pty => self.set.pty.as_raw_fd(),
            Source::Stderr => self.set.stderr.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            Source::Events => self.set.events.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        }
    }

    fn poll(&self, open: &[Source]) -> Ready {
        let mut fds: Vec<RawFd> = open
            .iter()
            .map(|&s| {
                if s == Source::Pty && self.hung_up {
                    -1
                } else {
                    self.fd(s)
                }
            })
            .collect();
        fds.push(if self.draining {
            -1
        } else {
            self.set.stop.fd()
        });
        let timeout = if self.draining {
            20
        } else if self.hung_up {
            50
        } else if self.has_piece() {
            PIECE_AFTER_MS
        } else {
            1000
        };
        let mut ready = wait_readable(&fds, timeout);
        let none = !ready.iter().any(|&r| r);
        let stop = ready.pop().unwrap_or(false);
        let sources = open
            .iter()
            .zip(&ready)
            .filter(|(_, r)| **r)
            .map(|(&s, _)| s)
            .collect();
        Ready {
            none,
            stop,
            sources,
        }
    }

    fn has_piece(&self) -> bool {
        self.out.has_piece() || self.err.has_piece()
    }

    /// One read and its stamp. `None` at the end of the stream; `Some(0)` when there was nothing.
    fn read(&mut self, s: Source, buf: &mut [u8]) -> Option<usize> {
        let got = match s {
            Source::Pty => (&self.set.pty).read(buf),
            Source::Stderr => self.set.stderr.as_mut()?.read(buf),
            Source::Events => self.set.events.as_mut()?.read(buf),
        };
        let now = clock::mono_ns();
        match got {
            Ok(0) => None,
            Ok(n) => {
                self.hung_up &= s != Source::Pty;
                let bytes = &buf[..n];
                self.set.state.last_ns.store(now, Ordering::Relaxed);
                match s {
                    Source::Pty => self.output(bytes, Stream::Out, now),
                    Source::Stderr => self.output(bytes, Stream::Err, now),
                    Source::Events => self.events(bytes, now),
                }
                Some(n)
            }
            Err(e) => match (e.kind(), e.raw_os_error()) {
                (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _) => Some(0),
                (_, Some(libc::EIO)) if s == Source::Pty => {
                    self.hung_up = true;
                    if self.draining { None } else { Some(0) }
                } // the last holder of the terminal is gone
                _ => {
                    self.got.read_error = Some(e.to_string());
                    None
                }
            },
        }
    }

    fn output(&mut self, bytes: &[u8], stream: Stream, now: u64) {
        match (stream, &mut self.files.stderr) {
            (Stream::Err, Some(f)) => f.write(bytes),
            _ => self.files.raw.write(bytes),
        }
        let total = self
            .set
            .state
            .bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed)
            + bytes.len() as u64;
        if total > self.set.flood_at && !self.flood_told {
            self.flood_told = true;
            (self.set.tell)(CaptureNews::Flood);
        }
        let mut cutter = std::mem::take(match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        });
        let mut sink = LineSink::new(self, stream, now);
        cutter.push(bytes, |line, partial| sink.take(line, partial));
        let lines = sink.complete;
        match stream {
            Stream::Out => self.out = cutter,
            Stream::Err => self.err = cutter,
        }
        self.set.state.lines.fetch_add(lines, Ordering::Relaxed);
        self.judge.read(now, lines);
    }

    fn flush_pieces(&mut self) {
        let now = clock::mono_ns();
        for stream in [Stream::Out, Stream::Err] {
            let mut cutter = std::mem::take(match stream {
                Stream::Out => &mut self.out,
                Stream::Err => &mut self.err,
            });
            let mut sink = LineSink::new(self, stream, now);
            cutter.flush(|line, partial| sink.take(line, partial));
        }
    }

    fn events(&mut self, bytes: &[u8], now: u64) {
        if let Some(f) = &mut self.files.events {
            f.write(bytes);
        }
        let mut cutter = std::mem::take(&mut self.ev);
        cutter.push(bytes, |line, partial| {
            if partial || line.is_empty() {
                return;
            }
            match serde_json::from_slice::<EngineEvent>(line) {
                Ok(e) => self.event(e, now),
                Err(_) => self.got.bad_events += 1,
            }
        });
        self.ev = cutter;
    }

    fn event(&mut self, e: EngineEvent, now: u64) {
        if let Ok(mut p) = self.set.state.phases.lock() {
            p.event(&e, now);
        }
        if e.event == "fatal" && self.set.fatal {
            let text = e.str("message").unwrap_or("fatal").to_owned();
            (self.set.tell)(CaptureNews::Fatal(text));
        }
        if self.set.state.backlog.load(Ordering::Relaxed) + self.live_events.len() < LIVE_BACKLOG {
            self.live_events.push(e.clone());
        }
        if self.got.events.len() < EVENTS_KEPT {
            self.got.events.push(e);
        } else {
            self.got.events_left_out += 1;
        }
    }

    fn write_log(&mut self) {
        if !self.log_buf.is_empty() {
            self.files.log.write(&self.log_buf);
            self.log_buf.clear();
        }
    }

    fn tell_live(&mut self) {
        let (l, e) = (
            std::mem::take(&mut self.live),
            std::mem::take(&mut self.live_events),
        );
        self.set
            .state
            .backlog
            .fetch_add(l.len() + e.len(), Ordering::Relaxed);
        if !l.is_empty() {
            (self.set.tell)(CaptureNews::Lines(l));
        }
        if !e.is_empty() {
            (self.set.tell)(CaptureNews::Events(e));
        }
    }

    fn finish(mut self) -> Captured {
        self.got.raw = self.files.raw.finish();
        self.got.log = self.files.log.finish();
        self.got.stderr = self.files.stderr.map(CappedFile::finish);
        if let Some(f) = self.files.events {
            f.finish();
        }
        self.got.stamps = self.judge.judge();
        self.got.stamps_why = self.judge.why();
        (self.set.tell)(CaptureNews::Done);
        self.got
    }
}

struct Ready {
    none: bool,
    stop: bool,
    sources: Vec<Source>,
}

/// Takes the lines of one read: all of them share its stamp.
struct LineSink<'a> {
    r: &'a mut Reader,
    stream: Stream,
    now: u64,
    wall: DateTime<Utc>,
    prefix: String,
    complete: u64,
    wants_lines: bool,
}

impl<'a> LineSink<'a> {
    fn new(r: &'a mut Reader, stream: Stream, now: u64) -> Self {
        let wall = clock::wall();
        let since = now.saturating_sub(r.set.start_ns);
        let prefix = format!(
            "{}.{:09} {} |",
            since / 1_000_000_000,
            since % 1_000_000_000,
            wall.to_rfc3339_opts(SecondsFormat::Micros, true)
        );
        let wants_lines = r.set.state.phases.lock().is_ok_and(|p| p.wants_lines());
        LineSink {
            r,
            stream,
            now,
            wall,
            prefix,
            complete: 0,
            wants_lines,
        }
    }

    fn take(&mut self, line: &[u8], partial: bool) {
        self.complete += u64::from(!partial);
        let text = String::from_utf8_lossy(line);
        let log = &mut self.r.log_buf;
        log.extend_from_slice(self.prefix.as_bytes());
        log.extend_from_slice(match (partial, self.stream) {
            (false, Stream::Out) => b" ",
            (true, Stream::Out) => b"+ ",
            (false, Stream::Err) => b"! ",
            (true, Stream::Err) => b"!+ ",
        });
        log.extend_from_slice(text.as_bytes());
        log.push(b'\n');
        if self.wants_lines
            && let Ok(mut p) = self.r.set.state.phases.lock()
        {
            p.line(&text, self.now);
        }
        if self.r.set.fatal && fatal::in_output(&text) {
            (self.r.set.tell)(CaptureNews::Fatal(text.clone().into_owned()));
        }
        if self.r.live_slot.0 != self.now / 100_000_000 {
            self.r.live_slot = (self.now / 100_000_000, 0);
        }
        if self.r.live_slot.1 < LIVE_RATE
            && self.r.set.state.backlog.load(Ordering::Relaxed) + self.r.live.len() < LIVE_BACKLOG
        {
            self.r.live_slot.1 += 1;
            self.r.live.push(Line {
                mono_ns: self.now,
                wall: self.wall,
                stream: self.stream,
                text: text.into_owned(),
                partial,
            });
        }
    }
}
