//! A file system that hangs: a tiny FUSE server that lets one file be found and never answers a read of it.
//!
//! A process that waits for an answer which the server has taken but does not give sleeps uninterruptibly, SIGKILL or
//! not, until the connection ends: what a wedged driver or a dead share does to a leg. Protocol: linux/fuse.h.

#[path = "fuse_mount.rs"]
mod fuse_mount;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mount; dropped, the connection ends and every waiter is freed.
pub struct Hang {
    point: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Hang {
    /// Mounts it; the error says why that is not possible here.
    pub fn mount(point: &Path) -> Result<Self, String> {
        let dev = fuse_mount::mount("legwork-test", point.to_str().unwrap(), "")?;
        let stop = Arc::new(AtomicBool::new(false));
        let s = Arc::clone(&stop);
        std::thread::spawn(move || serve(dev, &s)); // its end closes the device: the connection is aborted
        Ok(Hang {
            point: point.into(),
            stop,
        })
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let t = std::ffi::CString::new(self.point.to_str().unwrap()).unwrap();
        // SAFETY: a C string that lives through the call.
        unsafe { libc::umount2(t.as_ptr(), libc::MNT_DETACH) };
    }
}

fn attr(ino: u64, mode: u32, size: u64) -> Vec<u8> {
    let mut a = Vec::new();
    for v in [ino, size, 1, 0, 0, 0] {
        a.extend(v.to_ne_bytes());
    }
    for v in [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        a.extend(v.to_ne_bytes());
    }
    a
}

fn serve(mut dev: File, stop: &AtomicBool) {
    let mut buf = vec![0u8; 1 << 20];
    while !stop.load(Ordering::SeqCst) {
        if !legwork::os::wake::wait_readable(&[dev.as_raw_fd()], 50)[0] {
            continue;
        }
        let Ok(n) = dev.read(&mut buf) else { return };
        let u32_at = |i: usize| u32::from_ne_bytes(buf[i..i + 4].try_into().unwrap());
        let u64_at = |i: usize| u64::from_ne_bytes(buf[i..i + 8].try_into().unwrap());
        let (opcode, unique, node) = (u32_at(4), u64_at(8), u64_at(16));
        let name = |b: &[u8]| b.split(|&c| c == 0).next().unwrap_or_default().to_vec();
        let of = |ino: u64| {
            if ino == 1 {
                attr(1, 0o040_755, 0)
            } else {
                attr(2, 0o100_644, 1 << 20)
            }
        };
        let reply: Result<Vec<u8>, i32> = match opcode {
            26 => {
                // INIT: version, readahead, flags, background, threshold, max_write, …
                let mut r = Vec::new();
                for v in [7u32, 31, 65536, 0] {
                    r.extend(v.to_ne_bytes());
                }
                r.extend(16u16.to_ne_bytes());
                r.extend(12u16.to_ne_bytes());
                r.extend(4096u32.to_ne_bytes());
                r.resize(64, 0);
                Ok(r)
            }
            1 if node == 1 && name(&buf[40..n]) == b"weights.gguf" => {
                let mut r = Vec::new();
                for v in [2u64, 0, 3600, 3600] {
                    r.extend(v.to_ne_bytes());
                }
                r.extend([0; 8]);
                r.extend(of(2));
                Ok(r)
            }
            1 => Err(libc::ENOENT),
            3 => {
                let mut r = 3600u64.to_ne_bytes().to_vec();
                r.extend([0; 8]);
                r.extend(of(node));
                Ok(r)
            }
            14 => Ok([0; 16].to_vec()),
            15 => continue,          // READ: taken and never answered
            2 | 36 | 42 => continue, // FORGET, INTERRUPT, BATCH_FORGET have no answer
            18 | 25 => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match reply {
            Ok(b) => (0i32, b),
            Err(e) => (-e, Vec::new()),
        };
        let mut out = u32::try_from(16 + body.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        out.extend(error.to_ne_bytes());
        out.extend(unique.to_ne_bytes());
        out.extend(body);
        let _ = dev.write(&out);
    }
}
