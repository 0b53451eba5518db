//! Blocks of 256 against one row of activations in blocks of 256.

use super::vec::{load_i8, load_i16, sum};
use crate::cpu::acts::ActRow;
use std::arch::x86_64::*;

/// What a block says besides its elements.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// Words: scales of the even sub-blocks of 16 in the low half, of the odd ones in the high half.
    pub scales: __m256i,
    /// Words: per sub-block of 16, what every element has added, in units of the offset's factor.
    pub offsets: __m256i,
    /// Factor of the integer sums.
    pub d: f32,
    /// Factor of the offsets, where they have their own.
    pub d_offset: f32,
}

impl Head {
    /// Of a block of zeros.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn zero() -> Head {
        Head {
            scales: _mm256_setzero_si256(),
            offsets: _mm256_setzero_si256(),
            d: 0.0,
            d_offset: 0.0,
        }
    }
}

/// How a type's elements differ from the unsigned bytes that `groups` yields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offset {
    /// The sign of an element is the sign of the byte in the second register (never zero).
    Signs,
    /// Offsets have the factor `d`.
    Shared,
    /// Offsets have the factor `d_offset`.
    Own,
}

/// A block type of 256 elements in `B` bytes.
pub(crate) trait Super<const B: usize> {
    const OFFSET: Offset;

    /// Elements that share a scale: 16 or 32.
    const SUB: usize;

    /// How many products of four elements a 16-bit sum can take: with `q` the largest byte,
    /// `2 * STEPS * q * 127 <= 32767`.
    const STEPS: usize;

    /// Where signs count: what makes the elements unsigned.
    const SHIFT: u8 = 0;

    /// Scales, offsets and factors.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn head(w: &[u8; B]) -> Head;

    /// The elements, 32 at a time: group number, unsigned bytes, signs.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn groups(w: &[u8; B], stage: &Stage, f: impl FnMut(usize, __m256i, __m256i));

    /// Work out what `groups` reads from memory. It is done a block ahead, so that nothing waits
    /// for it.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn stage(_w: &[u8; B], _stage: &mut Stage) {}
}

/// Codebook indices of a block, or other words worked out a block ahead.
#[repr(align(64))]
pub(crate) struct Stage([u16; 64]);

impl Stage {
    pub(crate) const EMPTY: Stage = Stage([0; 64]);

    /// 16 words at `at`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn put(&mut self, at: usize, v: __m256i) {
        if let Some(to) = self.0[at..].first_chunk_mut::<16>() {
            // SAFETY: 32 writable bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) };
        }
    }

    /// `K` words from `at`, one load each.
    #[inline(always)]
    pub(super) fn get<const K: usize>(&self, at: usize) -> [usize; K] {
        std::array::from_fn(|k| {
            // SAFETY: a valid reference; volatile only to keep the loads apart.
            usize::from(unsafe { std::ptr::read_volatile(&raw const self.0[at + k]) })
        })
    }

    /// The words from `at` as a register.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn words(&self, at: usize) -> __m256i {
        super::vec::load_u16(self.0[at..].first_chunk().unwrap_or(&[0; 16]))
    }
}

/// Shuffle that repeats word `j` of each half.
static REPEAT: [[u8; 32]; 8] = {
    let mut table = [[0; 32]; 8];
    let mut j = 0;
    while j < 8 {
        let mut i = 0;
        while i < 32 {
            table[j][i] = (2 * j + i % 2) as u8;
            i += 1;
        }
        j += 1;
    }
    table
};

/// `out[r] = w[r] · x` for the rows of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows<const B: usize, T: Super<B>>(w: &[u8], x: ActRow<'_>, out: &mut [f32]) {
    let (xs, _) = x.q.as_chunks::<256>();
    let (sums, _) = x.sums.as_chunks::<16>();
    let (blocks, _) = w.as_chunks::<B>();
    // Opaque, or the compiler turns each shuffle by this table into two other instructions.
    let repeat = std::hint::black_box(&REPEAT);
    let mut stages = [Stage::EMPTY, Stage::EMPTY];
    if let Some(first) = blocks.first() {
        // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
        unsafe { T::stage(first, &mut stages[0]) };
    }
    let mut at = 0;
    for (out, row) in out.iter_mut().zip(blocks.chunks_exact(xs.len())) {
        let mut acc = _mm256_setzero_ps();
        for (((w, x), sums), dx) in row.iter().zip(xs).zip(sums).zip(x.d) {
            if let Some(next) = blocks.get(at + 1) {
                // SAFETY: as above.
                unsafe { T::stage(next, &mut stages[(at + 1) & 1]) };
            }
            acc = block::<B, T>(acc, repeat, w, &stages[at & 1], x, sums, *dx);
            at += 1;
        }
        *out = sum(acc);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block<const B: usize, T: Super<B>>(
    mut acc: __m256,
    repeat: &[[u8; 32]; 8],
    w: &[u8; B],
    stage: &Stage,
    x: &[i8; 256],
    sums: &[i16; 16],
    dx: f32,
) -> __m256 {
    // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
    let head = unsafe { T::head(w) };
    let (xs, _) = x.as_chunks::<32>();
    let mut total = _mm256_setzero_si256();
    let group = |j: usize, q: __m256i, signs: __m256i| {
        let mut x = load_i8(&xs[j & 7]);
        if T::OFFSET == Offset::Signs {
            x = _mm256_sign_epi8(x, signs);
        }
        let scale = _mm256_shuffle_epi8(head.scales, super::vec::load(&repeat[j & 7]));
        let pairs = _mm256_maddubs_epi16(q, x);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, scale));
    };
    // SAFETY: as above.
    unsafe { T::groups(w, stage, group) };
    if T::OFFSET != Offset::Signs {
        let offset = _mm256_madd_epi16(head.offsets, load_i16(sums));
        if T::OFFSET == Offset::Shared {
            total = _mm256_add_epi32(total, offset);
        } else {
            let factor = _mm256_set1_ps(head.d_offset * dx);
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(offset), factor, acc);
        }
    }
    let factor = _mm256_set1_ps(head.d * dx);
    _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), factor, acc)
}
