//! How an attempt ended.

/// How an attempt ended, from `end` or, failing that, from the text of `exit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ending {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// A core was dumped.
    pub core_dumped: bool,
    /// A deadline ended it, ours or `timeout`'s.
    pub timed_out: bool,
    /// The machine went away under it.
    pub host_reset: bool,
    /// The connection to it was lost.
    pub lost_connection: bool,
}

impl Ending {
    /// Nothing is known.
    #[must_use]
    pub fn unknown(&self) -> bool {
        *self == Ending::default()
    }

    /// It exited by itself with 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.code == Some(0)
            && self.signal.is_none()
            && !self.timed_out
            && !self.host_reset
            && !self.lost_connection
    }

    /// Reads the words people use: `0`, `134`, `signal 11`, `signal:6`, `SIGKILL`, `timeout`, `host reset`, `lost connection`.
    #[must_use]
    pub fn parse(text: &str) -> Ending {
        let t = text.trim().to_ascii_lowercase();
        let mut e = Ending::default();
        if t.is_empty() || t == "null" || t == "unknown" {
            return e;
        }
        e.core_dumped = t.contains("core dumped");
        if let Ok(code) = t.parse::<i32>() {
            return e.with_code(code);
        }
        if t.contains("timeout") || t.contains("timed out") || t.contains("deadline") {
            e.timed_out = true;
            return e;
        }
        if t.contains("host")
            && (t.contains("reset")
                || t.contains("reboot")
                || t.contains("lost")
                || t.contains("died"))
            || t == "reboot"
        {
            e.host_reset = true;
            return e;
        }
        if t.contains("connection") || t.contains("unreachable") {
            e.lost_connection = true;
            return e;
        }
        if let Some(signal) = signal_number(&t) {
            e.signal = Some(signal);
            return e;
        }
        let digits: String = t
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        if let Ok(n) = digits.parse::<i32>() {
            return if t.contains("signal") || t.contains("sig") {
                Ending {
                    signal: Some(n),
                    ..e
                }
            } else {
                e.with_code(n)
            };
        }
        e
    }

    /// Shells report a signal as 128 + n, `timeout` its own end as 124.
    pub(super) fn with_code(mut self, code: i32) -> Ending {
        self.code = Some(code);
        if code == 124 {
            self.timed_out = true;
        }
        if matches!(code, 129..=159) {
            self.signal = Some(code - 128);
        }
        self
    }
}

/// `sigsegv`, `segfault`, `killed`, `aborted` …
fn signal_number(t: &str) -> Option<i32> {
    for (word, n) in [
        ("sigsegv", 11),
        ("segfault", 11),
        ("segmentation", 11),
        ("sigabrt", 6),
        ("abort", 6),
        ("sigkill", 9),
        ("killed", 9),
        ("sigterm", 15),
        ("sigint", 2),
        ("sigbus", 7),
        ("sigill", 4),
        ("sigfpe", 8),
        ("sigtrap", 5),
        ("sighup", 1),
        ("sigpipe", 13),
        ("sigxcpu", 24),
    ] {
        if t.contains(word) {
            return Some(n);
        }
    }
    None
}
