//! When an attempt's time is over: pure decisions over figures that the loop hands in.

use super::spec::{KillReason, Timeouts};

/// What is known at one look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look<'a> {
    /// Counted time since the start, ns (stopped time left out).
    pub elapsed_ns: u64,
    /// Counted time since the last sign of life, ns.
    pub idle_ns: u64,
    /// CLOCK_MONOTONIC now, ns.
    pub now_ns: u64,
    /// Open phases and the moments at which they began, CLOCK_MONOTONIC ns.
    pub open_phases: &'a [(String, u64)],
    /// Stopped time so far, ns: phases began in CLOCK_MONOTONIC, so it is taken off their age.
    pub stopped_ns: u64,
}

/// The first deadline that is over, the hardest first.
#[must_use]
pub fn over(t: &Timeouts, l: Look<'_>) -> Option<KillReason> {
    let passed = |limit: Option<std::time::Duration>, ns: u64| {
        limit.is_some_and(|d| u128::from(ns) >= d.as_nanos())
    };
    if t.lease_end_mono_ns.is_some_and(|e| l.now_ns >= e) {
        return Some(KillReason::Lease);
    }
    if passed(t.total, l.elapsed_ns) {
        return Some(KillReason::Total);
    }
    for (name, begun) in l.open_phases {
        let age = l.now_ns.saturating_sub(*begun).saturating_sub(l.stopped_ns);
        if passed(t.phases.get(name).copied(), age) {
            return Some(KillReason::Phase(name.clone()));
        }
    }
    passed(t.idle, l.idle_ns).then_some(KillReason::Idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_deadline_is_told_apart() {
        let t = Timeouts {
            total: Some(Duration::from_secs(100)),
            idle: Some(Duration::from_secs(20)),
            phases: [("load".to_owned(), Duration::from_secs(30))].into(),
            lease_end_mono_ns: Some(5000 * S),
            ..Timeouts::default()
        };
        let open = [("load".to_owned(), 1000 * S)];
        let l = Look {
            elapsed_ns: 10 * S,
            idle_ns: 5 * S,
            now_ns: 1010 * S,
            open_phases: &open,
            stopped_ns: 0,
        };
        assert_eq!(over(&t, l), None);
        assert_eq!(
            over(
                &t,
                Look {
                    idle_ns: 20 * S,
                    ..l
                }
            ),
            Some(KillReason::Idle)
        );
        assert_eq!(
            over(
                &t,
                Look {
                    now_ns: 1030 * S,
                    ..l
                }
            ),
            Some(KillReason::Phase("load".into()))
        );
        assert_eq!(
            over(
                &t,
                Look {
                    now_ns: 1030 * S,
                    stopped_ns: 5 * S,
                    ..l
                }
            ),
            None
        );
        assert_eq!(
            over(
                &t,
                Look {
                    elapsed_ns: 100 * S,
                    ..l
                }
            ),
            Some(KillReason::Total)
        );
        assert_eq!(
            over(
                &t,
                Look {
                    now_ns: 5000 * S,
                    ..l
                }
            ),
            Some(KillReason::Lease)
        );
        assert_eq!(
            over(
                &Timeouts::default(),
                Look {
                    elapsed_ns: u64::MAX,
                    ..l
                }
            ),
            None
        );
    }
}
