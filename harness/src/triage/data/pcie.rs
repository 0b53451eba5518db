//! PCI Express errors and IOMMU faults, printed by whichever driver owns the device.

use super::sources::{AER, IOMMU, RESET};
use crate::triage::finding::{Finding, Severity};
use crate::triage::lexer::Record;
use crate::triage::pattern::matches;
use crate::triage::pci::Pci;

fn severity(words: &[u8]) -> Option<Severity> {
    // "Non-Fatal" contains "Fatal" and "Uncorrected" contains "corrected": look at the longer words first.
    let has = |n: &[u8]| memchr::memmem::find(words, n).is_some();
    if has(b"Non-Fatal") || has(b"NonFatal") || has(b"non-fatal") {
        Some(Severity::NonFatal)
    } else if has(b"Uncorrect") || has(b"uncorrect") || has(b"Fatal") {
        Some(Severity::Fatal)
    } else if has(b"Correct") || has(b"correct") {
        Some(Severity::Corrected)
    } else {
        None
    }
}

/// What it means that a device of this driver is gone.
fn gone(r: &Record<'_>) -> Option<(Finding, &'static str)> {
    if crate::triage::scope::may_be_gpu_path(std::str::from_utf8(r.tag).unwrap_or("?")) {
        Some((Finding::DeviceLost, RESET))
    } else if r.tag.starts_with(b"nvme") || r.tag == b"ahci" {
        let what = String::from_utf8_lossy(r.tag).into_owned();
        Some((Finding::StorageLost { what }, super::sources::BLOCK))
    } else if [
        &b"igb"[..],
        b"igc",
        b"e1000e",
        b"r8169",
        b"ixgbe",
        b"i40e",
        b"ice",
        b"mlx5_core",
        b"atlantic",
        b"tg3",
    ]
    .contains(&r.tag)
    {
        Some((Finding::NetworkLost, super::sources::NETDEV))
    } else {
        None
    }
}

/// Reads one record.
pub(super) fn find(r: &Record<'_>) -> Option<(Finding, &'static str)> {
    let b = r.body;
    // Messages are anchored at their start, so a quick look at the first letter spares most lines.
    match b.first()? {
        b'A' => {
            if let Some(c) = matches("AER: {sev} error message received from {dev}", b)
                .or_else(|| matches("AER: {sev} error received: {dev}", b))
            {
                let words = c.bytes("sev");
                let word = c.bytes("dev").split(|c| *c == b' ').next().unwrap_or(b"");
                return severity(words).map(|severity| {
                    (
                        Finding::Aer {
                            severity,
                            origin: Pci::parse(word),
                        },
                        AER,
                    )
                });
            }
            if b.starts_with(b"AMD-Vi: ") {
                return iommu(&b[8..]);
            }
            if matches("AER: TLP Header: 0xffffffff 0xffffffff", b).is_some()
                || matches("AER: TLP Header: ffffffff ffffffff", b).is_some()
            {
                return Some((
                    Finding::Hint {
                        what: "an all-ones packet header: the device did not answer",
                    },
                    AER,
                ));
            }
            if b.starts_with(b"AER: can't recover") || b.starts_with(b"AER: device recovery failed")
            {
                return Some((
                    Finding::Hint {
                        what: "the link could not be recovered",
                    },
                    AER,
                ));
            }
            None
        }
        b'P' if b.starts_with(b"PCIe Bus Error") => {
            let c = matches("PCIe Bus Error: severity={sev}, {rest}", b)?;
            severity(c.bytes("sev")).map(|severity| {
                (
                    Finding::Aer {
                        severity,
                        origin: r.device,
                    },
                    AER,
                )
            })
        }
        b'U' if matches(
            "Unable to change power state from {a} to {b}, device inaccessible",
            b,
        )
        .is_some()
            || matches(
                "Unable to change power state from {a} to {b} (config space inaccessible)",
                b,
            )
            .is_some() =>
        {
            gone(r)
        }
        b'c' if matches(
            "can't change power state from {a} to {b} (config space inaccessible)",
            b,
        )
        .is_some() =>
        {
            gone(r)
        }
        b'P' if b.starts_with(b"PCIe link lost, device now detached") => gone(r),
        b'E' if r.tag == b"AMD-Vi" => iommu(b),
        b'I' if r.tag == b"AMD-Vi" => iommu(b),
        b'[' if r.tag == b"DMAR" => matches("[DMA {x}] {rest}fault addr", b)
            .map(|_| (Finding::IommuFault { overflow: false }, IOMMU)),
        _ => None,
    }
}

fn iommu(b: &[u8]) -> Option<(Finding, &'static str)> {
    if matches("Event logged [IO_PAGE_FAULT {rest}", b).is_some()
        || matches("Event logged [INVALID_DEVICE_REQUEST {rest}", b).is_some()
    {
        Some((Finding::IommuFault { overflow: false }, IOMMU))
    } else if b.starts_with(b"IOMMU event log overflow")
        || b.starts_with(b"IOMMU Event log restarting")
    {
        Some((Finding::IommuFault { overflow: true }, IOMMU))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_not_confused_by_their_parts() {
        assert_eq!(
            severity(b"Uncorrectable (Non-Fatal)"),
            Some(Severity::NonFatal)
        );
        assert_eq!(severity(b"Uncorrected (Fatal)"), Some(Severity::Fatal));
        assert_eq!(severity(b"Corrected"), Some(Severity::Corrected));
        assert_eq!(severity(b"Correctable"), Some(Severity::Corrected));
        assert_eq!(severity(b"Multiple Corrected"), Some(Severity::Corrected));
    }
}
