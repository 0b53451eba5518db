//! What can be wrong with a tensor type or with the bytes of a row.

use super::BlockType;

/// Why a number is no tensor type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeIdError {
    /// Once defined, since withdrawn.
    #[error(
        "tensor type {id} was removed from GGUF (Q4_2, Q4_3, or a repacked Q4_0/IQ4_NL); requantise the model with a current llama.cpp"
    )]
    Removed {
        /// The number in the file.
        id: u32,
    },
    /// Used by a fork only.
    #[error(
        "tensor type {id} belongs to ik_llama.cpp (IQ*_K, *_KT, *_R4), not to GGUF; use a file made for llama.cpp"
    )]
    Fork {
        /// The number in the file.
        id: u32,
    },
    /// Not defined by anyone.
    #[error("tensor type {id} is unknown; the file is damaged, or newer than this program")]
    Unknown {
        /// The number in the file.
        id: u32,
    },
}

/// Why bytes cannot be read as blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A row must be whole blocks.
    #[error("a row of {n} elements is not a multiple of {}'s block of {}", ty.name(), ty.block_len())]
    RowLength {
        /// The tensor's type.
        ty: BlockType,
        /// Elements asked for.
        n: usize,
    },
    /// The size in bytes overflows.
    #[error("a row of {n} {} elements is larger than memory can address", ty.name())]
    TooLarge {
        /// The tensor's type.
        ty: BlockType,
        /// Elements asked for.
        n: usize,
    },
    /// The bytes handed over are not the blocks of the elements wanted.
    #[error("{n} {} elements need {expected} bytes, but {found} were given", ty.name())]
    ByteLength {
        /// The tensor's type.
        ty: BlockType,
        /// Elements asked for.
        n: usize,
        /// Bytes that many elements take.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}
