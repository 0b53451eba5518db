//! A bounded little-endian reader over a [`Source`].
//!
//! Reads ahead in small pieces; every length is compared with the bytes left before anything is
//! allocated for it.

use super::error::Problem;
use super::source::Source;

/// Read-ahead. Small, so that a tiny file does not cost more memory than itself.
const AHEAD: u64 = 64 * 1024;

/// A position in a source, with a read-ahead buffer.
pub(super) struct Cursor<'a> {
    source: &'a Source,
    buffer: Vec<u8>,
    /// Source offset of `buffer[0]`.
    base: u64,
    /// Source offset of the next byte.
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a Source) -> Cursor<'a> {
        Cursor {
            source,
            buffer: Vec::new(),
            base: 0,
            at: 0,
        }
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// Bytes not yet read.
    pub(super) fn left(&self) -> u64 {
        self.source.size().saturating_sub(self.at)
    }

    /// Fails unless `count` items of at least `each` bytes can still follow.
    pub(super) fn need(&self, count: u64, each: u64, what: &str) -> Result<(), Problem> {
        let left = self.left();
        match count.checked_mul(each) {
            Some(needed) if needed <= left => Ok(()),
            needed => Err(Problem::Truncated {
                offset: self.at,
                what: what.to_owned(),
                needed: needed.unwrap_or(u64::MAX),
                left,
            }),
        }
    }

    /// The next `len` bytes; `len` must have been checked against what is left or be tiny.
    fn take(&mut self, len: usize, what: &str) -> Result<&[u8], Problem> {
        self.need(1, len as u64, what)?;
        let inside =
            self.at >= self.base && self.at - self.base + len as u64 <= self.buffer.len() as u64;
        if !inside {
            // Both fit memory: the size of what is left bounds them, and `need` has been asked.
            let fill = (len as u64).max(AHEAD.min(self.left()));
            self.buffer.clear();
            self.buffer.resize(fill as usize, 0);
            self.base = self.at;
            self.source
                .read_at(self.at, &mut self.buffer)
                .map_err(|source| Problem::Io {
                    action: "read its header",
                    source,
                })?;
        }
        let begin = (self.at - self.base) as usize;
        self.at += len as u64;
        Ok(&self.buffer[begin..begin + len])
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Problem> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    /// Little-endian u32.
    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Little-endian u64.
    pub(super) fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length-prefixed UTF-8 string, as a view into the read-ahead.
    pub(super) fn string(&mut self, what: &str) -> Result<&str, Problem> {
        let offset = self.at;
        let len = self.u64(what)?;
        self.need(len, 1, what)?;
        // `need` has bounded it by the file, and a file's header is far below usize here.
        let len = usize::try_from(len).map_err(|_| Problem::Header {
            offset,
            what: format!("{what} claims {len} bytes"),
        })?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|error| Problem::Header {
            offset: offset + 8 + error.valid_up_to() as u64,
            what: format!("{what} is not UTF-8"),
        })
    }
}
