//! What comes after the figures: what is missing, where it ran, how to run it again.

use crate::format::{ABSENT, clean, seconds};
use crate::model::Report;

use super::super::Options;
use super::super::document::{Block, Cell, Section, Table};
use super::legs::shell_word;

/// Everything that would settle an open verdict, each once.
pub(super) fn would_settle(report: &Report) -> Option<Section> {
    let mut out: Vec<String> = Vec::new();
    for attempt in report.legs.iter().flat_map(|l| &l.attempts) {
        for way in &attempt.verdict.would_settle {
            let way = clean(way);
            if !out.contains(&way) {
                out.push(way);
            }
        }
    }
    let blocks = vec![Block::List(out.clone())];
    (!out.is_empty())
        .then(|| Section::new("would-settle", "What would settle it", blocks).essential())
}

pub(super) fn owed(report: &Report) -> Option<Section> {
    if report.owed.is_empty() {
        return None;
    }
    let mut table = Table::new(&["leg", "why"]);
    table.rows = report
        .owed
        .iter()
        .map(|o| vec![Cell::code(clean(&o.leg)), Cell::new(clean(&o.why))])
        .collect();
    Some(Section::new("owed", "Owed", vec![Block::Table(table)]).essential())
}

pub(super) fn warnings(report: &Report) -> Option<Section> {
    let all: Vec<String> = report.warnings.iter().map(|w| clean(w)).collect();
    let blocks = vec![Block::List(all.clone())];
    (!all.is_empty()).then(|| Section::new("warnings", "Warnings", blocks).essential())
}

pub(super) fn identity(report: &Report) -> Option<Section> {
    let run = &report.run;
    let or = |v: &Option<String>| v.as_deref().map_or(ABSENT.to_owned(), clean);
    let mut facts = vec![
        ("run".to_owned(), clean(&run.id)),
        ("leg set".to_owned(), clean(&run.leg_set)),
        ("leg file sha256".to_owned(), or(&run.leg_file_sha256)),
        ("started".to_owned(), stamp(run.started)),
        (
            "finished".to_owned(),
            run.finished.map_or(ABSENT.to_owned(), |end| {
                let took = (end - run.started).as_seconds_f64();
                format!("{} (after {})", stamp(end), seconds(took))
            }),
        ),
        ("host".to_owned(), or(&run.host)),
        ("boot id".to_owned(), or(&run.boot_id)),
        (
            "order".to_owned(),
            format!(
                "{}, seed {}",
                run.order.as_deref().map_or(ABSENT.to_owned(), clean),
                run.seed
            ),
        ),
        ("legwork".to_owned(), clean(&run.legwork)),
    ];
    facts.extend(report.identity.iter().map(|(name, v)| {
        let words = match v {
            serde_json::Value::Null => ABSENT.to_owned(),
            serde_json::Value::String(s) => clean(s),
            other => clean(&other.to_string()),
        };
        (clean(name), words)
    }));
    Some(Section::new(
        "identity",
        "Identity",
        vec![Block::Facts(facts)],
    ))
}

fn stamp(t: chrono::DateTime<chrono::Utc>) -> String {
    t.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

pub(super) fn files(report: &Report) -> Option<Section> {
    let mut table = Table::new(&["of", "what", "file"]);
    let mut add = |of: &str, name: &str, path: &str| {
        table.rows.push(vec![
            Cell::new(clean(of)),
            Cell::new(clean(name)),
            Cell {
                text: clean(path),
                code: true,
                link: Some(path.to_owned()),
                ..Cell::default()
            },
        ]);
    };
    for (name, path) in &report.files {
        add("run", name, path);
    }
    for leg in &report.legs {
        for a in &leg.attempts {
            for (name, path) in &a.files {
                add(&format!("{} #{}", leg.name, a.n), name, path);
            }
        }
    }
    let table = table.without_empty_columns();
    (!table.rows.is_empty()).then(|| Section::new("files", "Files", vec![Block::Table(table)]))
}

pub(super) fn reproduce(report: &Report, options: &Options) -> Option<Section> {
    let mut lines = Vec::new();
    if let Some(command) = &report.run.reproduce {
        lines.push(clean(command));
    }
    if let Some(dir) = &options.run_dir {
        lines.push(format!("legwork report {}", shell_word(&clean(dir))));
    }
    let blocks = vec![Block::Code(lines.join("\n"))];
    (!lines.is_empty()).then(|| Section::new("reproduce", "How to run it again", blocks))
}

pub(super) fn footer(report: &Report) -> String {
    format!(
        "legwork {} · report {} {}",
        clean(&report.run.legwork),
        clean(&report.schema),
        clean(&report.version)
    )
}
