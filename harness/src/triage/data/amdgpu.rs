//! amdgpu lines beyond scheduling: RAS, temperature, lost devices, memory budget, queues.
//!
//! Page faults span several lines and are read by `scan.rs`.

use super::Row;
use super::sources::{CTF, GMC, RAS, RESET, SVM};
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
    Row {
        template: "uncorrectable hardware error({block}) detected",
        make: ras,
        source: RAS,
    },
    Row {
        template: "correctable hardware error({block}) detected",
        make: ras_corrected,
        source: RAS,
    },
    Row {
        template: "{n} uncorrectable hardware errors detected in {block} block",
        make: |c| ras_count(c, false),
        source: RAS,
    },
    Row {
        template: "{n} new uncorrectable hardware errors detected in {block} block",
        make: |c| ras_count(c, false),
        source: RAS,
    },
    Row {
        template: "{n} correctable hardware errors detected in {block} block",
        make: |c| ras_count(c, true),
        source: RAS,
    },
    Row {
        template: "{n} new correctable hardware errors detected in {block} block",
        make: |c| ras_count(c, true),
        source: RAS,
    },
    Row {
        template: "socket: {s}, die: {d} {n} uncorrectable hardware errors detected in {block} block",
        make: |c| ras_count(c, false),
        source: RAS,
    },
    Row {
        template: "socket: {s}, die: {d} {n} new uncorrectable hardware errors detected in {block} block",
        make: |c| ras_count(c, false),
        source: RAS,
    },
    Row {
        template: "socket: {s}, die: {d}, {n} new uncorrectable hardware errors detected in {block} block",
        make: |c| ras_count(c, false),
        source: RAS,
    },
    Row {
        template: "RAS poison consumption",
        make: ras,
        source: RAS,
    },
    Row {
        template: "{x}poison is consumed by client {block},",
        make: ras,
        source: RAS,
    },
    Row {
        template: "RAS controller interrupt triggered by {block} error",
        make: ras,
        source: RAS,
    },
    Row {
        template: "RAS error triggered",
        make: ras,
        source: RAS,
    },
    Row {
        template: "RAS: fatal error",
        make: ras,
        source: RAS,
    },
    Row {
        template: "ECC error detected",
        make: ras,
        source: RAS,
    },
    Row {
        template: "[Hardware Error]: aca entry[{i}].STATUS={v}",
        make: aca_status,
        source: RAS,
    },
    Row {
        template: "aca entry[{i}].STATUS={v}",
        make: aca_status,
        source: RAS,
    },
    Row {
        template: "RAS bad page record",
        make: ras_corrected,
        source: RAS,
    },
    Row {
        template: "ERROR: GPU over temperature range(SW CTF) detected!",
        make: hot,
        source: CTF,
    },
    Row {
        template: "GPU over temperature range(SW CTF) detected!",
        make: hot,
        source: CTF,
    },
    Row {
        template: "ERROR: GPU HW Critical Temperature Fault",
        make: hot,
        source: CTF,
    },
    Row {
        template: "GPU HW Critical Temperature Fault",
        make: hot,
        source: CTF,
    },
    Row {
        template: "ERROR: System is going to shutdown due to GPU {x}CTF",
        make: hot,
        source: CTF,
    },
    Row {
        template: "System is going to shutdown due to GPU {x}CTF",
        make: hot,
        source: CTF,
    },
    Row {
        template: "device lost from bus!",
        make: lost,
        source: RESET,
    },
    Row {
        template: "GPU has fallen off the bus",
        make: lost,
        source: RESET,
    },
    Row {
        template: "PCI device is inaccessible",
        make: lost,
        source: RESET,
    },
    Row {
        template: "Unable to change power state from {a} to {b}, device inaccessible",
        make: lost,
        source: RESET,
    },
    Row {
        template: "can't change power state from {a} to {b} (config space inaccessible)",
        make: lost,
        source: RESET,
    },
    Row {
        template: "SVM mapping failed, exceeds resident system memory limit",
        make: |_| Some(Finding::SvmLimit),
        source: SVM,
    },
    Row {
        template: "DQM create queue type {t} failed. ret {code}",
        make: queue,
        source: super::sources::MES,
    },
    Row {
        template: "Pasid {p} DQM create queue type {t} failed. ret {code}",
        make: queue,
        source: super::sources::MES,
    },
    Row {
        template: "DQM create queue failed",
        make: |_| Some(Finding::QueueCreateFailed { code: 0 }),
        source: super::sources::MES,
    },
    Row {
        template: "GPU fault detected: {code}",
        make: |_| None,
        source: GMC,
    },
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
