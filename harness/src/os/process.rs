//! Signals, waiting and process attributes.

use std::io;

use legwork_reports::model::ProcessEnd;

/// Sends a signal; `Ok(false)` when there is no such process.
pub fn kill(pid: i32, signal: i32) -> io::Result<bool> {
    if pid <= 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("refusing to signal pid {pid}"),
        ));
    }
    // SAFETY: kill touches no memory.
    if unsafe { libc::kill(pid, signal) } == 0 {
        return Ok(true);
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::ESRCH) {
        Ok(false)
    } else {
        Err(e)
    }
}

/// Makes this process the one that orphans below it are given to.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes one integer.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets this thread run before others, as far as that is permitted: what it reads is stamped when it runs.
pub fn hurry_this_thread() {
    // SAFETY: gettid and setpriority touch no memory. Without the right to do so nothing changes.
    unsafe {
        let tid = libc::id_t::try_from(libc::syscall(libc::SYS_gettid)).unwrap_or(0);
        libc::setpriority(libc::PRIO_PROCESS, tid, -10);
    }
}

/// An ended child, not yet or just reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its pid.
    pub pid: i32,
    /// How it ended.
    pub end: ProcessEnd,
    /// Largest resident size of it or of a child that it waited for, bytes.
    pub max_rss: u64,
}

/// Which children to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Any child.
    Any,
    /// One child.
    Pid(i32),
}

/// Looks for an ended child without blocking. `reap` false leaves it a zombie (so that `/proc` can be read).
/// `Err(ECHILD)` when there is no child to wait for.
pub fn wait(which: Which, reap: bool) -> io::Result<Option<Ended>> {
    let (kind, id) = match which {
        Which::Any => (libc::P_ALL, 0),
        Which::Pid(p) => (libc::P_PID, libc::id_t::try_from(p).unwrap_or(0)),
    };
    let mut flags = libc::WEXITED | libc::WNOHANG;
    if !reap {
        flags |= libc::WNOWAIT;
    }
    // The C library's waitid leaves out the kernel's fifth argument, the resource usage.
    // SAFETY: zeroed siginfo_t and rusage are valid; the system call fills them.
    let (rc, info, usage) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let mut usage: libc::rusage = std::mem::zeroed();
        let rc = libc::syscall(
            libc::SYS_waitid,
            kind,
            id,
            &raw mut info,
            flags,
            &raw mut usage,
        );
        (rc, info, usage)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid succeeded, so the SIGCHLD members of the union are the ones that were written (zero if none).
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let end = match info.si_code {
        libc::CLD_EXITED => ProcessEnd {
            code: Some(status),
            signal: None,
            core_dumped: false,
        },
        code => ProcessEnd {
            code: None,
            signal: Some(status),
            core_dumped: code == libc::CLD_DUMPED,
        },
    };
    let max_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    Ok(Some(Ended { pid, end, max_rss }))
}

/// Reads a wait status as `wait(2)` and the process connector give it.
#[must_use]
pub fn end_of_status(status: u32) -> ProcessEnd {
    let signal = i32::try_from(status & 0x7f).unwrap_or(0);
    if signal == 0 {
        ProcessEnd {
            code: i32::try_from((status >> 8) & 0xff).ok(),
            signal: None,
            core_dumped: false,
        }
    } else {
        ProcessEnd {
            code: None,
            signal: Some(signal),
            core_dumped: status & 0x80 != 0,
        }
    }
}

/// Free bytes of the file system that holds `path`, for this user.
#[must_use]
pub fn free_bytes(path: &std::path::Path) -> Option<u64> {
    let s = nix::sys::statvfs::statvfs(path).ok()?;
    #[allow(clippy::unnecessary_cast)]
    Some((s.blocks_available() as u64).saturating_mul(s.fragment_size() as u64))
}

/// Free bytes that are kept for reports: the smaller of 512 MiB and a twentieth of the file system that holds `path`.
#[must_use]
pub fn disk_floor(path: &std::path::Path) -> Option<u64> {
    let s = nix::sys::statvfs::statvfs(path).ok()?;
    #[allow(clippy::unnecessary_cast)]
    let size = (s.blocks() as u64).saturating_mul(s.fragment_size() as u64);
    Some((size / 20).min(512 << 20))
}

/// The first of these places whose free space is below its floor, in words. `floor` replaces the usual one.
#[must_use]
pub fn low_disk(places: &[std::path::PathBuf], floor: Option<u64>) -> Option<String> {
    places.iter().find_map(|p| {
        let free = free_bytes(p)?;
        let floor = floor.or_else(|| disk_floor(p))?;
        (free < floor).then(|| {
            format!(
                "no space left: {} has {} MiB free, and {} MiB are kept for reports",
                p.display(),
                free >> 20,
                floor.div_ceil(1 << 20)
            )
        })
    })
}

/// Whether we run as root.
#[must_use]
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_three_facts() {
        let e = |s| end_of_status(s);
        assert_eq!(
            e(0),
            ProcessEnd {
                code: Some(0),
                signal: None,
                core_dumped: false
            }
        );
        assert_eq!(e(3 << 8).code, Some(3));
        assert_eq!(
            e(11 | 0x80),
            ProcessEnd {
                code: None,
                signal: Some(11),
                core_dumped: true
            }
        );
        assert_eq!(
            e(9),
            ProcessEnd {
                code: None,
                signal: Some(9),
                core_dumped: false
            }
        );
    }

    #[test]
    fn a_floor_above_what_is_free_is_low() {
        let here = [std::env::temp_dir()];
        assert_eq!(low_disk(&here, Some(0)), None);
        let low = low_disk(&here, Some(u64::MAX)).unwrap();
        assert!(low.starts_with("no space left") && low.contains("MiB free"));
        assert_eq!(low_disk(&["/no/such/place".into()], Some(u64::MAX)), None);
    }

    #[test]
    fn init_is_never_signalled() {
        assert!(kill(1, 0).is_err());
        assert!(kill(0, 0).is_err());
        assert!(kill(-1, 0).is_err());
    }
}
