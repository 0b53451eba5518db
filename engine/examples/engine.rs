//! The engine's command line alone.
use clap::Parser;
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    engine: legwork_engine::cli::EngineArgs,
}
fn main() -> std::process::ExitCode {
    legwork_engine::cli::main(Cli::parse().engine)
}
