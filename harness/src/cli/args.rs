//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::teach;
use crate::legfile::parse_duration;
use crate::triage::{ExplainArgs, TriageArgs};

/// A/B legs on an accelerator board, with evidence.
#[derive(Debug, Parser)]
#[command(name = "legwork", version, about, long_about = teach::LONG_ABOUT, after_help = teach::AFTER_HELP, after_long_help = teach::after_long_help(), disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// Colour: auto (on a terminal, unless NO_COLOR is set), always, never.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, hide_possible_values = true)]
    pub color: Color,
    /// How much is said.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every verb.
#[derive(Debug, Clone, Copy, Args)]
pub struct Global {
    /// Say the result alone.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show the children's output while they run.
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a leg set: a leg file, or the name of a built-in one.
    #[command(after_help = teach::RUN, visible_alias = "r")]
    Run(Box<RunArgs>),
    /// Check a leg file and print the plan: what would run, in which order, what is confounded, what is owed.
    #[command(after_help = teach::CHECK)]
    Check(CheckArgs),
    /// Show the report of a run again, in any form, or against another run.
    #[command(after_help = teach::REPORT)]
    Report(ReportArgs),
    /// Go on with a run whose harness died: done steps stay, lost ones become evidence, the rest is run.
    #[command(after_help = teach::RESUME)]
    Resume(ResumeArgs),
    #[allow(missing_docs)] // said by the arguments themselves
    Triage(TriageArgs),
    #[allow(missing_docs)]
    Explain(ExplainArgs),
    /// The built-in engine: run, examine and measure GLM-5.x models.
    Engine(legwork_engine::cli::EngineArgs),
    /// Run a failed attempt again as it was, and say whether the same trouble shows.
    #[command(after_help = teach::REPRO)]
    Repro(ReproArgs),
    /// Say what this machine can and cannot collect, and the command that mends it.
    Doctor(DoctorArgs),
    /// List the built-in leg sets, or print one.
    Legs(LegsArgs),
    /// Print the JSON Schema of leg files or of report.json.
    Schema(SchemaArgs),
    /// Print shell completions.
    #[command(
        after_help = "Example:\n  legwork completions bash > ~/.local/share/bash-completion/completions/legwork"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page of legwork, or of one verb.
    #[command(after_help = "Example:\n  legwork man | man -l -")]
    Man {
        /// The verb.
        verb: Option<String>,
    },
    /// Print the exit codes.
    #[command(name = "exit-codes")]
    Exit,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Leg file, or the name of a built-in leg set (see `legwork legs`).
    #[arg(value_name = "FILE|NAME")]
    pub what: String,
    /// Run only this leg; `*` stands for any characters; may be given more than once.
    #[arg(long = "leg", value_name = "NAME")]
    pub legs: Vec<String>,
    /// Counted attempts per leg.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,
    /// Discarded rounds first.
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Variable for every leg; may be given more than once.
    #[arg(long = "env", value_name = "K=V", value_parser = assignment)]
    pub env: Vec<(String, String)>,
    /// Device of every engine leg: auto, cpu, rocm, cuda or simt.
    #[arg(long, value_name = "DEVICE", value_parser = ["auto", "cpu", "rocm", "cuda", "simt"])]
    pub device: Option<String>,
    /// Model of every engine leg: a GGUF file, or builtin:mini.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Total deadline of every leg, such as 20m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Seed of the order.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Do not begin further attempts after a leg failed.
    #[arg(long)]
    pub fail_fast: bool,
    /// One counted attempt per leg and no warm-up: to see that everything works. Its speed is never quoted.
    #[arg(long, conflicts_with_all = ["repeat", "warmup"])]
    pub quick: bool,
    /// Where and how the run is kept.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where and how a run is kept.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// Folder of the run directories.
    #[arg(long, value_name = "DIR", default_value = "runs", env = "LEGWORK_OUT")]
    pub out: PathBuf,
    /// Copy every attempt there as it ends, such as a share; trouble there never ends the run.
    #[arg(long, value_name = "DIR", env = "LEGWORK_ARCHIVE")]
    pub archive: Option<PathBuf>,
    /// Time that the lease leaves for the whole run, such as 115m; the report is written before it ends.
    #[arg(long, value_name = "TIME", value_parser = duration, env = "LEGWORK_MAX_RUNTIME")]
    pub max_runtime: Option<Duration>,
    /// Time between two heartbeat lines when there is no terminal.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s", env = "LEGWORK_HEARTBEAT")]
    pub heartbeat: Duration,
    /// Wait that long for the board when another run holds it.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    pub wait: Duration,
    /// Leave the staged copies in /tmp.
    #[arg(long)]
    pub keep_stage: bool,
    /// Run although variables that steer GPU software are set and not declared; the report names them.
    #[arg(long)]
    pub allow_env: bool,
    /// Run although pins do not hold; the report names them.
    #[arg(long)]
    pub ignore_pins: bool,
    /// Read board files (/sys, /dev/kmsg, …) below this folder: a fake board.
    #[arg(long, value_name = "DIR", hide = true)]
    pub sysroot: Option<PathBuf>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Leg files, or names of built-in leg sets.
    #[arg(value_name = "FILE|NAME", required = true)]
    pub what: Vec<String>,
    /// Time that the lease leaves, to compare the plan with.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_runtime: Option<Duration>,
    /// Say only whether it is right.
    #[arg(long)]
    pub no_plan: bool,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// Tables for a terminal.
    Terminal,
    /// Markdown.
    Md,
    /// A page that needs nothing else.
    Html,
    /// report.json.
    Json,
    /// JUnit XML.
    Junit,
    /// One line.
    Line,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directory, or a report.json.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Form.
    #[arg(long, short = 'f', value_enum, default_value_t = ReportForm::Terminal)]
    pub format: ReportForm,
    /// Compare with this earlier run: exit code 20 when a metric got worse.
    #[arg(long, value_name = "RUN")]
    pub against: Option<PathBuf>,
    /// How much worse is still the same, in percent.
    #[arg(long, value_name = "PCT", default_value_t = 5.0, requires = "against")]
    pub tolerance: f64,
    /// Every attempt with its evidence.
    #[arg(long)]
    pub full: bool,
    /// Write to this file instead of standard output.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Run directory.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Print what would be done with each step, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Where and how the run is kept.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Arguments of `repro`.
#[derive(Debug, Args)]
pub struct ReproArgs {
    /// Run directory.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Number of the attempt; default the first that was not clean.
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// How often.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Variable for the leg, such as AMD_SERIALIZE_KERNEL=3; may be given more than once.
    #[arg(long = "env", value_name = "K=V", value_parser = assignment)]
    pub env: Vec<(String, String)>,
    /// Device instead of the leg's, such as simt.
    #[arg(long, value_name = "DEVICE", value_parser = ["auto", "cpu", "rocm", "cuda", "simt"])]
    pub device: Option<String>,
    /// Where and how the run is kept.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Folder of the run directories.
    #[arg(long, value_name = "DIR", default_value = "runs", env = "LEGWORK_OUT")]
    pub out: PathBuf,
    /// Lift the quarantine of a board: somebody has looked at it.
    #[arg(long)]
    pub clear_quarantine: bool,
    /// Read board files below this folder: a fake board.
    #[arg(long, value_name = "DIR", hide = true)]
    pub sysroot: Option<PathBuf>,
}

/// Arguments of `legs`.
#[derive(Debug, Args)]
pub struct LegsArgs {
    /// Print this built-in leg file.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// leg: leg files; report: report.json.
    #[arg(value_enum, default_value_t = SchemaOf::Leg)]
    pub what: SchemaOf,
}

/// Which schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// Leg files.
    Leg,
    /// report.json.
    Report,
}
