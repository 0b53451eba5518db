//! Figures of an attempt: from the engine's events where there are any, from output lines otherwise.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use legwork_reports::model::{Metrics, PhaseSource, Phases};

use super::lines::{self, median};
use crate::supervise::EngineEvent;

/// Most bytes of output and events that are looked at for figures.
const MOST: u64 = 256 << 20;
/// A longer line is no line of ours.
const LONGEST_LINE: usize = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;

/// What an attempt showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Phase durations.
    pub phases: Phases,
    /// Where they come from.
    pub phases_from: Option<PhaseSource>,
    /// Figures.
    pub metrics: Metrics,
    /// Generated text of the first run.
    pub text: Option<String>,
    /// Token ids of the first run.
    pub token_ids: Option<Vec<u32>>,
    /// Uses of the reference tier.
    pub reference_tier_hits: Option<u64>,
    /// Op-provider lines or events.
    pub provider_lines: Option<u64>,
    /// Why generation stopped.
    pub finish_reason: Option<String>,
    /// Device that the engine chose.
    pub device: Option<String>,
    /// The engine's last words.
    pub fatal: Option<String>,
}

/// Reads `events.jsonl` and `output.raw` of an attempt's folder. `declared` are the phases that the supervisor measured by
/// the leg's own expressions.
#[must_use]
pub fn observe(dir: &Path, declared: &BTreeMap<String, f64>) -> Observed {
    let mut from_events = EventFigures::default();
    each_line(&dir.join("events.jsonl"), |line| {
        if let Ok(event) = serde_json::from_slice::<EngineEvent>(line) {
            from_events.take(&event);
        }
    });
    let mut text = Vec::new();
    let mut output: Vec<String> = Vec::new();
    each_line(&dir.join("output.raw"), |line| {
        output.push(String::from_utf8_lossy(line).into_owned())
    });
    each_line(&dir.join("stderr.raw"), |line| {
        text.push(String::from_utf8_lossy(line).into_owned())
    });
    let from_lines = lines::parse(output.iter().chain(&text).map(String::as_str));
    merge(from_events, from_lines, declared)
}

fn each_line(path: &Path, mut take: impl FnMut(&[u8])) {
    let Ok(file) = File::open(path) else { return };
    let mut reader = BufReader::new(file.take(MOST));
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() <= LONGEST_LINE => take(line.strip_suffix(b"\n").unwrap_or(&line)),
            Ok(_) => {}
        }
    }
}

/// What the events told so far.
#[derive(Debug, Default)]
struct EventFigures {
    any: bool,
    load_begin_ns: Option<u64>,
    load_s: Option<f64>,
    header_s: Option<f64>,
    weights_bytes: Option<f64>,
    load_bytes: Option<f64>,
    load_gib_s: Option<f64>,
    ttft: Vec<f64>,
    prefill: Vec<f64>,
    decode: Vec<f64>,
    prefill_tok_s: Vec<f64>,
    decode_tok_s: Vec<f64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    finish_reason: Option<String>,
    text: Option<String>,
    token_ids: Option<Vec<u32>>,
    streamed_ids: Vec<u32>,
    streamed_text: String,
    kv_bytes: Option<u64>,
    hits: Option<u64>,
    providers: u64,
    device: Option<String>,
    fatal: Option<String>,
}

