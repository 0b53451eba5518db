//! One message: its driver, its device, its text.

use super::super::pci::Pci;
use super::prefix::{Ident, Prefix};
use super::stamp::Stamp;

/// One log message, split into what its writer said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// 1-based line in its source.
    pub line: u64,
    /// Sequence number, in a raw kmsg log.
    pub seq: Option<u64>,
    /// Its time.
    pub stamp: Stamp,
    /// Who wrote it.
    pub ident: Ident<'a>,
    /// syslog severity, if printed.
    pub severity: Option<u8>,
    /// Whether a log prefix was recognised.
    pub prefixed: bool,
    /// The driver or subsystem that names itself first, e.g. `amdgpu`, `NVRM`, `CIFS`; empty when none does.
    pub tag: &'a [u8],
    /// The pid in a `name[pid]:` tag.
    pub tag_pid: Option<u64>,
    /// The device it speaks of.
    pub device: Option<Pci>,
    /// Whether the message is marked `*ERROR*`.
    pub error: bool,
    /// The message after all prefixes, with leading blanks removed.
    pub body: &'a [u8],
    /// The message with its driver prefix.
    pub text: &'a [u8],
}

/// Splits the message of a line.
#[must_use]
pub fn split<'a>(line: u64, p: &Prefix<'a>) -> Record<'a> {
    let mut r = Record {
        line,
        seq: p.seq,
        stamp: p.stamp,
        ident: p.ident,
        severity: p.severity,
        prefixed: p.found,
        tag: b"",
        tag_pid: None,
        device: None,
        error: false,
        body: trim_start(p.rest),
        text: p.rest,
    };
    for _ in 0..8 {
        if !step(&mut r) {
            break;
        }
    }
    r
}

fn trim_start(b: &[u8]) -> &[u8] {
    let n = b.iter().take_while(|c| matches!(c, b' ' | b'\t')).count();
    &b[n..]
}

/// Takes one more prefix off the body; false when there is none.
fn step(r: &mut Record<'_>) -> bool {
    let b = r.body;
    match b.first() {
        Some(b'[') => {
            if let Some(rest) = b.strip_prefix(b"[drm] ") {
                tag(r, b"drm");
                r.body = trim_start(rest);
                return true;
            }
            if b.starts_with(b"[drm:") {
                // `[drm:function [module]]` nests once.
                let mut depth = 0usize;
                for (i, c) in b.iter().enumerate().take(160) {
                    match c {
                        b'[' => depth += 1,
                        b']' => {
                            depth = depth.saturating_sub(1);
                            if depth == 0 {
                                tag(r, b"drm");
                                r.body = trim_start(&b[i + 1..]);
                                return true;
                            }
                        }
                        _ => {}
                    }
                }
            }
            if let Some(rest) = b.strip_prefix(b"[Hardware Error]: ") {
                tag(r, b"Hardware Error");
                r.body = trim_start(rest);
                return true;
            }
            false
        }
        Some(b'*') => match b.strip_prefix(b"*ERROR* ") {
            Some(rest) => {
                r.error = true;
                r.body = trim_start(rest);
                true
            }
            None => false,
        },
        Some(b'{') => {
            // `{1}`: the event number of AMD's RAS reports.
            match b.iter().take(8).position(|&c| c == b'}') {
                Some(n) if n > 1 && b[1..n].iter().all(u8::is_ascii_digit) => {
                    r.body = trim_start(&b[n + 1..]);
                    true
                }
                _ => false,
            }
        }
        Some(c) if c.is_ascii_alphanumeric() => word(r),
        _ => false,
    }
}

fn tag<'a>(r: &mut Record<'a>, name: &'a [u8]) {
    // `amdgpu 0000:..: [drm] …` stays amdgpu; `[drm:… [amdgpu]]` and `[drm] amdgpu` are drm.
    if r.tag.is_empty() {
        r.tag = name;
    }
}

fn is_name(b: &[u8]) -> bool {
    !b.is_empty()
        && b.iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.' | b'/' | b'+'))
}

