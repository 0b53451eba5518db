//! The programs of a run's legs: the same one, or different ones on purpose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Leg;

/// What the leg set says of its programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Binaries {
    /// All legs run the same program: the rule when environment or settings are compared. The default.
    #[default]
    MustMatch,
    /// The legs run different programs: the rule when code is compared.
    MustDiffer,
    /// Nothing is said.
    Any,
}

/// What is wrong with a leg's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryFault {
    /// It is not the control's, and nobody said so.
    Differs,
    /// It is the control's, and the leg set says that it must not be.
    Identical,
}

impl Binaries {
    /// Holds a leg's program against the control's. A leg that names another program in its command has said so;
    /// programs whose hash was not recorded are not judged.
    #[must_use]
    pub fn judge(self, control: &Leg, leg: &Leg) -> Option<BinaryFault> {
        let (Some(theirs), Some(ours)) = (&control.binary_sha256, &leg.binary_sha256) else {
            return None;
        };
        if std::ptr::eq(control, leg) || control.name == leg.name {
            return None;
        }
        match self {
            Binaries::Any => None,
            Binaries::MustDiffer => (theirs == ours).then_some(BinaryFault::Identical),
            Binaries::MustMatch => {
                let declared =
                    control.kind != leg.kind || control.command.first() != leg.command.first();
                (theirs != ours && !declared).then_some(BinaryFault::Differs)
            }
        }
    }
}
