//! Weights of 16 rows over 256 columns, decoded once for many activation rows.
//!
//! Tiles are interleaved: a register holds the same few columns of eight rows, so that a product
//! with a broadcast activation leaves one sum per row in each lane and nothing has to be added
//! across lanes.

use super::dot32::Small;
use super::dot256::{Head, Offset, Stage, Super};
use super::floats::FromBytes;
use super::vec::{bytes, join, load, store, twice};
use std::arch::x86_64::*;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Columns of a tile.
pub(crate) const COLS: usize = 256;

/// Unsigned bytes with integer scales: blocks of 256.
#[repr(align(64))]
pub(crate) struct Tile8 {
    /// [column / 4][row], four columns.
    pub q: [[[u8; 4]; ROWS]; COLS / 4],
    /// [sub-block][row], the scale twice.
    pub scales: [[[i16; 2]; ROWS]; 16],
    /// [pair of sub-blocks][row], both offsets.
    pub offsets: [[[i16; 2]; ROWS]; 8],
    /// Factor of the products.
    pub d: [f32; ROWS],
    /// Factor of the offsets.
    pub d_offset: [f32; ROWS],
}

/// Unsigned bytes with a float scale per block of 32.
#[repr(align(64))]
pub(crate) struct Tile8x32 {
    /// [column / 4][row], four columns; signed bytes have 128 added.
    pub q: [[[u8; 4]; ROWS]; COLS / 4],
    /// [block of 32][row].
    pub d: [[f32; ROWS]; 8],
    /// [block of 32][row].
    pub min: [[f32; ROWS]; 8],
}

/// Words with a float scale per block of 32, or one for all 256 columns.
#[repr(align(64))]
pub(crate) struct Tile16 {
    /// [column / 2][row], two columns.
    pub q: [[[i16; 2]; ROWS]; COLS / 2],
    /// [block of 32][row].
    pub d: [[f32; ROWS]; 8],
    /// [block of 32][row].
    pub min: [[f32; ROWS]; 8],
}

/// Decoded floats.
#[repr(align(64))]
pub(crate) struct TileF {
    /// [column][row].
    pub w: [[f32; ROWS]; COLS],
}

/// Room for any tile.
pub(crate) struct Tiles {
    pub bytes: Tile8,
    pub small: Tile8x32,
    pub words: Tile16,
    pub floats: TileF,
    rows: [[u8; COLS]; 8],
    /// Of the row that is unpacked and of the next.
    stages: [Stage; 2],
}

impl Tiles {
    pub(crate) fn new() -> Box<Tiles> {
        Box::new(Tiles {
            bytes: Tile8 {
                q: [[[0; 4]; ROWS]; COLS / 4],
                scales: [[[0; 2]; ROWS]; 16],
                offsets: [[[0; 2]; ROWS]; 8],
                d: [0.0; ROWS],
                d_offset: [0.0; ROWS],
            },
            small: Tile8x32 {
                q: [[[0; 4]; ROWS]; COLS / 4],
                d: [[0.0; ROWS]; 8],
                min: [[0.0; ROWS]; 8],
            },
            words: Tile16 {
                q: [[[0; 2]; ROWS]; COLS / 2],
                d: [[0.0; ROWS]; 8],
                min: [[0.0; ROWS]; 8],
            },
            floats: TileF {
                w: [[0.0; ROWS]; COLS],
            },
            rows: [[0; COLS]; 8],
            stages: [Stage::EMPTY, Stage::EMPTY],
        })
    }

