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
    let job = Job {
        w,
        acts,
        first: 0,
        m,
        out: Out::new(out, w.n_out),
        column: 0,
        store,
    };
    products(pool, isa, &[job]);
    Ok(())
}

/// A checked product: row `i` of `out` has `w.n_out` columns from `column` on for the products of
/// activation row `first + i`, for each of `m` rows.
pub(super) struct Job<'a> {
    pub w: Matrix<'a>,
    pub acts: &'a Acts,
    pub first: usize,
    pub m: usize,
    pub out: Out<'a>,
    pub column: usize,
    pub store: Store,
}

impl Job<'_> {
    /// Where the products of some weight rows with activation row `first + i` go.
    ///
    /// # Safety
    /// As [`Out::part`].
    #[expect(clippy::mut_from_ref, reason = "the contract keeps parts disjoint")]
    unsafe fn part(&self, i: usize, rows: &Range<usize>) -> &mut [f32] {
        let columns = self.column + rows.start..self.column + rows.end;
        // SAFETY: the caller's promise.
        unsafe { self.out.part(i, columns) }
    }
}

/// Several products of the same number of activation rows, handed to the threads as one.
pub(super) fn products(pool: &Pool, isa: Isa, jobs: &[Job<'_>]) {
    let m = jobs.first().map_or(0, |j| j.m);
    if m == 0 {
        return;
    }
    if m < TILED {
        let total = jobs.iter().map(|j| j.w.n_out).sum();
        let bytes = jobs.iter().map(|j| j.w.bytes.len()).sum();
        let chunk = rows_per_task(total, bytes, m, pool.threads());
        pool.ranges(total, chunk, |range, _| {
            with_scratch(|s| {
                pieces(jobs.iter().map(|j| j.w.n_out), range, |j, rows| {
                    few(isa, &jobs[j], rows, &mut s.few);
                });
            });
        });
    } else {
        let panels = || jobs.iter().map(|j| j.w.n_out.div_ceil(ROWS));
        let total = panels().sum();
        let chunk = panels_per_task(total, pool.threads());
        pool.ranges(total, chunk, |range, _| {
            with_scratch(|s| {
                pieces(panels(), range, |j, panels| {
                    let job = &jobs[j];
                    for p in panels {
                        let rows = p * ROWS..((p + 1) * ROWS).min(job.w.n_out);
                        let which = Rows::From(job.first);
                        let sums = s.panel(isa, job.w, rows.clone(), job.acts, which, m);
                        for (i, sums) in sums.iter().enumerate() {
                            // SAFETY: a panel is one task's, so nobody else has these columns.
                            let to = unsafe { job.part(i, &rows) };
                            put(to, sums, job.store);
                        }
                    }
                });
            });
        });
    }
}

/// Cut a range over things laid end to end into ranges of each: `f(which, range in it)`.
pub(super) fn pieces(
    lengths: impl Iterator<Item = usize>,
    range: Range<usize>,
    mut f: impl FnMut(usize, Range<usize>),
) {
    let mut start = 0;
    for (i, len) in lengths.enumerate() {
        let (from, to) = (range.start.max(start), range.end.min(start + len));
        if from < to {
            f(i, from - start..to - start);
        }
        start += len;
    }
}

/// Rows that make a task worth handing out, but leave several tasks for every thread.
pub(super) fn rows_per_task(rows: usize, bytes: usize, m: usize, threads: usize) -> usize {
    const BYTES: usize = 16 << 10;
    let per_row = (bytes / rows.max(1) * m).max(1);
    let share = rows.div_ceil(threads * 4);
    BYTES.div_ceil(per_row).max(share).next_multiple_of(4)
}

fn panels_per_task(panels: usize, threads: usize) -> usize {
    (panels / (threads * 8)).max(1)
}

/// Write or add.
pub(super) fn put(to: &mut [f32], from: &[f32], store: Store) {
    // A whole panel's row is moved by a few instructions, any other by a call.
    if let (Ok(to), Some(from)) = (
        <&mut [f32; ROWS]>::try_from(&mut *to),
        from.first_chunk::<ROWS>(),
    ) {
        match store {
            Store::Write => *to = *from,
            Store::Add => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
        }
        return;
    }
    match store {
        Store::Write => to.copy_from_slice(&from[..to.len()]),
        Store::Add => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
    }
}

fn few(isa: Isa, job: &Job<'_>, rows: Range<usize>, products: &mut Vec<f32>) {
    products.resize(rows.len(), 0.0);
    for i in 0..job.m {
        // Lengths were checked before the threads started, so this cannot fail.
        let done = job
            .w
            .gemv(isa, rows.clone(), job.acts.row(job.first + i), products);
        debug_assert!(done.is_ok());
        // SAFETY: each range of rows is one task's, so nobody else has these columns.
        let to = unsafe { job.part(i, &rows) };
        put(to, products, job.store);
    }
}

/// Which activation rows a panel meets.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    /// Consecutive ones from here on.
    From(usize),
    /// These.
    Of(&'a [u32]),
}

impl Rows<'_> {
    /// The `i`-th of them.
    #[inline(always)]
    pub(super) fn get(self, i: usize) -> usize {
        match self {
            Rows::From(first) => first + i,
            Rows::Of(ids) => ids[i] as usize,
        }
    }
}

/// Buffers that a thread keeps from task to task.
pub(super) struct Scratch {
    #[cfg(target_arch = "x86_64")]
    pub(super) tiles: Option<Box<super::simd::avx2::tile::Tiles>>,
    pub(super) sums: Vec<[f32; ROWS]>,
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
    /// Products of up to 16 rows with `m` activation rows.
    pub(super) fn panel(
        &mut self,
        isa: Isa,
        w: Matrix<'_>,
        rows: Range<usize>,
        acts: &Acts,
        which: Rows<'_>,
        m: usize,
    ) -> &[[f32; ROWS]] {
        self.sums.clear();
        self.sums.resize(m, [0.0; ROWS]);
        #[cfg(target_arch = "x86_64")]
        if isa.has_avx2() && acts.rows() >= TILED && m > 2 {
            use super::simd::avx2::{panel, tile::Tiles};
            let p = panel::Panel {
                ty: w.ty,
                w: w.rows(rows.clone()),
                row_bytes: w.row_bytes(),
                acts,
                which,
                wide: isa == Isa::Avx512,
            };
            let tiles = self.tiles.get_or_insert_with(Tiles::new);
            // SAFETY: `has_avx2` holds only where AVX2, FMA and F16C do.
            if unsafe { panel::run(p, tiles, &mut self.sums) } {
                return &self.sums;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if isa.has_neon() && acts.rows() >= TILED && m > 2 {
            use super::simd::neon::rows::panel;
            let bytes = w.rows(rows.clone());
            let has_sdot = isa == Isa::NeonDot;
            // SAFETY: every aarch64 has NEON, and `NeonDot` says that there is `sdot`.
            if unsafe { panel(has_sdot, w.ty, bytes, acts, which, &mut self.sums) } {
                return &self.sums;
            }
        }
        for (i, sums) in self.sums.iter_mut().enumerate() {
            let x = acts.row(which.get(i));
            let done = w.gemv(isa, rows.clone(), x, &mut sums[..rows.len()]);
            debug_assert!(done.is_ok());
        }
        &self.sums
    }
}
