//! Cuts a byte stream into lines as it arrives.
//!
//! A piece that has no newline yet is handed out when the stream falls silent, and marked, so that a prompt or a
//! progress line gets the stamp of its own moment and not that of whatever comes after it.

/// A piece longer than this is handed out although no newline was seen.
pub const LONGEST: usize = 64 << 10;

/// The part of a line that was seen but not handed out.
#[derive(Debug, Default)]
pub struct LineCutter {
    carry: Vec<u8>,
}

impl LineCutter {
    /// Takes bytes and hands out each line without its end (`\n`, or `\r\n`), and pieces that grew too long.
    /// The flag is true for a piece: the line goes on.
    pub fn push(&mut self, mut bytes: &[u8], mut out: impl FnMut(&[u8], bool)) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let end = &bytes[..at];
            if self.carry.is_empty() {
                out(end.strip_suffix(b"\r").unwrap_or(end), false);
            } else {
                self.carry.extend_from_slice(end);
                let line = std::mem::take(&mut self.carry);
                out(line.strip_suffix(b"\r").unwrap_or(&line), false);
            }
            bytes = &bytes[at + 1..];
        }
        self.carry.extend_from_slice(bytes);
        while self.carry.len() > LONGEST {
            let rest = self.carry.split_off(LONGEST);
            out(&self.carry, true);
            self.carry = rest;
        }
    }

    /// Hands out the piece at hand, if there is one.
    pub fn flush(&mut self, mut out: impl FnMut(&[u8], bool)) {
        if !self.carry.is_empty() {
            let piece = std::mem::take(&mut self.carry);
            out(&piece, true);
        }
    }

    /// Whether a piece is waiting for its newline.
    #[must_use]
    pub fn has_piece(&self) -> bool {
        !self.carry.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(c: &mut LineCutter, chunks: &[&[u8]]) -> Vec<(String, bool)> {
        let mut v = Vec::new();
        for ch in chunks {
            c.push(ch, |l, p| {
                v.push((String::from_utf8_lossy(l).into_owned(), p))
            });
        }
        v
    }

    #[test]
    fn lines_cross_reads_and_keep_inner_carriage_returns() {
        let mut c = LineCutter::default();
        let got = collect(&mut c, &[b"a", b"b\r\n10%\r20%", b"\r100%\n\n", b"rest"]);
        let want = [("ab", false), ("10%\r20%\r100%", false), ("", false)];
        assert_eq!(got, want.map(|(s, p)| (s.to_owned(), p)));
        assert!(c.has_piece());
        let mut last = Vec::new();
        c.flush(|l, p| last.push((l.to_vec(), p)));
        assert_eq!(last, [(b"rest".to_vec(), true)]);
        assert!(!c.has_piece());
    }

    #[test]
    fn a_line_without_end_is_cut_into_pieces() {
        let mut c = LineCutter::default();
        let mut sizes = Vec::new();
        for _ in 0..5 {
            c.push(&vec![b'x'; 40_000], |l, p| sizes.push((l.len(), p)));
        }
        c.push(b"\n", |l, p| sizes.push((l.len(), p)));
        assert_eq!(sizes.iter().map(|s| s.0).sum::<usize>(), 200_000);
        assert!(
            sizes[..sizes.len() - 1]
                .iter()
                .all(|s| *s == (LONGEST, true))
        );
        assert!(!sizes[sizes.len() - 1].1);
    }
}
