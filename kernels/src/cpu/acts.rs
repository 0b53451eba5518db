//! Activations, rounded once and then met by many weight rows.
//!
//! The rounding is ggml's on x86, so that results stay comparable with it. Layout: arrays over all
//! rows, not blocks, so that kernels load 32 bytes at a time.

use crate::blocks::{Activation, BlockType};
use half::f16;

use super::out::Out;
use super::{Isa, Pool};
use std::ops::Range;

/// How a set of rows is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActKind {
    /// Not rounded: for weights that are floats themselves, or decoded to f32 first.
    F32,
    /// Blocks of 32 (Q8_0 and Q8_1 at once: the bytes are the same).
    Q32,
    /// Blocks of 256 (Q8_K).
    Q256,
}

impl ActKind {
    /// The rounding that weights of type `ty` expect.
    pub fn of(ty: BlockType) -> ActKind {
        match (ty, ty.activation()) {
            // These go through an f32 tile, where rounding would only lose precision.
            (BlockType::Q1_0 | BlockType::Q2_0 | BlockType::NVFP4, _) => ActKind::F32,
            (BlockType::Q8_1 | BlockType::Q8_K, _) => ActKind::F32,
            (_, Activation::Q8_0 | Activation::Q8_1) => ActKind::Q32,
            (_, Activation::Q8K) => ActKind::Q256,
            (_, Activation::F32 | Activation::F16 | Activation::Bf16) => ActKind::F32,
        }
    }

    /// Elements that share a scale (1 for F32).
    pub fn block(self) -> usize {
        match self {
            ActKind::F32 => 1,
            ActKind::Q32 => 32,
            ActKind::Q256 => 256,
        }
    }
}

/// `m` rows of `n` activations.
#[derive(Clone, Debug)]
pub struct Acts {
    kind: ActKind,
    m: usize,
    n: usize,
    /// F32 only: [m, n].
    x: Vec<f32>,
    /// Bytes [m, n].
    q: Vec<i8>,
    /// Scales [m, n/block].
    d: Vec<f32>,
    /// Q32: scaled sums of the bytes [m, n/32].
    s: Vec<f32>,
    /// Q256: sums of 16 bytes [m, n/16].
    sums: Vec<i16>,
    /// The bytes as words [m, n], where there are rows enough for tiles.
    wide: Vec<i16>,
    /// Q256, where there are rows enough for tiles: [n/256, m], so that a tile meets its column of blocks one after the
    /// other; a stride of whole rows keeps falling on the same few sets of the cache.
    blocks: Vec<Block256>,
    /// Q32, likewise: [n/256 rounded up, m].
    small: Vec<Blocks32>,
}

/// A rounded block of 256 with all that a tile's products need, side by side.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Block256 {
    /// The bytes.
    pub q: [i8; 256],
    /// Sums of 16 of them.
    pub sums16: [i16; 16],
    /// Sums of 32 of them.
    pub sums32: [i16; 8],
    /// Scale.
    pub d: f32,
}

impl Block256 {
    const ZERO: Block256 = Block256 {
        q: [0; 256],
        sums16: [0; 16],
        sums32: [0; 8],
        d: 0.0,
    };

    fn new(q: &[i8; 256], sums16: &[i16; 16], d: f32) -> Block256 {
        let mut sums32 = [0; 8];
        for (to, [a, b]) in sums32.iter_mut().zip(sums16.as_chunks::<2>().0) {
            *to = a + b;
        }
        Block256 {
            q: *q,
            sums16: *sums16,
            sums32,
            d,
        }
    }
}

/// Up to eight rounded blocks of 32 with all that a tile's products need, side by side.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Blocks32 {
    /// The bytes.
    pub q: [i8; 256],
    /// -128 times the sum of each block's bytes: what 128 added to the weights adds to the products, taken off.
    pub shift: [i32; 8],
    /// Scales.
    pub d: [f32; 8],
    /// Scaled sums.
    pub s: [f32; 8],
}

impl Blocks32 {
    const ZERO: Blocks32 = Blocks32 {
        q: [0; 256],
        shift: [0; 8],
        d: [0.0; 8],
        s: [0.0; 8],
    };

    fn new(q: &[i8], d: &[f32], s: &[f32]) -> Blocks32 {
        let mut to = Blocks32::ZERO;
        to.q[..q.len()].copy_from_slice(q);
        for (shift, q) in to.shift.iter_mut().zip(q.as_chunks::<32>().0) {
            *shift = -128 * q.iter().map(|&q| i32::from(q)).sum::<i32>();
        }
        to.d[..d.len()].copy_from_slice(d);
        to.s[..s.len()].copy_from_slice(s);
        to
    }
}

