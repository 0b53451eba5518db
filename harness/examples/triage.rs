//! `legwork triage` alone: `cargo run --release -p legwork --example triage -- DIR --format json`.

use std::process::ExitCode;

use clap::Parser;
use legwork::triage::{TriageArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: TriageArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.args, &mut std::io::stdout().lock()) {
        Ok(code) => ExitCode::from(code.code()),
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}
