//! Lines from a stream, in bounded memory.

use std::io::{self, Read};
use std::sync::LazyLock;

use memchr::memmem;

use super::super::pci::Pci;
use super::prefix;
use super::record::{Record, split};

/// Longest line that is read; the rest of a longer one is dropped.
pub const MAX_LINE: usize = 16 * 1024;

const CHUNK: usize = 256 * 1024;

/// Records that the log says it lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records missing between sequence numbers of a raw kmsg log.
    pub seq_gap: u64,
    /// Messages held back by the kernel's rate limit (`NN callbacks suppressed`).
    pub suppressed: u64,
    /// Lines that look like two messages written into each other.
    pub interleaved: u64,
    /// Lines longer than [`MAX_LINE`].
    pub too_long: u64,
}

/// Calls `sink` with each line of `input`, without its end; never holds more than a chunk and a line.
///
/// # Errors
/// What reading returns.
pub fn read_lines(mut input: impl Read, mut sink: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut chunk = vec![0u8; CHUNK];
    let mut carry: Vec<u8> = Vec::new();
    let mut too_long = 0u64;
    let mut clipped = false;
    loop {
        let n = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let mut rest = &chunk[..n];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            if carry.is_empty() && !clipped {
                if line.len() > MAX_LINE {
                    too_long += 1;
                }
                sink(&line[..line.len().min(MAX_LINE)]);
            } else {
                let room = MAX_LINE.saturating_sub(carry.len()).min(line.len());
                carry.extend_from_slice(&line[..room]);
                too_long += u64::from(clipped || room < line.len());
                sink(&carry);
                carry.clear();
                clipped = false;
            }
            rest = &rest[end + 1..];
        }
        let room = MAX_LINE.saturating_sub(carry.len()).min(rest.len());
        carry.extend_from_slice(&rest[..room]);
        clipped |= room < rest.len();
    }
    if !carry.is_empty() {
        too_long += u64::from(clipped);
        sink(&carry);
    }
    Ok(too_long)
}

/// Turns lines into records, one at a time.
#[derive(Debug, Default)]
pub struct Lexer {
    line: u64,
    last_seq: Option<u64>,
    raw_kmsg: bool,
    mono_us: u64,
    clean: Vec<u8>,
    losses: Losses,
}

impl Lexer {
    /// A lexer at line 0.
    #[must_use]
    pub fn new() -> Self {
        Lexer::default()
    }

    /// What the log lost so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Adds lines that were cut by the reader.
    pub fn add_too_long(&mut self, n: u64) {
        self.losses.too_long += n;
    }

