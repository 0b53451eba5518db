//! Supervision of one attempt: spawn, watch, end, account.
//!
//! ```text
//! harness (subreaper) ── guardian (`legwork spawn-stub`, subreaper) ── leader ── the leg's processes
//!    │ threads: capture · kernel log · process events · sampler · guardian's words
//!    └ loop: news → deadlines → ending → accounts
//! ```
//! Invariants: the loop never waits for the child longer than a tick; nothing that a thread does can block the loop;
//! every attempt ends, a process that survives SIGKILL is a finding and not a hang; what a file holds was written
//! before anybody was told of it.
//!
//! [`spec`] holds the types that callers use, [`stub`] the process between us and the leg, [`start`] the spawning,
//! [`tree`] who belongs to the attempt, [`deadlines`] when time is over, [`ending`] how it is ended, [`attempt`]
//! the loop, [`account`] the outcome, [`leftovers`] what a harness that was killed left behind.

mod account;
mod attempt;
pub mod deadlines;
mod ending;
pub mod leftovers;
pub mod spec;
mod start;
pub mod stub;
pub mod tree;
mod watchers;

pub use attempt::run;
pub use spec::*;
