//! Rounding activations to signed bytes.

use super::vec::{load_f32, max};
use std::arch::x86_64::*;

/// Largest magnitude of the values; NaN if one of them is.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn largest(x: &[f32]) -> f32 {
    let no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFF_FFFF));
    let mut m = _mm256_setzero_ps();
    let mut nan = _mm256_setzero_ps();
    for x in x.as_chunks::<8>().0 {
        let x = load_f32(x);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        m = _mm256_max_ps(_mm256_and_ps(x, no_sign), m);
    }
    if _mm256_movemask_ps(nan) == 0 {
        max(m)
    } else {
        f32::NAN
    }
}

/// `x * factor` to bytes, halves to even, not above 127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn round32(x: &[f32; 32], factor: f32) -> __m256i {
    let factor = _mm256_set1_ps(factor);
    let [a, b, c, d] = [0, 8, 16, 24].map(|at| {
        let eight = x[at..].first_chunk().unwrap_or(&[0.0; 8]);
        _mm256_cvtps_epi32(_mm256_mul_ps(load_f32(eight), factor))
    });
    // The packs work in 128-bit lanes; the permutation puts the groups of four back in order.
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// 32 values to bytes; the scale is returned.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn block32(x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    let largest = largest(x);
    let inverse = if largest != 0.0 { 127.0 / largest } else { 0.0 };
    let bytes = round32(x, inverse);
    // SAFETY: 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(q.as_mut_ptr().cast(), bytes) };
    largest / 127.0
}

/// 256 values to bytes with sums of 16; the scale is returned.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn block256(x: &[f32; 256], q: &mut [i8; 256], sums: &mut [i16; 16]) -> f32 {
    let magnitude = largest(x);
    if magnitude == 0.0 {
        q.fill(0);
        sums.fill(0);
        return 0.0;
    }
    // The first element of that magnitude lends its sign.
    let signed = first_of(x, magnitude);
    let inverse = -127.0 / signed;
    let ones8 = _mm256_set1_epi8(1);
    let ones16 = _mm256_set1_epi16(1);
    let groups = x.as_chunks().0.iter().zip(q.as_chunks_mut::<32>().0);
    for ((x, q), sums) in groups.zip(sums.as_chunks_mut::<2>().0) {
        let bytes = round32(x, inverse);
        // SAFETY: 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(q.as_mut_ptr().cast(), bytes) };
        let pairs = _mm256_maddubs_epi16(ones8, bytes);
        let fours = _mm256_madd_epi16(pairs, ones16);
        let eights = _mm256_hadd_epi32(fours, fours);
        let sixteens = _mm256_hadd_epi32(eights, eights);
        sums[0] = _mm256_extract_epi32::<0>(sixteens) as i16;
        sums[1] = _mm256_extract_epi32::<4>(sixteens) as i16;
    }
    1.0 / inverse
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn first_of(x: &[f32; 256], magnitude: f32) -> f32 {
    let no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFF_FFFF));
    let wanted = _mm256_set1_ps(magnitude);
    for eight in x.as_chunks::<8>().0 {
        let same = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_and_ps(load_f32(eight), no_sign), wanted);
        let mask = _mm256_movemask_ps(same);
        if mask != 0 {
            return eight[mask.trailing_zeros() as usize & 7];
        }
    }
    magnitude
}
