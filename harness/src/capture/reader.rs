//! The reading thread: takes bytes from the terminal and the pipes as they come, stamps each read, and hands blocks
//! on. It does nothing else, so that a stamp is the moment of its read and the leg never waits for our bookkeeping.
//!
//! Blocks go round in a fixed pool: when the writer cannot keep up, reading waits for it, then the terminal is full, then
//! the leg waits. Memory stays what it is.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use chrono::{DateTime, Utc};

use super::writer::{CaptureNews, CaptureState, Tell};
use crate::os::clock;
use crate::os::wake::{Wake, wait_readable};

/// Bytes of one read.
const READ: usize = 64 << 10;
/// Bytes of one block: the terminal hands out 4 to 8 KiB at a time, and some of them travel together.
const BLOCK: usize = 256 << 10;
/// Reads of one block at most: a leg that writes byte by byte must not make its list of stamps long.
const CUTS: usize = 1024;
/// Blocks that go round.
pub(super) const BLOCKS: usize = 8;

/// Which descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The terminal.
    Pty,
    /// Separate stderr.
    Stderr,
    /// Engine events.
    Events,
}

/// The end of one read inside a block, and its moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub end: usize,
    pub mono_ns: u64,
    pub wall: DateTime<Utc>,
}

/// Bytes of one source with the stamps of their reads.
#[derive(Debug)]
pub(super) struct Block {
    pub source: Source,
    data: Vec<u8>,
    pub len: usize,
    pub cuts: Vec<Cut>,
}

impl Block {
    /// An empty one.
    pub(super) fn new() -> Self {
        Block {
            source: Source::Pty,
            data: vec![0; BLOCK],
            len: 0,
            cuts: Vec::with_capacity(CUTS),
        }
    }

    /// What was read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

/// What the thread works on.
pub(super) struct Reader {
    pub pty: File,
    pub stderr: Option<PipeReader>,
    pub events: Option<PipeReader>,
    pub stop: Wake,
    pub state: Arc<CaptureState>,
    pub tell: Tell,
    /// Bytes after which the output is a flood.
    pub flood_at: u64,
    pub full: SyncSender<Block>,
    pub empty: Receiver<Block>,
    pub at: Position,
}

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Position {
    flood_told: bool,
    /// Nobody holds the terminal; somebody of the session may open it again.
    hung_up: bool,
    draining: bool,
    read_error: Option<String>,
}

impl Reader {
    /// Reads until it is told to stop and nothing is left; the error that ended it early, if one did.
    pub(super) fn run(mut self) -> Option<String> {
        let mut open = vec![Source::Pty];
        open.extend(self.stderr.is_some().then_some(Source::Stderr));
        open.extend(self.events.is_some().then_some(Source::Events));
        let mut spare: Option<Block> = None;
        while !open.is_empty() {
            let ready = self.poll(&open);
            let mut read_any = false;
            for s in ready {
                let Some(mut block) = spare.take().or_else(|| self.empty.recv().ok()) else {
                    return self.at.read_error; // the writer is gone
                };
                block.source = s;
                block.len = 0;
                block.cuts.clear();
                if !self.fill(s, &mut block) {
                    open.retain(|&o| o != s);
                }
                if block.len == 0 {
                    spare = Some(block);
                } else {
                    read_any = true;
                    if self.full.send(block).is_err() {
                        return self.at.read_error;
                    }
                }
            }
            if self.at.draining && !read_any {
                break;
            }
        }
        self.at.read_error
    }

    fn fd(&self, s: Source) -> RawFd {
        match s {
            Source::Pty if self.at.hung_up => -1,
            Source::Pty => self.pty.as_raw_fd(),
            Source::Stderr => self.stderr.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            Source::Events => self.events.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        }
    }

    fn poll(&mut self, open: &[Source]) -> Vec<Source> {
        let mut fds: Vec<RawFd> = open.iter().map(|&s| self.fd(s)).collect();
        let draining = self.at.draining;
        fds.push(if draining { -1 } else { self.stop.fd() });
        let timeout = match (draining, self.at.hung_up) {
            (true, _) => 20,
            (false, true) => 50,
            (false, false) => 1000,
        };
        let mut ready = wait_readable(&fds, timeout);
        self.at.draining |= ready.pop().unwrap_or(false);
        let mut sources: Vec<Source> = open
            .iter()
            .zip(&ready)
            .filter(|(_, r)| **r)
            .map(|(&s, _)| s)
            .collect();
        if self.at.hung_up && open.contains(&Source::Pty) {
            sources.push(Source::Pty);
        }
        sources
    }

    /// Reads until there is nothing more or the block is full; false at the end of the stream.
    fn fill(&mut self, s: Source, block: &mut Block) -> bool {
        while block.len + READ <= BLOCK && block.cuts.len() < CUTS {
            let room = &mut block.data[block.len..block.len + READ];
            let got = match s {
                Source::Pty => (&self.pty).read(room),
                Source::Stderr => self.stderr.as_mut().map_or(Ok(0), |r| r.read(room)),
                Source::Events => self.events.as_mut().map_or(Ok(0), |r| r.read(room)),
            };
            let (mono_ns, wall) = (clock::mono_ns(), clock::wall());
            match got {
                Ok(0) => return false,
                Ok(n) => {
                    self.at.hung_up &= s != Source::Pty;
                    block.len += n;
                    block.cuts.push(Cut {
                        end: block.len,
                        mono_ns,
                        wall,
                    });
                    self.count(s, n, mono_ns);
                }
                Err(e) => {
                    return match (e.kind(), e.raw_os_error()) {
                        (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _) => true,
                        (_, Some(libc::EIO)) if s == Source::Pty => {
                            self.at.hung_up = true; // the last holder of the terminal is gone
                            !self.at.draining
                        }
                        _ => {
                            self.at.read_error = Some(e.to_string());
                            false
                        }
                    };
                }
            }
        }
        true
    }

    fn count(&mut self, s: Source, n: usize, mono_ns: u64) {
        self.state.last_ns.store(mono_ns, Ordering::Relaxed);
        if s == Source::Events {
            return;
        }
        let n = n as u64;
        let total = self.state.bytes.fetch_add(n, Ordering::Relaxed) + n;
        if total > self.flood_at && !self.at.flood_told {
            self.at.flood_told = true;
            (self.tell)(CaptureNews::Flood);
        }
    }
}
