//! Native CPU code.
//!
//! - `isa`: which instructions may be used ([`Isa`])
//! - `pool`: threads that wait for small pieces of work ([`Pool`])
//! - `acts`: activations, rounded once ([`Acts`])
//! - `gemv`: one activation row against many weight rows, in their blocks
//! - `matmul`: many activation rows, over all threads ([`matmul()`])
//! - `simd`: everything written with `std::arch`

pub mod acts;
mod gemv;
mod isa;
mod matmul;
mod out;
mod pool;
mod simd;

pub use acts::{ActKind, ActRow, Acts, ActsError};
pub use gemv::gemv;
pub use isa::Isa;
pub use matmul::{MatmulError, Matrix, Store, matmul};
pub use pool::Pool;

use crate::registry::Registry;

/// Adds the CPU's native providers.
pub fn register(_registry: &mut Registry) {}
