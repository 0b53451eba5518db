//! Hyperparameters, read from a file's metadata.

use legwork_kernels::ops::{Gating, RopeStyle, RopeTable};

use super::names::{TOKEN_EMBD, is_indexer_query};
use super::rope::{self, Yarn};
use super::{ModelError, Weights, is_routed_expert};
use crate::gguf::Gguf;

/// Architectures that share the forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// GLM-5 to 5.3.
    GlmDsa,
    /// DeepSeek-V3.2: an indexer in every layer, half-split indexer rope.
    DeepSeek32,
    /// DeepSeek-V2, V3, R1 and GLM-4.7-Flash: no indexer.
    DeepSeek2,
}

/// The lightning indexer.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexerConfig {
    /// Heads.
    pub heads: usize,
    /// Length of a head.
    pub dim: usize,
    /// Keys kept per row.
    pub top_k: usize,
    /// Per trunk layer: has its own indexer, or shares the selection of the closest earlier layer that has.
    pub full: Vec<bool>,
    /// Which elements its rope pairs.
    pub style: RopeStyle,
    /// Of the key's LayerNorm.
    pub eps: f32,
}

/// The mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeConfig {
    /// Experts.
    pub experts: usize,
    /// Experts per token.
    pub used: usize,
    /// Shared experts, fused into one of that many widths.
    pub shared: usize,
    /// Width of an expert.
    pub ff: usize,
    /// How router logits become probabilities.
    pub gating: Gating,
    /// Groups, 1 for none.
    pub groups: usize,
    /// Groups kept.
    pub groups_used: usize,
    /// Weights are divided by their sum.
    pub norm: bool,
    /// Factor on the weights.
    pub scale: f32,
}

/// Every number of the architecture.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Architecture.
    pub arch: Arch,
    /// Layers run; the file may hold MTP blocks after them.
    pub layers: usize,
    /// MTP blocks after the trunk, never run.
    pub mtp_blocks: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Query latent; `None` where queries come straight from the residual stream.
    pub q_lora: Option<usize>,
    /// Key-value latent.
    pub kv_lora: usize,
    /// Un-roped part of a query head.
    pub nope: usize,
    /// Value head.
    pub v_dim: usize,
    /// Frequencies; `rope.dim` is the roped part of a head.
    pub rope: RopeTable,
    /// Factor on attention scores.
    pub attn_scale: f32,
    /// Of every RMSNorm.
    pub rms_eps: f32,
    /// Leading layers with a dense feed-forward network.
    pub dense_layers: usize,
    /// Width of the dense feed-forward network.
    pub dense_ff: usize,
    /// Experts of the other layers; `None` when all are dense.
    pub moe: Option<MoeConfig>,
    /// Sparse attention; `None` for `deepseek2`.
    pub indexer: Option<IndexerConfig>,
    /// Vocabulary.
    pub vocab: usize,
    /// Context length that the file claims.
    pub context: usize,
    /// `attn_kv_b` holds both parts (legacy `deepseek2`), instead of `attn_k_b` and `attn_v_b`.
    pub legacy_kv_b: bool,
}

/// Context length from which a GLM file without `indexer.types` follows the 5.2 pattern (llama.cpp's rule).
const SHARED_PATTERN_CONTEXT: usize = 1 << 20;

impl Config {
    /// Length of a query head.
    #[must_use]
    pub fn head(&self) -> usize {
        self.nope + self.rope.dim
    }

    /// Length of a cache row.
    #[must_use]
    pub fn cache_width(&self) -> usize {
        self.kv_lora + self.rope.dim
    }

    /// Elements that a token adds to all caches.
    #[must_use]
    pub fn cache_elements_per_token(&self) -> usize {
        let index = self
            .indexer
            .as_ref()
            .map_or(0, |i| i.dim * i.full.iter().filter(|f| **f).count());
        self.layers * self.cache_width() + index
    }

    /// Which fraction of a tensor a decoded token reads: experts that are not chosen and tensors of no layer that runs stay
    /// unread, of the embedding one row is read. `tied`: the embedding is the head too, and read whole. `sparse`: the token
    /// has more keys than are selected; else the indexer only makes its key.
    #[must_use]
    pub fn read_per_token(&self, name: &str, tied: bool, sparse: bool) -> f64 {
        if !Weights::used(self, name) || (!sparse && is_indexer_query(name)) {
            return 0.0;
        }
        if name == TOKEN_EMBD {
            return f64::from(u8::from(tied)) + 1.0 / self.vocab.max(1) as f64;
        }
        if is_routed_expert(name) {
            return self
                .moe
                .as_ref()
                .map_or(0.0, |m| m.used as f64 / m.experts as f64);
        }
        1.0
    }

    /// Whether a token at this position attends to selected keys only.
    #[must_use]
    pub fn sparse_at(&self, position: usize) -> bool {
        self.indexer.as_ref().is_some_and(|x| position >= x.top_k)
    }

