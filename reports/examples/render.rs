//! Renders a `report.json` once more: `cargo run -p legwork-reports --example render -- html runs/…/report.json`.

use std::process::ExitCode;

use legwork_reports::render::{Format, Options, render};
use legwork_reports::schema::read_report;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [format, path] = arguments.as_slice() else {
        eprintln!("usage: render text|md|html|json|junit|line REPORT.json");
        return ExitCode::from(2);
    };
    match rendered(format, path) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("render: {error}");
            ExitCode::from(2)
        }
    }
}

fn rendered(format: &str, path: &str) -> Result<String, Box<dyn std::error::Error>> {
    let report = read_report(&std::fs::read_to_string(path)?)?;
    let format: Format = format.parse()?;
    Ok(render(&report, format, &Options::default())?)
}
