//! Tensors bound to layers and checked against the hyperparameters.

use std::sync::Arc;

use legwork_kernels::blocks::{BlockType, decode};
use legwork_kernels::tensor::{DType, MemoryDomain, Tensor, Weight, WeightData};

use super::names::{OUTPUT, OUTPUT_NORM, TOKEN_EMBD, block, block_bias};
use super::{Config, ModelError, WeightStore};
use crate::gguf::{Gguf, TensorInfo};

/// A feed-forward network: `down(silu(gate x) * up x)`.
#[derive(Debug)]
pub struct Swiglu {
    /// `[hidden, ff]`.
    pub gate: Weight,
    /// `[hidden, ff]`.
    pub up: Weight,
    /// `[ff, hidden]`.
    pub down: Weight,
}

/// A mixture of experts.
#[derive(Debug)]
pub struct Moe {
    /// `[hidden, experts]`.
    pub router: Weight,
    /// f32 `[experts]`; only chooses.
    pub bias: Option<Tensor>,
    /// `[hidden, ff]` per expert; gate rows then up rows where `up` is `None`.
    pub gate: Weight,
    /// `[hidden, ff]` per expert.
    pub up: Option<Weight>,
    /// `[ff, hidden]` per expert.
    pub down: Weight,
    /// The shared experts as one network.
    pub shared: Option<Swiglu>,
}

/// The second half of a layer.
#[derive(Debug)]
pub enum Ffn {
    /// Dense.
    Dense(Box<Swiglu>),
    /// Experts.
    Moe(Box<Moe>),
}

/// The lightning indexer of a full layer.
#[derive(Debug)]
pub struct Indexer {
    /// `[q_lora, heads * dim]`.
    pub q_b: Weight,
    /// `[hidden, dim]`.
    pub k: Weight,
    /// f32 `[dim]`.
    pub k_norm: Tensor,
    /// f32 `[dim]`.
    pub k_bias: Tensor,
    /// `[hidden, heads]`.
    pub proj: Weight,
}

/// One layer.
#[derive(Debug)]
pub struct Layer {
    /// f32 `[hidden]`.
    pub attn_norm: Tensor,
    /// `[hidden, q_lora]`; `None` without a query latent.
    pub q_a: Option<Weight>,
    /// f32 `[q_lora]`; `None` with `q_a`.
    pub q_a_norm: Option<Tensor>,
    /// `[q_lora or hidden, heads * head]`.
    pub q_b: Weight,
    /// `[hidden, kv_lora + rope]`, merged: never split before the product.
    pub kv_a: Weight,
    /// f32 `[kv_lora]`.
    pub kv_a_norm: Tensor,
    /// Per head `[nope, kv_lora]`.
    pub k_b: Weight,
    /// Per head `[kv_lora, v_dim]`.
    pub v_b: Weight,
    /// `[heads * v_dim, hidden]`.
    pub out: Weight,
    /// `None` where the layer shares an earlier selection, or attention is dense.
    pub indexer: Option<Indexer>,
    /// f32 `[hidden]`.
    pub ffn_norm: Tensor,
    /// Dense or experts.
    pub ffn: Ffn,
}

/// All weights of the trunk.
#[derive(Debug)]
pub struct Weights {
    /// `[hidden, vocab]`.
    pub embedding: Weight,
    /// The layers.
    pub layers: Vec<Layer>,
    /// f32 `[hidden]`.
    pub output_norm: Tensor,
    /// `[hidden, vocab]`; the embedding where the head is tied.
    pub head: Weight,
}

impl Weights {
    /// Binds the tensors of `gguf`: matrices from `store`, vectors as f32 in `domain`.
    ///
    /// # Errors
    /// A tensor that is missing, of the wrong shape or type, or that cannot be read.
    pub fn bind(
        gguf: &Gguf,
        config: &Config,
        store: &dyn WeightStore,
        domain: &dyn MemoryDomain,
    ) -> Result<Self, ModelError> {
        let b = Binder {
            gguf,
            c: config,
            store,
            domain,
        };
        let c = config;
        let embedding = b.matrix(TOKEN_EMBD, c.hidden, c.vocab)?;
        let head = match gguf.tensor(OUTPUT) {
            Some(_) => b.matrix(OUTPUT, c.hidden, c.vocab)?,
            None => embedding.clone(),
        };
        let layers = (0..c.layers)
            .map(|i| b.layer(i))
            .collect::<Result<_, _>>()?;
        Ok(Weights {
            embedding,
            layers,
            output_norm: b.vector(OUTPUT_NORM, c.hidden)?,
            head,
        })
    }

