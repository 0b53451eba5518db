//! The exponential and what is made of it, four at a time.

use super::vec::{load_f32, store_f32};
use std::arch::aarch64::*;

/// `exp(x)` within 2 units in the last place; 0 below -87.3, 2^127 and a bit above 88.3, NaN for NaN.
#[inline]
#[target_feature(enable = "neon")]
fn exp(x: float32x4_t) -> float32x4_t {
    let low = vdupq_n_f32(-87.3);
    let vanishes = vcltq_f32(x, low);
    // These, unlike `vminnmq`, keep NaN.
    let x = vmaxq_f32(vminq_f32(x, vdupq_n_f32(88.3)), low);
    // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, the first exact in a product with n.
    let n = vrndnq_f32(vmulq_n_f32(x, std::f32::consts::LOG2_E));
    let r = vfmsq_n_f32(x, n, 0.693_359_4);
    let r = vfmsq_n_f32(r, n, -2.121_944_4e-4);
    // Taylor to the seventh power: the next term is below 6e-9 of the result.
    let mut p = vdupq_n_f32(1.0 / 5040.0);
    for c in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = vfmaq_f32(vdupq_n_f32(c), p, r);
    }
    let exponent = vshlq_n_s32::<23>(vcvtq_s32_f32(n));
    let v = vreinterpretq_u32_s32(vaddq_s32(vreinterpretq_s32_f32(p), exponent));
    vreinterpretq_f32_u32(vbicq_u32(v, vanishes))
}

/// Up to four floats, followed by zeros.
#[inline]
#[target_feature(enable = "neon")]
fn padded(x: &[f32]) -> float32x4_t {
    let mut four = [0.0; 4];
    four[..x.len()].copy_from_slice(x);
    load_f32(&four)
}

/// `x = exp(x - max)`; the sum is returned.
#[target_feature(enable = "neon")]
pub(crate) fn exp_minus(x: &mut [f32], max: f32) -> f32 {
    let max = vdupq_n_f32(max);
    let (fours, tail) = x.as_chunks_mut::<4>();
    let mut total = vdupq_n_f32(0.0);
    for four in fours {
        let v = exp(vsubq_f32(load_f32(four), max));
        store_f32(four, v);
        total = vaddq_f32(total, v);
    }
    let mut last = [0.0; 4];
    store_f32(&mut last, exp(vsubq_f32(padded(tail), max)));
    tail.copy_from_slice(&last[..tail.len()]);
    vaddvq_f32(total) + tail.iter().sum::<f32>()
}

/// `gate = gate / (1 + exp(-gate)) * up`.
#[target_feature(enable = "neon")]
pub(crate) fn silu_mul(gate: &mut [f32], up: &[f32]) {
    let (gates, gate_tail) = gate.as_chunks_mut::<4>();
    let (ups, up_tail) = up.as_chunks::<4>();
    for (gate, up) in gates.iter_mut().zip(ups) {
        let v = silu(load_f32(gate), load_f32(up));
        store_f32(gate, v);
    }
    let len = gate_tail.len().min(up_tail.len());
    let mut last = [0.0; 4];
    store_f32(
        &mut last,
        silu(padded(&gate_tail[..len]), padded(&up_tail[..len])),
    );
    gate_tail[..len].copy_from_slice(&last[..len]);
}

#[inline]
#[target_feature(enable = "neon")]
fn silu(gate: float32x4_t, up: float32x4_t) -> float32x4_t {
    let denominator = vaddq_f32(vdupq_n_f32(1.0), exp(vnegq_f32(gate)));
    vmulq_f32(vdivq_f32(gate, denominator), up)
}