/// `amdgpu: `, `amdgpu 0000:c5:00.0: `, `r8169 0000:0a:00.0 lan0: `, `kfd kfd: `, `name[12]: `.
fn word(r: &mut Record<'_>) -> bool {
    let b = r.body;
    let limit = b.len().min(64);
    let Some(end) = b[..limit]
        .iter()
        .position(|&c| matches!(c, b' ' | b':' | b'['))
    else {
        return false;
    };
    let name = &b[..end];
    if !is_name(name) {
        return false;
    }
    match b[end] {
        b':' => {
            if b.get(end + 1) != Some(&b' ')
                || !(r.tag.is_empty() || r.tag == name || name == b"amdgpu")
            {
                return false;
            }
            tag(r, name);
            r.body = trim_start(&b[end + 1..]);
            true
        }
        b'[' => {
            if !r.tag.is_empty() {
                return false;
            }
            let Some(close) = b[end..].iter().take(12).position(|&c| c == b']') else {
                return false;
            };
            let digits = &b[end + 1..end + close];
            let after = &b[end + close + 1..];
            let Some(pid) = super::super::pattern::leading_decimal(digits) else {
                return false;
            };
            let Some(rest) = after.strip_prefix(b":") else {
                return false;
            };
            r.tag_pid = Some(pid);
            tag(r, name);
            r.body = trim_start(rest);
            true
        }
        _ => {
            if r.device.is_some() {
                return false;
            }
            let after = trim_start(&b[end..]);
            // `driver 0000:c5:00.0: ` and `driver 0000:c5:00.0 netdev: `.
            let Some(stop) = after[..after.len().min(24)].iter().position(|&c| c == b' ') else {
                return false;
            };
            let address = &after[..stop];
            if let Some(device) = address.strip_suffix(b":").and_then(Pci::parse) {
                tag(r, name);
                r.device = Some(device);
                r.body = trim_start(&after[stop..]);
                return true;
            }
            if let Some(device) = Pci::parse(address) {
                let tail = trim_start(&after[stop..]);
                let Some(colon) = tail[..tail.len().min(24)].iter().position(|&c| c == b':') else {
                    return false;
                };
                if is_name(&tail[..colon]) && tail.get(colon + 1) == Some(&b' ') {
                    tag(r, name);
                    r.device = Some(device);
                    r.body = trim_start(&tail[colon + 1..]);
                    return true;
                }
                return false;
            }
            // `kfd kfd: `, `nvme nvme0: `.
            if address.starts_with(name) && address.ends_with(b":") {
                tag(r, name);
                r.body = trim_start(&after[stop..]);
                return true;
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefix::read;
    use super::*;

    #[track_caller]
    fn record(line: &str) -> (String, Option<String>, bool, String) {
        let p = read(line.as_bytes());
        let r = split(1, &p);
        (
            String::from_utf8_lossy(r.tag).into_owned(),
            r.device.map(|d| d.to_string()),
            r.error,
            String::from_utf8_lossy(r.body).into_owned(),
        )
    }

    #[test]
    fn drivers_and_devices_are_split_off() {
        let gpu = Some("0000:c5:00.0".to_owned());
        assert_eq!(
            record("amdgpu 0000:c5:00.0: amdgpu: MODE2 reset"),
            ("amdgpu".into(), gpu.clone(), false, "MODE2 reset".into())
        );
        assert_eq!(
            record("amdgpu 0000:c5:00.0: MODE2 reset"),
            ("amdgpu".into(), gpu.clone(), false, "MODE2 reset".into())
        );
        assert_eq!(
            record("amdgpu 0000:c5:00.0: amdgpu: [drm] VRAM is lost"),
            ("amdgpu".into(), gpu.clone(), false, "VRAM is lost".into())
        );
        assert_eq!(
            record("amdgpu 0000:c5:00.0: [drm] *ERROR* flip_done"),
            ("amdgpu".into(), gpu.clone(), true, "flip_done".into())
        );
        assert_eq!(
            record("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout"),
            ("drm".into(), None, true, "ring sdma0 timeout".into())
        );
        assert_eq!(
            record("amdgpu 0000:c5:00.0: {1}uncorrectable hardware error"),
            (
                "amdgpu".into(),
                gpu,
                false,
                "uncorrectable hardware error".into()
            )
        );
        assert_eq!(
            record("r8169 0000:0a:00.0 lan0: NETDEV WATCHDOG: x").3,
            "NETDEV WATCHDOG: x"
        );
        assert_eq!(record("kfd kfd: amdgpu: added device").3, "added device");
        assert_eq!(record("NVRM: Xid (PCI:0000:01:00): 31, pid=1").0, "NVRM");
    }

    #[test]
    fn echoed_device_names_do_not_become_drivers() {
        let r = record("input: NVRM: Xid (PCI:0000:01:00): 79 as /devices/virtual/input/input42");
        assert_eq!(r.0, "input");
        assert!(r.3.starts_with("NVRM:"));
        let r = record(
            "hid-generic 0005:046D:B023.0007: input,hidraw6: Keyboard [amdgpu 0000:0f:00.0: x]",
        );
        assert_ne!(r.0, "amdgpu");
    }
}
