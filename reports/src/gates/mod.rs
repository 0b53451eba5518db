//! Gates: what must hold before a figure counts.
//!
//! A [`Gate`] is what a leg file says; [`judge`] holds it against the legs of a run. Three outcomes: it holds, it does
//! not, or what it looks at was not observed. Absent is not zero: a counter that was not printed never passes.
//! Warm-up attempts are not looked at.
//!
//! To add an expectation: a field in `expect.rs`, a [`Check`] in `check.rs` with its words, its judgement in
//! `judge.rs`, a row in the tests.

mod bound;
mod check;
mod expect;
mod gate;
mod judge;
mod observe;

pub use bound::{Bound, Of};
pub use check::Check;
pub use expect::{Expect, OneOrMany, Same, SignalSpec};
pub use gate::{Gate, GateError};
pub use judge::{Judged, evaluate, judge};

#[cfg(test)]
mod tests;
