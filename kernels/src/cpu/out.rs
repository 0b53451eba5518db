//! An output that several threads fill, each its own columns.

use std::marker::PhantomData;
use std::ops::Range;

/// Rows of `stride` floats whose columns are shared out among tasks.
pub(super) struct Out<'a> {
    start: *mut f32,
    len: usize,
    stride: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: `Out` is an exclusive borrow of floats; `part`'s contract keeps its users apart.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    /// Share out `out`, whose rows are `stride` floats apart.
    pub(super) fn new(out: &'a mut [f32], stride: usize) -> Out<'a> {
        Out {
            start: out.as_mut_ptr(),
            len: out.len(),
            stride,
            life: PhantomData,
        }
    }

    /// Columns of row `i`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time may overlap.
    ///
    /// # Panics
    /// If they reach past the output.
    #[expect(clippy::mut_from_ref, reason = "the contract keeps parts disjoint")]
    pub(super) unsafe fn part(&self, i: usize, columns: Range<usize>) -> &mut [f32] {
        let (from, to) = (
            i * self.stride + columns.start,
            i * self.stride + columns.end,
        );
        assert!(from <= to && to <= self.len, "columns outside the output");
        // SAFETY: inside the borrowed slice, and not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), to - from) }
    }
}
