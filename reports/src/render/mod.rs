//! Reports for people and machines.
//!
//! A report becomes a [`Document`] once (`build/`): headline, sections, tables, evidence chains, charts, every figure in
//! its final words. The formats for people only lay it out: terminal, Markdown, HTML. The formats for machines take the
//! report itself: JSON, JUnit, and one line.
//!
//! To add a section: a function in `build/` that returns a [`Section`], and its place in `build/mod.rs`. To add a format
//! for people: a [`Renderer`].

mod build;
mod diff;
mod document;
mod html;
mod json;
mod junit;
mod line;
mod markdown;
mod terminal;
mod verdict;

use std::fmt;
use std::str::FromStr;

pub use build::build;
pub use diff::{build_diff, diff_markdown, diff_text};
pub use document::{
    Align, Block, Cell, Chain, Chart, ChartRow, Column, Document, Section, Span, Step, Table, Tone,
};
pub use html::Html;
pub use line::one_line;
pub use markdown::Markdown;
pub use terminal::Terminal;
pub use verdict::{verdict_markdown, verdict_text};

use crate::model::Report;

/// A format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text for a terminal.
    Terminal,
    /// GitHub-flavoured Markdown.
    Markdown,
    /// One self-contained HTML file.
    Html,
    /// `report.json`.
    Json,
    /// JUnit XML.
    Junit,
    /// One line.
    Line,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 6] = [
        Format::Terminal,
        Format::Markdown,
        Format::Html,
        Format::Json,
        Format::Junit,
        Format::Line,
    ];

    /// The format's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Terminal => "text",
            Format::Markdown => "md",
            Format::Html => "html",
            Format::Json => "json",
            Format::Junit => "junit",
            Format::Line => "line",
        }
    }

    /// The ending of a file in this format.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Format::Terminal | Format::Line => "txt",
            Format::Markdown => "md",
            Format::Html => "html",
            Format::Json => "json",
            Format::Junit => "xml",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = RenderError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "text" | "terminal" | "txt" => Ok(Format::Terminal),
            "md" | "markdown" => Ok(Format::Markdown),
            "html" => Ok(Format::Html),
            "json" => Ok(Format::Json),
            "junit" | "xml" => Ok(Format::Junit),
            "line" => Ok(Format::Line),
            other => Err(RenderError::UnknownFormat(other.to_owned())),
        }
    }
}

/// How much a text report says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// What answers the question.
    Brief,
    /// Everything.
    #[default]
    Full,
}

/// How to lay a report out. Whether a terminal is there, and what it can do, is the caller's business.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Columns of the terminal.
    pub width: u16,
    /// Whether to colour text.
    pub color: bool,
    /// How much to say (terminal only; files hold everything).
    pub detail: Detail,
    /// The run directory, named where the reader may look further.
    pub run_dir: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            width: 100,
            color: false,
            detail: Detail::Full,
            run_dir: None,
        }
    }
}

/// Why a report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// No format of that name.
    #[error("unknown report format `{0}`: choose one of text, md, html, json, junit, line")]
    UnknownFormat(String),
    /// JSON.
    #[error("report.json cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// JUnit.
    #[error("the JUnit report cannot be written: {0}")]
    Junit(String),
}

/// Lays a document out in one format for people.
pub trait Renderer {
    /// The document in this format.
    fn render(&self, document: &Document, options: &Options) -> String;
}

/// Renders a report.
///
/// # Errors
/// When the JSON or JUnit writer fails.
pub fn render(report: &Report, format: Format, options: &Options) -> Result<String, RenderError> {
    let document = || build(report, options);
    Ok(match format {
        Format::Terminal => Terminal.render(&document(), options),
        Format::Markdown => Markdown.render(&document(), options),
        Format::Html => Html.render(&document(), options),
        Format::Json => json::json(report)?,
        Format::Junit => junit::junit(report)?,
        Format::Line => one_line(report),
    })
}

#[cfg(test)]
mod tests;