    /// Fill the byte tile: row `r` is the block at byte `r * stride` of `w`. Rows past the end of
    /// `w` count as zero.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill_bytes<const B: usize, T: Super<B>>(&mut self, w: &[u8], stride: usize) {
        let block = |r: usize| w.get(r * stride..).and_then(|w| w.first_chunk::<B>());
        self.stage::<B, T>(block(0), 0);
        for half in 0..2 {
            let mut heads = [Head::zero(); 8];
            for (i, head) in heads.iter_mut().enumerate() {
                let r = 8 * half + i;
                self.stage::<B, T>(block(r + 1), r + 1);
                match block(r) {
                    Some(w) => *head = self.byte_row::<B, T>(w, r),
                    None => self.rows[i].fill(0),
                }
                self.bytes.d[r] = head.d;
                self.bytes.d_offset[r] = match T::OFFSET {
                    Offset::Own => head.d_offset,
                    _ => head.d,
                };
            }
            self.bytes.put_heads::<B, T>(&heads, half);
            for c in 0..COLS / 32 {
                let [a, b, c1, d, e, f, g, h] = &self.rows;
                let rows = [a, b, c1, d, e, f, g, h].map(|r| load(bytes(r, 32 * c)));
                for (k, v) in transpose(rows).into_iter().enumerate() {
                    put8(&mut self.bytes.q[8 * c + k], half, v);
                }
            }
        }
    }

    /// Work out ahead what unpacking row `r` will read from memory.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn stage<const B: usize, T: Super<B>>(&mut self, w: Option<&[u8; B]>, r: usize) {
        if let Some(w) = w.filter(|_| r < ROWS) {
            // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
            unsafe { T::stage(w, &mut self.stages[r % 2]) };
        }
    }

    /// Unpack a block into row `r % 8` of the scratch.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn byte_row<const B: usize, T: Super<B>>(&mut self, w: &[u8; B], r: usize) -> Head {
        let (parts, _) = self.rows[r % 8].as_chunks_mut::<32>();
        // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
        unsafe {
            T::groups(w, &self.stages[r % 2], |j, q, signs| {
                let mut q = q;
                if T::OFFSET == Offset::Signs {
                    let shift = _mm256_set1_epi8(T::SHIFT as i8);
                    q = _mm256_add_epi8(_mm256_sign_epi8(q, signs), shift);
                }
                store(&mut parts[j & 7], q);
            });
            T::head(w)
        }
    }

    /// Fill the byte tile of 32-element blocks, `blocks` (up to 8) of each row.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill_small<const B: usize, T: Small<B>>(
        &mut self,
        w: &[u8],
        stride: usize,
        blocks: usize,
    ) {
        let tile = &mut self.small;
        let shift = _mm256_set1_epi8(if T::HAS_MIN { 0 } else { i8::MIN });
        for b in 0..blocks.min(8) {
            for half in 0..2 {
                let mut rows = [_mm256_setzero_si256(); 8];
                for (i, row) in rows.iter_mut().enumerate() {
                    let r = 8 * half + i;
                    (tile.d[b][r], tile.min[b][r]) = (0.0, 0.0);
                    if let Some(w) = small_block(w, r * stride + b * B) {
                        // SAFETY: this function is only reached where the processor has AVX2,
                        // FMA and F16C.
                        unsafe {
                            *row = _mm256_xor_si256(T::values(w), shift);
                            tile.d[b][r] = T::scale(w);
                            tile.min[b][r] = T::min(w);
                        }
                    }
                }
                for (k, v) in transpose(rows).into_iter().enumerate() {
                    put8(&mut tile.q[8 * b + k], half, v);
                }
            }
        }
    }

    /// Fill the word tile from rows of 32-element blocks, `blocks` (up to 8) of each.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill_words<const B: usize, T: Small<B>>(
        &mut self,
        w: &[u8],
        stride: usize,
        blocks: usize,
    ) {
        let tile = &mut self.words;
        for b in 0..blocks.min(8) {
            for half in 0..2 {
                let mut rows = [_mm256_setzero_si256(); 8];
                for (i, row) in rows.iter_mut().enumerate() {
                    let r = 8 * half + i;
                    (tile.d[b][r], tile.min[b][r]) = (0.0, 0.0);
                    if let Some(w) = small_block(w, r * stride + b * B) {
                        // SAFETY: this function is only reached where the processor has AVX2,
                        // FMA and F16C.
                        unsafe {
                            *row = T::values(w);
                            tile.d[b][r] = T::scale(w);
                            tile.min[b][r] = T::min(w);
                        }
                    }
                }
                let low = rows.map(|v| _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v)));
                let high = rows.map(|v| _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(v)));
                for (part, rows) in [low, high].into_iter().enumerate() {
                    for (k, v) in transpose(rows).into_iter().enumerate() {
                        put16(&mut tile.q[16 * b + 8 * part + k], half, v);
                    }
                }
            }
        }
    }

    /// Fill the word tile with scale times level from blocks of 256 whose levels need eight bits.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill_scaled<const B: usize, T: Super<B>>(&mut self, w: &[u8], stride: usize) {
        let mut rows = [[[_mm256_setzero_si256(); 2]; 8]; ROWS];
        for (r, row) in rows.iter_mut().enumerate() {
            self.words.d[0][r] = 0.0;
            let Some(w) = w.get(r * stride..).and_then(|w| w.first_chunk::<B>()) else {
                continue;
            };
            // SAFETY: this function is only reached where the processor has AVX2, FMA and F16C.
            unsafe {
                let head = T::head(w);
                let mut scales = [0_i16; 16];
                super::vec::store_i16(&mut scales, head.scales);
                self.words.d[0][r] = head.d;
                T::stage(w, &mut self.stages[0]);
                T::groups(w, &self.stages[0], |j, q, signs| {
                    let v = _mm256_sign_epi8(q, signs);
                    let scale = _mm256_set1_epi16(scales[j & 7]);
                    let low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v));
                    let high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(v));
                    row[j & 7] = [
                        _mm256_mullo_epi16(low, scale),
                        _mm256_mullo_epi16(high, scale),
                    ];
                });
            }
        }
        for (half, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
            for j in 0..8 {
                for part in 0..2 {
                    let rows = rows.map(|row| row[j][part]);
                    for (k, v) in transpose(rows).into_iter().enumerate() {
                        put16(&mut self.words.q[16 * j + 8 * part + k], half, v);
                    }
                }
            }
        }
    }

    /// Fill the float tile from rows of plain floats, `cols` (a multiple of 8) from column `from`.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill_plain<const B: usize, T: FromBytes<B>>(
        &mut self,
        w: &[u8],
        stride: usize,
        from: usize,
        cols: usize,
    ) {
        for c in 0..cols / 8 {
            for half in 0..2 {
                let mut rows = [_mm256_setzero_si256(); 8];
                for (i, row) in rows.iter_mut().enumerate() {
                    let at = (8 * half + i) * stride + (from + 8 * c) * B;
                    let eight = w.get(at..).and_then(|w| w.as_chunks::<B>().0.first_chunk());
                    if let Some(eight) = eight {
                        // SAFETY: this function is only reached where the processor has AVX2,
                        // FMA and F16C.
                        *row = _mm256_castps_si256(unsafe { T::eight(eight) });
                    }
                }
                for (k, v) in transpose(rows).into_iter().enumerate() {
                    let column = &mut self.floats.w[(8 * c + k) & (COLS - 1)];
                    if let Some(to) = column[8 * half..].first_chunk_mut() {
                        super::vec::store_f32(to, _mm256_castsi256_ps(v));
                    }
                }
            }
        }
    }

    /// Fill the float tile from decoded rows, `rows[r * cols..]`.
    pub(crate) fn fill_floats(&mut self, rows: &[f32], cols: usize) {
        for (r, row) in rows.chunks_exact(cols).enumerate().take(ROWS) {
            for (column, v) in self.floats.w.iter_mut().zip(row) {
                column[r] = *v;
            }
        }
        for r in rows.len() / cols..ROWS {
            self.floats.w.iter_mut().for_each(|column| column[r] = 0.0);
        }
    }
}