/// Rows from which on tiles are used, so that weights are decoded once for all of them.
pub(super) const TILED: usize = 4;

/// One row of [`Acts`]. Fields that the kind lacks are empty.
#[derive(Clone, Copy, Debug)]
pub struct ActRow<'a> {
    /// F32 values.
    pub x: &'a [f32],
    /// Bytes.
    pub q: &'a [i8],
    /// Scale per block.
    pub d: &'a [f32],
    /// Scaled sum per block of 32.
    pub s: &'a [f32],
    /// Sum per 16 bytes.
    pub sums: &'a [i16],
}

/// Why activations were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActsError {
    /// Rows must be whole blocks.
    #[error("activation rows of {n} elements cannot be rounded in blocks of {block}")]
    RowLength {
        /// Elements per row.
        n: usize,
        /// Elements per block.
        block: usize,
    },
    /// The values are not whole rows.
    #[error("{len} activations are no whole number of rows of {n}")]
    Ragged {
        /// Values given.
        len: usize,
        /// Elements per row.
        n: usize,
    },
}

impl Acts {
    /// Room for rows, to be filled by [`Acts::set`] (buffers are reused from call to call).
    pub fn empty() -> Acts {
        Acts {
            kind: ActKind::F32,
            m: 0,
            n: 0,
            x: Vec::new(),
            q: Vec::new(),
            d: Vec::new(),
            s: Vec::new(),
            sums: Vec::new(),
            wide: Vec::new(),
            blocks: Vec::new(),
            small: Vec::new(),
        }
    }

    /// Round the rows `x` = [m, n].
    ///
    /// # Errors
    /// `n` is no whole number of blocks, or `x` no whole number of rows.
    pub fn new(kind: ActKind, x: &[f32], n: usize) -> Result<Acts, ActsError> {
        let mut acts = Acts::empty();
        acts.set(kind, x, n)?;
        Ok(acts)
    }

    /// Replace the contents by the rounded rows `x` = [m, n].
    ///
    /// # Errors
    /// As [`Acts::new`]; the contents are then unchanged.
    pub fn set(&mut self, kind: ActKind, x: &[f32], n: usize) -> Result<(), ActsError> {
        self.set_with(Isa::best(), kind, x, n)
    }

    /// As [`Acts::set`], with the instructions of `isa`.
    ///
    /// # Errors
    /// As [`Acts::new`].
    pub fn set_with(
        &mut self,
        isa: Isa,
        kind: ActKind,
        x: &[f32],
        n: usize,
    ) -> Result<(), ActsError> {
        if n == 0 || !n.is_multiple_of(kind.block()) {
            return Err(ActsError::RowLength {
                n,
                block: kind.block(),
            });
        }
        if !x.len().is_multiple_of(n) {
            return Err(ActsError::Ragged { len: x.len(), n });
        }
        self.resize(kind, x.len() / n, n);
        let blocks = Out::new(&mut self.blocks, self.m);
        let small = Out::new(&mut self.small, self.m);
        let mut parts = Parts {
            kind,
            x: &mut self.x,
            q: &mut self.q,
            d: &mut self.d,
            s: &mut self.s,
            sums: &mut self.sums,
            wide: &mut self.wide,
        };
        parts.round(isa, x);
        if self.m >= TILED {
            // SAFETY: nobody else has a part.
            unsafe { parts.side_by_side(n, &blocks, &small, 0..self.m) };
        }
        Ok(())
    }

