//! The kernel's process events (proc connector over netlink): every fork, exec and exit of the machine, with exit
//! status and core flag, whoever the parent is. Needs root in the initial namespaces.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NLMSG_DONE: u16 = 3;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const MCAST_LISTEN: u32 = 1;
const MCAST_IGNORE: u32 = 2;
const HEADERS: usize = 16 + 20; // nlmsghdr, cn_msg

const EVENT_FORK: u32 = 0x1;
const EVENT_EXEC: u32 = 0x2;
const EVENT_COMM: u32 = 0x200;
const EVENT_COREDUMP: u32 = 0x4000_0000;
const EVENT_EXIT: u32 = 0x8000_0000;

/// One event about a whole process (of threads only their ends by a signal are kept). `mono_ns` is the kernel's CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcEvent {
    /// A process was made.
    Fork {
        /// When.
        mono_ns: u64,
        /// By whom.
        parent: i32,
        /// The new one.
        child: i32,
    },
    /// A process became another program.
    Exec {
        /// When.
        mono_ns: u64,
        /// Which.
        pid: i32,
    },
    /// A process (its main thread) renamed itself.
    Comm {
        /// Which.
        pid: i32,
        /// Its new name.
        comm: String,
    },
    /// A process begins to dump core.
    CoreDump {
        /// When.
        mono_ns: u64,
        /// Which.
        pid: i32,
    },
    /// A thread other than the main one ended by a signal: so did its process, which may have lost its main thread before.
    ThreadExit {
        /// Its process.
        pid: i32,
        /// Its wait status.
        status: u32,
    },
    /// A process ended.
    Exit {
        /// When.
        mono_ns: u64,
        /// Which.
        pid: i32,
        /// Its wait status.
        status: u32,
    },
}

/// A subscription.
#[derive(Debug)]
pub struct ProcEvents {
    socket: OwnedFd,
}

impl ProcEvents {
    /// Subscribes. An error says why not (`EPERM` without root, `EPROTONOSUPPORT` without the kernel option).
    pub fn open() -> io::Result<Self> {
        // SAFETY: socket() touches no memory; the fd is checked before it is owned.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
                libc::NETLINK_CONNECTOR,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is a fresh, open descriptor that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an all-zero sockaddr_nl is valid; bind reads it for the given length.
        let rc = unsafe {
            let mut addr: libc::sockaddr_nl = std::mem::zeroed();
            addr.nl_family = u16::try_from(libc::AF_NETLINK).unwrap_or(16);
            addr.nl_groups = CN_IDX_PROC;
            libc::bind(
                fd,
                (&raw const addr).cast(),
                libc::socklen_t::try_from(size_of::<libc::sockaddr_nl>()).unwrap_or(12),
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        // A burst of forks must not overflow the queue; as root the limit may be exceeded.
        let _ = set_int(&socket, libc::SO_RCVBUFFORCE, 64 << 20);
        let this = ProcEvents { socket };
        this.send(MCAST_LISTEN)?;
        Ok(this)
    }

    fn send(&self, op: u32) -> io::Result<()> {
        let mut m = Vec::with_capacity(HEADERS + 4);
        let total = u32::try_from(HEADERS + 4).unwrap_or(40);
        m.extend(total.to_ne_bytes());
        m.extend(NLMSG_DONE.to_ne_bytes());
        m.extend(0u16.to_ne_bytes());
        m.extend(0u32.to_ne_bytes());
        m.extend(0u32.to_ne_bytes());
        m.extend(CN_IDX_PROC.to_ne_bytes());
        m.extend(CN_VAL_PROC.to_ne_bytes());
        m.extend(0u32.to_ne_bytes());
        m.extend(0u32.to_ne_bytes());
        m.extend(4u16.to_ne_bytes());
        m.extend(0u16.to_ne_bytes());
        m.extend(op.to_ne_bytes());
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::send(self.socket.as_raw_fd(), m.as_ptr().cast(), m.len(), 0) };
        if n < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Readable when there are events.
    #[must_use]
    pub fn fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }

    /// Takes one datagram of events, if there is one. `Err` with `ENOBUFS` means that events were lost.
    pub fn receive(&self, out: &mut Vec<ProcEvent>) -> io::Result<bool> {
        let mut buf = [0u8; 16384];
        // SAFETY: the buffer is valid for its length.
        let n = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buf.as_mut_ptr().cast(),
                buf.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if n < 0 {
            let e = io::Error::last_os_error();
            return match e.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(e),
            };
        }
        let mut rest = buf
            .get(..usize::try_from(n).unwrap_or(0))
            .unwrap_or_default();
        while rest.len() >= HEADERS {
            let len = usize::try_from(u32_at(rest, 0)).unwrap_or(0);
            if len < HEADERS || len > rest.len() {
                break;
            }
            if u32_at(rest, 16) == CN_IDX_PROC
                && let Some(e) = parse(&rest[HEADERS..len])
            {
                out.push(e);
            }
            rest = rest.get((len + 3) & !3..).unwrap_or_default();
        }
        Ok(true)
    }
}

