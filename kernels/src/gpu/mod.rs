//! GPU devices: one trait, three drivers, one set of operation providers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`driver`] | the [`Driver`] trait: memory, copies, launches, time stamps, graphs, facts |
//! | [`hip`], [`cuda`], [`crate::simt`] | the three drivers |
//! | [`device`] | [`Gpu`]: a driver with codebooks and scratch memory; what [`crate::ops::Ctx::device`] holds |
//! | [`memory`] | device tensors |
//! | [`pack`] | code objects, embedded or from a folder |
//! | [`trace`] | the ring of the last launches, kept in a file that survives the process |
//! | [`staging`] | the pinned ring that weights pass through |
//! | `ops` | the providers |
//! | [`args`] | the kernels' argument structs |
//!
//! To add a kernel: write it in `hip/*.hip`, its struct in `hip/args.h` and [`args`], its launch in `ops`, its test in
//! `ops::tests`, its budget with `scripts/kernel-budget --update`.

pub mod args;
pub mod cuda;
pub mod device;
pub mod driver;
mod error;
pub mod hip;
pub mod memory;
mod ops;
pub mod pack;
pub mod staging;
mod stream;
pub mod trace;

pub use device::{Gpu, Recording};
pub use driver::{Allocator, DeviceFacts, Driver, GraphId, Launch, Mark};
pub use error::GpuError;
pub use memory::{GpuDomain, GpuMemory};
pub use ops::register;
