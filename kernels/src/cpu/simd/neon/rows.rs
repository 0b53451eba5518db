//! Which kernel serves a block type.

use super::vec::{Dot, Sdot, Widening};
use super::{codebook as c, dot32, dot256, floats, kquant as k};
use crate::blocks::BlockType;
use crate::cpu::acts::{ActKind, ActRow, Acts};
use crate::cpu::matmul::{ROWS, Rows};
use half::{bf16, f16};

/// Call `$run!(bytes, type)` for the type of 256 elements that `$ty` names, or run `$else`.
macro_rules! supers {
    ($ty:expr, $run:ident, $else:expr) => {
        match $ty {
            BlockType::Q2_K => $run!(84, k::Q2K),
            BlockType::Q3_K => $run!(110, k::Q3K),
            BlockType::Q4_K => $run!(144, k::Q4K),
            BlockType::Q5_K => $run!(176, k::Q5K),
            BlockType::Q6_K => $run!(210, k::Q6K),
            BlockType::TQ2_0 => $run!(66, k::Tq20),
            BlockType::IQ4_XS => $run!(136, k::Iq4Xs),
            BlockType::IQ1_S => $run!(50, c::Iq1S),
            BlockType::IQ1_M => $run!(56, c::Iq1M),
            BlockType::IQ2_XXS => $run!(66, c::Iq2Xxs),
            BlockType::IQ2_XS => $run!(74, c::Iq2Xs),
            BlockType::IQ2_S => $run!(82, c::Iq2S),
            BlockType::IQ3_XXS => $run!(98, c::Iq3Xxs),
            BlockType::IQ3_S => $run!(110, c::Iq3S),
            _ => $else,
        }
    };
}

/// `out[r] = w[r] · x`, if the type has a kernel. `x` is rounded as [`ActKind::of`] says.
///
/// # Safety
/// The processor has NEON, and `sdot` if `has_sdot`.
pub(crate) unsafe fn gemv(
    has_sdot: bool,
    ty: BlockType,
    w: &[u8],
    x: ActRow<'_>,
    out: &mut [f32],
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if has_sdot {
            gemv_with::<Sdot>(ty, w, x, out)
        } else {
            gemv_with::<Widening>(ty, w, x, out)
        }
    }
}

/// # Safety
/// The processor has NEON and what `D` needs.
unsafe fn gemv_with<D: Dot>(ty: BlockType, w: &[u8], x: ActRow<'_>, out: &mut [f32]) -> bool {
    macro_rules! rows256 {
        ($bytes:literal, $t:ty) => {
            dot256::rows::<$bytes, $t, D>(w, x, out)
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        match ty {
            BlockType::Q4_0 => dot32::rows::<18, dot32::Q40, D>(w, x, out),
            BlockType::Q4_1 => dot32::rows::<20, dot32::Q41, D>(w, x, out),
            BlockType::Q5_0 => dot32::rows::<22, dot32::Q50, D>(w, x, out),
            BlockType::Q5_1 => dot32::rows::<24, dot32::Q51, D>(w, x, out),
            BlockType::Q8_0 => dot32::rows::<34, dot32::Q80, D>(w, x, out),
            BlockType::IQ4_NL => dot32::rows::<18, dot32::Iq4Nl, D>(w, x, out),
            BlockType::MXFP4 => dot32::rows::<17, dot32::Mxfp4, D>(w, x, out),
            BlockType::F32 => floats::rows::<4, f32>(w, x.x, out),
            BlockType::F16 => floats::rows::<2, f16>(w, x.x, out),
            BlockType::BF16 => floats::rows::<2, bf16>(w, x.x, out),
            _ => supers!(ty, rows256, return false),
        }
    }
    true
}

/// Up to 16 rows against all the activation rows wanted, if the type has a kernel that gains by it.
///
/// # Safety
/// As [`gemv`].
pub(crate) unsafe fn panel(
    has_sdot: bool,
    ty: BlockType,
    w: &[u8],
    acts: &Acts,
    which: Rows<'_>,
    sums: &mut [[f32; ROWS]],
) -> bool {
    macro_rules! panel256 {
        ($bytes:literal, $t:ty) => {
            if has_sdot {
                dot256::panel::<$bytes, $t, Sdot>(w, acts, which, sums)
            } else {
                dot256::panel::<$bytes, $t, Widening>(w, acts, which, sums)
            }
        };
    }
    if acts.kind() != ActKind::Q256 || ActKind::of(ty) != ActKind::Q256 {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { supers!(ty, panel256, return false) };
    true
}