    /// As [`Acts::set`], with the rows shared out among the pool's threads.
    ///
    /// # Errors
    /// As [`Acts::new`].
    pub fn set_on(
        &mut self,
        pool: &Pool,
        isa: Isa,
        kind: ActKind,
        x: &[f32],
        n: usize,
    ) -> Result<(), ActsError> {
        const ELEMENTS: usize = 1 << 14; // less is not worth handing out
        if x.len() <= ELEMENTS || n == 0 || !x.len().is_multiple_of(n) {
            return self.set_with(isa, kind, x, n);
        }
        if !n.is_multiple_of(kind.block()) {
            return Err(ActsError::RowLength {
                n,
                block: kind.block(),
            });
        }
        self.resize(kind, x.len() / n, n);
        let (m, block) = (self.m, kind.block());
        let f = Out::new(&mut self.x, n);
        let q = Out::new(&mut self.q, n);
        let d = Out::new(&mut self.d, n / block);
        let s = Out::new(&mut self.s, n / 32);
        let sums = Out::new(&mut self.sums, n / 16);
        let wide = Out::new(&mut self.wide, n);
        let blocks = Out::new(&mut self.blocks, m);
        let small = Out::new(&mut self.small, m);
        let tiled = m >= TILED && kind != ActKind::F32;
        pool.ranges(m, (ELEMENTS / n).max(1), |rows, _| {
            let only = |holds: bool| if holds { rows.clone() } else { 0..0 };
            let quantised = kind != ActKind::F32;
            // SAFETY: each range of rows is one task's; empty parts are of buffers that the kind
            // does not use.
            let mut parts = unsafe {
                Parts {
                    kind,
                    x: f.rows(only(!quantised)),
                    q: q.rows(only(quantised)),
                    d: d.rows(only(quantised)),
                    s: s.rows(only(kind == ActKind::Q32)),
                    sums: sums.rows(only(kind == ActKind::Q256)),
                    wide: wide.rows(only(tiled)),
                }
            };
            parts.round(isa, &x[rows.start * n..rows.end * n]);
            if tiled {
                // SAFETY: as above.
                unsafe { parts.side_by_side(n, &blocks, &small, rows) };
            }
        });
        Ok(())
    }

    fn resize(&mut self, kind: ActKind, m: usize, n: usize) {
        (self.kind, self.m, self.n) = (kind, m, n);
        let size = |holds: bool, len: usize| if holds { len } else { 0 };
        let (q32, q256) = (kind == ActKind::Q32, kind == ActKind::Q256);
        let quantised = q32 || q256;
        self.x.resize(size(!quantised, m * n), 0.0);
        self.q.resize(size(quantised, m * n), 0);
        self.d.resize(size(quantised, m * n / kind.block()), 0.0);
        self.s.resize(size(q32, m * n / 32), 0.0);
        self.sums.resize(size(q256, m * n / 16), 0);
        self.wide.resize(size(quantised && m >= TILED, m * n), 0);
        let blocks = size(q256 && m >= TILED, m * n / 256);
        self.blocks.resize(blocks, Block256::ZERO);
        let small = size(q32 && m >= TILED, m * n.div_ceil(256));
        self.small.resize(small, Blocks32::ZERO);
    }

    /// Blocks `b` of all rows.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "read by tiles")
    )]
    pub(super) fn blocks256(&self, b: usize) -> &[Block256] {
        &self.blocks[b * self.m..][..self.m]
    }

    /// `cols` words from column `from` of row `i`, with their scales and scaled sums.
    #[inline(always)]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "read by tiles")
    )]
    pub(super) fn words(&self, i: usize, from: usize, cols: usize) -> (&[i16], &[f32], &[f32]) {
        let block = self.kind.block();
        let scales = i * (self.n / block) + from / block;
        let count = cols / block;
        let s = match self.kind {
            ActKind::Q32 => &self.s[scales..scales + count],
            _ => &[],
        };
        (
            &self.wide[i * self.n + from..][..cols],
            &self.d[scales..scales + count],
            s,
        )
    }

    /// Columns `256 * b ..` of all rows rounded in blocks of 32.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "read by tiles")
    )]
    pub(super) fn blocks32(&self, b: usize) -> &[Blocks32] {
        &self.small[b * self.m..][..self.m]
    }

    /// `cols` unrounded values from column `from` of row `i`.
    #[inline(always)]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "read by tiles")
    )]
    pub(super) fn floats(&self, i: usize, from: usize, cols: usize) -> &[f32] {
        &self.x[i * self.n + from..][..cols]
    }

    /// How the rows are rounded.
    pub fn kind(&self) -> ActKind {
        self.kind
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.m
    }

    /// Elements per row.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, i: usize) -> ActRow<'_> {
        assert!(i < self.m, "activation row {i} of {}", self.m);
        let n = self.n;
        let blocks = n / self.kind.block();
        let none = ActRow {
            x: &[],
            q: &[],
            d: &[],
            s: &[],
            sums: &[],
        };
        match self.kind {
            ActKind::F32 => ActRow {
                x: &self.x[i * n..][..n],
                ..none
            },
            ActKind::Q32 => ActRow {
                q: &self.q[i * n..][..n],
                d: &self.d[i * blocks..][..blocks],
                s: &self.s[i * blocks..][..blocks],
                ..none
            },
            ActKind::Q256 => ActRow {
                q: &self.q[i * n..][..n],
                d: &self.d[i * blocks..][..blocks],
                sums: &self.sums[i * n / 16..][..n / 16],
                ..none
            },
        }
    }

    /// The values that the rounded rows stand for, [m, n].
    pub fn to_f32(&self) -> Vec<f32> {
        (0..self.m).flat_map(|i| self.row(i).to_f32()).collect()
    }
}

