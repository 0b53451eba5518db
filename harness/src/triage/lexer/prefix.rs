//! What loggers put in front of a message.

use super::super::pattern::leading_decimal;
use super::stamp::{Stamp, clock, iso_date, seconds_to_us, wall_in};

/// Who wrote the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ident<'a> {
    /// The kernel, or a log that holds nothing else.
    Kernel,
    /// A program that writes to the journal, e.g. `systemd-oomd`.
    Program(&'a [u8]),
}

/// The prefix of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// Sequence number of a raw kmsg record.
    pub seq: Option<u64>,
    /// Its time.
    pub stamp: Stamp,
    /// syslog severity 0 (emerg) to 7 (debug), if printed.
    pub severity: Option<u8>,
    /// Who wrote it.
    pub ident: Ident<'a>,
    /// Whether the line is a raw kmsg record.
    pub raw_kmsg: bool,
    /// Whether any prefix was recognised.
    pub found: bool,
    /// The message.
    pub rest: &'a [u8],
}

/// Reads the prefix of a line.
#[must_use]
pub fn read(line: &[u8]) -> Prefix<'_> {
    let mut p = Prefix {
        seq: None,
        stamp: Stamp::default(),
        severity: None,
        ident: Ident::Kernel,
        raw_kmsg: false,
        found: false,
        rest: line,
    };
    if raw_kmsg(&mut p) {
        return p;
    }
    // Mail and Markdown quoting of bug reports.
    while let Some(rest) = p.rest.strip_prefix(b"> ") {
        p.rest = rest;
    }
    for _ in 0..6 {
        let step = priority(&mut p)
            || level(&mut p)
            || bracket(&mut p)
            || iso(&mut p)
            || syslog(&mut p)
            || kernel_word(&mut p);
        if !step {
            break;
        }
        p.found = true;
    }
    p
}

/// `6,1234,5678901,-;text` or `6,1234,5678901,-,caller=T12;text`.
fn raw_kmsg(p: &mut Prefix<'_>) -> bool {
    let b = p.rest;
    if !b.first().is_some_and(u8::is_ascii_digit) {
        return false;
    }
    let head_end = b.iter().take(80).position(|&c| c == b';');
    let Some(semi) = head_end else { return false };
    let mut fields = b[..semi].split(|&c| c == b',');
    let (Some(prio), Some(seq), Some(us), Some(_flag)) = (
        fields.next().and_then(all_decimal),
        fields.next().and_then(all_decimal),
        fields.next().and_then(all_decimal),
        fields.next(),
    ) else {
        return false;
    };
    p.seq = Some(seq);
    p.severity = Some((prio & 7) as u8);
    p.stamp.mono_us = Some(us);
    p.raw_kmsg = true;
    p.found = true;
    p.rest = &b[semi + 1..];
    // Facility 0 is the kernel; daemons write to /dev/kmsg with their own facility and name themselves.
    if prio >> 3 != 0 {
        if let Some((name, rest)) = name_pid(p.rest) {
            p.ident = Ident::Program(name);
            p.rest = rest;
        } else {
            p.ident = Ident::Program(b"user");
        }
    }
    true
}

fn all_decimal(b: &[u8]) -> Option<u64> {
    b.iter()
        .all(u8::is_ascii_digit)
        .then(|| leading_decimal(b))
        .flatten()
}

/// `<6>`.
fn priority(p: &mut Prefix<'_>) -> bool {
    let b = p.rest;
    if b.first() != Some(&b'<') || p.severity.is_some() {
        return false;
    }
    let Some(close) = b.iter().take(5).position(|&c| c == b'>') else {
        return false;
    };
    match all_decimal(&b[1..close]) {
        Some(n) if close > 1 => {
            p.severity = Some((n & 7) as u8);
            p.rest = &b[close + 1..];
            true
        }
        _ => false,
    }
}

/// `kern  :err   : ` as `dmesg -x` prints it.
fn level(p: &mut Prefix<'_>) -> bool {
    const FACILITIES: [&[u8]; 6] = [b"kern", b"user", b"daemon", b"syslog", b"auth", b"authpriv"];
    const LEVELS: [&[u8]; 8] = [
        b"emerg", b"alert", b"crit", b"err", b"warn", b"notice", b"info", b"debug",
    ];
    let b = p.rest;
    if !matches!(b.first(), Some(b'k' | b'u' | b'd' | b's' | b'a')) {
        return false;
    }
    let Some(first) = b.iter().take(12).position(|&c| c == b':') else {
        return false;
    };
    let Some(second) = b[first + 1..].iter().take(9).position(|&c| c == b':') else {
        return false;
    };
    let (fac, lev) = (
        b[..first].trim_ascii(),
        b[first + 1..first + 1 + second].trim_ascii(),
    );
    if !FACILITIES.contains(&fac) {
        return false;
    }
    let Some(n) = LEVELS.iter().position(|l| *l == lev) else {
        return false;
    };
    p.severity = Some(n as u8);
    p.rest = skip_blanks(&b[first + second + 2..]);
    true
}

