//! Reading stretches with several threads.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use memmap2::MmapMut;

use super::plan::{PAGE, Plan};
use super::{LoadMode, LoadStats};
use crate::gguf::error::{GgufError, Problem};
use crate::gguf::file::{Gguf, Shard};

/// Bytes of one read: large enough to run a disk at its rate, small enough to share out evenly.
const CHUNK: usize = 8 << 20;

/// A piece of work: fill `out` from `offset` of a shard; only the first `needed` bytes must come.
struct Job<'a> {
    shard: usize,
    offset: u64,
    needed: usize,
    out: &'a mut [u8],
}

/// Reads every stretch of the plan into the arena.
pub(super) fn fill(
    gguf: &Gguf,
    plan: &Plan,
    arena: &mut MmapMut,
    threads: usize,
    stats: &mut LoadStats,
) -> Result<(), GgufError> {
    let direct = if stats.mode == LoadMode::Direct {
        open_direct(gguf, stats)
    } else {
        None
    };
    let jobs = Mutex::new(jobs(plan, arena));
    stats.threads = threads
        .min(
            plan.extents
                .len()
                .max((plan.bytes() as usize).div_ceil(CHUNK)),
        )
        .max(1);
    stats.read_bytes = plan.bytes();
    let refused = AtomicBool::new(false);
    let work = || -> Result<(), GgufError> {
        while let Some(job) = jobs.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            let shard = &gguf.shards()[job.shard];
            let file = direct
                .as_ref()
                .filter(|_| !refused.load(Ordering::Relaxed))
                .map(|files| &files[job.shard]);
            read(shard, file, job.offset, job.needed, job.out, &refused).map_err(|source| {
                GgufError::new(
                    shard.name(),
                    Problem::Io {
                        action: "read tensor data",
                        source,
                    },
                )
            })?;
        }
        Ok(())
    };
    run(stats.threads, work)?;
    if refused.into_inner() {
        stats.refused();
    }
    Ok(())
}

/// Runs `work` on `threads` threads, this one included; the first error wins.
pub(super) fn run<E: Send>(
    threads: usize,
    work: impl Fn() -> Result<(), E> + Sync,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .filter_map(|i| {
                std::thread::Builder::new()
                    .name(format!("load-{i}"))
                    .spawn_scoped(scope, &work)
                    .ok()
            })
            .collect();
        let mut result = work();
        for other in others {
            // A panic in a thread would have been a bug in this file; its share is then unread.
            match other.join() {
                Ok(theirs) => result = result.and(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

/// The arena cut into pieces, the first ones last: they are taken from the end.
fn jobs<'a>(plan: &Plan, arena: &'a mut [u8]) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    let mut rest = arena;
    for extent in &plan.extents {
        let (mut room, after) = std::mem::take(&mut rest).split_at_mut(extent.room());
        rest = after;
        let (mut offset, mut left) = (extent.offset, extent.len);
        while !room.is_empty() {
            let (out, more) = room.split_at_mut(room.len().min(CHUNK));
            let needed = left.min(out.len() as u64);
            room = more;
            jobs.push(Job {
                shard: extent.shard,
                offset,
                needed: needed as usize,
                out,
            });
            offset += CHUNK as u64;
            left -= needed;
        }
    }
    jobs.reverse();
    jobs
}

/// Fills the first `needed` bytes of `out` from `offset` on, from `direct` where there is one: offset and `out` are then whole
/// pages. A file system that refuses a direct read is remembered in `refused`.
pub(super) fn read(
    shard: &Shard,
    direct: Option<&File>,
    offset: u64,
    needed: usize,
    out: &mut [u8],
    refused: &AtomicBool,
) -> std::io::Result<()> {
    if let Some(file) = direct {
        let pages = needed.next_multiple_of(PAGE as usize).min(out.len());
        match read_whole_pages(file, offset, needed, &mut out[..pages]) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                refused.store(true, Ordering::Relaxed)
            }
            other => return other,
        }
    }
    shard.source().read_at(offset, &mut out[..needed])
}

