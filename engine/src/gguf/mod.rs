//! GGUF model files: reading them without trusting them.
//!
//! - `source`: where bytes come from (a file by `pread`, a mapping, memory).
//! - `cursor`: the bounded little-endian reader everything else is parsed with.
//! - `value`: metadata values; `tensor`: tensor infos; `header`: one shard's header.
//! - `split`: names of a split set's shards and the checks across them.
//! - `file`: [`Gguf`], the whole model: one file or a split set.
//! - `error`: what can be wrong, where, and what to do about it.
//! - `sniff`: what a file that is not GGUF looks like instead.
//! - [`load`]: weights into memory, fast.
//! - `writer`: the other direction, for synthetic models and tests.
//!
//! Invariants: no input makes this module panic; no length read from a file is believed before it
//! is compared with the bytes that are left, so memory stays within a small multiple of the header's
//! size; tensor ranges are inside their file, aligned and disjoint once [`Gguf::open`] returns.

mod cursor;
mod error;
mod file;
mod header;
pub mod load;
mod sniff;
mod source;
mod split;
mod tensor;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub use error::{GgufError, Problem};
pub use file::{Gguf, SUPPORTED_ARCHITECTURES, Shard};
pub use tensor::TensorInfo;
pub use value::{Array, Strings, Value, ValueType};
pub use writer::HeaderWriter;
