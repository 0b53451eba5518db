//! The CPU's side: traps, segfaults, machine checks, hung tasks, kernel bugs, reset reasons.

use super::sources::{HUNG, MCE, RESET_REASON, TRAPS};
use super::{Row, row};
use crate::triage::finding::{Finding, Proc, ResetCause};
use crate::triage::lexer::Record;
use crate::triage::pattern::{Caps, leading_decimal, matches};

fn module_of(text: &str) -> String {
    // `error 4 in libcuda.so.570[5189d7,7f00…+d1c000] likely on CPU 4`
    let Some(p) = text.find(" in ") else {
        return String::new();
    };
    let rest = &text[p + 4..];
    rest.split(['[', ' ']).next().unwrap_or("").to_owned()
}

/// `python[2327] general protection fault ip:7fd7 sp:7f61 error:0 in libamdhip64.so[2b09df,…]` after `traps: `.
fn trap(c: &Caps<'_>) -> Option<Finding> {
    let tail = c.text("tail");
    let what = c.text("what");
    let process = proc_pid(c.bytes("who"))?;
    // Breakpoints and divisions are traps too; the name of the trap is kept.
    Some(Finding::CpuFault {
        module: module_of(&format!(" {tail}")),
        ip: ip_in_module(&tail).or_else(|| c.hex("ip")),
        what: what.trim_start_matches("trap ").to_owned(),
        process,
    })
}

/// `name[123]`; the name may hold blanks and brackets.
fn proc_pid(b: &[u8]) -> Option<Proc> {
    let b = b.strip_suffix(b"]")?;
    let open = b.iter().rposition(|&c| c == b'[')?;
    Some(Proc {
        comm: String::from_utf8_lossy(&b[..open]).into_owned(),
        pid: Some(leading_decimal(&b[open + 1..])?),
        ..Proc::default()
    })
}

/// The offset in the module when the kernel prints it (`lib.so[a41d0,7f1f+2c0000]`).
fn ip_in_module(tail: &str) -> Option<u64> {
    let open = tail.find('[')?;
    let inner = &tail[open + 1..];
    let comma = inner.find([',', '+', ']'])?;
    if inner.as_bytes().get(comma) != Some(&b',') {
        return None;
    }
    crate::triage::pattern::parse_hex(&inner.as_bytes()[..comma])
}

/// After `traps: `.
pub const AFTER_TRAPS: &[Row] = &[
    row(
        "{who} general protection fault ip:{ip} sp:{tail}",
        |c| with_what(c, "general protection fault"),
        TRAPS,
    ),
    row(
        "{who} general protection ip:{ip} sp:{tail}",
        |c| with_what(c, "general protection fault"),
        TRAPS,
    ),
    row("{who} trap {what} ip:{ip} sp:{tail}", trap, TRAPS),
];

fn with_what(c: &Caps<'_>, what: &str) -> Option<Finding> {
    let tail = c.text("tail");
    Some(Finding::CpuFault {
        module: module_of(&format!(" {tail}")),
        ip: ip_in_module(&tail).or_else(|| c.hex("ip")),
        what: what.to_owned(),
        process: proc_pid(c.bytes("who"))?,
    })
}

/// `llama-server[80906]: segfault at 204803fe0 ip … error 4 in libcuda.so…`: the tag is the process.
pub(super) fn own_line(r: &Record<'_>) -> Option<(Finding, &'static str)> {
    const WORDS: [(&str, &str); 4] = [
        ("segfault at {a} ip {ip} sp {tail}", "segfault"),
        (
            "general protection fault ip:{ip} sp:{tail}",
            "general protection fault",
        ),
        ("unhandled signal {ip} code {tail}", "unhandled signal"),
        ("bad frame in {tail}", "bad signal frame"),
    ];
    for (template, what) in WORDS {
        if let Some(c) = matches(template, r.body) {
            let tail = c.text("tail");
            return Some((
                Finding::CpuFault {
                    what: what.to_owned(),
                    module: module_of(&format!(" {tail}")),
                    ip: ip_in_module(&tail).or_else(|| c.hex("ip")),
                    process: Proc {
                        comm: String::from_utf8_lossy(r.tag).into_owned(),
                        pid: r.tag_pid,
                        ..Proc::default()
                    },
                },
                super::sources::TRAPS,
            ));
        }
    }
    None
}

