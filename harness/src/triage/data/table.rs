//! Tables indexed for speed: a line is tried against the rows that its first letter allows, and against the rows that may
//! begin anywhere only if it holds one of their words.

use regex::bytes::Regex;

use super::Row;
use crate::triage::finding::Finding;
use crate::triage::pattern::{longest_literal, matches};

/// Several tables as one, in their order.
pub struct Table {
    rows: Vec<&'static Row>,
    by_letter: Vec<Vec<u16>>,
    floating: Vec<u16>,
    words: Option<Regex>,
}

impl Table {
    /// Indexes tables; a row of an earlier table wins.
    #[must_use]
    pub fn new(tables: &[&'static [Row]]) -> Table {
        let rows: Vec<&'static Row> = tables.iter().flat_map(|t| t.iter()).collect();
        let mut by_letter = vec![Vec::new(); 256];
        let mut floating = Vec::new();
        let mut words = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let i = u16::try_from(i).unwrap_or(u16::MAX);
            match row.template.as_bytes().first() {
                Some(b'*' | b'{') | None => {
                    floating.push(i);
                    words.push(regex::escape(longest_literal(row.template)));
                }
                Some(&c) => by_letter[usize::from(c)].push(i),
            }
        }
        words.sort();
        words.dedup();
        Table {
            rows,
            by_letter,
            floating,
            words: Regex::new(&words.join("|")).ok(),
        }
    }

    /// The first row that matches `body`.
    #[must_use]
    pub fn find(&self, body: &[u8]) -> Option<(Finding, &'static str)> {
        let letter = &self.by_letter[usize::from(*body.first()?)];
        let floats =
            !self.floating.is_empty() && self.words.as_ref().is_none_or(|w| w.is_match(body));
        if !floats {
            return letter.iter().find_map(|&i| self.row(i, body));
        }
        // Both lists are sorted: merge them, so that the order of the tables holds.
        let (mut a, mut b) = (letter.iter().peekable(), self.floating.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(&&x), Some(&&y)) if x < y => {
                    a.next();
                    x
                }
                (_, Some(&&y)) => {
                    b.next();
                    y
                }
                (Some(&&x), None) => {
                    a.next();
                    x
                }
                (None, None) => return None,
            };
            if let Some(found) = self.row(next, body) {
                return Some(found);
            }
        }
    }

    fn row(&self, i: u16, body: &[u8]) -> Option<(Finding, &'static str)> {
        let row = self.rows.get(usize::from(i))?;
        matches(row.template, body).and_then(|c| (row.make)(&c).map(|f| (f, row.source)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{amdgpu, harmless, memory, scheduler};
    use super::*;

    #[test]
    fn the_index_finds_what_the_plain_search_finds() {
        let tables: [&'static [Row]; 4] = [
            harmless::AMDGPU,
            scheduler::ROWS,
            amdgpu::ROWS,
            memory::UNTAGGED,
        ];
        let table = Table::new(&tables);
        for line in [
            "MES failed to respond to msg=REMOVE_QUEUE",
            "no uncorrectable hardware errors detected in umc block",
            "3 uncorrectable hardware errors detected in gfx block",
            "Pasid 0x8004 DQM create queue type 0 failed. ret -22",
            "python invoked oom-killer: gfp_mask=0x0",
            "Out of memory: Killed process 5 (a) total-vm:1kB",
            "nothing of the kind",
            "",
        ] {
            let plain = tables
                .iter()
                .find_map(|t| super::super::find(t, line.as_bytes()));
            assert_eq!(table.find(line.as_bytes()), plain, "{line}");
        }
    }
}
