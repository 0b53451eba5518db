//! Core files: where the kernel puts them, and keeping them.
//!
//! A crash is told by the process events while the attempt runs; the core is taken away at once, under a name of
//! its own, so that the next crash in the same folder does not write over it and nothing is left in the leg's working
//! directory. Then, off the loop: notes are read, gdb is asked for a backtrace (bounded), and the core is kept as
//! `cores/core.PID.zst` with the SHA-256 of the dump itself.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::elf_core;
use crate::os::root::Root;
use crate::os::{helper, procfs};
use crate::supervise::spec::{CoreFile, CorePolicy};
use crate::supervise::tree::Gone;

/// Cores kept per attempt; further ones are named and removed.
pub const MOST_CORES: usize = 8;
const GDB_TIME: Duration = Duration::from_secs(60);

/// Where the kernel sends cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorePattern {
    /// A file name, relative to the process's working directory or absolute.
    File(String),
    /// A program reads the core; its command line.
    Pipe(String),
    /// A socket (Linux 6.16); its address.
    Socket(String),
}

/// Reads a `core_pattern`; `uses_pid` is `core_uses_pid`.
#[must_use]
pub fn parse_pattern(text: &str, uses_pid: bool) -> CorePattern {
    let t = text.trim_end_matches('\n');
    if let Some(p) = t.strip_prefix('|') {
        CorePattern::Pipe(p.trim().to_owned())
    } else if let Some(s) = t.strip_prefix('@') {
        CorePattern::Socket(s.trim_start_matches('@').to_owned())
    } else if uses_pid && !t.contains("%p") {
        CorePattern::File(format!("{t}.%p"))
    } else {
        CorePattern::File(t.to_owned())
    }
}

/// The machine's core pattern.
#[must_use]
pub fn pattern(root: &Root) -> Option<CorePattern> {
    let uses = root
        .text("/proc/sys/kernel/core_uses_pid")
        .is_some_and(|t| t == "1");
    Some(parse_pattern(
        &root.text("/proc/sys/kernel/core_pattern")?,
        uses,
    ))
}

/// Turns a file pattern into a matcher: pid and name are filled in, what we do not know matches anything.
fn expand(pattern: &str, pid: i32, comm: Option<&str>) -> Vec<Option<String>> {
    let mut parts = vec![Some(String::new())];
    let put = |parts: &mut Vec<Option<String>>, s: &str| match parts.last_mut() {
        Some(Some(l)) => l.push_str(s),
        _ => parts.push(Some(s.to_owned())),
    };
    let mut it = pattern.chars();
    while let Some(c) = it.next() {
        if c != '%' {
            put(&mut parts, c.encode_utf8(&mut [0; 4]));
            continue;
        }
        match it.next() {
            Some('%') => put(&mut parts, "%"),
            Some('p' | 'P') => put(&mut parts, &pid.to_string()),
            Some('e') if comm.is_some_and(|c| !c.contains('/')) => {
                put(&mut parts, comm.unwrap_or_default());
            }
            Some(_) if !matches!(parts.last(), Some(None)) => parts.push(None),
            Some(_) | None => {}
        }
    }
    parts
}

fn name_matches(parts: &[Option<String>], name: &str) -> bool {
    let Some((first, rest)) = parts.split_first() else {
        return name.is_empty();
    };
    match first {
        Some(s) => name
            .strip_prefix(s.as_str())
            .is_some_and(|r| name_matches(rest, r)),
        None => {
            name.char_indices()
                .any(|(i, _)| i > 0 && name_matches(rest, &name[i..]))
                || (rest.is_empty() && !name.is_empty())
        }
    }
}

/// What the collector needs to know of the attempt.
#[derive(Debug, Clone)]
pub struct CoreSetup {
    /// The attempt's folder.
    pub dir: PathBuf,
    /// Working directory of the leader.
    pub cwd: PathBuf,
    /// Policy.
    pub policy: CorePolicy,
    /// Where the kernel sends cores.
    pub pattern: Option<CorePattern>,
    /// Start, wall clock: an older file is another run's.
    pub started: std::time::SystemTime,
    /// Where systemd-coredump keeps its files.
    pub store: PathBuf,
}

/// systemd-coredump's store.
pub const SYSTEMD_STORE: &str = "/var/lib/systemd/coredump";

/// A core that was taken away from where the kernel put it, or the reason that there is none.
#[derive(Debug)]
pub struct Taken {
    gone: Gone,
    file: Result<PathBuf, String>,
}

