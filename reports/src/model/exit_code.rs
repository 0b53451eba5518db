//! The process exit codes of `legwork`: a public contract.

use serde::{Deserialize, Serialize};

/// What the exit status of `legwork` means. Stable across releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum ExitCode {
    /// Every gate held and every leg was clean.
    Pass = 0,
    /// A bug in legwork itself.
    Bug = 1,
    /// Bad usage, or a leg file, model or run directory that cannot be read.
    Usage = 2,
    /// Nothing was selected to run.
    NothingSelected = 3,
    /// The evidence does not decide.
    Inconclusive = 4,
    /// A gate did not hold, or a leg failed for a reason of its own.
    Failed = 10,
    /// At least one leg died of our GPU code.
    KernelFault = 11,
    /// At least one leg died of the board: hardware, firmware or driver.
    BoardFault = 12,
    /// At least one leg died on the CPU side.
    HostFault = 13,
    /// The surroundings failed: share, disk, network, runner or the harness itself.
    Infra = 14,
    /// A metric got worse than its declared bound.
    Regression = 20,
    /// Stopped by the user.
    Interrupted = 30,
}

impl ExitCode {
    /// The number handed to the operating system.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}
