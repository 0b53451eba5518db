//! Arms compared: by which variables they differ, by how much, and whether that is more than chance.

mod arms;
mod baseline;
mod faults;
mod metric;
mod owed;
mod pair;
mod variables;

pub use arms::compare_arms;
pub use baseline::{Change, LegDiff, ReportDiff, VerdictChange, compare_reports};
pub use faults::{compare_faults, fault_ratio};
pub use metric::{METHOD_NONE, compare_metric};
pub use owed::owed;
pub use pair::{Pair, PairError};
pub use variables::{Variable, variables};

#[cfg(test)]
mod tests;
