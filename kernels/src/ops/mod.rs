//! One contract per operation: its numeric id, its arguments with their shapes, and what can go wrong.
//!
//! The [reference tier](mod@crate::reference) defines what each operation computes; a provider may order its sums differently.
//! Shapes are row-major: `[rows, n]` is `rows` runs of `n` elements. Rows are tokens of a step; a step may mix
//! sequences. A row's cache slot is `slots[row]`, and its keys are the slots `base[row] ..= slots[row]`.

mod attention;
mod dense;
mod indexer;
mod moe;

pub(crate) use attention::Keys;
pub use attention::{
    ConcatAndCacheMla, ConcatArgs, FusedArgs, FusedNormRope, MlaArgs, MlaDecodeAttention,
    MlaPrefillAttention, Rope, RopeArgs, RopeStyle, RopeTable, Selection,
};
pub use dense::{
    Add, AddArgs, Argmax, ArgmaxArgs, Embed, EmbedArgs, LayerNorm, LayerNormArgs, MatPart,
    MatmulArgs, MatmulQuant, RmsNorm, RmsNormArgs, SiluMul, SiluMulArgs,
};
pub use indexer::{
    CacheRows, CacheRowsArgs, DsaIndexerLogits, DsaTopkSelect, IndexerArgs, TopkArgs,
};
pub use moe::{Gating, MoeExperts, MoeExpertsArgs, MoeRoute, MoeRouteArgs};

use crate::cpu::Pool;
use crate::tensor::TensorError;

/// Numbers of the operations, as printed in `op=N`. Stable; users know 33.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
#[allow(missing_docs)] // each is documented at its contract type of the same name
pub enum OpId {
    Embed = 1,
    RmsNorm = 2,
    LayerNorm = 3,
    MatmulQuant = 4,
    Add = 6,
    SiluMul = 7,
    Rope = 8,
    Argmax = 9,
    FusedNormRope = 30,
    ConcatAndCacheMla = 31,
    CacheRows = 32,
    MlaPrefillAttention = 33,
    MlaDecodeAttention = 34,
    DsaIndexerLogits = 40,
    DsaTopkSelect = 41,
    MoeRoute = 50,
    MoeExperts = 51,
}

impl OpId {
    /// All operations, by number.
    pub const ALL: [OpId; 17] = [
        OpId::Embed,
        OpId::RmsNorm,
        OpId::LayerNorm,
        OpId::MatmulQuant,
        OpId::Add,
        OpId::SiluMul,
        OpId::Rope,
        OpId::Argmax,
        OpId::FusedNormRope,
        OpId::ConcatAndCacheMla,
        OpId::CacheRows,
        OpId::MlaPrefillAttention,
        OpId::MlaDecodeAttention,
        OpId::DsaIndexerLogits,
        OpId::DsaTopkSelect,
        OpId::MoeRoute,
        OpId::MoeExperts,
    ];

    /// The number printed in `op=N`.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The operation's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OpId::Embed => "Embed",
            OpId::RmsNorm => "RmsNorm",
            OpId::LayerNorm => "LayerNorm",
            OpId::MatmulQuant => "MatmulQuant",
            OpId::Add => "Add",
            OpId::SiluMul => "SiluMul",
            OpId::Rope => "Rope",
            OpId::Argmax => "Argmax",
            OpId::FusedNormRope => "FusedNormRope",
            OpId::ConcatAndCacheMla => "ConcatAndCacheMla",
            OpId::CacheRows => "CacheRows",
            OpId::MlaPrefillAttention => "MlaPrefillAttention",
            OpId::MlaDecodeAttention => "MlaDecodeAttention",
            OpId::DsaIndexerLogits => "DsaIndexerLogits",
            OpId::DsaTopkSelect => "DsaTopkSelect",
            OpId::MoeRoute => "MoeRoute",
            OpId::MoeExperts => "MoeExperts",
        }
    }

    pub(crate) fn index(self) -> usize {
        // `ALL` is in the order of the enum, which the test below holds to.
        OpId::ALL.iter().position(|op| *op == self).unwrap_or(0)
    }
}

/// An operation: a number and the arguments it takes.
pub trait Op: 'static {
    /// Its number.
    const ID: OpId;
    /// Its arguments.
    type Args<'a>;
}

/// What a provider works with besides its arguments.
pub struct Ctx<'c> {
    /// The CPU's threads.
    pub pool: &'c Pool,
    /// The device's own state (streams, modules, scratch) for device providers, `None` on the CPU.
    pub device: Option<&'c mut (dyn std::any::Any + Send)>,
}

/// What an operation can fail with.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// A tensor or weight is not where, or not what, the provider needs.
    #[error("{op}: {what}: {source}", op = op.name())]
    Tensor {
        /// The operation.
        op: OpId,
        /// Which argument.
        what: &'static str,
        /// What is wrong with it.
        source: TensorError,
    },
    /// Arguments that contradict each other.
    #[error("{op}: {what}", op = op.name())]
    Shape {
        /// The operation.
        op: OpId,
        /// What contradicts what.
        what: String,
    },
    /// A device call failed.
    #[error("{op} on device {device}: {what}", op = op.name())]
    Device {
        /// The operation.
        op: OpId,
        /// The device.
        device: crate::device::DeviceKind,
        /// The device's own words.
        what: String,
    },
    /// No provider.
    #[error(transparent)]
    Refused(#[from] crate::registry::Refusal),
}

/// Names the argument in a tensor error.
pub(crate) trait Named<T> {
    fn named(self, op: OpId, what: &'static str) -> Result<T, OpError>;
}

impl<T> Named<T> for Result<T, TensorError> {
    fn named(self, op: OpId, what: &'static str) -> Result<T, OpError> {
        self.map_err(|source| OpError::Tensor { op, what, source })
    }
}

/// Arguments that contradict each other.
pub(crate) fn shape(op: OpId, what: impl Into<String>) -> OpError {
    OpError::Shape {
        op,
        what: what.into(),
    }
}

/// Refuses arguments of which something does not hold.
pub(crate) fn ensure(op: OpId, holds: bool, what: impl FnOnce() -> String) -> Result<(), OpError> {
    if holds {
        Ok(())
    } else {
        Err(shape(op, what()))
    }
}

/// An index from an i32, refused when negative or not below `end`.
pub(crate) fn index(op: OpId, what: &str, value: i32, end: usize) -> Result<usize, OpError> {
    usize::try_from(value)
        .ok()
        .filter(|i| *i < end)
        .ok_or_else(|| shape(op, format!("{what} {value} is outside 0..{end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_the_known_ones_stay() {
        assert_eq!(OpId::MlaPrefillAttention.number(), 33);
        for pair in OpId::ALL.windows(2) {
            assert!(pair[0].number() < pair[1].number());
        }
        for (i, op) in OpId::ALL.iter().enumerate() {
            assert_eq!(op.index(), i);
        }
    }
}
