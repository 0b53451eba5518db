//! Tables for a terminal.

use comfy_table::{
    Attribute, Cell as TextCell, CellAlignment, Color, ColumnConstraint, ContentArrangement,
    LineStyle, Table as TextTable, TableStyle,
};

use super::super::Options;
use super::super::document::{Align, Cell, Table, Tone};
use super::{NARROWEST, width_of};

/// No frame, one rule under the headings: what is pasted into a bug stays readable.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// A table of the options' width, every line ended.
pub(super) fn table_text(table: &Table, options: &Options) -> String {
    // A blank stands behind the last column too.
    let width = usize::from(options.width.max(NARROWEST)) - 1;
    let table = fitted(table.clone(), width);
    let mut text = TextTable::new();
    text.load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(options.width.max(NARROWEST));
    if options.color {
        text.enforce_styling();
    } else {
        text.force_no_tty();
    }
    let align = |i: usize| match table.columns.get(i).map(|c| c.align) {
        Some(Align::Right) => CellAlignment::Right,
        _ => CellAlignment::Left,
    };
    let header = table.columns.iter().enumerate().map(|(i, c)| {
        TextCell::new(&c.title)
            .set_alignment(align(i))
            .add_attribute(Attribute::Dim)
    });
    text.set_header(header.collect::<Vec<_>>());
    for row in &table.rows {
        let cells = row.iter().enumerate();
        text.add_row(
            cells
                .map(|(i, c)| cell(c).set_alignment(align(i)))
                .collect::<Vec<_>>(),
        );
    }
    for column in text.column_iter_mut() {
        column.set_padding((1, 0));
    }
    for i in unbroken(&table, width) {
        if let Some(column) = text.column_mut(i) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let mut out = String::new();
    for line in text.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Blank columns that a column takes besides its content.
const GAP: usize = 2;

/// The longest content of each column.
fn content(table: &Table) -> Vec<usize> {
    (0..table.columns.len())
        .map(|i| {
            let cells = table.rows.iter().filter_map(|r| r.get(i));
            let longest = cells.map(|c| width_of(&c.text)).max().unwrap_or(0);
            longest.max(width_of(&table.columns[i].title))
        })
        .collect()
}

/// Leaves out dispensable columns until the rest fits, or none is left to leave out.
fn fitted(mut table: Table, width: usize) -> Table {
    loop {
        let need: usize = content(&table).iter().map(|c| c + GAP).sum();
        let dispensable = table.columns.iter().enumerate();
        let first = dispensable
            .filter_map(|(i, c)| Some((c.dispensable?, i)))
            .min();
        match first {
            Some((_, i)) if need > width => table.drop_column(i),
            _ => return table,
        }
    }
}

/// The columns that are not broken: the shortest ones, as long as the long ones keep room. A name or a figure cut in two
/// is not found by search.
fn unbroken(table: &Table, width: usize) -> Vec<usize> {
    const LEAST: usize = 16;
    let content = content(table);
    let mut by_length: Vec<usize> = (0..content.len()).collect();
    by_length.sort_by_key(|&i| content[i]);
    let mut left = width;
    let mut out = Vec::new();
    for (done, &i) in by_length.iter().enumerate() {
        let others = by_length[done + 1..].iter();
        let reserved: usize = others.map(|&o| content[o].min(LEAST) + GAP).sum();
        let need = content[i] + GAP;
        if need + reserved > left {
            break;
        }
        left -= need;
        out.push(i);
    }
    out
}

fn cell(cell: &Cell) -> TextCell {
    let text = TextCell::new(&cell.text);
    match color(cell.tone) {
        Some(c) => text.fg(c),
        None => text,
    }
}

fn color(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Bad => Some(Color::Red),
        Tone::Warn => Some(Color::Yellow),
        Tone::Muted => Some(Color::DarkGrey),
    }
}
