//! Blocks of 32 against one row of activations in blocks of 32.
//!
//! Four rows go side by side: they share the activations, and their sums do not wait for each
//! other.

use super::kquant::{iq4_levels, nibbles16};
use super::vec::{bytes, half, load, load_i8, sum, twice};
use crate::blocks::bits::{e8m0_half, u32_at};
use crate::cpu::acts::ActRow;
use std::arch::x86_64::*;

/// A block type of 32 elements in `B` bytes.
pub(crate) trait Small<const B: usize> {
    /// Whether elements are unsigned and share a minimum.
    const HAS_MIN: bool = false;

    /// The elements as bytes: signed, or unsigned where there is a minimum.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn values(w: &[u8; B]) -> __m256i;

    /// The factor of the elements.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn scale(w: &[u8; B]) -> f32;

    /// What is added to every element.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn min(_w: &[u8; B]) -> f32 {
        0.0
    }
}

/// Bit `i` of `bits` in byte `i`, all ones or zero.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn spread_bits(bits: u32) -> __m256i {
    let pick = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3,
        3, 3,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), pick);
    _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit)
}

/// 16 bytes of nibbles and 32 fifth bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn five_bits(q: &[u8; 16], high: u32) -> __m256i {
    let fifth = _mm256_and_si256(spread_bits(high), _mm256_set1_epi8(16));
    _mm256_or_si256(nibbles16(q), fifth)
}

macro_rules! small {
    ($name:ident, $bytes:literal, |$w:ident| $values:expr) => {
        small!($name, $bytes, |$w| $values, half($w, 0));
    };
    ($name:ident, $bytes:literal, |$w:ident| $values:expr, $scale:expr) => {
        small!($name, $bytes, |$w| $values, $scale, min: false, 0.0);
    };
    ($name:ident, $bytes:literal, |$w:ident| $values:expr, $scale:expr, min: $has:literal, $min:expr) => {
        pub(crate) enum $name {}
        impl Small<$bytes> for $name {
            const HAS_MIN: bool = $has;

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn values($w: &[u8; $bytes]) -> __m256i {
                $values
            }

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn scale($w: &[u8; $bytes]) -> f32 {
                $scale
            }

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(unused_variables, reason = "most types have no minimum")]
            unsafe fn min($w: &[u8; $bytes]) -> f32 {
                $min
            }
        }
    };
}

small!(Q80, 34, |w| load(bytes(w, 2)));
small!(Q40, 18, |w| _mm256_sub_epi8(
    nibbles16(bytes(w, 2)),
    _mm256_set1_epi8(8)
));
small!(Q41, 20, |w| nibbles16(bytes(w, 4)), half(w, 0), min: true, half(w, 2));
small!(Q50, 22, |w| _mm256_sub_epi8(
    five_bits(bytes(w, 6), u32_at(w, 2)),
    _mm256_set1_epi8(16)
));
small!(Q51, 24, |w| five_bits(bytes(w, 8), u32_at(w, 4)), half(w, 0), min: true, half(w, 2));
small!(Iq4Nl, 18, |w| iq4_levels(bytes(w, 2)));
small!(
    Mxfp4,
    17,
    |w| {
        let levels = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
        _mm256_shuffle_epi8(twice(levels), nibbles16(bytes(w, 1)))
    },
    e8m0_half(w[0])
);

/// `out[r] = w[r] · x` for the rows of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows<const B: usize, T: Small<B>>(w: &[u8], x: ActRow<'_>, out: &mut [f32]) {
    let row_bytes = x.d.len() * B;
    let (fours, rest) = out.as_chunks_mut::<4>();
    let (w4, w1) = w.split_at(fours.len() * 4 * row_bytes);
    for (out, w) in fours.iter_mut().zip(w4.chunks_exact(4 * row_bytes)) {
        *out = several::<B, 4, T>(w, row_bytes, x);
    }
    for (out, w) in rest.iter_mut().zip(w1.chunks_exact(row_bytes)) {
        [*out] = several::<B, 1, T>(w, row_bytes, x);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn several<const B: usize, const R: usize, T: Small<B>>(
    w: &[u8],
    row_bytes: usize,
    x: ActRow<'_>,
) -> [f32; R] {
    let (xs, _) = x.q.as_chunks::<32>();
    let ones = _mm256_set1_epi16(1);
    let mut acc = [_mm256_setzero_ps(); R];
    let mut mins = [0.0_f32; R];
    for (b, (q, dx)) in xs.iter().zip(x.d).enumerate() {
        let q = load_i8(q);
        for r in 0..R {
            let w: &[u8; B] = bytes(w, r * row_bytes + b * B);
            // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
            let (v, d) = unsafe { (T::values(w), T::scale(w)) };
            let pairs = if T::HAS_MIN {
                // SAFETY: as above.
                mins[r] += unsafe { T::min(w) } * x.s[b];
                _mm256_maddubs_epi16(v, q)
            } else {
                _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(q, v))
            };
            let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
            acc[r] = _mm256_fmadd_ps(total, _mm256_set1_ps(d * dx), acc[r]);
        }
    }
    let mut out = mins;
    for (out, acc) in out.iter_mut().zip(acc) {
        *out += sum(acc);
    }
    out
}
