//! NVIDIA: Xid numbers and the driver's own words.

use super::sources::XID;
use super::{Row, row};
use crate::triage::finding::{Finding, Proc};
use crate::triage::pattern::{Caps, leading_decimal};

/// What an Xid number means for the question "whose fault".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XidClass {
    /// The application's GPU work.
    Application,
    /// Hardware or firmware.
    Hardware,
    /// Either.
    Undecided,
    /// An echo of another Xid, or a notice.
    Echo,
}

/// One Xid number.
pub struct XidRow {
    /// The number.
    pub code: u16,
    /// Whose.
    pub class: XidClass,
    /// NVIDIA's words for it.
    pub name: &'static str,
}

/// The numbers that a leg meets, from NVIDIA's catalogue.
pub const XIDS: &[XidRow] = &[
    XidRow {
        code: 8,
        class: XidClass::Undecided,
        name: "GPU stopped processing (channel watchdog)",
    },
    XidRow {
        code: 11,
        class: XidClass::Application,
        name: "invalid or corrupted push buffer stream",
    },
    XidRow {
        code: 12,
        class: XidClass::Undecided,
        name: "driver error handling GPU exception",
    },
    XidRow {
        code: 13,
        class: XidClass::Application,
        name: "graphics engine exception (illegal address or instruction)",
    },
    XidRow {
        code: 31,
        class: XidClass::Application,
        name: "MMU fault",
    },
    XidRow {
        code: 32,
        class: XidClass::Undecided,
        name: "invalid or corrupted push buffer stream, PBDMA error",
    },
    XidRow {
        code: 38,
        class: XidClass::Undecided,
        name: "driver firmware error",
    },
    XidRow {
        code: 43,
        class: XidClass::Application,
        name: "GPU stopped processing: the application's channel is reset",
    },
    XidRow {
        code: 44,
        class: XidClass::Undecided,
        name: "graphics engine fault during context switch",
    },
    XidRow {
        code: 45,
        class: XidClass::Echo,
        name: "preemptive channel removal after another error or a kill",
    },
    XidRow {
        code: 48,
        class: XidClass::Hardware,
        name: "double-bit ECC error",
    },
    XidRow {
        code: 54,
        class: XidClass::Hardware,
        name: "auxiliary power is not connected",
    },
    XidRow {
        code: 56,
        class: XidClass::Hardware,
        name: "display engine error",
    },
    XidRow {
        code: 57,
        class: XidClass::Hardware,
        name: "error programming video memory interface",
    },
    XidRow {
        code: 58,
        class: XidClass::Hardware,
        name: "unstable video memory interface",
    },
    XidRow {
        code: 61,
        class: XidClass::Hardware,
        name: "internal microcontroller breakpoint",
    },
    XidRow {
        code: 62,
        class: XidClass::Hardware,
        name: "internal microcontroller halt",
    },
    XidRow {
        code: 63,
        class: XidClass::Hardware,
        name: "row remapping or page retirement recorded",
    },
    XidRow {
        code: 64,
        class: XidClass::Hardware,
        name: "row remapping or page retirement failed",
    },
    XidRow {
        code: 68,
        class: XidClass::Undecided,
        name: "video processor exception",
    },
    XidRow {
        code: 69,
        class: XidClass::Application,
        name: "graphics engine class error",
    },
    XidRow {
        code: 74,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 79,
        class: XidClass::Hardware,
        name: "GPU has fallen off the bus",
    },
    XidRow {
        code: 80,
        class: XidClass::Hardware,
        name: "corrupted data sent to the GPU",
    },
    XidRow {
        code: 92,
        class: XidClass::Hardware,
        name: "high single-bit ECC error rate",
    },
    XidRow {
        code: 94,
        class: XidClass::Hardware,
        name: "contained memory error",
    },
    XidRow {
        code: 95,
        class: XidClass::Hardware,
        name: "uncontained memory error",
    },
    XidRow {
        code: 109,
        class: XidClass::Undecided,
        name: "context switch timeout",
    },
    XidRow {
        code: 110,
        class: XidClass::Hardware,
        name: "security fault",
    },
    XidRow {
        code: 119,
        class: XidClass::Hardware,
        name: "GSP firmware does not answer",
    },
    XidRow {
        code: 120,
        class: XidClass::Hardware,
        name: "GSP firmware error",
    },
    XidRow {
        code: 121,
        class: XidClass::Hardware,
        name: "C2C link error",
    },
    XidRow {
        code: 122,
        class: XidClass::Hardware,
        name: "SPI flash failure",
    },
    XidRow {
        code: 123,
        class: XidClass::Hardware,
        name: "power management unit failure",
    },
    XidRow {
        code: 136,
        class: XidClass::Hardware,
        name: "link training failed",
    },
    XidRow {
        code: 137,
        class: XidClass::Application,
        name: "NVLink fabric fault on a peer access",
    },
    XidRow {
        code: 140,
        class: XidClass::Hardware,
        name: "unrecovered ECC error",
    },
    XidRow {
        code: 143,
        class: XidClass::Hardware,
        name: "GPU initialisation error",
    },
    XidRow {
        code: 144,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 145,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 146,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 147,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 148,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 149,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 150,
        class: XidClass::Hardware,
        name: "NVLink error",
    },
    XidRow {
        code: 151,
        class: XidClass::Undecided,
        name: "key rotation error",
    },
    XidRow {
        code: 154,
        class: XidClass::Hardware,
        name: "GPU recovery action changed",
    },
    XidRow {
        code: 156,
        class: XidClass::Hardware,
        name: "resource retirement event",
    },
    XidRow {
        code: 157,
        class: XidClass::Hardware,
        name: "resource retirement failure",
    },
];

