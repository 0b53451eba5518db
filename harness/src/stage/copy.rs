//! Copying with proof.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::StageError;

/// A file as staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// What it is: `executable`, `script`, `command`, `prompt`, `extra`.
    pub role: String,
    /// Where it was read.
    pub source: PathBuf,
    /// The copy.
    pub path: PathBuf,
    /// SHA-256 of its bytes, as read and as written.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Mode of the copy.
    pub mode: u32,
}

/// A share may hiccup: a copy is tried this often.
const TRIES: u32 = 3;

/// SHA-256 (lower-case hex) and size of a file.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_file(path: &Path) -> std::io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 18];
    let mut total = 0u64;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok((crate::legfile::hex(&hash.finalize()), total));
        }
        hash.update(&buffer[..n]);
        total += n as u64;
    }
}

/// Copies `source` to `target` (which must not exist), hashing what is read, flushing it to disk and hashing what was
/// written. Tried three times, since the source may lie on a share.
///
/// # Errors
/// When it cannot be read or written, or when the copy differs.
pub fn copy_verified(
    role: &str,
    source: &Path,
    target: &Path,
    mode: Option<u32>,
) -> Result<StagedFile, StageError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match copy_once(role, source, target, mode) {
            Ok(staged) => return Ok(staged),
            Err(error) => {
                // The half copy is ours: nothing else can have made it, since it was created with O_EXCL.
                let _ = std::fs::remove_file(target);
                let lasting = matches!(&error, StageError::Io { source, .. } if matches!(
                    source.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::IsADirectory | std::io::ErrorKind::AlreadyExists
                ));
                if lasting || tries >= TRIES {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(200 * u64::from(tries)));
            }
        }
    }
}

fn copy_once(
    role: &str,
    source: &Path,
    target: &Path,
    mode: Option<u32>,
) -> Result<StagedFile, StageError> {
    let mut from = File::open(source).map_err(StageError::io("opening", source))?;
    let metadata = from.metadata().map_err(StageError::io("reading", source))?;
    if metadata.is_dir() {
        return Err(StageError::io("opening", source)(std::io::Error::from(
            std::io::ErrorKind::IsADirectory,
        )));
    }
    let mode = mode.unwrap_or_else(|| (metadata.permissions().mode() & 0o777) | 0o400);
    let mut to = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)
        .map_err(StageError::io("creating", target))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 18];
    let mut bytes = 0u64;
    loop {
        let n = from
            .read(&mut buffer)
            .map_err(StageError::io("reading", source))?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
        to.write_all(&buffer[..n])
            .map_err(StageError::io("writing", target))?;
    }
    to.set_permissions(std::fs::Permissions::from_mode(mode))
        .map_err(StageError::io("setting the mode of", target))?;
    to.sync_all().map_err(StageError::io("flushing", target))?;
    // Closed before it is executed: a file that is open for writing is "text file busy".
    drop(to);
    let read = crate::legfile::hex(&hash.finalize());
    let (written, _) = sha256_file(target).map_err(StageError::io("verifying", target))?;
    if read != written {
        return Err(StageError::Differs {
            source_path: source.to_owned(),
            copy: target.to_owned(),
            read,
            written,
        });
    }
    Ok(StagedFile {
        role: role.to_owned(),
        source: source.to_owned(),
        path: target.to_owned(),
        sha256: read,
        bytes,
        mode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_the_hash_the_bytes_and_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&source, "abc").unwrap();
        let staged = copy_verified("script", &source, &target, Some(0o700)).unwrap();
        // SHA-256 of "abc": FIPS 180-2, appendix B.1.
        assert_eq!(
            staged.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            (
                staged.bytes,
                target.metadata().unwrap().permissions().mode() & 0o777
            ),
            (3, 0o700)
        );
    }

    #[test]
    fn an_existing_target_and_a_missing_source_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("a"), dir.path().join("b"));
        assert!(copy_verified("x", &source, &target, None).is_err());
        std::fs::write(&source, "1").unwrap();
        assert!(copy_verified("x", dir.path(), &target, None).is_err());
    }
}
