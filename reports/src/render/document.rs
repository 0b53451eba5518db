//! A report laid out in words, before any format.

use crate::model::{Confidence, Role};

/// What a word means for the reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// It failed.
    Bad,
    /// Undecided, void, or missing.
    Warn,
    /// Of less interest.
    Muted,
}

/// A whole report.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// `PASS`, `FAIL`, `INCONCLUSIVE`.
    pub status: String,
    /// Its tone.
    pub tone: Tone,
    /// What the report is of.
    pub title: String,
    /// What the status means.
    pub subtitle: String,
    /// Label and text of the lines that hold the answer: at most four.
    pub summary: Vec<(String, String)>,
    /// The sections.
    pub sections: Vec<Section>,
    /// The last line.
    pub footer: String,
}

/// A section.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// A slug, unique in the document.
    pub id: String,
    /// The heading.
    pub title: String,
    /// Part of a brief report.
    pub essential: bool,
    /// Its content.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section for the full report.
    #[must_use]
    pub fn new(id: &str, title: &str, blocks: Vec<Block>) -> Self {
        Section {
            id: id.to_owned(),
            title: title.to_owned(),
            essential: false,
            blocks,
        }
    }

    /// Makes it part of a brief report.
    #[must_use]
    pub fn essential(mut self) -> Self {
        self.essential = true;
        self
    }
}

/// A piece of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A remark under a table or chart.
    Note(String),
    /// Something that must not be missed.
    Warning(String),
    /// A table.
    Table(Table),
    /// Names and values.
    Facts(Vec<(String, String)>),
    /// A list.
    List(Vec<String>),
    /// Something to copy.
    Code(String),
    /// A verdict with its evidence.
    Chain(Chain),
    /// A chart; formats without pictures leave it out, for its figures stand in a table too.
    Chart(Chart),
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns; a title that starts with `>` is aligned right.
    #[must_use]
    pub fn new(titles: &[&str]) -> Self {
        Table {
            columns: titles
                .iter()
                .map(|t| match t.strip_prefix('>') {
                    Some(title) => Column {
                        title: title.to_owned(),
                        align: Align::Right,
                        dispensable: None,
                    },
                    None => Column {
                        title: (*t).to_owned(),
                        align: Align::Left,
                        dispensable: None,
                    },
                })
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Says in which order columns may be left out where there is not room for all.
    #[must_use]
    pub fn dispensing(mut self, titles: &[&str]) -> Self {
        for (rank, title) in (0u8..).zip(titles) {
            for column in self.columns.iter_mut().filter(|c| c.title == *title) {
                column.dispensable = Some(rank);
            }
        }
        self
    }

    /// Drops a column.
    pub fn drop_column(&mut self, i: usize) {
        if i < self.columns.len() {
            self.columns.remove(i);
        }
        for row in self.rows.iter_mut().filter(|r| i < r.len()) {
            row.remove(i);
        }
    }

    /// Drops the columns in which no row has anything: what was not observed at all is said in “not measured”.
    #[must_use]
    pub fn without_empty_columns(mut self) -> Self {
        for i in (0..self.columns.len()).rev() {
            let mut cells = self.rows.iter().filter_map(|r| r.get(i));
            if !cells.any(|c| !c.text.is_empty() && c.text != crate::format::ABSENT) {
                self.drop_column(i);
            }
        }
        self
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its heading.
    pub title: String,
    /// Where its cells stand.
    pub align: Align,
    /// Where there is not room for all columns those with the lowest number go first; `None` stays.
    pub dispensable: Option<u8>,
}

/// Where cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left.
    Left,
    /// Right.
    Right,
}

/// A cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Its tone.
    pub tone: Tone,
    /// Text from outside or to be copied: set in the face of code.
    pub code: bool,
    /// A file relative to the run directory that the cell names.
    pub link: Option<String>,
}

impl Cell {
    /// Plain text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }

    /// Text with a tone.
    #[must_use]
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Cell {
            text: text.into(),
            tone,
            ..Cell::default()
        }
    }

    /// Text in the face of code.
    #[must_use]
    pub fn code(text: impl Into<String>) -> Self {
        Cell {
            text: text.into(),
            code: true,
            ..Cell::default()
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::new(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::new(text)
    }
}

/// A verdict with its evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Whose verdict it is: leg and attempts. Empty for a verdict without a run.
    pub of: String,
    /// Class.
    pub class: String,
    /// The class's tone.
    pub tone: Tone,
    /// Kind.
    pub kind: String,
    /// Confidence.
    pub confidence: Confidence,
    /// The guilty event.
    pub title: String,
    /// The evidence in the order it was read.
    pub steps: Vec<Step>,
    /// Facts beside the evidence: exit, descendants, stack gate, warnings.
    pub facts: Vec<(String, String)>,
    /// What would settle it.
    pub would_settle: Vec<String>,
}

/// A line of evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its part.
    pub role: Role,
    /// Where it was read: `kernel.log:12`.
    pub place: String,
    /// What it is.
    pub finding: String,
    /// The line.
    pub text: String,
    /// Why it has that part.
    pub why: String,
}

/// The word for a role.
#[must_use]
pub fn role_word(role: Role) -> &'static str {
    match role {
        Role::Decides => "decides",
        Role::Supports => "supports",
        Role::Consequence => "consequence",
        Role::Ignored => "set aside",
    }
}

/// A chart of rows along one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub caption: String,
    /// The unit along the axis.
    pub unit: String,
    /// Whether the axis begins at 0.
    pub from_zero: bool,
    /// The kinds of spans, in order, for the legend.
    pub legend: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<ChartRow>,
}

/// A row of a chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChartRow {
    /// Its label.
    pub label: String,
    /// Bars, one after the other.
    pub spans: Vec<Span>,
    /// Dots.
    pub dots: Vec<f64>,
    /// A mark across the row.
    pub median: Option<f64>,
    /// Text in the row, where there is nothing to draw, or behind it.
    pub note: String,
    /// The note's tone.
    pub tone: Tone,
}

/// A bar of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Index into the chart's legend.
    pub kind: usize,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}
