//! Going on with a run whose harness died.

use std::path::Path;

use legwork_reports::model::ExitCode;

use super::{Options, RunError};

/// Goes on with the run in `dir`.
///
/// # Errors
/// When it is no run, or its leg file has changed.
pub fn resume(_dir: &Path, _dry_run: bool, _options: &Options) -> Result<ExitCode, RunError> {
    Ok(ExitCode::Bug)
}
