//! Whether an attempt's speed may be quoted.
//!
//! The conditions are asked in a fixed order and the first that does not hold is printed as `VOID(reason)`:
//!
//! | # | condition | printed reason |
//! |---|---|---|
//! | 1 | the attempt is clean | its class and kind, e.g. `kernel: gpu-page-fault-cp` |
//! | 2 | it is no warm-up | `warm-up` |
//! | 3 | its leg is not diagnostic | `diagnostic` |
//! | 4 | the leg's token gates hold over its clean attempts; an engine leg, or an attempt that counted tokens, needs one | `token gate FAIL`, `token gate not measurable`, `no token gate` |
//! | 5 | engine legs: reference-tier hits were printed, are 0, and op-provider lines were seen | `reference-tier hits 3`, `reference-tier hits not printed`, `no op-provider lines` |
//! | 6 | its leg differs from the control, or from a leg it is compared with, in at most one variable | `CONFOUNDED(3)` |
//! | 7 | the board has not been booted since the run began | `boot changed` |
//! | 8 | its phases do not come from bunched stamps | `stamps suspect` |
//! | 9 | the program is the control's, unless the leg set or the leg's command says otherwise | `binary differs`, `binaries identical` |
//! | 10 | the run was not a quick one | `quick run` |
//! | 11 | the supervisor saw nothing that voids it | its own words, e.g. `model on a network share` |
//!
//! Wrong tokens come before everything that concerns only the measurement: a fast wrong answer is no figure.

mod binaries;
mod judge;

pub use binaries::{Binaries, BinaryFault};
pub use judge::{LegFacts, void_reason};

#[cfg(test)]
mod tests;