fn segfault_any(c: &Caps<'_>) -> Option<Finding> {
    // Names with blanks or odd characters are not split off as a tag.
    let who = c.bytes("who");
    let tail = c.text("tail");
    Some(Finding::CpuFault {
        what: "segfault".to_owned(),
        module: module_of(&format!(" {tail}")),
        ip: ip_in_module(&tail).or_else(|| c.hex("ip")),
        process: proc_pid(who)?,
    })
}

fn mce_status(c: &Caps<'_>) -> Option<Finding> {
    // `CPU:21 (19:21:0) MC5_STATUS[-|UE|MiscV|AddrV|PCC|…]: 0x…`
    let flags = c.text("flags");
    let has = |f: &str| flags.split('|').any(|w| w == f);
    Some(Finding::Mce {
        corrected: !(has("UE") || has("UC") || has("PCC")) || has("Deferred"),
    })
}

fn mce_bank(c: &Caps<'_>) -> Option<Finding> {
    // `CPU 0: Machine Check: 0 Bank 5: bea0000000000108`: bit 61 is UC, bit 57 is PCC (AMD64 and Intel SDM alike).
    let v = c.hex("v")?;
    Some(Finding::Mce {
        corrected: v >> 61 & 1 == 0,
    })
}

fn reset_cause(c: &Caps<'_>) -> Option<Finding> {
    let words = c.text("words");
    let w = words.to_ascii_lowercase();
    let cause = if w.contains("sync flood")
        || w.contains("uncorrected")
        || w.contains("parity")
        || w.contains("ecc error")
        || w.contains("fatal")
    {
        ResetCause::Hardware
    } else if w.contains("thermal") || w.contains("overtemp") {
        ResetCause::Thermal
    } else if w.contains("watchdog") {
        ResetCause::Watchdog
    } else if w.contains("reset pin")
        || w.contains("rst_l")
        || w.contains("reset button")
        || w.contains("pwrbtn")
        || w.contains("power button")
        || w.contains("power off")
        || w.contains("remote host")
        || w.contains("4s")
        || w.contains("four second")
    {
        ResetCause::External
    } else if w.contains("power") || w.contains("pwr") {
        ResetCause::Power
    } else {
        ResetCause::Software
    };
    Some(Finding::HostReset { cause, words })
}

fn fatal(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::Mce { corrected: false })
}

fn throttled(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::Thermal { critical: false })
}

fn corrected(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::Mce { corrected: true })
}

/// `[Hardware Error]: `, `mce: ` and `x86/amd: ` lines.
pub const HARDWARE: &[Row] = &[
    row(
        "Previous system reset reason [{code}]: {words}",
        reset_cause,
        RESET_REASON,
    ),
    row("Corrected error, no action required", corrected, MCE),
    row("Deferred error, no action required", corrected, MCE),
    row("System Fatal error", fatal, MCE),
    row("Uncorrected, software restartable error", fatal, MCE),
    row("Uncorrected, software containable error", fatal, MCE),
    row("CPU:{cpu} MC{bank}_STATUS[{flags}]: {v}", mce_status, MCE),
    row(
        "[Hardware Error]: CPU {cpu}: Machine Check: {n} Bank {bank}: {v}",
        mce_bank,
        MCE,
    ),
    row(
        "[Hardware Error]: CPU {cpu}: Machine Check Exception: {n} Bank {bank}: {v}",
        mce_bank,
        MCE,
    ),
    row(
        "CPU {cpu}: Machine Check: {n} Bank {bank}: {v}",
        mce_bank,
        MCE,
    ),
    row(
        "CPU {cpu}: Machine Check Exception: {n} Bank {bank}: {v}",
        mce_bank,
        MCE,
    ),
    row("Uncorrected hardware memory error", fatal, MCE),
    row("event severity: corrected", corrected, MCE),
    row("event severity: fatal", fatal, MCE),
    row(
        "Uncorrected hardware memory error in user-access at {a}",
        fatal,
        MCE,
    ),
    row(
        "CPU{cpu}: Core temperature {x}above threshold",
        |_| Some(Finding::Thermal { critical: false }),
        MCE,
    ),
    row(
        "CPU{cpu}: Package temperature {x}above threshold",
        |_| Some(Finding::Thermal { critical: false }),
        MCE,
    ),
    row("MC{n}: {count} CE {x}", corrected, MCE),
    row("MC{n}: {count} UE {x}", fatal, MCE),
    row(
        "In-kernel MCE decoding enabled",
        |_| {
            Some(Finding::Harmless {
                why: "healthy start",
            })
        },
        MCE,
    ),
];

