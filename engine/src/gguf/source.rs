//! Where a model's bytes come from.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::Mmap;

use super::error::Problem;

/// A readable run of bytes of a size fixed at opening.
#[derive(Debug)]
pub(crate) struct Source {
    name: String,
    size: u64,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    File {
        path: PathBuf,
        file: File,
        id: (u64, u64),
        map: OnceLock<Mmap>,
    },
    Memory(&'static [u8]),
}

impl Source {
    /// Opens a regular file for reading.
    pub(crate) fn file(path: &Path) -> Result<Source, Problem> {
        let file = File::open(path).map_err(|source| Problem::Io {
            action: "open it",
            source,
        })?;
        let meta = file.metadata().map_err(|source| Problem::Io {
            action: "ask for its size",
            source,
        })?;
        if !meta.is_file() {
            let kind = if meta.is_dir() {
                "a directory; name the .gguf file inside it"
            } else {
                "not a regular file"
            };
            return Err(Problem::BadMagic {
                looks_like: format!("it is {kind}"),
            });
        }
        Ok(Source {
            name: path.display().to_string(),
            size: meta.len(),
            bytes: Bytes::File {
                path: path.to_owned(),
                file,
                id: (meta.dev(), meta.ino()),
                map: OnceLock::new(),
            },
        })
    }

    /// Bytes that are already in memory.
    pub(crate) fn memory(bytes: &'static [u8], name: &str) -> Source {
        Source {
            name: name.to_owned(),
            size: bytes.len() as u64,
            bytes: Bytes::Memory(bytes),
        }
    }

    /// Path or built-in name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Total size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The path, when this is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.bytes {
            Bytes::File { path, .. } => Some(path),
            Bytes::Memory(_) => None,
        }
    }

    /// Device and inode, when this is a file: tells two names of one file apart from two files.
    pub(crate) fn file_id(&self) -> Option<(u64, u64)> {
        match &self.bytes {
            Bytes::File { id, .. } => Some(*id),
            Bytes::Memory(_) => None,
        }
    }

    /// Fills `out` from `offset`, or fails whole.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        match &self.bytes {
            Bytes::File { file, .. } => file.read_exact_at(out, offset),
            Bytes::Memory(bytes) => {
                let part = slice(bytes, offset, out.len() as u64)
                    .ok_or(std::io::ErrorKind::UnexpectedEof)?;
                out.copy_from_slice(part);
                Ok(())
            }
        }
    }

    /// Maps the file (once), so that [`Source::bytes`] answers. Nothing to do in memory.
    pub(crate) fn map(&self) -> std::io::Result<()> {
        let Bytes::File { file, map, .. } = &self.bytes else {
            return Ok(());
        };
        if map.get().is_some() || self.size == 0 {
            return Ok(());
        }
        // SAFETY: the mapping is read-only and private to this value. A file that another process
        // shortens while it is mapped raises SIGBUS on access; that is the documented price of
        // `--mmap`, and the reason why the default way of loading is by reads.
        let new = unsafe { Mmap::map(file)? };
        // Two threads may have mapped at once: one of the two equal mappings is dropped.
        let _ = map.set(new);
        Ok(())
    }

    /// `len` bytes from `offset`, when the source is mapped or in memory.
    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::File { map, .. } => slice(map.get()?, offset, len),
            Bytes::Memory(bytes) => slice(bytes, offset, len),
        }
    }
}

fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    bytes.get(begin..begin.checked_add(usize::try_from(len).ok()?)?)
}
