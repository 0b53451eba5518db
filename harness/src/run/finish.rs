//! Concludes a run and writes its reports.

use std::path::Path;

use legwork_reports::model::{ExitCode, Report};
use legwork_reports::{Plan, conclude};

use super::dir::write_whole;
use super::{Options, RunError, Verbosity};
use crate::legfile::LegSet;

/// What the leg set asks of a run's outcome.
#[must_use]
pub fn conclusions(set: &LegSet) -> Plan {
    Plan {
        gates: set.gates.clone(),
        compare: set.compare.clone(),
        binaries: set.arms.unwrap_or_default(),
        ..Plan::default()
    }
}

/// Concludes and writes `report.json`, and with `last` the other forms too.
///
/// # Errors
/// When a file cannot be written.
pub fn write_reports(
    report: &mut Report,
    set: &LegSet,
    dir: &Path,
    _options: &Options,
    _last: bool,
) -> Result<(), RunError> {
    conclude(report, &conclusions(set));
    let path = dir.join("report.json");
    let mut json = serde_json::to_vec_pretty(report).unwrap_or_default();
    json.push(b'\n');
    write_whole(&path, &json).map_err(RunError::io("writing the report", &path))
}

/// The report of a run directory.
///
/// # Errors
/// When there is none or it cannot be read.
pub fn load_report(dir: &Path) -> Result<Report, RunError> {
    let path = if dir.is_dir() {
        dir.join("report.json")
    } else {
        dir.to_owned()
    };
    let text = std::fs::read(&path).map_err(RunError::io("reading the report", &path))?;
    serde_json::from_slice(&text).map_err(|e| RunError::RunDir {
        path,
        why: format!("is no report: {e}"),
    })
}

/// One form of the report as text.
#[must_use]
pub fn render_to(report: &Report) -> String {
    serde_json::to_string_pretty(report).unwrap_or_default()
}

/// The exit code in the report.
pub(super) fn exit_code(report: &Report) -> ExitCode {
    crate::exit::from_code(report.exit_code)
}

/// What is printed at the end.
pub(super) fn print(report: &Report, dir: &Path, options: &Options, trouble: Option<String>) {
    if let Some(trouble) = trouble {
        eprintln!("warning: {trouble}");
    }
    if options.verbosity > Verbosity::Quiet {
        println!("{}", render_to(report));
    }
    println!("report: {}", dir.join("report.md").display());
}
