//! A file that keeps its head and its tail.
//!
//! Half of the cap is head, written straight to the file. The rest goes round in a ring file of the other half, so
//! that memory stays constant and the disk's pages are written over instead of being made anew.
//! [`CappedFile::close`] puts the tail behind the head, with a marker line between them that says how many bytes are
//! missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A bounded output file.
#[derive(Debug)]
pub struct CappedFile {
    path: PathBuf,
    head: File,
    head_cap: u64,
    head_len: u64,
    ring: Option<(PathBuf, File)>,
    ring_cap: u64,
    /// Where in the ring the next byte goes.
    at: u64,
    /// The ring was filled once: all of it is tail.
    wrapped: bool,
    total: u64,
    lost: u64,
    error: Option<String>,
}

/// What became of a bounded file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Bytes written to it.
    pub total: u64,
    /// Bytes cut out of its middle.
    pub cut: u64,
    /// Bytes that the disk did not take.
    pub lost: u64,
    /// The first error of the disk.
    pub error: Option<String>,
}

impl CappedFile {
    /// Makes a new file; one that exists is an error, so that no attempt writes over another.
    pub fn create(path: &Path, cap: u64) -> io::Result<Self> {
        let head = OpenOptions::new()
            .write(true)
            .read(true)
            .create_new(true)
            .open(path)?;
        Ok(CappedFile {
            path: path.to_owned(),
            head,
            head_cap: (cap / 2).max(1),
            head_len: 0,
            ring: None,
            ring_cap: (cap / 2).max(1),
            at: 0,
            wrapped: false,
            total: 0,
            lost: 0,
            error: None,
        })
    }

    /// Appends; an error of the disk is remembered and the bytes are counted as lost.
    pub fn write(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_cap.saturating_sub(self.head_len);
        if room > 0 {
            let n = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            match self.head.write_all(&bytes[..n]) {
                Ok(()) => self.head_len += n as u64,
                Err(e) => self.failed(n, &e),
            }
            bytes = &bytes[n..];
        }
        while !bytes.is_empty() {
            if let Err(e) = self.tail(&mut bytes) {
                self.failed(bytes.len(), &e);
                return;
            }
        }
    }

    fn failed(&mut self, n: usize, e: &io::Error) {
        self.lost += n as u64;
        if self.error.is_none() {
            self.error = Some(e.to_string());
        }
    }

    fn tail(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        if self.ring.is_none() {
            // Beside the file and under its whole name: output.raw and output.log have tails of their own.
            let name = self
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let p = self.path.with_file_name(format!("{name}.tail"));
            let f = OpenOptions::new()
                .write(true)
                .read(true)
                .create(true)
                .truncate(true)
                .open(&p)?;
            self.ring = Some((p, f));
        }
        let Some((_, f)) = &self.ring else {
            return Ok(());
        };
        let n = usize::try_from(self.ring_cap - self.at)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        f.write_all_at(&bytes[..n], self.at)?;
        self.at += n as u64;
        if self.at >= self.ring_cap {
            self.at = 0;
            self.wrapped = true;
        }
        *bytes = &bytes[n..];
        Ok(())
    }

    /// Bytes written so far, cut ones included.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Puts head and tail together. The file comes back for whoever wants to wait until the disk has it.
    pub fn close(mut self) -> (Kept, File) {
        let mut cut = 0;
        if let Some((path, ring)) = self.ring.take() {
            let tail = if self.wrapped { self.ring_cap } else { self.at };
            cut = self.total.saturating_sub(self.head_len + tail + self.lost);
            if let Err(e) = self.join(&ring, cut) {
                self.failed(0, &e);
            }
            let _ = std::fs::remove_file(path);
        }
        let kept = Kept {
            total: self.total,
            cut,
            lost: self.lost,
            error: self.error,
        };
        (kept, self.head)
    }

