//! A buffer that several threads fill, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// Rows of `stride` elements whose columns are shared out among tasks.
pub(super) struct Out<'a, T = f32> {
    start: *mut T,
    len: usize,
    stride: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: `Out` is an exclusive borrow of plain numbers; `part`'s contract keeps its users apart.
unsafe impl<T: Copy + Send> Sync for Out<'_, T> {}

impl<'a, T: Copy> Out<'a, T> {
    /// Share out `out`, whose rows are `stride` elements apart.
    pub(super) fn new(out: &'a mut [T], stride: usize) -> Out<'a, T> {
        Out {
            start: out.as_mut_ptr(),
            len: out.len(),
            stride,
            life: PhantomData,
        }
    }

    /// The same buffer again, for work that keeps to other columns.
    ///
    /// # Safety
    /// No two parts of any copy that are alive at the same time may overlap.
    pub(super) unsafe fn again(&self) -> Out<'a, T> {
        Out {
            start: self.start,
            len: self.len,
            stride: self.stride,
            life: PhantomData,
        }
    }

    /// Columns of row `i`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time may overlap.
    ///
    /// # Panics
    /// If they reach past the buffer.
    #[expect(clippy::mut_from_ref, reason = "the contract keeps parts disjoint")]
    pub(super) unsafe fn part(&self, i: usize, columns: Range<usize>) -> &mut [T] {
        let (from, to) = (
            i * self.stride + columns.start,
            i * self.stride + columns.end,
        );
        assert!(from <= to && to <= self.len, "columns outside the output");
        // SAFETY: inside the borrowed slice, and not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), to - from) }
    }

    /// All columns of some rows.
    ///
    /// # Safety
    /// As [`Out::part`].
    ///
    /// # Panics
    /// As [`Out::part`].
    #[expect(clippy::mut_from_ref, reason = "the contract keeps parts disjoint")]
    pub(super) unsafe fn rows(&self, rows: Range<usize>) -> &mut [T] {
        // SAFETY: the caller's promise.
        unsafe { self.part(0, rows.start * self.stride..rows.end * self.stride) }
    }
}
