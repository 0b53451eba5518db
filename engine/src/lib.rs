//! The inference engine: GGUF files, tokenizer, the GLM-DSA forward, sampling and the engine's command line.

pub mod builtin;
pub mod forward;
pub mod gguf;
pub mod model;
pub mod sampling;
pub mod tokenizer;
