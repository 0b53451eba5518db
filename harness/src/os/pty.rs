//! A pseudo-terminal that keeps bytes as they are: no echo, no CR translation, no signals from characters.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{
    InputFlags, LocalFlags, OutputFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr,
};

/// Both ends of a pseudo-terminal.
#[derive(Debug)]
pub struct Pty {
    /// Ours: non-blocking, closed on exec.
    pub master: File,
    /// The child's terminal: closed on exec until the stub duplicates it.
    pub slave: OwnedFd,
}

/// Opens a pty of the given size with output processing, echo and line editing off.
pub fn open((cols, rows): (u16, u16)) -> io::Result<Pty> {
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let ends = openpty(Some(&size), None)?;
    let mut t = tcgetattr(&ends.slave)?;
    t.output_flags.remove(OutputFlags::OPOST);
    t.local_flags.remove(
        LocalFlags::ECHO
            | LocalFlags::ECHONL
            | LocalFlags::ICANON
            | LocalFlags::ISIG
            | LocalFlags::IEXTEN,
    );
    t.input_flags
        .remove(InputFlags::ICRNL | InputFlags::INLCR | InputFlags::IGNCR | InputFlags::IXON);
    t.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    t.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
    tcsetattr(&ends.slave, SetArg::TCSANOW, &t)?;
    for fd in [&ends.master, &ends.slave] {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    set_nonblocking(&ends.master)?;
    Ok(Pty {
        master: File::from(ends.master),
        slave: ends.slave,
    })
}

/// Makes reads return `WouldBlock` instead of waiting.
pub fn set_nonblocking(fd: &impl std::os::fd::AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Makes the terminal `fd` the controlling terminal of this (new) session.
pub fn make_controlling(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an int argument and touches no memory of ours.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSCTTY, 0) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn bytes_pass_unchanged_and_the_size_is_set() {
        let mut p = open((97, 31)).unwrap();
        let mut slave = File::from(p.slave.try_clone().unwrap());
        slave.write_all(b"a\nb\r\n\x03\x04\xff").unwrap();
        let mut buf = [0u8; 64];
        let n = p.master.read(&mut buf).unwrap();
        assert_eq!(&buf[..n], b"a\nb\r\n\x03\x04\xff");
        // SAFETY: a zeroed winsize is valid and TIOCGWINSZ fills it.
        let ws = unsafe {
            let mut ws: libc::winsize = std::mem::zeroed();
            assert_eq!(libc::ioctl(slave.as_raw_fd(), libc::TIOCGWINSZ, &mut ws), 0);
            ws
        };
        assert_eq!((ws.ws_col, ws.ws_row), (97, 31));
        // Nothing typed is echoed back.
        p.master.write_all(b"typed\n").unwrap();
        assert_eq!(
            p.master.read(&mut buf).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }
}
