//! Rows of f32: norms, softmax, activations, and dot products with cache rows of any float type.

use super::Isa;
use super::cachemul::Strided;
use super::matmul::Scratch;
use half::{bf16, f16};

/// Elements of a cache row.
pub(super) trait Element: Copy + Send + Sync + 'static {
    /// As f32.
    fn to_f32(self) -> f32;
    /// From f32, rounded to the nearest.
    fn from_f32(v: f32) -> Self;
    /// `a · x`.
    fn dot(isa: Isa, a: &[Self], x: &[f32]) -> f32;
    /// `y += factor * a`.
    fn axpy(isa: Isa, y: &mut [f32], factor: f32, a: &[Self]);
    /// `y = Σ_k x[k] * values(k)[..y.len()]`.
    fn mix<'a>(isa: Isa, values: impl Fn(usize) -> &'a [Self], x: &[f32], y: &mut [f32]);
    /// The tiled way of [`Scratch::dots`], where there is one.
    #[doc(hidden)]
    fn dots_tiled(
        s: &mut Scratch,
        isa: Isa,
        keys: &[&[Self]],
        width: usize,
        x: Strided<'_>,
    ) -> bool;
    /// The tiled way of [`Scratch::mix`], where there is one.
    #[doc(hidden)]
    fn mix_tiled<'a>(
        s: &mut Scratch,
        isa: Isa,
        values: impl Fn(usize) -> &'a [Self],
        n: usize,
        column: usize,
        x: Strided<'_>,
    ) -> bool;
}

macro_rules! element {
    ($t:ty, |$v:ident| $to:expr, $from:expr) => {
        impl Element for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                let $v = self;
                $to
            }

            #[inline(always)]
            fn from_f32(v: f32) -> Self {
                $from(v)
            }

            fn dot(isa: Isa, a: &[Self], x: &[f32]) -> f32 {
                #[cfg(target_arch = "x86_64")]
                if isa.has_avx2() {
                    // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
                    return unsafe { super::simd::avx2::floats::dot(a, x) };
                }
                #[cfg(target_arch = "aarch64")]
                if isa.has_neon() {
                    use super::simd::neon::floats::{dot, raw};
                    // SAFETY: every aarch64 has NEON.
                    return unsafe { dot::<{ size_of::<$t>() }, $t>(raw(a), x) };
                }
                let _ = isa;
                let mut lanes = [0.0_f32; 8];
                for (a, x) in a.chunks(8).zip(x.chunks(8)) {
                    for ((lane, a), x) in lanes.iter_mut().zip(a).zip(x) {
                        *lane += a.to_f32() * x;
                    }
                }
                lanes.iter().sum()
            }

            fn axpy(isa: Isa, y: &mut [f32], factor: f32, a: &[Self]) {
                #[cfg(target_arch = "x86_64")]
                if isa.has_avx2() {
                    // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
                    return unsafe { super::simd::avx2::floats::axpy(y, factor, a) };
                }
                #[cfg(target_arch = "aarch64")]
                if isa.has_neon() {
                    use super::simd::neon::floats::{axpy, raw};
                    // SAFETY: every aarch64 has NEON.
                    return unsafe { axpy::<{ size_of::<$t>() }, $t>(y, factor, raw(a)) };
                }
                let _ = isa;
                for (y, a) in y.iter_mut().zip(a) {
                    *y += factor * a.to_f32();
                }
            }

            fn mix<'a>(isa: Isa, values: impl Fn(usize) -> &'a [Self], x: &[f32], y: &mut [f32]) {
                #[cfg(target_arch = "x86_64")]
                if isa.has_avx2() {
                    // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
                    return unsafe { super::simd::avx2::cachetile::mix_one(values, x, y) };
                }
                y.fill(0.0);
                for (k, x) in x.iter().enumerate() {
                    Self::axpy(isa, y, *x, values(k));
                }
            }

            fn dots_tiled(
                s: &mut Scratch,
                isa: Isa,
                keys: &[&[Self]],
                width: usize,
                x: Strided<'_>,
            ) -> bool {
                #[cfg(target_arch = "x86_64")]
                if isa.has_avx2() {
                    use super::simd::avx2::{cachetile, tile::Tiles};
                    let tiles = s.tiles.get_or_insert_with(Tiles::new);
                    let (x, stride) = (x.x, x.stride);
                    let x = cachetile::Strided { x, stride };
                    // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
                    unsafe {
                        cachetile::dots(tiles, keys, width, x, isa == Isa::Avx512, &mut s.sums)
                    };
                    return true;
                }
                let _ = (s, isa, keys, width, x);
                false
            }

            fn mix_tiled<'a>(
                s: &mut Scratch,
                isa: Isa,
                values: impl Fn(usize) -> &'a [Self],
                n: usize,
                column: usize,
                x: Strided<'_>,
            ) -> bool {
                #[cfg(target_arch = "x86_64")]
                if isa.has_avx2() {
                    use super::simd::avx2::{cachetile, tile::Tiles};
                    let tiles = s.tiles.get_or_insert_with(Tiles::new);
                    let (x, stride) = (x.x, x.stride);
                    let x = cachetile::Strided { x, stride };
                    // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
                    unsafe {
                        cachetile::mix(tiles, values, n, column, x, isa == Isa::Avx512, &mut s.sums)
                    };
                    return true;
                }
                let _ = (s, isa, values, n, column, x);
                false
            }
        }
    };
}

element!(f32, |v| v, |v| v);
element!(f16, |v| f16::to_f32(v), f16::from_f32);
element!(bf16, |v| bf16::to_f32(v), bf16::from_f32);

