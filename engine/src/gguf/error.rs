//! What can be wrong with a GGUF file.

use std::fmt;

/// A GGUF file, or a set of them, could not be used: which file, and what about it.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct GgufError {
    /// The file (path or built-in name) that the problem is in.
    pub file: String,
    /// What is wrong, where, and what to do.
    pub problem: Problem,
}

impl GgufError {
    pub(crate) fn new(file: impl fmt::Display, problem: Problem) -> GgufError {
        GgufError {
            file: file.to_string(),
            problem,
        }
    }
}

/// The ways in which a GGUF file can be unusable. Every message ends in what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's own words.
        source: std::io::Error,
    },
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: {looks_like}")]
    BadMagic {
        /// What the beginning of the file looks like, and what to do.
        looks_like: String,
    },
    /// A version that this reader does not know.
    #[error(
        "GGUF version {found} is not supported (2 and 3 are); convert the model again with a current converter"
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// A big-endian file.
    #[error(
        "big-endian GGUF (the version reads {found:#010x}); convert it with `gguf_convert_endian.py FILE little`"
    )]
    BigEndian {
        /// The version as read.
        found: u32,
    },
    /// The file ends inside its header.
    #[error(
        "truncated at offset {offset}: {what} needs {needed} bytes and {left} are left; the download or copy is incomplete, fetch the file again"
    )]
    Truncated {
        /// Where the reader stood.
        offset: u64,
        /// What was being read.
        what: String,
        /// Bytes that it needs at least.
        needed: u64,
        /// Bytes left in the file.
        left: u64,
    },
    /// The header contradicts itself or the format.
    #[error("damaged header at offset {offset}: {what}; fetch or convert the file again")]
    Header {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A metadata key appears twice.
    #[error(
        "metadata key `{key}` appears twice (second time at offset {offset}); the file was written wrongly, convert it again"
    )]
    DuplicateKey {
        /// The key.
        key: String,
        /// Offset of the second one.
        offset: u64,
    },
    /// A tensor's own description is impossible.
    #[error("tensor `{tensor}` (info at offset {offset}): {what}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// Offset of its info.
        offset: u64,
        /// What is wrong and what to do.
        what: String,
    },
    /// A tensor's data is not wholly inside the file.
    #[error(
        "tensor `{tensor}`: its data is at {begin}..{end} and the file has {size} bytes; the file is truncated, fetch it again"
    )]
    OutsideFile {
        /// The tensor.
        tensor: String,
        /// First byte.
        begin: u64,
        /// One past the last byte.
        end: u64,
        /// The file's size.
        size: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "tensors `{first}` and `{second}` overlap at offset {at}; the file is damaged, convert it again"
    )]
    Overlap {
        /// The tensor that lies first.
        first: String,
        /// The one that begins inside it.
        second: String,
        /// Where the second begins.
        at: u64,
    },
    /// The same tensor is described twice.
    #[error(
        "tensor `{tensor}` is described twice ({where_}); the file or split set is damaged, convert it again"
    )]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// In which shards.
        where_: String,
    },
    /// A shard other than the first was given.
    #[error(
        "this is shard {number} of {count} of a split model; name its first shard instead: {first}"
    )]
    NotFirstShard {
        /// 1-based number of the given shard.
        number: u32,
        /// Shards in the set.
        count: u32,
        /// The file to name.
        first: String,
    },
    /// The set of shards is not whole or not one set.
    #[error("split model: {what}")]
    Split {
        /// What is wrong and what to do.
        what: String,
    },
    /// A key that is needed is absent.
    #[error(
        "metadata key `{key}` is missing; the model was converted for another program or wrongly, convert it again"
    )]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key holds another type than it should.
    #[error("metadata key `{key}` is {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// What the file has.
        found: String,
        /// What was asked for.
        expected: &'static str,
    },
    /// An architecture that the engine does not run.
    #[error("{what}")]
    Architecture {
        /// Which one, and what is supported.
        what: String,
    },
    /// A tensor that is needed is absent.
    #[error("tensor `{tensor}` is missing; the file is incomplete or of another architecture")]
    MissingTensor {
        /// The tensor.
        tensor: String,
    },
    /// A device refused a tensor.
    #[error("tensor `{tensor}`: {what}")]
    Device {
        /// The tensor.
        tensor: String,
        /// The device's words.
        what: String,
    },
    /// Memory for the weights was refused.
    #[error(
        "cannot allocate {bytes} bytes for the weights: {source}; free memory, or use `--mmap`"
    )]
    Memory {
        /// How much.
        bytes: u64,
        /// The system's own words.
        source: std::io::Error,
    },
    /// A buffer of the wrong length was handed to a read.
    #[error(
        "tensor `{tensor}` has {expected} bytes, the buffer given has {given}; this is a bug in the caller"
    )]
    BufferLength {
        /// The tensor.
        tensor: String,
        /// Its size.
        expected: u64,
        /// The buffer's.
        given: u64,
    },
}
