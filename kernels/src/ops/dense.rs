//! Embedding, norms, matrix products and element-wise operations.

use super::{Op, OpId};
use crate::tensor::{Mut, Ref, Weight};

/// Rows of the token embedding, decoded to f32.
#[derive(Debug)]
pub enum Embed {}
impl Op for Embed {
    const ID: OpId = OpId::Embed;
    type Args<'a> = EmbedArgs<'a>;
}
/// Arguments of [`Embed`].
#[derive(Debug)]
pub struct EmbedArgs<'a> {
    /// `[n_vocab, dim]` in blocks.
    pub table: &'a Weight,
    /// Token ids, i32 `[rows]`; each must be below `table.n_out`.
    pub ids: Ref<'a>,
    /// f32 `[rows, dim]`.
    pub out: Mut<'a>,
    /// Number of tokens.
    pub rows: usize,
}

/// `out = x / sqrt(mean(x²) + eps) * w` for every row.
#[derive(Debug)]
pub enum RmsNorm {}
impl Op for RmsNorm {
    const ID: OpId = OpId::RmsNorm;
    type Args<'a> = RmsNormArgs<'a>;
}
/// Arguments of [`RmsNorm`].
#[derive(Debug)]
pub struct RmsNormArgs<'a> {
    /// f32, row `r` starts at element `r * x_stride`.
    pub x: Ref<'a>,
    /// Distance of two rows of `x` in elements, at least `dim`.
    pub x_stride: usize,
    /// f32 `[dim]`.
    pub weight: Ref<'a>,
    /// f32 `[rows, dim]`.
    pub out: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Row length.
    pub dim: usize,
    /// Added to the mean square.
    pub eps: f32,
}

/// `x = (x - mean(x)) / sqrt(var(x) + eps) * w + b` for every row, in place, biased variance.
#[derive(Debug)]
pub enum LayerNorm {}
impl Op for LayerNorm {
    const ID: OpId = OpId::LayerNorm;
    type Args<'a> = LayerNormArgs<'a>;
}
/// Arguments of [`LayerNorm`].
#[derive(Debug)]
pub struct LayerNormArgs<'a> {
    /// f32 `[rows, dim]`, in place.
    pub x: Mut<'a>,
    /// f32 `[dim]`.
    pub weight: Ref<'a>,
    /// f32 `[dim]`.
    pub bias: Ref<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Row length.
    pub dim: usize,
    /// Added to the variance.
    pub eps: f32,
}

/// Products of one activation with one or more quantised matrices: `out_p[r, o] = Σ_i w_p[o, i] * x[r, i]`.
///
/// The whole matrix is multiplied, whatever its rows mean: a merged projection is split after the product, never before,
/// since a block-quantised matrix has no seam between its parts.
#[derive(Debug)]
pub enum MatmulQuant {}
impl Op for MatmulQuant {
    const ID: OpId = OpId::MatmulQuant;
    type Args<'a> = MatmulArgs<'a>;
}
/// One matrix of a [`MatmulQuant`] and where its product goes.
#[derive(Debug)]
pub struct MatPart<'a> {
    /// `[n_out, n_in]` in blocks; `n_mat` is 1.
    pub weight: &'a Weight,
    /// f32 `[rows, n_out]`.
    pub out: Mut<'a>,
    /// Add to `out` instead of writing it: the residual stream.
    pub accumulate: bool,
}
/// Arguments of [`MatmulQuant`].
#[derive(Debug)]
pub struct MatmulArgs<'a> {
    /// f32 `[rows, n_in]`; every part has this `n_in`.
    pub x: Ref<'a>,
    /// Number of rows.
    pub rows: usize,
    /// The matrices.
    pub parts: Vec<MatPart<'a>>,
}

/// `x += y`.
#[derive(Debug)]
pub enum Add {}
impl Op for Add {
    const ID: OpId = OpId::Add;
    type Args<'a> = AddArgs<'a>;
}
/// Arguments of [`Add`].
#[derive(Debug)]
pub struct AddArgs<'a> {
    /// f32 `[n]`, in place.
    pub x: Mut<'a>,
    /// f32 `[n]`.
    pub y: Ref<'a>,
    /// Number of elements.
    pub n: usize,
}

/// `gate = silu(gate) * up` with `silu(v) = v / (1 + exp(-v))`.
#[derive(Debug)]
pub enum SiluMul {}
impl Op for SiluMul {
    const ID: OpId = OpId::SiluMul;
    type Args<'a> = SiluMulArgs<'a>;
}
/// Arguments of [`SiluMul`].
#[derive(Debug)]
pub struct SiluMulArgs<'a> {
    /// f32 `[n]`, in place.
    pub gate: Mut<'a>,
    /// f32 `[n]`.
    pub up: Ref<'a>,
    /// Number of elements.
    pub n: usize,
}

/// The index of the largest value of every row, the lower one on ties; -1 where a value is NaN or none is above minus infinity, so
/// that no broken row looks like a choice.
#[derive(Debug)]
pub enum Argmax {}
impl Op for Argmax {
    const ID: OpId = OpId::Argmax;
    type Args<'a> = ArgmaxArgs<'a>;
}
/// Arguments of [`Argmax`].
#[derive(Debug)]
pub struct ArgmaxArgs<'a> {
    /// f32 `[rows, n]`.
    pub x: Ref<'a>,
    /// i32 `[rows]`.
    pub out: Mut<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Row length.
    pub n: usize,
}
