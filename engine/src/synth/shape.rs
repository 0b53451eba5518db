//! Dimensions of a synthetic model.

use std::str::FromStr;

use super::mix::Mix;
use super::{ALIGNMENT, SynthError, layout};

/// Dimensions of a GLM-DSA model, in the names of its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Shape {
    pub hidden: u64,
    pub layers: u64,
    pub dense_layers: u64,
    pub heads: u64,
    pub q_lora: u64,
    pub kv_lora: u64,
    pub nope: u64,
    pub rope: u64,
    pub v_head: u64,
    pub dense_ff: u64,
    pub experts: u64,
    pub experts_used: u64,
    pub expert_ff: u64,
    pub vocab: u64,
    pub indexer_heads: u64,
    pub indexer_dim: u64,
    pub top_k: u64,
    pub context: u64,
    pub theta: u32,
}

impl Shape {
    /// Whether a layer has its own indexer (the pattern of GLM-5.2: 0, 1, 2, then every fourth).
    pub fn full_indexer(&self, layer: u64) -> bool {
        layer.saturating_sub(2).is_multiple_of(4)
    }
}

/// A set of dimensions with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// As the built-in model: 15 MB in UD-IQ1_S.
    Mini,
    /// 2 GB in UD-IQ1_S.
    Small,
    /// 20 GB in UD-IQ1_S.
    Medium,
    /// GLM-5.2 and 5.3 themselves, without the MTP block: 213 GB in UD-IQ1_S.
    Full,
}

impl Preset {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Mini => "mini",
            Preset::Small => "small",
            Preset::Medium => "medium",
            Preset::Full => "full",
        }
    }

    /// Its dimensions.
    pub fn shape(self) -> Shape {
        let full = Shape {
            hidden: 6144,
            layers: 78,
            dense_layers: 3,
            heads: 64,
            q_lora: 2048,
            kv_lora: 512,
            nope: 192,
            rope: 64,
            v_head: 256,
            dense_ff: 12288,
            experts: 256,
            experts_used: 8,
            expert_ff: 2048,
            vocab: 154_880,
            indexer_heads: 32,
            indexer_dim: 128,
            top_k: 2048,
            context: 1_048_576,
            theta: 8_000_000,
        };
        match self {
            Preset::Full => full,
            Preset::Medium => Shape {
                hidden: 4096,
                layers: 32,
                heads: 32,
                q_lora: 1536,
                dense_ff: 8192,
                experts: 128,
                expert_ff: 1536,
                vocab: 65_536,
                context: 131_072,
                ..full
            },
            Preset::Small => Shape {
                hidden: 2048,
                layers: 16,
                dense_layers: 1,
                heads: 16,
                q_lora: 1024,
                dense_ff: 6144,
                experts: 64,
                expert_ff: 1024,
                vocab: 32_768,
                context: 131_072,
                theta: 1_000_000,
                ..full
            },
            Preset::Mini => Shape {
                hidden: 256,
                layers: 6,
                dense_layers: 1,
                heads: 4,
                q_lora: 256,
                kv_lora: 256,
                dense_ff: 1024,
                experts: 16,
                experts_used: 4,
                expert_ff: 256,
                vocab: 4096,
                indexer_heads: 16,
                indexer_dim: 64,
                top_k: 128,
                context: 4096,
                theta: 1_000_000,
                ..full
            },
        }
    }
}

impl FromStr for Preset {
    type Err = SynthError;

    fn from_str(text: &str) -> Result<Preset, SynthError> {
        [Preset::Mini, Preset::Small, Preset::Medium, Preset::Full]
            .into_iter()
            .find(|preset| preset.name() == text)
            .ok_or_else(|| SynthError::Preset {
                asked: text.to_owned(),
            })
    }
}

/// Bounds of fitting; llama.cpp takes up to 512 of either.
const MOST_LAYERS: u64 = 256;
const MOST_EXPERTS: u64 = 512;
/// Close enough that the preset's proportions count more than the size.
const CLOSE: f64 = 0.01;
/// What is promised.
const PROMISED: f64 = 0.05;

/// The preset with as many layers and experts as bring its size to `target`.
pub(super) fn fit(preset: Preset, mix: Mix, target: u64) -> Result<Shape, SynthError> {
    let base = preset.shape();
    let mut best: Option<((bool, f64), Shape)> = None;
    let (mut least, mut most) = (u64::MAX, 0);
    for layers in base.dense_layers + 1..=MOST_LAYERS {
        let with = |experts: u64| Shape {
            layers,
            experts,
            ..base.clone()
        };
        let fewest = base.experts_used + 1;
        let floor = size(&with(fewest), mix);
        let per_expert = size(&with(fewest + 1), mix) - floor;
        (least, most) = (
            least.min(floor),
            most.max(floor + per_expert * (MOST_EXPERTS - fewest)),
        );
        let wanted = fewest + (target.saturating_sub(floor) + per_expert / 2) / per_expert;
        // llama-quantize takes 8 experts for another architecture.
        let experts = if wanted == 8 {
            9
        } else {
            wanted.min(MOST_EXPERTS)
        };
        let shape = with(experts);
        let reached = floor + per_expert * experts.saturating_sub(fewest);
        let off = (reached as f64 / target as f64 - 1.0).abs();
        let ratio = |a: u64, b: u64| (a as f64 / b as f64).ln().abs();
        let distortion = ratio(layers, base.layers) + ratio(experts, base.experts);
        let score = if off <= CLOSE {
            (false, distortion)
        } else {
            (true, off)
        };
        if off <= PROMISED && best.as_ref().is_none_or(|(known, _)| score < *known) {
            best = Some((score, shape));
        }
    }
    best.map(|(_, shape)| shape)
        .ok_or_else(|| SynthError::Size {
            preset: preset.name(),
            mix: mix.to_string(),
            asked: target,
            least,
            most,
        })
}

/// Size of the file to within its header's last few hundred bytes.
fn size(shape: &Shape, mix: Mix) -> u64 {
    // Vocabulary and merges of the built-in model, padded: 240 kB and about 24 bytes a padding token.
    let mut size = 240_000 + shape.vocab.saturating_sub(4096) * 24;
    layout::visit(shape, mix, &mut |tensor| {
        size += tensor.bytes().next_multiple_of(ALIGNMENT) + 80
    });
    size
}
