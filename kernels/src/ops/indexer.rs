//! The lightning indexer of DeepSeek sparse attention (DSA): scores of all keys, and the choice of the best.

use super::{Op, OpId};
use crate::tensor::{Mut, Ref};

/// Writes rows into a cache of the same row length.
#[derive(Debug)]
pub enum CacheRows {}
impl Op for CacheRows {
    const ID: OpId = OpId::CacheRows;
    type Args<'a> = CacheRowsArgs<'a>;
}
/// Arguments of [`CacheRows`].
#[derive(Debug)]
pub struct CacheRowsArgs<'a> {
    /// f32 `[rows, dim]`.
    pub x: Ref<'a>,
    /// Cache, `[slots, dim]`, f32, f16 or bf16.
    pub cache: Mut<'a>,
    /// Cache slot of every row, i32 `[rows]`.
    pub slots: Ref<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Row length.
    pub dim: usize,
}

/// `out[r, s] = scale * Σ_h w[r, h] * relu(q[r, h] · key[base[r] + s])` for `s` up to the row's own key.
///
/// The relu comes before the weighting and weights may be negative, so scores may be negative too.
#[derive(Debug)]
pub enum DsaIndexerLogits {}
impl Op for DsaIndexerLogits {
    const ID: OpId = OpId::DsaIndexerLogits;
    type Args<'a> = IndexerArgs<'a>;
}
/// Arguments of [`DsaIndexerLogits`].
#[derive(Debug)]
pub struct IndexerArgs<'a> {
    /// f32 `[rows, heads, dim]`, roped.
    pub q: Ref<'a>,
    /// f32 `[rows, heads]`.
    pub weights: Ref<'a>,
    /// Keys, `[slots, dim]`, f32, f16 or bf16.
    pub cache: Ref<'a>,
    /// First cache slot of the row's sequence, i32 `[rows]`.
    pub base: Ref<'a>,
    /// The row's own cache slot, i32 `[rows]`.
    pub slots: Ref<'a>,
    /// f32 `[rows, stride]`; only the first `slots[r] - base[r] + 1` of a row are written.
    pub out: Mut<'a>,
    /// Distance of two rows of `out`.
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
    /// Indexer heads.
    pub heads: usize,
    /// Length of an indexer head.
    pub dim: usize,
    /// `1 / sqrt(dim * heads)`.
    pub scale: f32,
}

/// The `k` largest scores of every row, ties to the lower index, indices in ascending order; all of them where there are at most `k`.
#[derive(Debug)]
pub enum DsaTopkSelect {}
impl Op for DsaTopkSelect {
    const ID: OpId = OpId::DsaTopkSelect;
    type Args<'a> = TopkArgs<'a>;
}
/// Arguments of [`DsaTopkSelect`].
#[derive(Debug)]
pub struct TopkArgs<'a> {
    /// f32 `[rows, stride]`.
    pub scores: Ref<'a>,
    /// Distance of two rows of `scores`.
    pub stride: usize,
    /// First cache slot of the row's sequence, i32 `[rows]`.
    pub base: Ref<'a>,
    /// The row's own cache slot, i32 `[rows]`: row `r` has `slots[r] - base[r] + 1` scores.
    pub slots: Ref<'a>,
    /// i32 `[rows, k]`.
    pub index: Mut<'a>,
    /// i32 `[rows]`.
    pub count: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Entries per row.
    pub k: usize,
}
