//! Products of f32 rows with rows of a cache, 16 cache rows or columns at a time.

use super::Isa;
use super::elementwise::Element;
use super::matmul::{ROWS, Scratch};

/// Rows of f32: row `i` is `x[i * stride..]`.
#[derive(Clone, Copy)]
pub(super) struct Strided<'a> {
    pub x: &'a [f32],
    pub stride: usize,
}

impl<'a> Strided<'a> {
    fn row(&self, i: usize, n: usize) -> &'a [f32] {
        &self.x[i * self.stride..][..n]
    }
}

/// Queries from which on a tile is worth its making.
pub(super) const WORTH: usize = 3;

impl Scratch {
    /// `sums[i][r] = keys[r] · x[i]` for up to 16 keys of `width` elements and `m` rows.
    pub(super) fn dots<T: Element>(
        &mut self,
        isa: Isa,
        keys: &[&[T]],
        width: usize,
        x: Strided<'_>,
        m: usize,
    ) -> &mut [[f32; ROWS]] {
        self.sums.clear();
        self.sums.resize(m, [0.0; ROWS]);
        if m >= WORTH && T::dots_tiled(self, isa, keys, width, x) {
            return &mut self.sums;
        }
        for (i, sums) in self.sums.iter_mut().enumerate() {
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = T::dot(isa, &key[..width], x.row(i, width));
            }
        }
        &mut self.sums
    }

    /// `sums[i][c] = Σ_k x[i][k] * values(k)[column + c]` over `n` values, for 16 columns (zero
    /// past the values' end) and `m` rows.
    pub(super) fn mix<'a, T: Element>(
        &mut self,
        isa: Isa,
        values: impl Fn(usize) -> &'a [T] + Copy,
        n: usize,
        column: usize,
        x: Strided<'_>,
        m: usize,
    ) -> &mut [[f32; ROWS]] {
        self.sums.clear();
        self.sums.resize(m, [0.0; ROWS]);
        if m >= WORTH && T::mix_tiled(self, isa, values, n, column, x) {
            return &mut self.sums;
        }
        for (i, sums) in self.sums.iter_mut().enumerate() {
            let len = values(0)[column..].len().min(ROWS);
            let columns = |k| &values(k)[column..column + len];
            T::mix(isa, columns, x.row(i, n), &mut sums[..len]);
        }
        &mut self.sums
    }
}

/// `out[s] += Σ_h weights[h] * max(sums[h][s], 0)`.
pub(super) fn relu_mix(isa: Isa, sums: &[[f32; ROWS]], weights: &[f32], out: &mut [f32; ROWS]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
        return unsafe { super::simd::avx2::cachetile::relu_mix(sums, weights, out) };
    }
    let _ = isa;
    for (sums, w) in sums.iter().zip(weights) {
        for (o, v) in out.iter_mut().zip(sums) {
            *o += w * v.max(0.0);
        }
    }
}
