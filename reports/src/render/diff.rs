//! A report held against a baseline, in words.

use crate::compare::{Change, LegDiff, ReportDiff};
use crate::format::{clean, percent};
use crate::model::ExitCode;

use super::build::{metric_notes, metric_table};
use super::document::{Align, Block, Cell, Column, Document, Section, Table, Tone};
use super::{Markdown, Options, Renderer, Terminal};

/// For a terminal.
#[must_use]
pub fn diff_text(diff: &ReportDiff, options: &Options) -> String {
    Terminal.render(&build_diff(diff), options)
}

/// In Markdown.
#[must_use]
pub fn diff_markdown(diff: &ReportDiff, options: &Options) -> String {
    Markdown.render(&build_diff(diff), options)
}

/// The differences as a document.
#[must_use]
pub fn build_diff(diff: &ReportDiff) -> Document {
    let code = diff.exit_code();
    let (status, tone) = match code {
        ExitCode::Pass => ("NO REGRESSION", Tone::Good),
        ExitCode::Regression => ("REGRESSION", Tone::Bad),
        _ => ("INCONCLUSIVE", Tone::Warn),
    };
    let mut sections: Vec<Section> = (1..).zip(&diff.legs).map(|(n, l)| leg(n, l)).collect();
    if !diff.conditions.is_empty() {
        let mut table = Table::new(&["fact", "baseline", "this run"]);
        table.rows = diff
            .conditions
            .iter()
            .map(|(name, a, b)| [name, a, b].map(|t| Cell::new(clean(t))).to_vec())
            .collect();
        let blocks = vec![
            Block::Note(
                "A figure may have changed because of these and not because of the code."
                    .to_owned(),
            ),
            Block::Table(table),
        ];
        sections.push(Section::new("conditions", "Conditions that differ", blocks).essential());
    }
    let mut missing = Vec::new();
    missing.extend(
        diff.gone
            .iter()
            .map(|l| format!("{} is only in the baseline", clean(l))),
    );
    missing.extend(
        diff.added
            .iter()
            .map(|l| format!("{} is only in this run", clean(l))),
    );
    if !missing.is_empty() {
        sections.push(
            Section::new(
                "missing",
                "Legs in one report only",
                vec![Block::List(missing)],
            )
            .essential(),
        );
    }
    Document {
        status: status.to_owned(),
        tone,
        title: format!("{} against {}", clean(&diff.current), clean(&diff.base)),
        subtitle: format!("(exit code {})", code.code()),
        summary: summary(diff),
        sections,
        footer: format!(
            "worse: the median lost more than {} and the 95 % interval of the ratio lies wholly on the worse side",
            percent(diff.tolerance_pct)
        ),
    }
}

fn summary(diff: &ReportDiff) -> Vec<(String, String)> {
    let count = |wanted: Change| -> usize {
        let all = diff.legs.iter().flat_map(|l| &l.metrics);
        all.filter(|(_, c)| *c == wanted).count()
    };
    let figures = format!(
        "{} worse, {} better, {} the same, {} with too few samples to tell, {} void",
        count(Change::Worse),
        count(Change::Better),
        count(Change::Same),
        count(Change::Unproven),
        count(Change::Void)
    );
    let mut out = vec![("Figures".to_owned(), figures)];
    let outcomes: Vec<String> = diff
        .legs
        .iter()
        .filter_map(|l| {
            let v = l.verdict.as_ref()?;
            Some(format!(
                "{}: {} → {}",
                clean(&l.name),
                clean(&v.before.join(" + ")),
                clean(&v.now.join(" + "))
            ))
        })
        .collect();
    let words = if outcomes.is_empty() {
        "as in the baseline".to_owned()
    } else {
        outcomes.join("; ")
    };
    out.push(("Outcomes".to_owned(), words));
    let different: Vec<String> = diff
        .legs
        .iter()
        .filter(|l| l.same_tokens == Some(false))
        .map(|l| clean(&l.name))
        .collect();
    if !different.is_empty() {
        out.push((
            "Tokens".to_owned(),
            format!("DIFFER in {}", different.join(", ")),
        ));
    }
    out
}

fn leg(n: usize, l: &LegDiff) -> Section {
    let mut blocks = Vec::new();
    if !l.variables.is_empty() {
        let all: Vec<String> = l.variables.iter().map(|v| clean(&v.words())).collect();
        blocks.push(Block::Text(format!(
            "Configured differently: {}.",
            all.join(", ")
        )));
    }
    let metrics: Vec<_> = l.metrics.iter().map(|(m, _)| m.clone()).collect();
    let mut table = metric_table("baseline", "this run", &metrics);
    // The last word on a metric is the comparison's, not the test's.
    table.columns.retain(|c| c.title != "outcome");
    let width = table.columns.len();
    table.columns.push(Column {
        title: "change".to_owned(),
        align: Align::Left,
        dispensable: None,
    });
    for (row, (_, change)) in table.rows.iter_mut().zip(&l.metrics) {
        row.truncate(width);
        row.push(match change {
            Change::Better => Cell::toned("better", Tone::Good),
            Change::Same => Cell::new("same"),
            Change::Worse => Cell::toned("WORSE", Tone::Bad),
            Change::Unproven => Cell::toned("worse, n too small", Tone::Warn),
            Change::Void => Cell::toned("void", Tone::Warn),
        });
    }
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
    blocks.extend(metric_notes(&metrics).into_iter().map(Block::Note));
    Section::new(&format!("leg-{n}"), &clean(&l.name), blocks).essential()
}
