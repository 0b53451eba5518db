//! Which type each tensor is stored in.

use std::fmt;
use std::str::FromStr;

use legwork_kernels::blocks::BlockType;

use super::SynthError;

/// A rule that gives every matrix its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// The mix of the public UD-IQ1_S files of GLM-5.2 and 5.3, each layer as the one at its relative depth there.
    UdIq1S,
    /// One type for all matrices; rows that are no whole blocks of it take its usual stand-in.
    Uniform(BlockType),
}

/// A matrix's part in the model, as far as mixes care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// token_embd, output
    Vocabulary,
    /// attn_q_b, attn_k_b, attn_v_b, attn_kv_a_mqa, indexer.attn_q_b, indexer.attn_k
    Latent,
    /// attn_q_a, attn_output
    Projection,
    /// ffn_gate, ffn_up of dense layers and shared experts
    Gate,
    /// ffn_down of dense layers and shared experts
    Down,
    /// ffn_gate_exps, ffn_up_exps
    ExpertGate,
    /// ffn_down_exps
    ExpertDown,
}

impl Mix {
    /// The type of a matrix with rows of `row` elements. `depth` is the layer it has in the real
    /// 78-layer model.
    pub(super) fn type_of(self, role: Role, depth: u64, row: u64) -> BlockType {
        let ty = match self {
            Mix::Uniform(ty) => ty,
            Mix::UdIq1S => ud_iq1_s(role, depth),
        };
        if row.is_multiple_of(ty.block_len() as u64) {
            ty
        } else {
            stand_in(ty)
        }
    }
}

/// Layers whose experts' gates are IQ2_XXS; those of the second list also have IQ4_XS in `down`.
const FINER: [u64; 18] = [
    6, 9, 29, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 68, 70, 72, 73, 74,
];
const FINEST: [u64; 4] = [8, 75, 76, 77];

fn ud_iq1_s(role: Role, depth: u64) -> BlockType {
    let finest = FINEST.contains(&depth);
    match role {
        Role::Vocabulary => BlockType::Q4_K,
        Role::Latent => BlockType::Q8_0,
        Role::Projection | Role::Gate => BlockType::Q5_K,
        Role::Down if depth == 8 => BlockType::Q8_0,
        Role::Down => BlockType::Q6_K,
        Role::ExpertGate if finest || FINER.contains(&depth) => BlockType::IQ2_XXS,
        Role::ExpertGate => BlockType::IQ1_S,
        Role::ExpertDown if finest => BlockType::IQ4_XS,
        Role::ExpertDown => BlockType::IQ3_XXS,
    }
}

/// What llama-quantize takes for rows that are no multiple of 256 (attn_k_b's 192).
fn stand_in(ty: BlockType) -> BlockType {
    match ty {
        BlockType::Q4_K => BlockType::Q5_0,
        BlockType::Q5_K => BlockType::Q5_1,
        BlockType::Q6_K => BlockType::Q8_0,
        BlockType::TQ1_0 | BlockType::TQ2_0 | BlockType::Q1_0 => BlockType::Q4_0,
        _ => BlockType::IQ4_NL,
    }
}

fn synthesisable(ty: BlockType) -> bool {
    use BlockType::*;
    !matches!(ty, I8 | I16 | I32 | I64 | F64 | Q8_1 | Q8_K)
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::UdIq1S => f.write_str("ud-iq1_s"),
            Mix::Uniform(ty) => f.write_str(&ty.name().to_ascii_lowercase()),
        }
    }
}

impl FromStr for Mix {
    type Err = SynthError;

    fn from_str(text: &str) -> Result<Mix, SynthError> {
        let mixes = || {
            let types = BlockType::ALL
                .iter()
                .copied()
                .filter(|ty| synthesisable(*ty))
                .map(Mix::Uniform);
            std::iter::once(Mix::UdIq1S).chain(types)
        };
        mixes()
            .find(|mix| mix.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| SynthError::Mix {
                asked: text.to_owned(),
                known: mixes()
                    .map(|mix| mix.to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }
}