    /// Reads one line and hands its record to `sink`; blank lines and raw kmsg dictionaries make none.
    pub fn feed(&mut self, line: &[u8], sink: &mut dyn FnMut(&Record<'_>)) {
        self.line += 1;
        let mut line = line;
        while let Some(rest) = line.strip_suffix(b"\r") {
            line = rest;
        }
        if line.is_empty() {
            return;
        }
        // Raw kmsg: ` KEY=value` lines belong to the record before.
        if self.raw_kmsg && line[0] == b' ' && is_dictionary(line) {
            return;
        }
        let mut clean = std::mem::take(&mut self.clean);
        if memchr::memchr(0x1b, line).is_some() {
            strip_escapes(line, &mut clean);
            self.lex(&clean, sink);
        } else {
            self.lex(line, sink);
        }
        self.clean = clean;
    }

    fn lex(&mut self, line: &[u8], sink: &mut dyn FnMut(&Record<'_>)) {
        let p = prefix::read(line);
        if let Some(seq) = p.seq {
            if let Some(last) = self.last_seq
                && seq > last + 1
            {
                self.losses.seq_gap += seq - last - 1;
            }
            self.last_seq = Some(seq);
        }
        self.raw_kmsg = p.raw_kmsg;
        let mut r = split(self.line, &p);
        // Relative stamps add up to a clock of their own.
        if let Some(d) = r.stamp.delta_us {
            self.mono_us = self.mono_us.saturating_add(d);
            r.stamp.mono_us = Some(self.mono_us);
        }
        if let Some(n) = suppressed(r.body) {
            self.losses.suppressed = self.losses.suppressed.saturating_add(n);
        }
        if interleaved(r.body) {
            self.losses.interleaved += 1;
        }
        sink(&r);
    }
}

fn is_dictionary(line: &[u8]) -> bool {
    let body = &line[1..];
    match body.iter().position(|&c| c == b'=') {
        Some(n) if n > 0 => body[..n]
            .iter()
            .all(|c| c.is_ascii_uppercase() || *c == b'_' || c.is_ascii_digit()),
        _ => false,
    }
}

/// `N callbacks suppressed` at the end of a message.
fn suppressed(body: &[u8]) -> Option<u64> {
    let head = body.strip_suffix(b" callbacks suppressed")?;
    let at = head.iter().rposition(|&c| c == b' ').map_or(0, |p| p + 1);
    super::super::pattern::leading_decimal(&head[at..])
}

/// A second `amdgpu 0000:c5:00.0:` head in the middle of a message: two writers shared the line.
fn interleaved(body: &[u8]) -> bool {
    static HEAD: LazyLock<memmem::Finder<'static>> =
        LazyLock::new(|| memmem::Finder::new(b"amdgpu 0000:"));
    let Some(p) = HEAD.find(body) else {
        return false;
    };
    p > 0
        && body.get(p + 7..p + 19).and_then(Pci::parse).is_some()
        && body.get(p + 19) == Some(&b':')
        && body[p - 1] != b'['
}

/// Removes terminal escapes (`ESC [ … letter`).
fn strip_escapes(line: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut i = 0;
    while i < line.len() {
        if line[i] == 0x1b {
            i += 1;
            if line.get(i) == Some(&b'[') {
                i += 1;
                while i < line.len() && !(0x40..=0x7e).contains(&line[i]) {
                    i += 1;
                }
            }
            i += 1;
        } else {
            out.push(line[i]);
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(text: &[u8]) -> (Vec<String>, Losses) {
        let mut lexer = Lexer::new();
        let mut out = Vec::new();
        read_lines(text, |l| {
            lexer.feed(l, &mut |r| {
                out.push(String::from_utf8_lossy(r.body).into_owned())
            });
        })
        .unwrap();
        (out, lexer.losses())
    }

    #[test]
    fn gaps_suppression_and_dictionaries() {
        let (b, l) = bodies(b"6,10,1,-;a\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c5:00.0\n6,15,2,-;gmc_v10_0_process_interrupt: 371 callbacks suppressed\n");
        assert_eq!(b.len(), 2);
        assert_eq!((l.seq_gap, l.suppressed), (4, 371));
    }

    #[test]
    fn escapes_and_carriage_returns_go() {
        let (b, _) = bodies(b"\x1b[32m[    1.000000] \x1b[0m\x1b[33mamdgpu: \x1b[0mhello\r\n");
        assert_eq!(b, ["hello"]);
    }

    #[test]
    fn long_lines_are_cut_and_counted() {
        let mut text = vec![b'x'; MAX_LINE * 3];
        text.push(b'\n');
        text.extend_from_slice(b"end");
        let mut lines = Vec::new();
        let n = read_lines(&text[..], |l| lines.push(l.len())).unwrap();
        assert_eq!((n, lines), (1, vec![MAX_LINE, 3]));
    }

    #[test]
    fn interleaved_lines_are_seen() {
        let (_, l) = bodies(
            b"amdgpu 0000:c5:00.0: amdgpu: GPU resamdgpu 0000:c5:00.0: amdgpu: MODE2 reset\n",
        );
        assert_eq!(l.interleaved, 1);
    }
}
