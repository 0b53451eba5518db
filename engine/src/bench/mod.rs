//! The engine's own benchmark: prompt processing and decoding at a depth, as llama-bench measures them.
//!
//! - `bandwidth`: what this machine's memory gives to plain reads, for the fraction that decoding reaches.
//! - `measure`: the timed loops.
//! - `summary`: figures of the samples.

mod bandwidth;
mod measure;
mod summary;

pub use bandwidth::read_bandwidth;
pub use measure::{Samples, Test, bytes_per_token, run};
pub use summary::Summary;
