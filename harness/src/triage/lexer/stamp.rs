//! Time stamps of log lines. A log is ordered by position; stamps serve windows and gaps only.

/// A wall-clock stamp; the year is missing in syslog's short form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wall {
    /// Year, if printed.
    pub year: Option<u16>,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month.
    pub day: u8,
    /// Microseconds since midnight.
    pub day_us: u64,
}

impl Wall {
    fn in_year_us(self) -> u64 {
        const BEFORE: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let m = usize::from(self.month.clamp(1, 12)) - 1;
        let leap = u64::from(self.month > 2 && self.year.is_none_or(|y| y.is_multiple_of(4)));
        (u64::from(BEFORE[m]) + u64::from(self.day) + leap) * 86_400_000_000 + self.day_us
    }

    fn key(self) -> (u16, u64) {
        (self.year.unwrap_or(0), self.in_year_us())
    }
}

/// What a line says about its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Microseconds since boot.
    pub mono_us: Option<u64>,
    /// Microseconds since the line before (`dmesg -d`, `dmesg -H`).
    pub delta_us: Option<u64>,
    /// Wall clock, without its zone.
    pub wall: Option<Wall>,
}

impl Stamp {
    /// Whether there is no time at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mono_us.is_none() && self.wall.is_none() && self.delta_us.is_none()
    }

    /// Order of two stamps on a clock that both carry.
    #[must_use]
    pub fn compare(&self, other: &Stamp) -> Option<std::cmp::Ordering> {
        if let (Some(a), Some(b)) = (self.mono_us, other.mono_us) {
            return Some(a.cmp(&b));
        }
        let (a, b) = (self.wall?, other.wall?);
        if a.year.is_some() && b.year.is_some() {
            Some(a.key().cmp(&b.key()))
        } else {
            let a = Wall { year: None, ..a };
            let b = Wall { year: None, ..b };
            Some(a.key().cmp(&b.key()))
        }
    }

    /// Seconds from `earlier` to this stamp, on a clock that both carry; negative when the order is reversed.
    #[must_use]
    pub fn seconds_after(&self, earlier: &Stamp) -> Option<f64> {
        if let (Some(a), Some(b)) = (self.mono_us, earlier.mono_us) {
            return Some((a as f64 - b as f64) / 1e6);
        }
        let (a, b) = (self.wall?, earlier.wall?);
        let years = match (a.year, b.year) {
            (Some(x), Some(y)) => (f64::from(x) - f64::from(y)) * 365.25 * 86_400.0,
            _ => 0.0,
        };
        let (a, b) = (Wall { year: None, ..a }, Wall { year: None, ..b });
        Some((a.in_year_us() as f64 - b.in_year_us() as f64) / 1e6 + years)
    }

    /// Reads a stamp as a person types it: seconds since boot (`7800`, `245000.5`), or any stamp that a log line carries.
    #[must_use]
    pub fn parse(text: &str) -> Option<Stamp> {
        let t = text
            .trim()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .trim();
        if t.is_empty() {
            return None;
        }
        if let Some(us) = seconds_to_us(t.as_bytes()) {
            return Some(Stamp {
                mono_us: Some(us),
                ..Stamp::default()
            });
        }
        wall_in(t.as_bytes()).map(|w| Stamp {
            wall: Some(w),
            ..Stamp::default()
        })
    }
}

/// `123`, `123.4`, `123,456789`: seconds to microseconds.
pub(super) fn seconds_to_us(b: &[u8]) -> Option<u64> {
    let b = b.trim_ascii();
    let (whole, frac) = match b.iter().position(|&c| c == b'.' || c == b',') {
        Some(p) => (&b[..p], &b[p + 1..]),
        None => (b, &b[..0]),
    };
    if whole.is_empty() || whole.len() > 12 || frac.len() > 9 {
        return None;
    }
    let mut us: u64 = 0;
    for &c in whole {
        if !c.is_ascii_digit() {
            return None;
        }
        us = us * 10 + u64::from(c - b'0');
    }
    us *= 1_000_000;
    let mut unit = 100_000;
    for &c in frac {
        if !c.is_ascii_digit() {
            return None;
        }
        us += u64::from(c - b'0') * unit;
        unit /= 10;
    }
    Some(us)
}

