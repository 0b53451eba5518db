//! Blocks of 256 against one row of activations in blocks of 256.

use super::vec::{load_i8, load_i16, sum};
use crate::cpu::acts::ActRow;
use std::arch::x86_64::*;

/// What a block says besides its elements.
pub(crate) struct Head {
    /// Words: scales of the even sub-blocks of 16 in the low half, of the odd ones in the high half.
    pub scales: __m256i,
    /// Words: per sub-block of 16, what every element has added, in units of the offset's factor.
    pub offsets: __m256i,
    /// Factor of the integer sums.
    pub d: f32,
    /// Factor of the offsets, where they have their own.
    pub d_offset: f32,
}

/// How a type's elements differ from the unsigned bytes that `groups` yields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offset {
    /// The sign of an element is the sign of the byte in the second register (never zero).
    Signs,
    /// Offsets have the factor `d`.
    Shared,
    /// Offsets have the factor `d_offset`.
    Own,
}

/// A block type of 256 elements in `B` bytes.
pub(crate) trait Super<const B: usize> {
    const OFFSET: Offset;

    /// Scales, offsets and factors.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn head(w: &[u8; B]) -> Head;

    /// The elements, 32 at a time: group number, unsigned bytes, signs.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn groups(w: &[u8; B], f: impl FnMut(usize, __m256i, __m256i));
}

/// Shuffle that repeats word `j` of each half.
static REPEAT: [[u8; 32]; 8] = {
    let mut table = [[0; 32]; 8];
    let mut j = 0;
    while j < 8 {
        let mut i = 0;
        while i < 32 {
            table[j][i] = (2 * j + i % 2) as u8;
            i += 1;
        }
        j += 1;
    }
    table
};

/// `out[r] = w[r] · x` for the rows of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows<const B: usize, T: Super<B>>(w: &[u8], x: ActRow<'_>, out: &mut [f32]) {
    let (xs, _) = x.q.as_chunks::<256>();
    let (sums, _) = x.sums.as_chunks::<16>();
    let row_bytes = xs.len() * B;
    for (out, w) in out.iter_mut().zip(w.chunks_exact(row_bytes)) {
        let mut acc = _mm256_setzero_ps();
        let blocks = w.as_chunks::<B>().0.iter().zip(xs).zip(sums).zip(x.d);
        for (((w, x), sums), dx) in blocks {
            acc = block::<B, T>(acc, w, x, sums, *dx);
        }
        *out = sum(acc);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block<const B: usize, T: Super<B>>(
    mut acc: __m256,
    w: &[u8; B],
    x: &[i8; 256],
    sums: &[i16; 16],
    dx: f32,
) -> __m256 {
    // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
    let head = unsafe { T::head(w) };
    let (xs, _) = x.as_chunks::<32>();
    let mut total = _mm256_setzero_si256();
    let group = |j: usize, q: __m256i, signs: __m256i| {
        let mut x = load_i8(&xs[j & 7]);
        if T::OFFSET == Offset::Signs {
            x = _mm256_sign_epi8(x, signs);
        }
        let scale = _mm256_shuffle_epi8(head.scales, super::vec::load(&REPEAT[j & 7]));
        let pairs = _mm256_maddubs_epi16(q, x);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, scale));
    };
    // SAFETY: as above.
    unsafe { T::groups(w, group) };
    if T::OFFSET != Offset::Signs {
        let offset = _mm256_madd_epi16(head.offsets, load_i16(sums));
        if T::OFFSET == Offset::Shared {
            total = _mm256_add_epi32(total, offset);
        } else {
            let factor = _mm256_set1_ps(head.d_offset * dx);
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(offset), factor, acc);
        }
    }
    let factor = _mm256_set1_ps(head.d * dx);
    _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), factor, acc)
}
