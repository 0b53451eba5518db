//! The run directory: `runs/<UTC>-<leg set>/`.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::RunError;
use crate::plan::Step;

/// Space that is set aside for the reports.
const RESERVE: u64 = 16 << 20;
const RESERVE_NAME: &str = ".reserve";

/// The run directory.
#[derive(Debug, Clone)]
pub struct RunDir {
    /// Absolute path.
    pub path: PathBuf,
    /// Its name.
    pub id: String,
}

impl RunDir {
    /// Makes a new one below `out`. Two runs that start in the same second get different names.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(out: &Path, leg_set: &str, now: DateTime<Utc>) -> Result<RunDir, RunError> {
        std::fs::create_dir_all(out).map_err(RunError::io("making the folder for runs", out))?;
        let out =
            std::fs::canonicalize(out).map_err(RunError::io("finding the folder for runs", out))?;
        let stem = format!("{}-{leg_set}", now.format("%Y%m%dT%H%M%SZ"));
        for n in 1..1000 {
            let id = if n == 1 {
                stem.clone()
            } else {
                format!("{stem}-{n}")
            };
            let path = out.join(&id);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(RunDir { path, id }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(RunError::io("making the run directory", &path)(e)),
            }
        }
        Err(RunError::RunDir {
            path: out.join(stem),
            why: "a thousand runs of this name exist".to_owned(),
        })
    }

    /// An existing one.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(path: &Path) -> Result<RunDir, RunError> {
        let full =
            std::fs::canonicalize(path).map_err(RunError::io("finding the run directory", path))?;
        let id = full
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !full.is_dir() {
            return Err(RunError::RunDir {
                path: full,
                why: "is no folder".to_owned(),
            });
        }
        Ok(RunDir { path: full, id })
    }

    /// Sets some space aside that is given back for the reports, so that they can be written on a disk that is full.
    pub fn reserve(&self) {
        use std::os::fd::AsRawFd;
        let Some(free) = crate::os::process::free_bytes(&self.path) else {
            return;
        };
        let bytes = (free / 16).min(RESERVE);
        let path = self.path.join(RESERVE_NAME);
        if let Ok(f) = std::fs::File::create(&path)
            && let Ok(len) = libc::off_t::try_from(bytes)
        {
            // SAFETY: a descriptor and two numbers. A file system that cannot do it leaves an empty file.
            unsafe { libc::posix_fallocate(f.as_raw_fd(), 0, len) };
        }
    }

    /// Gives it back.
    pub fn release(&self) {
        let _ = std::fs::remove_file(self.path.join(RESERVE_NAME));
    }

    /// Makes the folder of an attempt; returns its path relative to the run directory. A folder of that name which holds
    /// something is the attempt of a harness that died before it could say more: it stays as it is, and the new one gets a
    /// letter.
    ///
    /// # Errors
    /// When no folder can be made.
    pub fn make_attempt(&self, step: &Step, leg: &str) -> std::io::Result<String> {
        let stem = RunDir::attempt(step, leg);
        for suffix in std::iter::once(String::new()).chain(('b'..='z').map(|c| format!("-{c}"))) {
            let relative = format!("{stem}{suffix}");
            let path = self.path.join(&relative);
            std::fs::create_dir_all(&path)?;
            if std::fs::read_dir(&path)?.next().is_none() {
                return Ok(relative);
            }
        }
        Err(std::io::Error::new(
            std::io::ErrorKind::AlreadyExists,
            "this attempt was begun 26 times before",
        ))
    }

    /// Name of an attempt's folder, relative to the run directory.
    #[must_use]
    pub fn attempt(step: &Step, leg: &str) -> String {
        let kind = if step.warmup { "w" } else { "r" };
        format!("attempts/{:03}-{leg}-{kind}{}", step.n, step.round)
    }
}

/// Writes a file so that a reader sees the old or the new content, never half of it.
///
/// # Errors
/// When the disk is full or gone.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".part-")
        .tempfile_in(parent)?;
    file.write_all(content)?;
    file.as_file().sync_data()?;
    use std::os::unix::fs::PermissionsExt;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_the_same_second_get_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        let one = RunDir::create(dir.path(), "smoke", now).unwrap();
        let two = RunDir::create(dir.path(), "smoke", now).unwrap();
        assert_eq!(one.id, "20260921T141320Z-smoke");
        assert_eq!(two.id, "20260921T141320Z-smoke-2");
    }
}
