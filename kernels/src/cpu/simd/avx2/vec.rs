//! Small helpers over 256-bit registers.

use std::arch::x86_64::*;

/// 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load(b: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
}

/// 32 signed bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_i8(b: &[i8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
}

/// 16 words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_i16(b: &[i16; 16]) -> __m256i {
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
}

/// 16 unsigned words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_u16(b: &[u16; 16]) -> __m256i {
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
}

/// 16 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_half(b: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(b.as_ptr().cast()) }
}

/// 8 bytes in the low half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_quarter(b: &[u8; 8]) -> __m128i {
    _mm_cvtsi64_si128(i64::from_le_bytes(*b))
}

/// Eight floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_f32(b: &[f32; 8]) -> __m256 {
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_ps(b.as_ptr()) }
}

/// Write eight floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store_f32(b: &mut [f32; 8], v: __m256) {
    // SAFETY: 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_ps(b.as_mut_ptr(), v) }
}

/// Write 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store(b: &mut [u8; 32], v: __m256i) {
    // SAFETY: 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(b.as_mut_ptr().cast(), v) }
}

/// Write 16 words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store_i16(b: &mut [i16; 16], v: __m256i) {
    // SAFETY: 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(b.as_mut_ptr().cast(), v) }
}

/// `K` bytes of a block from byte `at`.
///
/// # Panics
/// If they reach past the block; with constant offsets the check disappears.
#[inline(always)]
pub(crate) fn bytes<const K: usize>(b: &[u8], at: usize) -> &[u8; K] {
    match b[at..].first_chunk() {
        Some(chunk) => chunk,
        None => panic!("a field reaches past its block"),
    }
}

/// The IEEE half at byte `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn half(b: &[u8], at: usize) -> f32 {
    half_bits(u16::from_le_bytes(*bytes(b, at)))
}

/// An IEEE half from its bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn half_bits(bits: u16) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))))
}

/// Both halves the same.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn twice(v: __m128i) -> __m256i {
    _mm256_broadcastsi128_si256(v)
}

/// Low half, high half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn join(low: __m128i, high: __m128i) -> __m256i {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

/// Sum of eight floats, in a fixed order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn sum(v: __m256) -> f32 {
    let s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps::<1>(s, s)))
}

/// Largest of eight floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn max(v: __m256) -> f32 {
    let s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps::<1>(s, s)))
}
