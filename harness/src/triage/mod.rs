//! Triage: whose fault was it, with the chain of evidence.
//!
//! Pure apart from reading the files that it is handed: a log becomes records (`lexer/`), records become typed findings
//! (`data/` holds the tables, `scan.rs` joins lines), findings become a verdict (`verdict/`, an order of questions), and
//! the verdict carries every line that was looked at. No clock, no process, no network.
//!
//! Invariants
//! - Position in the log decides order; stamps serve windows and gaps.
//! - The first GPU event of the attempt decides; what a reset prints afterwards is a consequence.
//! - Nothing is charged to GPU code on a stack that is known to fault by itself, or that is not known (`stack_gate.rs`).
//! - No input panics; memory is bounded whatever the size of a log.

mod args;
mod case;
mod command;
pub mod context;
mod data;
mod explain;
mod facts;
mod fault_status;
mod finding;
mod group;
mod lexer;
mod pattern;
mod pci;
mod render;
mod scan;
mod scope;
mod settle;
mod stack_gate;
mod title;
mod verdict;

pub use args::{ExplainArgs, Format, TriageArgs};
pub use case::{Case, Source};
pub use command::{TriageError, run, run_explain};
pub use context::{
    BootId, Capture, Context, ContextError, Core, Ending, KernelLogInfo, Stack, Unkillable, Window,
};
pub use explain::{Explanation, explain, kinds};
pub use group::{Group, Member, group};
pub use lexer::{Ident, Lexer, Losses, Record, Stamp, read_lines};
pub use render::{json, markdown, text};
pub use scan::{Scan, kernel as scan_kernel, output as scan_output};
pub use title::normalise as normalise_title;
pub use verdict::{Alternate, Judgement, judge};

use legwork_reports::model::Verdict;

/// The verdict on a case; never fails.
#[must_use]
pub fn triage(case: &Case) -> Verdict {
    judge(case).verdict
}