impl EventFigures {
    fn take(&mut self, event: &EngineEvent) {
        self.any = true;
        let is_first_run = event.u64("run").is_none_or(|run| run <= 1);
        match event.event.as_str() {
            "load_begin" => self.load_begin_ns = Some(event.mono_ns),
            "load_header" => self.header_s = event.f64("secs"),
            "load_end" => {
                let span = self
                    .load_begin_ns
                    .filter(|&b| event.mono_ns > b)
                    .map(|b| nanoseconds(event.mono_ns - b));
                self.load_s = span.or_else(|| event.f64("secs"));
                self.weights_bytes = event.f64("weights_bytes");
                self.load_gib_s = event.f64("gib_s");
                // An engine that gives no rate although it could has loaded nothing: its weights were in place.
                if !event.fields.contains_key("gib_s") {
                    self.load_bytes = event.f64("bytes").or(self.weights_bytes);
                }
            }
            "device" => self.device = event.str("device").map(str::to_owned),
            "op_provider" => self.providers += 1,
            "kv" => self.kv_bytes = event.u64("bytes"),
            "first_token" => self.ttft.extend(event.f64("secs")),
            "token" if is_first_run && event.u64("sequence").unwrap_or(0) == 0 => {
                self.streamed_ids
                    .extend(event.u64("id").and_then(|id| u32::try_from(id).ok()));
                self.streamed_text
                    .push_str(event.str("text").unwrap_or_default());
            }
            "run_end" => {
                self.prefill.extend(event.f64("prefill_secs"));
                self.decode.extend(event.f64("decode_secs"));
                self.prefill_tok_s.extend(event.f64("prefill_tok_s"));
                self.decode_tok_s.extend(event.f64("decode_tok_s"));
                // Of several sequences of one prompt the first is the answer.
                if is_first_run && event.u64("sequence").unwrap_or(0) == 0 {
                    self.prompt_tokens = event.u64("prompt_tokens");
                    self.completion_tokens = event.u64("completion_tokens");
                    self.finish_reason = event.str("finish_reason").map(str::to_owned);
                    self.text = event.str("text").map(str::to_owned);
                    self.token_ids = event
                        .fields
                        .get("token_ids")
                        .and_then(|v| serde_json::from_value(v.clone()).ok());
                }
            }
            "reference_tier_hits" => self.hits = event.u64("hits"),
            "fatal" => self.fatal = event.str("message").map(str::to_owned),
            _ => {}
        }
    }
}

