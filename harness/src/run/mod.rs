//! Running a leg set: from a plan to a run directory with a report.
//!
//! `session` is the loop; it stages, begins an attempt in the journal, hands it to the supervisor, has it judged,
//! archives it and goes on, whatever an attempt did. `env` builds the environment that a leg sees, `observe` turns
//! engine events and lines into figures, `judge` writes the attempt's context and asks triage, `live` is what
//! people see meanwhile, `archive` copies finished attempts away, `finish` concludes and writes the reports, `trace` reads the engine's recording of GPU launches, `shares` asks
//! whether the leg's shares answer, `resume` goes on with a run whose harness died.

mod archive;
mod attempt;
mod cache;
mod dir;
mod env;
mod error;
mod finish;
mod identity;
mod judge;
mod lines;
mod live;
mod observe;
mod options;
mod resume;
mod session;
mod shares;
mod stop;
mod trace;

pub use dir::RunDir;
pub use env::{EnvError, HYGIENE_PREFIXES, child_env};
pub use error::RunError;
pub use finish::{conclusions, load_report, render_to, write_reports};
pub use identity::current_board;
pub use observe::{Observed, observe};
pub use options::{Options, Verbosity};
pub use resume::{resume, set_as_run};
pub use session::{Done, run};
pub use stop::StopFlags;

/// A command line as one would type it in a shell.
#[must_use]
pub fn quoted(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    argv.iter()
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_quoted_so_that_a_shell_reads_them_back() {
        let argv = [
            "a".to_owned(),
            "b c".to_owned(),
            "it's".to_owned(),
            String::new(),
        ];
        assert_eq!(super::quoted(&argv), "a 'b c' 'it'\\''s' ''");
    }
}
