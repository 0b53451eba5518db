//! Any block type to f32.
//!
//! Each decoder multiplies and adds in the order of PyPI `gguf`'s `quants.py`, without fused
//! operations, so that the results are equal bit for bit. This is the meaning of the formats;
//! speed lives in `cpu`.

mod codebook;
mod kquant;
mod legacy;
mod plain;
mod small;

use super::{BlockError, BlockType};

/// Decode whole blocks of type `ty` from `bytes` into `out` (`out.len()` elements).
///
/// # Errors
/// `out` is no whole number of blocks, or `bytes` is not exactly their size.
pub fn decode(ty: BlockType, bytes: &[u8], out: &mut [f32]) -> Result<(), BlockError> {
    let expected = ty.row_bytes(out.len())?;
    if bytes.len() != expected {
        return Err(BlockError::ByteLength {
            ty,
            n: out.len(),
            expected,
            found: bytes.len(),
        });
    }
    match ty {
        BlockType::F32 => blocks(bytes, out, plain::f32),
        BlockType::F16 => blocks(bytes, out, plain::f16),
        BlockType::BF16 => blocks(bytes, out, plain::bf16),
        BlockType::I8 => blocks(bytes, out, plain::i8),
        BlockType::I16 => blocks(bytes, out, plain::i16),
        BlockType::I32 => blocks(bytes, out, plain::i32),
        BlockType::I64 => blocks(bytes, out, plain::i64),
        BlockType::F64 => blocks(bytes, out, plain::f64),
        BlockType::Q4_0 => blocks(bytes, out, legacy::q4_0),
        BlockType::Q4_1 => blocks(bytes, out, legacy::q4_1),
        BlockType::Q5_0 => blocks(bytes, out, legacy::q5_0),
        BlockType::Q5_1 => blocks(bytes, out, legacy::q5_1),
        BlockType::Q8_0 => blocks(bytes, out, legacy::q8_0),
        BlockType::Q8_1 => blocks(bytes, out, legacy::q8_1),
        BlockType::Q2_K => blocks(bytes, out, kquant::q2_k),
        BlockType::Q3_K => blocks(bytes, out, kquant::q3_k),
        BlockType::Q4_K => blocks(bytes, out, kquant::q4_k),
        BlockType::Q5_K => blocks(bytes, out, kquant::q5_k),
        BlockType::Q6_K => blocks(bytes, out, kquant::q6_k),
        BlockType::Q8_K => blocks(bytes, out, kquant::q8_k),
        BlockType::IQ1_S => blocks(bytes, out, codebook::iq1_s),
        BlockType::IQ1_M => blocks(bytes, out, codebook::iq1_m),
        BlockType::IQ2_XXS => blocks(bytes, out, codebook::iq2_xxs),
        BlockType::IQ2_XS => blocks(bytes, out, codebook::iq2_xs),
        BlockType::IQ2_S => blocks(bytes, out, codebook::iq2_s),
        BlockType::IQ3_XXS => blocks(bytes, out, codebook::iq3_xxs),
        BlockType::IQ3_S => blocks(bytes, out, codebook::iq3_s),
        BlockType::IQ4_NL => blocks(bytes, out, small::iq4_nl),
        BlockType::IQ4_XS => blocks(bytes, out, small::iq4_xs),
        BlockType::TQ1_0 => blocks(bytes, out, small::tq1_0),
        BlockType::TQ2_0 => blocks(bytes, out, small::tq2_0),
        BlockType::MXFP4 => blocks(bytes, out, small::mxfp4),
        BlockType::NVFP4 => blocks(bytes, out, small::nvfp4),
        BlockType::Q1_0 => blocks(bytes, out, small::q1_0),
        BlockType::Q2_0 => blocks(bytes, out, small::q2_0),
    }
    Ok(())
}

/// Run `one` over blocks of `B` bytes and `N` elements; the caller has checked the lengths.
fn blocks<const B: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    one: impl Fn(&[u8; B], &mut [f32; N]),
) {
    for (b, y) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        one(b, y);
    }
}
