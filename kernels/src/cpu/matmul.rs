//! Products of activation rows with the rows of a matrix in blocks, over all threads.
//!
//! Few rows go one by one against the blocks ([`super::gemv`]); from [`TILED`] rows on, 16 weight
//! rows at a time are decoded into a tile that all activation rows then meet.

use super::acts::{ActRow, Acts, TILED};
use super::gemv::gemv;
use super::out::Out;
use super::{Isa, Pool};
use crate::blocks::{BlockError, BlockType};
use std::ops::Range;

/// Rows of a tile.
pub(super) const ROWS: usize = 16;

/// A matrix in its blocks: `n_out` rows of `n_in` elements.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Block format.
    pub ty: BlockType,
    /// Row length.
    pub n_in: usize,
    /// Number of rows.
    pub n_out: usize,
    /// All rows.
    pub bytes: &'a [u8],
}

/// Why a product was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatmulError {
    /// The matrix's bytes do not fit its shape.
    #[error(transparent)]
    Blocks(#[from] BlockError),
    /// Rows of different lengths.
    #[error("activation rows of {acts} elements cannot meet weight rows of {weights}")]
    Width {
        /// Elements of an activation row.
        acts: usize,
        /// Elements of a weight row.
        weights: usize,
    },
    /// The output is too small.
    #[error("{rows} rows of {n_out} products do not fit an output of {len}")]
    Output {
        /// Activation rows.
        rows: usize,
        /// Products per row.
        n_out: usize,
        /// Elements of the output.
        len: usize,
    },
}

impl<'a> Matrix<'a> {
    /// A matrix whose bytes fit its shape.
    ///
    /// # Errors
    /// `n_in` is no whole number of blocks, or `bytes` is not exactly the rows.
    pub fn new(
        ty: BlockType,
        n_in: usize,
        n_out: usize,
        bytes: &'a [u8],
    ) -> Result<Matrix<'a>, BlockError> {
        let expected = ty.row_bytes(n_in)?.saturating_mul(n_out);
        if bytes.len() != expected {
            return Err(BlockError::ByteLength {
                ty,
                n: n_in.saturating_mul(n_out),
                expected,
                found: bytes.len(),
            });
        }
        Ok(Matrix {
            ty,
            n_in,
            n_out,
            bytes,
        })
    }

    fn row_bytes(&self) -> usize {
        self.bytes.len() / self.n_out.max(1)
    }

    fn rows(&self, rows: Range<usize>) -> &'a [u8] {
        let b = self.row_bytes();
        &self.bytes[rows.start * b..rows.end * b]
    }

    /// Products of one activation row with some of the rows.
    ///
    /// # Errors
    /// The activation row is of another length.
    pub fn gemv(
        &self,
        isa: Isa,
        rows: Range<usize>,
        x: ActRow<'_>,
        out: &mut [f32],
    ) -> Result<(), BlockError> {
        gemv(isa, self.ty, self.rows(rows), self.n_in, x, out)
    }
}

/// What becomes of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// They replace the output.
    Write,
    /// They are added to it.
    Add,
}

/// `out[i, r] (+)= w[r] · x[i]` for all activation rows, `out` = [rows, n_out].
///
/// # Errors
/// Shapes that contradict each other.
pub fn matmul(
    pool: &Pool,
    isa: Isa,
    w: Matrix<'_>,
    acts: &Acts,
    out: &mut [f32],
    store: Store,
) -> Result<(), MatmulError> {
    let m = acts.rows();
    if acts.n() != w.n_in {
        return Err(MatmulError::Width {
            acts: acts.n(),
            weights: w.n_in,
        });
    }
    if out.len() != m * w.n_out {
        return Err(MatmulError::Output {
            rows: m,
            n_out: w.n_out,
            len: out.len(),
        });
    }
    let out = Out::new(out, w.n_out);
    if m < TILED {
        let chunk = rows_per_task(w, m, pool.threads());
        pool.ranges(w.n_out, chunk, |rows, _| {
            with_scratch(|s| few(isa, w, rows, acts, &out, store, &mut s.few));
        });
    } else {
        let panels = w.n_out.div_ceil(ROWS);
        let chunk = panels_per_task(panels, pool.threads());
        pool.ranges(panels, chunk, |range, _| {
            with_scratch(|s| {
                for p in range {
                    let rows = p * ROWS..((p + 1) * ROWS).min(w.n_out);
                    let sums = s.panel(isa, w, rows.clone(), acts, None, m);
                    for (i, sums) in sums.iter().enumerate() {
                        // SAFETY: each panel is one task's, so nobody else has these columns.
                        let to = unsafe { out.part(i, rows.clone()) };
                        put(to, sums, store);
                    }
                }
            });
        });
    }
    Ok(())
}

