//! Native CPU code.
//!
//! - `isa`: which instructions may be used ([`Isa`])
//! - `pool`: threads that wait for small pieces of work ([`Pool`])
//! - `acts`: activations, rounded once ([`Acts`])
//! - `gemv`: one activation row against many weight rows, in their blocks
//! - `matmul`: many activation rows, over all threads ([`matmul()`])
//! - `cachemul`: f32 rows against cache rows
//! - `elementwise`: norms, softmax, activations
//! - `out`: outputs that several threads fill
//! - `provide`: the operations' contracts over all that
//! - `simd`: everything written with `std::arch`

pub mod acts;
mod cachemul;
mod elementwise;
mod gemv;
mod isa;
mod matmul;
mod out;
mod pool;
mod provide;
mod simd;

pub use crate::blocks::BlockError;
pub use acts::{ActKind, ActRow, Acts, ActsError};
use elementwise::Element;
pub use gemv::gemv;
pub use isa::Isa;
pub use matmul::{MatmulError, Matrix, Store, matmul};
pub use pool::Pool;
pub use provide::register;
