//! The `simt` device: the GPU sources of `kernels/hip` compiled for the host, one fibre per GPU thread.
//!
//! Every access is checked against the allocation its pointer came from, shared memory is poisoned and watched for races,
//! barriers and wave operations must be reached by all, and the schedule follows a seed (`LEGWORK_SIMT_SEED`). It is slow
//! and exact: a kernel that is wrong here gets a [`Report`] with kernel, source line, block, thread, buffer and index.
//!
//! - `report`: what was found
//! - `ffi`: the C side, `kernels/simt/runtime.cpp`
//! - `pool`: helper threads
//! - `driver`: the [`crate::gpu::Driver`]
//!
//! The runtime is C++; a build without a C++ compiler has no `simt` device, and opening it says so.

#[cfg(simt)]
mod driver;
#[cfg(simt)]
mod ffi;
#[cfg(simt)]
mod pool;
mod report;

#[cfg(simt)]
pub use driver::SimtDriver;
pub use report::{Fault, Report};

use crate::gpu::GpuError;
use std::sync::Arc;

/// Opens the device.
///
/// # Errors
/// This binary was built without a C++ compiler.
pub fn open() -> Result<Arc<dyn crate::gpu::Driver>, GpuError> {
    #[cfg(simt)]
    {
        let seed = std::env::var("LEGWORK_SIMT_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(1);
        Ok(Arc::new(SimtDriver::new(seed)))
    }
    #[cfg(not(simt))]
    Err(GpuError::Absent {
        device: crate::device::DeviceKind::Simt,
        reason: format!(
            "{}; install g++ or clang++ and build again",
            option_env!("LEGWORK_SIMT_ABSENT")
                .unwrap_or("no C++ compiler was found when this binary was built")
        ),
    })
}

#[cfg(test)]
#[cfg(simt)]
mod tests;
