//! Text from outside made fit to print, and process ends in words.

use crate::model::{Exit, TimedOut};

use super::ABSENT;

/// One printable line: line ends are written `\n` and `\r`, other control characters become their pictures (`␛` for ESC),
/// so that a captured line cannot move the cursor, change colours or break a table. Tabs become a space.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push(' '),
            '\u{7f}' => out.push('␡'),
            c if (c as u32) < 0x20 => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('�')),
            // C1 controls and the marks that turn the direction of text
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('�')
            }
            c => out.push(c),
        }
    }
    out
}

/// At most `max` characters, the cut marked with `…`.
#[must_use]
pub fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Generated text in quotation marks, in one line of at most `max` characters.
#[must_use]
pub fn quote(text: &str, max: usize) -> String {
    format!("\"{}\"", shorten(&clean(text), max))
}

/// Names of the signals 1 to 31 on Linux (x86-64 and aarch64 agree).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// `SIGSEGV` for 11; `signal 42` for a number without a name.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    usize::try_from(signal)
        .ok()
        .and_then(|s| s.checked_sub(1))
        .and_then(|i| SIGNALS.get(i))
        .map_or_else(|| format!("signal {signal}"), |n| format!("SIG{n}"))
}

/// 11 for `SIGSEGV`, `SEGV` or `segv`.
#[must_use]
pub fn signal_number(name: &str) -> Option<i32> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = SIGNALS.iter().position(|s| *s == short)?;
    i32::try_from(found + 1).ok()
}

/// How a leader ended: `0`, `3`, `SIGSEGV, core`, `timeout (total)`, `–` when its status was lost.
#[must_use]
pub fn exit_words(exit: &Exit) -> String {
    let end = match (exit.code, exit.signal) {
        (_, Some(signal)) => signal_name(signal),
        (Some(code), None) => code.to_string(),
        (None, None) => ABSENT.to_owned(),
    };
    let end = match &exit.timed_out {
        None => end,
        Some(TimedOut::Phase(name)) => format!("timeout (phase {})", clean(name)),
        Some(TimedOut::Total) => "timeout (total)".to_owned(),
        Some(TimedOut::Idle) => "timeout (idle)".to_owned(),
        Some(TimedOut::Lease) => "timeout (lease)".to_owned(),
    };
    if exit.core_dumped {
        format!("{end}, core")
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_text_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[31mred\r\nb\tc\u{9b}"), "a␛[31mred\\r\\nb c�");
        assert_eq!(clean(" Paris – Œuvre 🙂"), " Paris – Œuvre 🙂");
        assert_eq!(clean("\u{202e}txt"), "�txt");
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
        assert_eq!(quote(" Paris\n", 40), "\" Paris\\n\"");
    }

    #[test]
    fn signals_have_names_both_ways() {
        for n in 1..=31 {
            assert_eq!(signal_number(&signal_name(n)), Some(n));
        }
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(34), "signal 34");
        assert_eq!(signal_name(0), "signal 0");
        assert_eq!(signal_number("segv"), Some(11));
        assert_eq!(signal_number("SIGNAL"), None);
    }

    #[test]
    fn ends_in_words() {
        let mut exit = Exit::default();
        assert_eq!(exit_words(&exit), "–");
        exit.code = Some(3);
        assert_eq!(exit_words(&exit), "3");
        exit.code = None;
        exit.signal = Some(6);
        exit.core_dumped = true;
        assert_eq!(exit_words(&exit), "SIGABRT, core");
        exit.core_dumped = false;
        exit.timed_out = Some(TimedOut::Phase("load".into()));
        assert_eq!(exit_words(&exit), "timeout (phase load)");
    }
}
