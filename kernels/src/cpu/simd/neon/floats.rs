//! Rows of floats: dot products and sums, from f32, f16 and bf16 as they lie in memory.

use super::vec::{halves, load_f32, store_f32};
use half::{bf16, f16};
use std::arch::aarch64::*;

/// A float of `B` bytes, the lowest first.
pub(crate) trait Float<const B: usize> {
    /// Four of them as f32.
    ///
    /// # Safety
    /// The processor has NEON.
    unsafe fn four(v: &[[u8; B]; 4]) -> float32x4_t;

    /// One as f32.
    fn one(v: [u8; B]) -> f32;
}

impl Float<4> for f32 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn four(v: &[[u8; 4]; 4]) -> float32x4_t {
        // SAFETY: 16 readable bytes; the load needs no alignment.
        unsafe { vld1q_f32(v.as_ptr().cast()) }
    }

    #[inline(always)]
    fn one(v: [u8; 4]) -> f32 {
        f32::from_le_bytes(v)
    }
}

/// Four numbers of two bytes.
#[inline]
#[target_feature(enable = "neon")]
fn bits(v: &[[u8; 2]; 4]) -> uint16x4_t {
    // SAFETY: eight readable bytes; the load needs no alignment.
    unsafe { vld1_u16(v.as_ptr().cast()) }
}

impl Float<2> for f16 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn four(v: &[[u8; 2]; 4]) -> float32x4_t {
        halves(bits(v))
    }

    #[inline(always)]
    fn one(v: [u8; 2]) -> f32 {
        f16::from_le_bytes(v).to_f32()
    }
}

impl Float<2> for bf16 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn four(v: &[[u8; 2]; 4]) -> float32x4_t {
        // They are the upper halves of f32.
        vreinterpretq_f32_u32(vshll_n_u16::<16>(bits(v)))
    }

    #[inline(always)]
    fn one(v: [u8; 2]) -> f32 {
        bf16::from_le_bytes(v).to_f32()
    }
}

/// `a` as its bytes.
pub(crate) fn raw<const B: usize, T: Float<B>>(a: &[T]) -> &[[u8; B]] {
    const { assert!(size_of::<T>() == B) };
    // SAFETY: floats of `B` bytes, without padding; bytes need no alignment.
    unsafe { std::slice::from_raw_parts(a.as_ptr().cast(), a.len()) }
}

/// `a · x`, four sums of four lanes.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn dot<const B: usize, T: Float<B>>(a: &[[u8; B]], x: &[f32]) -> f32 {
    let (a16, a_rest) = a.as_chunks::<16>();
    let (x16, x_rest) = x.as_chunks::<16>();
    let mut acc = [vdupq_n_f32(0.0); 4];
    for (a, x) in a16.iter().zip(x16) {
        for ((acc, a), x) in acc.iter_mut().zip(a.as_chunks().0).zip(x.as_chunks().0) {
            // SAFETY: this function is only reached where the processor has NEON.
            *acc = vfmaq_f32(*acc, unsafe { T::four(a) }, load_f32(x));
        }
    }
    let [a, b, c, d] = acc;
    let mut total = vaddvq_f32(vaddq_f32(vaddq_f32(a, b), vaddq_f32(c, d)));
    for (a, x) in a_rest.iter().zip(x_rest) {
        total += T::one(*a) * x;
    }
    total
}

/// `y += factor * a`.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn axpy<const B: usize, T: Float<B>>(y: &mut [f32], factor: f32, a: &[[u8; B]]) {
    let (a4, a_rest) = a.as_chunks::<4>();
    let (y4, y_rest) = y.as_chunks_mut::<4>();
    for (a, y) in a4.iter().zip(y4) {
        // SAFETY: this function is only reached where the processor has NEON.
        let v = vfmaq_n_f32(load_f32(y), unsafe { T::four(a) }, factor);
        store_f32(y, v);
    }
    // Fused as above: an element's result may not depend on how far from the end it lies.
    for (a, y) in a_rest.iter().zip(y_rest) {
        *y = T::one(*a).mul_add(factor, *y);
    }
}

/// `out[r] = w[r] · x` for rows of floats.
#[target_feature(enable = "neon")]
pub(crate) fn rows<const B: usize, T: Float<B>>(w: &[u8], x: &[f32], out: &mut [f32]) {
    for (out, w) in out.iter_mut().zip(w.chunks_exact(x.len() * B)) {
        *out = dot::<B, T>(w.as_chunks().0, x);
    }
}