    /// Reads the hyperparameters.
    ///
    /// # Errors
    /// A key that is missing, of the wrong type, out of range, or at odds with another one.
    pub fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        let reader = Reader {
            gguf,
            arch: gguf.architecture()?,
        };
        let arch = match reader.arch {
            "glm-dsa" => Arch::GlmDsa,
            "deepseek32" => Arch::DeepSeek32,
            _ => Arch::DeepSeek2,
        };
        let blocks = reader.size("block_count")?;
        let mtp_blocks = reader.size_or("nextn_predict_layers", 0)?;
        let layers = blocks
            .checked_sub(mtp_blocks)
            .filter(|n| *n > 0)
            .ok_or_else(|| {
                reader.bad(
                    "block_count",
                    format!("{blocks} blocks of which {mtp_blocks} are MTP leave none to run"),
                )
            })?;
        let rope_dim = reader.size("rope.dimension_count")?;
        if !rope_dim.is_multiple_of(2) {
            return Err(reader.bad(
                "rope.dimension_count",
                format!("{rope_dim} is odd: rope rotates pairs"),
            ));
        }
        let kv_lora = reader.size("attention.kv_lora_rank")?;
        let (key, value) = match (
            reader.opt("attention.key_length_mla")?,
            reader.opt("attention.value_length_mla")?,
        ) {
            (Some(k), Some(v)) => (k, v),
            (None, None) if arch == Arch::DeepSeek2 => (
                reader.size("attention.key_length")?,
                reader.size("attention.value_length")?,
            ),
            _ => {
                return Err(reader.bad(
                    "attention.key_length_mla",
                    "this architecture needs key_length_mla and value_length_mla; convert the model again with a current converter".to_owned(),
                ));
            }
        };
        let legacy_kv_b = gguf.tensor("blk.0.attn_kv_b.weight").is_some()
            && gguf.tensor("blk.0.attn_k_b.weight").is_none();
        let nope = key
            .checked_sub(rope_dim)
            .filter(|n| *n > 0)
            .ok_or_else(|| {
                reader.bad(
                    "attention.key_length_mla",
                    format!("{key} leaves nothing beside {rope_dim} roped elements"),
                )
            })?;
        let yarn = reader.yarn()?;
        let theta = f64::from(reader.float_or("rope.freq_base", 10_000.0)?);
        let scale = (key as f64).powf(-0.5) * yarn.map_or(1.0, rope::yarn_scale);
        let moe = reader.moe(layers)?;
        Ok(Config {
            arch,
            layers,
            mtp_blocks,
            hidden: reader.size("embedding_length")?,
            heads: reader.size("attention.head_count")?,
            q_lora: reader.opt("attention.q_lora_rank")?.filter(|n| *n > 0),
            kv_lora,
            nope,
            v_dim: value,
            rope: rope::table(rope_dim, theta, yarn),
            attn_scale: scale as f32,
            rms_eps: gguf.f32(&reader.key("attention.layer_norm_rms_epsilon"))?,
            dense_layers: if moe.is_some() {
                reader.size_or("leading_dense_block_count", 0)?.min(layers)
            } else {
                layers
            },
            dense_ff: reader.size_or("feed_forward_length", 0)?,
            moe,
            indexer: reader.indexer(arch, layers)?,
            vocab: reader.vocab()?,
            context: reader.size("context_length")?,
            legacy_kv_b,
        })
    }
}

/// Reads keys below the architecture's prefix.
struct Reader<'a> {
    gguf: &'a Gguf,
    arch: &'a str,
}

/// No model has more of anything than this: larger numbers are damage, and would overflow products.
const MAX_SIZE: usize = 1 << 24;