fn hung(c: &Caps<'_>) -> Option<Finding> {
    // `INFO: task kworker/u64:3:1234 blocked for more than 122 seconds.`
    let who = c.text("who");
    let (comm, pid) = who.rsplit_once(':')?;
    Some(Finding::HungTask {
        process: Proc {
            comm: comm.to_owned(),
            pid: pid.parse().ok(),
            ..Proc::default()
        },
        frames: "",
    })
}

fn bug(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::KernelBug {
        what: c.text("what"),
        gpu: false,
    })
}

/// Lines without a tag, and lines whose tag is part of the message; matched on the whole message.
pub const UNTAGGED: &[Row] = TAGGED;

/// The same rows, matched on the message with its tag.
pub const TAGGED: &[Row] = &[
    row(
        "CPU{cpu}: Core temperature {x}above threshold",
        throttled,
        MCE,
    ),
    row(
        "CPU{cpu}: Package temperature {x}above threshold",
        throttled,
        MCE,
    ),
    row(
        "INFO: task {who} blocked for more than {n} seconds",
        hung,
        HUNG,
    ),
    row("watchdog: BUG: {what}", bug, HUNG),
    row("BUG: {what}", bug, HUNG),
    row("Oops: {what}", bug, HUNG),
    row("kernel BUG at {what}", bug, HUNG),
    row("Kernel panic - not syncing: {what}", bug, HUNG),
    row("rcu: INFO: {what} detected stalls", bug, HUNG),
    row("rcu: INFO: {what} self-detected stall", bug, HUNG),
    row(
        "Memory failure: {a}: {what} due to hardware memory corruption",
        fatal,
        MCE,
    ),
    row("mce: Uncorrected hardware memory error", fatal, MCE),
    row("EDAC MC{n}: {count} CE {x}", corrected, MCE),
    row("EDAC MC{n}: {count} UE {x}", fatal, MCE),
    row(
        "{who}: segfault at {a} ip {ip} sp {tail}",
        segfault_any,
        super::sources::TRAPS,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    #[test]
    fn traps_name_process_module_and_offset() {
        let f = find(AFTER_TRAPS, b"python[10227] general protection fault ip:7fd746cb09df sp:7f613e9fa850 error:0 in libamdhip64.so.7.2.70201[2b09df,7fd746a23000+481000]").unwrap().0;
        let Finding::CpuFault {
            what,
            process,
            module,
            ip,
        } = f
        else {
            panic!()
        };
        assert_eq!(
            (what.as_str(), module.as_str(), ip),
            (
                "general protection fault",
                "libamdhip64.so.7.2.70201",
                Some(0x2b_09df)
            )
        );
        assert_eq!(
            (process.comm.as_str(), process.pid),
            ("python", Some(10227))
        );
        let f = find(
            AFTER_TRAPS,
            b"my prog[7] trap invalid opcode ip:7f4a sp:7ff error:0 in libx.so[7f44+9f000]",
        )
        .unwrap()
        .0;
        let Finding::CpuFault {
            what,
            process,
            module,
            ..
        } = f
        else {
            panic!()
        };
        assert_eq!(
            (what.as_str(), process.comm.as_str(), module.as_str()),
            ("invalid opcode", "my prog", "libx.so")
        );
    }

    #[test]
    fn machine_checks_are_told_by_their_flags() {
        let ue = find(HARDWARE, b"CPU:21 (19:21:0) MC5_STATUS[-|UE|MiscV|AddrV|PCC|TCC|SyndV|-|-|-]: 0xbea0000000000108").unwrap().0;
        assert_eq!(ue, Finding::Mce { corrected: false });
        let ce = find(
            HARDWARE,
            b"CPU:2 (19:61:2) MC0_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc20",
        )
        .unwrap()
        .0;
        assert_eq!(ce, Finding::Mce { corrected: true });
    }

    #[test]
    fn reset_reasons_are_sorted() {
        let f = |s: &str| match find(HARDWARE, s.as_bytes()).unwrap().0 {
            Finding::HostReset { cause, .. } => cause,
            _ => panic!(),
        };
        assert_eq!(
            f(
                "Previous system reset reason [0x08000800]: an uncorrected error caused a data fabric sync flood event"
            ),
            ResetCause::Hardware
        );
        assert_eq!(
            f(
                "Previous system reset reason [0x00010800]: system reset pin BP_SYS_RST_L was tripped"
            ),
            ResetCause::External
        );
        assert_eq!(
            f(
                "Previous system reset reason [0x02000800]: software wrote 0x6 to reset control register 0xCF9"
            ),
            ResetCause::Software
        );
    }
}
