//! A run's data model, statistics, comparisons, gates and renderers. Pure: no clock, no process, no file it was not handed.
//!
//! The way through the crate: the harness fills a [`model::Report`] with observations, [`conclude`] adds everything
//! that follows from them, `render` prints it.

pub mod admissible;
pub mod compare;
mod conclude;
#[cfg(test)]
pub(crate) mod examples;
pub mod format;
pub mod gates;
pub mod metrics;
pub mod model;
pub mod render;
pub mod schema;
pub mod stats;
pub mod verdict;

pub use conclude::{Plan, conclude};
