//! Mixture of experts: the router's choice, and the chosen experts' feed-forward networks.

use super::{Op, OpId};
use crate::tensor::{Mut, Ref, Weight};

/// How router logits become probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// Over all experts.
    Softmax,
    /// Each expert by itself.
    Sigmoid,
}

/// Chooses experts: `p = gating(logits)`, `choice = p + bias`, groups masked, the best `top_k` by choice (ties to the lower
/// index), weights from `p` without the bias, normalised by `max(sum, 2^-14)` where asked, times `scale`.
#[derive(Debug)]
pub enum MoeRoute {}
impl Op for MoeRoute {
    const ID: OpId = OpId::MoeRoute;
    type Args<'a> = MoeRouteArgs<'a>;
}
/// Arguments of [`MoeRoute`].
#[derive(Debug)]
pub struct MoeRouteArgs<'a> {
    /// f32 `[rows, experts]`.
    pub logits: Ref<'a>,
    /// f32 `[experts]`: only chooses, never weighs.
    pub bias: Option<Ref<'a>>,
    /// i32 `[rows, top_k]`.
    pub ids: Mut<'a>,
    /// f32 `[rows, top_k]`.
    pub weights: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Number of experts.
    pub experts: usize,
    /// Experts per token.
    pub top_k: usize,
    /// How logits become probabilities.
    pub gating: Gating,
    /// Expert groups; 1 for none. A group counts by the sum of its two best choices.
    pub groups: usize,
    /// Groups kept.
    pub groups_used: usize,
    /// Divide the weights by their sum.
    pub norm: bool,
    /// Factor on the weights.
    pub scale: f32,
}

/// `out[r] += Σ_j weights[r, j] * down_e(silu(gate_e(x[r])) * up_e(x[r]))` with `e = ids[r, j]`.
#[derive(Debug)]
pub enum MoeExperts {}
impl Op for MoeExperts {
    const ID: OpId = OpId::MoeExperts;
    type Args<'a> = MoeExpertsArgs<'a>;
}
/// Arguments of [`MoeExperts`].
#[derive(Debug)]
pub struct MoeExpertsArgs<'a> {
    /// f32 `[rows, dim]`.
    pub x: Ref<'a>,
    /// i32 `[rows, top_k]`.
    pub ids: Ref<'a>,
    /// f32 `[rows, top_k]`.
    pub weights: Ref<'a>,
    /// One matrix per expert, `[ff, dim]`. In the fused form it holds gate rows, then up rows: `[2 ff, dim]`.
    pub gate: &'a Weight,
    /// One matrix per expert, `[ff, dim]`; `None` in the fused form.
    pub up: Option<&'a Weight>,
    /// One matrix per expert, `[dim, ff]`.
    pub down: &'a Weight,
    /// f32 `[rows, dim]`, added to.
    pub out: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Row length of `x`.
    pub dim: usize,
    /// Width of an expert.
    pub ff: usize,
    /// Experts per token.
    pub top_k: usize,
}
