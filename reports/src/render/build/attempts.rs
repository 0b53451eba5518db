//! The attempts, one row each, in the order they ran.

use crate::format::{ABSENT, clean, count, exit_words, quote, seconds, signal_name, with_unit};
use crate::metrics::{METRICS, Place, describe, is_suspect, value};
use crate::model::{Attempt, Class, Leg, Report};

use super::super::document::{Block, Cell, Chart, ChartRow, Section, Span, Table, Tone};
use super::class_tone;

pub(super) fn section(report: &Report) -> Option<Section> {
    let mut all: Vec<(&Leg, &Attempt)> = report
        .legs
        .iter()
        .flat_map(|l| l.attempts.iter().map(move |a| (l, a)))
        .collect();
    if all.is_empty() {
        return None;
    }
    all.sort_by_key(|(_, a)| a.n);
    let mut table = Table::new(&[
        ">#", "leg", "round", "exit", "verdict", ">wall", ">tokens", "finish", "text", ">decode",
        ">prefill", "notes",
    ]);
    table.rows = all.iter().map(|(leg, a)| row(leg, a)).collect();
    let table = table
        .without_empty_columns()
        .dispensing(&["finish", "prefill", "text"]);
    let mut blocks = vec![Block::Table(table)];
    if all.iter().any(|(_, a)| a.warmup) {
        let words = "w: warm-up round, run and discarded.";
        blocks.push(Block::Note(words.to_owned()));
    }
    blocks.extend(timeline(&all).map(Block::Chart));
    Some(Section::new("attempts", "Attempts", blocks).essential())
}

fn row(leg: &Leg, a: &Attempt) -> Vec<Cell> {
    let muted = if a.warmup { Tone::Muted } else { Tone::Plain };
    let v = &a.verdict;
    let verdict = if v.class == Class::Clean {
        "clean".to_owned()
    } else {
        format!("{}: {}", v.class, clean(&v.kind))
    };
    let round = if a.warmup {
        format!("w{}", a.round)
    } else {
        a.round.to_string()
    };
    let tokens = a
        .metrics
        .completion_tokens
        .or_else(|| a.token_ids.as_ref().map(|t| t.len() as u64));
    let exit_tone = if a.exit.end().success() && a.exit.timed_out.is_none() {
        muted
    } else {
        Tone::Warn
    };
    vec![
        Cell::toned(a.n.to_string(), muted),
        Cell::toned(clean(&leg.name), muted),
        Cell::toned(round, muted),
        Cell::toned(exit_words(&a.exit), exit_tone),
        Cell::toned(verdict, class_tone(v.class)),
        Cell::toned(seconds(a.wall_s), muted),
        Cell::toned(tokens.map_or(ABSENT.to_owned(), count), muted),
        Cell::toned(
            a.finish_reason.as_deref().map_or(ABSENT.to_owned(), clean),
            muted,
        ),
        Cell {
            text: a
                .text
                .as_deref()
                .map_or(ABSENT.to_owned(), |t| quote(t, 24)),
            tone: muted,
            code: a.text.is_some(),
            link: None,
        },
        main_rate(a),
        rate(a, "prefill_tok_s"),
        Cell::toned(notes(a), Tone::Warn),
    ]
}

/// The figure that stands for an attempt's speed, or why none is printed. Of a class only the class: its kind stands in
/// the verdict's column.
fn main_rate(a: &Attempt) -> Cell {
    let any = METRICS
        .iter()
        .any(|m| m.place == Place::Speed && value(a, &m.name).is_some());
    match &a.speed.void_reason {
        Some(reason) if any => {
            let word = match a.verdict.class {
                Class::Clean => clean(reason),
                class => class.to_string(),
            };
            Cell::toned(format!("VOID({word})"), Tone::Warn)
        }
        Some(_) => Cell::toned(ABSENT, Tone::Muted),
        None => rate(a, "decode_tok_s"),
    }
}

/// A figure of an admissible attempt.
fn rate(a: &Attempt, name: &str) -> Cell {
    match value(a, name) {
        Some(v) if a.speed.admissible => Cell::new(with_unit(Some(v), describe(name).unit)),
        Some(_) => Cell::toned("VOID", Tone::Warn),
        None => Cell::toned(ABSENT, Tone::Muted),
    }
}

/// What an attempt's row must not hide.
fn notes(a: &Attempt) -> String {
    let mut out = Vec::new();
    if let Some(d) = a.crashed_descendant() {
        let how = d
            .end
            .and_then(|e| e.signal)
            .map_or_else(|| "core".to_owned(), signal_name);
        let who = d.comm.as_deref().map_or("a process".to_owned(), clean);
        out.push(format!("{who}: {how}"));
    }
    if a.output_bytes.is_none_or(|n| n == 0) {
        out.push("CAPTURE_FAILED".to_owned());
    }
    if !a.leaks.is_empty() {
        out.push(format!("{} leaked", a.leaks.len()));
    }
    if a.stamps == Some(crate::model::Stamps::Suspect) {
        out.push("stamps SUSPECT".to_owned());
    }
    out.join(", ")
}

const PHASES: [&str; 4] = ["load", "prefill", "decode", "rest"];

/// Load, prefill and decode of every attempt, the rest of its wall time behind them: the report knows how long phases
/// took, not when.
fn timeline(all: &[(&Leg, &Attempt)]) -> Option<Chart> {
    if all.iter().all(|(_, a)| a.wall_s <= 0.0) {
        return None;
    }
    let rows = all
        .iter()
        .map(|(leg, a)| {
            let mut at = 0.0;
            let mut spans = Vec::new();
            let names = ["load_s", "prefill_s", "decode_s"];
            for (kind, name) in names.into_iter().enumerate() {
                let figure = value(a, name).or_else(|| match name {
                    "prefill_s" => value(a, "ttft_s"),
                    _ => None,
                });
                if let Some(s) = figure.filter(|s| *s > 0.0 && !is_suspect(a, name)) {
                    let to = (at + s).min(a.wall_s.max(at));
                    spans.push(Span { kind, from: at, to });
                    at = to;
                }
            }
            if a.wall_s > at {
                spans.push(Span {
                    kind: 3,
                    from: at,
                    to: a.wall_s,
                });
            }
            let tone = class_tone(a.verdict.class);
            let end = match tone {
                Tone::Good => String::new(),
                _ => format!(" {}", a.verdict.class),
            };
            ChartRow {
                label: format!(
                    "#{} {}{}",
                    a.n,
                    clean(&leg.name),
                    if a.warmup { " (warm-up)" } else { "" }
                ),
                spans,
                note: format!("{}{end}", seconds(a.wall_s)),
                tone: if tone == Tone::Good {
                    Tone::Muted
                } else {
                    tone
                },
                ..ChartRow::default()
            }
        })
        .collect();
    Some(Chart {
        caption: "Where the wall time of each attempt went".to_owned(),
        unit: "s".to_owned(),
        from_zero: true,
        legend: PHASES.to_vec(),
        rows,
    })
}
