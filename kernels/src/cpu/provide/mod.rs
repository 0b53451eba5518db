//! The CPU's native providers: the operations' contracts over the kernels of this folder.
//!
//! Arguments are checked before any thread starts; work is cut by rows, panels, heads or keys,
//! never by the number of threads.

mod attention;
mod dense;
mod indexer;
mod moe;
mod rope;
#[cfg(test)]
mod tests;

use crate::cpu::{Acts, ActsError, BlockError, Matrix};
use crate::device::DeviceKind;
use crate::ops::{self, Named, Op, OpError, OpId, ensure, index, shape};
use crate::registry::{Provider, Registry, RunFn};
use crate::tensor::Weight;

/// Adds the CPU's native providers.
pub fn register(r: &mut Registry) {
    fn add<O: Op>(r: &mut Registry, run: RunFn<O>) {
        r.add(DeviceKind::Cpu, Provider::<O>::native("cpu-native", run));
    }
    add::<ops::Embed>(r, dense::embed);
    add::<ops::RmsNorm>(r, dense::rms_norm);
    add::<ops::LayerNorm>(r, dense::layer_norm);
    add::<ops::MatmulQuant>(r, dense::matmul);
    add::<ops::Add>(r, dense::add);
    add::<ops::SiluMul>(r, dense::silu_mul);
    add::<ops::Argmax>(r, dense::argmax);
    add::<ops::Rope>(r, rope::rope);
    add::<ops::FusedNormRope>(r, rope::fused_norm_rope);
    add::<ops::ConcatAndCacheMla>(r, rope::concat_and_cache);
    add::<ops::CacheRows>(r, rope::cache_rows);
    add::<ops::MlaDecodeAttention>(r, attention::absorbed);
    add::<ops::MlaPrefillAttention>(r, attention::unabsorbed);
    add::<ops::DsaIndexerLogits>(r, indexer::logits);
    add::<ops::DsaTopkSelect>(r, indexer::topk);
    add::<ops::MoeRoute>(r, moe::route);
    add::<ops::MoeExperts>(r, moe::experts);
}

/// Rows that make a task of about 16 thousand elements.
fn rows_of(elements_per_row: usize) -> usize {
    ((1 << 14) / elements_per_row.max(1)).max(1)
}

/// Matrix `m` of a weight.
fn matrix<'a>(op: OpId, w: &'a Weight, m: usize) -> Result<Matrix<'a>, OpError> {
    let bytes = w.host_mat(m).named(op, "weight")?;
    Matrix::new(w.ty, w.n_in, w.n_out, bytes).map_err(|e: BlockError| named(op, w, &e))
}

/// An error about a weight, with its name.
fn named(op: OpId, w: &Weight, e: &dyn std::fmt::Display) -> OpError {
    shape(op, format!("{}: {e}", w.name))
}

fn rounding(op: OpId) -> impl Fn(ActsError) -> OpError {
    move |e| shape(op, e.to_string())
}

thread_local! {
    static SPARE: std::cell::RefCell<Vec<Acts>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Activation buffers that go back to their thread for the next operation.
struct Borrowed(Acts);

impl Borrowed {
    fn new() -> Borrowed {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        Borrowed(spare.unwrap_or_else(Acts::empty))
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let acts = std::mem::replace(&mut self.0, Acts::empty());
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < 4 {
                spare.push(acts);
            }
        });
    }
}

thread_local! {
    static SPARE_FLOATS: std::cell::RefCell<Vec<Vec<f32>>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

/// Floats that go back to their thread for the next operation: large ones from the system would
/// cost a page fault for every 4 KiB each time.
struct Floats(Vec<f32>);

impl Floats {
    /// `n` floats of no particular value.
    fn any(n: usize) -> Floats {
        let mut v = SPARE_FLOATS.with_borrow_mut(Vec::pop).unwrap_or_default();
        v.resize(n, 0.0);
        Floats(v)
    }

    /// No floats, but room.
    fn empty() -> Floats {
        Floats::any(0)
    }
}

impl Drop for Floats {
    fn drop(&mut self) {
        let v = std::mem::take(&mut self.0);
        SPARE_FLOATS.with_borrow_mut(|spare| {
            if spare.len() < 8 {
                spare.push(v);
            }
        });
    }
}
