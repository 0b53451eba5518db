//! From a report to a document.

mod attempts;
mod chains;
mod closing;
mod comparisons;
mod correctness;
mod figures;
mod gates;
mod headline;
mod legs;
mod missing;
mod speed;

use crate::model::{Class, Report};

use super::Options;
use super::document::{Document, Section, Tone};
use super::line::status_word;

pub(super) use chains::chain;
pub(super) use comparisons::{notes as metric_notes, table as metric_table};
pub(super) use headline::{answer, code_words};

/// Lays a report out in words.
#[must_use]
pub fn build(report: &Report, options: &Options) -> Document {
    let sections: Vec<Option<Section>> = vec![
        attempts::section(report),
        legs::section(report),
        chains::section(report),
        closing::would_settle(report),
        gates::section(report),
        comparisons::section(report),
        speed::section(report),
        correctness::section(report),
        figures::load(report),
        figures::memory(report),
        figures::other(report),
        closing::owed(report),
        missing::not_measured(report),
        missing::not_claimed(report),
        closing::warnings(report),
        closing::identity(report),
        closing::files(report),
        closing::reproduce(report, options),
    ];
    Document {
        status: status_word(report.verdict).to_owned(),
        tone: headline::tone(report.verdict),
        title: crate::format::clean(&report.run.leg_set),
        subtitle: headline::subtitle(report),
        summary: headline::summary(report),
        sections: sections.into_iter().flatten().collect(),
        footer: closing::footer(report),
    }
}

/// The tone of a class.
pub(super) fn class_tone(class: Class) -> Tone {
    match class {
        Class::Clean => Tone::Good,
        Class::Inconclusive => Tone::Warn,
        Class::Kernel | Class::Board | Class::Host | Class::Infra => Tone::Bad,
    }
}

/// `1 attempt`, `3 attempts`.
pub(super) fn plural(n: usize, word: &str) -> String {
    if n == 1 {
        format!("1 {word}")
    } else {
        format!("{n} {word}s")
    }
}
