//! The writing thread: cuts blocks into lines, writes them down, then tells.

use std::fs::File;
use std::io::{self, PipeReader};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use legwork_reports::model::Stamps;

use super::capped::{CappedFile, Kept};
use super::fatal;
use super::lines::LineCutter;
use super::phases::PhaseTracker;
use super::reader::{BLOCKS, Block, Cut, Position, Reader, Source};
use super::stamps::StampJudge;
use crate::os::clock;
use crate::os::wake::Wake;
use crate::supervise::spec::{EngineEvent, Line, Stream};

/// Lines and events that may wait for the live view before further ones are left out of it.
const LIVE_BACKLOG: usize = 8192;
/// Lines of one tenth of a second that reach the live view: nobody reads faster, and the files have them all.
const LIVE_RATE: u32 = 500;
/// Events kept in memory for the outcome.
const EVENTS_KEPT: usize = 200_000;
/// A piece of a line is handed out after this much silence.
const PIECE_AFTER: Duration = Duration::from_millis(150);

/// What the capture tells the supervisor while it runs.
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
    /// Every descriptor is closed or drained: the capture ends.
    Done,
}

/// Where news go.
pub type Tell = Arc<dyn Fn(CaptureNews) + Send + Sync>;

/// Figures that others may look at while the capture runs.
#[derive(Debug, Default)]
pub struct CaptureState {
    /// Bytes of output read.
    pub bytes: AtomicU64,
    /// Complete lines.
    pub lines: AtomicU64,
    /// CLOCK_MONOTONIC ns of the last output or event.
    pub last_ns: AtomicU64,
    /// CLOCK_MONOTONIC ns until which the tree was stopped by us; 0 when it never was.
    pub resumed_ns: AtomicU64,
    /// Live items handed over and not yet taken.
    pub backlog: AtomicUsize,
    /// Phases.
    pub phases: Mutex<PhaseTracker>,
}

/// What the capture works on.
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
    pub tell: Tell,
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
    /// The files, to wait until the disk has them.
    pub files: Vec<(&'static str, File)>,
}

struct Files {
    raw: CappedFile,
    log: CappedFile,
    stderr: Option<CappedFile>,
    events: Option<CappedFile>,
}

struct Writer {
    state: Arc<CaptureState>,
    tell: Tell,
    start_ns: u64,
    fatal: bool,
    files: Files,
    out: LineCutter,
    err: LineCutter,
    ev: LineCutter,
    judge: StampJudge,
    log_buf: Vec<u8>,
    live: Vec<Line>,
    live_events: Vec<EngineEvent>,
    /// Tenth of a second of the live view, and lines that it got.
    live_slot: (u64, u32),
    /// Moments of the last reads of output and of stderr: the stamps of their unfinished pieces.
    last: [Option<Cut>; 2],
    got: Captured,
}

/// Opens the files and prepares the body of the writing thread, which starts the reading one. Errors are those of
/// making the files.
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
    let writer = Writer {
        state: Arc::clone(&set.state),
        tell: Arc::clone(&set.tell),
        start_ns: set.start_ns,
        fatal: set.fatal,
        files,
        out: LineCutter::default(),
        err: LineCutter::default(),
        ev: LineCutter::default(),
        judge,
        log_buf: Vec::with_capacity(1 << 20),
        live: Vec::new(),
        live_events: Vec::new(),
        live_slot: (0, 0),
        last: [None, None],
        got: Captured::default(),
    };
    Ok(move || writer.run(set))
}