fn skip_blanks(b: &[u8]) -> &[u8] {
    let n = b.iter().take_while(|c| matches!(c, b' ' | b'\t')).count();
    &b[n..]
}

/// `[   12.345678]`, `[Tue Dec  9 17:04:31 2025]`, `[  +0.000844]`, `[ T2548]`.
fn bracket(p: &mut Prefix<'_>) -> bool {
    let b = skip_blanks(p.rest);
    if b.first() != Some(&b'[') {
        return false;
    }
    let Some(close) = b.iter().take(64).position(|&c| c == b']') else {
        return false;
    };
    let inner = b[1..close].trim_ascii();
    let Some(&lead) = inner.first() else {
        return false;
    };
    let mut known = false;
    if lead.is_ascii_digit() && inner.contains(&b'.') {
        if let Some(us) = seconds_to_us(inner) {
            p.stamp.mono_us = p.stamp.mono_us.or(Some(us));
            known = true;
        }
    } else if lead == b'+' {
        if let Some(us) = seconds_to_us(&inner[1..]) {
            p.stamp.delta_us = Some(us);
            known = true;
        }
    } else if matches!(lead, b'T' | b'C')
        && inner.len() > 1
        && inner[1..].iter().all(u8::is_ascii_digit)
    {
        known = true;
    }
    if !known {
        if inner.len() < 9 || !inner.contains(&b':') || !has_clock(inner) {
            return false;
        }
        // A stamp in a language that is not known still is a stamp: opaque, ordered by position.
        p.stamp.wall = p.stamp.wall.or_else(|| wall_in(inner));
    }
    let after = &b[close + 1..];
    p.rest = after.strip_prefix(b" ").unwrap_or(after);
    true
}

fn has_clock(b: &[u8]) -> bool {
    b.iter()
        .enumerate()
        .any(|(i, c)| *c == b':' && i >= 2 && clock(&b[i - 2..]).is_some())
}

/// `2026-08-22T13:55:02.114093+00:00 host kernel: `, or without host and name.
fn iso<'a>(p: &mut Prefix<'a>) -> bool {
    let b = p.rest;
    if p.stamp.wall.is_some() || !b.first().is_some_and(u8::is_ascii_digit) {
        return false;
    }
    let Some((year, month, day)) = iso_date(b) else {
        return false;
    };
    if !matches!(b.get(10), Some(b'T' | b' ')) {
        return false;
    }
    let Some((day_us, used)) = clock(&b[11..]) else {
        return false;
    };
    let mut rest = &b[11 + used..];
    // Zone.
    if let Some(r) = rest.strip_prefix(b"Z") {
        rest = r;
    } else if matches!(rest.first(), Some(b'+' | b'-')) {
        let n = rest[1..]
            .iter()
            .take_while(|c| c.is_ascii_digit() || **c == b':')
            .count();
        rest = &rest[1 + n..];
    }
    p.stamp.wall = Some(super::stamp::Wall {
        year: Some(year),
        month,
        day,
        day_us,
    });
    p.rest = skip_blanks(rest);
    host_and_name(p, false);
    true
}

/// `Aug 08 22:35:13.316994 host kernel: ` in any language.
fn syslog(p: &mut Prefix<'_>) -> bool {
    let b = p.rest;
    if p.stamp.wall.is_some()
        || !b
            .first()
            .is_some_and(|c| c.is_ascii_alphabetic() || *c >= 0x80)
    {
        return false;
    }
    // Month, day, clock: three words, the third a clock.
    let Some(month_len) = b.iter().take(10).position(|&c| c == b' ') else {
        return false;
    };
    if month_len < 3 {
        return false;
    }
    let after = skip_blanks(&b[month_len..]);
    let day_len = after.iter().take_while(|c| c.is_ascii_digit()).count();
    if !(1..=2).contains(&day_len) {
        return false;
    }
    let at_clock = skip_blanks(after.get(day_len..).unwrap_or(b""));
    let Some((_, used)) = clock(at_clock) else {
        return false;
    };
    if used < 8 {
        return false;
    }
    let stamp_len = b.len() - at_clock.len() + used;
    p.stamp.wall = wall_in(&b[..stamp_len]);
    p.rest = skip_blanks(&at_clock[used..]);
    host_and_name(p, true);
    true
}

/// `host kernel: ` or `host name[pid]: `. In the ISO form a host is optional, so a bare name must be `kernel` or carry a pid.
fn host_and_name<'a>(p: &mut Prefix<'a>, always: bool) {
    let b: &'a [u8] = p.rest;
    if b.starts_with(b"kernel:") {
        return; // `kernel_word` takes it.
    }
    let Some(host_len) = b.iter().take(65).position(|&c| c == b' ') else {
        return;
    };
    let host = &b[..host_len];
    if host.is_empty() || host.contains(&b':') || host.contains(&b'[') {
        return;
    }
    let after = &b[host_len + 1..];
    if after.starts_with(b"kernel:") {
        p.rest = after;
        return;
    }
    if let Some((name, rest)) = name_pid(after) {
        p.ident = Ident::Program(name);
        p.rest = rest;
    } else if always
        && let Some(colon) = after.iter().take(48).position(|&c| c == b':')
        && after[..colon]
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/'))
        && after.get(colon + 1) == Some(&b' ')
    {
        p.ident = Ident::Program(&after[..colon]);
        p.rest = &after[colon + 2..];
    }
}

