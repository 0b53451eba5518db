//! The gates.

use crate::format::{clean, shorten};
use crate::model::{GateStatus, Report};

use super::super::document::{Block, Cell, Section, Table, Tone};

pub(super) fn section(report: &Report) -> Option<Section> {
    if report.gates.is_empty() {
        return None;
    }
    let mut table = Table::new(&["outcome", "gate", "seen"]);
    for g in &report.gates {
        let (word, tone) = match g.status {
            GateStatus::Pass => ("holds", Tone::Good),
            GateStatus::Fail if g.undecided => ("fails, undecided", Tone::Warn),
            GateStatus::Fail => ("FAIL", Tone::Bad),
            GateStatus::NotMeasurable => ("not measurable", Tone::Warn),
        };
        table.rows.push(vec![
            Cell::toned(word, tone),
            Cell::new(clean(&g.name)),
            Cell::code(shorten(&clean(&g.observed), 300)),
        ]);
    }
    Some(Section::new("gates", "Gates", vec![Block::Table(table)]).essential())
}
