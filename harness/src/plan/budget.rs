//! The deadlines of all attempts against the time that the lease leaves.

use std::time::Duration;

use super::Step;
use crate::legfile::{LegSet, format_duration};

/// Worst case against lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Sum of all total deadlines and graces; `None` when a leg has no total deadline.
    pub worst_case: Option<Duration>,
    /// Time for attempts: the lease less the reserve; `None` without a lease.
    pub available: Option<Duration>,
    /// What is wrong with it.
    pub warning: Option<String>,
}

/// Compares the worst case of `steps` with the lease of the set.
#[must_use]
pub fn budget(set: &LegSet, steps: &[Step]) -> Budget {
    let worst_case = steps.iter().try_fold(Duration::ZERO, |sum, step| {
        let timeout = &set.legs[step.leg].timeout;
        Some(
            sum.saturating_add(timeout.total?)
                .saturating_add(timeout.grace),
        )
    });
    let available = set.max_runtime.map(|max| max.saturating_sub(set.reserve));
    let warning = match (worst_case, available) {
        (Some(worst), Some(available)) if worst > available => Some(format!(
            "in the worst case the attempts take {}, but the lease leaves {}: attempts that no longer fit are not begun and are owed",
            format_duration(worst),
            format_duration(available)
        )),
        (None, Some(available)) => Some(format!(
            "a leg has no `timeout: total`: it may use up the whole of the lease's {}",
            format_duration(available)
        )),
        _ => None,
    };
    Budget {
        worst_case,
        available,
        warning,
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::plan;
    use std::path::Path;

    fn warning(max: &str, timeout: &str) -> Option<String> {
        let text = format!(
            "name: t\nrepeat: 2\nmax_runtime: {max}\ndefaults: {{command: [/bin/true], timeout: {timeout}}}\nlegs: [{{name: a}}]\n"
        );
        plan(
            &crate::legfile::parse(Path::new("t"), Path::new("/"), &text).unwrap(),
            0,
        )
        .budget
        .warning
    }

    #[test]
    fn a_lease_that_is_too_short_is_said_with_both_numbers() {
        let text = warning("30m", "{total: 20m}").unwrap();
        assert!(text.contains("40m20s") && text.contains("29m"), "{text}");
        assert_eq!(warning("1h", "{total: 20m}"), None);
        assert!(
            warning("1h", "{idle: 20m}")
                .unwrap()
                .contains("no `timeout: total`")
        );
    }
}