impl ActRow<'_> {
    /// The values that the row stands for.
    pub fn to_f32(&self) -> Vec<f32> {
        if self.q.is_empty() {
            return self.x.to_vec();
        }
        let block = self.q.len() / self.d.len().max(1);
        let blocks = self.q.chunks(block.max(1)).zip(self.d);
        blocks
            .flat_map(|(q, d)| q.iter().map(move |&q| f32::from(q) * d))
            .collect()
    }
}

/// Some rows of [`Acts`], to be filled. Parts that the kind does not use are empty.
struct Parts<'a> {
    kind: ActKind,
    x: &'a mut [f32],
    q: &'a mut [i8],
    d: &'a mut [f32],
    s: &'a mut [f32],
    sums: &'a mut [i16],
    wide: &'a mut [i16],
}

impl Parts<'_> {
    fn round(&mut self, isa: Isa, x: &[f32]) {
        match self.kind {
            ActKind::F32 => self.x.copy_from_slice(x),
            ActKind::Q32 => quantise_q32(isa, x, self.q, self.d, self.s),
            ActKind::Q256 => quantise_q256(isa, x, self.q, self.d, self.sums),
        }
        for (to, q) in self.wide.iter_mut().zip(self.q.iter()) {
            *to = i16::from(*q);
        }
    }

    /// Copy the blocks of rows of `n` elements to where tiles read them, `blocks` = [n/256, all rows] or `small` = [n/256
    /// rounded up, all rows] by kind; these are `rows` of them. Does nothing for F32.
    ///
    /// # Safety
    /// Nobody else has these columns of either.
    unsafe fn side_by_side(
        &self,
        n: usize,
        blocks: &Out<'_, Block256>,
        small: &Out<'_, Blocks32>,
        rows: Range<usize>,
    ) {
        for (i, row) in rows.enumerate() {
            match self.kind {
                ActKind::F32 => {}
                ActKind::Q32 => {
                    let q = self.q[i * n..][..n].chunks(256);
                    let scales = i * (n / 32)..(i + 1) * (n / 32);
                    let d = self.d[scales.clone()].chunks(8);
                    let s = self.s[scales].chunks(8);
                    for (b, ((q, d), s)) in q.zip(d).zip(s).enumerate() {
                        // SAFETY: the caller's promise.
                        let to = unsafe { small.part(b, row..row + 1) };
                        to[0] = Blocks32::new(q, d, s);
                    }
                }
                ActKind::Q256 => {
                    let q = self.q[i * n..][..n].as_chunks().0;
                    let sums = self.sums[i * (n / 16)..][..n / 16].as_chunks().0;
                    let d = &self.d[i * (n / 256)..][..n / 256];
                    for (b, ((q, sums), d)) in q.iter().zip(sums).zip(d).enumerate() {
                        // SAFETY: the caller's promise.
                        let to = unsafe { blocks.part(b, row..row + 1) };
                        to[0] = Block256::new(q, sums, *d);
                    }
                }
            }
        }
    }
}

fn quantise_q32(isa: Isa, x: &[f32], q: &mut [i8], d: &mut [f32], s: &mut [f32]) {
    let blocks = x.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<32>().0);
    for ((x, q), (d, s)) in blocks.zip(d.iter_mut().zip(s)) {
        let scale = round_block32(isa, x, q);
        let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
        *d = f16::from_f32(scale).to_f32();
        *s = f16::from_f32(scale * sum as f32).to_f32();
    }
}

fn round_block32(isa: Isa, x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
        return unsafe { super::simd::avx2::quantise::block32(x, q) };
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has_neon() {
        // SAFETY: every aarch64 has NEON.
        return unsafe { super::simd::neon::quantise::block32(x, q) };
    }
    let _ = isa;
    let largest = x.iter().copied().fold(0.0, larger).abs();
    let inverse = if largest != 0.0 { 127.0 / largest } else { 0.0 };
    for (q, x) in q.iter_mut().zip(x) {
        *q = (x * inverse).round_ties_even() as i8;
    }
    largest / 127.0
}

/// The value of larger magnitude, the first on ties. NaN stays: bytes cannot hold it, so the scale has to, or a broken
/// activation would pass for zero.
fn larger(a: f32, v: f32) -> f32 {
    if v.abs() > a.abs() || v.is_nan() {
        v
    } else {
        a
    }
}

