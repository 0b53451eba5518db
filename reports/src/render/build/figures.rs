//! Load, memory and other figures, attempt by attempt.

use crate::format::{clean, with_unit};
use crate::metrics::{METRICS, Metric, Place, describe, is_suspect, names, value};
use crate::model::{Attempt, Leg, Report};

use super::super::document::{Block, Cell, Section, Table, Tone};
use super::speed::placed;

pub(super) fn load(report: &Report) -> Option<Section> {
    let metrics: Vec<Metric> = placed(Place::Load).cloned().collect();
    section(report, "load", "Load", &metrics)
}

pub(super) fn memory(report: &Report) -> Option<Section> {
    let metrics: Vec<Metric> = placed(Place::Memory).cloned().collect();
    section(report, "memory", "Memory", &metrics)
}

/// Everything that has no place of its own.
pub(super) fn other(report: &Report) -> Option<Section> {
    let all: Vec<&Attempt> = report.legs.iter().flat_map(|l| &l.attempts).collect();
    let metrics: Vec<Metric> = names(all)
        .iter()
        .filter(|n| METRICS.iter().all(|m| m.name != n.as_str()))
        .map(|n| describe(n))
        .filter(|m| !m.speed)
        .collect();
    section(report, "other", "Other figures", &metrics)
}

fn section(report: &Report, id: &str, title: &str, metrics: &[Metric]) -> Option<Section> {
    let mut all: Vec<(&Leg, &Attempt)> = report
        .legs
        .iter()
        .flat_map(|l| l.attempts.iter().map(move |a| (l, a)))
        .filter(|(_, a)| metrics.iter().any(|m| value(a, &m.name).is_some()))
        .collect();
    if all.is_empty() {
        return None;
    }
    all.sort_by_key(|(_, a)| a.n);
    let titles: Vec<String> = metrics.iter().map(|m| format!(">{}", m.title)).collect();
    let mut columns = vec![">#", "leg"];
    columns.extend(titles.iter().map(String::as_str));
    let mut table = Table::new(&columns);
    for (leg, a) in all {
        let muted = if a.warmup { Tone::Muted } else { Tone::Plain };
        let mut row = vec![
            Cell::toned(a.n.to_string(), muted),
            Cell::toned(clean(&leg.name), muted),
        ];
        row.extend(metrics.iter().map(|m| {
            if is_suspect(a, &m.name) && value(a, &m.name).is_some() {
                Cell::toned("SUSPECT", Tone::Warn)
            } else {
                Cell::toned(with_unit(value(a, &m.name), m.unit), muted)
            }
        }));
        table.rows.push(row);
    }
    let blocks = vec![Block::Table(table.without_empty_columns())];
    Some(Section::new(id, title, blocks))
}
