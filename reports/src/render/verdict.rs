//! A verdict without a run: what `legwork triage` prints.

use super::Options;
use super::build::chain;
use crate::model::Verdict;

/// The verdict and its evidence for a terminal.
#[must_use]
pub fn verdict_text(verdict: &Verdict, options: &Options) -> String {
    super::terminal::chain_alone(&chain(verdict, ""), options)
}

/// The verdict and its evidence in Markdown.
#[must_use]
pub fn verdict_markdown(verdict: &Verdict) -> String {
    super::markdown::chain_alone(&chain(verdict, ""))
}
