//! Kernels written with `std::arch`, one folder per instruction set.
//!
//! Functions here are compiled for their set whatever the build's target; [`super::Isa`] says
//! which of them may be called.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
