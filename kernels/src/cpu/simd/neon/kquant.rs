//! Weights of the K types, of TQ2_0 and of IQ4_XS as signed bytes, 32 at a time.

use super::dot256::{Head, Super};
use super::vec::{Bytes32, bytes, half, load};
use crate::blocks::bits::{IQ4_LEVELS, scale_min_6, scale_q3, u16_at};
use std::arch::aarch64::*;

/// 32 bytes from byte `at`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load32(w: &[u8], at: usize) -> [uint8x16_t; 2] {
    [load(bytes(w, at)), load(bytes(w, at + 16))]
}

/// `bits` bits of every byte from bit `from` on.
#[inline]
#[target_feature(enable = "neon")]
fn field(v: uint8x16_t, from: usize, bits: u32) -> uint8x16_t {
    let down = vshlq_u8(v, vdupq_n_s8(-(from as i8)));
    vandq_u8(down, vdupq_n_u8((1 << bits) - 1))
}

/// `v - less`, as signed bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn minus(v: uint8x16_t, less: i8) -> int8x16_t {
    vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(less))
}

/// 16 bytes of nibbles as 32 bytes: low nibbles, then high nibbles.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn nibbles(q: &[u8; 16]) -> [uint8x16_t; 2] {
    let q = load(q);
    [vandq_u8(q, vdupq_n_u8(15)), vshrq_n_u8::<4>(q)]
}

/// 16 bytes of nibbles as 32 of 16 levels.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn levels(levels: &[i8; 16], q: &[u8; 16]) -> Bytes32 {
    let levels = super::vec::load_i8(levels);
    nibbles(q).map(|q| vqtbl1q_s8(levels, q))
}

pub(crate) enum Q2K {}
impl Super<84> for Q2K {
    const SUB: usize = 16;
    const HAS_MIN: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 84]) -> Head {
        let packed: &[u8; 16] = bytes(w, 0);
        Head {
            scales: packed.map(|s| i16::from(s & 15)),
            mins: packed.map(|s| i16::from(s >> 4)),
            d: half(w, 80),
            d_min: half(w, 82),
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 84], j: usize) -> Bytes32 {
        load32(w, 16 + 32 * (j / 4)).map(|q| minus(field(q, 2 * (j % 4), 2), 0))
    }
}

pub(crate) enum Q3K {}
impl Super<110> for Q3K {
    const SUB: usize = 16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 110]) -> Head {
        let scales = std::array::from_fn(|k| i16::from(scale_q3(&w[96..108], k)));
        Head::new(scales, half(w, 108))
    }

    /// A clear third bit means minus four.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 110], j: usize) -> Bytes32 {
        let low = load32(w, 32 + 32 * (j / 4));
        let high = load32(w, 0);
        [0, 1].map(|i| {
            let third = vshlq_n_u8::<2>(field(high[i], j, 1));
            minus(vorrq_u8(field(low[i], 2 * (j % 4), 2), third), 4)
        })
    }
}

/// Scales and minimums of Q4_K and Q5_K.
#[inline]
#[target_feature(enable = "neon")]
fn head_45(w: &[u8]) -> Head {
    let pair = |k: usize| scale_min_6(&w[4..16], k / 2);
    Head {
        scales: std::array::from_fn(|k| i16::from(pair(k).0)),
        mins: std::array::from_fn(|k| i16::from(pair(k).1)),
        d: half(w, 0),
        d_min: half(w, 2),
    }
}

pub(crate) enum Q4K {}
impl Super<144> for Q4K {
    const SUB: usize = 32;
    const HAS_MIN: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 144]) -> Head {
        head_45(w)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 144], j: usize) -> Bytes32 {
        load32(w, 16 + 32 * (j / 2)).map(|q| minus(field(q, 4 * (j % 2), 4), 0))
    }
}

pub(crate) enum Q5K {}
impl Super<176> for Q5K {
    const SUB: usize = 32;
    const HAS_MIN: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 176]) -> Head {
        head_45(w)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 176], j: usize) -> Bytes32 {
        let low = load32(w, 48 + 32 * (j / 2));
        let high = load32(w, 16);
        [0, 1].map(|i| {
            let fifth = vshlq_n_u8::<4>(field(high[i], j, 1));
            minus(vorrq_u8(field(low[i], 4 * (j % 2), 4), fifth), 0)
        })
    }
}

pub(crate) enum Q6K {}
impl Super<210> for Q6K {
    const SUB: usize = 16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 210]) -> Head {
        let scales: &[u8; 16] = bytes(w, 192);
        Head::new(scales.map(|s| i16::from(s as i8)), half(w, 208))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 210], j: usize) -> Bytes32 {
        let (half, quarter) = (j / 4, j % 4);
        let low = load32(w, 64 * half + 32 * (quarter % 2));
        let high = load32(w, 128 + 32 * half);
        [0, 1].map(|i| {
            let upper = vshlq_n_u8::<4>(field(high[i], 2 * quarter, 2));
            minus(vorrq_u8(field(low[i], 4 * (quarter / 2), 4), upper), 32)
        })
    }
}

pub(crate) enum Tq20 {}
impl Super<66> for Tq20 {
    const SUB: usize = 32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 66]) -> Head {
        Head::new([1; 16], half(w, 64))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 66], j: usize) -> Bytes32 {
        load32(w, 32 * (j / 4)).map(|q| minus(field(q, 2 * (j % 4), 2), 1))
    }
}

pub(crate) enum Iq4Xs {}
impl Super<136> for Iq4Xs {
    const SUB: usize = 32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(w: &[u8; 136]) -> Head {
        let high = u16_at(w, 2);
        let scale = |j: usize| {
            let low = i16::from(w[4 + j / 2] >> (4 * (j % 2)) & 15);
            (low | (((high >> (2 * j)) & 3) << 4) as i16) - 32
        };
        Head::new(std::array::from_fn(|k| scale(k / 2)), half(w, 0))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn group(w: &[u8; 136], j: usize) -> Bytes32 {
        levels(&IQ4_LEVELS, bytes(w, 8 + 16 * j))
    }
}
