//! A run's data model, statistics, comparisons, gates and renderers. Pure: no clock, no process, no file it was not handed.

pub mod format;
pub mod metrics;
pub mod model;
pub mod stats;
