//! `legwork completions` and `legwork man`.

use clap::CommandFactory;
use legwork_reports::model::ExitCode;

use super::args::Cli;
use super::{Failure, out};

/// Completions of a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "legwork", &mut text);
    out(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::Pass)
}

/// The man page of legwork or of one verb.
pub(super) fn man(verb: Option<&str>) -> Result<ExitCode, Failure> {
    let mut command = Cli::command();
    command.build();
    let command = match verb {
        None => command,
        Some(verb) => match command.find_subcommand(verb) {
            Some(found) => found.clone().display_name(format!("legwork-{verb}")),
            None => {
                let verbs: Vec<&str> = command
                    .get_subcommands()
                    .map(clap::Command::get_name)
                    .collect();
                return Err(Failure::usage(format!(
                    "no verb `{verb}`; verbs: {}",
                    verbs.join(", ")
                )));
            }
        },
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut text)
        .map_err(|e| Failure::new(ExitCode::Bug, format!("man page: {e}")))?;
    out(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::Pass)
}