fn quantise_q256(isa: Isa, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    let blocks = x.as_chunks::<256>().0.iter().zip(q.as_chunks_mut().0);
    for ((x, q), (d, sums)) in blocks.zip(d.iter_mut().zip(sums.as_chunks_mut().0)) {
        *d = round_block256(isa, x, q, sums);
    }
}

fn round_block256(isa: Isa, x: &[f32; 256], q: &mut [i8; 256], sums: &mut [i16; 16]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
        return unsafe { super::simd::avx2::quantise::block256(x, q, sums) };
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has_neon() {
        // SAFETY: every aarch64 has NEON.
        return unsafe { super::simd::neon::quantise::block256(x, q, sums) };
    }
    let _ = isa;
    // The first element of largest magnitude, with its sign: it becomes -127.
    let largest = x.iter().copied().fold(0.0, larger);
    if largest == 0.0 {
        q.fill(0);
        sums.fill(0);
        return 0.0;
    }
    let inverse = -127.0 / largest;
    for (q, x) in q.iter_mut().zip(x) {
        *q = (x * inverse).round_ties_even().min(127.0) as i8;
    }
    for (sum, q) in sums.iter_mut().zip(q.as_chunks::<16>().0) {
        *sum = q.iter().map(|&q| i16::from(q)).sum();
    }
    1.0 / inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.03 + (i as f32 * 0.7).sin())
            .collect()
    }

    #[test]
    fn q256_maps_the_largest_to_minus_127() {
        let mut x = vec![0.25; 256];
        x[9] = 2.0;
        let acts = Acts::new(ActKind::Q256, &x, 256).expect("one block");
        let row = acts.row(0);
        assert_eq!(row.q[9], -127);
        assert_eq!(row.q[0], -16); // -15.875
        assert_eq!(row.d[0], 1.0 / (-127.0 / 2.0));
        assert_eq!(row.sums[0], -15 * 16 - 127);
        assert_eq!(row.sums[1], -256);
    }

    #[test]
    fn q32_rounds_half_to_even_and_stores_halves() {
        let mut x = vec![0.0; 32];
        x[0] = 127.0;
        x[1] = 0.5;
        x[2] = 1.5;
        x[3] = -2.5;
        let acts = Acts::new(ActKind::Q32, &x, 32).expect("one block");
        let row = acts.row(0);
        assert_eq!(&row.q[..5], &[127, 0, 2, -2, 0]);
        assert_eq!((row.d[0], row.s[0]), (1.0, 127.0));
    }

    #[test]
    fn zeros_stay_zeros() {
        for kind in [ActKind::Q32, ActKind::Q256] {
            let acts = Acts::new(kind, &[0.0; 512], 256).expect("two rows");
            assert_eq!(acts.rows(), 2);
            assert!(acts.to_f32().iter().all(|v| *v == 0.0));
        }
    }

    #[test]
    fn every_isa_rounds_alike() {
        let x = wave(256 * 7);
        for kind in [ActKind::Q32, ActKind::Q256] {
            let mut portable = Acts::empty();
            portable
                .set_with(Isa::Portable, kind, &x, 256)
                .expect("rows");
            for isa in Isa::available() {
                let mut other = Acts::empty();
                other.set_with(isa, kind, &x, 256).expect("rows");
                assert_eq!(portable.q, other.q, "{isa:?}");
                assert_eq!(portable.d, other.d, "{isa:?}");
                assert_eq!(portable.s, other.s, "{isa:?}");
                assert_eq!(portable.sums, other.sums, "{isa:?}");
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for kind in [ActKind::Q32, ActKind::Q256] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 77, 255] {
                    let mut x = wave(512);
                    x[at] = bad;
                    for isa in Isa::available() {
                        let mut acts = Acts::empty();
                        acts.set_with(isa, kind, &x, 256).expect("rows");
                        let row = acts.row(0).to_f32();
                        assert!(!row[at].is_finite(), "{isa:?} {kind:?} {bad} {}", row[at]);
                        assert!(acts.row(1).to_f32().iter().all(|v| v.is_finite()));
                    }
                }
            }
        }
    }

    #[test]
    fn ragged_rows_are_refused() {
        assert_eq!(
            Acts::new(ActKind::Q256, &[0.0; 192], 192).err(),
            Some(ActsError::RowLength { n: 192, block: 256 })
        );
        assert_eq!(
            Acts::new(ActKind::F32, &[0.0; 10], 4).err(),
            Some(ActsError::Ragged { len: 10, n: 4 })
        );
    }
}
