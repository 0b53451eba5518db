//! Judges whether read stamps are the times at which lines were written.
//!
//! A writer that fills a buffer (a pipe inside the leg, a C++ stream that is not flushed) lets nothing be seen for a
//! long time and then many lines at once: all of them share one read. Such stamps say when the buffer was
//! flushed, not when the lines were written.

use legwork_reports::model::Stamps;

/// Silence before a burst, nanoseconds, that makes it suspicious.
const SILENCE_NS: u64 = 2_000_000_000;
/// Lines of one read that make it a burst.
const BURST_LINES: u64 = 20;

/// Sees every read of a stream.
#[derive(Debug, Default)]
pub struct StampJudge {
    last_read_ns: Option<u64>,
    lines: u64,
    bursts: u64,
    burst_lines: u64,
}

impl StampJudge {
    /// The attempt began; silence counts from here.
    pub fn begin(&mut self, mono_ns: u64) {
        self.last_read_ns = Some(mono_ns);
    }

    /// The attempt was stopped until this moment: the silence was nobody's.
    pub fn resumed(&mut self, mono_ns: u64) {
        self.last_read_ns = self.last_read_ns.max(Some(mono_ns));
    }

    /// One read returned with so many complete lines.
    pub fn read(&mut self, mono_ns: u64, lines: u64) {
        let silence = self.last_read_ns.map_or(0, |l| mono_ns.saturating_sub(l));
        self.last_read_ns = Some(mono_ns);
        self.lines += lines;
        if silence >= SILENCE_NS && lines >= BURST_LINES {
            self.bursts += 1;
            self.burst_lines += lines;
        }
    }

    /// The judgement; `None` when there was no line.
    #[must_use]
    pub fn judge(&self) -> Option<Stamps> {
        if self.lines == 0 {
            None
        } else if self.bursts > 0 {
            Some(Stamps::Suspect)
        } else {
            Some(Stamps::Ok)
        }
    }

    /// A sentence for the report when stamps are suspect.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        (self.bursts > 0).then(|| {
            format!(
                "TIMESTAMPS=SUSPECT: {} of {} lines came in {} read(s) after a silence of 2 s or more: the writer \
                 buffers, so these stamps are the moments of its flushes",
                self.burst_lines, self.lines, self.bursts
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_flush_after_silence_is_suspect_and_a_table_is_not() {
        let mut j = StampJudge::default();
        j.begin(0);
        assert_eq!(j.judge(), None);
        j.read(S / 10, 1);
        j.read(S / 5, 60); // a table printed while the program talks
        j.read(20 * S, 3); // a few lines after a silence
        assert_eq!(j.judge(), Some(Stamps::Ok));
        j.read(4118 * S, 55); // all lines stamped [ 4118s]
        assert_eq!(j.judge(), Some(Stamps::Suspect));
        assert!(j.why().unwrap().contains("55 of 119 lines"));
    }

    #[test]
    fn silence_while_stopped_is_no_silence() {
        let mut j = StampJudge::default();
        j.begin(0);
        j.read(S, 1);
        j.resumed(60 * S);
        j.read(61 * S, 40);
        assert_eq!(j.judge(), Some(Stamps::Ok));
    }
}
