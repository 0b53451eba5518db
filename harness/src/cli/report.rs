//! `legwork report`.

use legwork_reports::compare::compare_reports;
use legwork_reports::model::ExitCode;
use legwork_reports::render::{Detail, Format, Options, diff_markdown, diff_text};

use super::args::{ReportArgs, ReportForm};
use super::terminal::Terminal;
use super::{Failure, out};
use crate::run::{load_report, render_to};

/// Shows a report again, or holds it against another run. The exit code is the run's, or the comparison's.
pub(super) fn report(args: &ReportArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let report = load_report(&args.run)?;
    let options = Options {
        width: terminal.width,
        color: terminal.color && args.output.is_none(),
        detail: if args.full || args.output.is_some() {
            Detail::Full
        } else {
            Detail::Brief
        },
        run_dir: Some(args.run.display().to_string()),
    };
    let format = match args.format {
        ReportForm::Terminal => Format::Terminal,
        ReportForm::Md => Format::Markdown,
        ReportForm::Html => Format::Html,
        ReportForm::Json => Format::Json,
        ReportForm::Junit => Format::Junit,
        ReportForm::Line => Format::Line,
    };
    let (text, code) = match &args.against {
        None => (
            render_to(&report, format, &options)?,
            crate::exit::from_code(report.exit_code),
        ),
        Some(base) => {
            let base = load_report(base)?;
            let diff = compare_reports(&base, &report, args.tolerance);
            let text = match format {
                Format::Terminal => diff_text(&diff, &options),
                Format::Markdown => diff_markdown(&diff, &options),
                other => {
                    return Err(Failure::usage(format!(
                        "--against has no {other} form: use terminal or md"
                    )));
                }
            };
            (text, diff.exit_code())
        }
    };
    match &args.output {
        None => out(&text)?,
        Some(path) => std::fs::write(path, text)
            .map_err(|e| Failure::new(ExitCode::Infra, format!("{}: {e}", path.display())))?,
    }
    Ok(code)
}
