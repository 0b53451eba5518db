//! Every tensor of a shape, in file order.

use legwork_kernels::blocks::BlockType;

use super::mix::{Mix, Role};
use super::shape::Shape;

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorPlan {
    pub(super) name: String,
    pub(super) dims: Vec<u64>,
    pub(super) ty: BlockType,
    pub(super) spread: Spread,
}

/// How a tensor's values are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f32,
    pub(super) std: f32,
}

impl TensorPlan {
    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    pub(super) fn bytes(&self) -> u64 {
        bytes_of(self.ty, &self.dims)
    }
}

/// A tensor before it has a name of its own: counting sizes needs none.
pub(super) struct Visit<'v> {
    layer: Option<u64>,
    suffix: &'v str,
    dims: &'v [u64],
    ty: BlockType,
    spread: Spread,
}

impl Visit<'_> {
    fn named(&self) -> TensorPlan {
        let name = match self.layer {
            Some(layer) => format!("blk.{layer}.{}", self.suffix),
            None => self.suffix.to_owned(),
        };
        TensorPlan {
            name,
            dims: self.dims.to_vec(),
            ty: self.ty,
            spread: self.spread,
        }
    }

    /// Bytes of the tensor's data.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(self.ty, self.dims)
    }
}

fn bytes_of(ty: BlockType, dims: &[u64]) -> u64 {
    dims.iter().product::<u64>() / ty.block_len() as u64 * ty.block_bytes() as u64
}

struct Layout<'a> {
    shape: &'a Shape,
    mix: Mix,
    layer: Option<u64>,
    sink: &'a mut dyn FnMut(Visit<'_>),
}

/// All tensors of a model.
pub(super) fn tensors(shape: &Shape, mix: Mix) -> Vec<TensorPlan> {
    let mut tensors = Vec::new();
    visit(shape, mix, &mut |tensor| tensors.push(tensor.named()));
    tensors
}

/// Hands out all tensors of a model in order.
///
/// Matrices have a spread of gain / sqrt(row), so that a normed input gives an output of about the
/// gain; gains above 1 keep attention and choices from being flat.
pub(super) fn visit(shape: &Shape, mix: Mix, sink: &mut dyn FnMut(Visit<'_>)) {
    let s = shape;
    let mut out = Layout {
        shape,
        mix,
        layer: None,
        sink,
    };
    out.matrix(
        "token_embd.weight",
        Role::Vocabulary,
        &[s.hidden, s.vocab],
        (s.hidden as f32).sqrt(),
    );
    out.norm("output_norm.weight", s.hidden);
    out.matrix("output.weight", Role::Vocabulary, &[s.hidden, s.vocab], 3.0);
    for layer in 0..s.layers {
        out.layer = Some(layer);
        out.attention(layer);
        out.feed_forward(layer);
    }
}

impl Layout<'_> {
    fn matrix(&mut self, suffix: &str, role: Role, dims: &[u64], gain: f32) {
        let spread = Spread {
            mean: 0.0,
            std: gain / (dims[0] as f32).sqrt(),
        };
        let ty = self.mix.type_of(role, self.depth(), dims[0]);
        (self.sink)(Visit {
            layer: self.layer,
            suffix,
            dims,
            ty,
            spread,
        });
    }

    fn plain(&mut self, suffix: &str, dims: &[u64], mean: f32, std: f32) {
        let spread = Spread { mean, std };
        (self.sink)(Visit {
            layer: self.layer,
            suffix,
            dims,
            ty: BlockType::F32,
            spread,
        });
    }

    fn norm(&mut self, name: &str, len: u64) {
        self.plain(name, &[len], 1.0, 0.1);
    }

    /// The layer of the 78-layer model at the same relative depth: the lead layers are themselves,
    /// the others spread over 3 to 77.
    fn depth(&self) -> u64 {
        let lead = self.shape.dense_layers;
        let layer = self.layer.unwrap_or(0);
        if layer < lead {
            return layer.min(2);
        }
        let steps = (self.shape.layers - lead).saturating_sub(1);
        3 + ((layer - lead) * 74 + steps / 2)
            .checked_div(steps)
            .unwrap_or(0)
    }

    fn attention(&mut self, layer: u64) {
        let s = self.shape;
        let latent = Role::Latent;
        self.norm("attn_norm.weight", s.hidden);
        self.matrix(
            "attn_q_a.weight",
            Role::Projection,
            &[s.hidden, s.q_lora],
            1.0,
        );
        self.norm("attn_q_a_norm.weight", s.q_lora);
        let head = s.nope + s.rope;
        self.matrix("attn_q_b.weight", latent, &[s.q_lora, s.heads * head], 1.5);
        self.matrix(
            "attn_kv_a_mqa.weight",
            latent,
            &[s.hidden, s.kv_lora + s.rope],
            1.0,
        );
        self.norm("attn_kv_a_norm.weight", s.kv_lora);
        self.matrix(
            "attn_k_b.weight",
            latent,
            &[s.nope, s.kv_lora, s.heads],
            1.0,
        );
        self.matrix(
            "attn_v_b.weight",
            latent,
            &[s.kv_lora, s.v_head, s.heads],
            1.0,
        );
        self.matrix(
            "attn_output.weight",
            Role::Projection,
            &[s.heads * s.v_head, s.hidden],
            1.0,
        );
        if s.full_indexer(layer) {
            let width = s.indexer_heads * s.indexer_dim;
            self.matrix("indexer.attn_q_b.weight", latent, &[s.q_lora, width], 1.0);
            self.matrix(
                "indexer.attn_k.weight",
                latent,
                &[s.hidden, s.indexer_dim],
                1.0,
            );
            self.norm("indexer.k_norm.weight", s.indexer_dim);
            self.plain("indexer.k_norm.bias", &[s.indexer_dim], 0.0, 0.1);
            let std = 1.0 / (s.hidden as f32).sqrt();
            self.plain(
                "indexer.proj.weight",
                &[s.hidden, s.indexer_heads],
                0.0,
                std,
            );
        }
    }

    fn feed_forward(&mut self, layer: u64) {
        let s = self.shape;
        self.norm("ffn_norm.weight", s.hidden);
        if layer < s.dense_layers {
            self.matrix("ffn_gate.weight", Role::Gate, &[s.hidden, s.dense_ff], 1.0);
            self.matrix("ffn_up.weight", Role::Gate, &[s.hidden, s.dense_ff], 1.0);
            self.matrix("ffn_down.weight", Role::Down, &[s.dense_ff, s.hidden], 1.0);
            return;
        }
        let std = 1.0 / (s.hidden as f32).sqrt();
        self.plain("ffn_gate_inp.weight", &[s.hidden, s.experts], 0.0, std);
        self.plain("exp_probs_b.bias", &[s.experts], 0.0, 0.2);
        let (up, down) = (
            [s.hidden, s.expert_ff, s.experts],
            [s.expert_ff, s.hidden, s.experts],
        );
        self.matrix("ffn_gate_exps.weight", Role::ExpertGate, &up, 1.0);
        self.matrix("ffn_up_exps.weight", Role::ExpertGate, &up, 1.0);
        self.matrix("ffn_down_exps.weight", Role::ExpertDown, &down, 1.0);
        self.matrix("ffn_gate_shexp.weight", Role::Gate, &up[..2], 1.0);
        self.matrix("ffn_up_shexp.weight", Role::Gate, &up[..2], 1.0);
        self.matrix("ffn_down_shexp.weight", Role::Down, &down[..2], 1.0);
    }
}
