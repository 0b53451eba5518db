//! Phases of an attempt: from engine events first, from declared rules for foreign commands.

use std::collections::BTreeMap;

use crate::supervise::spec::{EngineEvent, PhaseRule};

/// Follows the phases. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Default)]
pub struct PhaseTracker {
    rules: Vec<PhaseRule>,
    open: BTreeMap<String, u64>,
    done: BTreeMap<String, f64>,
    from_events: bool,
}

#[allow(clippy::cast_precision_loss)]
fn secs(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl PhaseTracker {
    /// A tracker with the declared rules.
    #[must_use]
    pub fn new(rules: Vec<PhaseRule>) -> Self {
        PhaseTracker {
            rules,
            ..PhaseTracker::default()
        }
    }

    /// Whether lines need to be looked at.
    #[must_use]
    pub fn wants_lines(&self) -> bool {
        !self.rules.is_empty()
    }

    fn close(&mut self, name: &str, at: u64, known: Option<f64>) {
        let begun = self.open.remove(name);
        if let Some(s) = known.or_else(|| begun.map(|b| secs(at.saturating_sub(b)))) {
            self.done.insert(name.to_owned(), s);
        }
    }

    /// An engine event. The seconds that the engine measured itself win over differences of stamps.
    pub fn event(&mut self, e: &EngineEvent, read_ns: u64) {
        let at = if e.mono_ns > 0 { e.mono_ns } else { read_ns };
        let begin = |t: &mut Self, n: &str| {
            t.from_events = true;
            t.open.insert(n.to_owned(), at);
        };
        match e.event.as_str() {
            "load_begin" => begin(self, "load"),
            "load_end" => self.close("load", at, e.f64("secs")),
            "run_begin" => {
                begin(self, "prefill");
                begin(self, "ttft");
            }
            "first_token" => {
                self.close("ttft", at, e.f64("secs"));
                self.close("prefill", at, None);
                begin(self, "decode");
            }
            "run_end" => {
                self.close("decode", at, e.f64("decode_secs"));
                self.close("prefill", at, e.f64("prefill_secs"));
                self.open.remove("ttft");
            }
            _ => {}
        }
    }

    /// A line of output. A phase that is done is not opened again.
    pub fn line(&mut self, text: &str, at: u64) {
        for i in 0..self.rules.len() {
            let r = &self.rules[i];
            if self.from_events && matches!(r.name.as_str(), "load" | "prefill" | "decode" | "ttft")
            {
                continue;
            }
            let (is_open, is_done) = (
                self.open.contains_key(&r.name),
                self.done.contains_key(&r.name),
            );
            let name = r.name.clone();
            if !is_open && !is_done && r.from.is_match(text) {
                let also_end = r.to.is_match(text);
                self.open.insert(name.clone(), at);
                if also_end {
                    self.close(&name, at, None);
                }
            } else if is_open && r.to.is_match(text) {
                self.close(&name, at, None);
            }
        }
    }

    /// Phases that run now, with their beginnings.
    #[must_use]
    pub fn open(&self) -> Vec<(String, u64)> {
        let mut v: Vec<_> = self.open.iter().map(|(n, &t)| (n.clone(), t)).collect();
        v.sort_by_key(|(_, t)| *t);
        v
    }

    /// Phases that ended, in seconds. A phase that was cut off by the end of the attempt is not among them:
    /// how long it would have taken was not observed.
    #[must_use]
    pub fn done(&self) -> BTreeMap<String, f64> {
        self.done.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    fn ev(event: &str, mono_ns: u64, fields: serde_json::Value) -> EngineEvent {
        let fields = fields.as_object().cloned().unwrap_or_default();
        EngineEvent {
            event: event.into(),
            mono_ns,
            fields,
        }
    }

    #[test]
    fn events_give_phases_and_the_engines_own_seconds_win() {
        let mut t = PhaseTracker::new(Vec::new());
        let n = serde_json::Value::Null;
        t.event(&ev("load_begin", 1_000_000_000, n.clone()), 0);
        assert_eq!(t.open()[0].0, "load");
        t.event(&ev("load_end", 3_500_000_000, n.clone()), 0);
        t.event(&ev("run_begin", 4_000_000_000, n.clone()), 0);
        t.event(
            &ev(
                "first_token",
                4_250_000_000,
                serde_json::json!({"secs": 0.25}),
            ),
            0,
        );
        t.event(
            &ev(
                "run_end",
                6_000_000_000,
                serde_json::json!({"decode_secs": 1.7, "prefill_secs": 0.2}),
            ),
            0,
        );
        let d = t.done();
        assert_eq!(d["load"], 2.5);
        assert_eq!(d["ttft"], 0.25);
        assert_eq!(d["prefill"], 0.2);
        assert_eq!(d["decode"], 1.7);
        assert!(t.open().is_empty());
    }

    #[test]
    fn rules_give_phases_and_an_unfinished_one_has_no_length() {
        let rule = |n: &str, a: &str, b: &str| PhaseRule {
            name: n.into(),
            from: Regex::new(a).unwrap(),
            to: Regex::new(b).unwrap(),
        };
        let mut t = PhaseTracker::new(vec![
            rule("load", "loading model", r"weights\s"),
            rule("forward", "forward", "done"),
        ]);
        t.line("vllm-cli: loading model from x", 2_000_000_000);
        t.line("[vt load] weights 1.0 s", 5_000_000_000);
        t.line("loading model again", 6_000_000_000);
        t.line("forward begins", 7_000_000_000);
        assert_eq!(t.done(), BTreeMap::from([("load".to_owned(), 3.0)]));
        assert_eq!(t.open(), [("forward".to_owned(), 7_000_000_000)]);
    }
}
