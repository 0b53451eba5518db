//! A tile against a few activation rows at once.
//!
//! Sums of up to six rows stay in registers; a weight register is loaded once for all of them, and
//! an activation is broadcast straight from memory, which costs no arithmetic unit.

use super::tile::{ROWS, Tile8, Tile16, TileF};
use super::vec::load_f32;
use crate::cpu::acts::Block256;
use std::arch::x86_64::*;

/// Results of one activation row for the 16 rows of a tile.
pub(crate) type Sums = [f32; ROWS];

/// Up to 256 activations as words.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub q: &'a [i16],
    /// Scale per block of 32, or one.
    pub d: &'a [f32],
    /// Scaled sum per block of 32, or none.
    pub s: &'a [f32],
}

/// Both halves of 16 values of 32 bits in all.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves<T>(v: &[T; ROWS]) -> [__m256i; 2] {
    const { assert!(std::mem::size_of::<T>() == 4) };
    let p: *const __m256i = v.as_ptr().cast();
    // SAFETY: `v` is 64 bytes long.
    unsafe { [_mm256_loadu_si256(p), _mm256_loadu_si256(p.add(1))] }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves_f32(v: &[f32; ROWS]) -> [__m256; 2] {
    halves(v).map(|h| _mm256_castsi256_ps(h))
}

/// `out += v` for one activation row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add(out: &mut Sums, v: [__m256; 2]) {
    for (out, v) in out.as_chunks_mut::<8>().0.iter_mut().zip(v) {
        super::vec::store_f32(out, _mm256_add_ps(load_f32(out), v));
    }
}

/// Four bytes everywhere.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn spread4(q: &[i8; 256], k: usize) -> __m256i {
    let [a, b, c, d] = q.as_chunks::<4>().0[k];
    _mm256_set1_epi32(i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]))
}

/// Words `2 k` and `2 k + 1` everywhere.
///
/// # Safety
/// `q` has more than `2 k + 1` elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn spread2(q: &[i16], k: usize) -> __m256i {
    debug_assert!(2 * k + 1 < q.len());
    // SAFETY: both elements exist by the caller's promise; read as one word, or the compiler puts
    // them together in registers.
    _mm256_set1_epi32(unsafe { q.as_ptr().cast::<i32>().add(k).read_unaligned() })
}

/// A byte tile. `STEPS` and `SUB` as in [`super::dot256::Super`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn bytes<const STEPS: usize, const SUB: usize, const M: usize>(
    tile: &Tile8,
    x: &[&Block256; M],
    out: &mut [Sums; M],
) {
    let mut total = [[_mm256_setzero_si256(); 2]; M];
    if STEPS == 1 {
        for k in 0..64 {
            let [low, high] = halves(&tile.q[k & 63]);
            let [scale_low, scale_high] = halves(&tile.scales[(k * 4 / SUB) & 15]);
            for (total, x) in total.iter_mut().zip(x) {
                let x = spread4(&x.q, k & 63);
                let a = _mm256_madd_epi16(_mm256_maddubs_epi16(low, x), scale_low);
                total[0] = _mm256_add_epi32(total[0], a);
                let b = _mm256_madd_epi16(_mm256_maddubs_epi16(high, x), scale_high);
                total[1] = _mm256_add_epi32(total[1], b);
            }
        }
    } else {
        // Opaque, so that the loop over the steps stays one: unrolled, its sums are spilled.
        let steps = std::hint::black_box(STEPS);
        for w in 0..64 / STEPS {
            let mut short = [[_mm256_setzero_si256(); 2]; M];
            for k in w * STEPS..w * STEPS + steps {
                let [low, high] = halves(&tile.q[k & 63]);
                for (short, x) in short.iter_mut().zip(x) {
                    let x = spread4(&x.q, k & 63);
                    short[0] = _mm256_add_epi16(short[0], _mm256_maddubs_epi16(low, x));
                    short[1] = _mm256_add_epi16(short[1], _mm256_maddubs_epi16(high, x));
                }
            }
            let scales = halves(&tile.scales[(w * STEPS * 4 / SUB) & 15]);
            for (total, short) in total.iter_mut().zip(short) {
                for h in 0..2 {
                    let sum = _mm256_madd_epi16(short[h], scales[h]);
                    let at = &raw mut total[h];
                    // SAFETY: a valid reference. Volatile keeps the totals in memory, and that
                    // aligned: the loop above needs every register.
                    unsafe { at.write_volatile(_mm256_add_epi32(at.read_volatile(), sum)) };
                }
            }
        }
    }
    let d = halves_f32(&tile.d);
    let d_offset = halves_f32(&tile.d_offset);
    for m in 0..M {
        let sums: &[i16] = if SUB == 16 {
            &x[m].sums16
        } else {
            &x[m].sums32
        };
        let mut offset = [_mm256_setzero_si256(); 2];
        for k in 0..128 / SUB {
            let [low, high] = halves(&tile.offsets[k & 7]);
            // SAFETY: 256 columns have `256 / SUB` sums.
            let s = unsafe { spread2(sums, k) };
            offset[0] = _mm256_add_epi32(offset[0], _mm256_madd_epi16(low, s));
            offset[1] = _mm256_add_epi32(offset[1], _mm256_madd_epi16(high, s));
        }
        let dx = _mm256_set1_ps(x[m].d);
        let finish = |total, offset, d, d_offset| {
            let products = _mm256_mul_ps(_mm256_cvtepi32_ps(total), d);
            let both = _mm256_fmadd_ps(_mm256_cvtepi32_ps(offset), d_offset, products);
            _mm256_mul_ps(both, dx)
        };
        let low = finish(total[m][0], offset[0], d[0], d_offset[0]);
        let high = finish(total[m][1], offset[1], d[1], d_offset[1]);
        add(&mut out[m], [low, high]);
    }
}

