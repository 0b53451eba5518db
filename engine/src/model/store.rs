//! Where weights' bytes are.

use std::sync::Arc;

use legwork_kernels::tensor::{SharedBytes, WeightData};

use crate::gguf::{Gguf, GgufError, TensorInfo};

/// Hands out the bytes of tensors.
pub trait WeightStore {
    /// The blocks of `info`.
    ///
    /// # Errors
    /// The file could not be read.
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError>;
}

/// Reads every tensor into memory of its own.
#[derive(Debug, Default)]
pub struct OwnedStore;

impl WeightStore for OwnedStore {
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError> {
        let mut bytes = vec![0u8; usize::try_from(info.bytes).unwrap_or(usize::MAX)];
        gguf.read_tensor(info, &mut bytes)?;
        let len = bytes.len();
        let bytes: SharedBytes = Arc::new(bytes);
        Ok(WeightData::Host {
            bytes,
            offset: 0,
            len,
        })
    }
}
