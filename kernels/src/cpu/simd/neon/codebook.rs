//! Weights of the codebook types as signed bytes, 32 at a time.

use super::dot256::{Head, Super};
use super::vec::{Bytes32, half};
use crate::blocks::bits::{iq1_m_scale, signs_of, u16_at, u32_at};
use crate::blocks::grids;
use std::arch::aarch64::*;

/// Four groups of eight bytes.
#[inline]
#[target_feature(enable = "neon")]
fn join(entries: [u64; 4]) -> Bytes32 {
    let [a, b, c, d] = entries.map(|e| vcreate_s8(e));
    [vcombine_s8(a, b), vcombine_s8(c, d)]
}

/// Each byte negated whose sign bit is set; `signs` has a bit per byte.
#[inline]
#[target_feature(enable = "neon")]
fn with_signs(v: Bytes32, signs: [u8; 4]) -> Bytes32 {
    let bit = vcreate_u8(0x8040_2010_0804_0201);
    let bit = vcombine_u8(bit, bit);
    [0, 1].map(|i| {
        let [low, high] = [signs[2 * i], signs[2 * i + 1]].map(|s| vdup_n_u8(s));
        let mask = vreinterpretq_s8_u8(vtstq_u8(vcombine_u8(low, high), bit));
        vsubq_s8(veorq_s8(v[i], mask), mask)
    })
}

/// Ternary bytes in eighths: `8 v` plus a shift of 1 or -1 for every eight of them.
#[inline]
#[target_feature(enable = "neon")]
fn in_eighths(v: Bytes32, shifts: [i8; 4]) -> Bytes32 {
    [0, 1].map(|i| {
        let [low, high] = [shifts[2 * i], shifts[2 * i + 1]].map(|s| vdup_n_s8(s));
        vaddq_s8(vshlq_n_s8::<3>(v[i]), vcombine_s8(low, high))
    })
}

/// Scale of sub-block `k`, `2 s + 1` of a nibble, the low one first.
fn odd_nibble(b: &[u8], k: usize) -> i16 {
    2 * i16::from(b[k / 2] >> (4 * (k % 2)) & 15) + 1
}

/// Scale `2 s + 1` from the top four bits of a word, and the signs of 32 elements from its four times seven others.
fn scale_of(tail: u32) -> i16 {
    2 * (tail >> 28) as i16 + 1
}

/// See [`scale_of`].
fn tail_signs(tail: u32) -> [u8; 4] {
    std::array::from_fn(|k| signs_of((tail >> (7 * k)) as u8))
}

/// -1 where the bit is set, or else 1: the shift of IQ1_S and IQ1_M in eighths.
fn shift(bit: bool) -> i8 {
    if bit { -1 } else { 1 }
}

pub(crate) enum Iq1S {}
impl Super<50> for Iq1S {
    const SUB: usize = 32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 50]) -> Head {
        let scale = |j: usize| 2 * (u16_at(w, 34 + 2 * j) >> 12 & 7) as i16 + 1;
        Head::new(std::array::from_fn(|k| scale(k / 2)), half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 50], j: usize) -> Bytes32 {
        let high = usize::from(u16_at(w, 34 + 2 * j));
        let index = |k: usize| usize::from(w[2 + 4 * j + k]) | (high >> (3 * k) & 7) << 8;
        let entries = std::array::from_fn(|k| grids::IQ1.0[index(k)]);
        in_eighths(join(entries), [shift(high & 0x8000 != 0); 4])
    }
}