impl Writer {
    fn run(mut self, set: CaptureSetup) -> Captured {
        let (full, blocks) = sync_channel::<Block>(BLOCKS);
        let (give_back, empty) = channel::<Block>();
        for _ in 0..BLOCKS {
            let _ = give_back.send(Block::new());
        }
        let reader = Reader {
            pty: set.pty,
            stderr: set.stderr,
            events: set.events,
            stop: set.stop,
            state: set.state,
            tell: set.tell,
            flood_at: set.flood_at,
            full,
            empty,
            at: Position::default(),
        };
        let reading = std::thread::spawn(move || {
            crate::os::process::hurry_this_thread();
            reader.run()
        });
        loop {
            let got = if self.has_piece() {
                blocks.recv_timeout(PIECE_AFTER)
            } else {
                blocks.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match got {
                Ok(b) => {
                    self.take(&b);
                    let _ = give_back.send(b);
                }
                Err(RecvTimeoutError::Timeout) => self.flush_pieces(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.write_log();
            self.tell_live();
        }
        self.flush_pieces();
        self.write_log();
        self.tell_live();
        self.got.read_error = reading
            .join()
            .unwrap_or_else(|_| Some("the reading thread died".into()));
        self.finish()
    }

    fn has_piece(&self) -> bool {
        self.out.has_piece() || self.err.has_piece()
    }

    fn take(&mut self, b: &Block) {
        let (stream, slot) = match b.source {
            Source::Events => return self.events(b),
            Source::Pty => (Stream::Out, 0),
            Source::Stderr => (Stream::Err, 1),
        };
        match (stream, &mut self.files.stderr) {
            (Stream::Err, Some(f)) => f.write(b.bytes()),
            _ => self.files.raw.write(b.bytes()),
        }
        self.judge
            .resumed(self.state.resumed_ns.load(Ordering::Relaxed));
        // Asked once for the block: nearly none holds a word of a fatal line.
        let hint = self.fatal && fatal::may_be_in(b.bytes());
        let wants_lines = self.state.phases.lock().is_ok_and(|p| p.wants_lines());
        let mut cutter = std::mem::take(self.cutter(stream));
        let mut from = 0;
        for cut in &b.cuts {
            let bytes = &b.bytes()[from..cut.end];
            from = cut.end;
            let mut sink = LineSink::new(self, stream, *cut, wants_lines);
            cutter.push(bytes, |line, partial| {
                // A line that began in an earlier block was not looked at by the hint.
                let here = bytes.as_ptr_range().contains(&line.as_ptr());
                sink.take(line, partial, hint || !here);
            });
            let lines = sink.complete;
            self.state.lines.fetch_add(lines, Ordering::Relaxed);
            self.judge.read(cut.mono_ns, lines);
            self.last[slot] = Some(*cut);
        }
        *self.cutter(stream) = cutter;
    }

    fn cutter(&mut self, stream: Stream) -> &mut LineCutter {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }

    /// Hands out unfinished pieces; their stamp is that of the read that brought them.
    fn flush_pieces(&mut self) {
        let wants_lines = self.state.phases.lock().is_ok_and(|p| p.wants_lines());
        for (slot, stream) in [Stream::Out, Stream::Err].into_iter().enumerate() {
            let cut = self.last[slot].unwrap_or_else(|| Cut {
                end: 0,
                mono_ns: clock::mono_ns(),
                wall: clock::wall(),
            });
            let mut cutter = std::mem::take(self.cutter(stream));
            let mut sink = LineSink::new(self, stream, cut, wants_lines);
            cutter.flush(|line, partial| sink.take(line, partial, true));
            *self.cutter(stream) = cutter;
        }
    }

    fn events(&mut self, b: &Block) {
        if let Some(f) = &mut self.files.events {
            f.write(b.bytes());
        }
        let mut cutter = std::mem::take(&mut self.ev);
        let mut from = 0;
        for cut in &b.cuts {
            cutter.push(&b.bytes()[from..cut.end], |line, partial| {
                if partial || line.is_empty() {
                    return;
                }
                match serde_json::from_slice::<EngineEvent>(line) {
                    Ok(e) => self.event(e, cut.mono_ns),
                    Err(_) => self.got.bad_events += 1,
                }
            });
            from = cut.end;
        }
        self.ev = cutter;
    }

    fn event(&mut self, e: EngineEvent, now: u64) {
        if let Ok(mut p) = self.state.phases.lock() {
            p.event(&e, now);
        }
        if e.event == "fatal" && self.fatal {
            let text = e.str("message").unwrap_or("fatal").to_owned();
            (self.tell)(CaptureNews::Fatal(text));
        }
        if self.state.backlog.load(Ordering::Relaxed) + self.live_events.len() < LIVE_BACKLOG {
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
        self.state
            .backlog
            .fetch_add(l.len() + e.len(), Ordering::Relaxed);
        if !l.is_empty() {
            (self.tell)(CaptureNews::Lines(l));
        }
        if !e.is_empty() {
            (self.tell)(CaptureNews::Events(e));
        }
    }

    fn finish(mut self) -> Captured {
        let mut keep = |name: &'static str, f: CappedFile| {
            let (kept, file) = f.close();
            self.got.files.push((name, file));
            kept
        };
        self.got.raw = keep("output.raw", self.files.raw);
        self.got.log = keep("output.log", self.files.log);
        self.got.stderr = self.files.stderr.map(|f| keep("stderr.raw", f));
        if let Some(f) = self.files.events {
            keep("events.jsonl", f);
        }
        self.got.stamps = self.judge.judge();
        self.got.stamps_why = self.judge.why();
        (self.tell)(CaptureNews::Done);
        self.got
    }
}

/// Takes the lines of one read: all of them share its stamp.
struct LineSink<'a> {
    w: &'a mut Writer,
    stream: Stream,
    now: u64,
    wall: DateTime<Utc>,
    prefix: String,
    complete: u64,
    wants_lines: bool,
}

impl<'a> LineSink<'a> {
    fn new(w: &'a mut Writer, stream: Stream, at: Cut, wants_lines: bool) -> Self {
        let since = at.mono_ns.saturating_sub(w.start_ns);
        let prefix = format!(
            "{}.{:09} {} |",
            since / 1_000_000_000,
            since % 1_000_000_000,
            at.wall.to_rfc3339_opts(SecondsFormat::Micros, true)
        );
        LineSink {
            w,
            stream,
            now: at.mono_ns,
            wall: at.wall,
            prefix,
            complete: 0,
            wants_lines,
        }
    }

    fn take(&mut self, line: &[u8], partial: bool, may_be_fatal: bool) {
        self.complete += u64::from(!partial);
        let text = String::from_utf8_lossy(line);
        let log = &mut self.w.log_buf;
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
            && let Ok(mut p) = self.w.state.phases.lock()
        {
            p.line(&text, self.now);
        }
        if self.w.fatal && may_be_fatal && fatal::in_output(&text) {
            (self.w.tell)(CaptureNews::Fatal(text.clone().into_owned()));
        }
        if self.w.live_slot.0 != self.now / 100_000_000 {
            self.w.live_slot = (self.now / 100_000_000, 0);
        }
        if self.w.live_slot.1 < LIVE_RATE
            && self.w.state.backlog.load(Ordering::Relaxed) + self.w.live.len() < LIVE_BACKLOG
        {
            self.w.live_slot.1 += 1;
            self.w.live.push(Line {
                mono_ns: self.now,
                wall: self.wall,
                stream: self.stream,
                text: text.into_owned(),
                partial,
            });
        }
    }
}
