//! Short runs of other programs (gdb, journalctl) that cannot outlive their time.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a helper left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelperOutput {
    /// Its stdout and stderr, at most `cap` bytes.
    pub output: Vec<u8>,
    /// It exited with 0.
    pub success: bool,
    /// It was ended because its time was over.
    pub timed_out: bool,
}

/// Finds a program in the usual places.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"].map(PathBuf::from))
        .map(|d| d.join(name))
        .find(|p| p.is_absolute() && p.is_file())
}

/// Runs a program in a process group of its own for at most `limit`, keeping at most `cap` bytes of its output.
pub fn run_bounded(
    mut command: Command,
    limit: Duration,
    cap: usize,
) -> std::io::Result<HelperOutput> {
    let (mut rx, tx) = std::io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(tx.try_clone()?)
        .stderr(tx)
        .process_group(0);
    let mut child = command.spawn()?;
    drop(command); // closes our write ends
    let reader = std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buf = [0u8; 8192];
        while let Ok(n) = rx.read(&mut buf) {
            if n == 0 {
                break;
            }
            let room = cap.saturating_sub(kept.len());
            kept.extend_from_slice(&buf[..n.min(room)]);
        }
        kept
    });
    let deadline = Instant::now() + limit;
    let mut out = HelperOutput::default();
    loop {
        if let Some(status) = child.try_wait()? {
            out.success = status.success();
            break;
        }
        if Instant::now() >= deadline {
            out.timed_out = true;
            if let Ok(pid) = i32::try_from(child.id()) {
                // SAFETY: signals the group that we made; touches no memory.
                unsafe { libc::kill(-pid, libc::SIGKILL) };
            }
            let gone = Instant::now() + Duration::from_secs(2);
            while child.try_wait()?.is_none() && Instant::now() < gone {
                std::thread::sleep(Duration::from_millis(10));
            }
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // A grandchild may still hold the pipe: take what is there, but do not wait for it.
    let until = Instant::now() + Duration::from_secs(1);
    while !reader.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    if reader.is_finished() {
        out.output = reader.join().unwrap_or_default();
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_ended_when_its_time_is_over() {
        let mut c = Command::new("/bin/sh");
        c.args(["-c", "echo begun; sleep 60"]);
        let started = Instant::now();
        let out = run_bounded(c, Duration::from_millis(300), 100).unwrap();
        assert!(out.timed_out && !out.success);
        assert_eq!(out.output, b"begun\n");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn output_is_bounded() {
        let mut c = Command::new("/bin/sh");
        c.args(["-c", "head -c 100000 /dev/zero"]);
        let out = run_bounded(c, Duration::from_secs(20), 1000).unwrap();
        assert!(out.success);
        assert_eq!(out.output.len(), 1000);
    }
}
