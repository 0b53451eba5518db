//! Native CPU code.

mod pool;

pub use pool::Pool;

use crate::registry::Registry;

/// Adds the CPU's native providers.
pub fn register(_registry: &mut Registry) {}