/// A word tile whose scales go per 32 columns.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn words32<const MIN: bool, const M: usize>(
    tile: &Tile16,
    blocks: usize,
    x: &[Words<'_>; M],
    out: &mut [Sums; M],
) {
    assert!(x.iter().all(|x| x.q.len() >= 32 * blocks) && blocks <= 8);
    let mut sums = [[_mm256_setzero_ps(); 2]; M];
    for b in 0..blocks {
        let mut total = [[_mm256_setzero_si256(); 2]; M];
        for k in 16 * b..16 * b + 16 {
            let [low, high] = halves(&tile.q[k & 127]);
            for (total, x) in total.iter_mut().zip(x) {
                // SAFETY: `k < 16 * blocks`, and there are `32 * blocks` words.
                let x = unsafe { spread2(x.q, k) };
                total[0] = _mm256_add_epi32(total[0], _mm256_madd_epi16(low, x));
                total[1] = _mm256_add_epi32(total[1], _mm256_madd_epi16(high, x));
            }
        }
        let d = halves_f32(&tile.d[b & 7]);
        for ((sums, total), x) in sums.iter_mut().zip(total).zip(x) {
            let dx = _mm256_set1_ps(x.d[b]);
            for h in 0..2 {
                let factor = _mm256_mul_ps(d[h], dx);
                sums[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total[h]), factor, sums[h]);
            }
        }
        if MIN {
            let min = halves_f32(&tile.min[b & 7]);
            for (sums, x) in sums.iter_mut().zip(x) {
                let s = _mm256_set1_ps(x.s[b]);
                sums[0] = _mm256_fmadd_ps(min[0], s, sums[0]);
                sums[1] = _mm256_fmadd_ps(min[1], s, sums[1]);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        add(out, sums);
    }
}

/// A word tile with one scale for its 256 columns.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn words256<const M: usize>(tile: &Tile16, x: &[Words<'_>; M], out: &mut [Sums; M]) {
    assert!(x.iter().all(|x| x.q.len() >= 256));
    let mut total = [[_mm256_setzero_si256(); 2]; M];
    for (k, q) in tile.q.iter().enumerate() {
        let [low, high] = halves(q);
        for (total, x) in total.iter_mut().zip(x) {
            // SAFETY: `k < 128`, and there are 256 words.
            let x = unsafe { spread2(x.q, k) };
            total[0] = _mm256_add_epi32(total[0], _mm256_madd_epi16(low, x));
            total[1] = _mm256_add_epi32(total[1], _mm256_madd_epi16(high, x));
        }
    }
    let d = halves_f32(&tile.d[0]);
    for ((out, total), x) in out.iter_mut().zip(total).zip(x) {
        let dx = _mm256_set1_ps(x.d[0]);
        let v =
            [0, 1].map(|h| _mm256_mul_ps(_mm256_cvtepi32_ps(total[h]), _mm256_mul_ps(d[h], dx)));
        add(out, v);
    }
}

/// A float tile over `x[i].len()` columns (the same for all `i`).
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn floats<const M: usize>(tile: &TileF, x: &[&[f32]; M], out: &mut [Sums; M]) {
    let mut sums = [[_mm256_setzero_ps(); 2]; M];
    let cols = x.iter().map(|x| x.len()).min().unwrap_or(0);
    for (k, w) in tile.w.iter().enumerate().take(cols) {
        let [low, high] = halves_f32(w);
        for (sums, x) in sums.iter_mut().zip(x) {
            // SAFETY: `k < cols`, which no row is shorter than.
            let x = _mm256_set1_ps(unsafe { *x.get_unchecked(k) });
            sums[0] = _mm256_fmadd_ps(low, x, sums[0]);
            sums[1] = _mm256_fmadd_ps(high, x, sums[1]);
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        add(out, sums);
    }
}
