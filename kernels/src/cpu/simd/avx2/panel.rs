//! 16 rows of a matrix against all activation rows.

use super::dot32::{self, Small};
use super::dot256::Super;
use super::micro::{self, Sums, Words};
use super::tile::{COLS, ROWS, Tiles};
use super::{codebook as c, floats, kquant as k};
use crate::blocks::{BlockType, decode};
use crate::cpu::acts::{ActKind, Acts};
use crate::cpu::matmul::Rows;
use crate::cpu::simd::avx512::micro as wide;

/// What a panel multiplies.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    pub ty: BlockType,
    /// Up to 16 rows.
    pub w: &'a [u8],
    pub row_bytes: usize,
    pub acts: &'a Acts,
    /// The activation rows wanted.
    pub which: Rows<'a>,
    /// Whether the processor has what `simd::avx512` needs.
    pub wide: bool,
}

impl Panel<'_> {
    fn row(&self, i: usize) -> usize {
        self.which.get(i)
    }
}

/// Run `$body` over the activation rows, as many at a time as the registers hold and then the rest, with `$at` the first
/// row, `$m` their number and `$out` their sums. Of two bodies the second is for wide registers.
macro_rules! by_rows {
    (@each [$($count:literal)*], $sums:expr, |$at:ident, $out:ident, $m:ident| $body:expr) => {{
        let sums: &mut [Sums] = $sums;
        let mut $at = 0;
        while $at < sums.len() {
            let rest = &mut sums[$at..];
            $(by_rows!(@some $count, rest, $at, $out, $m, $body);)*
        }
    }};
    (@some $count:literal, $rest:ident, $at:ident, $out:ident, $m:ident, $body:expr) => {
        if let Some($out) = $rest.first_chunk_mut::<$count>() {
            const $m: usize = $count;
            $body;
            $at += $count;
            continue;
        }
    };
    (wide: $sums:expr, |$at:ident, $out:ident, $m:ident| $body:expr) => {
        // There are registers for twelve, but not for as many rows' addresses.
        by_rows!(@each [8 7 6 5 4 3 2 1], $sums, |$at, $out, $m| $body)
    };
    (narrow: $sums:expr, |$at:ident, $out:ident, $m:ident| $body:expr) => {
        by_rows!(@each [6 5 4 3 2 1], $sums, |$at, $out, $m| $body)
    };
    ($is_wide:expr, $sums:expr, |$at:ident, $out:ident, $m:ident| $narrow:expr, $wide:expr) => {
        if $is_wide {
            by_rows!(wide: $sums, |$at, $out, $m| $wide);
        } else {
            by_rows!(narrow: $sums, |$at, $out, $m| $narrow);
        }
    };
}

pub(super) use by_rows;

/// The operands of rows `at ..`.
#[inline(always)]
pub(super) fn gather<T: Copy, const M: usize>(at: usize, row: impl Fn(usize) -> T) -> [T; M] {
    let mut x = [row(at); M];
    for (i, x) in x.iter_mut().enumerate().skip(1) {
        *x = row(at + i);
    }
    x
}

/// Add the products of a panel to `sums`, one entry per activation row. `false` if the type has no
/// tile of its own or the activations are not rounded for it.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn run(p: Panel<'_>, tiles: &mut Tiles, sums: &mut [Sums]) -> bool {
    if p.acts.kind() != ActKind::of(p.ty) {
        return false;
    }
    match p.ty {
        BlockType::Q2_K => supers::<84, k::Q2K, 4, 16>(p, tiles, sums),
        BlockType::Q3_K => supers::<110, k::Q3K, 4, 16>(p, tiles, sums),
        BlockType::Q4_K => supers::<144, k::Q4K, 8, 32>(p, tiles, sums),
        BlockType::Q5_K => supers::<176, k::Q5K, 4, 32>(p, tiles, sums),
        BlockType::Q6_K => supers::<210, k::Q6K, 2, 16>(p, tiles, sums),
        BlockType::TQ2_0 => supers::<66, k::Tq20, 8, 32>(p, tiles, sums),
        BlockType::IQ1_S => supers::<50, c::Iq1S, 8, 32>(p, tiles, sums),
        BlockType::IQ1_M => supers::<56, c::Iq1M, 4, 16>(p, tiles, sums),
        BlockType::IQ2_XXS => supers::<66, c::Iq2Xxs, 1, 32>(p, tiles, sums),
        BlockType::IQ2_XS => supers::<74, c::Iq2Xs, 1, 16>(p, tiles, sums),
        BlockType::IQ2_S => supers::<82, c::Iq2S, 1, 16>(p, tiles, sums),
        BlockType::IQ3_XXS => supers::<98, c::Iq3Xxs, 1, 32>(p, tiles, sums),
        BlockType::IQ3_S => supers::<110, c::Iq3S, 4, 32>(p, tiles, sums),
        BlockType::IQ4_XS if p.wide => supers::<136, k::Iq4Xs, 1, 32>(p, tiles, sums),
        BlockType::IQ4_XS => scaled::<136, k::Iq4Xs>(p, tiles, sums),
        BlockType::Q4_0 => smalls::<18, dot32::Q40>(p, tiles, sums),
        BlockType::Q4_1 => smalls::<20, dot32::Q41>(p, tiles, sums),
        BlockType::Q5_0 => smalls::<22, dot32::Q50>(p, tiles, sums),
        BlockType::Q5_1 => smalls::<24, dot32::Q51>(p, tiles, sums),
        BlockType::Q8_0 => smalls::<34, dot32::Q80>(p, tiles, sums),
        BlockType::IQ4_NL => smalls::<18, dot32::Iq4Nl>(p, tiles, sums),
        BlockType::MXFP4 => smalls::<17, dot32::Mxfp4>(p, tiles, sums),
        BlockType::F32 if p.acts.n().is_multiple_of(8) => plain::<4, floats::F32>(p, tiles, sums),
        BlockType::F16 if p.acts.n().is_multiple_of(8) => plain::<2, floats::F16>(p, tiles, sums),
        BlockType::BF16 if p.acts.n().is_multiple_of(8) => plain::<2, floats::Bf16>(p, tiles, sums),
        _ if p.acts.kind() == ActKind::F32 => decoded(p, tiles, sums),
        _ => return false,
    }
    true
}

