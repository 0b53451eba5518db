//! A loaded model that answers prompts.
//!
//! - `options`: what a user can ask for.
//! - `error`: what can go wrong, and which of it is the user's to mend.
//! - `device`: which device, and why.
//! - `kv`: how long the KV cache can be.
//! - `placement`: which experts run on the CPU.
//! - `staged`: weights on their way to a device.
//! - `load`: from a file to a [`Session`].
//! - `generate`: from a prompt to text.

mod device;
mod error;
mod generate;
mod kv;
mod load;
mod options;
mod placement;
mod staged;

pub use error::EngineError;
pub use generate::{Completion, FinishReason, Request};
pub use kv::{KvFit, available_memory};
pub use load::Session;
pub use options::{DeviceChoice, KvDtype, LoadModeChoice, ModelOptions, TierArg};
pub use placement::Placement;
