//! The harness: leg files, plan, staging, supervision, evidence, triage, journal, reports and the command line.

pub mod board;
pub mod capture;
pub mod cli;
pub mod evidence;
pub mod exit;
pub mod journal;
pub mod legfile;
pub mod os;
pub mod plan;
pub mod repro;
pub mod run;
pub mod stage;
pub mod supervise;
pub mod triage;
