//! Multi-head latent attention (MLA): rope, the latent cache, and attention over it.
//!
//! A cache row is `[c | k_pe]`: the normed latent of `lora` elements, then the roped key part of `rope` elements, which all
//! heads share. A query head is `[q_nope | q_pe]` of `nope + rope` elements.

use super::{Named, Op, OpError, OpId, ensure, index};
use crate::tensor::{Mut, Ref, Weight};

/// Which elements make a rotated pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// `(x[2j], x[2j+1])`, ggml's NORM.
    Interleaved,
    /// `(x[j], x[j + d/2])`, NEOX.
    HalfSplit,
}

/// Angular frequencies of a rope, one per pair: `angle = position * freq[j]`.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// Rotated elements, even.
    pub dim: usize,
    /// `dim / 2` frequencies in radians per position.
    pub freq: Vec<f32>,
}

/// Rotates `dim` elements of every head of every row in place.
#[derive(Debug)]
pub enum Rope {}
impl Op for Rope {
    const ID: OpId = OpId::Rope;
    type Args<'a> = RopeArgs<'a>;
}
/// Arguments of [`Rope`].
#[derive(Debug)]
pub struct RopeArgs<'a> {
    /// f32; head `h` of row `r` starts at `r * row_stride + h * head_stride + offset`.
    pub x: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Heads per row.
    pub heads: usize,
    /// Distance of two rows in elements.
    pub row_stride: usize,
    /// Distance of two heads in elements.
    pub head_stride: usize,
    /// First rotated element of a head.
    pub offset: usize,
    /// Frequencies.
    pub table: &'a RopeTable,
    /// Which elements pair.
    pub style: RopeStyle,
    /// Positions, i32 `[rows]`.
    pub pos: Ref<'a>,
}

/// Norms of the query latent and of the key-value latent, rope of the shared key part, and the cache write, in one.
///
/// Computes what [`super::RmsNorm`] twice, [`Rope`] and [`ConcatAndCacheMla`] compute.
#[derive(Debug)]
pub enum FusedNormRope {}
impl Op for FusedNormRope {
    const ID: OpId = OpId::FusedNormRope;
    type Args<'a> = FusedArgs<'a>;
}
/// Arguments of [`FusedNormRope`].
#[derive(Debug)]
pub struct FusedArgs<'a> {
    /// f32 `[rows, q_lora]`, normed in place; `None` for a model without a query latent.
    pub q: Option<Mut<'a>>,
    /// f32 `[q_lora]`; `None` with `q`.
    pub q_weight: Option<Ref<'a>>,
    /// Length of the query latent.
    pub q_lora: usize,
    /// f32 `[rows, lora + rope]`: the whole product with `kv_a_mqa`, not split before.
    pub kv: Ref<'a>,
    /// f32 `[lora]`.
    pub kv_weight: Ref<'a>,
    /// Cache, `[slots, lora + rope]`, f32, f16 or bf16.
    pub cache: Mut<'a>,
    /// Cache slot of every row, i32 `[rows]`.
    pub slots: Ref<'a>,
    /// Positions, i32 `[rows]`.
    pub pos: Ref<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Length of the key-value latent.
    pub lora: usize,
    /// Frequencies; its `dim` is the rope part's length.
    pub table: &'a RopeTable,
    /// Which elements pair.
    pub style: RopeStyle,
    /// Added to the mean square.
    pub eps: f32,
}

/// Writes `[latent | k_pe]` of every row into the cache.
#[derive(Debug)]
pub enum ConcatAndCacheMla {}
impl Op for ConcatAndCacheMla {
    const ID: OpId = OpId::ConcatAndCacheMla;
    type Args<'a> = ConcatArgs<'a>;
}
/// Arguments of [`ConcatAndCacheMla`].
#[derive(Debug)]
pub struct ConcatArgs<'a> {
    /// f32 `[rows, lora]`, normed.
    pub latent: Ref<'a>,
    /// f32, row `r` starts at `r * pe_stride + pe_offset`, roped.
    pub k_pe: Ref<'a>,
    /// Distance of two rows of `k_pe`.
    pub pe_stride: usize,
    /// First element of a row of `k_pe`.
    pub pe_offset: usize,
    /// Cache, `[slots, lora + rope]`, f32, f16 or bf16.
    pub cache: Mut<'a>,
    /// Cache slot of every row, i32 `[rows]`.
    pub slots: Ref<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Length of the latent.
    pub lora: usize,
    /// Length of the roped part.
    pub rope: usize,
}

/// The keys that each row attends to in a sparse step.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// i32 `[rows, k]`: cache slots relative to the row's `base`, in ascending order.
    pub index: Ref<'a>,
    /// i32 `[rows]`: how many of the row's `k` entries count.
    pub count: Ref<'a>,
    /// Entries per row.
    pub k: usize,
}

/// Attention over the latent cache in the absorbed form: `q_nope` goes through `k_b` into the latent, and the weighted
/// latent comes out through `v_b`. Its cost per key does not depend on the head's sizes, so it suits few rows.
#[derive(Debug)]
pub enum MlaDecodeAttention {}
impl Op for MlaDecodeAttention {
    const ID: OpId = OpId::MlaDecodeAttention;
    type Args<'a> = MlaArgs<'a>;
}

