//! x86-64 with AVX2, FMA and F16C.
//!
//! - `vec`: loads, broadcasts, horizontal sums
//! - `quantise`: rounding activations
//! - `kquant`, `codebook`: weights of 256-element blocks as 32 small integers at a time
//! - `dot256`: such weights against one activation row
//! - `dot32`: 32-element blocks against one activation row
//! - `floats`: f32, f16 and bf16 rows
//! - `exp`: the exponential, and softmax and silu with it
//! - `tile`: weights of 16 rows, decoded and interleaved
//! - `micro`: a tile against up to six activation rows
//! - `cachetile`: cache rows as a tile, against queries or mixed by weights
//! - `panel`: 16 rows of a matrix against all activation rows, tile by tile

pub(crate) mod cachetile;
pub(crate) mod codebook;
pub(crate) mod dot256;
pub(crate) mod dot32;
pub(crate) mod exp;
pub(crate) mod floats;
pub(crate) mod kquant;
pub(crate) mod micro;
pub(crate) mod panel;
pub(crate) mod quantise;
pub(crate) mod tile;
pub(crate) mod vec;
