//! Weights of the codebook types as bytes, 32 at a time.
//!
//! Indices are put together for a whole block in registers and read back one by one, which takes
//! half the instructions of doing it one by one. Signs are applied to the activations.

use super::dot256::{Head, Offset, Stage, Super};
use super::kquant::nibble_scales;
use super::vec::{bytes, half, half_bits, join, load, load_half, load_quarter, twice};
use crate::blocks::bits::{u16_at, u32_at};
use crate::blocks::grids::{self, Grid4, Grid8};
use std::arch::x86_64::*;

/// The ternary codebook with 0, 1, 2 for -1, 0, 1: unsigned bytes multiply without a sign step.
static IQ1_UNSIGNED: Grid8<2048> = {
    let mut grid = [0; 2048];
    let mut i = 0;
    while i < grid.len() {
        let entry = grids::IQ1.0[i].to_le_bytes();
        let mut shifted = [0; 8];
        let mut k = 0;
        while k < 8 {
            shifted[k] = entry[k].wrapping_add(1);
            k += 1;
        }
        grid[i] = u64::from_le_bytes(shifted);
        i += 1;
    }
    Grid8(grid)
};

/// Four entries of eight bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four<const N: usize>(grid: &Grid8<N>, i: [usize; 4]) -> __m256i {
    let [a, b, c, d] = i.map(|i| {
        debug_assert!(i < N);
        // SAFETY: indices are made of exactly as many bits as `N` has entries for.
        unsafe { grid.0.as_ptr().add(i) }
    });
    // SAFETY: each pointer names an entry of eight bytes.
    unsafe {
        let low = _mm_loadh_pd(_mm_load_sd(a.cast()), b.cast());
        let high = _mm_loadh_pd(_mm_load_sd(c.cast()), d.cast());
        join(_mm_castpd_si128(low), _mm_castpd_si128(high))
    }
}

/// Eight entries of four bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eight<const N: usize>(grid: &Grid4<N>, i: [usize; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = i.map(|i| {
        debug_assert!(i < N);
        // SAFETY: as in `four`.
        unsafe { *grid.0.get_unchecked(i) as i32 }
    });
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// `K` bytes as indices, one load each: taking them out of a wider load costs two instructions.
#[inline(always)]
fn single<const K: usize>(b: &[u8; K]) -> [usize; K] {
    std::array::from_fn(|k| {
        // SAFETY: a valid reference; volatile only to keep the loads apart.
        usize::from(unsafe { std::ptr::read_volatile(&raw const b[k]) })
    })
}

/// The sign bits of a block, a bit per element, each half of them in both halves of a register.
struct Signs([__m256i; 2]);

/// Shuffle that spreads each byte of 32-bit word `j` of a half over eight.
static SPREAD: [[u8; 32]; 4] = {
    let mut table = [[0; 32]; 4];
    let mut j = 0;
    while j < 4 {
        let mut i = 0;
        while i < 32 {
            table[j][i] = (4 * j + i / 8) as u8;
            i += 1;
        }
        j += 1;
    }
    table
};

impl Signs {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new(bits: __m256i) -> Signs {
        Signs([
            _mm256_permute4x64_epi64::<0x44>(bits),
            _mm256_permute4x64_epi64::<0xEE>(bits),
        ])
    }

    /// The four bytes of group `j`, eight times each.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn spread(&self, j: usize) -> __m256i {
        _mm256_shuffle_epi8(self.0[(j / 4) & 1], load(&SPREAD[j & 3]))
    }

    /// The signs of group `j` as bytes of -1 or 1.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn group(&self, j: usize) -> __m256i {
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let mask = _mm256_cmpeq_epi8(_mm256_and_si256(self.spread(j), bit), bit);
        _mm256_or_si256(mask, _mm256_set1_epi8(1))
    }
}

/// Bytes of seven bits, completed by their parity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_parity(v: __m256i) -> __m256i {
    let odd = twice(_mm_setr_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
    ));
    let low = _mm256_set1_epi8(15);
    let p = _mm256_shuffle_epi8(odd, _mm256_and_si256(v, low));
    let r = _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16::<4>(v), low));
    _mm256_or_si256(v, _mm256_xor_si256(p, r))
}

