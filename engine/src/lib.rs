//! The inference engine: GGUF files, tokenizer, the GLM-DSA forward, sampling and the engine's command line.
//!
//! | module | what it holds |
//! |---|---|
//! | [`gguf`], [`builtin`] | model files, and the one that is compiled in |
//! | [`tokenizer`], [`sampling`] | text to ids and back; logits to ids |
//! | [`model`] | hyperparameters and weights |
//! | [`forward`] | the forward pass, on any device |
//! | [`session`] | a loaded model that answers prompts |
//! | [`synth`], [`bench`] | random models of any size, and how fast models run |
//! | [`events`] | what the engine tells while it works |
//! | [`cli`] | `legwork engine …` |

pub mod bench;
pub mod builtin;
pub mod cli;
pub mod events;
pub mod forward;
pub mod gguf;
pub mod model;
pub mod sampling;
pub mod session;
pub mod synth;
pub mod tokenizer;
