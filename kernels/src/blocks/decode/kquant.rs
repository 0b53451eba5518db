//! Super-blocks of 256 with small integer scales ("K" types).

use crate::blocks::bits::{half, scale_min_6, scale_q3};

/// Two halves of 128; in each, byte `l` holds elements `l`, `l+32`, `l+64`, `l+96`, two bits each.
fn two_bits(qs: &[u8], i: usize) -> u8 {
    let (half, in_half) = (i / 128, i % 128);
    (qs[32 * half + in_half % 32] >> (2 * (in_half / 32))) & 3
}

pub(super) fn q2_k(b: &[u8; 84], y: &mut [f32; 256]) {
    let (d, dmin) = (half(b, 80), half(b, 82));
    for (i, y) in y.iter_mut().enumerate() {
        let scale = b[i / 16];
        let (dl, ml) = (d * (scale & 15) as f32, dmin * (scale >> 4) as f32);
        *y = dl * two_bits(&b[16..80], i) as f32 - ml;
    }
}

pub(super) fn q3_k(b: &[u8; 110], y: &mut [f32; 256]) {
    let d = half(b, 108);
    for (i, y) in y.iter_mut().enumerate() {
        let dl = d * scale_q3(&b[96..108], i / 16) as f32;
        // A clear high bit means minus four.
        let high = (b[i % 32] >> (i / 32)) & 1;
        let q = two_bits(&b[32..96], i) as i8 - if high == 0 { 4 } else { 0 };
        *y = dl * q as f32;
    }
}

pub(super) fn q4_k(b: &[u8; 144], y: &mut [f32; 256]) {
    let (d, dmin) = (half(b, 0), half(b, 2));
    for (i, y) in y.iter_mut().enumerate() {
        let (scale, min) = scale_min_6(&b[4..16], i / 32);
        let (dl, ml) = (d * scale as f32, dmin * min as f32);
        *y = dl * nibble(&b[16..], i) as f32 - ml;
    }
}

pub(super) fn q5_k(b: &[u8; 176], y: &mut [f32; 256]) {
    let (d, dmin) = (half(b, 0), half(b, 2));
    for (i, y) in y.iter_mut().enumerate() {
        let (scale, min) = scale_min_6(&b[4..16], i / 32);
        let (dl, ml) = (d * scale as f32, dmin * min as f32);
        let high = (b[16 + i % 32] >> (i / 32)) & 1;
        *y = dl * (nibble(&b[48..], i) | high << 4) as f32 - ml;
    }
}

pub(super) fn q6_k(b: &[u8; 210], y: &mut [f32; 256]) {
    let d = half(b, 208);
    for (i, y) in y.iter_mut().enumerate() {
        let dl = d * (b[192 + i / 16] as i8) as f32;
        let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
        let low = (b[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2))) & 15;
        let high = (b[128 + 32 * half + l] >> (2 * quarter)) & 3;
        *y = dl * ((low | high << 4) as i8 - 32) as f32;
    }
}

pub(super) fn q8_k(b: &[u8; 292], y: &mut [f32; 256]) {
    let d = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    for (y, &q) in y.iter_mut().zip(&b[4..]) {
        *y = d * q as i8 as f32;
    }
}

/// Four chunks of 64 elements in 32 bytes: low nibbles are the first 32, high nibbles the next.
fn nibble(qs: &[u8], i: usize) -> u8 {
    (qs[32 * (i / 64) + i % 32] >> (4 * (i % 64 / 32))) & 15
}