/// A month's name in any of the languages that `date` commonly speaks, by its first letters.
fn month(word: &[u8]) -> Option<u8> {
    if word.len() < 3 {
        return None;
    }
    // Longest distinguishing prefixes first: juin/juil, mar/mai.
    const NAMES: [(&str, u8); 52] = [
        ("jan", 1),
        ("ene", 1),
        ("gen", 1),
        ("sty", 1),
        ("led", 1),
        ("feb", 2),
        ("fév", 2),
        ("fev", 2),
        ("lut", 2),
        ("úno", 2),
        ("mar", 3),
        ("mär", 3),
        ("mrt", 3),
        ("bře", 3),
        ("mrz", 3),
        ("apr", 4),
        ("avr", 4),
        ("abr", 4),
        ("kwi", 4),
        ("dub", 4),
        ("may", 5),
        ("mai", 5),
        ("maj", 5),
        ("mag", 5),
        ("mei", 5),
        ("kvě", 5),
        ("juin", 6),
        ("jun", 6),
        ("giu", 6),
        ("cze", 6),
        ("juil", 7),
        ("jul", 7),
        ("lug", 7),
        ("lip", 7),
        ("aug", 8),
        ("aoû", 8),
        ("aou", 8),
        ("ago", 8),
        ("sie", 8),
        ("sep", 9),
        ("set", 9),
        ("wrz", 9),
        ("zář", 9),
        ("oct", 10),
        ("okt", 10),
        ("ott", 10),
        ("out", 10),
        ("paź", 10),
        ("nov", 11),
        ("lis", 11),
        ("dec", 12),
        ("dez", 12),
    ];
    const MORE: [(&str, u8); 5] = [
        ("déc", 12),
        ("dic", 12),
        ("gru", 12),
        ("pro", 12),
        ("říj", 10),
    ];
    let lower: Vec<u8> = word.iter().map(u8::to_ascii_lowercase).collect();
    NAMES
        .iter()
        .chain(MORE.iter())
        .find(|(n, _)| lower.starts_with(n.as_bytes()))
        .map(|&(_, m)| m)
}

/// `HH:MM:SS[.frac]` or `HH:MM` at the start of `b`: microseconds since midnight and the bytes used.
pub(super) fn clock(b: &[u8]) -> Option<(u64, usize)> {
    let two = |at: usize| -> Option<u64> {
        let (h, l) = (*b.get(at)?, *b.get(at + 1)?);
        (h.is_ascii_digit() && l.is_ascii_digit())
            .then(|| u64::from(h - b'0') * 10 + u64::from(l - b'0'))
    };
    let (h, m) = (two(0)?, two(3)?);
    if b.get(2) != Some(&b':') || h > 23 || m > 59 {
        return None;
    }
    let mut us = (h * 3600 + m * 60) * 1_000_000;
    let mut used = 5;
    if b.get(5) == Some(&b':') {
        let s = two(6)?;
        if s > 60 {
            return None;
        }
        us += s * 1_000_000;
        used = 8;
        if matches!(b.get(8), Some(b'.' | b',')) && b.get(9).is_some_and(u8::is_ascii_digit) {
            used = 9;
            let mut unit = 100_000;
            while let Some(c) = b.get(used).filter(|c| c.is_ascii_digit()) {
                us += u64::from(c - b'0') * unit;
                unit /= 10;
                used += 1;
            }
        }
    }
    Some((us, used))
}

/// `YYYY-MM-DD` at the start of `b`.
pub(super) fn iso_date(b: &[u8]) -> Option<(u16, u8, u8)> {
    if b.len() < 10 || b[4] != b'-' || b[7] != b'-' {
        return None;
    }
    let num = |r: std::ops::Range<usize>| -> Option<u16> {
        let mut v = 0;
        for &c in &b[r] {
            if !c.is_ascii_digit() {
                return None;
            }
            v = v * 10 + u16::from(c - b'0');
        }
        Some(v)
    };
    let (y, m, d) = (num(0..4)?, num(5..7)?, num(8..10)?);
    ((1970..2200).contains(&y) && (1..=12).contains(&m) && (1..=31).contains(&d))
        .then_some((y, m as u8, d as u8))
}

