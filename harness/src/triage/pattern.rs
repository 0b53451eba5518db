//! A small template language for log lines: literal text with `{name}` holes.
//!
//! - A hole takes the shortest text up to the literal that follows it; at the end of a template it takes the rest.
//! - One blank in a template stands for one or more blanks or tabs in the line.
//! - A template that starts with `*` may begin anywhere in the line; all others are anchored at its start.
//!
//! Templates work on bytes, so that a log in any encoding can be read.

use memchr::memmem;

const MAX_HOLES: usize = 8;

/// What the holes of a template took.
#[derive(Debug, Clone, Copy)]
pub struct Caps<'a> {
    names: [&'static str; MAX_HOLES],
    values: [&'a [u8]; MAX_HOLES],
    len: usize,
}

impl<'a> Caps<'a> {
    fn new() -> Self {
        Caps {
            names: [""; MAX_HOLES],
            values: [b""; MAX_HOLES],
            len: 0,
        }
    }

    fn push(&mut self, name: &'static str, value: &'a [u8]) {
        if self.len < MAX_HOLES {
            self.names[self.len] = name;
            self.values[self.len] = value;
            self.len += 1;
        }
    }

    /// The text that the hole `name` took, trimmed; empty when there is no such hole.
    #[must_use]
    pub fn bytes(&self, name: &str) -> &'a [u8] {
        for i in 0..self.len {
            if self.names[i] == name {
                return self.values[i].trim_ascii();
            }
        }
        b""
    }

    /// The same as text; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        let mut s = String::from_utf8_lossy(self.bytes(name)).into_owned();
        if s.len() > 200 {
            let cut = (0..=200)
                .rev()
                .find(|&i| s.is_char_boundary(i))
                .unwrap_or(0);
            s.truncate(cut);
        }
        s
    }

    /// The decimal number at the start of the hole's text.
    #[must_use]
    pub fn num(&self, name: &str) -> Option<u64> {
        leading_decimal(self.bytes(name))
    }

    /// The number in the hole, `0x…` or hexadecimal without prefix.
    #[must_use]
    pub fn hex(&self, name: &str) -> Option<u64> {
        parse_hex(self.bytes(name))
    }
}

/// The decimal number at the start of `b`, if it starts with a digit and fits.
#[must_use]
pub fn leading_decimal(b: &[u8]) -> Option<u64> {
    let n = b.iter().take_while(|c| c.is_ascii_digit()).count();
    if n == 0 || n > 19 {
        return None;
    }
    std::str::from_utf8(&b[..n]).ok()?.parse().ok()
}

/// The hexadecimal number at the start of `b`, with or without `0x`; underscores (as in Xid addresses) are skipped.
#[must_use]
pub fn parse_hex(b: &[u8]) -> Option<u64> {
    let b = b
        .strip_prefix(b"0x")
        .or_else(|| b.strip_prefix(b"0X"))
        .unwrap_or(b);
    let mut value: u64 = 0;
    let mut digits = 0;
    for &c in b {
        let d = match c {
            b'0'..=b'9' => c - b'0',
            b'a'..=b'f' => c - b'a' + 10,
            b'A'..=b'F' => c - b'A' + 10,
            b'_' if digits > 0 => continue,
            _ => break,
        };
        digits += 1;
        if digits > 16 {
            return None;
        }
        value = (value << 4) | u64::from(d);
    }
    (digits > 0).then_some(value)
}

/// Matches a literal (blanks stretch) at the start of `line`; returns the bytes used.
fn literal_at(lit: &[u8], line: &[u8]) -> Option<usize> {
    let mut at = 0;
    for &c in lit {
        if c == b' ' {
            let n = line[at..]
                .iter()
                .take_while(|&&b| b == b' ' || b == b'\t')
                .count();
            if n == 0 {
                return None;
            }
            at += n;
        } else if line.get(at) == Some(&c) {
            at += 1;
        } else {
            return None;
        }
    }
    Some(at)
}

