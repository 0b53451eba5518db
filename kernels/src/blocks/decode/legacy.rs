//! Blocks of 32 with one scale (and perhaps a minimum).
//!
//! The low nibbles of the 16 bytes are elements 0..16, the high nibbles 16..32.

use crate::blocks::bits::{half, u32_at};

pub(super) fn q4_0(b: &[u8; 18], y: &mut [f32; 32]) {
    let d = half(b, 0);
    for (i, q) in nibbles(&b[2..]) {
        y[i] = d * (q as f32 - 8.0);
    }
}

pub(super) fn q4_1(b: &[u8; 20], y: &mut [f32; 32]) {
    let (d, m) = (half(b, 0), half(b, 2));
    for (i, q) in nibbles(&b[4..]) {
        y[i] = d * q as f32 + m;
    }
}

pub(super) fn q5_0(b: &[u8; 22], y: &mut [f32; 32]) {
    let (d, high) = (half(b, 0), u32_at(b, 2));
    for (i, q) in nibbles(&b[6..]) {
        y[i] = d * (fifth(high, i, q) as f32 - 16.0);
    }
}

pub(super) fn q5_1(b: &[u8; 24], y: &mut [f32; 32]) {
    let (d, m, high) = (half(b, 0), half(b, 2), u32_at(b, 4));
    for (i, q) in nibbles(&b[8..]) {
        y[i] = d * fifth(high, i, q) as f32 + m;
    }
}

pub(super) fn q8_0(b: &[u8; 34], y: &mut [f32; 32]) {
    let d = half(b, 0);
    for (y, &q) in y.iter_mut().zip(&b[2..]) {
        *y = q as i8 as f32 * d;
    }
}

/// The stored sum serves dot products only.
pub(super) fn q8_1(b: &[u8; 36], y: &mut [f32; 32]) {
    let d = half(b, 0);
    for (y, &q) in y.iter_mut().zip(&b[4..]) {
        *y = q as i8 as f32 * d;
    }
}

/// Each element's position and nibble.
fn nibbles(qs: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let low = qs.iter().enumerate().map(|(i, q)| (i, q & 15));
    let half = qs.len();
    low.chain(qs.iter().enumerate().map(move |(i, q)| (i + half, q >> 4)))
}

/// Nibble `q` of element `i` with its fifth bit.
fn fifth(high: u32, i: usize, q: u8) -> u8 {
    q | (((high >> i) & 1) as u8) << 4
}
