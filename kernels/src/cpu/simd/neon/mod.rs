//! aarch64 with NEON, and with the dot product instruction where the processor has it.
//!
//! - `vec`: loads, sums, halves, and the products of bytes that all integer kernels are made of
//! - `quantise`: rounding activations
//! - `kquant`, `codebook`: weights of 256-element blocks as 32 signed bytes at a time
//! - `dot256`: such weights against activation rows
//! - `dot32`: 32-element blocks against activation rows
//! - `floats`: f32, f16 and bf16 rows
//! - `exp`: the exponential, and softmax and silu with it
//! - `rows`: which of these serves a block type
//!
//! Weights are signed bytes here, where AVX2 wants them unsigned: `smull` and `sdot` multiply signed by signed.

pub(crate) mod codebook;
pub(crate) mod dot256;
pub(crate) mod dot32;
pub(crate) mod exp;
pub(crate) mod floats;
pub(crate) mod kquant;
pub(crate) mod quantise;
pub(crate) mod rows;
pub(crate) mod vec;
