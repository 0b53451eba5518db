//! Quantised block formats: what the bytes of a GGUF tensor mean.
//!
//! - `types`: ids, names, sizes ([`BlockType`]) and which rounding of the activations goes with each
//! - `decode`: any type to f32, bit for bit as PyPI `gguf` does it ([`decode`])
//! - `grids`: the codebooks of the IQ types, unpacked at compile time from bitmaps
//! - `bits`: reading halves, 6-bit scales, sign sets and fp4 fields; shared with the CPU kernels
//!
//! To add a type: a row in `types`, a decoder, its layout in `scripts/make-block-fixtures.py`.

pub mod bits;
mod decode;
mod error;
pub mod grids;
mod types;

pub use decode::decode;
pub use error::{BlockError, TypeIdError};
pub use types::{Activation, BlockType};
