//! Leaving a share: an executable that lies on a network file system copies itself to a local disk and goes on from there,
//! since a page of it that must be read again after the share has gone would end the harness.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use super::{Stage, StageError, mount_of};

/// Names the folder of the copy to the process that goes on.
const VARIABLE: &str = "LEGWORK_RESTAGED";

/// The folder of the copy that this process runs from; removed when dropped.
#[derive(Debug)]
pub struct Restaged(PathBuf);

impl Drop for Restaged {
    fn drop(&mut self) {
        // Ours by name and place alone is not enough to remove a folder: it must hold the copy.
        if self.0.join("bin").join("legwork").is_file() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Goes on from a local copy when this executable lies on a network file system; does not return then. Otherwise tells
/// whether this is already the copy.
///
/// # Errors
/// When the copy cannot be made or started.
pub fn leave_the_share(arguments: &[OsString]) -> Result<Option<Restaged>, StageError> {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        return Ok(Some(Restaged(PathBuf::from(dir))));
    }
    let own = std::env::current_exe().unwrap_or_default();
    if !mount_of(&own).is_some_and(|m| m.network()) {
        return Ok(None);
    }
    let mut stage = Stage::create()?;
    let copy = stage.own_executable()?;
    let dir = stage.keep();
    let error = go_on(&copy, arguments, &dir);
    let _ = std::fs::remove_dir_all(&dir);
    Err(StageError::io("starting the local copy", &copy)(error))
}

/// Replaces this process; returns only when that fails.
fn go_on(copy: &Path, arguments: &[OsString], dir: &Path) -> std::io::Error {
    let mut words = arguments.iter();
    let name = words.next().cloned().unwrap_or_else(|| "legwork".into());
    std::process::Command::new(copy)
        .arg0(name)
        .args(words)
        .env(VARIABLE, dir)
        .exec()
}
