//! Titles for deduplication: the guilty first event in words, with addresses, pids and numbers normalised.

use super::finding::{Finding, ResetStep};
use super::verdict::{Decision, Evidence};

/// The title of a decision.
#[must_use]
pub fn of(ev: &Evidence<'_>, d: &Decision) -> String {
    let text = match d.decides.first().map(|&i| &ev.events[i]) {
        Some(e) => words(&e.finding, e.text()),
        None => match &d.fact {
            Some((source, text, _)) if *source != "exit" => format!("{source}: {text}"),
            Some((_, text, _)) => text.clone(),
            None => String::new(),
        },
    };
    normalise(&format!("{}: {text}", d.kind))
}

fn words(f: &Finding, line: &str) -> String {
    match f {
        Finding::GpuPageFault(p) => {
            let access = match p.write() {
                Some(true) => "write",
                Some(false) => "read",
                None => "access",
            };
            let who = p
                .process
                .as_ref()
                .filter(|p| !p.is_nobody())
                .map_or_else(|| "nobody".to_owned(), |p| p.comm.clone());
            format!("{access} by {} in {who}", p.client().words())
        }
        Finding::MesTimeout { msg } if msg.is_empty() => "MES does not answer".to_owned(),
        Finding::MesTimeout { msg } => format!("MES does not answer {msg}"),
        Finding::HwsTimeout => "HWS does not preempt".to_owned(),
        Finding::RingTimeout { ring, .. } => format!("ring {ring} timeout"),
        Finding::GpuReset(ResetStep::Failed(code)) => format!("GPU reset failed with {code}"),
        Finding::SqInterrupt { kind, .. } => format!(
            "wave interrupt type {}",
            match kind {
                0 => "EDC FUE",
                1 => "illegal instruction",
                2 => "memory violation",
                _ => "EDC FED",
            }
        ),
        Finding::CpuFault {
            what,
            module,
            process,
            ..
        } => format!(
            "{what} in {} of {}",
            if module.is_empty() { "?" } else { module },
            process.comm
        ),
        Finding::OomKill {
            process: Some(p), ..
        } => format!("killed {}", p.comm),
        Finding::Xid { process, .. } => {
            format!("in {}", process.as_ref().map_or("?", |p| p.comm.as_str()))
        }
        Finding::RasError { block, .. } => format!("RAS error in {block}"),
        _ => line.to_owned(),
    }
}

/// Replaces what differs between two occurrences of the same trouble; applied until nothing changes any more.
#[must_use]
pub fn normalise(text: &str) -> String {
    let mut now = text.to_owned();
    for _ in 0..8 {
        let next = once(&now);
        if next == now {
            break;
        }
        now = next;
    }
    let cut = now.char_indices().nth(160).map_or(now.len(), |(i, _)| i);
    now.truncate(cut);
    now.trim_end().to_owned()
}

/// Words in which digits are part of a name.
fn is_name(word: &str) -> bool {
    let w = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let letters = w.bytes().take_while(u8::is_ascii_alphabetic).count();
    let rest = &w[letters..];
    // `xid-31`, `gfx1151`, `sdma0`, `MODE2`, `libfoo.so.1`; but not `pid2327` or `0x…`.
    matches!(
        w[..letters].to_ascii_lowercase().as_str(),
        "xid" | "gfx" | "sdma" | "mode" | "mes" | "int" | "iq" | "q" | "fp" | "bf"
    ) && rest.len() <= 6
}

fn once(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        out.push(word_of(word));
    }
    out.join(" ")
}

fn word_of(word: &str) -> String {
    if is_name(word) {
        return word.to_owned();
    }
    let b = word.as_bytes();
    let mut out = String::new();
    let mut i = 0;
    while i < b.len() {
        // An address or a number, with the separators of addresses, versions and times inside it.
        if b[i].is_ascii_digit() {
            let hex = b[i] == b'0' && b.get(i + 1).is_some_and(|c| matches!(c, b'x' | b'X'));
            if hex {
                i += 2;
            }
            while i < b.len()
                && (b[i].is_ascii_hexdigit()
                    || matches!(b[i], b'.' | b':' | b'_')
                        && b.get(i + 1).is_some_and(u8::is_ascii_hexdigit))
            {
                i += 1;
            }
            out.push_str(if hex { "ADDR" } else { "N" });
            continue;
        }
        let ch_len = word[i..].chars().next().map_or(1, char::len_utf8);
        out.push_str(&word[i..i + ch_len]);
        i += ch_len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_of_one_trouble_share_a_title() {
        for (a, b) in [
            (
                "fault at 0x7f00deadbeef by python[2327]",
                "fault at 0x7e1100000000 by python[9]",
            ),
            ("amdgpu 0000:c5:00.0: x", "amdgpu 0000:03:00.0: x"),
            ("took 12.5ms", "took 7ms"),
        ] {
            assert_eq!(normalise(a), normalise(b));
        }
        assert_ne!(normalise("xid-31: in a"), normalise("xid-13: in a"));
    }

    #[test]
    fn a_title_is_a_fixpoint() {
        for t in [
            "a 0x1f b 12:00:01 c[4] 0xN N",
            "lib.so.7.2.70201[2b09df]",
            "x86/amd: 0x08000800",
            "ünïcode 1é2",
        ] {
            let n = normalise(t);
            assert_eq!(normalise(&n), n, "{t}");
        }
    }
}
