//! Where weights' bytes are.

use legwork_kernels::tensor::WeightData;

use crate::gguf::load::Weights;
use crate::gguf::{Gguf, GgufError, Problem, TensorInfo};

/// Hands out the bytes of tensors.
pub trait WeightStore {
    /// The blocks of `info`.
    ///
    /// # Errors
    /// The file could not be read.
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError>;
}

/// Weights that were loaded to host memory stay there.
impl WeightStore for Weights {
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError> {
        self.share(info).ok_or_else(|| {
            gguf.error(Problem::MissingTensor {
                tensor: info.name.to_string(),
            })
        })
    }
}
