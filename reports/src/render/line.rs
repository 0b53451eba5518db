//! The run in one line.

use crate::model::{Report, RunVerdict};

use super::build::{answer, code_words};

/// `FAIL smoke: … (exit 11)`.
#[must_use]
pub fn one_line(report: &Report) -> String {
    format!(
        "{} {}: {} (exit {}: {})\n",
        status_word(report.verdict),
        crate::format::clean(&report.run.leg_set),
        answer(report),
        report.exit_code,
        code_words(report.exit_code)
    )
}

/// The verdict as it is shouted.
pub(super) fn status_word(verdict: RunVerdict) -> &'static str {
    match verdict {
        RunVerdict::Pass => "PASS",
        RunVerdict::Fail => "FAIL",
        RunVerdict::Inconclusive => "INCONCLUSIVE",
    }
}