    fn join(&mut self, ring: &File, cut: u64) -> io::Result<()> {
        if cut > 0 {
            let marker =
                format!("\n--- legwork: {cut} bytes cut here: output went past its cap ---\n");
            self.head.write_all(marker.as_bytes())?;
        }
        let spans = if self.wrapped {
            vec![(self.at, self.ring_cap), (0, self.at)]
        } else {
            vec![(0, self.at)]
        };
        let mut first = cut > 0;
        let mut buf = vec![0u8; 256 << 10];
        for (mut from, to) in spans {
            while from < to {
                let n = usize::try_from(to - from)
                    .unwrap_or(usize::MAX)
                    .min(buf.len());
                ring.read_exact_at(&mut buf[..n], from)?;
                from += n as u64;
                let mut part = &buf[..n];
                if std::mem::take(&mut first) {
                    // The tail begins inside a line: leave out its rest, if its end is near.
                    if let Some(at) = memchr::memchr(b'\n', &part[..part.len().min(4096)]) {
                        part = &part[at + 1..];
                    }
                }
                self.head.write_all(part)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_the_cap_nothing_changes() {
        let d = tempfile::tempdir().unwrap();
        let p = d.path().join("o.raw");
        let mut f = CappedFile::create(&p, 1000).unwrap();
        f.write(b"abc\n");
        f.write(&[b'x'; 600]);
        assert_eq!(
            f.close().0,
            Kept {
                total: 604,
                ..Kept::default()
            }
        );
        let mut want = b"abc\n".to_vec();
        want.extend([b'x'; 600]);
        assert_eq!(std::fs::read(&p).unwrap(), want);
        assert!(
            CappedFile::create(&p, 10).is_err(),
            "never writes over another attempt"
        );
    }

    #[test]
    fn a_flood_keeps_head_and_tail_and_says_what_is_missing() {
        let d = tempfile::tempdir().unwrap();
        let p = d.path().join("o.raw");
        let mut f = CappedFile::create(&p, 4000).unwrap();
        for i in 0..10_000 {
            f.write(format!("line {i}\n").as_bytes());
        }
        let k = f.close().0;
        let text = std::fs::read_to_string(&p).unwrap();
        assert!(text.starts_with("line 0\nline 1\n"));
        assert!(text.ends_with("line 9998\nline 9999\n"));
        assert!(text.contains(&format!("--- legwork: {} bytes cut here", k.cut)));
        assert!(k.cut > 0 && k.total - k.cut <= 4000 && k.total - k.cut >= 3000);
        assert!(std::fs::metadata(&p).unwrap().len() < 4200);
        assert_eq!(
            std::fs::read_dir(d.path()).unwrap().count(),
            1,
            "the ring is removed"
        );
    }

    #[test]
    fn two_files_of_one_stem_keep_their_own_tails() {
        let d = tempfile::tempdir().unwrap();
        let mut a = CappedFile::create(&d.path().join("output.raw"), 400).unwrap();
        let mut b = CappedFile::create(&d.path().join("output.log"), 400).unwrap();
        for _ in 0..500 {
            a.write(b"aaaa\n");
            b.write(b"bbbb\n");
        }
        let _ = (a.close(), b.close());
        let read = |n: &str| {
            std::fs::read_to_string(d.path().join(n))
                .unwrap()
                .replace(" by", "")
        };
        let strip = |t: String| {
            t.lines()
                .filter(|l| !l.starts_with("---"))
                .collect::<String>()
        };
        assert!(
            !strip(read("output.raw")).contains('b') && !strip(read("output.log")).contains('a')
        );
    }

    #[test]
    fn the_tail_is_whole_just_above_the_cap_of_the_head() {
        let d = tempfile::tempdir().unwrap();
        let p = d.path().join("o.raw");
        let mut f = CappedFile::create(&p, 40).unwrap();
        f.write(b"0123456789012345678901234567");
        let k = f.close().0;
        assert_eq!(k.cut, 0);
        assert_eq!(std::fs::read(&p).unwrap(), b"0123456789012345678901234567");
    }
}