#[target_feature(enable = "avx2,fma,f16c")]
fn supers<const B: usize, T: Super<B>, const STEPS: usize, const SUB: usize>(
    p: Panel<'_>,
    tiles: &mut Tiles,
    sums: &mut [Sums],
) {
    const { assert!(STEPS == T::STEPS && SUB == T::SUB) };
    for b in 0..p.acts.n() / 256 {
        tiles.fill_bytes::<B, T>(&p.w[b * B..], p.row_bytes);
        let blocks = p.acts.blocks256(b);
        let block = |i: usize| &blocks[p.row(i)];
        by_rows!(
            p.wide,
            sums,
            |at, out, M| micro::bytes::<STEPS, SUB, M>(&tiles.bytes, &gather(at, block), out),
            // SAFETY: `wide` is set only where the processor has AVX-512.
            unsafe { wide::bytes::<SUB, M>(&tiles.bytes, &gather(at, block), out) }
        );
    }
}

#[inline(always)]
fn words(p: Panel<'_>, i: usize, from: usize, cols: usize) -> Words<'_> {
    let (q, d, s) = p.acts.words(p.row(i), from, cols);
    Words { q, d, s }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scaled<const B: usize, T: Super<B>>(p: Panel<'_>, tiles: &mut Tiles, sums: &mut [Sums]) {
    for b in 0..p.acts.n() / 256 {
        tiles.fill_scaled::<B, T>(&p.w[b * B..], p.row_bytes);
        let row = |i| words(p, i, 256 * b, 256);
        by_rows!(narrow: sums, |at, out, M| {
            micro::words256::<M>(&tiles.words, &gather(at, row), out);
        });
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn smalls<const B: usize, T: Small<B>>(p: Panel<'_>, tiles: &mut Tiles, sums: &mut [Sums]) {
    let n = p.acts.n();
    for from in (0..n).step_by(COLS) {
        let cols = COLS.min(n - from);
        let (w, blocks) = (&p.w[from / 32 * B..], cols / 32);
        if p.wide {
            tiles.fill_small::<B, T>(w, p.row_bytes, blocks);
            let x = p.acts.blocks32(from / COLS);
            let row = |i: usize| &x[p.row(i)];
            by_rows!(wide: sums, |at, out, M| {
                let (tile, x) = (&tiles.small, gather(at, row));
                // SAFETY: `wide` is set only where the processor has AVX-512.
                unsafe {
                    if T::HAS_MIN {
                        wide::bytes32::<true, M>(tile, blocks, &x, out)
                    } else {
                        wide::bytes32::<false, M>(tile, blocks, &x, out)
                    }
                }
            });
        } else {
            tiles.fill_words::<B, T>(w, p.row_bytes, blocks);
            let row = |i| words(p, i, from, cols);
            by_rows!(narrow: sums, |at, out, M| {
                let (tile, x) = (&tiles.words, gather(at, row));
                if T::HAS_MIN {
                    micro::words32::<true, M>(tile, blocks, &x, out)
                } else {
                    micro::words32::<false, M>(tile, blocks, &x, out)
                }
            });
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn plain<const B: usize, T: floats::FromBytes<B>>(
    p: Panel<'_>,
    tiles: &mut Tiles,
    sums: &mut [Sums],
) {
    let n = p.acts.n();
    for from in (0..n).step_by(COLS) {
        let cols = COLS.min(n - from);
        tiles.fill_plain::<B, T>(p.w, p.row_bytes, from, cols);
        let row = |i| p.acts.floats(p.row(i), from, cols);
        by_rows!(
            p.wide,
            sums,
            |at, out, M| micro::floats::<M>(&tiles.floats, &gather(at, row), out),
            // SAFETY: as above.
            unsafe { wide::floats::<M>(&tiles.floats, &gather(at, row), out) }
        );
    }
}

/// Any type, decoded to floats, with activations that are not rounded.
#[target_feature(enable = "avx2,fma,f16c")]
fn decoded(p: Panel<'_>, tiles: &mut Tiles, sums: &mut [Sums]) {
    let n = p.acts.n();
    let rows = (p.w.len() / p.row_bytes).min(ROWS);
    let mut decoded = vec![0.0; rows * COLS];
    for from in (0..n).step_by(COLS) {
        let cols = COLS.min(n - from);
        let first = from / p.ty.block_len() * p.ty.block_bytes();
        let bytes = cols / p.ty.block_len() * p.ty.block_bytes();
        let decoded = &mut decoded[..rows * cols];
        for (r, row) in decoded.chunks_exact_mut(cols).enumerate() {
            let w = &p.w[r * p.row_bytes + first..][..bytes];
            if decode(p.ty, w, row).is_err() {
                // Whole blocks of the right size cannot fail to decode.
                row.fill(f32::NAN);
            }
        }
        tiles.fill_floats(decoded, cols);
        let row = |i| p.acts.floats(p.row(i), from, cols);
        by_rows!(
            p.wide,
            sums,
            |at, out, M| micro::floats::<M>(&tiles.floats, &gather(at, row), out),
            // SAFETY: as above.
            unsafe { wide::floats::<M>(&tiles.floats, &gather(at, row), out) }
        );
    }
}
