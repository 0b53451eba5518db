//! Rounding activations to signed bytes.

use super::vec::{load_f32, store_i8};
use std::arch::aarch64::*;

/// Largest magnitude of the values; NaN if one of them is.
#[inline]
#[target_feature(enable = "neon")]
fn largest(x: &[f32]) -> f32 {
    let mut m = vdupq_n_f32(0.0);
    for x in x.as_chunks::<4>().0 {
        m = vmaxq_f32(vabsq_f32(load_f32(x)), m);
    }
    vmaxvq_f32(m)
}

/// `x * factor` to bytes, halves to even, not above 127.
#[inline]
#[target_feature(enable = "neon")]
fn round16(x: &[f32; 16], factor: f32) -> int8x16_t {
    let (fours, _) = x.as_chunks::<4>();
    let four = |i: usize| vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(load_f32(&fours[i]), factor)));
    let low = vcombine_s16(four(0), four(1));
    let high = vcombine_s16(four(2), four(3));
    vcombine_s8(vqmovn_s16(low), vqmovn_s16(high))
}

/// 32 values to bytes; the scale is returned.
#[target_feature(enable = "neon")]
pub(crate) fn block32(x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    let largest = largest(x);
    let inverse = if largest != 0.0 { 127.0 / largest } else { 0.0 };
    for (x, q) in x.as_chunks().0.iter().zip(q.as_chunks_mut().0) {
        store_i8(q, round16(x, inverse));
    }
    largest / 127.0
}

/// 256 values to bytes with sums of 16; the scale is returned.
#[target_feature(enable = "neon")]
pub(crate) fn block256(x: &[f32; 256], q: &mut [i8; 256], sums: &mut [i16; 16]) -> f32 {
    let magnitude = largest(x);
    if magnitude == 0.0 {
        q.fill(0);
        sums.fill(0);
        return 0.0;
    }
    // The first element of that magnitude lends its sign.
    let signed = x.iter().find(|v| v.abs() == magnitude);
    let inverse = -127.0 / signed.copied().unwrap_or(magnitude);
    let groups = x.as_chunks().0.iter().zip(q.as_chunks_mut().0);
    for ((x, q), sum) in groups.zip(sums) {
        let bytes = round16(x, inverse);
        store_i8(q, bytes);
        *sum = vaddlvq_s8(bytes);
    }
    1.0 / inverse
}