/// Eight words of `4 x 7` sign bits as 256 sign bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn signs_of_tails(t: __m256i) -> __m256i {
    let field = |v, mask| _mm256_and_si256(v, _mm256_set1_epi32(mask));
    let a = field(t, 0x7F);
    let b = field(_mm256_slli_epi32::<1>(t), 0x7F00);
    let c = field(_mm256_slli_epi32::<2>(t), 0x7F_0000);
    let d = field(_mm256_slli_epi32::<3>(t), 0x7F00_0000);
    let v = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    with_parity(v)
}

/// Scales `2s + 1` from the top four bits of eight words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scales_of_tails(t: __m256i) -> __m256i {
    let s = _mm256_srli_epi32::<28>(t);
    let s = _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s));
    twice(odd(s))
}

/// `2 v + 1`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn odd(v: __m128i) -> __m128i {
    _mm_add_epi16(_mm_add_epi16(v, v), _mm_set1_epi16(1))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn head(scales: __m256i, d: f32) -> Head {
    Head {
        scales,
        offsets: _mm256_setzero_si256(),
        d,
        d_offset: 0.0,
    }
}

/// The second word of each of the eight pairs of an IQ2_XXS block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tails_iq2_xxs(w: &[u8; 66]) -> __m256i {
    let a = _mm256_castsi256_ps(load(bytes(w, 2)));
    let b = _mm256_castsi256_ps(load(bytes(w, 34)));
    let mixed = _mm256_castps_si256(_mm256_shuffle_ps::<0xDD>(a, b));
    _mm256_permute4x64_epi64::<0xD8>(mixed)
}

pub(crate) enum Iq1S {}
impl Super<50> for Iq1S {
    const OFFSET: Offset = Offset::Shared;
    const SUB: usize = 32;
    const STEPS: usize = 8;

