//! Speed, leg by leg: figures of admissible attempts only.

use crate::format::{ABSENT, clean, percent, ratio, with_unit};
use crate::metrics::{METRICS, Metric, Place, describe, names, value};
use crate::model::{Leg, Report};
use crate::stats;

use super::super::document::{Block, Cell, Chart, ChartRow, Section, Table, Tone};
use super::headline::void;

pub(super) fn section(report: &Report) -> Option<Section> {
    let counted: Vec<_> = report.legs.iter().flat_map(Leg::counted).collect();
    let metrics: Vec<Metric> = names(counted)
        .iter()
        .map(|n| describe(n))
        .filter(|m| m.speed && !matches!(m.name.as_ref(), "prefill_s" | "decode_s"))
        .filter(|m| m.place != Place::Load || matches!(m.name.as_ref(), "load_s" | "load_gib_s"))
        .collect();
    if metrics.is_empty() {
        return None;
    }
    let mut table = Table::new(&[
        "metric",
        "leg",
        ">n",
        ">median",
        ">min",
        ">max",
        ">spread",
        ">vs control",
        ">95 % interval",
    ]);
    for metric in &metrics {
        for leg in report.legs.iter().filter(|l| admissible(l)) {
            table.rows.extend(row(report, metric, leg));
        }
    }
    for leg in report.legs.iter().filter(|l| !admissible(l)) {
        table.rows.push(void_row("all", leg));
    }
    let mut blocks = vec![
        Block::Table(
            table
                .without_empty_columns()
                .dispensing(&["95 % interval", "min", "max"]),
        ),
        Block::Note(
            "Medians of admissible attempts; spread is (max − min) / median. VOID(reason): no admissible figure."
                .to_owned(),
        ),
    ];
    let charted = metrics.iter().filter(|m| m.unit.is_rate()).take(3);
    blocks.extend(charted.filter_map(|m| chart(report, m)).map(Block::Chart));
    Some(Section::new("speed", "Speed", blocks))
}

fn samples(leg: &Leg, metric: &Metric) -> Vec<f64> {
    leg.counted()
        .filter(|a| a.speed.admissible)
        .filter_map(|a| value(a, &metric.name))
        .collect()
}

fn admissible(leg: &Leg) -> bool {
    leg.counted().any(|a| a.speed.admissible)
}

/// No figure, and why.
fn void_row(metric: &str, leg: &Leg) -> Vec<Cell> {
    let mut cells = vec![
        Cell::new(metric),
        Cell::new(clean(&leg.name)),
        Cell::new("0"),
        Cell::toned(void(leg), Tone::Warn),
    ];
    cells.extend((0..5).map(|_| Cell::toned(ABSENT, Tone::Muted)));
    cells
}

/// `None` for a leg that does not have the metric at all.
fn row(report: &Report, metric: &Metric, leg: &Leg) -> Option<Vec<Cell>> {
    leg.counted().find(|a| value(a, &metric.name).is_some())?;
    let figure = |v: f64| with_unit(Some(v), metric.unit);
    let samples = samples(leg, metric);
    let mut cells = vec![
        Cell::new(metric.title.as_ref()),
        Cell::new(clean(&leg.name)),
        Cell::new(samples.len().to_string()),
    ];
    let Some(s) = stats::summary(&samples) else {
        return Some(void_row(&metric.title, leg));
    };
    let compared = report
        .comparisons
        .iter()
        .find(|c| c.b == leg.name && report.leg(&c.a).is_some_and(|a| a.control));
    let m = compared.and_then(|c| c.metrics.iter().find(|m| m.metric == metric.name));
    cells.extend([
        Cell::new(figure(s.median)),
        Cell::new(figure(s.min)),
        Cell::new(figure(s.max)),
        Cell::new(match s.spread_pct {
            Some(p) if s.n > 1 => percent(p),
            _ => ABSENT.to_owned(),
        }),
        Cell::new(if leg.control {
            "control".to_owned()
        } else {
            m.and_then(|m| m.ratio).map_or(ABSENT.to_owned(), ratio)
        }),
        Cell::new(
            m.and_then(|m| m.ratio_ci95)
                .map_or(ABSENT.to_owned(), |[low, high]| {
                    format!("{low:.3} – {high:.3}")
                }),
        ),
    ]);
    Some(cells)
}

/// Every admissible sample of every leg and its median.
fn chart(report: &Report, metric: &Metric) -> Option<Chart> {
    let rows: Vec<ChartRow> = report
        .legs
        .iter()
        .filter(|leg| leg.counted().any(|a| value(a, &metric.name).is_some()))
        .map(|leg| {
            let dots = samples(leg, metric);
            let median = stats::median(&dots);
            ChartRow {
                label: clean(&leg.name),
                note: median.map_or_else(|| void(leg), |m| with_unit(Some(m), metric.unit)),
                tone: if median.is_some() {
                    Tone::Plain
                } else {
                    Tone::Warn
                },
                median,
                dots,
                ..ChartRow::default()
            }
        })
        .collect();
    rows.iter().any(|r| !r.dots.is_empty()).then(|| Chart {
        caption: format!("{}: every admissible attempt, and the median", metric.title),
        unit: metric.unit.suffix().to_owned(),
        from_zero: false,
        legend: Vec::new(),
        rows,
    })
}

/// The names of the metrics that have a column of their own in the load and memory tables.
pub(super) fn placed(place: Place) -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().filter(move |m| m.place == place)
}
