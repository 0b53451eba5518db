//! The clocks: CLOCK_MONOTONIC for spans and stamps, CLOCK_BOOTTIME to relate kernel stamps, wall time for people.

use chrono::{DateTime, Utc};
use nix::time::{ClockId, clock_gettime};

fn read(id: ClockId) -> u64 {
    clock_gettime(id).map_or(0, |t| {
        u64::try_from(t.tv_sec())
            .unwrap_or(0)
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::try_from(t.tv_nsec()).unwrap_or(0))
    })
}

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
pub fn mono_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME in nanoseconds (runs on while the machine sleeps).
#[must_use]
pub fn boot_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Wall time.
#[must_use]
pub fn wall() -> DateTime<Utc> {
    Utc::now()
}

/// CLOCK_BOOTTIME minus CLOCK_MONOTONIC in nanoseconds: the time that the machine has slept.
#[must_use]
pub fn boot_offset_ns() -> i64 {
    let a = mono_ns();
    let boot = boot_ns();
    let b = mono_ns();
    let mid = a / 2 + b / 2;
    i64::try_from(i128::from(boot) - i128::from(mid)).unwrap_or(0)
}

/// A stopwatch that counts only time in which we ran: a gap between two looks that is much longer than the
/// longest planned sleep means that this process was stopped (^Z, a debugger, a paused container), and the
/// excess is left out.
#[derive(Debug, Clone)]
pub struct Stopwatch {
    last_ns: u64,
    counted_ns: u64,
    stopped_ns: u64,
    longest_gap_ns: u64,
}

impl Stopwatch {
    /// Starts now; `longest_gap_ns` is the longest time between two looks that is still ordinary.
    #[must_use]
    pub fn start(now_ns: u64, longest_gap_ns: u64) -> Self {
        Stopwatch {
            last_ns: now_ns,
            counted_ns: 0,
            stopped_ns: 0,
            longest_gap_ns,
        }
    }

    /// Looks at the clock; returns the nanoseconds counted by this look.
    pub fn look(&mut self, now_ns: u64) -> u64 {
        let gap = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        let counted = gap.min(self.longest_gap_ns);
        self.counted_ns = self.counted_ns.saturating_add(counted);
        self.stopped_ns = self.stopped_ns.saturating_add(gap - counted);
        counted
    }

    /// Forgets the time since the last look: it was spent stopped.
    pub fn skip_to(&mut self, now_ns: u64) {
        self.stopped_ns += now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
    }

    /// Nanoseconds counted.
    #[must_use]
    pub fn counted_ns(&self) -> u64 {
        self.counted_ns
    }

    /// Nanoseconds left out.
    #[must_use]
    pub fn stopped_ns(&self) -> u64 {
        self.stopped_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_leaves_out_time_spent_stopped() {
        let mut w = Stopwatch::start(1_000, 100);
        w.look(1_050);
        w.look(1_150);
        assert_eq!((w.counted_ns(), w.stopped_ns()), (150, 0));
        w.look(9_150); // stopped for 7.9 of these 8 µs
        assert_eq!((w.counted_ns(), w.stopped_ns()), (250, 7_900));
        w.skip_to(20_000);
        w.look(20_010);
        assert_eq!(w.counted_ns(), 260);
    }

    #[test]
    fn the_clocks_move_forward() {
        let a = mono_ns();
        let b = mono_ns();
        assert!(a > 0 && b >= a);
        assert!(boot_offset_ns() >= -1_000_000);
    }
}
