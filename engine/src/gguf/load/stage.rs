//! Reading tensors piece by piece through buffers that someone else owns: pinned memory on its way to a device.
//!
//! No arena is made, so memory holds a model once, on the device. A piece begins on a page of the file and is at most one
//! buffer long; what stands before the tensor on its first page is skipped when the piece is passed on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::plan::PAGE;
use super::{LoadMode, LoadOptions, LoadStats, cached_fraction, read, threads};
use crate::gguf::error::{GgufError, Problem};
use crate::gguf::file::Gguf;
use crate::gguf::tensor::TensorInfo;

/// A stretch of a tensor that fits one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index of the tensor in its file.
    pub tensor: usize,
    /// Where in the tensor the piece begins.
    pub at: u64,
    /// Bytes of the buffer that stand before it.
    pub skip: usize,
    /// Bytes of it.
    pub len: usize,
    shard: usize,
    // a whole number of pages
    offset: u64,
}

/// The pieces of the tensors with `kept[i]`, in file order, for buffers of `room` bytes (whole pages).
fn pieces(gguf: &Gguf, kept: &[bool], room: usize) -> Vec<Piece> {
    let tensors = gguf.tensors();
    let mut order: Vec<usize> = (0..tensors.len()).filter(|i| kept[*i]).collect();
    order.sort_unstable_by_key(|i| (tensors[*i].shard, tensors[*i].offset));
    let mut out = Vec::new();
    for tensor in order {
        let t = &tensors[tensor];
        let mut skip = (t.offset % PAGE) as usize;
        let (mut offset, mut at) = (t.offset - skip as u64, 0);
        while at < t.bytes {
            let len = (room - skip).min(usize::try_from(t.bytes - at).unwrap_or(usize::MAX));
            out.push(Piece {
                tensor,
                at,
                skip,
                len,
                shard: t.shard,
                offset,
            });
            at += len as u64;
            offset += (skip + len) as u64;
            skip = 0;
        }
    }
    out
}

/// Takes a piece and what fills a page-aligned buffer with it.
pub type Send<'a, E> =
    dyn Fn(&Piece, &mut dyn FnMut(&mut [u8]) -> Result<(), E>) -> Result<(), E> + Sync + 'a;

/// Reads the tensors that `keep` chooses with several threads; `send` lends a buffer of `room` bytes for each piece. Only files
/// can be staged, in [`LoadMode::Auto`], [`LoadMode::Direct`] or [`LoadMode::Buffered`].
///
/// # Errors
/// A file cannot be read or became shorter, or `send` failed.
pub fn stage<E: From<GgufError> + std::marker::Send>(
    gguf: &Gguf,
    options: &LoadOptions,
    room: usize,
    keep: impl Fn(&TensorInfo) -> bool,
    send: &Send<'_, E>,
) -> Result<LoadStats, E> {
    let begin = Instant::now();
    let kept: Vec<bool> = gguf.tensors().iter().map(keep).collect();
    let pieces = pieces(gguf, &kept, room - room % PAGE as usize);
    let bytes = pieces.iter().map(|p| p.len as u64).sum();
    let mut stats = LoadStats {
        mode: options.mode,
        note: None,
        weights_bytes: bytes,
        read_bytes: bytes,
        secs: 0.0,
        threads: 1,
        cached_before: cached_fraction(gguf),
        staging: None,
    };
    stats.resolve_mode();
    stats.threads = threads(options, stats.mode).min(pieces.len()).max(1);
    let direct = if stats.mode == LoadMode::Direct {
        read::open_direct(gguf, &mut stats)
    } else {
        None
    };
    let queue = Mutex::new(pieces.into_iter().rev().collect::<Vec<_>>());
    let (refused, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let work = || -> Result<(), E> {
        while !failed.load(Ordering::Relaxed) {
            let next = queue.lock().unwrap_or_else(|e| e.into_inner()).pop();
            let Some(piece) = next else { break };
            let shard = &gguf.shards()[piece.shard];
            let file = direct
                .as_ref()
                .filter(|_| !refused.load(Ordering::Relaxed))
                .map(|files| &files[piece.shard]);
            let mut fill = |buffer: &mut [u8]| {
                let needed = piece.skip + piece.len;
                read::read(shard, file, piece.offset, needed, buffer, &refused).map_err(|source| {
                    E::from(GgufError::new(
                        shard.name(),
                        Problem::Io {
                            action: "read tensor data",
                            source,
                        },
                    ))
                })
            };
            send(&piece, &mut fill).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    read::run(stats.threads, work)?;
    if refused.into_inner() {
        stats.refused();
    }
    stats.secs = begin.elapsed().as_secs_f64();
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resolve_model;

    #[test]
    fn pieces_cover_every_kept_tensor_once_and_begin_on_pages() {
        let gguf = resolve_model("builtin:mini").unwrap().open().unwrap();
        let kept: Vec<bool> = gguf
            .tensors()
            .iter()
            .map(|t| t.name.contains("ffn_"))
            .collect();
        let room = 3 * PAGE as usize;
        let mut covered = vec![0u64; kept.len()];
        for p in pieces(&gguf, &kept, room) {
            let t = &gguf.tensors()[p.tensor];
            assert!(p.offset.is_multiple_of(PAGE) && p.skip + p.len <= room && p.len > 0);
            assert_eq!(p.offset + p.skip as u64, t.offset + p.at);
            assert_eq!(covered[p.tensor], p.at, "in order, without gaps");
            covered[p.tensor] += p.len as u64;
        }
        for ((t, k), c) in gguf.tensors().iter().zip(&kept).zip(&covered) {
            assert_eq!(*c, if *k { t.bytes } else { 0 }, "{}", t.name);
        }
    }
}
