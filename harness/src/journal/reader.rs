//! Reading back what a run, perhaps a dead one, left.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{Entry, JOURNAL, Record};

/// A journal as read.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The records, in order.
    pub records: Vec<Record>,
    /// 1-based lines that could not be read: torn by a crash or a full disk.
    pub torn: Vec<usize>,
}

/// Why a journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// It holds no beginning of a run.
    #[error("{}: no record of a run's beginning; is this a run directory?", path.display())]
    NoBegin {
        /// The journal.
        path: PathBuf,
    },
}

/// Reads the journal of a run directory. Lines that are torn are counted, not fatal.
///
/// # Errors
/// When the file cannot be read.
pub fn read(run_dir: &Path) -> Result<Journal, JournalError> {
    let path = run_dir.join(JOURNAL);
    let bytes = std::fs::read(&path).map_err(|source| JournalError::Io {
        path: path.clone(),
        source,
    })?;
    let mut journal = Journal::default();
    for (index, line) in bytes.split(|&b| b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Record>(line) {
            Ok(record) => journal.records.push(record),
            Err(_) => journal.torn.push(index + 1),
        }
    }
    if !journal
        .records
        .iter()
        .any(|r| matches!(r.entry, Entry::RunBegin { .. }))
    {
        return Err(JournalError::NoBegin { path });
    }
    Ok(journal)
}

impl Journal {
    /// Number of the last record.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.records.iter().map(|r| r.seq).max().unwrap_or(0)
    }

    /// Whether the run's end was recorded after its last beginning or resumption.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.records
            .iter()
            .rev()
            .find_map(|r| match r.entry {
                Entry::RunEnd { .. } => Some(true),
                Entry::Resumed { .. } | Entry::RunBegin { .. } | Entry::StepBegin { .. } => {
                    Some(false)
                }
                _ => None,
            })
            .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Writer;

    fn begin() -> Entry {
        Entry::RunBegin {
            run: "r".into(),
            leg_set: "s".into(),
            leg_file: "f".into(),
            selection: Box::default(),
            leg_file_sha256: "0".into(),
            seed: 1,
            steps: Vec::new(),
            pid: 1,
            boot_id: None,
            driver: None,
            argv: Vec::new(),
            legwork: "0".into(),
            base: "/".into(),
        }
    }

    #[test]
    fn a_torn_line_is_counted_and_what_follows_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(JOURNAL);
        let mut writer = Writer::create(&path).unwrap();
        writer.append_sync(begin()).unwrap();
        drop(writer);
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"seq\":2,\"at\":\"20");
        std::fs::write(&path, text).unwrap();
        let mut writer = Writer::reopen(&path, 1).unwrap();
        writer
            .append(Entry::Decision {
                what: "w".into(),
                why: "y".into(),
            })
            .unwrap();
        let journal = read(dir.path()).unwrap();
        assert_eq!(
            (
                journal.records.len(),
                journal.torn.as_slice(),
                journal.last_seq()
            ),
            (2, [2].as_slice(), 2)
        );
        assert!(!journal.finished());
    }

    #[test]
    fn a_folder_without_a_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path()), Err(JournalError::Io { .. })));
        std::fs::write(dir.path().join(JOURNAL), "junk\n").unwrap();
        assert!(matches!(
            read(dir.path()),
            Err(JournalError::NoBegin { .. })
        ));
        assert!(Writer::create(&dir.path().join(JOURNAL)).is_err());
    }
}
