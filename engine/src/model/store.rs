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

/// Leaves routed experts on the disk, for [`crate::forward::ExpertStream`] to fetch.
pub struct WithoutExperts<'a>(pub &'a dyn WeightStore);

/// Whether a tensor holds routed experts.
#[must_use]
pub fn is_routed_expert(name: &str) -> bool {
    name.contains("_exps.")
}

impl WeightStore for WithoutExperts<'_> {
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError> {
        if is_routed_expert(&info.name) {
            return Ok(WeightData::Host {
                bytes: std::sync::Arc::new(Vec::new()),
                offset: 0,
                len: 0,
            });
        }
        self.0.data(gguf, info)
    }
}
