//! x86-64 with AVX-512 (F, BW, VL) and VNNI, on top of AVX2.
//!
//! Tiles of 16 rows are as wide as a register here, and a sum of four byte products is one instruction that cannot
//! overflow. Filling tiles and products of single rows, which wait for memory, stay with AVX2.
//!
//! - `micro`: a tile against up to eight activation rows

pub(crate) mod micro;
