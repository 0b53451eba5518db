//! A private local copy of everything that a run executes.
//!
//! A share may vanish, a script may be edited, a mount may forbid execution: so the executable, scripts, commands
//! and prompt files are copied into a fresh `/tmp/legwork-XXXXXX` (mode 0700) before anything runs, hashed while
//! they are read, hashed again where they were written, and executed from there. `copy` does that, `mounts` knows what
//! lies under a path, `share` keeps the harness from waiting for a dead one, `programs` turns a leg into the argument vector of its copy.

mod copy;
mod mounts;
mod programs;
mod restage;
mod share;

use std::path::{Path, PathBuf};

use thiserror::Error;

pub use copy::{StagedFile, copy_verified, sha256_file};
pub use mounts::{Mount, mount_of};
pub use programs::{Program, find_in_path, stage_leg};
pub use restage::{Restaged, leave_the_share};
pub use share::{
    Answer, VERB as SHARE_VERB, answers, archive_patiently, copy_patiently, is_remote, patience,
    probe, sha256_patiently, worker_main,
};
pub(crate) use share::{copy_all, question};

/// Why staging failed. All of these are troubles of the surroundings, not of the leg.
#[derive(Debug, Error)]
pub enum StageError {
    /// A file could not be copied.
    #[error("staging {what}: {}: {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// What was written is not what was read.
    #[error("staging {}: the copy {} has another SHA-256 ({written}) than what was read ({read}): the disk or the share is not to be trusted", source_path.display(), copy.display())]
    Differs {
        /// The source.
        source_path: PathBuf,
        /// The copy.
        copy: PathBuf,
        /// Hash of the bytes read.
        read: String,
        /// Hash of the bytes that the copy holds.
        written: String,
    },
    /// No folder to stage into.
    #[error(
        "no folder to stage into: {0}; name one on a local disk that allows execution with LEGWORK_STAGE_DIR"
    )]
    NoPlace(String),
    /// No such program.
    #[error("no program `{name}` in PATH ({path})")]
    NoProgram {
        /// The name.
        name: String,
        /// Where it was looked for.
        path: String,
    },
    /// A script that the kernel cannot start.
    #[error("the script {} has Windows line ends in its first line: the kernel would look for an interpreter named `{interpreter}\\r`; convert it with `sed -i 's/\\r$//'`", path.display())]
    WindowsLineEnds {
        /// The script.
        path: PathBuf,
        /// The interpreter line.
        interpreter: String,
    },
}

impl StageError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StageError {
        let path = path.to_owned();
        move |source| StageError::Io { what, path, source }
    }
}

/// The staged copy; removed when dropped, unless it is kept.
#[derive(Debug)]
pub struct Stage {
    dir: tempfile::TempDir,
    /// Everything copied so far.
    pub files: Vec<StagedFile>,
    /// Places that were tried and why they were not taken.
    pub refused: Vec<String>,
}

impl Stage {
    /// Makes the folder: in `LEGWORK_STAGE_DIR` if that is set, else in the first of `/tmp`, `/var/tmp` and the user's
    /// cache folder that allows execution.
    ///
    /// # Errors
    /// When no place will do, with the reason for each.
    pub fn create() -> Result<Stage, StageError> {
        let chosen = std::env::var_os("LEGWORK_STAGE_DIR").map(PathBuf::from);
        let cache = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let candidates: Vec<PathBuf> = match chosen {
            Some(dir) => vec![dir],
            None => [Some("/tmp".into()), Some("/var/tmp".into()), cache]
                .into_iter()
                .flatten()
                .collect(),
        };
        Self::create_in(&candidates)
    }

    /// Makes the folder in the first candidate that will do.
    ///
    /// # Errors
    /// When no candidate will do, with the reason for each.
    pub fn create_in(candidates: &[PathBuf]) -> Result<Stage, StageError> {
        let mut refused = Vec::new();
        for candidate in candidates {
            if let Some(mount) = mount_of(candidate)
                && mount.noexec()
            {
                refused.push(format!(
                    "{} is on {}, which is mounted noexec",
                    candidate.display(),
                    mount.point.display()
                ));
                continue;
            }
            use std::os::unix::fs::PermissionsExt;
            let made = tempfile::Builder::new()
                .prefix("legwork-")
                .permissions(std::fs::Permissions::from_mode(0o700))
                .tempdir_in(candidate);
            match made {
                Ok(dir) => {
                    return Ok(Stage {
                        dir,
                        files: Vec::new(),
                        refused,
                    });
                }
                Err(e) => refused.push(format!("{}: {e}", candidate.display())),
            }
        }
        Err(StageError::NoPlace(refused.join("; ")))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Copies this executable; returns the copy.
    ///
    /// # Errors
    /// When it cannot be read, written or verified.
    pub fn own_executable(&mut self) -> Result<PathBuf, StageError> {
        let target = self.path().join("bin").join("legwork");
        // Read through /proc: works when the file was replaced or removed since we were started.
        self.add(
            "executable",
            Path::new("/proc/self/exe"),
            &target,
            Some(0o700),
        )?;
        Ok(target)
    }

    /// Copies a file and records it. `mode` is the copy's; without it the source's, plus read for the owner.
    ///
    /// # Errors
    /// When it cannot be read, written or verified.
    pub fn add(
        &mut self,
        role: &str,
        source: &Path,
        target: &Path,
        mode: Option<u32>,
    ) -> Result<&StagedFile, StageError> {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(StageError::io("making folder", parent))?;
        }
        let staged = copy_patiently(role, source, target, mode)?;
        self.files.push(staged);
        let last = self.files.len() - 1;
        Ok(&self.files[last])
    }

    /// Writes text that has no file, such as a built-in prompt, and records it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_text(
        &mut self,
        role: &str,
        name: &str,
        text: &str,
        target: &Path,
    ) -> Result<(), StageError> {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(StageError::io("making folder", parent))?;
        }
        std::fs::write(target, text).map_err(StageError::io("writing", target))?;
        let (sha256, bytes) = sha256_file(target).map_err(StageError::io("reading", target))?;
        self.files.push(StagedFile {
            role: role.to_owned(),
            source: name.into(),
            path: target.to_owned(),
            sha256,
            bytes,
            mode: 0o600,
        });
        Ok(())
    }

    /// Leaves the folder on disk; returns where.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_is_private_fresh_and_gone_afterwards() {
        let base = tempfile::tempdir().unwrap();
        let stage = Stage::create_in(&[base.path().to_owned()]).unwrap();
        let path = stage.path().to_owned();
        assert!(
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("legwork-")
        );
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(stage);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_will_not_do_is_named_and_the_next_is_taken() {
        let base = tempfile::tempdir().unwrap();
        let missing = base.path().join("missing");
        let stage = Stage::create_in(&[missing.clone(), base.path().to_owned()]).unwrap();
        assert!(stage.refused[0].contains("missing"), "{:?}", stage.refused);
        let error = Stage::create_in(&[missing]).unwrap_err().to_string();
        assert!(error.contains("LEGWORK_STAGE_DIR"), "{error}");
    }

    /// `/proc` is mounted noexec on every distribution that we know; where it is not, there is nothing to test.
    #[test]
    fn a_noexec_mount_is_named() {
        if !mount_of(Path::new("/proc")).is_some_and(|m| m.noexec()) {
            return;
        }
        let error = Stage::create_in(&[PathBuf::from("/proc/self")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("mounted noexec") && error.contains("/proc"),
            "{error}"
        );
    }
}