/// `1 / sqrt(mean(x²) + eps)`.
pub(super) fn rms_scale(isa: Isa, x: &[f32], eps: f32) -> f32 {
    let sum = f32::dot(isa, x, x);
    1.0 / (sum / x.len().max(1) as f32 + eps).sqrt()
}

/// `out = x * rms_scale(x) * w`.
pub(super) fn rms_norm(isa: Isa, x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    let scale = rms_scale(isa, x, eps);
    for ((o, x), w) in out.iter_mut().zip(x).zip(w) {
        *o = x * scale * w;
    }
}

/// Replace scores by `exp(score - max) / sum`. Scores of minus infinity become 0.
pub(super) fn softmax(isa: Isa, x: &mut [f32]) {
    softmax_with(isa, x, None);
}

/// As [`softmax`], with a sink that takes its share of the sum. The logarithm of the scores' own sum of exponentials is
/// returned, minus infinity without scores.
pub(super) fn softmax_with(isa: Isa, x: &mut [f32], sink: Option<f32>) -> f32 {
    let max = x.iter().fold(f32::NEG_INFINITY, |a, v| a.max(*v));
    if max == f32::NEG_INFINITY {
        // NaN, which `max` skips, stays.
        x.iter_mut().filter(|v| !v.is_nan()).for_each(|v| *v = 0.0);
        return max;
    }
    let sum = exp_minus(isa, x, max);
    let scale = 1.0 / (sum + sink.map_or(0.0, |s| (s - max).exp()));
    x.iter_mut().for_each(|v| *v *= scale);
    max + sum.ln()
}

/// `x = exp(x - max)`; the sum is returned.
fn exp_minus(isa: Isa, x: &mut [f32], max: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
        return unsafe { super::simd::avx2::exp::exp_minus(x, max) };
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has_neon() {
        // SAFETY: every aarch64 has NEON.
        return unsafe { super::simd::neon::exp::exp_minus(x, max) };
    }
    let _ = isa;
    let mut sum = 0.0;
    for v in x {
        *v = (*v - max).exp();
        sum += *v;
    }
    sum
}

/// `gate = gate / (1 + exp(-gate)) * up`.
pub(super) fn silu_mul(isa: Isa, gate: &mut [f32], up: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
        return unsafe { super::simd::avx2::exp::silu_mul(gate, up) };
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has_neon() {
        // SAFETY: every aarch64 has NEON.
        return unsafe { super::simd::neon::exp::silu_mul(gate, up) };
    }
    let _ = isa;
    for (g, u) in gate.iter_mut().zip(up) {
        *g = *g / (1.0 + (-*g).exp()) * u;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_within_two_units() {
        for isa in Isa::available() {
            for i in 0..20_000 {
                let x = -0.004 * i as f32;
                let mut pair = [0.0, x];
                let sum = exp_minus(isa, &mut pair, 0.0);
                let exact = f64::from(x).exp();
                assert!(
                    (f64::from(pair[1]) - exact).abs() <= 2.4e-7 * exact + 1.2e-38,
                    "{isa:?} exp({x}) = {} instead of {exact}",
                    pair[1]
                );
                assert_eq!(sum, pair[0] + pair[1]);
            }
        }
    }

    #[test]
    fn softmax_leaves_masked_scores_out() {
        for isa in Isa::available() {
            let mut x = [1.0, f32::NEG_INFINITY, 1.0];
            softmax(isa, &mut x);
            assert_eq!(x, [0.5, 0.0, 0.5]);
            let mut none = [f32::NEG_INFINITY; 9];
            softmax(isa, &mut none);
            assert_eq!(none, [0.0; 9]);
        }
    }

    #[test]
    fn silu_of_large_and_small_values() {
        for isa in Isa::available() {
            let mut g = [0.0, 1.0, -1.0, 100.0, -100.0, 30.0, -30.0, 2.5, -0.5];
            let exact = g.map(|v: f32| f64::from(v) / (1.0 + (-f64::from(v)).exp()) * 2.0);
            silu_mul(isa, &mut g, &[2.0; 9]);
            for (g, e) in g.iter().zip(exact) {
                assert!(
                    (f64::from(*g) - e).abs() <= 1e-6 * e.abs() + 1e-30,
                    "{isa:?} {g} {e}"
                );
            }
        }
    }

    #[test]
    fn rows_of_all_floats() {
        let x: Vec<f32> = (0..77).map(|i| (i as f32 * 0.3).sin()).collect();
        let a: Vec<f32> = (0..77).map(|i| (i as f32 * 0.7).cos()).collect();
        for isa in Isa::available() {
            check::<f32>(isa, &a, &x);
            check::<f16>(isa, &a, &x);
            check::<bf16>(isa, &a, &x);
        }
    }

    fn check<T: Element>(isa: Isa, a: &[f32], x: &[f32]) {
        let a: Vec<T> = a.iter().map(|v| T::from_f32(*v)).collect();
        let exact: f64 = (a.iter().zip(x))
            .map(|(a, x)| f64::from(a.to_f32()) * f64::from(*x))
            .sum();
        assert!((f64::from(T::dot(isa, &a, x)) - exact).abs() < 1e-5);
        let mut y = x.to_vec();
        T::axpy(isa, &mut y, 0.5, &a);
        for ((y, x), a) in y.iter().zip(x).zip(&a) {
            assert!((y - (x + 0.5 * a.to_f32())).abs() < 1e-6);
        }
    }
}
