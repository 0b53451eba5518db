//! The engine's command line: `legwork engine …`.

mod bench;
mod generate;
mod inspect;
mod logits;
mod synth;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};

use crate::events::{Event, Events, peak_rss_bytes};
use crate::session::EngineError;

/// Run, examine and measure GLM-5.x models.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Clone, Subcommand)]
enum Verb {
    /// Generate text from a prompt
    Generate(Box<generate::GenerateArgs>),
    /// Write logits, hidden states and sparse selections of a token sequence as JSON
    Logits(Box<logits::LogitsArgs>),
    /// Measure prompt processing and decoding
    Bench(Box<bench::BenchArgs>),
    /// Write a random model of any size, for load and throughput legs
    Synth(synth::SynthArgs),
    /// Print what a model file holds, or write one of its tensors as f32
    Inspect(inspect::InspectArgs),
}

/// Runs an engine command.
///
/// Exit codes: 0 done, 1 the engine refused or failed, 2 the user's input is at fault.
#[must_use]
pub fn main(args: EngineArgs) -> ExitCode {
    let events = match Events::from_env() {
        Ok(events) => Arc::new(events),
        Err(e) => {
            eprintln!("engine-fatal: {e}");
            return ExitCode::from(2);
        }
    };
    events.send(&Event::Start {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        argv: std::env::args().collect(),
    });
    let result = match args.verb {
        Verb::Generate(a) => generate::run(&a, &events),
        Verb::Logits(a) => logits::run(&a, &events),
        Verb::Bench(a) => bench::run(&a, &events),
        Verb::Synth(a) => synth::run(&a),
        Verb::Inspect(a) => inspect::run(&a),
    };
    if let Some(bytes) = peak_rss_bytes() {
        events.send(&Event::PeakRss { bytes });
    }
    match result {
        Ok(()) => {
            events.send(&Event::End {});
            ExitCode::SUCCESS
        }
        Err(error) => {
            let message = error.to_string();
            eprintln!("engine-fatal: {message}");
            events.send(&Event::Fatal { message: &message });
            ExitCode::from(error.exit_code())
        }
    }
}

fn read_file(path: &std::path::Path) -> Result<String, EngineError> {
    std::fs::read_to_string(path).map_err(|source| EngineError::Io {
        path: path.display().to_string(),
        source,
    })
}
