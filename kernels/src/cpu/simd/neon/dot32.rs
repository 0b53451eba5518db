//! Blocks of 32 against rows of activations in blocks of 32.

use super::kquant::{levels, minus, nibbles};
use super::vec::{Bytes32, Dot, bytes, half, load, load_32};
use crate::blocks::bits::{FP4_DOUBLED, IQ4_LEVELS, e8m0_half, u32_at};
use crate::cpu::acts::ActRow;
use std::arch::aarch64::*;

/// A block type of 32 elements in `B` bytes.
pub(crate) trait Small<const B: usize> {
    /// The elements as signed bytes.
    ///
    /// # Safety
    /// The processor has NEON.
    unsafe fn values(w: &[u8; B]) -> Bytes32;

    /// The factor of the elements, and what is added to every one of them.
    ///
    /// # Safety
    /// The processor has NEON.
    unsafe fn scale_and_min(w: &[u8; B]) -> (f32, f32);
}

/// 16 bytes of nibbles with 32 fifth bits.
#[inline]
#[target_feature(enable = "neon")]
fn five_bits(q: &[u8; 16], high: u32) -> [uint8x16_t; 2] {
    let bit = vcreate_u8(0x8040_2010_0804_0201);
    let bit = vcombine_u8(bit, bit);
    let high = high.to_le_bytes();
    let low = nibbles(q);
    [0, 1].map(|i| {
        let spread = vcombine_u8(vdup_n_u8(high[2 * i]), vdup_n_u8(high[2 * i + 1]));
        let fifth = vandq_u8(vtstq_u8(spread, bit), vdupq_n_u8(16));
        vorrq_u8(low[i], fifth)
    })
}

macro_rules! small {
    ($name:ident, $bytes:literal, |$w:ident| $values:expr, $scale:expr, $min:expr) => {
        pub(crate) enum $name {}
        impl Small<$bytes> for $name {
            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn values($w: &[u8; $bytes]) -> Bytes32 {
                $values
            }

            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn scale_and_min($w: &[u8; $bytes]) -> (f32, f32) {
                ($scale, $min)
            }
        }
    };
}

small!(
    Q80,
    34,
    |w| [2, 18].map(|at| vreinterpretq_s8_u8(load(bytes(w, at)))),
    half(w, 0),
    0.0
);
small!(
    Q40,
    18,
    |w| nibbles(bytes(w, 2)).map(|q| minus(q, 8)),
    half(w, 0),
    0.0
);
small!(
    Q41,
    20,
    |w| nibbles(bytes(w, 4)).map(|q| minus(q, 0)),
    half(w, 0),
    half(w, 2)
);
small!(
    Q50,
    22,
    |w| five_bits(bytes(w, 6), u32_at(w, 2)).map(|q| minus(q, 16)),
    half(w, 0),
    0.0
);
small!(
    Q51,
    24,
    |w| five_bits(bytes(w, 8), u32_at(w, 4)).map(|q| minus(q, 0)),
    half(w, 0),
    half(w, 2)
);
small!(
    Iq4Nl,
    18,
    |w| levels(&IQ4_LEVELS, bytes(w, 2)),
    half(w, 0),
    0.0
);
small!(
    Mxfp4,
    17,
    |w| levels(&FP4_DOUBLED, bytes(w, 1)),
    e8m0_half(w[0]),
    0.0
);

/// `out[r] = w[r] · x` for the rows of `w`.
///
/// # Safety
/// The processor has NEON and what `D` needs.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn rows<const B: usize, T: Small<B>, D: Dot>(
    w: &[u8],
    x: ActRow<'_>,
    out: &mut [f32],
) {
    let (blocks, _) = w.as_chunks::<B>();
    let (xs, _) = x.q.as_chunks::<32>();
    for (out, row) in out.iter_mut().zip(blocks.chunks_exact(xs.len())) {
        let mut acc = vdupq_n_f32(0.0);
        let mut mins = 0.0_f32;
        for (b, ((w, q), dx)) in row.iter().zip(xs).zip(x.d).enumerate() {
            // SAFETY: the caller's promise.
            let ([w0, w1], (d, min)) = unsafe { (T::values(w), T::scale_and_min(w)) };
            let [x0, x1] = load_32(q);
            // SAFETY: as above.
            let total = unsafe { D::dot(D::dot(vdupq_n_s32(0), w0, x0), w1, x1) };
            acc = vfmaq_n_f32(acc, vcvtq_f32_s32(total), d * dx);
            mins += min * x.s[b];
        }
        *out = vaddvq_f32(acc) + mins;
    }
}
