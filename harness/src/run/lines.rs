//! Figures from output lines, for programs that do not speak our events. Each line is parsed as it is documented; what
//! was not printed stays absent.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;

/// What the lines of a program told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FromLines {
    pub load_header_s: Option<f64>,
    pub load_weights_s: Option<f64>,
    pub load_gib: Option<f64>,
    pub load_gib_s: Option<f64>,
    pub provider_lines: Option<u64>,
    pub reference_tier_hits: Option<u64>,
    pub finish_reason: Option<String>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    pub secs: Option<f64>,
    pub tok_s: Option<f64>,
    pub prefill_tok_s: Option<f64>,
    pub prefill_s: Option<f64>,
    pub text: Option<String>,
}

/// One `run=i/n` line.
#[derive(Debug, Clone, Default)]
struct RunLine {
    finish_reason: Option<String>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    secs: Option<f64>,
    tok_s: Option<f64>,
}

fn compiled(cell: &'static OnceLock<Option<Regex>>, expression: &str) -> Option<&'static Regex> {
    cell.get_or_init(|| Regex::new(expression).ok()).as_ref()
}

/// Takes colour and cursor sequences and carriage returns out of a terminal's line.
pub(super) fn plain(line: &str) -> String {
    static ANSI: OnceLock<Option<Regex>> = OnceLock::new();
    let line = line.trim_end_matches('\r');
    let stripped = match compiled(
        &ANSI,
        r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])",
    ) {
        Some(re) => re.replace_all(line, ""),
        None => line.into(),
    };
    // A progress line rewrites itself: what stands there in the end is after the last return.
    stripped.rsplit('\r').next().unwrap_or_default().to_owned()
}

/// Reads the lines of one attempt. `text` is set when a program printed generated text between its loading line and its
/// first `run=` line, as the users' own command line does.
pub(super) fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> FromLines {
    static WEIGHTS: OnceLock<Option<Regex>> = OnceLock::new();
    static HEADER: OnceLock<Option<Regex>> = OnceLock::new();
    static RUN: OnceLock<Option<Regex>> = OnceLock::new();
    static HITS: OnceLock<Option<Regex>> = OnceLock::new();
    static PREFILL: OnceLock<Option<Regex>> = OnceLock::new();
    let weights = compiled(
        &WEIGHTS,
        r"\[vt load\] weights\s+([0-9.]+) s(?: \(([0-9.]+) GiB, ([0-9.]+) GiB/s\))?",
    );
    let header = compiled(&HEADER, r"\[vt load\] mmap\+header\s+([0-9.]+) s");
    let run = compiled(
        &RUN,
        r"run=(\d+)/(\d+) finish_reason=(\S+) prompt_tokens=(\d+) completion_tokens=(\d+) secs=([0-9.eE+-]+) tok_s=([0-9.eE+-]+)",
    );
    let hits = compiled(&HITS, r"(?:^|[\s:])reference-tier hits: (\d+)\s*$");
    let prefill = compiled(
        &PREFILL,
        r"INFO prefill .*status=done elapsed_s=([0-9.]+) prefill_tok_s=([0-9.]+)",
    );
    let mut out = FromLines::default();
    let mut fallbacks = 0u64;
    let mut providers = 0u64;
    let mut runs: BTreeMap<u64, RunLine> = BTreeMap::new();
    let mut text: Option<Vec<String>> = None;
    let mut text_done = false;
    for raw in lines {
        let line = plain(raw);
        if let Some(c) = header.and_then(|r| r.captures(&line)) {
            out.load_header_s = c[1].parse().ok();
        } else if let Some(c) = weights.and_then(|r| r.captures(&line)) {
            out.load_weights_s = c[1].parse().ok();
            out.load_gib = c.get(2).and_then(|m| m.as_str().parse().ok());
            out.load_gib_s = c.get(3).and_then(|m| m.as_str().parse().ok());
        } else if line.contains("[vt op-provider] op=") {
            providers += 1;
        } else if line.contains("[vt reference-tier]") {
            fallbacks += 1;
        } else if let Some(c) = hits.and_then(|r| r.captures(&line)) {
            out.reference_tier_hits = c[1].parse().ok();
        } else if let Some(c) = prefill.and_then(|r| r.captures(&line)) {
            out.prefill_s = c[1].parse().ok();
            out.prefill_tok_s = c[2].parse().ok();
        } else if let Some(c) = run.and_then(|r| r.captures(&line)) {
            text_done = true;
            let index = c[1].parse().unwrap_or(0);
            runs.insert(
                index,
                RunLine {
                    finish_reason: Some(c[3].to_owned()),
                    prompt_tokens: c[4].parse().ok(),
                    completion_tokens: c[5].parse().ok(),
                    secs: c[6].parse().ok(),
                    tok_s: c[7].parse().ok(),
                },
            );
        } else if line.contains(": loading model from ") {
            text = Some(Vec::new());
        } else if let Some(text) = &mut text
            && !text_done
            && !machine_line(&line)
        {
            text.push(line);
        }
    }
    if let Some(first) = runs.values().next() {
        out.finish_reason.clone_from(&first.finish_reason);
        out.prompt_tokens = first.prompt_tokens;
        out.completion_tokens = first.completion_tokens;
        out.secs = first.secs;
        let rates: Vec<f64> = runs.values().filter_map(|r| r.tok_s).collect();
        out.tok_s = median(rates);
        // Only a run line proves that what stood before it was generated text.
        out.text = text
            .map(|t| t.join("\n").trim_end_matches('\n').to_owned())
            .filter(|t| !t.is_empty());
    }
    out.provider_lines = (providers > 0).then_some(providers);
    if out.reference_tier_hits.is_none() && fallbacks > 0 {
        out.reference_tier_hits = Some(fallbacks);
    }
    out
}