    /// In eighths: the grid counts 8, the shift by 0.125 counts 1.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 50]) -> Head {
        let high = load_half(bytes(w, 34));
        let seven = _mm_set1_epi16(7);
        let s = odd(_mm_and_si128(_mm_srli_epi16::<12>(high), seven));
        // The unsigned grid is one too high: -8, and the shift is 1 or -1.
        let minus = _mm_add_epi16(seven, _mm_slli_epi16::<1>(_mm_srli_epi16::<15>(high)));
        let offset = _mm_sub_epi16(_mm_setzero_si128(), _mm_mullo_epi16(s, minus));
        Head {
            scales: twice(_mm_slli_epi16::<3>(s)),
            offsets: join(
                _mm_unpacklo_epi16(offset, offset),
                _mm_unpackhi_epi16(offset, offset),
            ),
            d: half(w, 0) * 0.125,
            d_offset: 0.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 50], stage: &mut Stage) {
        let high = twice(load_half(bytes(w, 34)));
        // Each word of `high` four times; fields 0..2 move up by multiplication, field 3 down.
        let up = _mm256_set1_epi64x(0x0000_0004_0020_0100);
        let last = _mm256_set1_epi64x(0x0700_0000_0000_0000);
        let top = _mm256_set1_epi16(0x0700);
        for h in 0..2 {
            let base = _mm256_set1_epi8(8 * h as i8);
            let pick = _mm256_setr_epi8(
                0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7,
                6, 7, 6, 7,
            );
            let q = _mm256_shuffle_epi8(high, _mm256_add_epi8(pick, base));
            let moved = _mm256_and_si256(_mm256_mullo_epi16(q, up), top);
            let third = _mm256_and_si256(_mm256_srli_epi16::<1>(q), last);
            let low = _mm256_cvtepu8_epi16(load_half(bytes(w, 2 + 16 * h)));
            stage.put(16 * h, _mm256_or_si256(low, _mm256_or_si256(moved, third)));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(_: &[u8; 50], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        for j in 0..8 {
            let i: [usize; 4] = stage.get(4 * j);
            let q = four(&IQ1_UNSIGNED, i);
            f(j, q, q);
        }
    }
}

pub(crate) enum Iq1M {}
impl Super<56> for Iq1M {
    const OFFSET: Offset = Offset::Shared;
    const SUB: usize = 16;
    const STEPS: usize = 4;

    /// In eighths, as IQ1_S; the shift is part of the weights here, since it changes every eight.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 56]) -> Head {
        let words = [48, 50, 52, 54].map(|at| u16_at(w, at));
        let mut scales = [0_i16; 16];
        let mut offsets = [0_i16; 16];
        for (k, offset) in offsets.iter_mut().enumerate() {
            let s = 2 * (words[k / 4] >> (3 * (k % 4)) & 7) as i16 + 1;
            scales[8 * (k % 2) + k / 2] = s;
            *offset = -9 * s;
        }
        let bits = (words[0] >> 12)
            | ((words[1] >> 8) & 0x00F0)
            | ((words[2] >> 4) & 0x0F00)
            | (words[3] & 0xF000);
        Head {
            scales: super::vec::load_i16(&scales),
            offsets: super::vec::load_i16(&offsets),
            d: half_bits(bits) * 0.125,
            d_offset: 0.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 56], stage: &mut Stage) {
        let high = load_half(bytes(w, 32));
        let low = _mm_set1_epi8(15);
        let even = _mm_and_si128(high, low);
        let odd = _mm_and_si128(_mm_srli_epi16::<4>(high), low);
        let nibbles = [_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)];
        let seven = _mm_set1_epi8(7);
        let eight_bit = _mm_set1_epi8(8);
        let mut shifts = [_mm_setzero_si128(); 2];
        for (h, n) in nibbles.into_iter().enumerate() {
            let low = load_half(bytes(w, 16 * h));
            let top = _mm_and_si128(n, seven);
            let both = join(_mm_unpacklo_epi8(low, top), _mm_unpackhi_epi8(low, top));
            stage.put(16 * h, both);
            // A clear bit shifts up: two eighths above the lower shift.
            let clear = _mm_cmpeq_epi8(_mm_and_si128(n, eight_bit), _mm_setzero_si128());
            shifts[h] = _mm_and_si128(clear, _mm_set1_epi8(2));
        }
        stage.put(32, join(shifts[0], shifts[1]));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(_: &[u8; 56], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let shifts = Signs::new(stage.words(32));
        for j in 0..8 {
            let i: [usize; 4] = stage.get(4 * j);
            let q = _mm256_slli_epi16::<3>(four(&IQ1_UNSIGNED, i));
            let q = _mm256_or_si256(q, shifts.spread(j));
            f(j, q, q);
        }
    }
}

pub(crate) enum Iq2Xxs {}
impl Super<66> for Iq2Xxs {
    const OFFSET: Offset = Offset::Signs;
    const SUB: usize = 32;
    const STEPS: usize = 1;
    const SHIFT: u8 = 43;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 66]) -> Head {
        head(scales_of_tails(tails_iq2_xxs(w)), half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 66], stage: &mut Stage) {
        stage.put(0, signs_of_tails(tails_iq2_xxs(w)));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 66], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let signs = Signs::new(stage.words(0));
        for j in 0..8 {
            let i = single::<4>(bytes(w, 2 + 8 * j));
            f(j, four(&grids::IQ2_XXS, i), signs.group(j));
        }
    }
}

pub(crate) enum Iq2Xs {}
impl Super<74> for Iq2Xs {
    const OFFSET: Offset = Offset::Signs;
    const SUB: usize = 16;
    const STEPS: usize = 1;
    const SHIFT: u8 = 43;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 74]) -> Head {
        head(nibble_scales(bytes(w, 66)), half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 74], stage: &mut Stage) {
        let [a, b] = [2, 34].map(|at| load(bytes(w, at)));
        let nine = _mm256_set1_epi16(511);
        stage.put(0, _mm256_and_si256(a, nine));
        stage.put(16, _mm256_and_si256(b, nine));
        let sevens = _mm256_packus_epi16(_mm256_srli_epi16::<9>(a), _mm256_srli_epi16::<9>(b));
        stage.put(32, with_parity(_mm256_permute4x64_epi64::<0xD8>(sevens)));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(_: &[u8; 74], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let signs = Signs::new(stage.words(32));
        for j in 0..8 {
            let i: [usize; 4] = stage.get(4 * j);
            f(j, four(&grids::IQ2_XS, i), signs.group(j));
        }
    }
}

