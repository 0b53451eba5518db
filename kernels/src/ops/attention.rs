//! Multi-head latent attention (MLA): rope, the latent cache, and attention over it.
//!
//! A cache row is `[c | k_pe]`: the normed latent of `lora` elements, then the roped key part of `rope` elements, which all
//! heads share. A query head is `[q_nope | q_pe]` of `nope + rope` elements.

use super::{Op, OpId};
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
