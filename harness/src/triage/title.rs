//! Titles for deduplication: the guilty first event in words, with addresses, pids and numbers normalised.

use super::finding::{Finding, ResetStep, Word};
use super::verdict::{Decision, Evidence, describe, signal_name};

/// The title of a decision.
#[must_use]
pub fn of(ev: &Evidence<'_>, d: &Decision) -> String {
    let text = match d.decides.first().map(|&i| &ev.events[i]) {
        Some(e) => words(&e.finding, message(e.text(), &e.driver)),
        None => match &d.fact {
            Some((source, text, _)) if *source != "exit" => format!("{source}: {text}"),
            Some(_) => match (ev.ending.signal, ev.ending.code) {
                (Some(n), _) => signal_name(n).to_owned(),
                (None, Some(c)) => format!("rc{c}"),
                (None, None) => describe(ev),
            },
            None => String::new(),
        },
    };
    normalise(&format!("{}: {text}", d.kind))
}

/// The message without the driver and device in front of it.
fn message<'a>(text: &'a str, driver: &str) -> &'a str {
    let mut rest = text.trim_start();
    if driver.is_empty() {
        return rest;
    }
    for _ in 0..3 {
        match rest.split_once(": ") {
            Some((head, tail)) if head.starts_with(driver) && head.len() < 40 => {
                rest = tail.trim_start()
            }
            _ => break,
        }
    }
    rest
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
        Finding::SmuFailure { .. } => "SMU does not answer".to_owned(),
        Finding::DeviceLost => "the device does not answer".to_owned(),
        Finding::Mce { .. } => "uncorrected machine check".to_owned(),
        Finding::Aer { severity, .. } => format!("{severity:?} PCI Express error"),
        Finding::Thermal { .. } => "over temperature".to_owned(),
        Finding::ShareLost { .. } => "the share does not answer".to_owned(),
        Finding::IommuFault { .. } => "IO page fault".to_owned(),
        Finding::SvmLimit => "resident system memory limit".to_owned(),
        Finding::NetworkLost => "a network card stopped sending".to_owned(),
        Finding::HungTask { process, frames } => {
            format!(
                "{} blocked{}{frames}",
                process.comm,
                if frames.is_empty() { "" } else { " in " }
            )
        }
        Finding::QueueCreateFailed { code } => format!(
            "queue refused with {}",
            match code {
                -22 => "EINVAL",
                -12 => "ENOMEM",
                _ => "an error",
            }
        ),
        Finding::RasError { block, .. } => format!("RAS error in {block}"),
        Finding::Program { word, detail } => said(*word, detail),
        _ => line.to_owned(),
    }
}

/// What the program said, without the runtime's own prefix.
fn said(word: Word, detail: &str) -> String {
    let label = match word {
        Word::MemoryAccessFault => "memory access fault reported by ROCr",
        Word::HwException => "HW exception reported by ROCr",
        Word::ApertureViolation => "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",
        Word::IllegalInstruction => "illegal shader instruction",
        Word::QueueException => "HSA_STATUS_ERROR_EXCEPTION",
        Word::OutOfResources => "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        Word::HsaError => "HSA_STATUS_ERROR",
        Word::DeviceAssert => "device-side assertion",
        Word::IllegalAddress => "illegal memory access reported by the runtime",
        Word::LaunchFailure => "unspecified launch failure",
        Word::LaunchTimeout => "launch timed out",
        Word::DeviceOom => "out of device memory",
        Word::HostOom => "out of host memory",
        Word::NoCodeObject => "no usable code object",
        Word::MemoryCritical => "memory critical error",
        Word::QueueCreate => "queue refused",
        Word::NoDevice => "no device",
        Word::OpRefused => "no kernel for op",
        Word::EngineFatal => "engine-fatal",
        Word::HostAssert => "assertion",
        Word::HeapCorrupt => "heap corruption found by the C library",
        Word::Terminate => "terminate",
        Word::CrashEcho => "crash",
        Word::Traceback => "traceback",
        Word::DiskFull => "no space left",
        Word::ReadError => "read error",
        Word::HostDown => "host is down",
        Word::EnvMissing => "missing",
        Word::BadInput => "bad input file",
        Word::DeviceEcc => "uncorrectable ECC error",
        Word::DeviceLost => "device is gone",
        Word::ResetNeeded => "reset needed",
        Word::WaitedInVain => "waited in vain",
        Word::VulkanLost => "Vulkan device lost",
        Word::PeerLost => "peer lost",
    };
    let tells = matches!(
        word,
        Word::OpRefused
            | Word::EngineFatal
            | Word::HostAssert
            | Word::Terminate
            | Word::EnvMissing
            | Word::HsaError
    );
    if tells && !detail.is_empty() {
        format!("{label} {detail}")
    } else {
        label.to_owned()
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
    if w.starts_with("lib") || w.starts_with("python") {
        return false; // `word_of` knows them.
    }
    matches!(
        w[..letters].to_ascii_lowercase().as_str(),
        "xid" | "gfx" | "sdma" | "mode" | "mes" | "int" | "iq" | "q" | "fp" | "bf" | "rc"
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
    // A library keeps its name and loses its version, a Python keeps its major version.
    if let Some(so) = word.find(".so").filter(|_| word.starts_with("lib")) {
        return word[..so + 3].to_owned();
    }
    if let Some(rest) = word.strip_prefix("python")
        && rest.len() == 1
    {
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
