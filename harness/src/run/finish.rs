//! Concludes a run and writes its reports.

use std::io::Write;
use std::path::Path;

use legwork_reports::model::{ExitCode, Report};
use legwork_reports::render::{self, Detail, Format};
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

/// Concludes and writes `report.json`, and with `last` the forms for people and for CI beside it.
///
/// # Errors
/// When a file cannot be written.
pub fn write_reports(
    report: &mut Report,
    set: &LegSet,
    dir: &Path,
    last: bool,
) -> Result<(), RunError> {
    conclude(report, &conclusions(set));
    let files = [
        ("report.json", Format::Json),
        ("report.md", Format::Markdown),
        ("report.html", Format::Html),
        ("junit.xml", Format::Junit),
    ];
    let count = if last { files.len() } else { 1 };
    for (name, _) in files.iter().take(count).skip(1) {
        report.files.insert((*name).to_owned(), (*name).to_owned());
    }
    for (name, format) in files.into_iter().take(count) {
        let path = dir.join(name);
        let text = render_to(report, format, &render::Options::default())?;
        write_whole(&path, text.as_bytes()).map_err(RunError::io("writing the report", &path))?;
    }
    Ok(())
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
    let text = std::fs::read(&path).map_err(|e| RunError::RunDir {
        path: path.clone(),
        why: format!("cannot be read: {e}; is this a run directory?"),
    })?;
    let report: Report = serde_json::from_slice(&text).map_err(|e| RunError::RunDir {
        path,
        why: format!("is no report: {e}"),
    })?;
    Ok(report)
}

/// One form of a report as text, with a line end.
///
/// # Errors
/// When the JSON or XML writer fails.
pub fn render_to(
    report: &Report,
    format: Format,
    options: &render::Options,
) -> Result<String, RunError> {
    let mut text = render::render(report, format, options)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The exit code in the report.
pub(super) fn exit_code(report: &Report) -> ExitCode {
    crate::exit::from_code(report.exit_code)
}

/// What is printed at the end: the tables, and where the report is.
pub(super) fn print(report: &Report, dir: &Path, options: &Options, trouble: Option<&str>) {
    if let Some(trouble) = trouble {
        eprintln!("warning: {trouble}");
    }
    let options_for = |detail| render::Options {
        width: options.width,
        color: options.color,
        detail,
        run_dir: Some(dir.display().to_string()),
    };
    let text = match options.verbosity {
        Verbosity::Quiet => render_to(report, Format::Line, &options_for(Detail::Brief)),
        Verbosity::Normal => render_to(report, Format::Terminal, &options_for(Detail::Brief)),
        Verbosity::Verbose => render_to(report, Format::Terminal, &options_for(Detail::Full)),
    };
    match text {
        // A reader that went away does not change what happened.
        Ok(text) => drop(std::io::stdout().lock().write_all(text.as_bytes())),
        Err(e) => eprintln!("warning: {e}"),
    }
    if options.verbosity > Verbosity::Quiet {
        let _ = writeln!(
            std::io::stdout().lock(),
            "report: {}",
            dir.join("report.md").display()
        );
    }
}
