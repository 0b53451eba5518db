//! Supervision of one attempt: spawn, watch, end, account.
//!
//! [`spec`] holds the types that callers use.

pub mod spec;

pub use spec::*;
