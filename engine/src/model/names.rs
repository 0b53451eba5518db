//! Tensor names of block `i`, as GGUF spells them.

/// `blk.I.SUFFIX.weight`.
pub fn block(i: usize, suffix: &str) -> String {
    format!("blk.{i}.{suffix}.weight")
}

/// `blk.I.SUFFIX.bias`.
pub fn block_bias(i: usize, suffix: &str) -> String {
    format!("blk.{i}.{suffix}.bias")
}

/// Whether a tensor makes or weighs the indexer's queries: only sparse steps read it.
pub fn is_indexer_query(name: &str) -> bool {
    name.contains(".indexer.attn_q_b.") || name.contains(".indexer.proj.")
}

/// The token embedding.
pub const TOKEN_EMBD: &str = "token_embd.weight";
/// The norm before the head.
pub const OUTPUT_NORM: &str = "output_norm.weight";
/// The head; absent when it is tied to the embedding.
pub const OUTPUT: &str = "output.weight";
