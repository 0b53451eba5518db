//! `legwork report`.

use legwork_reports::model::ExitCode;

use super::args::ReportArgs;
use super::terminal::Terminal;
use super::{Failure, out};
use crate::run::{load_report, render_to};

/// Shows a report again.
pub(super) fn report(args: &ReportArgs, _terminal: Terminal) -> Result<ExitCode, Failure> {
    let report = load_report(&args.run)?;
    out(&render_to(&report))?;
    Ok(crate::exit::from_code(report.exit_code))
}