/// Finds a literal (blanks stretch); returns its start and the position after it.
fn literal_in(lit: &[u8], line: &[u8]) -> Option<(usize, usize)> {
    // Search for the part before the first blank, then check the whole.
    let head_len = lit.iter().position(|&c| c == b' ').unwrap_or(lit.len());
    if head_len == 0 {
        // Starts with a blank: try every blank.
        let mut from = 0;
        while let Some(p) = line[from..].iter().position(|&b| b == b' ' || b == b'\t') {
            let start = from + p;
            if let Some(n) = literal_at(lit, &line[start..]) {
                return Some((start, start + n));
            }
            from = start + 1;
        }
        return None;
    }
    let head = &lit[..head_len];
    let mut from = 0;
    while let Some(p) = memmem::find(&line[from..], head) {
        let start = from + p;
        if let Some(n) = literal_at(lit, &line[start..]) {
            return Some((start, start + n));
        }
        from = start + 1;
    }
    None
}

/// Splits a template at its next hole: the literal before it, the hole's name, what follows.
fn next_hole(tpl: &'static str) -> (&'static str, Option<(&'static str, &'static str)>) {
    let bytes = tpl.as_bytes();
    let Some(open) = memchr::memchr(b'{', bytes) else {
        return (tpl, None);
    };
    let Some(len) = memchr::memchr(b'}', &bytes[open..]) else {
        return (tpl, None);
    };
    let close = open + len;
    (
        &tpl[..open],
        Some((&tpl[open + 1..close], &tpl[close + 1..])),
    )
}

/// Matches `line` against a template.
#[must_use]
pub fn matches<'a>(template: &'static str, line: &'a [u8]) -> Option<Caps<'a>> {
    let (anywhere, template) = match template.strip_prefix('*') {
        Some(rest) => (true, rest),
        None => (false, template),
    };
    let (first, mut hole) = next_hole(template);
    let mut at = if anywhere && !first.is_empty() {
        literal_in(first.as_bytes(), line)?.1
    } else {
        literal_at(first.as_bytes(), line)?
    };
    if hole.is_none() {
        return Some(Caps::new());
    }
    let mut caps = Caps::new();
    while let Some((name, rest)) = hole {
        let (lit, next) = next_hole(rest);
        if lit.is_empty() {
            // The last hole, or two holes without text between them: take the rest.
            caps.push(name, &line[at..]);
            return Some(caps);
        }
        let (start, end) = literal_in(lit.as_bytes(), &line[at..])?;
        caps.push(name, &line[at..at + start]);
        at += end;
        hole = next;
    }
    Some(caps)
}

/// The longest literal piece without blanks of a template: what a prefilter searches for.
#[must_use]
pub fn longest_literal(template: &'static str) -> &'static str {
    let mut rest = template.strip_prefix('*').unwrap_or(template);
    let mut best = "";
    loop {
        let (lit, hole) = next_hole(rest);
        for piece in lit.split(' ') {
            if piece.len() > best.len() {
                best = piece;
            }
        }
        match hole {
            Some((_, next)) => rest = next,
            None => return best,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_the_shortest_text() {
        let c = matches(
            "ring {ring} timeout, signaled seq={s}, emitted seq={e}",
            b"ring gfx_0.0.0 timeout, signaled seq=12, emitted seq=13",
        )
        .unwrap();
        assert_eq!(c.bytes("ring"), b"gfx_0.0.0");
        assert_eq!(c.num("s"), Some(12));
        assert_eq!(c.num("e"), Some(13));
    }

    #[test]
    fn blanks_stretch_and_anchors_hold() {
        assert!(matches("Source: {n}", b"Source:    3").is_some());
        assert!(matches("Source: {n}", b"x Source: 3").is_none());
        assert_eq!(
            matches("*Source: {n}", b"x Source: \t3").unwrap().num("n"),
            Some(3)
        );
        assert!(matches("Source: {n}", b"Source:3").is_none());
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(parse_hex(b"0xFFFFFFFF"), Some(0xffff_ffff));
        assert_eq!(parse_hex(b"0x7e9f_4f200000."), Some(0x7e9f_4f20_0000));
        assert_eq!(parse_hex(b"11111111111111111"), None);
        assert_eq!(leading_decimal(b"99999999999999999999"), None);
        assert_eq!(leading_decimal(b"x"), None);
    }

    #[test]
    fn the_prefilter_literal_is_part_of_every_match() {
        assert_eq!(longest_literal("*HIP out of memory. Tried {x}"), "memory.");
    }
}