/// The row of a number.
#[must_use]
pub fn xid_row(code: u16) -> Option<&'static XidRow> {
    XIDS.iter().find(|r| r.code == code)
}

/// Whose fault an Xid is; numbers that are not listed are undecided.
#[must_use]
pub fn xid_class(code: u16) -> XidClass {
    xid_row(code).map_or_else(
        || {
            if (141..=150).contains(&code) {
                XidClass::Hardware
            } else {
                XidClass::Undecided
            }
        },
        |r| r.class,
    )
}

fn xid(c: &Caps<'_>) -> Option<Finding> {
    let rest = String::from_utf8_lossy(c.bytes("rest")).into_owned();
    let code = u16::try_from(leading_decimal(rest.as_bytes())?).ok()?;
    let value = |key: &str| -> Option<String> {
        let p = rest.find(key)? + key.len();
        let v = rest[p..].split([',', ' ']).next()?;
        Some(v.trim_matches(['\'', '"']).to_owned())
    };
    let pid = value("pid=").and_then(|v| leading_decimal(v.as_bytes()));
    let comm = value("name=")
        .filter(|n| n != "<unknown>")
        .unwrap_or_default();
    let previous = rest
        .find("previous Xid ")
        .and_then(|p| leading_decimal(&rest.as_bytes()[p + 13..]))
        .and_then(|n| u16::try_from(n).ok());
    Some(Finding::Xid {
        code,
        process: (pid.is_some() || !comm.is_empty()).then(|| Proc {
            comm,
            pid,
            ..Proc::default()
        }),
        previous,
    })
}

/// Lines of `NVRM:` and `nvidia …:`.
pub const ROWS: &[Row] = &[
    row("Xid (PCI:{pci}): {rest}", xid, XID),
    row("Xid ({pci}): {rest}", xid, XID),
    row(
        "GPU at PCI:{pci}: {x}fallen off the bus",
        |_| Some(Finding::DeviceLost),
        XID,
    ),
    row(
        "GPU has fallen off the bus",
        |_| Some(Finding::DeviceLost),
        XID,
    ),
    row(
        "The NVIDIA GPU {pci}fallen off the bus",
        |_| Some(Finding::DeviceLost),
        XID,
    ),
    row(
        "RmInitAdapter failed! {what}",
        |c| {
            Some(Finding::GpuInitFailed {
                what: c.text("what"),
            })
        },
        XID,
    ),
    row(
        "krcWatchdog{x}GPU is probably locked",
        |_| {
            Some(Finding::Hint {
                what: "the channel watchdog expired",
            })
        },
        XID,
    ),
    row(
        "Rate limiting GSP RPC error prints{x}",
        |_| {
            Some(Finding::Hint {
                what: "the firmware stays silent",
            })
        },
        XID,
    ),
];

/// Messages without a tag that belong to the NVIDIA driver.
pub const UNTAGGED: &[Row] = &[row(
    "Cannot map memory with base addr {a} and size of {n} pages",
    |_| {
        Some(Finding::Hint {
            what: "a host registration failed: the program may use the address all the same",
        })
    },
    XID,
)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    #[test]
    fn xids_in_old_and_new_spelling() {
        let f = |s: &str| find(ROWS, s.as_bytes()).unwrap().0;
        let Finding::Xid { code, process, .. } =
            f("Xid (PCI:0000:01:00): 31, pid=80798, name=llama-server, Ch 00000008, intr 0.")
        else {
            panic!()
        };
        assert_eq!((code, process.unwrap().pid), (31, Some(80798)));
        let Finding::Xid { code, process, .. } =
            f("Xid (PCI:0000:01:00): 48, pid='<unknown>', name=<unknown>, x")
        else {
            panic!()
        };
        assert_eq!((code, process), (48, None));
        let Finding::Xid { code, previous, .. } = f(
            "Xid (PCI:0000:01:00): 45, pid=1, name=a, Ch 0, errorString CTX SWITCH, caused by previous Xid 31",
        ) else {
            panic!()
        };
        assert_eq!((code, previous), (45, Some(31)));
    }
}
