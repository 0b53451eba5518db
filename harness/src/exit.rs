//! Exit codes of `legwork`, in words: the table of `--help` and of the README.

use legwork_reports::model::ExitCode;

/// Every exit code with its meaning, in ascending order.
pub const EXIT_CODES: [(ExitCode, &str); 12] = [
    (
        ExitCode::Pass,
        "pass: every gate held and every leg was clean",
    ),
    (ExitCode::Bug, "a bug in legwork itself"),
    (
        ExitCode::Usage,
        "bad usage, or a leg file, model or run directory that cannot be used",
    ),
    (ExitCode::NothingSelected, "nothing was selected to run"),
    (ExitCode::Inconclusive, "the evidence does not decide"),
    (
        ExitCode::Failed,
        "a gate did not hold, or a leg failed for a reason of its own",
    ),
    (ExitCode::KernelFault, "a leg died of our GPU code"),
    (
        ExitCode::BoardFault,
        "a leg died of the board: hardware, firmware or driver",
    ),
    (ExitCode::HostFault, "a leg died on the CPU side"),
    (
        ExitCode::Infra,
        "the surroundings failed: share, disk, network, runner or the harness",
    ),
    (
        ExitCode::Regression,
        "a metric got worse than its declared bound",
    ),
    (
        ExitCode::Interrupted,
        "stopped by the user or the job runner; the report is written",
    ),
];

/// The exit code with that number; an unknown number is a bug.
#[must_use]
pub fn from_code(code: u8) -> ExitCode {
    EXIT_CODES
        .iter()
        .map(|(c, _)| *c)
        .find(|c| c.code() == code)
        .unwrap_or(ExitCode::Bug)
}

/// The table as text.
#[must_use]
pub fn table() -> String {
    EXIT_CODES
        .iter()
        .map(|(code, words)| format!("  {:>2}  {words}\n", code.code()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_and_the_table_is_in_order() {
        for (code, _) in EXIT_CODES {
            assert_eq!(from_code(code.code()), code);
        }
        assert!(EXIT_CODES.windows(2).all(|w| w[0].0.code() < w[1].0.code()));
        assert_eq!(from_code(99), ExitCode::Bug);
    }
}
