//! Blocks of 256 against rows of activations in blocks of 256.

use super::vec::{Bytes32, Dot, load_32};
use crate::cpu::acts::{ActRow, Acts};
use crate::cpu::matmul::{ROWS, Rows};
use std::arch::aarch64::*;

/// What a block says besides its elements, per 16 of them.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// Scales.
    pub scales: [i16; 16],
    /// What is taken off every element, in units of `d_min`. Zero where the type has no minimum.
    pub mins: [i16; 16],
    /// Factor of the scaled sums.
    pub d: f32,
    /// Factor of the minimums.
    pub d_min: f32,
}

impl Head {
    /// Of a type without a minimum.
    pub(super) fn new(scales: [i16; 16], d: f32) -> Head {
        Head {
            scales,
            mins: [0; 16],
            d,
            d_min: 0.0,
        }
    }
}

/// A block type of 256 elements in `B` bytes.
pub(crate) trait Super<const B: usize> {
    /// Elements that share a scale: 16 or 32.
    const SUB: usize;

    /// Whether there is a minimum.
    const HAS_MIN: bool = false;

    /// Scales, minimums and factors.
    ///
    /// # Safety
    /// The processor has NEON.
    unsafe fn head(w: &[u8; B]) -> Head;

    /// Elements `32 j ..`, in units of the scale.
    ///
    /// # Safety
    /// The processor has NEON.
    unsafe fn group(w: &[u8; B], j: usize) -> Bytes32;
}

/// `out[r] = w[r] · x` for the rows of `w`.
///
/// # Safety
/// The processor has NEON and what `D` needs.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn rows<const B: usize, T: Super<B>, D: Dot>(
    w: &[u8],
    x: ActRow<'_>,
    out: &mut [f32],
) {
    let (xs, _) = x.q.as_chunks::<256>();
    let (sums, _) = x.sums.as_chunks::<16>();
    let (blocks, _) = w.as_chunks::<B>();
    for (out, row) in out.iter_mut().zip(blocks.chunks_exact(xs.len())) {
        *out = 0.0;
        for (((w, x), sums), dx) in row.iter().zip(xs).zip(sums).zip(x.d) {
            // SAFETY: the caller's promise.
            let (head, group) = unsafe { (T::head(w), |j| T::group(w, j)) };
            // SAFETY: as above.
            *out += unsafe { block::<B, T, D>(&head, group, x, sums, *dx) };
        }
    }
}

/// Up to 16 rows against all the activation rows wanted, each block of weights taken apart once for all of them.
///
/// # Safety
/// As [`rows`].
#[target_feature(enable = "neon")]
pub(crate) unsafe fn panel<const B: usize, T: Super<B>, D: Dot>(
    w: &[u8],
    acts: &Acts,
    which: Rows<'_>,
    sums: &mut [[f32; ROWS]],
) {
    let per_row = acts.n() / 256;
    let (blocks, _) = w.as_chunks::<B>();
    for (r, row) in blocks.chunks_exact(per_row).enumerate().take(ROWS) {
        for (b, w) in row.iter().enumerate() {
            let x = acts.blocks256(b);
            // SAFETY: the caller's promise.
            let head = unsafe { T::head(w) };
            let mut tile = [[vdupq_n_s8(0); 2]; 8];
            for (j, tile) in tile.iter_mut().enumerate() {
                // SAFETY: as above.
                *tile = unsafe { T::group(w, j) };
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = &x[which.get(i)];
                // SAFETY: as above.
                sums[r] +=
                    unsafe { block::<B, T, D>(&head, |j| tile[j & 7], &x.q, &x.sums16, x.d) };
            }
        }
    }
}

/// The product of a block, the elements of which `group` gives.
///
/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "neon")]
unsafe fn block<const B: usize, T: Super<B>, D: Dot>(
    head: &Head,
    group: impl Fn(usize) -> Bytes32,
    x: &[i8; 256],
    sums: &[i16; 16],
    dx: f32,
) -> f32 {
    let (xs, _) = x.as_chunks::<32>();
    let zero = vdupq_n_s32(0);
    let mut total = zero;
    for (j, x) in xs.iter().enumerate() {
        let [w0, w1] = group(j);
        let [x0, x1] = load_32(x);
        let scale = |k: usize| i32::from(head.scales[2 * j + k]);
        // SAFETY: the caller's promise.
        let first = unsafe { D::dot(zero, w0, x0) };
        if T::SUB == 32 {
            // SAFETY: as above.
            let both = unsafe { D::dot(first, w1, x1) };
            total = vmlaq_n_s32(total, both, scale(0));
        } else {
            // SAFETY: as above.
            let second = unsafe { D::dot(zero, w1, x1) };
            total = vmlaq_n_s32(total, first, scale(0));
            total = vmlaq_n_s32(total, second, scale(1));
        }
    }
    let mut product = vaddvq_s32(total) as f32 * (head.d * dx);
    if T::HAS_MIN {
        let pairs = head.mins.iter().zip(sums);
        let min: i32 = pairs.map(|(m, s)| i32::from(*m) * i32::from(*s)).sum();
        product -= min as f32 * (head.d_min * dx);
    }
    product
}
