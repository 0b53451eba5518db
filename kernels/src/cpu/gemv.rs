//! One activation row against many weight rows: what a decode step does.
//!
//! Rows stay in their blocks from memory to the integer products. The caller splits the rows over
//! threads; a row's result does not depend on how.

use super::Isa;
use super::acts::{ActKind, ActRow};
use crate::blocks::{BlockError, BlockType, decode};

/// `out[r] = w[r] · x` for the `out.len()` rows in `w`, each of `n` elements of type `ty`.
///
/// `x` must be rounded as [`ActKind::of`] says, or not at all (which takes a slower way).
///
/// # Errors
/// `n` is no whole number of blocks, or `w` is not exactly the rows' bytes.
pub fn gemv(
    isa: Isa,
    ty: BlockType,
    w: &[u8],
    n: usize,
    x: ActRow<'_>,
    out: &mut [f32],
) -> Result<(), BlockError> {
    let row_bytes = ty.row_bytes(n)?;
    if row_bytes.checked_mul(out.len()) != Some(w.len()) {
        return Err(BlockError::ByteLength {
            ty,
            n: n.saturating_mul(out.len()),
            expected: row_bytes.saturating_mul(out.len()),
            found: w.len(),
        });
    }
    if n == 0 {
        out.fill(0.0);
        return Ok(());
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() && fits(ty, n, x) && avx2(ty, w, x, out) {
        return Ok(());
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has_neon() && fits(ty, n, x) {
        let has_sdot = isa == Isa::NeonDot;
        // SAFETY: every aarch64 has NEON, and `NeonDot` says that there is `sdot`.
        if unsafe { super::simd::neon::rows::gemv(has_sdot, ty, w, x, out) } {
            return Ok(());
        }
    }
    let _ = isa;
    decoded(ty, w, row_bytes, n, x, out)
}

/// Whether `x` has the length and rounding that the integer kernels of `ty` read.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn fits(ty: BlockType, n: usize, x: ActRow<'_>) -> bool {
    match ActKind::of(ty) {
        ActKind::F32 => x.x.len() == n,
        ActKind::Q32 => x.q.len() == n && x.d.len() * 32 == n && x.s.len() * 32 == n,
        ActKind::Q256 => x.q.len() == n && x.d.len() * 256 == n && x.sums.len() * 16 == n,
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2(ty: BlockType, w: &[u8], x: ActRow<'_>, out: &mut [f32]) -> bool {
    use super::simd::avx2::{codebook as c, dot32, dot256, floats, kquant as k};
    // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
    unsafe {
        match ty {
            BlockType::Q2_K => dot256::rows::<84, k::Q2K>(w, x, out),
            BlockType::Q3_K => dot256::rows::<110, k::Q3K>(w, x, out),
            BlockType::Q4_K => dot256::rows::<144, k::Q4K>(w, x, out),
            BlockType::Q5_K => dot256::rows::<176, k::Q5K>(w, x, out),
            BlockType::Q6_K => dot256::rows::<210, k::Q6K>(w, x, out),
            BlockType::TQ2_0 => dot256::rows::<66, k::Tq20>(w, x, out),
            BlockType::IQ4_XS => dot256::rows::<136, k::Iq4Xs>(w, x, out),
            BlockType::IQ1_S => dot256::rows::<50, c::Iq1S>(w, x, out),
            BlockType::IQ1_M => dot256::rows::<56, c::Iq1M>(w, x, out),
            BlockType::IQ2_XXS => dot256::rows::<66, c::Iq2Xxs>(w, x, out),
            BlockType::IQ2_XS => dot256::rows::<74, c::Iq2Xs>(w, x, out),
            BlockType::IQ2_S => dot256::rows::<82, c::Iq2S>(w, x, out),
            BlockType::IQ3_XXS => dot256::rows::<98, c::Iq3Xxs>(w, x, out),
            BlockType::IQ3_S => dot256::rows::<110, c::Iq3S>(w, x, out),
            BlockType::Q4_0 => dot32::rows::<18, dot32::Q40>(w, x, out),
            BlockType::Q4_1 => dot32::rows::<20, dot32::Q41>(w, x, out),
            BlockType::Q5_0 => dot32::rows::<22, dot32::Q50>(w, x, out),
            BlockType::Q5_1 => dot32::rows::<24, dot32::Q51>(w, x, out),
            BlockType::Q8_0 => dot32::rows::<34, dot32::Q80>(w, x, out),
            BlockType::IQ4_NL => dot32::rows::<18, dot32::Iq4Nl>(w, x, out),
            BlockType::MXFP4 => dot32::rows::<17, dot32::Mxfp4>(w, x, out),
            BlockType::F32 => floats::rows::<4, floats::F32>(w, x.x, out),
            BlockType::F16 => floats::rows::<2, floats::F16>(w, x.x, out),
            BlockType::BF16 => floats::rows::<2, floats::Bf16>(w, x.x, out),
            _ => return false,
        }
    }
    true
}

/// Any type, any rounding: decode a stretch of a row, multiply it in f32.
fn decoded(
    ty: BlockType,
    w: &[u8],
    row_bytes: usize,
    n: usize,
    x: ActRow<'_>,
    out: &mut [f32],
) -> Result<(), BlockError> {
    const TILE: usize = 256; // a multiple of every block length
    let values = x.to_f32();
    if values.len() != n {
        return Err(BlockError::RowLength {
            ty,
            n: values.len(),
        });
    }
    let mut tile = [0.0; TILE];
    for (out, w) in out.iter_mut().zip(w.chunks_exact(row_bytes)) {
        let mut lanes = [0.0_f32; 8];
        for (i, x) in values.chunks(TILE).enumerate() {
            let tile = &mut tile[..x.len()];
            let from = i * TILE / ty.block_len() * ty.block_bytes();
            let len = x.len() / ty.block_len() * ty.block_bytes();
            decode(ty, &w[from..from + len], tile)?;
            for (t, x) in tile.chunks(8).zip(x.chunks(8)) {
                for ((lane, t), x) in lanes.iter_mut().zip(t).zip(x) {
                    *lane += t * x;
                }
            }
        }
        *out = lanes.iter().sum();
    }
    Ok(())
}