/// Rows of a matrix that make a task worth handing out, but leave several for every thread.
pub(super) fn rows_per_task(w: Matrix<'_>, m: usize, threads: usize) -> usize {
    const BYTES: usize = 16 << 10;
    let worth = BYTES.div_ceil((w.row_bytes() * m.max(1)).max(1));
    let share = w.n_out.div_ceil(threads * 4);
    worth.max(share).next_multiple_of(4)
}

fn panels_per_task(panels: usize, threads: usize) -> usize {
    (panels / (threads * 8)).max(1)
}

/// Write or add.
pub(super) fn put(to: &mut [f32], from: &[f32], store: Store) {
    match store {
        Store::Write => to.copy_from_slice(&from[..to.len()]),
        Store::Add => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
    }
}

fn few(
    isa: Isa,
    w: Matrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    out: &Out<'_>,
    store: Store,
    products: &mut Vec<f32>,
) {
    products.resize(rows.len(), 0.0);
    for i in 0..acts.rows() {
        // Lengths were checked before the threads started, so this cannot fail.
        let done = w.gemv(isa, rows.clone(), acts.row(i), products);
        debug_assert!(done.is_ok());
        // SAFETY: each range of rows is one task's, so nobody else has these columns.
        let to = unsafe { out.part(i, rows.clone()) };
        put(to, products, store);
    }
}

/// Buffers that a thread keeps from task to task.
pub(super) struct Scratch {
    #[cfg(target_arch = "x86_64")]
    tiles: Option<Box<super::simd::avx2::tile::Tiles>>,
    sums: Vec<[f32; ROWS]>,
    /// For products of a few rows.
    pub few: Vec<f32>,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = const {
        std::cell::RefCell::new(Scratch {
            #[cfg(target_arch = "x86_64")]
            tiles: None,
            sums: Vec::new(),
            few: Vec::new(),
        })
    };
}

/// Call `f` with this thread's buffers. `f` must not call this again.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(f)
}

impl Scratch {
    /// Products of up to 16 rows with the `m` activation rows `ids` (all of them if `None`).
    pub(super) fn panel(
        &mut self,
        isa: Isa,
        w: Matrix<'_>,
        rows: Range<usize>,
        acts: &Acts,
        ids: Option<&[u32]>,
        m: usize,
    ) -> &[[f32; ROWS]] {
        self.sums.clear();
        self.sums.resize(m, [0.0; ROWS]);
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx2 && acts.rows() >= TILED {
            use super::simd::avx2::{panel, tile::Tiles};
            let p = panel::Panel {
                ty: w.ty,
                w: w.rows(rows.clone()),
                row_bytes: w.row_bytes(),
                acts,
                ids,
            };
            let tiles = self.tiles.get_or_insert_with(Tiles::new);
            // SAFETY: `Isa::Avx2` exists only where AVX2, FMA and F16C do.
            if unsafe { panel::run(p, tiles, &mut self.sums) } {
                return &self.sums;
            }
        }
        for (i, sums) in self.sums.iter_mut().enumerate() {
            let row = ids.map_or(i, |ids| ids[i] as usize);
            let done = w.gemv(isa, rows.clone(), acts.row(row), &mut sums[..rows.len()]);
            debug_assert!(done.is_ok());
        }
        &self.sums
    }
}