impl Reader<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn bad(&self, name: &str, what: String) -> ModelError {
        ModelError::Config {
            model: self.gguf.name().to_owned(),
            key: self.key(name),
            what,
        }
    }

    fn checked(&self, name: &str, value: u32) -> Result<usize, ModelError> {
        let value = value as usize;
        if value > MAX_SIZE {
            return Err(self.bad(name, format!("{value} is larger than any model's")));
        }
        Ok(value)
    }

    fn opt(&self, name: &str) -> Result<Option<usize>, ModelError> {
        self.gguf
            .opt_u32(&self.key(name))?
            .map(|v| self.checked(name, v))
            .transpose()
    }

    fn size(&self, name: &str) -> Result<usize, ModelError> {
        let value = self.checked(name, self.gguf.u32(&self.key(name))?)?;
        if value == 0 {
            return Err(self.bad(name, "0 is no size".to_owned()));
        }
        Ok(value)
    }

    fn size_or(&self, name: &str, default: usize) -> Result<usize, ModelError> {
        Ok(self.opt(name)?.unwrap_or(default))
    }

    fn float_or(&self, name: &str, default: f32) -> Result<f32, ModelError> {
        Ok(self.gguf.opt_f32(&self.key(name))?.unwrap_or(default))
    }

    fn vocab(&self) -> Result<usize, ModelError> {
        if let Some(n) = self.opt("vocab_size")? {
            return Ok(n);
        }
        Ok(self.gguf.array("tokenizer.ggml.tokens")?.len())
    }

    fn yarn(&self) -> Result<Option<Yarn>, ModelError> {
        match self.gguf.opt_str(&self.key("rope.scaling.type"))? {
            None | Some("none") => return Ok(None),
            Some("yarn") => {}
            Some(other) => {
                return Err(self.bad(
                    "rope.scaling.type",
                    format!("`{other}` is not implemented; `none` and `yarn` are"),
                ));
            }
        }
        let factor = f64::from(self.float_or("rope.scaling.factor", 1.0)?);
        let original = self.size("rope.scaling.original_context_length")? as f64;
        if factor < 1.0 || !factor.is_finite() {
            return Err(self.bad("rope.scaling.factor", format!("{factor} does not stretch")));
        }
        let multiplier = f64::from(self.float_or("rope.scaling.yarn_log_multiplier", 0.0)?);
        let yarn = Yarn {
            factor,
            original_context: original,
            mscale_all_dim: multiplier / 0.1,
        };
        Ok((factor > 1.0).then_some(yarn))
    }

    fn moe(&self, layers: usize) -> Result<Option<MoeConfig>, ModelError> {
        let experts = self.size_or("expert_count", 0)?;
        if experts == 0 {
            return Ok(None);
        }
        let used = self.size("expert_used_count")?;
        let groups = self.size_or("expert_group_count", 0)?.max(1);
        let groups_used = self.size_or("expert_group_used_count", 0)?.max(1);
        if used > experts {
            return Err(self.bad("expert_used_count", format!("{used} of {experts} experts")));
        }
        if !experts.is_multiple_of(groups)
            || groups_used > groups
            || used > experts / groups * groups_used
        {
            return Err(self.bad(
                "expert_group_count",
                format!("{experts} experts in {groups} groups, {groups_used} used, {used} chosen"),
            ));
        }
        // GLM-4.7-Flash files name no gating and are told by their size (llama.cpp's rule).
        let by_size =
            self.arch == "glm-dsa" || (matches!(layers, 47 | 48) && self.vocab()? == 154_880);
        let gating = match self.opt("expert_gating_func")? {
            Some(1) => Gating::Softmax,
            Some(2) => Gating::Sigmoid,
            None | Some(0) if by_size => Gating::Sigmoid,
            None | Some(0) => Gating::Softmax,
            Some(other) => {
                return Err(self.bad(
                    "expert_gating_func",
                    format!("{other} is not implemented; 1 (softmax) and 2 (sigmoid) are"),
                ));
            }
        };
        let scale = self.float_or("expert_weights_scale", 0.0)?;
        Ok(Some(MoeConfig {
            experts,
            used,
            shared: self.size_or("expert_shared_count", 0)?,
            ff: self.size("expert_feed_forward_length")?,
            gating,
            groups,
            groups_used,
            norm: self
                .gguf
                .opt_bool(&self.key("expert_weights_norm"))?
                .unwrap_or(false),
            scale: if scale == 0.0 { 1.0 } else { scale },
        }))
    }

    fn indexer(&self, arch: Arch, layers: usize) -> Result<Option<IndexerConfig>, ModelError> {
        if arch == Arch::DeepSeek2 {
            return Ok(None);
        }
        let full = if arch == Arch::GlmDsa {
            self.indexer_types(layers)?
        } else {
            vec![true; layers]
        };
        if !full[0] {
            return Err(self.bad(
                "attention.indexer.types",
                "layer 0 shares a selection, but there is none before it".to_owned(),
            ));
        }
        Ok(Some(IndexerConfig {
            heads: self.size("attention.indexer.head_count")?,
            dim: self.size("attention.indexer.key_length")?,
            top_k: self.size("attention.indexer.top_k")?,
            full,
            style: if arch == Arch::GlmDsa {
                RopeStyle::Interleaved
            } else {
                RopeStyle::HalfSplit
            },
            eps: 1e-6,
        }))
    }

    fn indexer_types(&self, layers: usize) -> Result<Vec<bool>, ModelError> {
        let name = "attention.indexer.types";
        if let Some(types) = self.gguf.opt_array(&self.key(name))? {
            if types.len() != layers {
                return Err(self.bad(
                    name,
                    format!("{} entries for {layers} trunk layers", types.len()),
                ));
            }
            return (0..layers)
                .map(|i| {
                    types
                        .integer(i)
                        .map(|v| v != 0)
                        .ok_or_else(|| self.bad(name, format!("entry {i} is not a bool")))
                })
                .collect();
        }
        if self.size("context_length")? < SHARED_PATTERN_CONTEXT {
            return Ok(vec![true; layers]);
        }
        // GLM-5.2: index_topk_freq 4, index_skip_topk_offset 3
        Ok((0..layers)
            .map(|i| (i + 1).saturating_sub(3).is_multiple_of(4))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    /// Facts of GLM-5.2: full layers are 0, 1, 2, 6, 10, …, 74.
    #[test]
    fn shared_pattern_of_glm_5_2() {
        let full: Vec<usize> = (0..78usize)
            .filter(|i| (i + 1).saturating_sub(3).is_multiple_of(4))
            .collect();
        assert_eq!(full[..5], [0, 1, 2, 6, 10]);
        assert_eq!((full.len(), full.last()), (21, Some(&74)));
    }
}
