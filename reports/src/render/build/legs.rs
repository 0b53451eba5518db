//! The legs: what each one is, by what it differs, how often it faulted.

use crate::compare::variables;
use crate::format::{ABSENT, clean, percent, shorten};
use crate::model::{Leg, LegKind, Report};

use super::super::document::{Block, Cell, Section, Table, Tone};

pub(super) fn section(report: &Report) -> Option<Section> {
    if report.legs.is_empty() {
        return None;
    }
    let control = report.legs.iter().find(|l| l.control);
    let mut table = Table::new(&[
        "leg",
        "role",
        "runs",
        "differs from control",
        ">ran",
        ">faulted",
        ">95 % interval",
    ]);
    table.rows = report.legs.iter().map(|l| row(control, l)).collect();
    let commands: Vec<(String, String)> = report
        .legs
        .iter()
        .filter(|l| !l.command.is_empty())
        .map(|l| (clean(&l.name), command_words(l)))
        .collect();
    let mut blocks = vec![Block::Table(table.without_empty_columns())];
    if !commands.is_empty() {
        blocks.push(Block::Facts(commands));
    }
    Some(Section::new("legs", "Legs", blocks))
}

fn row(control: Option<&Leg>, leg: &Leg) -> Vec<Cell> {
    let mut roles = Vec::new();
    if leg.control {
        roles.push("control");
    }
    if leg.diagnostic {
        roles.push("diagnostic");
    }
    let kind = leg.kind.map_or(ABSENT, |k| match k {
        LegKind::Engine => "engine",
        LegKind::Command => "command",
        LegKind::Script => "script",
    });
    let differs = match control {
        Some(c) if !leg.control => {
            let all: Vec<String> = variables(c, leg)
                .iter()
                .map(|v| shorten(&clean(&v.words()), 60))
                .collect();
            match all.len() {
                0 => "in nothing".to_owned(),
                1 => all.join(""),
                n => format!("CONFOUNDED({n}): {}", all.join(", ")),
            }
        }
        _ => ABSENT.to_owned(),
    };
    let tone = if leg.differs.len() > 1 {
        Tone::Warn
    } else {
        Tone::Plain
    };
    let ran = leg.counted().count();
    let (faulted, interval) = leg
        .faults
        .map_or((ABSENT.to_owned(), ABSENT.to_owned()), |f| {
            let interval = f.ci95.map_or(ABSENT.to_owned(), |[low, high]| {
                format!("{} – {}", percent(100.0 * low), percent(100.0 * high))
            });
            (format!("{}/{}", f.faulted, f.of), interval)
        });
    let any_fault = leg.faults.is_some_and(|f| f.faulted > 0);
    vec![
        Cell::new(clean(&leg.name)),
        Cell::new(if roles.is_empty() {
            ABSENT.to_owned()
        } else {
            roles.join(", ")
        }),
        Cell::new(kind),
        Cell::toned(differs, tone),
        Cell::new(format!("{ran}/{}", leg.designed)),
        Cell::toned(faulted, if any_fault { Tone::Bad } else { Tone::Plain }),
        Cell::toned(interval, Tone::Muted),
    ]
}

/// The command with the variables that it needs in front, as a shell takes it.
fn command_words(leg: &Leg) -> String {
    let env = leg
        .env
        .iter()
        .map(|(k, v)| format!("{k}={}", shell_word(v)));
    // A prompt may be a chapter: the report.json holds it whole.
    let argv = leg.command.iter().map(|a| shell_word(&shorten(a, 96)));
    clean(&env.chain(argv).collect::<Vec<_>>().join(" "))
}

/// A word as a POSIX shell takes it.
pub(super) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
