//! A step's activations, allocated once for the largest step.

use legwork_kernels::tensor::{DType, MemoryDomain, Ref, Tensor, TensorError};

use crate::model::Config;

/// Buffers that a step writes. Sizes are for `rows` rows.
#[derive(Debug)]
pub(super) struct Workspace {
    pub rows: usize,
    /// What the rows are.
    pub columns: Columns,
    /// `[rows, hidden]`: the residual stream, and its norm.
    pub x: Tensor,
    pub h: Tensor,
    /// `[rows, q_lora]`.
    pub q_latent: Tensor,
    /// `[rows, q_lora]`: the norm's output on the split path.
    pub q_normed: Tensor,
    /// `[rows, heads, head]`.
    pub q: Tensor,
    /// `[rows, kv_lora + rope]`: the merged product.
    pub kv: Tensor,
    /// `[rows, kv_lora]`: the normed latent on the split path.
    pub latent: Tensor,
    /// `[rows, heads, v_dim]`.
    pub attn: Tensor,
    /// `[rows, max ff]`.
    pub gate: Tensor,
    pub up: Tensor,
    /// `[rows, experts]`.
    pub router: Tensor,
    /// `[rows, used]`.
    pub expert_ids: Tensor,
    pub expert_weights: Tensor,
    /// `[rows, indexer heads * dim]`, `[rows, dim]`, `[rows, indexer heads]`.
    pub iq: Tensor,
    pub ik: Tensor,
    pub iw: Tensor,
    /// `[score_rows, max keys]`: scores of some rows at a time.
    pub scores: Tensor,
    pub score_rows: usize,
    pub score_stride: usize,
    /// `[rows, top_k]`, `[rows]`: the step's selection, which later layers may share.
    pub selection: Tensor,
    pub selected: Tensor,
    /// `[logit_rows, vocab]`.
    pub logits: Tensor,
    pub logit_rows: usize,
    /// `[logit_rows]`: the likeliest token of each.
    pub chosen: Tensor,
    /// Logits on their way out.
    pub logits_host: Vec<f32>,
}

/// Token ids, positions, cache slots and first slots of the sequences of a step's rows: i32 `[4, rows]`, written at once.
#[derive(Debug)]
pub(super) struct Columns {
    values: Tensor,
    rows: usize,
}

impl Columns {
    /// Sets them all; each of the four has one value a row.
    pub fn write(&mut self, columns: [&[i32]; 4]) -> Result<(), TensorError> {
        self.rows = columns[0].len();
        self.values.write_i32(0, &columns.concat())
    }
    pub fn ids(&self) -> Ref<'_> {
        self.values.at(0)
    }
    pub fn pos(&self) -> Ref<'_> {
        self.values.at(self.rows)
    }
    pub fn slots(&self) -> Ref<'_> {
        self.values.at(2 * self.rows)
    }
    pub fn base(&self) -> Ref<'_> {
        self.values.at(3 * self.rows)
    }
}

/// Bytes of scores held at once: enough rows to keep all threads busy, far less than a `T × T` matrix.
const SCORE_BYTES: usize = 16 << 20;
/// Bytes of logits held at once.
const LOGIT_BYTES: usize = 64 << 20;

impl Workspace {
    /// Bytes of the row buffers, per row: all but scores, selection and logits.
    pub fn bytes_per_row(c: &Config) -> usize {
        let (experts, used, expert_ff) = c
            .moe
            .as_ref()
            .map_or((0, 0, 0), |m| (m.experts, m.used, m.ff * m.shared));
        let index = c
            .indexer
            .as_ref()
            .map_or(0, |x| (x.heads + 1) * x.dim + x.heads);
        let floats = 2 * c.hidden
            + 2 * c.q_lora.unwrap_or(0)
            + c.heads * (c.head() + c.v_dim)
            + c.cache_width()
            + c.kv_lora
            + 2 * c.dense_ff.max(expert_ff)
            + experts
            + 2 * used
            + index;
        4 * floats
    }

    pub fn new(
        c: &Config,
        rows: usize,
        keys: usize,
        domain: &dyn MemoryDomain,
    ) -> Result<Self, TensorError> {
        let f = |n: usize| Tensor::zeros(domain, DType::F32, n);
        let i = |n: usize| Tensor::zeros(domain, DType::I32, n);
        let q_lora = c.q_lora.unwrap_or(0);
        let (experts, used, expert_ff) = c
            .moe
            .as_ref()
            .map_or((0, 0, 0), |m| (m.experts, m.used, m.ff * m.shared));
        let ff = c.dense_ff.max(expert_ff);
        let (heads, dim, top_k) = c
            .indexer
            .as_ref()
            .map_or((0, 0, 0), |x| (x.heads, x.dim, x.top_k));
        let sparse = top_k > 0 && keys > top_k;
        let score_rows = (SCORE_BYTES / 4 / keys.max(1)).clamp(1, rows);
        let logit_rows = (LOGIT_BYTES / 4 / c.vocab.max(1)).clamp(1, rows);
        Ok(Workspace {
            rows,
            columns: Columns {
                values: i(4 * rows)?,
                rows: 0,
            },
            x: f(rows * c.hidden)?,
            h: f(rows * c.hidden)?,
            q_latent: f(rows * q_lora)?,
            q_normed: f(rows * q_lora)?,
            q: f(rows * c.heads * c.head())?,
            kv: f(rows * c.cache_width())?,
            latent: f(rows * c.kv_lora)?,
            attn: f(rows * c.heads * c.v_dim)?,
            gate: f(rows * ff)?,
            up: f(rows * ff)?,
            router: f(rows * experts)?,
            expert_ids: i(rows * used)?,
            expert_weights: f(rows * used)?,
            iq: f(rows * heads * dim)?,
            ik: f(rows * dim)?,
            iw: f(rows * heads)?,
            scores: f(if sparse { score_rows * keys } else { 0 })?,
            score_rows,
            score_stride: keys,
            selection: i(if sparse { rows * top_k } else { 0 })?,
            selected: i(if sparse { rows } else { 0 })?,
            logits: f(logit_rows * c.vocab)?,
            logit_rows,
            chosen: i(logit_rows)?,
            logits_host: Vec::new(),
        })
    }
}