pub(crate) enum Iq2S {}
impl Super<82> for Iq2S {
    const OFFSET: Offset = Offset::Signs;
    const SUB: usize = 16;
    const STEPS: usize = 1;
    const SHIFT: u8 = 43;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 82]) -> Head {
        head(nibble_scales(bytes(w, 74)), half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 82], stage: &mut Stage) {
        let high = twice(_mm_cvtepu8_epi16(load_quarter(bytes(w, 66))));
        let up = _mm256_set1_epi64x(0x0004_0010_0040_0100);
        let top = _mm256_set1_epi16(0x0300);
        for h in 0..2 {
            let base = _mm256_set1_epi8(8 * h as i8);
            let pick = _mm256_setr_epi8(
                0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7,
                6, 7, 6, 7,
            );
            let q = _mm256_shuffle_epi8(high, _mm256_add_epi8(pick, base));
            let moved = _mm256_and_si256(_mm256_mullo_epi16(q, up), top);
            let low = _mm256_cvtepu8_epi16(load_half(bytes(w, 2 + 16 * h)));
            stage.put(16 * h, _mm256_or_si256(low, moved));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 82], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let signs = Signs::new(load(bytes(w, 34)));
        for j in 0..8 {
            let i: [usize; 4] = stage.get(4 * j);
            f(j, four(&grids::IQ2_S, i), signs.group(j));
        }
    }
}

pub(crate) enum Iq3Xxs {}
impl Super<98> for Iq3Xxs {
    const OFFSET: Offset = Offset::Signs;
    const SUB: usize = 32;
    const STEPS: usize = 1;
    const SHIFT: u8 = 62;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 98]) -> Head {
        head(scales_of_tails(load(bytes(w, 66))), half(w, 0) * 0.25)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 98], stage: &mut Stage) {
        stage.put(0, signs_of_tails(load(bytes(w, 66))));
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 98], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let signs = Signs::new(stage.words(0));
        for j in 0..8 {
            let i = single::<8>(bytes(w, 2 + 8 * j));
            f(j, eight(&grids::IQ3_XXS, i), signs.group(j));
        }
    }
}

pub(crate) enum Iq3S {}
impl Super<110> for Iq3S {
    const OFFSET: Offset = Offset::Signs;
    const SUB: usize = 32;
    const STEPS: usize = 4;
    const SHIFT: u8 = 15;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 110]) -> Head {
        let low = _mm_cvtsi32_si128(u32_at(w, 106) as i32);
        let both = _mm_unpacklo_epi8(low, _mm_srli_epi16::<4>(low));
        let s = _mm_cvtepu8_epi16(_mm_and_si128(both, _mm_set1_epi8(15)));
        head(twice(odd(s)), half(w, 0))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn stage(w: &[u8; 110], stage: &mut Stage) {
        let up = twice(_mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2));
        let ninth = _mm256_set1_epi16(0x0100);
        for h in 0..4 {
            let [a, b] = [0, 1].map(|k| _mm_set1_epi16(i16::from(w[66 + 2 * h + k])));
            let moved = _mm256_and_si256(_mm256_mullo_epi16(join(a, b), up), ninth);
            let low = _mm256_cvtepu8_epi16(load_half(bytes(w, 2 + 16 * h)));
            stage.put(16 * h, _mm256_or_si256(low, moved));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 110], stage: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let signs = Signs::new(load(bytes(w, 74)));
        for j in 0..8 {
            let i: [usize; 8] = stage.get(8 * j);
            f(j, eight(&grids::IQ3_S, i), signs.group(j));
        }
    }
}
