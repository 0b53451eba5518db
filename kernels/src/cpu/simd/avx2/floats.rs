//! Rows of floats: dot products and sums, from f32, f16 and bf16.

use super::vec::{load_f32, load_half, store_f32, sum};
use std::arch::x86_64::*;

/// Elements that eight lanes of f32 can be read from.
pub(crate) trait Lanes: Copy {
    /// Eight elements as f32.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn eight(v: &[Self; 8]) -> __m256;

    /// One element as f32.
    fn one(self) -> f32;
}

impl Lanes for f32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(v: &[f32; 8]) -> __m256 {
        load_f32(v)
    }

    #[inline(always)]
    fn one(self) -> f32 {
        self
    }
}

impl Lanes for half::f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(v: &[half::f16; 8]) -> __m256 {
        // SAFETY: 16 readable bytes; the load needs no alignment.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(v.as_ptr().cast()) })
    }

    #[inline(always)]
    fn one(self) -> f32 {
        self.to_f32()
    }
}

impl Lanes for half::bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(v: &[half::bf16; 8]) -> __m256 {
        // SAFETY: 16 readable bytes; the load needs no alignment.
        let bits = unsafe { _mm_loadu_si128(v.as_ptr().cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
    }

    #[inline(always)]
    fn one(self) -> f32 {
        self.to_f32()
    }
}

/// `a · x`, four sums of eight lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn dot<T: Lanes>(a: &[T], x: &[f32]) -> f32 {
    let (a32, a_rest) = a.as_chunks::<32>();
    let (x32, x_rest) = x.as_chunks::<32>();
    let mut acc = [_mm256_setzero_ps(); 4];
    for (a, x) in a32.iter().zip(x32) {
        for ((acc, a), x) in acc.iter_mut().zip(a.as_chunks().0).zip(x.as_chunks().0) {
            // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
            *acc = _mm256_fmadd_ps(unsafe { T::eight(a) }, load_f32(x), *acc);
        }
    }
    let (a8, a_rest) = a_rest.as_chunks::<8>();
    let (x8, x_rest) = x_rest.as_chunks::<8>();
    for (a, x) in a8.iter().zip(x8) {
        // SAFETY: as above.
        acc[0] = _mm256_fmadd_ps(unsafe { T::eight(a) }, load_f32(x), acc[0]);
    }
    let [a, b, c, d] = acc;
    let mut total = sum(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
    for (a, x) in a_rest.iter().zip(x_rest) {
        total += a.one() * x;
    }
    total
}

/// `y += factor * a`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn axpy<T: Lanes>(y: &mut [f32], factor: f32, a: &[T]) {
    let (a8, a_rest) = a.as_chunks::<8>();
    let (y8, y_rest) = y.as_chunks_mut::<8>();
    let f = _mm256_set1_ps(factor);
    for (a, y) in a8.iter().zip(y8) {
        // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
        let v = _mm256_fmadd_ps(unsafe { T::eight(a) }, f, load_f32(y));
        store_f32(y, v);
    }
    // Fused as above: an element's result may not depend on how far from the end it lies.
    for (a, y) in a_rest.iter().zip(y_rest) {
        *y = a.one().mul_add(factor, *y);
    }
}

/// `out[r] = w[r] · x` for rows of little-endian floats.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows<const B: usize, T: FromBytes<B>>(w: &[u8], x: &[f32], out: &mut [f32]) {
    for (out, w) in out.iter_mut().zip(w.chunks_exact(x.len() * B)) {
        let (w8, w_rest) = w.as_chunks::<B>();
        let _ = w_rest;
        *out = dot_bytes::<B, T>(w8, x);
    }
}

/// Floats that lie in a file as `B` little-endian bytes.
pub(crate) trait FromBytes<const B: usize> {
    /// Eight floats.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn eight(w: &[[u8; B]; 8]) -> __m256;

    /// One float.
    fn one(w: &[u8; B]) -> f32;
}

pub(crate) enum F32 {}
impl FromBytes<4> for F32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(w: &[[u8; 4]; 8]) -> __m256 {
        // SAFETY: 32 readable bytes; the load needs no alignment.
        unsafe { _mm256_loadu_ps(w.as_ptr().cast()) }
    }

    #[inline(always)]
    fn one(w: &[u8; 4]) -> f32 {
        f32::from_le_bytes(*w)
    }
}

pub(crate) enum F16 {}
impl FromBytes<2> for F16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(w: &[[u8; 2]; 8]) -> __m256 {
        _mm256_cvtph_ps(load_half(flat(w)))
    }

    #[inline(always)]
    fn one(w: &[u8; 2]) -> f32 {
        half::f16::from_le_bytes(*w).to_f32()
    }
}

pub(crate) enum Bf16 {}
impl FromBytes<2> for Bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(w: &[[u8; 2]; 8]) -> __m256 {
        let bits = _mm256_cvtepu16_epi32(load_half(flat(w)));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
    }

    #[inline(always)]
    fn one(w: &[u8; 2]) -> f32 {
        half::bf16::from_le_bytes(*w).to_f32()
    }
}

/// Eight pairs of bytes as 16 bytes.
#[inline(always)]
fn flat(w: &[[u8; 2]; 8]) -> &[u8; 16] {
    match w.as_flattened().first_chunk() {
        Some(all) => all,
        None => &[0; 16],
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot_bytes<const B: usize, T: FromBytes<B>>(w: &[[u8; B]], x: &[f32]) -> f32 {
    let (w32, w_rest) = w.as_chunks::<32>();
    let (x32, x_rest) = x.as_chunks::<32>();
    let mut acc = [_mm256_setzero_ps(); 4];
    for (w, x) in w32.iter().zip(x32) {
        for ((acc, w), x) in acc.iter_mut().zip(w.as_chunks().0).zip(x.as_chunks().0) {
            // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
            *acc = _mm256_fmadd_ps(unsafe { T::eight(w) }, load_f32(x), *acc);
        }
    }
    let (w8, w_rest) = w_rest.as_chunks::<8>();
    let (x8, x_rest) = x_rest.as_chunks::<8>();
    for (w, x) in w8.iter().zip(x8) {
        // SAFETY: as above.
        acc[0] = _mm256_fmadd_ps(unsafe { T::eight(w) }, load_f32(x), acc[0]);
    }
    let [a, b, c, d] = acc;
    let mut total = sum(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
    for (w, x) in w_rest.iter().zip(x_rest) {
        total += T::one(w) * x;
    }
    total
}
