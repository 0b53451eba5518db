//! Weights of the K types and of TQ2_0 as unsigned bytes, 32 at a time.

use super::dot256::{Head, Offset, Stage, Super};
use super::vec::{bytes, half, join, load, load_half, load_quarter, twice};
use crate::blocks::bits::u32_at;
use std::arch::x86_64::*;

const NIBBLES: u32 = 0x0F0F_0F0F;
const LOW_TWO: u32 = 0x0303_0303;

/// Two-bit fields: byte `l` of 32 holds elements `l`, `l+32`, `l+64`, `l+96`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn two_bits(q: __m256i) -> [__m256i; 4] {
    let three = _mm256_set1_epi8(3);
    [
        _mm256_and_si256(q, three),
        _mm256_and_si256(_mm256_srli_epi16::<2>(q), three),
        _mm256_and_si256(_mm256_srli_epi16::<4>(q), three),
        _mm256_and_si256(_mm256_srli_epi16::<6>(q), three),
    ]
}

/// Low and high nibbles of 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn nibbles(q: __m256i) -> [__m256i; 2] {
    let low = _mm256_set1_epi8(15);
    [
        _mm256_and_si256(q, low),
        _mm256_and_si256(_mm256_srli_epi16::<4>(q), low),
    ]
}

/// 16 bytes as words, the even ones in the low half and the odd ones in the high half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn even_odd_signed(b: __m128i) -> __m256i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(b, order))
}

pub(crate) enum Q2K {}
impl Super<84> for Q2K {
    const OFFSET: Offset = Offset::Own;
    const SUB: usize = 16;
    const STEPS: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 84]) -> Head {
        let packed = load_half(bytes(w, 0));
        let low = _mm_set1_epi8(15);
        let scales = _mm_and_si128(packed, low);
        let mins = _mm_and_si128(_mm_srli_epi16::<4>(packed), low);
        Head {
            scales: even_odd_signed(scales),
            offsets: _mm256_cvtepu8_epi16(mins),
            d: half(w, 80),
            d_offset: -half(w, 82),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 84], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        for h in 0..2 {
            for (i, q) in two_bits(load(bytes(w, 16 + 32 * h)))
                .into_iter()
                .enumerate()
            {
                f(4 * h + i, q, q);
            }
        }
    }
}

pub(crate) enum Q3K {}
impl Super<110> for Q3K {
    const OFFSET: Offset = Offset::Shared;
    const SUB: usize = 16;
    const STEPS: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 110]) -> Head {
        let (a, b, c) = (u32_at(w, 96), u32_at(w, 100), u32_at(w, 104));
        let word = |low: u32, high: u32| ((low & NIBBLES) | ((high & LOW_TWO) << 4)) as i32;
        let packed = _mm_setr_epi32(
            word(a, c),
            word(b, c >> 2),
            word(a >> 4, c >> 4),
            word(b >> 4, c >> 6),
        );
        let scales = _mm_sub_epi8(packed, _mm_set1_epi8(32));
        let natural = _mm256_cvtepi8_epi16(scales);
        Head {
            scales: even_odd_signed(scales),
            offsets: _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16::<2>(natural)),
            d: half(w, 108),
            d_offset: 0.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 110], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let mut high = load(bytes(w, 0));
        let four = _mm256_set1_epi8(4);
        for h in 0..2 {
            for (i, q) in two_bits(load(bytes(w, 32 + 32 * h)))
                .into_iter()
                .enumerate()
            {
                let bit = _mm256_and_si256(_mm256_slli_epi16::<2>(high), four);
                high = _mm256_srli_epi16::<1>(high);
                let q = _mm256_or_si256(q, bit);
                f(4 * h + i, q, q);
            }
        }
    }
}

/// Scales and negated-minimum factors of Q4_K and Q5_K.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn head_45(w: &[u8; 16]) -> Head {
    let (a, b, c) = (u32_at(w, 4), u32_at(w, 8), u32_at(w, 12));
    let six = 0x3F3F_3F3F;
    let high = |v: u32| ((v >> 6) & LOW_TWO) << 4;
    let scales = [a & six, (c & NIBBLES) | high(a)];
    let mins = [b & six, ((c >> 4) & NIBBLES) | high(b)];
    let wide = |v: [u32; 2]| _mm_cvtsi64_si128((v[0] as u64 | (v[1] as u64) << 32) as i64);
    let mins = wide(mins);
    Head {
        scales: twice(_mm_cvtepu8_epi16(wide(scales))),
        offsets: _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(mins, mins)),
        d: half(w, 0),
        d_offset: -half(w, 2),
    }
}

pub(crate) enum Q4K {}
impl Super<144> for Q4K {
    const OFFSET: Offset = Offset::Own;
    const SUB: usize = 32;
    const STEPS: usize = 8;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 144]) -> Head {
        head_45(bytes(w, 0))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 144], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        for c in 0..4 {
            let [low, high] = nibbles(load(bytes(w, 16 + 32 * c)));
            f(2 * c, low, low);
            f(2 * c + 1, high, high);
        }
    }
}

