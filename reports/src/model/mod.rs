//! The data model of a run: what `report.json` holds.
//!
//! `report.json` is a public format (`"schema": "legwork.report"`, `"version": "1.0"`). Every figure that was not
//! observed is `null`, never zero. The harness fills these types, the renderers read them, and nothing else
//! is needed to render a report again.

mod attempt;
mod exit_code;
mod run;
mod verdict;

pub use attempt::{
    Attempt, Descendant, Exit, Files, Leak, Metrics, PhaseSource, Phases, ProcessEnd, Speed,
    Stamps, TimedOut,
};
pub use exit_code::ExitCode;
pub use run::{
    ComparedFaults, ComparedMetric, Comparison, FaultRatio, GateResult, GateStatus, Leg, LegKind,
    Owed, REPORT_SCHEMA, REPORT_VERSION, Report, RunInfo, RunVerdict,
};
pub use verdict::{
    Alternate, Class, Confidence, EvidenceLine, Role, StackGate, StackState, Verdict,
};
