//! The page cache of one file: drop it, or tell how much of it is there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// Writes the file back and asks the kernel to forget its pages. Pages that another process maps stay.
///
/// # Errors
/// When the file cannot be opened or the kernel refuses.
pub fn drop_file(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}

/// Bytes of the file whose pages are in memory.
///
/// # Errors
/// When the file cannot be opened or mapped.
pub fn resident_bytes(path: &Path) -> std::io::Result<u64> {
    const PAGE: usize = 4096;
    /// Mapped at a time: 1 GiB of a file.
    const WINDOW: u64 = 1 << 30;
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut resident = 0u64;
    let mut offset = 0u64;
    while offset < length {
        let window = usize::try_from((length - offset).min(WINDOW)).unwrap_or(PAGE);
        let mut pages = vec![0u8; window.div_ceil(PAGE)];
        let at = i64::try_from(offset).map_err(std::io::Error::other)?;
        // SAFETY: a fresh shared read-only mapping of an open file; no reference into it is ever made, so that a file that
        // shrinks meanwhile cannot be read through it.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                window,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                at,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is `window` bytes long and `pages` has one byte per page of it.
        let rc = unsafe { libc::mincore(map, window, pages.as_mut_ptr()) };
        let error = std::io::Error::last_os_error();
        // SAFETY: unmaps exactly what was mapped above.
        unsafe { libc::munmap(map, window) };
        if rc != 0 {
            return Err(error);
        }
        let count = pages.iter().filter(|p| **p & 1 == 1).count() as u64;
        resident += (count * PAGE as u64).min(window as u64);
        offset += window as u64;
    }
    Ok(resident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_just_written_is_resident_and_an_empty_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1u8; 100_000]).unwrap();
        assert_eq!(resident_bytes(&path).unwrap(), 100_000);
        drop_file(&path).unwrap();
        assert!(resident_bytes(&path).unwrap() <= 100_000);
        std::fs::write(&path, "").unwrap();
        assert_eq!(resident_bytes(&path).unwrap(), 0);
    }
}
