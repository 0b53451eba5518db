//! Rows of a cache as a tile: against many queries (dot products), or mixed by many weights.

use super::floats::Lanes;
use super::micro::{self, Sums};
use super::panel::{by_rows, gather};
use super::tile::{COLS, ROWS, TileF, Tiles, transpose};
use super::vec::store_f32;
use crate::cpu::simd::avx512::micro as wide;
use std::arch::x86_64::*;

/// Rows of queries or weights: row `i` is `x[i * stride..][..n]`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub x: &'a [f32],
    pub stride: usize,
}

impl<'a> Strided<'a> {
    #[inline(always)]
    fn part(&self, i: usize, from: usize, n: usize) -> &'a [f32] {
        &self.x[i * self.stride + from..][..n]
    }
}

/// Add the products of a float tile with `row(i)` to `sums[i]`.
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<'a>(
    tile: &TileF,
    row: impl Fn(usize) -> &'a [f32] + Copy,
    is_wide: bool,
    sums: &mut [Sums],
) {
    by_rows!(
        is_wide,
        sums,
        |at, out, M| micro::floats::<M>(tile, &gather(at, row), out),
        // SAFETY: `is_wide` is set only where the processor has AVX-512.
        unsafe { wide::floats::<M>(tile, &gather(at, row), out) }
    );
}

/// Add `keys[r] · x[i]` to `sums[i][r]` for up to 16 keys of `width` elements. `is_wide`: the processor has what
/// `simd::avx512` needs.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn dots<T: Lanes>(
    tiles: &mut Tiles,
    keys: &[&[T]],
    width: usize,
    x: Strided<'_>,
    is_wide: bool,
    sums: &mut [Sums],
) {
    for from in (0..width).step_by(COLS) {
        let cols = COLS.min(width - from);
        let tile = &mut tiles.floats;
        for c in (0..cols).step_by(8) {
            for half in 0..2 {
                let mut rows = [_mm256_setzero_ps(); 8];
                for (row, key) in rows.iter_mut().zip(keys.iter().skip(8 * half)) {
                    let key = &key[from..from + cols];
                    *row = eight(&key[c..]);
                }
                let columns = transpose(rows.map(|r| _mm256_castps_si256(r)));
                for (column, v) in tile.w[c..].iter_mut().zip(columns) {
                    if let Some(to) = column[8 * half..].first_chunk_mut() {
                        store_f32(to, _mm256_castsi256_ps(v));
                    }
                }
            }
        }
        multiply(tile, |i| x.part(i, from, cols), is_wide, sums);
    }
}

/// Add `Σ_k x[i][k] * values[k][column + c]` to `sums[i][c]` for 16 columns, of which those past
/// the values' end count as zero.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn mix<'a, T: Lanes + 'a>(
    tiles: &mut Tiles,
    values: impl Fn(usize) -> &'a [T],
    n: usize,
    column: usize,
    x: Strided<'_>,
    is_wide: bool,
    sums: &mut [Sums],
) {
    for from in (0..n).step_by(COLS) {
        let count = COLS.min(n - from);
        let tile = &mut tiles.floats;
        for (k, to) in tile.w.iter_mut().enumerate().take(count) {
            let row = &values(from + k)[column..];
            let [low, high] = to.as_chunks_mut::<8>().0 else {
                continue;
            };
            store_f32(low, eight(row));
            store_f32(high, eight(row.get(8..).unwrap_or(&[])));
        }
        debug_assert_eq!(ROWS, 16);
        multiply(tile, |i| x.part(i, from, count), is_wide, sums);
    }
}

/// `y = Σ_k x[k] * values(k)`: 64 columns at a time stay in registers over all values.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn mix_one<'a, T: Lanes + 'a>(
    values: impl Fn(usize) -> &'a [T],
    x: &[f32],
    y: &mut [f32],
) {
    let (blocks, rest) = y.as_chunks_mut::<64>();
    for (b, block) in blocks.iter_mut().enumerate() {
        let mut acc = [_mm256_setzero_ps(); 8];
        for (k, x) in x.iter().enumerate() {
            let Some(row) = values(k)[64 * b..].first_chunk::<64>() else {
                continue;
            };
            let x = _mm256_set1_ps(*x);
            for (acc, v) in acc.iter_mut().zip(row.as_chunks().0) {
                // SAFETY: this function is only reached where the processor has AVX2, FMA and
                // F16C.
                *acc = _mm256_fmadd_ps(unsafe { T::eight(v) }, x, *acc);
            }
        }
        for (to, acc) in block.as_chunks_mut().0.iter_mut().zip(acc) {
            store_f32(to, acc);
        }
    }
    let done = 64 * blocks.len();
    rest.fill(0.0);
    if !rest.is_empty() {
        for (k, x) in x.iter().enumerate() {
            super::floats::axpy(rest, *x, &values(k)[done..]);
        }
    }
}

/// The first eight elements, zeros past the end.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eight<T: Lanes>(v: &[T]) -> __m256 {
    match v.first_chunk() {
        // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
        Some(v) => unsafe { T::eight(v) },
        None => {
            let mut padded = [0.0; 8];
            for (p, v) in padded.iter_mut().zip(v) {
                *p = v.one();
            }
            super::vec::load_f32(&padded)
        }
    }
}

/// `out[s] += Σ_h weights[h] * max(sums[h][s], 0)`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn relu_mix(sums: &[Sums], weights: &[f32], out: &mut Sums) {
    let mut total = *out;
    for (sums, w) in sums.iter().zip(weights) {
        for (t, v) in total.iter_mut().zip(sums) {
            *t += w * v.max(0.0);
        }
    }
    *out = total;
}