pub(crate) enum Iq1M {}
impl Super<56> for Iq1M {
    const SUB: usize = 16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 56]) -> Head {
        let words = [48, 50, 52, 54].map(|at| u16_at(w, at));
        let scale = |k: usize| 2 * (words[k / 4] >> (3 * (k % 4)) & 7) as i16 + 1;
        Head::new(std::array::from_fn(scale), iq1_m_scale(words) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 56], j: usize) -> Bytes32 {
        let high = |k: usize| usize::from(w[32 + 2 * j + k / 2] >> (4 * (k % 2)));
        let index = |k: usize| usize::from(w[4 * j + k]) | (high(k) & 7) << 8;
        let entries = std::array::from_fn(|k| grids::IQ1.0[index(k)]);
        in_eighths(
            join(entries),
            std::array::from_fn(|k| shift(high(k) & 8 != 0)),
        )
    }
}

pub(crate) enum Iq2Xxs {}
impl Super<66> for Iq2Xxs {
    const SUB: usize = 32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 66]) -> Head {
        let scale = |j: usize| scale_of(u32_at(w, 6 + 8 * j));
        Head::new(std::array::from_fn(|k| scale(k / 2)), half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 66], j: usize) -> Bytes32 {
        let at = 2 + 8 * j;
        let entries = std::array::from_fn(|k| grids::IQ2_XXS.0[usize::from(w[at + k])]);
        with_signs(join(entries), tail_signs(u32_at(w, at + 4)))
    }
}

pub(crate) enum Iq2Xs {}
impl Super<74> for Iq2Xs {
    const SUB: usize = 16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 74]) -> Head {
        let scales = std::array::from_fn(|k| odd_nibble(&w[66..], k));
        Head::new(scales, half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 74], j: usize) -> Bytes32 {
        let q: [u16; 4] = std::array::from_fn(|k| u16_at(w, 2 + 8 * j + 2 * k));
        let entries = q.map(|q| grids::IQ2_XS.0[usize::from(q & 511)]);
        with_signs(join(entries), q.map(|q| signs_of((q >> 9) as u8)))
    }
}

pub(crate) enum Iq2S {}
impl Super<82> for Iq2S {
    const SUB: usize = 16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 82]) -> Head {
        let scales = std::array::from_fn(|k| odd_nibble(&w[74..], k));
        Head::new(scales, half(w, 0) * 0.125)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 82], j: usize) -> Bytes32 {
        let high = usize::from(w[66 + j]);
        let index = |k: usize| usize::from(w[2 + 4 * j + k]) | (high >> (2 * k) & 3) << 8;
        let entries = std::array::from_fn(|k| grids::IQ2_S.0[index(k)]);
        with_signs(join(entries), std::array::from_fn(|k| w[34 + 4 * j + k]))
    }
}

/// Two entries of four bytes as one of eight.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

pub(crate) enum Iq3Xxs {}
impl Super<98> for Iq3Xxs {
    const SUB: usize = 32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 98]) -> Head {
        let scale = |j: usize| scale_of(u32_at(w, 66 + 4 * j));
        Head::new(std::array::from_fn(|k| scale(k / 2)), half(w, 0) * 0.25)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 98], j: usize) -> Bytes32 {
        let entry = |k: usize| grids::IQ3_XXS.0[usize::from(w[2 + 8 * j + k])];
        let entries = std::array::from_fn(|k| pair(entry(2 * k), entry(2 * k + 1)));
        with_signs(join(entries), tail_signs(u32_at(w, 66 + 4 * j)))
    }
}

pub(crate) enum Iq3S {}
impl Super<110> for Iq3S {
    const SUB: usize = 32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 110]) -> Head {
        let scales = std::array::from_fn(|k| odd_nibble(&w[106..], k / 2));
        Head::new(scales, half(w, 0))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 110], j: usize) -> Bytes32 {
        let high = usize::from(w[66 + j]);
        let index = |k: usize| usize::from(w[2 + 8 * j + k]) | (high >> k & 1) << 8;
        let entry = |k: usize| grids::IQ3_S.0[index(k)];
        let entries = std::array::from_fn(|k| pair(entry(2 * k), entry(2 * k + 1)));
        with_signs(join(entries), std::array::from_fn(|k| w[74 + 4 * j + k]))
    }
}
