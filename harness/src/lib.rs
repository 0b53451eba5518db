//! The harness: leg files, plan, staging, supervision, evidence, triage, journal, reports and the command line.
pub mod triage;
