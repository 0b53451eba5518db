//! amdgpu lines beyond scheduling: RAS, temperature, lost devices, memory budget, queues.
//!
//! Page faults span several lines and are read by `scan.rs`.

use super::sources::{CTF, GMC, RAS, RESET, SVM};
use super::{Row, row};
use crate::triage::finding::Finding;
use crate::triage::pattern::Caps;

/// One query of a suspended device's RAS counters reads all ones and adds this much.
const BOGUS_STEP: u64 = 1_048_560;

fn ras_count(c: &Caps<'_>, correctable: bool) -> Option<Finding> {
    let n = c.num("n")?;
    if n == 0 {
        return None;
    }
    let block = c.text("block");
    Some(Finding::RasError {
        block: block
            .split_whitespace()
            .next_back()
            .unwrap_or("")
            .to_owned(),
        correctable,
        bogus: n.is_multiple_of(BOGUS_STEP),
    })
}

fn ras(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::RasError {
        block: c.text("block"),
        correctable: false,
        bogus: false,
    })
}

fn ras_corrected(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::RasError {
        block: c.text("block"),
        correctable: true,
        bogus: false,
    })
}

/// `aca entry[00].STATUS=0x…`: bit 61 is UC and bit 55 is deferred, bit 46 CECC and 45 UECC, as in MCA_STATUS.
fn aca_status(c: &Caps<'_>) -> Option<Finding> {
    let status = c.hex("v")?;
    let uncorrected = status >> 61 & 1 == 1 || status >> 57 & 1 == 1 || status >> 45 & 1 == 1;
    Some(Finding::RasError {
        block: "ACA".to_owned(),
        correctable: !uncorrected,
        bogus: status == u64::MAX,
    })
}

fn lost(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::DeviceLost)
}

fn hot(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::Thermal { critical: true })
}

fn queue(c: &Caps<'_>) -> Option<Finding> {
    let code = c
        .text("code")
        .split(|ch: char| !(ch.is_ascii_digit() || ch == '-'))
        .find(|w| !w.is_empty())
        .and_then(|w| w.parse().ok())?;
    Some(Finding::QueueCreateFailed { code })
}

/// Rows that can be a cause.
pub const ROWS: &[Row] = &[
    row("uncorrectable hardware error({block}) detected", ras, RAS),
    row(
        "correctable hardware error({block}) detected",
        ras_corrected,
        RAS,
    ),
    row(
        "{n} uncorrectable hardware errors detected in {block} block",
        |c| ras_count(c, false),
        RAS,
    ),
    row(
        "{n} new uncorrectable hardware errors detected in {block} block",
        |c| ras_count(c, false),
        RAS,
    ),
    row(
        "{n} correctable hardware errors detected in {block} block",
        |c| ras_count(c, true),
        RAS,
    ),
    row(
        "{n} new correctable hardware errors detected in {block} block",
        |c| ras_count(c, true),
        RAS,
    ),
    row(
        "socket: {s}, die: {d} {n} uncorrectable hardware errors detected in {block} block",
        |c| ras_count(c, false),
        RAS,
    ),
    row(
        "socket: {s}, die: {d} {n} new uncorrectable hardware errors detected in {block} block",
        |c| ras_count(c, false),
        RAS,
    ),
    row(
        "socket: {s}, die: {d}, {n} new uncorrectable hardware errors detected in {block} block",
        |c| ras_count(c, false),
        RAS,
    ),
    row("RAS poison consumption", ras, RAS),
    row("{x}poison is consumed by client {block},", ras, RAS),
    row(
        "RAS controller interrupt triggered by {block} error",
        ras,
        RAS,
    ),
    row("RAS error triggered", ras, RAS),
    row("RAS: fatal error", ras, RAS),
    row("ECC error detected", ras, RAS),
    row(
        "[Hardware Error]: aca entry[{i}].STATUS={v}",
        aca_status,
        RAS,
    ),
    row("aca entry[{i}].STATUS={v}", aca_status, RAS),
    row("RAS bad page record", ras_corrected, RAS),
    row(
        "ERROR: GPU over temperature range(SW CTF) detected!",
        hot,
        CTF,
    ),
    row("GPU over temperature range(SW CTF) detected!", hot, CTF),
    row("ERROR: GPU HW Critical Temperature Fault", hot, CTF),
    row("GPU HW Critical Temperature Fault", hot, CTF),
    row(
        "ERROR: System is going to shutdown due to GPU {x}CTF",
        hot,
        CTF,
    ),
    row("System is going to shutdown due to GPU {x}CTF", hot, CTF),
    row("device lost from bus!", lost, RESET),
    row("GPU has fallen off the bus", lost, RESET),
    row("PCI device is inaccessible", lost, RESET),
    row(
        "Unable to change power state from {a} to {b}, device inaccessible",
        lost,
        RESET,
    ),
    row(
        "can't change power state from {a} to {b} (config space inaccessible)",
        lost,
        RESET,
    ),
    row(
        "WARN: GPU {x}thermal throttling temperature reached",
        |_| Some(Finding::Thermal { critical: false }),
        CTF,
    ),
    row(
        "WARN: GPU is in thermal throttling",
        |_| Some(Finding::Thermal { critical: false }),
        CTF,
    ),
    row(
        "queue cwsr size {a} not sufficient for node cwsr size {b}",
        |_| Some(Finding::QueueCreateFailed { code: -22 }),
        super::sources::GFX1151_CWSR,
    ),
    row(
        "queue ctl stack size {a} not sufficient for node ctl stack size {b}",
        |_| Some(Finding::QueueCreateFailed { code: -22 }),
        super::sources::GFX1151_CWSR,
    ),
    row(
        "SVM mapping failed, exceeds resident system memory limit",
        |_| Some(Finding::SvmLimit),
        SVM,
    ),
    row(
        "*create queue {t} failed. ret {code}",
        queue,
        super::sources::MES,
    ),
    row(
        "*create queue failed. ret {code}",
        queue,
        super::sources::MES,
    ),
    row(
        "DQM create queue failed",
        |_| Some(Finding::QueueCreateFailed { code: 0 }),
        super::sources::MES,
    ),
    row("GPU fault detected: {code}", |_| None, GMC),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    #[test]
    fn negations_and_corrected_errors_are_told_apart() {
        assert!(
            find(
                ROWS,
                b"no uncorrectable hardware errors detected in umc block"
            )
            .is_none()
        );
        assert!(
            find(
                ROWS,
                b"0 uncorrectable hardware errors detected in umc block"
            )
            .is_none()
        );
        let bogus = find(
            ROWS,
            b"2097120 uncorrectable hardware errors detected in umc block",
        )
        .unwrap()
        .0;
        assert_eq!(
            bogus,
            Finding::RasError {
                block: "umc".into(),
                correctable: false,
                bogus: true
            }
        );
        let real = find(
            ROWS,
            b"3 uncorrectable hardware errors detected in gfx block",
        )
        .unwrap()
        .0;
        assert_eq!(
            real,
            Finding::RasError {
                block: "gfx".into(),
                correctable: false,
                bogus: false
            }
        );
    }
}
