//! Metadata of a synthetic model.

use legwork_kernels::blocks::BlockType;

use super::SynthError;
use super::mix::Mix;
use super::shape::Shape;
use crate::builtin::resolve_model;
use crate::gguf::{Array, Gguf, HeaderWriter, Value};

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
/// The kind of a token that pads the vocabulary.
const UNUSED: i32 = 5;

/// Writes all metadata of a shape.
pub(super) fn write(w: &mut HeaderWriter, shape: &Shape, mix: Mix) -> Result<(), SynthError> {
    w.str("general.architecture", "glm-dsa");
    w.str("general.type", "model");
    w.str(
        "general.name",
        &format!(
            "GLM-DSA synthetic {} layers {} experts",
            shape.layers, shape.experts
        ),
    );
    w.u32("general.quantization_version", 2);
    if let Some(file_type) = file_type(mix) {
        w.u32("general.file_type", file_type);
    }
    let integers = [
        ("vocab_size", shape.vocab),
        ("context_length", shape.context),
        ("embedding_length", shape.hidden),
        ("block_count", shape.layers),
        ("feed_forward_length", shape.dense_ff),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", shape.rope),
        ("attention.q_lora_rank", shape.q_lora),
        ("attention.kv_lora_rank", shape.kv_lora),
        ("attention.key_length", shape.kv_lora + shape.rope),
        ("attention.value_length", shape.kv_lora),
        ("attention.key_length_mla", shape.nope + shape.rope),
        ("attention.value_length_mla", shape.v_head),
        ("leading_dense_block_count", shape.dense_layers),
        ("expert_count", shape.experts),
        ("expert_used_count", shape.experts_used),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", shape.expert_ff),
        ("expert_gating_func", 2),
        ("attention.indexer.head_count", shape.indexer_heads),
        ("attention.indexer.key_length", shape.indexer_dim),
        ("attention.indexer.top_k", shape.top_k),
    ];
    for (key, value) in integers {
        w.u32(&format!("glm-dsa.{key}"), value as u32);
    }
    w.set("glm-dsa.rope.freq_base", Value::F32(shape.theta as f32));
    w.set("glm-dsa.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    w.set("glm-dsa.expert_weights_scale", Value::F32(2.5));
    w.set("glm-dsa.expert_weights_norm", Value::Bool(true));
    let full = (0..shape.layers)
        .map(|layer| shape.full_indexer(layer))
        .collect();
    w.array("glm-dsa.attention.indexer.types", Array::Bool(full));
    tokenizer(w, shape.vocab as usize)
}

/// The built-in model's tokenizer, padded to `vocab` tokens.
fn tokenizer(w: &mut HeaderWriter, vocab: usize) -> Result<(), SynthError> {
    // Only a change of the built-in model itself can make the name unknown.
    let Ok(source) = resolve_model("builtin:mini") else {
        return Ok(());
    };
    let mini: Gguf = source.open()?;
    for (key, value) in mini
        .metadata()
        .filter(|(key, _)| key.starts_with("tokenizer."))
    {
        match value {
            Value::Array(array) => w.array(key, padded(key, array, vocab)),
            other => w.set(key, other.clone()),
        }
    }
    Ok(())
}

fn padded(key: &str, array: &Array, vocab: usize) -> Array {
    match (key, array) {
        (TOKENS, Array::String(tokens)) => {
            let padding: Vec<String> = (tokens.len()..vocab)
                .map(|id| format!("[PAD{id}]"))
                .collect();
            Array::String(
                tokens
                    .iter()
                    .chain(padding.iter().map(String::as_str))
                    .collect(),
            )
        }
        (KINDS, Array::I32(kinds)) => {
            let mut kinds = kinds.clone();
            kinds.resize(vocab.max(kinds.len()), UNUSED);
            Array::I32(kinds)
        }
        _ => array.clone(),
    }
}

/// llama.cpp's number for a file of mostly this type, where it has one.
fn file_type(mix: Mix) -> Option<u32> {
    Some(match mix {
        Mix::UdIq1S => 24,
        Mix::Uniform(ty) => match ty {
            BlockType::F32 => 0,
            BlockType::F16 => 1,
            BlockType::Q4_0 => 2,
            BlockType::Q4_1 => 3,
            BlockType::Q8_0 => 7,
            BlockType::Q5_0 => 8,
            BlockType::Q5_1 => 9,
            BlockType::Q2_K => 10,
            BlockType::Q3_K => 12,
            BlockType::Q4_K => 15,
            BlockType::Q5_K => 17,
            BlockType::Q6_K => 18,
            BlockType::IQ2_XXS => 19,
            BlockType::IQ2_XS => 20,
            BlockType::IQ3_XXS => 23,
            BlockType::IQ1_S => 24,
            BlockType::IQ4_NL => 25,
            BlockType::IQ3_S => 26,
            BlockType::IQ2_S => 28,
            BlockType::IQ4_XS => 30,
            BlockType::IQ1_M => 31,
            BlockType::BF16 => 32,
            _ => return None,
        },
    })
}
