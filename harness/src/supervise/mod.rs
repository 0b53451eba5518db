//! Supervision of one attempt: spawn, watch, end, account.
//!
//! [`spec`] holds the types that callers use.

pub mod spec;

pub use spec::*;
/// The spawn stub. Stands in until supervision is merged.
pub mod stub {
    /// Refuses.
    #[must_use]
    pub fn main() -> i32 {
        1
    }
}

/// Stands in until supervision is merged.
///
/// # Errors
/// Always.
pub fn run(_: &AttemptSpec, _: &mut dyn Control) -> Result<AttemptOutcome, SuperviseError> {
    Err(SuperviseError::Spec("supervision is not merged yet".into()))
}
