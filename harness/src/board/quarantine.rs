//! A board that left an unkillable process or a failed reset is not used again until somebody cleared it, or the machine
//! booted anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::supervise::leftovers::boot_id;

/// Why a board is set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// What happened, e.g. `pid 4711 survived SIGKILL in svm_range_set_attr`.
    pub reason: String,
    /// The run in which it happened.
    pub run: String,
    /// When.
    pub since: DateTime<Utc>,
    /// Boot in which it happened: another boot lifts the quarantine.
    pub boot_id: Option<String>,
}

fn file(dir: &Path, board: &str) -> PathBuf {
    dir.join(format!("{board}.quarantine.json"))
}

/// Sets a board aside. The first reason stays.
pub fn set(dir: &Path, board: &str, reason: &str, run: &str) -> io::Result<()> {
    if active(dir, board).is_some() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    let q = Quarantine {
        reason: reason.to_owned(),
        run: run.to_owned(),
        since: Utc::now(),
        boot_id: boot_id(),
    };
    let part = dir.join(format!("{board}.quarantine.part"));
    fs::write(&part, serde_json::to_vec_pretty(&q)?)?;
    fs::rename(part, file(dir, board))
}

/// The quarantine in force; one of an earlier boot is over.
#[must_use]
pub fn active(dir: &Path, board: &str) -> Option<Quarantine> {
    let q: Quarantine = serde_json::from_slice(&fs::read(file(dir, board)).ok()?).ok()?;
    (q.boot_id.is_none() || q.boot_id == boot_id()).then_some(q)
}

/// Lifts it; false when there was none.
pub fn clear(dir: &Path, board: &str) -> io::Result<bool> {
    match fs::remove_file(file(dir, board)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_until_cleared_or_booted() {
        let d = tempfile::tempdir().unwrap();
        assert_eq!(active(d.path(), "gpu0"), None);
        set(d.path(), "gpu0", "pid 7 survived SIGKILL", "r1").unwrap();
        set(d.path(), "gpu0", "later trouble", "r2").unwrap();
        assert_eq!(
            active(d.path(), "gpu0").unwrap().reason,
            "pid 7 survived SIGKILL"
        );
        assert_eq!(active(d.path(), "gpu1"), None);
        let mut q = active(d.path(), "gpu0").unwrap();
        q.boot_id = Some("another boot".into());
        fs::write(file(d.path(), "gpu0"), serde_json::to_vec(&q).unwrap()).unwrap();
        assert_eq!(active(d.path(), "gpu0"), None, "a reboot lifts it");
        assert!(clear(d.path(), "gpu0").unwrap());
        assert!(!clear(d.path(), "gpu0").unwrap());
    }
}
