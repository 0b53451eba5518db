//! Why no provider serves an operation.

use std::fmt;

use super::Tier;
use crate::device::DeviceKind;
use crate::ops::OpId;

/// One cause of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// No native implementation for the device.
    NotRegistered,
    /// The CPU cannot reach the device's memory, so the reference tier cannot serve it.
    ReferenceNotEligible {
        /// What was found, in words that a user can check.
        why: String,
    },
    /// A knob switched the operation off.
    SwitchedOff {
        /// The knob with its value.
        knob: &'static str,
    },
    /// A native implementation exists but does not take these arguments.
    Shape {
        /// Its name.
        provider: &'static str,
        /// What it does not take.
        why: String,
    },
    /// The caller excluded a tier.
    TierExcluded {
        /// Which.
        tier: Tier,
    },
    /// The reference tier has no such operation.
    NoReference,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::NotRegistered => {
                f.write_str("not registered natively (VT_OP_PROVIDER_STATS=1 lists what is)")
            }
            Cause::ReferenceNotEligible { why } => {
                write!(
                    f,
                    "reference tier not eligible: device memory is not host-addressable ({why})"
                )
            }
            Cause::SwitchedOff { knob } => write!(
                f,
                "switched off by {knob} (unset it to allow the operation)"
            ),
            Cause::Shape { provider, why } => {
                write!(f, "{provider} does not take these arguments: {why}")
            }
            Cause::TierExcluded { tier: Tier::Native } => {
                f.write_str("native code excluded by --tier reference")
            }
            Cause::TierExcluded {
                tier: Tier::Reference,
            } => f.write_str("reference tier excluded by --tier native"),
            Cause::NoReference => f.write_str("the reference tier has no such operation"),
        }
    }
}

/// No provider serves an operation on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The operation.
    pub op: OpId,
    /// The device.
    pub device: DeviceKind,
    /// Every cause that holds.
    pub causes: Vec<Cause>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first words are those that users' tools already look for.
        write!(
            f,
            "vt: no kernel for op {} (id {}) on device {} (type {}), causes:",
            self.op.name(),
            self.op.number(),
            self.device.name(),
            self.device.id()
        )?;
        for (i, cause) in self.causes.iter().enumerate() {
            write!(f, " [{}] {cause}", i + 1)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
