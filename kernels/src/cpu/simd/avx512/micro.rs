//! A tile against a few activation rows at once: as the AVX2 one, a register per tile row group.

use crate::cpu::acts::{Block256, Blocks32};
use crate::cpu::simd::avx2::micro::Sums;
use crate::cpu::simd::avx2::tile::{ROWS, Tile8, Tile8x32, TileF};
use std::arch::x86_64::*;

/// 16 values of 32 bits in all.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load<T>(v: &[T; ROWS]) -> __m512i {
    const { assert!(std::mem::size_of::<T>() == 4) };
    // SAFETY: `v` is 64 bytes long; the load needs no alignment.
    unsafe { _mm512_loadu_si512(v.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_f32(v: &[f32; ROWS]) -> __m512 {
    _mm512_castsi512_ps(load(v))
}

/// `out += v`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add(out: &mut Sums, v: __m512) {
    let sum = _mm512_add_ps(load_f32(out), v);
    // SAFETY: `out` is 64 bytes long; the store needs no alignment.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
}

/// Elements `4 / size_of::<T>() * k ..` of `q`, four bytes in all, everywhere.
///
/// # Safety
/// `q` has those elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn spread<T>(q: &[T], k: usize) -> __m512i {
    debug_assert!(4 * (k + 1) <= std::mem::size_of_val(q));
    // SAFETY: the bytes exist by the caller's promise.
    _mm512_set1_epi32(unsafe { q.as_ptr().cast::<i32>().add(k).read_unaligned() })
}

/// A byte tile whose scales go per `SUB` columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn bytes<const SUB: usize, const M: usize>(
    tile: &Tile8,
    x: &[&Block256; M],
    out: &mut [Sums; M],
) {
    let mut total = [_mm512_setzero_si512(); M];
    let steps = SUB / 4;
    for sub in 0..256 / SUB {
        let mut sums = [_mm512_setzero_si512(); M];
        for k in sub * steps..(sub + 1) * steps {
            let w = load(&tile.q[k & 63]);
            for (sum, x) in sums.iter_mut().zip(x) {
                // SAFETY: `k < 64`, and there are 256 bytes.
                *sum = _mm512_dpbusd_epi32(*sum, w, unsafe { spread(&x.q, k) });
            }
        }
        // The scale stands there twice, as two words: the upper one, with its sign.
        let scale = _mm512_srai_epi32::<16>(load(&tile.scales[sub & 15]));
        for (total, sum) in total.iter_mut().zip(sums) {
            *total = _mm512_add_epi32(*total, _mm512_mullo_epi32(sum, scale));
        }
    }
    let (d, d_offset) = (load_f32(&tile.d), load_f32(&tile.d_offset));
    for ((total, x), out) in total.iter().zip(x).zip(out) {
        let sums: &[i16] = if SUB == 16 { &x.sums16 } else { &x.sums32 };
        let mut offset = _mm512_setzero_si512();
        for k in 0..128 / SUB {
            // SAFETY: 256 columns have `256 / SUB` sums.
            let s = unsafe { spread(sums, k) };
            offset = _mm512_dpwssd_epi32(offset, load(&tile.offsets[k & 7]), s);
        }
        let products = _mm512_mul_ps(_mm512_cvtepi32_ps(*total), d);
        let both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(offset), d_offset, products);
        add(out, _mm512_mul_ps(both, _mm512_set1_ps(x.d)));
    }
}

/// A byte tile whose scales are floats per 32 columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn bytes32<const MIN: bool, const M: usize>(
    tile: &Tile8x32,
    blocks: usize,
    x: &[&Blocks32; M],
    out: &mut [Sums; M],
) {
    let mut sums = [_mm512_setzero_ps(); M];
    for b in 0..blocks.min(8) {
        // Signed bytes have 128 added: what that adds to the products is taken off first.
        let mut total = x.map(|x| match MIN {
            true => _mm512_setzero_si512(),
            false => _mm512_set1_epi32(x.shift[b]),
        });
        for k in 8 * b..8 * b + 8 {
            let w = load(&tile.q[k & 63]);
            for (total, x) in total.iter_mut().zip(x) {
                // SAFETY: `k < 64`, and there are 256 bytes.
                *total = _mm512_dpbusd_epi32(*total, w, unsafe { spread(&x.q, k) });
            }
        }
        let (d, min) = (load_f32(&tile.d[b & 7]), load_f32(&tile.min[b & 7]));
        for ((sum, total), x) in sums.iter_mut().zip(total).zip(x) {
            let factor = _mm512_mul_ps(d, _mm512_set1_ps(x.d[b]));
            *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), factor, *sum);
            if MIN {
                *sum = _mm512_fmadd_ps(min, _mm512_set1_ps(x.s[b]), *sum);
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        add(out, sum);
    }
}

/// A float tile over `x[i].len()` columns (the same for all `i`).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn floats<const M: usize>(tile: &TileF, x: &[&[f32]; M], out: &mut [Sums; M]) {
    let mut sums = [_mm512_setzero_ps(); M];
    let cols = x.iter().map(|x| x.len()).min().unwrap_or(0);
    for (k, w) in tile.w.iter().enumerate().take(cols) {
        let w = load_f32(w);
        for (sum, x) in sums.iter_mut().zip(x) {
            // SAFETY: `k < cols`, which no row is shorter than.
            let x = _mm512_set1_ps(unsafe { *x.get_unchecked(k) });
            *sum = _mm512_fmadd_ps(w, x, *sum);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        add(out, sum);
    }
}