impl Drop for ProcEvents {
    fn drop(&mut self) {
        let _ = self.send(MCAST_IGNORE);
    }
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}

fn pid_at(b: &[u8], at: usize) -> i32 {
    i32::try_from(u32_at(b, at)).unwrap_or(0)
}

/// Parses one `struct proc_event`; threads and kinds that we do not use give `None`.
fn parse(b: &[u8]) -> Option<ProcEvent> {
    if b.len() < 24 {
        return None;
    }
    let mono_ns = u64::from_ne_bytes(b.get(8..16)?.try_into().ok()?);
    let (pid, tgid) = (pid_at(b, 16), pid_at(b, 20));
    match u32_at(b, 0) {
        EVENT_FORK => {
            let (child, child_tgid) = (pid_at(b, 24), pid_at(b, 28));
            (child == child_tgid).then_some(ProcEvent::Fork {
                mono_ns,
                parent: tgid,
                child,
            })
        }
        EVENT_EXEC => Some(ProcEvent::Exec { mono_ns, pid: tgid }),
        EVENT_COMM if pid == tgid => {
            let raw = b.get(24..40)?;
            let end = raw.iter().position(|&c| c == 0).unwrap_or(raw.len());
            Some(ProcEvent::Comm {
                pid,
                comm: String::from_utf8_lossy(&raw[..end]).into_owned(),
            })
        }
        EVENT_COREDUMP => Some(ProcEvent::CoreDump { mono_ns, pid: tgid }),
        EVENT_EXIT if pid != tgid => {
            let status = u32_at(b, 24);
            (status & 0x7f != 0).then_some(ProcEvent::ThreadExit { pid: tgid, status })
        }
        EVENT_EXIT => Some(ProcEvent::Exit {
            mono_ns,
            pid,
            status: u32_at(b, 24),
        }),
        _ => None,
    }
}

fn set_int(s: &OwnedFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option value is an int that lives through the call.
    let rc = unsafe {
        libc::setsockopt(
            s.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: u32, words: &[u32]) -> Vec<u8> {
        let mut b = Vec::new();
        b.extend(what.to_ne_bytes());
        b.extend(0u32.to_ne_bytes());
        b.extend(77u64.to_ne_bytes());
        for w in words {
            b.extend(w.to_ne_bytes());
        }
        b
    }

    #[test]
    fn threads_are_left_out_and_statuses_kept() {
        // Layout of struct proc_event in linux/cn_proc.h.
        assert_eq!(
            parse(&event(EVENT_FORK, &[10, 9, 20, 20])),
            Some(ProcEvent::Fork {
                mono_ns: 77,
                parent: 9,
                child: 20
            })
        );
        assert_eq!(parse(&event(EVENT_FORK, &[10, 9, 21, 20])), None);
        assert_eq!(
            parse(&event(EVENT_EXIT, &[20, 20, 0x8b, 17, 9, 9])),
            Some(ProcEvent::Exit {
                mono_ns: 77,
                pid: 20,
                status: 0x8b
            })
        );
        assert_eq!(parse(&event(EVENT_EXIT, &[21, 20, 0, 17, 9, 9])), None);
        assert_eq!(
            parse(&event(EVENT_EXIT, &[21, 20, 0x8b, 17, 9, 9])),
            Some(ProcEvent::ThreadExit {
                pid: 20,
                status: 0x8b
            })
        );
        assert_eq!(parse(&event(EVENT_EXEC, &[1])), None);
        assert_eq!(parse(&[]), None);
    }
}