/// Lines of the engine's log that stand between the loading line and the text.
fn machine_line(line: &str) -> bool {
    [
        "[vt ",
        "INFO ",
        "WARN",
        "engine: ",
        "engine-fatal",
        "vllm.cpp: ",
        "[expert-stream]",
        "pinned H2D:",
        "llama_",
        "ggml_",
    ]
    .iter()
    .any(|p| line.starts_with(p))
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|v| v.is_finite());
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines are those of the users' own engine, in the formats that its sources print.
    const FOREIGN: &str = "\
vllm-cli: loading model from /ckpt/m.gguf\r
[vt load] mmap+header       0.027 s\r
[vt load] weights        1372.153 s\r
INFO prefill id=cmpl-0-0 status=done elapsed_s=3.04162 prefill_tok_s=1.64386\r
 Paris, which is\r
vllm-cli: run=1/2 finish_reason=length prompt_tokens=5 completion_tokens=64 secs=7.873 tok_s=8.129\r
vllm-cli: run=2/2 finish_reason=length prompt_tokens=5 completion_tokens=64 secs=7.6 tok_s=8.329\r
[vt op-provider] op=33 device=5 selected=vt-native priority=0 registered=1
reference-tier hits: 0
";

    #[test]
    fn a_foreign_engines_lines_give_its_figures() {
        let got = parse(FOREIGN.lines());
        assert_eq!(got.load_header_s, Some(0.027));
        assert_eq!(got.load_weights_s, Some(1372.153));
        assert_eq!(got.text.as_deref(), Some(" Paris, which is"));
        assert_eq!(
            (got.prompt_tokens, got.completion_tokens),
            (Some(5), Some(64))
        );
        assert_eq!(got.tok_s, Some(8.229));
        assert_eq!(
            (got.reference_tier_hits, got.provider_lines),
            (Some(0), Some(1))
        );
        assert_eq!(got.prefill_tok_s, Some(1.64386));
    }

    #[test]
    fn what_was_not_printed_is_absent_not_zero() {
        let got = parse("hello\nnot reference-tier hits: 0 of 5\n".lines());
        assert_eq!(got, FromLines::default());
        // The other spelling and the switched-off form are other lines.
        assert_eq!(
            parse("reference tier hits: 0\nreference-tier hits: 0_DISABLED\n".lines()),
            FromLines::default()
        );
    }

    #[test]
    fn a_fallback_line_is_a_hit_even_without_a_count() {
        let got = parse("[vt reference-tier] op=7 device=5 has NO native kernel; running the PORTABLE CPU fallback\n".lines());
        assert_eq!(got.reference_tier_hits, Some(1));
    }

    #[test]
    fn colour_and_rewritten_lines_are_read_as_they_stand_in_the_end() {
        assert_eq!(plain("\x1b[31mred\x1b[0m"), "red");
        assert_eq!(plain("10 %\r20 %\r"), "20 %");
        assert_eq!(plain("\x1b]0;title\x07x"), "x");
    }
}
