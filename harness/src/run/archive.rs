//! Copies finished attempts away while the run goes on, and writes `SHA256SUMS`.
//!
//! The local copy is the truth. An archive on a share may be slow or gone: a copy is tried three times, by a child with a
//! deadline, and when it fails the run goes on and the report says where the local copy lies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::stage::{archive_patiently, copy_all, sha256_file};

/// The archive of one run.
#[derive(Debug)]
pub(super) struct Archive {
    to: Option<PathBuf>,
    /// The executable whose child copies; without one it is done here.
    worker: Option<PathBuf>,
    /// The archive did not answer within its time: it is not asked again.
    dead: bool,
    /// Hashes by path relative to the run directory.
    sums: BTreeMap<String, String>,
}

/// What became of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Archived {
    /// Where to.
    pub to: PathBuf,
    /// Files copied.
    pub files: usize,
    /// Why it failed.
    pub error: Option<String>,
}

impl Archive {
    pub(super) fn new(archive: Option<&Path>, run_id: &str, worker: Option<PathBuf>) -> Archive {
        Archive {
            to: archive.map(|a| {
                std::path::absolute(a)
                    .unwrap_or_else(|_| a.to_owned())
                    .join(run_id)
            }),
            worker,
            dead: false,
            sums: BTreeMap::new(),
        }
    }

    /// Hashes every file below `relative` (a folder or file of the run directory) and copies it to the archive.
    pub(super) fn take(&mut self, run_dir: &Path, relative: &str) -> Option<Archived> {
        let files = files_below(run_dir, Path::new(relative));
        let mut bytes = 0;
        for file in &files {
            if let Ok((sum, size)) = sha256_file(&run_dir.join(file)) {
                bytes += size;
                self.sums.insert(file.to_string_lossy().into_owned(), sum);
            }
        }
        let to = self.to.clone()?;
        if self.dead {
            return Some(Archived {
                to,
                files: 0,
                error: Some("the archive did not answer before and was not asked again".to_owned()),
            });
        }
        let result = match &self.worker {
            Some(exe) => archive_patiently(exe, run_dir, &to, &files, bytes),
            None => Ok(copy_all(run_dir, &to, &files)),
        };
        Some(match result {
            Ok((files, error)) => Archived { to, files, error },
            Err(e) => {
                self.dead = true;
                Archived {
                    to,
                    files: 0,
                    error: Some(e.to_string()),
                }
            }
        })
    }

    /// Writes `SHA256SUMS` over everything in the run directory, in the format of sha256sum(1).
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write_sums(&mut self, run_dir: &Path) -> std::io::Result<()> {
        for file in files_below(run_dir, Path::new("")) {
            let name = file.to_string_lossy().into_owned();
            let settled = name.starts_with("attempts/") && self.sums.contains_key(&name);
            if name == "SHA256SUMS" || settled {
                continue;
            }
            if let Ok((sum, _)) = sha256_file(&run_dir.join(&file)) {
                self.sums.insert(name, sum);
            }
        }
        let text: String = self
            .sums
            .iter()
            .map(|(name, sum)| format!("{sum}  {name}\n"))
            .collect();
        super::dir::write_whole(&run_dir.join("SHA256SUMS"), text.as_bytes())
    }
}

/// Regular files below a folder of the run directory, relative to it, sorted. Links are not followed.
fn files_below(run_dir: &Path, relative: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut open = vec![relative.to_owned()];
    while let Some(at) = open.pop() {
        let full = run_dir.join(&at);
        match std::fs::symlink_metadata(&full) {
            Ok(m) if m.is_file() => out.push(at),
            Ok(m) if m.is_dir() => {
                if let Ok(entries) = std::fs::read_dir(&full) {
                    open.extend(entries.flatten().map(|e| at.join(e.file_name())));
                }
            }
            _ => {}
        }
    }
    out.sort();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_copied_and_every_file_has_its_sum() {
        let dir = tempfile::tempdir().unwrap();
        let (run, archive) = (dir.path().join("run"), dir.path().join("archive"));
        std::fs::create_dir_all(run.join("attempts/001-a-r1")).unwrap();
        std::fs::write(run.join("attempts/001-a-r1/output.raw"), "abc").unwrap();
        std::fs::write(run.join("report.json"), "").unwrap();
        let mut a = Archive::new(Some(&archive), "run", None);
        let done = a.take(&run, "attempts/001-a-r1").unwrap();
        assert_eq!((done.files, done.error), (1, None));
        assert_eq!(
            std::fs::read(archive.join("run/attempts/001-a-r1/output.raw")).unwrap(),
            b"abc"
        );
        a.write_sums(&run).unwrap();
        let sums = std::fs::read_to_string(run.join("SHA256SUMS")).unwrap();
        // FIPS 180-2, appendix B.1, and the well-known hash of nothing.
        assert_eq!(
            sums,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  attempts/001-a-r1/output.raw\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  report.json\n"
        );
    }

    #[test]
    fn an_archive_that_cannot_be_written_is_an_error_in_words_not_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir_all(run.join("attempts/x")).unwrap();
        std::fs::write(run.join("attempts/x/f"), "1").unwrap();
        let blocked = dir.path().join("blocked");
        std::fs::write(&blocked, "a file, not a folder").unwrap();
        let mut a = Archive::new(Some(&blocked), "run", None);
        let done = a.take(&run, "attempts/x").unwrap();
        assert!(done.error.is_some() && done.files == 0);
    }
}