/// Reads past the page cache: offset, address and lengths stay whole pages until the file ends.
fn read_whole_pages(
    file: &File,
    offset: u64,
    needed: usize,
    out: &mut [u8],
) -> std::io::Result<()> {
    let mut done = 0;
    while done < needed {
        match file.read_at(&mut out[done..], offset + done as u64) {
            Ok(0) => {
                return Err(Error::new(
                    ErrorKind::UnexpectedEof,
                    "the file became shorter while it was read",
                ));
            }
            // A short read that is no multiple of a page can only be the end of the file.
            Ok(n) if done + n < needed && !(n as u64).is_multiple_of(PAGE) => {
                return Err(Error::new(
                    ErrorKind::UnexpectedEof,
                    "the file became shorter while it was read",
                ));
            }
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Every shard opened for direct reads, or `None` with a note when one cannot be.
pub(super) fn open_direct(gguf: &Gguf, stats: &mut LoadStats) -> Option<Vec<File>> {
    let mut files = Vec::with_capacity(gguf.shards().len());
    for shard in gguf.shards() {
        let opened = shard
            .path()
            .ok_or_else(|| Error::from(ErrorKind::Unsupported))
            .and_then(|path| {
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_DIRECT)
                    .open(path)?;
                let meta = file.metadata()?;
                if shard.source().file_id() == Some((meta.dev(), meta.ino()))
                    && meta.len() == shard.size()
                {
                    Ok(file)
                } else {
                    Err(Error::other(
                        "the file was replaced after its header was read",
                    ))
                }
            });
        match opened {
            Ok(file) => files.push(file),
            Err(error) => {
                stats.note = Some(format!(
                    "no direct reads from {}: {error}; reading through the page cache",
                    shard.name()
                ));
                stats.mode = LoadMode::Buffered;
                return None;
            }
        }
    }
    Some(files)
}

/// Touches every page of the plan's stretches in the mapped files.
pub(super) fn touch(gguf: &Gguf, plan: &Plan, threads: usize, stats: &mut LoadStats) {
    let mut pieces: Vec<&[u8]> = plan
        .extents
        .iter()
        .filter_map(|e| gguf.shards()[e.shard].source().bytes(e.offset, e.len))
        .flat_map(|bytes| bytes.chunks(CHUNK))
        .collect();
    pieces.reverse();
    stats.threads = threads.min(pieces.len()).max(1);
    stats.read_bytes = plan.bytes();
    let pieces = Mutex::new(pieces);
    let work = || -> Result<(), std::convert::Infallible> {
        while let Some(piece) = pieces.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            // SAFETY: the range is a live read-only mapping; WILLNEED changes nothing about its bytes. A
            // start that is not a page boundary is refused without effect, which costs speed alone.
            unsafe {
                libc::madvise(
                    piece.as_ptr().cast_mut().cast(),
                    piece.len(),
                    libc::MADV_WILLNEED,
                );
            }
            let sum = piece
                .iter()
                .step_by(PAGE as usize)
                .fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            std::hint::black_box(sum);
        }
        Ok(())
    };
    let Ok(()) = run(stats.threads, work);
}

/// Reads all of a model's files from front to back with one thread and one buffer: what the disk (or,
/// when warm, the page cache) gives a plain reader. Returns bytes and seconds.
pub fn plain_read(gguf: &Gguf, direct: bool) -> Result<(u64, f64), GgufError> {
    let failed = |shard: &Shard, source| {
        GgufError::new(
            shard.name(),
            Problem::Io {
                action: "read it",
                source,
            },
        )
    };
    let mut buffer = MmapMut::map_anon(CHUNK).map_err(|source| {
        gguf.error(Problem::Memory {
            bytes: CHUNK as u64,
            source,
        })
    })?;
    let begin = Instant::now();
    let mut total = 0;
    for shard in gguf.shards() {
        let Some(path) = shard.path() else { continue };
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(|e| failed(shard, e))?;
        let mut offset = 0;
        while offset < shard.size() {
            let n = file
                .read_at(&mut buffer, offset)
                .map_err(|e| failed(shard, e))?;
            if n == 0 {
                break;
            }
            offset += n as u64;
        }
        total += offset;
    }
    Ok((total, begin.elapsed().as_secs_f64()))
}
