//! What can go wrong in a session.

use legwork_kernels::knobs::KnobError;

use crate::builtin::UnknownModel;
use crate::events::EventsError;
use crate::gguf::GgufError;
use crate::model::ModelError;
use crate::sampling::SamplingError;
use crate::tokenizer::TokenizerError;

/// An engine command that failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such built-in model.
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    /// The model file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model, or its forward.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Chat(#[from] crate::tokenizer::ChatError),
    /// Sampling.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A knob.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// The events descriptor.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// Arguments that cannot be served.
    #[error("{0}")]
    Usage(String),
    /// A file of the user's that cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's own words.
        source: std::io::Error,
    },
}

impl EngineError {
    /// Exit code: 2 where the user's input is at fault, 1 where the engine could not go on (users' tools know 1 as a refusal).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            EngineError::Model(
                ModelError::Op(_) | ModelError::Memory { .. } | ModelError::Request(_),
            )
            | EngineError::Sampling(_) => 1,
            EngineError::Unknown(_)
            | EngineError::Gguf(_)
            | EngineError::Model(_)
            | EngineError::Tokenizer(_)
            | EngineError::Chat(_)
            | EngineError::Knob(_)
            | EngineError::Events(_)
            | EngineError::Usage(_)
            | EngineError::Io { .. } => 2,
        }
    }
}
