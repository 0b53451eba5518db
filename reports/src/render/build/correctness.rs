//! What was generated, and whether it is the same everywhere.

use crate::format::{ABSENT, clean, count, quote};
use crate::model::{Attempt, Leg, Report};

use super::super::document::{Block, Cell, Section, Table, Tone};

pub(super) fn section(report: &Report) -> Option<Section> {
    let generated = |a: &Attempt| a.token_ids.is_some() || a.text.is_some();
    let any = report.legs.iter().flat_map(Leg::counted).any(generated);
    if !any {
        return None;
    }
    let control = report.legs.iter().find(|l| l.control);
    let reference = control.and_then(|l| l.counted().find(|a| generated(a)));
    let mut table = Table::new(&[
        "leg",
        ">sequences",
        "within the leg",
        "against the control",
        ">reference-tier hits",
        "text of the first",
    ]);
    for leg in &report.legs {
        table.rows.push(row(leg, reference));
    }
    let blocks = vec![Block::Table(table.without_empty_columns())];
    Some(Section::new("correctness", "Correctness", blocks))
}

fn row(leg: &Leg, reference: Option<&Attempt>) -> Vec<Cell> {
    let all: Vec<&Attempt> = leg
        .counted()
        .filter(|a| a.token_ids.is_some() || a.text.is_some())
        .collect();
    let first = all.first().copied();
    let within = match first {
        None => Cell::toned(ABSENT, Tone::Muted),
        Some(_) if all.len() == 1 => Cell::toned("only one", Tone::Muted),
        Some(first) => worst(all.iter().skip(1).map(|a| difference(first, a))),
    };
    let against = match (first, reference) {
        (Some(_), Some(_)) if leg.control => Cell::toned("control", Tone::Muted),
        (Some(first), Some(reference)) => worst(std::iter::once(difference(reference, first))),
        _ => Cell::toned(ABSENT, Tone::Muted),
    };
    let mut hits: Vec<String> = leg
        .counted()
        .map(|a| match (a.reference_tier_hits, a.provider_lines) {
            (None, _) => ABSENT.to_owned(),
            (Some(0), None | Some(0)) => "0 without provider lines".to_owned(),
            (Some(n), _) => count(n),
        })
        .collect();
    hits.sort();
    hits.dedup();
    vec![
        Cell::new(clean(&leg.name)),
        Cell::new(format!("{}/{}", all.len(), leg.counted().count())),
        within,
        against,
        Cell::new(if hits.is_empty() {
            ABSENT.to_owned()
        } else {
            hits.join(", ")
        }),
        match first.and_then(|a| a.text.as_deref()) {
            Some(text) => Cell::code(quote(text, 60)),
            None => Cell::toned(ABSENT, Tone::Muted),
        },
    ]
}

/// How two generations relate.
enum Difference {
    Equal,
    /// What is counted, and where.
    At(&'static str, usize),
    Unknown,
}

fn difference(a: &Attempt, b: &Attempt) -> Difference {
    fn at<T: PartialEq>(unit: &'static str, a: &[T], b: &[T]) -> Difference {
        if a == b {
            Difference::Equal
        } else {
            let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
            Difference::At(unit, same)
        }
    }
    if let (Some(a), Some(b)) = (&a.token_ids, &b.token_ids) {
        return at("token", a, b);
    }
    match (&a.text, &b.text) {
        (Some(a), Some(b)) => {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            at("character", &a, &b)
        }
        _ => Difference::Unknown,
    }
}

fn worst(all: impl Iterator<Item = Difference>) -> Cell {
    let mut unknown = false;
    let mut first: Option<(&str, usize)> = None;
    for d in all {
        match d {
            Difference::Equal => {}
            Difference::Unknown => unknown = true,
            Difference::At(unit, at) => {
                if first.is_none_or(|(_, so_far)| at < so_far) {
                    first = Some((unit, at));
                }
            }
        }
    }
    match first {
        Some((unit, at)) => Cell::toned(format!("DIFFERS from {unit} {at}"), Tone::Bad),
        None if unknown => Cell::toned("not comparable", Tone::Warn),
        None => Cell::toned("equal", Tone::Good),
    }
}
