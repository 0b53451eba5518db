//! Every operation of a GLM-DSA forward: its meaning, its implementations, and the devices they run on.
//!
//! | module | what it holds |
//! |---|---|
//! | [`blocks`] | the quantised block formats: sizes, exact decoding, activation quantisers |
//! | [`tensor`] | activations and weights, on the host or on a device |
//! | [`ops`] | one contract per operation: numeric id, arguments with shapes, errors |
//! | [`registry`] | which implementation serves an operation on a device, and why |
//! | [`mod@reference`] | the reference tier: portable f32 code that defines what each operation means |
//! | [`cpu`] | native CPU code |
//! | [`gpu`] | GPU devices: drivers, code objects, native providers |
//! | [`simt`] | the GPU sources on the host, every access checked |
//! | [`knobs`] | the environment variables that users know, parsed once |

pub mod blocks;
pub mod cpu;
pub mod device;
pub mod gpu;
pub mod knobs;
pub mod ops;
pub mod reference;
pub mod registry;
pub mod simt;
pub mod tensor;
