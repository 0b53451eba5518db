//! What can be wrong with a model whose file could be read.

use legwork_kernels::ops::OpError;
use legwork_kernels::tensor::TensorError;

use crate::gguf::GgufError;

/// A model that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A hyperparameter that contradicts another one, or that this engine does not implement.
    #[error("{model}: {key}: {what}")]
    Config {
        /// The model's name.
        model: String,
        /// The metadata key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// A tensor whose shape contradicts the hyperparameters.
    #[error("{model}: tensor `{tensor}` is {have}, but the hyperparameters ask for {want}")]
    Shape {
        /// The model's name.
        model: String,
        /// The tensor.
        tensor: String,
        /// Its dimensions in the file.
        have: String,
        /// What the hyperparameters ask for.
        want: String,
    },
    /// A tensor of the wrong type.
    #[error("{model}: tensor `{tensor}` is stored as {have}; it must be F32")]
    NotF32 {
        /// The model's name.
        model: String,
        /// The tensor.
        tensor: String,
        /// Its type in the file.
        have: String,
    },
    /// Memory.
    #[error("{what}: {source}")]
    Memory {
        /// What was to be allocated or filled.
        what: String,
        /// Why it could not.
        source: TensorError,
    },
    /// An operation failed.
    #[error(transparent)]
    Op(#[from] OpError),
    /// A request that the engine cannot serve.
    #[error("{0}")]
    Request(String),
}