/// Takes the core of a crashed process away; quick, to be called as soon as the crash is known.
#[must_use]
pub fn take(set: &CoreSetup, gone: Gone) -> Taken {
    let file = locate(set, &gone).and_then(|found| {
        if !matches!(set.pattern, Some(CorePattern::File(_))) {
            return Ok(found); // somebody else's store: copy, do not move
        }
        let own = found.with_file_name(format!(".legwork-core-{}", gone.pid));
        // In the same folder, so that it is one rename whatever the size.
        fs::rename(&found, &own).map_err(|e| format!("{}: {e}", found.display()))?;
        Ok(own)
    });
    Taken { gone, file }
}

fn locate(set: &CoreSetup, gone: &Gone) -> Result<PathBuf, String> {
    match set.pattern.as_ref().ok_or("core_pattern cannot be read")? {
        CorePattern::Pipe(p) => {
            if p.contains("systemd-coredump") {
                from_systemd(&set.store, gone.pid)
            } else {
                Err(format!(
                    "core_pattern pipes cores to `{p}`, not to a file (mend: sysctl kernel.core_pattern=core)"
                ))
            }
        }
        CorePattern::Socket(s) => Err(format!(
            "core_pattern sends cores to the socket {s}, not to a file"
        )),
        CorePattern::File(p) => {
            let pattern = Path::new(p);
            let name = pattern
                .file_name()
                .and_then(|n| n.to_str())
                .unwrap_or("core");
            let parts = expand(name, gone.pid, gone.comm.as_deref());
            let mut dirs: Vec<PathBuf> = Vec::new();
            if pattern.is_absolute() {
                dirs.extend(pattern.parent().map(Path::to_owned));
            } else {
                let sub = pattern.parent().unwrap_or(Path::new(""));
                dirs.extend(gone.cwd.iter().chain([&set.cwd]).map(|d| d.join(sub)));
            }
            dirs.dedup();
            dirs.retain(|d| crate::stage::answers(d));
            for d in &dirs {
                if let Some(f) = newest(d, &parts, set.started) {
                    return Ok(f);
                }
            }
            Err(format!(
                "the kernel says that it dumped core (core_pattern `{p}`), but no such file is in {}",
                dirs.iter()
                    .map(|d| d.display().to_string())
                    .collect::<Vec<_>>()
                    .join(" or ")
            ))
        }
    }
}

fn newest(dir: &Path, parts: &[Option<String>], since: std::time::SystemTime) -> Option<PathBuf> {
    // A clock that was set back during the attempt gives new files old times.
    let since = since.min(std::time::SystemTime::now());
    let slack = since.checked_sub(Duration::from_secs(1)).unwrap_or(since);
    fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter(|e| {
            e.file_name()
                .to_str()
                .is_some_and(|n| name_matches(parts, n))
        })
        .filter_map(|e| {
            let m = e.metadata().ok()?;
            let t = m.modified().ok()?;
            (m.is_file() && t >= slack).then(|| (t, e.path()))
        })
        .max()
        .map(|(_, p)| p)
}

