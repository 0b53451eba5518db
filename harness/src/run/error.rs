//! Why a run could not be done at all. What happens to an attempt is never one of these.

use std::path::PathBuf;

use legwork_reports::model::ExitCode;
use thiserror::Error;

use super::env::EnvError;
use crate::journal::JournalError;
use crate::legfile::{LegFileError, SelectError};
use crate::stage::StageError;

/// Why a run could not be done at all.
#[derive(Debug, Error)]
pub enum RunError {
    /// The leg file.
    #[error("{0}")]
    LegFile(#[from] LegFileError),
    /// The selection.
    #[error("{0}")]
    Select(#[from] SelectError),
    /// No leg is left.
    #[error("nothing is selected to run: {0}")]
    Nothing(String),
    /// The environment.
    #[error("{0}")]
    Env(#[from] EnvError),
    /// Staging of what every leg needs.
    #[error("{0}")]
    Stage(#[from] StageError),
    /// The run directory or one of its files.
    #[error("{what}: {}: {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// A pin does not hold.
    #[error("pins do not hold, so nothing was run:\n{0}")]
    Pins(String),
    /// The arms' binaries.
    #[error("{0}")]
    Arms(String),
    /// Another run holds the board, or it is in quarantine.
    #[error("{0}")]
    Board(String),
    /// A journal.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// A report that cannot be laid out.
    #[error("{0}")]
    Render(#[from] legwork_reports::render::RenderError),
    /// A run directory that cannot be used.
    #[error("{}: {why}", path.display())]
    RunDir {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl RunError {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            RunError::LegFile(_)
            | RunError::Select(_)
            | RunError::Env(_)
            | RunError::Journal(_)
            | RunError::RunDir { .. } => ExitCode::Usage,
            RunError::Render(_) => ExitCode::Bug,
            RunError::Nothing(_) => ExitCode::NothingSelected,
            RunError::Stage(_)
            | RunError::Io { .. }
            | RunError::Pins(_)
            | RunError::Arms(_)
            | RunError::Board(_) => ExitCode::Infra,
        }
    }

    pub(crate) fn io(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> RunError {
        let path = path.to_owned();
        move |source| RunError::Io { what, path, source }
    }
}
