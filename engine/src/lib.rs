//! The inference engine: GGUF files, tokenizer, the GLM-DSA forward, sampling and the engine's command line.

pub mod builtin;
pub mod gguf;
pub mod sampling;
pub mod synth;
pub mod tokenizer;
