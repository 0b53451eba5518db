//! The page cache: what it holds of a model, and dropping that.

use std::fs::File;
use std::os::fd::AsRawFd;

use memmap2::MmapOptions;

use super::plan::PAGE;
use crate::gguf::file::Gguf;

/// Looked at in pieces of this size, so that the answer takes little memory for any model.
const WINDOW: u64 = 1 << 30;

/// The fraction (0 to 1) of a model's files that the page cache holds; `None` if the system does not say.
pub fn cached_fraction(gguf: &Gguf) -> Option<f64> {
    let (mut resident, mut pages) = (0u64, 0u64);
    for shard in gguf.shards() {
        let file = File::open(shard.path()?).ok()?;
        let size = shard.size();
        let mut offset = 0;
        while offset < size {
            let len = (size - offset).min(WINDOW);
            resident += resident_pages(&file, offset, len)?;
            pages += len.div_ceil(PAGE);
            offset += WINDOW;
        }
    }
    (pages > 0).then(|| resident as f64 / pages as f64)
}

fn resident_pages(file: &File, offset: u64, len: u64) -> Option<u64> {
    let len = usize::try_from(len).ok()?;
    // SAFETY: the mapping is never read, only asked about, so that a file that shrinks is no danger.
    let map = unsafe { MmapOptions::new().offset(offset).len(len).map(file).ok()? };
    let mut states = vec![0u8; len.div_ceil(PAGE as usize)];
    // SAFETY: the range is the mapping's own, which begins on a page; `states` has a byte for each page.
    let failed = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), len, states.as_mut_ptr()) };
    (failed == 0).then(|| states.iter().filter(|state| **state & 1 == 1).count() as u64)
}

/// Asks the system to forget what it caches of a model's files, so that the next load is cold. Works
/// without privileges; pages that are dirty or mapped elsewhere stay. Says whether every request was accepted.
pub fn drop_cached(gguf: &Gguf) -> bool {
    gguf.shards()
        .iter()
        .filter_map(|shard| shard.path())
        .all(|path| {
            File::open(path).is_ok_and(|file| {
                let _ = file.sync_data();
                // SAFETY: a plain system call on an open descriptor, without pointers.
                unsafe {
                    libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) == 0
                }
            })
        })
}
