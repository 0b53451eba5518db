//! Waiting for descriptors, with a way to be woken.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Wakes every thread that waits with it, and stays set.
#[derive(Debug, Clone)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    /// A fresh one, not set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd touches no memory; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is a fresh, open descriptor that nobody else owns.
        Ok(Wake(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Wakes all waiters, now and later.
    pub fn set(&self) {
        let one = 1u64;
        // SAFETY: eight valid bytes.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Readable once set.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Whether it was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        wait_readable(&[self.fd()], 0)
            .first()
            .copied()
            .unwrap_or(false)
    }

    /// Sleeps until it is set or the time is over; true when set.
    #[must_use]
    pub fn sleep(&self, time: std::time::Duration) -> bool {
        let ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        wait_readable(&[self.fd()], ms)
            .first()
            .copied()
            .unwrap_or(false)
    }
}

/// Waits until a descriptor is readable (or closed at its other end); one flag per descriptor, all false when the
/// time is over. A negative descriptor is left out.
#[must_use]
pub fn wait_readable(fds: &[RawFd], timeout_ms: i32) -> Vec<bool> {
    let mut p: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let n = libc::nfds_t::try_from(p.len()).unwrap_or(0);
    // SAFETY: the array is valid for its length.
    unsafe { libc::poll(p.as_mut_ptr(), n, timeout_ms) };
    p.iter().map(|e| e.revents != 0).collect()
}
