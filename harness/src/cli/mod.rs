//! The command line: `args` says what can be typed, `run_cmd` and its neighbours do it, `terminal` knows what kind of
//! terminal is there, `teach` holds the longer help texts.

mod args;
mod check;
mod doctor;
mod legs;
mod report;
mod run_cmd;
mod schema;
mod shell;
mod teach;
mod terminal;

use std::io::Write;
use std::process::ExitCode as ProcessExit;

use clap::Parser;
use legwork_reports::model::ExitCode;

pub use args::{Cli, Command};

use crate::triage;

/// Reads the command line and does what it says. Returns the process's exit status.
#[must_use]
pub fn main() -> ProcessExit {
    let argv: Vec<String> = std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() {
                ExitCode::Usage
            } else {
                ExitCode::Pass
            };
            let _ = e.print();
            return ProcessExit::from(code.code());
        }
    };
    let terminal = terminal::Terminal::detect(cli.color);
    let runs = matches!(
        cli.command,
        Command::Run(_) | Command::Resume(_) | Command::Repro(_)
    );
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let _copy = match if runs {
        crate::stage::leave_the_share(&arguments)
    } else {
        Ok(None)
    } {
        Ok(copy) => copy,
        Err(e) => {
            Failure::new(ExitCode::Infra, e.to_string()).print();
            return ProcessExit::from(ExitCode::Infra.code());
        }
    };
    let done = match cli.command {
        Command::Run(args) => run_cmd::run(&args, &cli.global, terminal, argv),
        Command::Resume(args) => run_cmd::resume(&args, &cli.global, terminal, argv),
        Command::Repro(args) => run_cmd::repro(&args, &cli.global, terminal, argv),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Check(args) => check::check(&args, terminal),
        Command::Report(args) => report::report(&args, terminal),
        Command::Triage(args) => {
            triage::run(&args, &mut std::io::stdout().lock()).map_err(Failure::from)
        }
        Command::Explain(args) => {
            triage::run_explain(&args, &mut std::io::stdout().lock()).map_err(Failure::from)
        }
        Command::Engine(args) => return legwork_engine::cli::main(args),
        Command::Legs(args) => legs::legs(&args),
        Command::Schema(args) => schema::schema(args.what),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { verb } => shell::man(verb.as_deref()),
        Command::Exit => {
            print!("{}", crate::exit::table());
            Ok(ExitCode::Pass)
        }
    };
    let code = match done {
        Ok(code) => code,
        Err(e) => {
            e.print();
            e.code
        }
    };
    let _ = std::io::stdout().flush();
    ProcessExit::from(code.code())
}

/// An error of a verb: what is printed, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: ExitCode,
}

impl Failure {
    pub(crate) fn new(code: ExitCode, message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(ExitCode::Usage, message)
    }

    fn print(&self) {
        let _ = writeln!(std::io::stderr().lock(), "legwork: {}", self.message);
    }
}

impl From<crate::run::RunError> for Failure {
    fn from(e: crate::run::RunError) -> Failure {
        Failure::new(e.exit_code(), e.to_string())
    }
}

impl From<triage::TriageError> for Failure {
    fn from(e: triage::TriageError) -> Failure {
        Failure::usage(e.to_string())
    }
}

impl From<crate::legfile::LegFileError> for Failure {
    fn from(e: crate::legfile::LegFileError) -> Failure {
        Failure::usage(e.to_string())
    }
}

/// Writes to standard output; a reader that went away is no error of ours.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::new(
            ExitCode::Infra,
            format!("standard output: {e}"),
        )),
    }
}
