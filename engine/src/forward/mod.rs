//! The forward pass of GLM-DSA and its relatives, one step at a time, on any device.
//!
//! - `cache`: latent and indexer caches of all sequences.
//! - `workspace`: the step's activations, allocated once.
//! - `step`: what a step is given and what it gives back.
//! - `trunk`: embedding, layers, head.
//! - `attention`, `indexer`, `ffn`: the parts of a layer.
//! - `experts`: routed experts paged from disk.
//! - `cost`: which form of attention a step takes.
//! - `graph`: decode steps recorded once and replayed.
//!
//! Every operation goes through the registry; nothing here knows which provider serves it.

mod attention;
mod cache;
mod cost;
mod experts;
mod ffn;
mod graph;
mod indexer;
mod step;
mod trunk;
mod workspace;

pub use cache::{CacheSpec, KvCache};
pub use cost::{AttentionForm, Cost};
pub use experts::{ExpertStream, StreamStats};
pub use graph::GraphStats;
pub use step::{Probe, Row, Step, Wanted};
pub use trunk::{Choice, Device, Forward};