impl Tile8 {
    /// Scales and offsets of rows `8 * half ..`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn put_heads<const B: usize, T: Super<B>>(&mut self, heads: &[Head; 8], half: usize) {
        // Of 16 sub-blocks the even ones come first, of eight there is nothing else.
        let even = heads.map(|h| _mm256_castsi256_si128(h.scales));
        let odd = heads.map(|h| _mm256_extracti128_si256::<1>(h.scales));
        let doubled = |s| join(_mm_unpacklo_epi16(s, s), _mm_unpackhi_epi16(s, s));
        let stride = if T::SUB == 16 { 2 } else { 1 };
        for (k, v) in transpose(even.map(doubled)).into_iter().enumerate() {
            put16(&mut self.scales[stride * k], half, v);
        }
        if T::SUB == 16 {
            for (k, v) in transpose(odd.map(doubled)).into_iter().enumerate() {
                put16(&mut self.scales[2 * k + 1], half, v);
            }
        }
        let minus = _mm_set1_epi16(-i16::from(T::SHIFT));
        if T::SUB == 16 {
            let mut pairs = heads.map(|h| h.offsets);
            if T::OFFSET == Offset::Signs {
                for (pairs, (even, odd)) in pairs.iter_mut().zip(even.into_iter().zip(odd)) {
                    let (a, b) = (_mm_mullo_epi16(even, minus), _mm_mullo_epi16(odd, minus));
                    *pairs = join(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
                }
            }
            for (k, v) in transpose(pairs).into_iter().enumerate() {
                put16(&mut self.offsets[k], half, v);
            }
        } else {
            let mut fours = even.map(|scales| _mm_mullo_epi16(scales, minus));
            if T::OFFSET != Offset::Signs {
                for (four, h) in fours.iter_mut().zip(heads) {
                    // Every offset stands there twice, for sub-blocks of 16.
                    let once = twice(_mm_setr_epi8(
                        0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13,
                    ));
                    let v = _mm256_shuffle_epi8(h.offsets, once);
                    *four = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0x08>(v));
                }
            }
            for (k, v) in transpose4(fours).into_iter().enumerate() {
                put16(&mut self.offsets[k], half, v);
            }
        }
    }
}

