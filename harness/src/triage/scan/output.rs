//! What a program printed.

use std::io::Read;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::{Collector, Scan, keep};
use crate::triage::data;
use crate::triage::finding::{Event, Origin};
use crate::triage::lexer::{Stamp, read_lines};

static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let mut literals: Vec<String> = data::program::ROWS
        .iter()
        .map(|r| regex::escape(crate::triage::pattern::longest_literal(r.template)))
        .collect();
    literals.sort();
    literals.dedup();
    Regex::new(&literals.join("|")).ok()
});

/// Reads what a program printed: bare text, or our stamped `output.log`.
#[must_use]
pub fn output(input: impl Read) -> Scan {
    let mut c = Collector::new();
    let mut number = 0u64;
    let mut bytes = 0u64;
    let end = read_lines(input, |line| {
        number += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (stamp, text) = unstamp(line);
        bytes += text.iter().filter(|b| !b.is_ascii_whitespace()).count() as u64;
        c.scan.records += 1;
        if let Some(re) = WORDS.as_ref()
            && !re.is_match(text)
        {
            return;
        }
        let clean;
        let text = if text.contains(&0x1b) {
            clean = text.split(|&b| b == 0x1b).collect::<Vec<_>>().concat();
            &clean[..]
        } else {
            text
        };
        if let Some((finding, source)) = data::find(data::program::ROWS, text) {
            c.push(Event {
                finding,
                origin: Origin::Output,
                device: None,
                driver: String::new(),
                lines: vec![(number, keep(text))],
                stamp,
                seq: None,
                count: 1,
                source,
            });
        }
    });
    if let Err(e) = end {
        c.scan.error = Some(e.to_string());
    }
    c.scan.bytes = bytes;
    c.scan
}

/// Splits `<seconds> <RFC 3339> | text`, the form of our own `output.log`.
pub(super) fn unstamp(line: &[u8]) -> (Stamp, &[u8]) {
    let Some(bar) = line.iter().take(72).position(|&c| c == b'|') else {
        return (Stamp::default(), line);
    };
    let head = &line[..bar];
    let mut words = head.split(|&c| c == b' ').filter(|w| !w.is_empty());
    let (Some(secs), Some(wall), None) = (words.next(), words.next(), words.next()) else {
        return (Stamp::default(), line);
    };
    let stamped = secs.iter().all(|c| c.is_ascii_digit() || *c == b'.')
        && wall.len() >= 20
        && wall[4] == b'-'
        && wall[10] == b'T';
    if !stamped {
        return (Stamp::default(), line);
    }
    let text = &line[bar + 1..];
    let stamp = std::str::from_utf8(wall)
        .ok()
        .and_then(Stamp::parse)
        .unwrap_or_default();
    (stamp, text.strip_prefix(b" ").unwrap_or(text))
}
