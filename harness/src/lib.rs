//! The harness: leg files, plan, staging, supervision, evidence, triage, journal, reports and the command line.

pub mod board;
pub mod capture;
pub mod evidence;
pub mod os;
pub mod supervise;