/// A copy of what systemd-coredump stored for a pid of this boot; it is written a little after the process ended.
fn from_systemd(store: &Path, pid: i32) -> Result<PathBuf, String> {
    let boot = procfs::read_text("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .replace(['-', '\n'], "");
    let marker = format!(".{boot}.{pid}.");
    for _ in 0..50 {
        if let Ok(d) = fs::read_dir(store)
            && let Some(e) = d.flatten().find(|e| {
                e.file_name()
                    .to_str()
                    .is_some_and(|n| n.starts_with("core.") && n.contains(&marker))
            })
        {
            return Ok(e.path());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!(
        "systemd-coredump stored no core of pid {pid} (see: coredumpctl info {pid})"
    ))
}

/// Reads, traces, compresses; may take its time. `n` is the number of cores kept so far.
#[must_use]
pub fn keep(set: &CoreSetup, taken: Taken, n: usize) -> CoreFile {
    let mut c = CoreFile {
        pid: taken.gone.pid,
        comm: taken.gone.comm.clone(),
        signal: taken.gone.end.and_then(|e| e.signal),
        ..CoreFile::default()
    };
    let mut path = match taken.file {
        Ok(p) => p,
        Err(why) => {
            c.notes.push(why);
            return c;
        }
    };
    // systemd stores them compressed: a plain copy tells who crashed where, and is kept as every other core is.
    if path.extension().is_some_and(|e| e == "zst") {
        match unpack(&path, &set.dir, c.pid) {
            Ok(plain) => path = plain,
            Err(e) => c
                .notes
                .push(format!("not unpacked: {}: {e}", path.display())),
        }
    }
    c.size = fs::metadata(&path).map_or(0, |m| m.len());
    let compressed_by_others = path
        .extension()
        .is_some_and(|e| e == "zst" || e == "lz4" || e == "xz");
    if !compressed_by_others {
        read_notes(&path, &mut c);
    }
    if n >= MOST_CORES {
        c.notes.push(format!(
            "not kept: {MOST_CORES} cores of this attempt are kept already"
        ));
        if !compressed_by_others {
            let _ = fs::remove_file(&path);
        }
        return c;
    }
    if !compressed_by_others {
        backtrace(set, &path, &mut c);
    }
    let name = format!("cores/core.{}.zst", c.pid);
    let target = set.dir.join(&name);
    let stored = fs::create_dir_all(set.dir.join("cores")).and_then(|()| {
        if compressed_by_others {
            fs::copy(&path, &target).map(|_| None)
        } else {
            compress(&path, &target).map(Some)
        }
    });
    match stored {
        Ok(sha) => {
            c.path = Some(name);
            c.sha256 = sha;
            if !compressed_by_others {
                let _ = fs::remove_file(&path);
            }
        }
        Err(e) => {
            let _ = fs::remove_file(&target);
            c.notes.push(format!(
                "not compressed: {}: {e}; it stays at {}",
                target.display(),
                path.display()
            ));
        }
    }
    c
}

fn read_notes(path: &Path, c: &mut CoreFile) {
    match elf_core::read(path) {
        Ok(n) => {
            c.signal = n.signal.or(c.signal);
            c.si_code = n.si_code;
            c.address = n.address;
            c.comm = n.comm.clone().or(c.comm.take());
            c.truncated = n.truncated;
            c.pc = n.threads.first().and_then(|t| t.pc);
            if let Some(m) = c.pc.and_then(|pc| n.module_of(pc)) {
                c.module = Some(m.path.clone());
                c.module_offset = c.pc.map(|pc| pc - m.start);
            }
            if n.pid.is_some_and(|p| p != c.pid) {
                c.notes.push(format!("the core says pid {:?}", n.pid));
            }
            if n.truncated {
                c.notes.push(format!(
                    "cut: {} of {} bytes were dumped (limit or disk)",
                    c.size, n.expected_size
                ));
            }
            c.threads = n.threads;
            c.modules = n.modules;
        }
        Err(e) => c.notes.push(format!("its notes cannot be read: {e}")),
    }
}

fn backtrace(set: &CoreSetup, core: &Path, c: &mut CoreFile) {
    let Some(gdb) = helper::find("gdb") else {
        c.notes
            .push("no backtrace: gdb is not installed (apt-get install gdb)".into());
        return;
    };
    let exe = c
        .modules
        .first()
        .map(|m| PathBuf::from(&m.path))
        .filter(|p| p.is_file());
    let mut g = Command::new(gdb);
    g.args([
        "-nx",
        "-batch",
        "-iex",
        "set auto-load off",
        "-iex",
        "set debuginfod enabled off",
    ])
    .args([
        "-ex",
        "set pagination off",
        "-ex",
        "info registers rip",
        "-ex",
        "thread apply all bt 64",
    ]);
    if let Some(e) = exe {
        g.arg(e);
        g.arg(core);
    } else {
        g.arg("-c").arg(core);
    }
    match helper::run_bounded(g, GDB_TIME, 8 << 20) {
        Ok(o) => {
            let mut t = format!(
                "# gdb, core of pid {} ({})\n",
                c.pid,
                c.comm.as_deref().unwrap_or("?")
            )
            .into_bytes();
            t.extend(&o.output);
            if o.timed_out {
                t.extend(b"\n# gdb was ended: its time was over\n");
            }
            t.push(b'\n');
            let r = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(set.dir.join("backtrace.txt"))
                .and_then(|mut f| f.write_all(&t));
            match r {
                Ok(()) => c.backtrace = Some("backtrace.txt".into()),
                Err(e) => c.notes.push(format!("backtrace.txt: {e}")),
            }
        }
        Err(e) => c.notes.push(format!("gdb did not run: {e}")),
    }
}

/// Unpacks a core beside the attempt, holes kept; at most half of the free space.
fn unpack(from: &Path, dir: &Path, pid: i32) -> io::Result<PathBuf> {
    use std::io::{Seek, SeekFrom};
    let room = crate::os::process::free_bytes(dir).unwrap_or(0) / 2;
    let to = dir.join(format!(".legwork-core-{pid}"));
    let unpacked = (|| {
        let mut src = zstd::Decoder::new(File::open(from)?)?;
        let mut out = File::create_new(&to)?;
        let mut buf = vec![0u8; 256 << 10];
        let mut total = 0u64;
        loop {
            let mut n = 0;
            while n < buf.len() {
                match src.read(&mut buf[n..])? {
                    0 => break,
                    k => n += k,
                }
            }
            if n == 0 {
                break;
            }
            total += n as u64;
            if total > room {
                return Err(io::Error::other("too large for the disk"));
            }
            if buf[..n].iter().all(|&b| b == 0) {
                out.seek(SeekFrom::Current(i64::try_from(n).unwrap_or(0)))?;
            } else {
                out.write_all(&buf[..n])?;
            }
        }
        out.set_len(total)
    })();
    match unpacked {
        Ok(()) => Ok(to),
        Err(e) => {
            let _ = fs::remove_file(&to);
            Err(e)
        }
    }
}

/// Compresses a file, skipping what it costs to read holes; returns the SHA-256 of the content.
fn compress(from: &Path, to: &Path) -> io::Result<String> {
    let mut src = File::open(from)?;
    let out = BufWriter::with_capacity(1 << 20, File::create_new(to)?);
    let mut z = zstd::Encoder::new(out, 1)?;
    z.include_checksum(true)?;
    let mut sha = Sha256::new();
    let mut buf = vec![0u8; 1 << 20];
    loop {
        let n = src.read(&mut buf)?;
        if n == 0 {
            break;
        }
        sha.update(&buf[..n]);
        z.write_all(&buf[..n])?;
    }
    let f = z
        .finish()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    f.sync_data()?;
    Ok(sha.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_told_apart() {
        // Documentation/admin-guide/sysctl/kernel.rst, core_pattern.
        assert_eq!(
            parse_pattern("core\n", false),
            CorePattern::File("core".into())
        );
        assert_eq!(
            parse_pattern("core\n", true),
            CorePattern::File("core.%p".into())
        );
        assert_eq!(
            parse_pattern("/v/core.%p", true),
            CorePattern::File("/v/core.%p".into())
        );
        assert!(matches!(
            parse_pattern("|/usr/lib/systemd/systemd-coredump %P %u", false),
            CorePattern::Pipe(p) if p.contains("systemd-coredump")
        ));
        assert_eq!(
            parse_pattern("@@/run/coredump.socket", false),
            CorePattern::Socket("/run/coredump.socket".into())
        );
    }

    #[test]
    fn names_are_matched_with_what_is_known() {
        let m = |pat: &str, name: &str| name_matches(&expand(pat, 4711, Some("vllm-cli")), name);
        assert!(m("core", "core"));
        assert!(!m("core", "core.1"));
        assert!(m("core.%p", "core.4711"));
        assert!(!m("core.%p", "core.47111"));
        assert!(m("%e-%t-%p.core", "vllm-cli-1770000000-4711.core"));
        assert!(!m("%e-%t-%p.core", "other-1770000000-4711.core"));
        assert!(m("c%%%p", "c%4711"));
        assert!(m("core-%h", "core-host"));
    }

    #[test]
    fn a_core_in_systemds_store_is_found_by_pid_and_unpacked() {
        let (d, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let boot = procfs::read_text("/proc/sys/kernel/random/boot_id")
            .unwrap()
            .replace(['-', '\n'], "");
        let core = [vec![7u8; 1000], vec![0; 600 << 10], vec![9u8; 10]].concat();
        for (pid, bytes) in [(4711, &core), (4712, &vec![1u8])] {
            let name = format!("core.x.0.{boot}.{pid}.1700000000000000.zst");
            fs::write(
                store.path().join(name),
                zstd::encode_all(&bytes[..], 3).unwrap(),
            )
            .unwrap();
        }
        let set = CoreSetup {
            dir: d.path().into(),
            cwd: d.path().into(),
            policy: CorePolicy::Bounded,
            pattern: Some(CorePattern::Pipe(
                "/usr/lib/systemd/systemd-coredump %P".into(),
            )),
            started: std::time::SystemTime::now(),
            store: store.path().into(),
        };
        let gone = Gone {
            pid: 4711,
            ppid: None,
            comm: Some("x".into()),
            cwd: None,
            end: None,
            mono_ns: 1,
        };
        let c = keep(&set, take(&set, gone), 0);
        assert_eq!(
            (c.size, c.path.as_deref()),
            (core.len() as u64, Some("cores/core.4711.zst"))
        );
        let kept = zstd::decode_all(File::open(d.path().join("cores/core.4711.zst")).unwrap());
        assert_eq!(kept.unwrap(), core);
        assert!(c.sha256.is_some());
        assert_eq!(
            fs::read_dir(store.path()).unwrap().count(),
            2,
            "the store is left as it was"
        );
        assert!(!d.path().join(".legwork-core-4711").exists());
    }

    #[test]
    fn a_stored_core_has_the_sha_of_the_dump() {
        let d = tempfile::tempdir().unwrap();
        fs::write(d.path().join("x"), b"abc").unwrap();
        let sha = compress(&d.path().join("x"), &d.path().join("x.zst")).unwrap();
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            sha,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let back = zstd::decode_all(File::open(d.path().join("x.zst")).unwrap()).unwrap();
        assert_eq!(back, b"abc");
    }
}