#[allow(clippy::cast_precision_loss)] // 104 days are exact
fn nanoseconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Medians over the runs of one process: the first run of several is not the usual one.
fn merge(
    events: EventFigures,
    from_lines: lines::FromLines,
    declared: &BTreeMap<String, f64>,
) -> Observed {
    let mut metrics = Metrics {
        weights_gib: events
            .weights_bytes
            .map(|b| b / GIB)
            .or(from_lines.load_gib),
        prompt_tokens: events.prompt_tokens.or(from_lines.prompt_tokens),
        completion_tokens: events.completion_tokens.or(from_lines.completion_tokens),
        prefill_tok_s: median(events.prefill_tok_s).or(from_lines.prefill_tok_s),
        decode_tok_s: median(events.decode_tok_s),
        kv_bytes: events.kv_bytes,
        load_gib_s: events
            .load_gib_s
            .or(match (events.load_bytes, events.load_s) {
                (Some(bytes), Some(secs)) if secs > 0.0 && bytes > 0.0 => Some(bytes / GIB / secs),
                _ => from_lines.load_gib_s,
            }),
        ..Metrics::default()
    };
    for (name, value) in [
        (
            "load_header_s",
            events.header_s.or(from_lines.load_header_s),
        ),
        ("load_weights_s", from_lines.load_weights_s),
        // A whole request, prompt included: not a decode rate, so it does not pass for one.
        ("request_s", from_lines.secs.filter(|_| !events.any)),
        ("request_tok_s", from_lines.tok_s.filter(|_| !events.any)),
    ] {
        if let Some(value) = value {
            metrics.other.insert(name.to_owned(), value);
        }
    }
    let mut phases = Phases {
        load_s: events.load_s.or(from_lines
            .load_weights_s
            .map(|w| w + from_lines.load_header_s.unwrap_or(0.0))),
        ttft_s: median(events.ttft),
        prefill_s: median(events.prefill).or(from_lines.prefill_s),
        decode_s: median(events.decode),
        declared: BTreeMap::new(),
    };
    let mut phases_from = events.any.then_some(PhaseSource::Events);
    if !events.any {
        for (name, secs) in declared {
            match name.as_str() {
                "load" if phases.load_s.is_none() => phases.load_s = Some(*secs),
                "ttft" => phases.ttft_s = Some(*secs),
                "prefill" if phases.prefill_s.is_none() => phases.prefill_s = Some(*secs),
                "decode" => phases.decode_s = Some(*secs),
                _ => {
                    phases.declared.insert(name.clone(), *secs);
                }
            }
            phases_from = Some(PhaseSource::Stamps);
        }
    }
    // An engine that died in the middle has told its tokens one by one.
    let token_ids = events
        .token_ids
        .or_else(|| (!events.streamed_ids.is_empty()).then_some(events.streamed_ids));
    let text = events
        .text
        .or_else(|| (!events.streamed_text.is_empty()).then_some(events.streamed_text))
        .or(from_lines.text);
    Observed {
        phases,
        phases_from,
        metrics,
        text,
        token_ids,
        reference_tier_hits: events.hits.or(from_lines.reference_tier_hits),
        provider_lines: if events.providers > 0 {
            Some(events.providers)
        } else {
            from_lines.provider_lines
        },
        finish_reason: events.finish_reason.or(from_lines.finish_reason),
        device: events.device,
        fatal: events.fatal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(events: &str, output: &str) -> Observed {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("events.jsonl"), events).unwrap();
        std::fs::write(dir.path().join("output.raw"), output).unwrap();
        observe(dir.path(), &BTreeMap::new())
    }

    const EVENTS: &str = r#"{"event":"load_begin","mono_ns":1000000000,"path":"m"}
{"event":"load_end","mono_ns":3000000000,"secs":1.9,"bytes":2147483648,"weights_bytes":1073741824}
not json
{"event":"op_provider","mono_ns":1,"op":33,"selected":"native"}
{"event":"kv","mono_ns":1,"max_tokens":10,"bytes":4096}
{"event":"first_token","mono_ns":1,"run":1,"secs":0.5}
{"event":"token","mono_ns":1,"run":1,"index":0,"id":7,"text":" P"}
{"event":"run_end","mono_ns":1,"run":1,"of":2,"finish_reason":"length","prompt_tokens":5,"completion_tokens":8,"prefill_secs":0.5,"prefill_tok_s":10.0,"decode_secs":1.0,"decode_tok_s":7.0,"text":" Paris","token_ids":[7,8]}
{"event":"run_end","mono_ns":1,"run":2,"of":2,"finish_reason":"stop","prompt_tokens":5,"completion_tokens":3,"prefill_secs":0.3,"prefill_tok_s":20.0,"decode_secs":2.0,"decode_tok_s":9.0,"text":"x","token_ids":[9]}
{"event":"reference_tier_hits","mono_ns":1,"hits":0}
"#;

    #[test]
    fn events_give_phases_figures_and_the_first_runs_text() {
        let got = observed(
            EVENTS,
            "run=1/1 finish_reason=x prompt_tokens=99 completion_tokens=99 secs=1 tok_s=1\n",
        );
        assert_eq!(got.phases.load_s, Some(2.0));
        assert_eq!(got.metrics.load_gib_s, Some(1.0));
        assert_eq!(got.metrics.weights_gib, Some(1.0));
        assert_eq!(
            (got.metrics.decode_tok_s, got.metrics.prefill_tok_s),
            (Some(8.0), Some(15.0))
        );
        assert_eq!(
            (got.text.as_deref(), got.token_ids.as_deref()),
            (Some(" Paris"), Some([7, 8].as_slice()))
        );
        assert_eq!(
            (got.reference_tier_hits, got.provider_lines),
            (Some(0), Some(1))
        );
        assert_eq!(got.metrics.prompt_tokens, Some(5));
        assert!(got.metrics.other.is_empty(), "{:?}", got.metrics.other);
    }

    #[test]
    fn an_engine_that_died_has_told_its_tokens_one_by_one() {
        let got = observed(
            "{\"event\":\"token\",\"mono_ns\":1,\"run\":1,\"index\":0,\"id\":7,\"text\":\" P\"}\n{\"event\":\"fatal\",\"mono_ns\":2,\"message\":\"m\"}\n{\"event\":\"tok",
            "",
        );
        assert_eq!(
            (
                got.text.as_deref(),
                got.token_ids.as_deref(),
                got.fatal.as_deref()
            ),
            (Some(" P"), Some([7].as_slice()), Some("m"))
        );
        assert_eq!(got.metrics.decode_tok_s, None);
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        let got = observe(Path::new("/nonexistent"), &BTreeMap::new());
        assert_eq!(got, Observed::default());
    }
}