/// The block at byte `at`, if there is one.
#[inline(always)]
fn small_block<const B: usize>(w: &[u8], at: usize) -> Option<&[u8; B]> {
    w.get(at..)?.first_chunk()
}

/// Eight rows of four 32-bit words as four columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose4(r: [__m128i; 8]) -> [__m256i; 4] {
    let [a, b, c, d, e, f, g, h] = r;
    let (a, b, c, d) = (join(a, e), join(b, f), join(c, g), join(d, h));
    let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab0, cd0),
        _mm256_unpackhi_epi64(ab0, cd0),
        _mm256_unpacklo_epi64(ab1, cd1),
        _mm256_unpackhi_epi64(ab1, cd1),
    ]
}

/// Eight rows of eight 32-bit words as eight columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = r;
    let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let (ef0, ef1) = (_mm256_unpacklo_epi32(e, f), _mm256_unpackhi_epi32(e, f));
    let (gh0, gh1) = (_mm256_unpacklo_epi32(g, h), _mm256_unpackhi_epi32(g, h));
    let (p0, p1) = (
        _mm256_unpacklo_epi64(ab0, cd0),
        _mm256_unpackhi_epi64(ab0, cd0),
    );
    let (p2, p3) = (
        _mm256_unpacklo_epi64(ab1, cd1),
        _mm256_unpackhi_epi64(ab1, cd1),
    );
    let (q0, q1) = (
        _mm256_unpacklo_epi64(ef0, gh0),
        _mm256_unpackhi_epi64(ef0, gh0),
    );
    let (q2, q3) = (
        _mm256_unpacklo_epi64(ef1, gh1),
        _mm256_unpackhi_epi64(ef1, gh1),
    );
    [
        _mm256_permute2x128_si256::<0x20>(p0, q0),
        _mm256_permute2x128_si256::<0x20>(p1, q1),
        _mm256_permute2x128_si256::<0x20>(p2, q2),
        _mm256_permute2x128_si256::<0x20>(p3, q3),
        _mm256_permute2x128_si256::<0x31>(p0, q0),
        _mm256_permute2x128_si256::<0x31>(p1, q1),
        _mm256_permute2x128_si256::<0x31>(p2, q2),
        _mm256_permute2x128_si256::<0x31>(p3, q3),
    ]
}

/// Rows `8 * half ..` of a column group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn put8(group: &mut [[u8; 4]; ROWS], half: usize, v: __m256i) {
    if let Some(to) = group.as_flattened_mut()[32 * half..].first_chunk_mut() {
        store(to, v);
    }
}

/// Rows `8 * half ..` of a column group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn put16(group: &mut [[i16; 2]; ROWS], half: usize, v: __m256i) {
    if let Some(to) = group.as_flattened_mut()[16 * half..].first_chunk_mut() {
        super::vec::store_i16(to, v);
    }
}
