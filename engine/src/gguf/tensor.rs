//! Tensor infos.

use legwork_kernels::blocks::BlockType;

/// Where and what a tensor is. Its range is inside its shard's file, and disjoint from the others'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, e.g. `blk.3.attn_q_a.weight`.
    pub name: Box<str>,
    /// ggml dimensions, `ne[0]` contiguous; unused ones are 1.
    pub ne: [u64; 4],
    /// How many dimensions the file gives (1 to 4).
    pub n_dims: u32,
    /// Storage type.
    pub ty: BlockType,
    /// Index into [`super::Gguf::shards`].
    pub shard: usize,
    /// Absolute offset of the data in the shard's file.
    pub offset: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.ne.iter().product()
    }

    /// Number of rows of `ne[0]` elements.
    pub fn rows(&self) -> u64 {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.bytes / self.rows()
    }

    /// The dimensions the file gives.
    pub fn dims(&self) -> &[u64] {
        &self.ne[..self.n_dims as usize]
    }

    /// The block (layer) number of a name that begins `blk.N.`.
    pub fn layer(&self) -> Option<u32> {
        self.name
            .strip_prefix("blk.")?
            .split_once('.')?
            .0
            .parse()
            .ok()
    }
}