/// `name[123]: `.
fn name_pid(b: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = b.iter().take(48).position(|&c| c == b'[')?;
    let name = &b[..open];
    if name.is_empty() || name.iter().any(|c| matches!(c, b' ' | b':')) {
        return None;
    }
    let close = b[open..].iter().take(12).position(|&c| c == b']')? + open;
    all_decimal(&b[open + 1..close])?;
    let rest = b[close + 1..].strip_prefix(b":")?;
    Some((name, skip_blanks(rest)))
}

/// `kernel: `, with or without a host name before it.
fn kernel_word(p: &mut Prefix<'_>) -> bool {
    if let Some(rest) = p.rest.strip_prefix(b"kernel:") {
        p.rest = rest.strip_prefix(b" ").unwrap_or(rest);
        return true;
    }
    if p.stamp.mono_us.is_some()
        && let Some(sp) = p.rest.iter().take(65).position(|&c| c == b' ')
        && p.rest[sp + 1..].starts_with(b"kernel: ")
    {
        p.rest = &p.rest[sp + 9..];
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn rest(line: &str) -> String {
        String::from_utf8(read(line.as_bytes()).rest.to_vec()).unwrap()
    }

    #[test]
    fn every_prefix_style_leaves_the_same_message() {
        const M: &str = "amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!";
        for prefix in [
            "",
            "[  12.345678] ",
            "[12345.345678] ",
            "<3>[  12.345678] ",
            "[  12.345678][ T1946] ",
            "[  12.345678] [ T1946] ",
            "[ T2548] ",
            "[Tue Dec  9 17:04:31 2025] ",
            "[Di, 12. Aug 2025, 00:08:06] ",
            "[Вт дек  9 17:04:31 2025] ",
            "[  +0.000844] ",
            "[Sep10 14:36] ",
            "Aug 08 22:35:13 host kernel: ",
            "Aug  8 22:35:13 strix-1 kernel: ",
            "Aug 08 22:35:13.123456 host kernel: ",
            "Aug 08 22:35:13 host kernel: [68183.615790] ",
            "août 08 22:35:13 host kernel: ",
            "2026-08-22T13:55:02.114093+00:00 host kernel: ",
            "2026-09-10T10:40:31+0000 host kernel: ",
            "2026-09-10 10:40:31 host kernel: ",
            "2025-12-09T17:04:31,123456+01:00 ",
            "2025-12-09T17:04:31Z ",
            "kernel: ",
            "kernel: [1728595.660950] ",
            "[68183.615790] host kernel: ",
            "kern  :err   : [  12.345678] ",
            "6,1234,5678901,-;",
            "3,1234,5678901,-,caller=T1946;",
            "> [  12.345678] ",
        ] {
            assert_eq!(rest(&format!("{prefix}{M}")), M, "{prefix:?}");
        }
    }

    #[test]
    fn messages_that_start_with_brackets_are_kept() {
        assert_eq!(
            rest("[drm] VRAM is lost due to GPU reset!"),
            "[drm] VRAM is lost due to GPU reset!"
        );
        assert_eq!(rest("[ 1.0] [UFW BLOCK] IN=eth0"), "[UFW BLOCK] IN=eth0");
        assert_eq!(
            rest("[Hardware Error]: Corrected error"),
            "[Hardware Error]: Corrected error"
        );
        assert_eq!(
            rest("2025-12-09T17:04:31+00:00 kfd kfd: amdgpu: added"),
            "kfd kfd: amdgpu: added"
        );
        assert_eq!(
            rest("[ 1.0] llama-server[1]: segfault at 18"),
            "llama-server[1]: segfault at 18"
        );
    }

    #[test]
    fn programs_of_the_journal_are_told_from_the_kernel() {
        let p = read(
            b"2026-09-10T10:40:58+0000 host systemd-oomd[783]: Killed /x due to memory pressure",
        );
        assert_eq!(p.ident, Ident::Program(b"systemd-oomd"));
        assert_eq!(p.rest, b"Killed /x due to memory pressure");
        let p = read(b"Sep 11 00:43:02 host ollama[3110]: time=2025 level=INFO");
        assert_eq!(p.ident, Ident::Program(b"ollama"));
        let p = read(b"30,77,123456,-;systemd[1]: leg.service: Main process exited");
        assert_eq!(p.ident, Ident::Program(b"systemd"));
        assert_eq!((p.seq, p.stamp.mono_us), (Some(77), Some(123_456)));
    }
}
