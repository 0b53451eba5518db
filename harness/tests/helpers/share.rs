//! A share that can be killed and stopped: a FUSE server of its own process over a folder. Protocol: linux/fuse.h.
//!
//! Killed, its files give `ENOTCONN`; stopped, whoever asks waits. A file `.mode` in the folder orders more: `wedge NAME`
//! stops the server after it has taken a read of that file (the reader is then beyond SIGKILL), `die NAME OFFSET` ends it
//! at a read of that file at or after the offset.

#[path = "fuse_mount.rs"]
mod fuse_mount;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A mounted share.
pub struct Share {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The folder behind it.
    pub behind: PathBuf,
    server: Child,
}

impl Share {
    /// Mounts one; the error says why that is not possible here.
    pub fn mount(dir: &Path) -> Result<Share, String> {
        let (point, behind) = (dir.join("share"), dir.join("behind"));
        fs::create_dir_all(&point).unwrap();
        fs::create_dir_all(&behind).unwrap();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .arg("serve-share")
            .args([&point, &behind])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .contains(point.to_str().unwrap())
        {
            if server.try_wait().unwrap().is_some() || Instant::now() > until {
                let _ = server.kill();
                let mut why = String::new();
                let _ = server.stderr.take().unwrap().read_to_string(&mut why);
                return Err(why.trim().to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Share {
            point,
            behind,
            server,
        })
    }

    /// Orders the server to misbehave.
    pub fn order(&self, what: &str) {
        fs::write(self.behind.join(".mode"), what).unwrap();
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.server.id()).unwrap()
    }

    /// The server dies.
    pub fn kill(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    /// The server stops answering.
    pub fn stop(&self) {
        // SAFETY: stops the process that we started.
        unsafe { libc::kill(self.pid(), libc::SIGSTOP) };
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.kill();
        let t = std::ffi::CString::new(self.point.to_str().unwrap()).unwrap();
        // SAFETY: a C string that lives through the call.
        unsafe { libc::umount2(t.as_ptr(), libc::MNT_DETACH) };
    }
}

/// `BINARY serve-share POINT FOLDER`.
pub fn serve_if_asked() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_none_or(|a| a != "serve-share") {
        return;
    }
    match fuse_mount::mount("legwork-share", &args[2], ",allow_other") {
        Ok(dev) => Server::new(dev, &args[3]).run(),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    }
}

struct Server {
    dev: File,
    nodes: Vec<PathBuf>,
    known: HashMap<PathBuf, u64>,
}

type Reply = Result<Vec<u8>, i32>;

fn le<T: AsRef<[u64]>>(v: T) -> Vec<u8> {
    v.as_ref().iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn errno(e: std::io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

fn attr(ino: u64, m: &fs::Metadata) -> Vec<u8> {
    let t = |s: i64| u64::try_from(s).unwrap_or(0);
    let mut a = le([
        ino,
        m.len(),
        m.blocks(),
        t(m.atime()),
        t(m.mtime()),
        t(m.ctime()),
    ]);
    for v in [
        0u32,
        u32::try_from(m.mtime_nsec()).unwrap_or(0),
        0,
        m.mode(),
        1,
        0,
        0,
        0,
        4096,
        0,
    ] {
        a.extend(v.to_ne_bytes());
    }
    a
}

impl Server {
    fn new(dev: File, behind: &str) -> Self {
        let root = PathBuf::from(behind);
        Server {
            dev,
            known: [(root.clone(), 1)].into(),
            nodes: vec![root],
        }
    }

    fn path(&self, node: u64) -> PathBuf {
        self.nodes[usize::try_from(node).unwrap() - 1].clone()
    }

    fn entry(&mut self, path: PathBuf) -> Reply {
        let m = fs::symlink_metadata(&path).map_err(errno)?;
        let next = self.nodes.len() as u64 + 1;
        let ino = *self.known.entry(path.clone()).or_insert(next);
        if ino == next {
            self.nodes.push(path);
        }
        let mut r = le([ino, 0, 0, 0]); // nothing is believed for longer than an answer
        r.extend([0; 8]);
        r.extend(attr(ino, &m));
        Ok(r)
    }

    fn attributes(&self, node: u64) -> Reply {
        let m = fs::symlink_metadata(self.path(node)).map_err(errno)?;
        let mut r = le([0, 0]);
        r.extend(attr(node, &m));
        Ok(r)
    }

    /// What `.mode` orders for a read.
    fn misbehave(&self, path: &Path, offset: u64) {
        let order = fs::read_to_string(self.nodes[0].join(".mode")).unwrap_or_default();
        let mut w = order.split_whitespace();
        let (what, name, from) = (w.next(), w.next(), w.next().and_then(|n| n.parse().ok()));
        if name.is_none() || path.file_name().and_then(|n| n.to_str()) != name {
            return;
        }
        match what {
            // SAFETY: stops this process only.
            Some("wedge") => unsafe {
                libc::raise(libc::SIGSTOP);
            },
            Some("die") if offset >= from.unwrap_or(0) => std::process::exit(9),
            _ => {}
        }
    }

    fn run(mut self) -> ! {
        let mut buf = vec![0u8; 1 << 20];
        loop {
            let n = match self.dev.read(&mut buf) {
                Ok(n) => n,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => continue,
                Err(_) => std::process::exit(0), // unmounted
            };
            let u32_at = |i: usize| u32::from_ne_bytes(buf[i..i + 4].try_into().unwrap());
            let u64_at = |i: usize| u64::from_ne_bytes(buf[i..i + 8].try_into().unwrap());
            let (opcode, unique, node) = (u32_at(4), u64_at(8), u64_at(16));
            if matches!(opcode, 2 | 36 | 42) {
                continue; // FORGET, INTERRUPT, BATCH_FORGET have no answer
            }
            let body = buf[40..n].to_vec();
            let reply = self.answer(opcode, node, &body);
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
            let _ = self.dev.write(&out);
        }
    }

    fn answer(&mut self, opcode: u32, node: u64, b: &[u8]) -> Reply {
        let u32_at = |i: usize| u32::from_ne_bytes(b[i..i + 4].try_into().unwrap());
        let u64_at = |i: usize| u64::from_ne_bytes(b[i..i + 8].try_into().unwrap());
        let name = |from: usize| {
            let raw = b[from..].split(|&c| c == 0).next().unwrap_or_default();
            String::from_utf8_lossy(raw).into_owned()
        };
        let opened = le([0, 0]);
        match opcode {
            26 => {
                // INIT: version, readahead, flags, background, threshold, max_write, …
                let mut r = Vec::new();
                for v in [7u32, 31, 65536, 0] {
                    r.extend(v.to_ne_bytes());
                }
                r.extend(16u16.to_ne_bytes());
                r.extend(12u16.to_ne_bytes());
                r.extend((128u32 << 10).to_ne_bytes());
                r.resize(64, 0);
                Ok(r)
            }
            1 => self.entry(self.path(node).join(name(0))), // LOOKUP
            3 => self.attributes(node),                     // GETATTR
            4 => {
                // SETATTR: mode and size
                let (valid, path) = (u32_at(0), self.path(node));
                if valid & 8 != 0 {
                    let f = OpenOptions::new().write(true).open(&path).map_err(errno)?;
                    f.set_len(u64_at(16)).map_err(errno)?;
                }
                if valid & 1 != 0 {
                    let mode = fs::Permissions::from_mode(u32_at(68) & 0o777);
                    fs::set_permissions(&path, mode).map_err(errno)?;
                }
                self.attributes(node)
            }
            9 => {
                let path = self.path(node).join(name(8)); // MKDIR
                fs::create_dir(&path).map_err(errno)?;
                self.entry(path)
            }
            10 => fs::remove_file(self.path(node).join(name(0)))
                .map(|()| Vec::new())
                .map_err(errno),
            14 | 27 => Ok(opened), // OPEN, OPENDIR
            15 => {
                let (path, offset) = (self.path(node), u64_at(8)); // READ
                self.misbehave(&path, offset);
                let mut data = vec![0u8; usize::try_from(u32_at(16)).unwrap()];
                let f = File::open(&path).map_err(errno)?;
                let mut n = 0;
                while n < data.len() {
                    match f
                        .read_at(&mut data[n..], offset + n as u64)
                        .map_err(errno)?
                    {
                        0 => break,
                        k => n += k,
                    }
                }
                data.truncate(n);
                Ok(data)
            }
            16 => {
                let n = u32_at(16); // WRITE
                let f = OpenOptions::new()
                    .write(true)
                    .open(self.path(node))
                    .map_err(errno)?;
                let data = &b[40..40 + usize::try_from(n).unwrap()];
                f.write_all_at(data, u64_at(8)).map_err(errno)?;
                Ok(le([u64::from(n)]))
            }
            17 => {
                let mut r = le([1 << 20, 1 << 19, 1 << 19, 1 << 16, 1 << 15]); // STATFS
                for v in [4096u32, 255, 4096, 0] {
                    r.extend(v.to_ne_bytes());
                }
                r.resize(80, 0);
                Ok(r)
            }
            18 | 20 | 25 | 29 | 30 | 34 => Ok(Vec::new()), // RELEASE, FSYNC, FLUSH, …
            28 => self.list(node, u64_at(8), usize::try_from(u32_at(16)).unwrap()),
            35 => {
                let path = self.path(node).join(name(16)); // CREATE
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(u32_at(4) & 0o777)
                    .open(&path)
                    .map_err(errno)?;
                let mut r = self.entry(path)?;
                r.extend(opened);
                Ok(r)
            }
            _ => Err(libc::ENOSYS),
        }
    }

    fn list(&self, node: u64, offset: u64, room: usize) -> Reply {
        let mut names: Vec<String> = fs::read_dir(self.path(node))
            .map_err(errno)?
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let mut out = Vec::new();
        for (i, n) in names
            .iter()
            .enumerate()
            .skip(usize::try_from(offset).unwrap())
        {
            let mut e = le([i as u64 + 2, i as u64 + 1]);
            e.extend(u32::try_from(n.len()).unwrap().to_ne_bytes());
            e.extend(0u32.to_ne_bytes());
            e.extend(n.as_bytes());
            e.resize(e.len().div_ceil(8) * 8, 0);
            if out.len() + e.len() > room {
                break;
            }
            out.extend(e);
        }
        Ok(out)
    }
}