/// The same attention un-absorbed: keys and values of every head are made from the latent first. It suits many rows.
#[derive(Debug)]
pub enum MlaPrefillAttention {}
impl Op for MlaPrefillAttention {
    const ID: OpId = OpId::MlaPrefillAttention;
    type Args<'a> = MlaArgs<'a>;
}

/// Arguments of [`MlaDecodeAttention`] and [`MlaPrefillAttention`], which compute the same up to rounding.
///
/// With the scores `s_i = scale * q · k_i` of a row's keys, `out = Σ_i exp(s_i) v_i / (Σ_i exp(s_i) + exp(sink))`, without the
/// last term where there are no sinks. A row without keys gives zeros.
#[derive(Debug)]
pub struct MlaArgs<'a> {
    /// f32 `[rows, heads, nope + rope]`, roped.
    pub q: Ref<'a>,
    /// `heads` matrices of `lora` rows of `nope` elements: the key part of `kv_b`, transposed per head.
    pub k_b: &'a Weight,
    /// `heads` matrices of `v_dim` rows of `lora` elements.
    pub v_b: &'a Weight,
    /// Cache, `[slots, lora + rope]`, f32, f16 or bf16.
    pub cache: Ref<'a>,
    /// First cache slot of the row's sequence, i32 `[rows]`.
    pub base: Ref<'a>,
    /// The row's own cache slot, i32 `[rows]`: its last key.
    pub slots: Ref<'a>,
    /// Highest slot of the step plus one: how much of the cache can be touched.
    pub slot_end: usize,
    /// The selected keys; `None` for a dense step, in which every key from `base` to the row's own counts.
    pub selection: Option<Selection<'a>>,
    /// Dense steps only: how many of the last keys count, the row's own among them.
    pub window: Option<usize>,
    /// f32 `[heads]`: a score per head that takes its share of the softmax and has no value.
    pub sinks: Option<Ref<'a>>,
    /// f32 `[rows, heads]`: `ln Σ_i exp(s_i)` of the keys alone, so that the results of two sets of keys can be merged; minus
    /// infinity without keys.
    pub lse: Option<Mut<'a>>,
    /// f32 `[rows, heads, v_dim]`.
    pub out: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Query heads.
    pub heads: usize,
    /// Un-roped part of a query head.
    pub nope: usize,
    /// Roped part.
    pub rope: usize,
    /// Length of the latent.
    pub lora: usize,
    /// Length of a value head.
    pub v_dim: usize,
    /// Factor on the scores before the softmax.
    pub scale: f32,
}

impl<'a> MlaArgs<'a> {
    /// Refuses shapes that contradict each other.
    pub(crate) fn check(&self, op: OpId) -> Result<(), OpError> {
        let is = |name, w: &Weight, want: (usize, usize, usize)| {
            let have = (w.n_in, w.n_out, w.n_mat);
            ensure(op, have == want, || {
                format!("{name} is {have:?}, not {want:?}")
            })
        };
        is("k_b", self.k_b, (self.nope, self.lora, self.heads))?;
        is("v_b", self.v_b, (self.lora, self.v_dim, self.heads))?;
        ensure(op, self.window != Some(0), || {
            "a window of no keys".to_owned()
        })?;
        ensure(
            op,
            self.window.is_none() || self.selection.is_none(),
            || "a window and a selection of keys exclude each other".to_owned(),
        )
    }

    /// The keys of every row, for providers that can read them here.
    pub(crate) fn keys(&self, op: OpId) -> Result<Vec<Keys<'a>>, OpError> {
        let slots = self.slots.i32(self.rows).named(op, "slots")?;
        let bases = self.base.i32(self.rows).named(op, "base")?;
        let mut rows = Vec::with_capacity(self.rows);
        for (r, (slot, base)) in slots.iter().zip(bases).enumerate() {
            let end = index(op, "slot", *slot, self.slot_end)? + 1;
            let mut base = index(op, "base", *base, end)?;
            if let Some(window) = self.window {
                base = base.max(end.saturating_sub(window));
            }
            let n = end - base;
            let selected = match &self.selection {
                None => None,
                Some(s) => {
                    let count = s.count.skip(r).i32(1).named(op, "count")?[0];
                    let count = index(op, "selection count", count, s.k + 1)?;
                    let chosen = s.index.skip(r * s.k).i32(count).named(op, "selection")?;
                    for i in chosen {
                        index(op, "selected key", *i, n)?;
                    }
                    Some(chosen)
                }
            };
            rows.push(Keys { base, n, selected });
        }
        Ok(rows)
    }
}

/// The keys of a row: `n` slots from `base`, or the selected ones of them.
pub(crate) struct Keys<'a> {
    /// First slot.
    pub base: usize,
    /// Slots up to the row's own.
    pub n: usize,
    /// Relative to `base`, each below `n`.
    pub selected: Option<&'a [i32]>,
}

impl Keys<'_> {
    /// How many count.
    pub fn len(&self) -> usize {
        self.selected.map_or(self.n, <[i32]>::len)
    }

    /// Slot of the `i`-th.
    pub fn slot(&self, i: usize) -> usize {
        self.base + self.selected.map_or(i, |s| s[i] as usize)
    }
}
