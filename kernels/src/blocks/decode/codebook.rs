//! Types whose elements are read four or eight at a time from a codebook.

use crate::blocks::bits::{half, iq1_m_scale, signs_of, u16_at, u32_at};
use crate::blocks::grids;

const IQ1_DELTA: f32 = 0.125;

/// `scale * value`, negated where the bit in `signs` is set.
fn signed<const N: usize>(y: &mut [f32], scale: f32, values: [u8; N], signs: u8) {
    for (i, (y, v)) in y.iter_mut().zip(values).enumerate() {
        let v = scale * v as f32;
        *y = if signs >> i & 1 == 1 { -v } else { v };
    }
}

/// `scale * (value + delta)` of a ternary entry.
fn shifted(y: &mut [f32], scale: f32, entry: u64, delta: f32) {
    for (y, v) in y.iter_mut().zip(entry.to_le_bytes()) {
        *y = scale * (v as i8 as f32 + delta);
    }
}

pub(super) fn iq1_s(b: &[u8; 50], y: &mut [f32; 256]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(8).enumerate() {
        let high = u16_at(b, 34 + 2 * (g / 4));
        let scale = d * (2 * ((high >> 12) & 7) + 1) as f32;
        let delta = if high & 0x8000 == 0 {
            IQ1_DELTA
        } else {
            -IQ1_DELTA
        };
        let index = b[2 + g] as usize | ((high >> (3 * (g % 4)) & 7) as usize) << 8;
        shifted(y, scale, grids::IQ1.0[index], delta);
    }
}

pub(super) fn iq1_m(b: &[u8; 56], y: &mut [f32; 256]) {
    let words = [48, 50, 52, 54].map(|at| u16_at(b, at));
    let d = iq1_m_scale(words);
    for (g, y) in y.chunks_exact_mut(8).enumerate() {
        let pair = g / 2; // scales go per 16 elements, three bits each, four to a word
        let scale = d * (2 * (words[pair / 4] >> (3 * (pair % 4)) & 7) + 1) as f32;
        let high = b[32 + pair] >> (4 * (g % 2));
        let delta = if high & 8 == 0 { IQ1_DELTA } else { -IQ1_DELTA };
        let index = b[g] as usize | ((high & 7) as usize) << 8;
        shifted(y, scale, grids::IQ1.0[index], delta);
    }
}

pub(super) fn iq2_xxs(b: &[u8; 66], y: &mut [f32; 256]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(8).enumerate() {
        let at = 2 + 8 * (g / 4);
        let tail = u32_at(b, at + 4);
        let scale = d * (0.5 + (tail >> 28) as f32) * 0.25;
        let values = grids::IQ2_XXS.0[b[at + g % 4] as usize].to_le_bytes();
        signed(y, scale, values, signs_of((tail >> (7 * (g % 4))) as u8));
    }
}

pub(super) fn iq2_xs(b: &[u8; 74], y: &mut [f32; 256]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(8).enumerate() {
        let q = u16_at(b, 2 + 2 * g);
        let scale = d * (0.5 + nibble_scale(&b[66..], g / 2)) * 0.25;
        let values = grids::IQ2_XS.0[(q & 511) as usize].to_le_bytes();
        signed(y, scale, values, signs_of((q >> 9) as u8));
    }
}

pub(super) fn iq2_s(b: &[u8; 82], y: &mut [f32; 256]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(8).enumerate() {
        let high = (b[66 + g / 4] >> (2 * (g % 4))) & 3;
        let scale = d * (0.5 + nibble_scale(&b[74..], g / 2)) * 0.25;
        let index = b[2 + g] as usize | (high as usize) << 8;
        signed(y, scale, grids::IQ2_S.0[index].to_le_bytes(), b[34 + g]);
    }
}

pub(super) fn iq3_xxs(b: &[u8; 98], y: &mut [f32; 256]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(4).enumerate() {
        let tail = u32_at(b, 66 + 4 * (g / 8));
        let scale = d * (0.5 + (tail >> 28) as f32) * 0.5;
        let signs = signs_of((tail >> (7 * (g % 8 / 2))) as u8);
        let values = grids::IQ3_XXS.0[b[2 + g] as usize].to_le_bytes();
        signed(y, scale, values, signs >> (4 * (g % 2)));
    }
}

pub(super) fn iq3_s(b: &[u8; 110], y: &mut [f32; 256]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(4).enumerate() {
        let high = (b[66 + g / 8] >> (g % 8)) & 1;
        let scale = d * (1.0 + 2.0 * nibble_scale(&b[106..], g / 8));
        let values = grids::IQ3_S.0[b[2 + g] as usize | (high as usize) << 8].to_le_bytes();
        signed(y, scale, values, b[74 + g / 2] >> (4 * (g % 2)));
    }
}

/// Nibble `k` of packed 4-bit scales, low nibble first.
fn nibble_scale(scales: &[u8], k: usize) -> f32 {
    (scales[k / 2] >> (4 * (k % 2)) & 15) as f32
}
