//! The exponential and what is made of it, eight at a time.

use super::vec::{load_f32, store_f32, sum};
use std::arch::x86_64::*;

/// `exp(x)` within 2 units in the last place; 0 below -87.3, 2^127 and a bit above 88.3, NaN for NaN.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn exp(x: __m256) -> __m256 {
    let low = _mm256_set1_ps(-87.3);
    let vanishes = _mm256_cmp_ps::<_CMP_LT_OQ>(x, low);
    // The second operand is returned for NaN.
    let x = _mm256_min_ps(_mm256_set1_ps(88.3), x);
    let x = _mm256_max_ps(low, x);
    // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, the first exact in a product with n.
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        x,
        _mm256_set1_ps(std::f32::consts::LOG2_E),
    ));
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693_359_4), x);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
    // Taylor to the seventh power: the next term is below 6e-9 of the result.
    let mut p = _mm256_set1_ps(1.0 / 5040.0);
    for c in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    }
    let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
    let v = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    _mm256_andnot_ps(vanishes, v)
}

/// Run `f` over a slice eight at a time; the tail is padded with zeros.
macro_rules! eights {
    ($x:expr, |$v:ident, $i:ident| $body:expr) => {{
        let (eights, tail) = $x.as_chunks_mut::<8>();
        let mut $i = 0;
        for eight in eights {
            let $v = load_f32(eight);
            store_f32(eight, $body);
            $i += 8;
        }
        if !tail.is_empty() {
            let mut eight = [0.0; 8];
            eight[..tail.len()].copy_from_slice(tail);
            let $v = load_f32(&eight);
            store_f32(&mut eight, $body);
            tail.copy_from_slice(&eight[..tail.len()]);
        }
    }};
}

/// `x = exp(x - max)`; the sum is returned.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn exp_minus(x: &mut [f32], max: f32) -> f32 {
    let max = _mm256_set1_ps(max);
    eights!(x, |v, _i| exp(_mm256_sub_ps(v, max)));
    let (eights, tail) = x.as_chunks::<8>();
    let mut total = _mm256_setzero_ps();
    for eight in eights {
        total = _mm256_add_ps(total, load_f32(eight));
    }
    sum(total) + tail.iter().sum::<f32>()
}

/// `gate = gate / (1 + exp(-gate)) * up`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn silu_mul(gate: &mut [f32], up: &[f32]) {
    let one = _mm256_set1_ps(1.0);
    let sign = _mm256_set1_ps(-0.0);
    eights!(gate, |v, i| {
        let up = match up.get(i..).and_then(|u| u.first_chunk()) {
            Some(up) => load_f32(up),
            None => {
                let mut padded = [0.0; 8];
                let rest = up.get(i..).unwrap_or(&[]);
                padded[..rest.len()].copy_from_slice(rest);
                load_f32(&padded)
            }
        };
        let e = exp(_mm256_xor_ps(v, sign));
        _mm256_mul_ps(_mm256_div_ps(v, _mm256_add_ps(one, e)), up)
    });
}
