//! Arms compared.

use crate::compare::variables;
use crate::format::{ABSENT, clean, percent, probability, ratio, with_unit};
use crate::metrics::describe;
use crate::model::{ComparedMetric, Comparison, FaultRatio, Leg, Report};

use super::super::document::{Block, Cell, Section, Table, Tone};

pub(super) fn section(report: &Report) -> Option<Section> {
    if report.comparisons.is_empty() {
        return None;
    }
    let blocks = report
        .comparisons
        .iter()
        .flat_map(|c| comparison(report, c))
        .collect();
    Some(Section::new("comparisons", "Comparisons", blocks).essential())
}

fn comparison(report: &Report, c: &Comparison) -> Vec<Block> {
    let mut out = vec![Block::Text(intro(report, c))];
    // A row whose ratio is void on every line says nothing more than its reason does once.
    let (void, printed): (Vec<_>, Vec<_>) = c
        .metrics
        .iter()
        .cloned()
        .partition(|m| m.void_reason.is_some());
    let table = table(&c.a, &c.b, &printed);
    if !table.rows.is_empty() {
        out.push(Block::Table(table));
    }
    out.extend(voids(&void).into_iter().map(Block::Warning));
    out.extend(notes(&printed).into_iter().map(Block::Note));
    out
}

fn intro(report: &Report, c: &Comparison) -> String {
    let values = report
        .leg(&c.a)
        .zip(report.leg(&c.b))
        .map(|(a, b)| variables(a, b))
        .unwrap_or_default();
    let words: Vec<String> = values.iter().map(|v| clean(&v.words())).collect();
    let variables = match c.variables.len() {
        0 => "no variable differs".to_owned(),
        1 => format!("one variable differs: {}", words.join(", ")),
        n => format!(
            "CONFOUNDED({n}): {} differ, so no effect can be attributed",
            words.join(", ")
        ),
    };
    let tokens = match (c.same_tokens, c.first_difference) {
        (Some(true), _) => format!("; tokens equal{}", where_generated(report, c)),
        (Some(false), Some(at)) => format!("; tokens DIFFER from index {at}"),
        (Some(false), None) => "; tokens DIFFER".to_owned(),
        (None, _) => "; tokens not compared".to_owned(),
    };
    let faults = c.faults.as_ref().map_or_else(String::new, |f| {
        let p =
            f.p.map_or_else(String::new, |p| format!(", Fisher p = {}", probability(p)));
        format!("; faulted {} against {}{p}", fraction(&f.b), fraction(&f.a))
    });
    format!(
        "{} against {}: {variables}{tokens}{faults}.",
        clean(&c.b),
        clean(&c.a)
    )
}

/// Attempts that generated nothing are not equal to anything: how many there are to speak of.
fn where_generated(report: &Report, c: &Comparison) -> String {
    let all: Vec<_> = [&c.a, &c.b]
        .into_iter()
        .filter_map(|name| report.leg(name))
        .flat_map(Leg::counted)
        .collect();
    let some = all
        .iter()
        .filter(|a| a.token_ids.is_some() || a.text.is_some())
        .count();
    if some == all.len() {
        String::new()
    } else {
        format!(
            " in the {some} of {} attempts that generated any",
            all.len()
        )
    }
}

/// `VOID(reason): decode, prefill`, one for each reason.
fn voids(metrics: &[ComparedMetric]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for m in metrics {
        let reason = clean(m.void_reason.as_deref().unwrap_or_default());
        let title = describe(&m.metric).title.into_owned();
        match groups.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, titles)) => titles.push(title),
            None => groups.push((reason, vec![title])),
        }
    }
    groups
        .into_iter()
        .map(|(reason, titles)| format!("VOID({reason}): no ratio of {}", titles.join(", ")))
        .collect()
}

fn fraction(f: &FaultRatio) -> String {
    format!("{}/{}", f.faulted, f.of)
}

/// The metrics of two arms as a table.
pub(in crate::render) fn table(a: &str, b: &str, metrics: &[ComparedMetric]) -> Table {
    let (a, b) = (clean(a), clean(b));
    let title_a = format!(">{a} (n)");
    let title_b = format!(">{b} (n)");
    let mut table = Table::new(&[
        "metric",
        &title_a,
        &title_b,
        ">ratio",
        ">95 % interval",
        ">p",
        "outcome",
    ]);
    for m in metrics {
        let metric = describe(&m.metric);
        let median = |v: Option<f64>, n: usize| match n {
            0 => ABSENT.to_owned(),
            _ => format!("{} ({n})", with_unit(v, metric.unit)),
        };
        let (ratio_cell, interval, p) = match &m.void_reason {
            Some(reason) => (
                Cell::toned(format!("VOID({})", clean(reason)), Tone::Warn),
                ABSENT.to_owned(),
                ABSENT.to_owned(),
            ),
            None => (
                Cell::new(m.ratio.map_or(ABSENT.to_owned(), ratio)),
                m.ratio_ci95.map_or(ABSENT.to_owned(), |[low, high]| {
                    format!("{low:.3} – {high:.3}")
                }),
                m.p.map_or(ABSENT.to_owned(), probability),
            ),
        };
        table.rows.push(vec![
            Cell::new(metric.title.as_ref()),
            Cell::new(median(m.a_median, m.a.len())),
            Cell::new(median(m.b_median, m.b.len())),
            ratio_cell,
            Cell::new(interval),
            Cell::new(p),
            outcome(m),
        ]);
    }
    table.without_empty_columns()
}

/// What the figures allow to say.
fn outcome(m: &ComparedMetric) -> Cell {
    if m.void_reason.is_some() || m.ratio.is_none() {
        return Cell::toned(ABSENT, Tone::Muted);
    }
    if m.regressed == Some(true) {
        let loss = m
            .max_loss_pct
            .map_or_else(String::new, |l| format!(" (allowed {})", percent(l)));
        return Cell::toned(format!("REGRESSION{loss}"), Tone::Bad);
    }
    match m.p {
        _ if m.ratio == Some(1.0) && m.p == Some(1.0) => Cell::toned("equal", Tone::Muted),
        _ if m.note.is_some() => Cell::toned("n too small", Tone::Warn),
        Some(p) if p < 0.05 => {
            let higher = m.ratio.is_some_and(|r| r > 1.0);
            Cell::new(if higher { "higher" } else { "lower" })
        }
        Some(_) => match m.detectable_pct {
            Some(d) => Cell::toned(
                format!("none shown; {} would show", percent(d)),
                Tone::Muted,
            ),
            None => Cell::toned("none shown", Tone::Muted),
        },
        None => Cell::toned(ABSENT, Tone::Muted),
    }
}

/// Remarks on the samples and the method, each once.
pub(in crate::render) fn notes(metrics: &[ComparedMetric]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let notes = metrics
        .iter()
        .filter(|m| outcome(m).text == "n too small")
        .filter_map(|m| m.note.as_ref().map(|n| format!("{n}.")));
    let mut methods: Vec<&str> = Vec::new();
    let printed = metrics.iter().filter(|m| m.void_reason.is_none());
    for part in printed.flat_map(|m| m.method.split("; ")) {
        if part != crate::compare::METHOD_NONE && !methods.contains(&part) {
            methods.push(part);
        }
    }
    for note in notes {
        if !out.contains(&note) {
            out.push(note);
        }
    }
    if !methods.is_empty() {
        out.push(format!("{}.", methods.join("; ")));
    }
    out
}