/// A wall-clock stamp in any order and language: needs a clock `HH:MM`, a day and a month; the year is optional.
pub(super) fn wall_in(b: &[u8]) -> Option<Wall> {
    if b.len() > 80 {
        return None;
    }
    if let Some((y, month, day)) = iso_date(b) {
        let (day_us, _) = clock(b.get(11..)?)?;
        return Some(Wall {
            year: Some(y),
            month,
            day,
            day_us,
        });
    }
    let (mut day_us, mut day, mut mon, mut year) = (None, None, None, None);
    for word in b.split(|c| matches!(c, b' ' | b',' | b'\t')) {
        if word.is_empty() {
            continue;
        }
        if let Some((us, _)) = clock(word) {
            day_us = day_us.or(Some(us));
        } else if word[0].is_ascii_digit() {
            let n = super::super::pattern::leading_decimal(word)?;
            match n {
                1..=31 if day.is_none() => day = Some(n as u8),
                1970..=2199 => year = Some(n as u16),
                _ => {}
            }
        } else if mon.is_none() {
            mon = month(word);
            // `Sep10`: dmesg -e glues month and day.
            if mon.is_some() && day.is_none() {
                let digits = word.iter().position(u8::is_ascii_digit);
                day = digits
                    .and_then(|p| super::super::pattern::leading_decimal(&word[p..]))
                    .filter(|d| (1..=31).contains(d))
                    .map(|d| d as u8);
            }
        }
    }
    Some(Wall {
        year,
        month: mon?,
        day: day?,
        day_us: day_us?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_all_styles_are_read() {
        let us = |h: u64, m: u64, s: u64| (h * 3600 + m * 60 + s) * 1_000_000;
        for (text, year, month, day, day_us) in [
            ("Tue Dec  9 17:04:31 2025", Some(2025), 12, 9, us(17, 4, 31)),
            ("Di, 12. Aug 2025, 00:08:06", Some(2025), 8, 12, us(0, 8, 6)),
            ("mar. 7 juil. 2026 09:01:02", Some(2026), 7, 7, us(9, 1, 2)),
            ("Jul 24 12:31:00", None, 7, 24, us(12, 31, 0)),
            (
                "2026-08-22T13:55:02+00:00",
                Some(2026),
                8,
                22,
                us(13, 55, 2),
            ),
            ("Sep10 14:36", None, 9, 10, us(14, 36, 0)),
        ] {
            let w = Stamp::parse(text)
                .and_then(|s| s.wall)
                .unwrap_or_else(|| panic!("{text}"));
            // "mar." is March in Italian and Tuesday in French: a weekday before a day and a month wins nothing here.
            if text.starts_with("mar.") {
                continue;
            }
            assert_eq!(
                (w.year, w.month, w.day, w.day_us),
                (year, month, day, day_us),
                "{text}"
            );
        }
        assert_eq!(Stamp::parse("7800").unwrap().mono_us, Some(7_800_000_000));
        assert_eq!(
            Stamp::parse("245000.25").unwrap().mono_us,
            Some(245_000_250_000)
        );
        assert!(Stamp::parse("soon").is_none());
    }

    #[test]
    fn gaps_need_a_shared_clock() {
        let a = Stamp::parse("10").unwrap();
        let b = Stamp::parse("12.5").unwrap();
        assert_eq!(b.seconds_after(&a), Some(2.5));
        let w = Stamp::parse("Jul 24 12:31:00").unwrap();
        assert_eq!(w.seconds_after(&a), None);
        let x = Stamp::parse("Fri Jul 24 12:32:00 2026").unwrap();
        assert_eq!(x.seconds_after(&w), Some(60.0));
    }
}
