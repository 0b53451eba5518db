//! The evidence of one attempt, before it is judged.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use super::context::{Context, ContextError};

/// Where a log comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file; read as a stream.
    Path(PathBuf),
    /// Text in memory.
    Text(String),
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

impl Source {
    /// Opens it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(&self) -> std::io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Source::Path(p) if p.as_os_str() == "-" => Box::new(std::io::stdin().lock()),
            Source::Path(p) => Box::new(File::open(p)?),
            Source::Text(t) => Box::new(Cursor::new(t.as_bytes())),
            Source::Bytes(b) => Box::new(Cursor::new(b.as_slice())),
        })
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Source::Path(p) => p.display().to_string(),
            _ => "(memory)".to_owned(),
        }
    }
}

/// The evidence of one attempt.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// The kernel log; `None` when it was not read at all.
    pub kernel: Option<Source>,
    /// What the program printed.
    pub output: Option<Source>,
    /// What the harness knew.
    pub context: Context,
}

/// Names under which the parts of a case lie in a folder, first match wins.
const KERNEL_NAMES: [&str; 6] = [
    // After a reboot: the attempt's own log with what the next boot found.
    "kernel.reset.log",
    "kernel.log",
    "kmsg.log",
    "dmesg.log",
    "dmesg.txt",
    "kern.log",
];
const OUTPUT_NAMES: [&str; 4] = ["output.log", "output.raw", "stdout.log", "output.txt"];

impl Case {
    /// Whether a folder holds a case.
    #[must_use]
    pub fn is_case_dir(dir: &Path) -> bool {
        ["context.yaml"]
            .iter()
            .chain(&KERNEL_NAMES)
            .chain(&OUTPUT_NAMES)
            .any(|n| dir.join(n).is_file())
    }

    /// Reads an attempt folder or a folder of a bug report.
    ///
    /// # Errors
    /// When its `context.yaml` cannot be read; absent files are absent evidence.
    pub fn from_dir(dir: &Path) -> Result<Case, ContextError> {
        let find = |names: &[&str]| {
            names
                .iter()
                .map(|n| dir.join(n))
                .find(|p| p.is_file())
                .map(Source::Path)
        };
        let context = dir.join("context.yaml");
        let context = if context.is_file() {
            Context::read(&context)?
        } else {
            Context::default()
        };
        let mut context = context;
        if context.dumped_fault.is_none() {
            context.dumped_fault = crate::evidence::board_dump::dumped_fault(dir);
        }
        // A derived output.log that is empty does not hide the raw capture.
        let mut output = find(&OUTPUT_NAMES);
        if let Some(Source::Path(p)) = &output
            && std::fs::metadata(p).is_ok_and(|m| m.len() == 0)
        {
            let raw = dir.join("output.raw");
            if std::fs::metadata(&raw).is_ok_and(|m| m.len() > 0) {
                output = Some(Source::Path(raw));
            }
        }
        Ok(Case {
            kernel: find(&KERNEL_NAMES),
            output,
            context,
        })
    }
}