    /// Names of the tensors that the trunk uses, for a loader that fetches them ahead.
    ///
    /// MTP blocks are left out, and so are indexer tensors of layers that share a selection: some converters write copies
    /// there that must not be used.
    #[must_use]
    pub fn used(config: &Config, name: &str) -> bool {
        let Some(rest) = name.strip_prefix("blk.") else {
            return true;
        };
        let Some((i, suffix)) = rest.split_once('.') else {
            return false;
        };
        let Ok(i) = i.parse::<usize>() else {
            return false;
        };
        let shared = config
            .indexer
            .as_ref()
            .is_none_or(|x| !x.full.get(i).copied().unwrap_or(false));
        i < config.layers && !(suffix.starts_with("indexer.") && shared)
    }
}

struct Binder<'a> {
    gguf: &'a Gguf,
    c: &'a Config,
    store: &'a dyn WeightStore,
    domain: &'a dyn MemoryDomain,
}

impl Binder<'_> {
    fn matrices(
        &self,
        name: &str,
        n_in: usize,
        n_out: usize,
        n_mat: usize,
    ) -> Result<Weight, ModelError> {
        let info = self.gguf.require_tensor(name)?;
        self.shape(info, [n_in, n_out, n_mat])?;
        Ok(Weight {
            name: name.to_owned(),
            ty: info.ty,
            n_in,
            n_out,
            n_mat,
            data: self.store.data(self.gguf, info)?,
        })
    }

    fn matrix(&self, name: &str, n_in: usize, n_out: usize) -> Result<Weight, ModelError> {
        self.matrices(name, n_in, n_out, 1)
    }

    fn vector(&self, name: &str, n: usize) -> Result<Tensor, ModelError> {
        let info = self.gguf.require_tensor(name)?;
        self.shape(info, [n, 1, 1])?;
        if info.ty != BlockType::F32 {
            return Err(ModelError::NotF32 {
                model: self.gguf.name().to_owned(),
                tensor: name.to_owned(),
                have: info.ty.to_string(),
            });
        }
        let mut bytes = vec![0u8; n * 4];
        self.gguf.read_tensor(info, &mut bytes)?;
        let values: Vec<f32> = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect();
        let memory = |source| ModelError::Memory {
            what: name.to_owned(),
            source,
        };
        let mut tensor = Tensor::zeros(self.domain, DType::F32, n).map_err(memory)?;
        tensor.write_f32(0, &values).map_err(memory)?;
        Ok(tensor)
    }

    fn shape(&self, info: &TensorInfo, want: [usize; 3]) -> Result<(), ModelError> {
        let want64 = [want[0] as u64, want[1] as u64, want[2] as u64, 1];
        if info.ne == want64 {
            return Ok(());
        }
        Err(ModelError::Shape {
            model: self.gguf.name().to_owned(),
            tensor: info.name.to_string(),
            have: format!("{:?}", info.dims()),
            want: format!("{want:?}"),
        })
    }

    fn swiglu(&self, i: usize, kind: &str, ff: usize) -> Result<Swiglu, ModelError> {
        let c = self.c;
        Ok(Swiglu {
            gate: self.matrix(&block(i, &format!("ffn_gate{kind}")), c.hidden, ff)?,
            up: self.matrix(&block(i, &format!("ffn_up{kind}")), c.hidden, ff)?,
            down: self.matrix(&block(i, &format!("ffn_down{kind}")), ff, c.hidden)?,
        })
    }

    fn layer(&self, i: usize) -> Result<Layer, ModelError> {
        let c = self.c;
        let q_out = c.heads * c.head();
        let (q_a, q_a_norm, q_b) = match c.q_lora {
            Some(q) => (
                Some(self.matrix(&block(i, "attn_q_a"), c.hidden, q)?),
                Some(self.vector(&block(i, "attn_q_a_norm"), q)?),
                self.matrix(&block(i, "attn_q_b"), q, q_out)?,
            ),
            None => (
                None,
                None,
                self.matrix(&block(i, "attn_q"), c.hidden, q_out)?,
            ),
        };
        let (k_b, v_b) = if c.legacy_kv_b {
            self.split_kv_b(i)?
        } else {
            (
                self.matrices(&block(i, "attn_k_b"), c.nope, c.kv_lora, c.heads)?,
                self.matrices(&block(i, "attn_v_b"), c.kv_lora, c.v_dim, c.heads)?,
            )
        };
        let ffn = match &c.moe {
            Some(_) if i >= c.dense_layers => Ffn::Moe(Box::new(self.moe(i)?)),
            _ => Ffn::Dense(Box::new(self.swiglu(i, "", c.dense_ff)?)),
        };
        Ok(Layer {
            attn_norm: self.vector(&block(i, "attn_norm"), c.hidden)?,
            q_a,
            q_a_norm,
            q_b,
            kv_a: self.matrix(&block(i, "attn_kv_a_mqa"), c.hidden, c.cache_width())?,
            kv_a_norm: self.vector(&block(i, "attn_kv_a_norm"), c.kv_lora)?,
            k_b,
            v_b,
            out: self.matrix(&block(i, "attn_output"), c.heads * c.v_dim, c.hidden)?,
            indexer: self.indexer(i)?,
            ffn_norm: self.vector(&block(i, "ffn_norm"), c.hidden)?,
            ffn,
        })
    }

    fn indexer(&self, i: usize) -> Result<Option<Indexer>, ModelError> {
        let Some(x) = self.c.indexer.as_ref().filter(|x| x.full[i]) else {
            return Ok(None);
        };
        let q_in = self.c.q_lora.ok_or_else(|| ModelError::Config {
            model: self.gguf.name().to_owned(),
            key: "attention.q_lora_rank".to_owned(),
            what: "the indexer reads the query latent, which this file lacks".to_owned(),
        })?;
        Ok(Some(Indexer {
            q_b: self.matrix(&block(i, "indexer.attn_q_b"), q_in, x.heads * x.dim)?,
            k: self.matrix(&block(i, "indexer.attn_k"), self.c.hidden, x.dim)?,
            k_norm: self.vector(&block(i, "indexer.k_norm"), x.dim)?,
            k_bias: self.vector(&block_bias(i, "indexer.k_norm"), x.dim)?,
            proj: self.matrix(&block(i, "indexer.proj"), self.c.hidden, x.heads)?,
        }))
    }

    fn moe(&self, i: usize) -> Result<Moe, ModelError> {
        let c = self.c;
        let m = c
            .moe
            .as_ref()
            .ok_or_else(|| ModelError::Request(format!("layer {i} has no experts")))?;
        let bias = block_bias(i, "exp_probs_b");
        let fused = block(i, "ffn_gate_up_exps");
        let (gate, up) = if self.gguf.tensor(&fused).is_some() {
            (self.matrices(&fused, c.hidden, 2 * m.ff, m.experts)?, None)
        } else {
            let matrices = |kind| self.matrices(&block(i, kind), c.hidden, m.ff, m.experts);
            (matrices("ffn_gate_exps")?, Some(matrices("ffn_up_exps")?))
        };
        Ok(Moe {
            router: self.matrix(&block(i, "ffn_gate_inp"), c.hidden, m.experts)?,
            bias: self
                .gguf
                .tensor(&bias)
                .map(|_| self.vector(&bias, m.experts))
                .transpose()?,
            gate,
            up,
            down: self.matrices(&block(i, "ffn_down_exps"), m.ff, c.hidden, m.experts)?,
            shared: (m.shared > 0)
                .then(|| self.swiglu(i, "_shexp", m.ff * m.shared))
                .transpose()?,
        })
    }

    /// Makes `k_b` and `v_b` in f32 from a legacy `attn_kv_b`: per head, `nope` rows and then `v_dim` rows of `kv_lora`.
    fn split_kv_b(&self, i: usize) -> Result<(Weight, Weight), ModelError> {
        let c = self.c;
        let rows = c.nope + c.v_dim;
        let name = block(i, "attn_kv_b");
        let merged = self.matrix(&name, c.kv_lora, c.heads * rows)?;
        let memory = |source| ModelError::Memory {
            what: name.clone(),
            source,
        };
        let mut values = vec![0.0f32; c.kv_lora * c.heads * rows];
        decode(merged.ty, merged.host().map_err(memory)?, &mut values)
            .map_err(|e| ModelError::Request(format!("{name}: {e}")))?;
        let (mut k, mut v) = (Vec::with_capacity(c.heads * c.nope * c.kv_lora), Vec::new());
        for head in values.chunks_exact(rows * c.kv_lora) {
            let (nope, value) = head.split_at(c.nope * c.kv_lora);
            for l in 0..c.kv_lora {
                k.extend(nope.chunks_exact(c.kv_lora).map(|row| row[l]));
            }
            v.extend_from_slice(value);
        }
        let weight = |suffix: &str, n_in, n_out, values: Vec<f32>| Weight {
            name: format!("{name} ({suffix})"),
            ty: BlockType::F32,
            n_in,
            n_out,
            n_mat: c.heads,
            data: host_f32(&values),
        };
        Ok((
            weight("k part", c.nope, c.kv_lora, k),
            weight("v part", c.kv_lora, c.v_dim, v),
        ))
    }
}

fn host_f32(values: &[f32]) -> WeightData {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let len = bytes.len();
    WeightData::Host {
        bytes: Arc::new(bytes),
        offset: 0,
        len,
    }
}