pub(crate) enum Q5K {}
impl Super<176> for Q5K {
    const OFFSET: Offset = Offset::Own;
    const SUB: usize = 32;
    const STEPS: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 176]) -> Head {
        head_45(bytes(w, 0))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 176], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let mut fifth = load(bytes(w, 16));
        let sixteen = _mm256_set1_epi8(16);
        for c in 0..4 {
            for (i, q) in nibbles(load(bytes(w, 48 + 32 * c))).into_iter().enumerate() {
                let bit = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth), sixteen);
                fifth = _mm256_srli_epi16::<1>(fifth);
                let q = _mm256_or_si256(q, bit);
                f(2 * c + i, q, q);
            }
        }
    }
}

pub(crate) enum Q6K {}
impl Super<210> for Q6K {
    const OFFSET: Offset = Offset::Shared;
    const SUB: usize = 16;
    const STEPS: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 210]) -> Head {
        let scales = load_half(bytes(w, 192));
        let natural = _mm256_cvtepi8_epi16(scales);
        Head {
            scales: even_odd_signed(scales),
            offsets: _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16::<5>(natural)),
            d: half(w, 208),
            d_offset: 0.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 210], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        let two_high = _mm256_set1_epi8(0x30);
        for h in 0..2 {
            let [a, c] = nibbles(load(bytes(w, 64 * h)));
            let [b, d] = nibbles(load(bytes(w, 64 * h + 32)));
            let high = load(bytes(w, 128 + 32 * h));
            let up = [
                _mm256_slli_epi16::<4>(high),
                _mm256_slli_epi16::<2>(high),
                high,
                _mm256_srli_epi16::<2>(high),
            ];
            for (i, (low, up)) in [a, b, c, d].into_iter().zip(up).enumerate() {
                let q = _mm256_or_si256(low, _mm256_and_si256(up, two_high));
                f(4 * h + i, q, q);
            }
        }
    }
}

pub(crate) enum Tq20 {}
impl Super<66> for Tq20 {
    const OFFSET: Offset = Offset::Shared;
    const SUB: usize = 32;
    const STEPS: usize = 8;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 66]) -> Head {
        Head {
            scales: _mm256_set1_epi16(1),
            offsets: _mm256_set1_epi16(-1),
            d: half(w, 64),
            d_offset: 0.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 66], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        for h in 0..2 {
            for (i, q) in two_bits(load(bytes(w, 32 * h))).into_iter().enumerate() {
                f(4 * h + i, q, q);
            }
        }
    }
}

pub(crate) enum Iq4Xs {}
impl Super<136> for Iq4Xs {
    const OFFSET: Offset = Offset::Signs;
    const SUB: usize = 32;
    // Sums of 16 bits cannot take bytes as large as these become, so AVX2 has no byte tile of this type.
    const STEPS: usize = 1;
    const SHIFT: u8 = 128;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn head(w: &[u8; 136]) -> Head {
        let high = _mm256_set1_epi32(i32::from(u16::from_le_bytes(*bytes(w, 2))));
        let high = _mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
        let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
        let low = _mm_cvtsi32_si128(u32_at(w, 4) as i32);
        let low = _mm_unpacklo_epi8(low, _mm_srli_epi16::<4>(low));
        let low = _mm256_cvtepu8_epi32(_mm_and_si128(low, _mm_set1_epi8(15)));
        let s = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
        let s = _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s));
        Head {
            scales: twice(s),
            offsets: _mm256_setzero_si256(),
            d: half(w, 0),
            d_offset: 0.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn groups(w: &[u8; 136], _: &Stage, mut f: impl FnMut(usize, __m256i, __m256i)) {
        for j in 0..8 {
            let v = iq4_levels(bytes(w, 8 + 16 * j));
            f(j, _mm256_abs_epi8(v), v);
        }
    }
}

/// 16 bytes of nibbles as 32 levels.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn iq4_levels(q: &[u8; 16]) -> __m256i {
    let levels = _mm_setr_epi8(
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
    );
    _mm256_shuffle_epi8(twice(levels), nibbles16(q))
}

/// 16 bytes of nibbles as 32 bytes: low nibbles, then high nibbles.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn nibbles16(q: &[u8; 16]) -> __m256i {
    let q = load_half(q);
    let both = join(q, _mm_srli_epi16::<4>(q));
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

/// 8 scale bytes: the low nibbles are of even sub-blocks of 16, the high nibbles of odd ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn nibble_scales(b: &[u8; 8]) -> __m256i {
    let b = load_quarter(b);
    let low = _mm_set1_epi8(15);
    let even = _mm_cvtepu8_epi16(_mm_and_si128(b, low));
    let odd = _mm_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16::<4>(b), low));
    let s = join(even, odd);
    _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1))
}
