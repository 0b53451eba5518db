//! Types with a short list of levels: 4-bit tables, fp4, ternary, signs.

use crate::blocks::bits::{
    FP4_DOUBLED, IQ4_LEVELS, e8m0_half, half, ternary_digit, u16_at, ue4m3_half,
};

/// `scale * levels[nibble]`: low nibbles are the first half of `y`, high nibbles the second.
fn levels(y: &mut [f32], qs: &[u8], scale: f32, levels: &[i8; 16]) {
    let (low, high) = y.split_at_mut(qs.len());
    for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
        *low = scale * levels[(q & 15) as usize] as f32;
        *high = scale * levels[(q >> 4) as usize] as f32;
    }
}

pub(super) fn iq4_nl(b: &[u8; 18], y: &mut [f32; 32]) {
    levels(y, &b[2..], half(b, 0), &IQ4_LEVELS);
}

pub(super) fn iq4_xs(b: &[u8; 136], y: &mut [f32; 256]) {
    let (d, high) = (half(b, 0), u16_at(b, 2));
    for (ib, y) in y.chunks_exact_mut(32).enumerate() {
        let low = b[4 + ib / 2] >> (4 * (ib % 2)) & 15;
        let scale = (low | ((high >> (2 * ib) & 3) as u8) << 4) as i8 - 32;
        let qs = &b[8 + 16 * ib..24 + 16 * ib];
        levels(y, qs, d * scale as f32, &IQ4_LEVELS);
    }
}

pub(super) fn mxfp4(b: &[u8; 17], y: &mut [f32; 32]) {
    levels(y, &b[1..], e8m0_half(b[0]), &FP4_DOUBLED);
}

pub(super) fn nvfp4(b: &[u8; 36], y: &mut [f32; 64]) {
    for (ib, y) in y.chunks_exact_mut(16).enumerate() {
        let qs = &b[4 + 8 * ib..12 + 8 * ib];
        levels(y, qs, ue4m3_half(b[ib]), &FP4_DOUBLED);
    }
}

/// 32 bytes of five digits, 16 bytes of five, four bytes of four; the digit runs slowest.
pub(super) fn tq1_0(b: &[u8; 54], y: &mut [f32; 256]) {
    let d = half(b, 52);
    let mut fill = |from: usize, bytes: &[u8], digits: usize| {
        for n in 0..digits {
            for (i, &v) in bytes.iter().enumerate() {
                y[from + n * bytes.len() + i] = d * (ternary_digit(v, n) as f32 - 1.0);
            }
        }
    };
    fill(0, &b[..32], 5);
    fill(160, &b[32..48], 5);
    fill(240, &b[48..52], 4);
}

/// Two halves of 128; in each, byte `l` holds elements `l`, `l+32`, `l+64`, `l+96`.
pub(super) fn tq2_0(b: &[u8; 66], y: &mut [f32; 256]) {
    let d = half(b, 64);
    for (i, y) in y.iter_mut().enumerate() {
        let q = (b[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
        *y = d * (q as f32 - 1.0);
    }
}

pub(super) fn q1_0(b: &[u8; 18], y: &mut [f32; 128]) {
    let d = half(b, 0);
    for (i, y) in y.iter_mut().enumerate() {
        *y = if b[2 + i / 8] >> (i % 8) & 1 == 1 {
            d
        } else {
            -d
        };
    }
}

/// Four consecutive elements per byte, lowest bits first.
pub(super) fn q2_0(b: &[u8; 18], y: &mut [f32; 64]) {
    let d = half(b, 0);
    for (i, y) in y.iter_mut().enumerate() {
        let q = (b[2 + i / 4] >> (2 * (i % 4))) & 3;
        *y = d * (q as f32 - 1.0);
    }
}
