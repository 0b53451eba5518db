//! What is wrong with a leg file, said so that it can be mended.

use std::fmt;
use std::path::{Path, PathBuf};

use super::At;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// 1-based line; 0 when the whole file is meant.
    pub line: usize,
    /// 1-based column.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The nearest right name, or what to do.
    pub help: Option<String>,
}

impl Problem {
    /// A problem at a value's place.
    pub fn at<T>(place: &At<T>, message: impl Into<String>) -> Self {
        Problem {
            line: place.line,
            column: place.column,
            message: message.into(),
            help: None,
        }
    }

    /// A problem of the file as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Problem {
            line: 0,
            column: 0,
            message: message.into(),
            help: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds `did you mean …` when one of the right names is near, and all right names when they are few.
    #[must_use]
    pub fn nearest<'a>(mut self, wrong: &str, right: impl IntoIterator<Item = &'a str>) -> Self {
        self.help = suggestion(wrong, right);
        self
    }
}

/// `did you mean `x`?`, or the list of right names when it is short.
pub(crate) fn suggestion<'a>(
    wrong: &str,
    right: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let names: Vec<&str> = right.into_iter().collect();
    let plain = |s: &str| s.to_lowercase().replace('-', "_");
    let near = names
        .iter()
        .map(|name| {
            (
                strsim::damerau_levenshtein(&plain(wrong), &plain(name)),
                *name,
            )
        })
        .filter(|(distance, name)| {
            *distance <= 1 + name.chars().count().max(wrong.chars().count()) / 4
        })
        .min_by_key(|(distance, _)| *distance);
    match near {
        Some((_, name)) => Some(format!("did you mean `{name}`?")),
        None if names.is_empty() => None,
        None if names.len() <= 16 => Some(format!("right here: {}", names.join(", "))),
        None => None,
    }
}

/// A leg file that cannot be used. Its `Display` is a full report of every problem.
#[derive(Debug, Clone)]
pub struct LegFileError {
    /// The file, or the name of a built-in.
    pub file: PathBuf,
    /// Everything found wrong, in the order of the file.
    pub problems: Vec<Problem>,
    lines: Vec<String>,
}

impl LegFileError {
    /// Keeps the lines that the problems are about.
    #[must_use]
    pub fn new(file: &Path, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| (p.line, p.column));
        let all: Vec<&str> = text.lines().collect();
        let lines = problems
            .iter()
            .map(|p| {
                all.get(p.line.wrapping_sub(1))
                    .map_or_else(String::new, |l| clip(l))
            })
            .collect();
        LegFileError {
            file: file.to_owned(),
            problems,
            lines,
        }
    }
}

/// A line that is fit for a terminal: bounded, and without control characters.
fn clip(line: &str) -> String {
    line.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(160)
        .collect()
}

impl fmt::Display for LegFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (problem, line)) in self.problems.iter().zip(&self.lines).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            let file = self.file.display();
            if problem.line == 0 {
                write!(f, "{file}: {}", problem.message)?;
            } else {
                write!(
                    f,
                    "{file}:{}:{}: {}",
                    problem.line, problem.column, problem.message
                )?;
                let gutter = problem.line.to_string();
                write!(f, "\n  {gutter} | {line}")?;
                let indent = " ".repeat(gutter.len());
                let to_column = " ".repeat(problem.column.saturating_sub(1).min(160));
                write!(f, "\n  {indent} | {to_column}^")?;
            }
            if let Some(help) = &problem.help {
                write!(f, "\n  = {help}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for LegFileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let keys = ["repeat", "warmup", "env_allow", "order"];
        assert_eq!(
            suggestion("repeet", keys).unwrap(),
            "did you mean `repeat`?"
        );
        assert_eq!(
            suggestion("env-allow", keys).unwrap(),
            "did you mean `env_allow`?"
        );
        assert_eq!(
            suggestion("zzzzzz", keys).unwrap(),
            "right here: repeat, warmup, env_allow, order"
        );
        assert_eq!(suggestion("x", []), None);
    }

    #[test]
    fn the_report_shows_file_line_column_and_the_line_itself() {
        let error = LegFileError::new(
            Path::new("a.yaml"),
            "name: x\nrepeet: 3\n",
            vec![Problem {
                line: 2,
                column: 1,
                message: "unknown key `repeet`".into(),
                help: Some("did you mean `repeat`?".into()),
            }],
        );
        assert_eq!(
            error.to_string(),
            "a.yaml:2:1: unknown key `repeet`\n  2 | repeet: 3\n    | ^\n  = did you mean `repeat`?"
        );
    }
}
