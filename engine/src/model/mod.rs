//! A model: its hyperparameters, read from the file, and its weights.
//!
//! - `config`: [`Config`], every number of the architecture; nothing is assumed that a file can say.
//! - `rope`: frequencies, YaRN included.
//! - `names`: tensor names.
//! - `weights`: [`Weights`], tensors bound to layers and checked against the config.
//! - `store`: where weights' bytes are.

mod config;
mod error;
mod names;
mod rope;
mod store;
mod weights;

pub use config::{Arch, Config, IndexerConfig, MoeConfig};
pub use error::ModelError;
pub use names::OUTPUT;
pub use store::{WeightStore, WithoutExperts, is_routed_expert};
pub use weights::{Ffn, Indexer, Layer, Moe, Swiglu, Weights};
