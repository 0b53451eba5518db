//! The run's journal: one JSON object per line, appended, flushed to disk at attempt boundaries and before anything
//! risky. What is not in the journal did not happen; what is in it survives a kill, a full disk and a reboot.
//!
//! `entry` says what can be recorded, `writer` appends, `reader` reads back what a dead harness left, `resume` decides
//! per step what is done, what is to be run again and what is lost with evidence.

mod entry;
mod reader;
mod resume;
mod writer;

pub use entry::{Entry, Record};
pub use reader::{Journal, JournalError, read};
pub use resume::{Fate, StepFate, fates};
pub use writer::Writer;

/// File name in the run directory.
pub const JOURNAL: &str = "journal.jsonl";

/// Boot id of this machine; `None` where there is no `/proc`.
#[must_use]
pub fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .map(|id| id.trim().to_owned())
}
