//! One expectation of a gate, apart from the others.

use crate::format::with_unit;
use crate::format::{count, quote, signal_name, signal_number};
use crate::metrics::describe;
use crate::model::{Class, Stamps};

use super::{Bound, Expect, Of, OneOrMany, Same, SignalSpec};

/// One expectation.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// One of these exit codes.
    Exit(Vec<i32>),
    /// One of these signals.
    Signal(Vec<i32>),
    /// Ended by a deadline, or not.
    TimedOut(bool),
    /// The whole text.
    TextEquals(String),
    /// The beginning of the text.
    TextStartsWith(String),
    /// A part of the text.
    TextContains(String),
    /// The token ids.
    TokenIds(Vec<u32>),
    /// At least so many tokens.
    MinCompletionTokens(u64),
    /// So many uses of the reference tier.
    ReferenceTierHits(u64),
    /// Equal across legs and attempts.
    Same(Same),
    /// One of these classes.
    Verdict(Vec<Class>),
    /// Nothing outlived the leader.
    NoLeaks,
    /// Stamps as good as that.
    Stamps(Stamps),
    /// A metric within bounds.
    Metric(String, Bound),
}

impl Expect {
    /// The expectations one by one, in the order of the fields.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let mut out = Vec::new();
        out.extend(
            self.exit
                .as_ref()
                .map(|e| Check::Exit(e.as_slice().to_vec())),
        );
        out.extend(self.signal.as_ref().map(|s| Check::Signal(numbers(s))));
        out.extend(self.timed_out.map(Check::TimedOut));
        out.extend(self.text_equals.clone().map(Check::TextEquals));
        out.extend(self.text_starts_with.clone().map(Check::TextStartsWith));
        out.extend(self.text_contains.clone().map(Check::TextContains));
        out.extend(self.token_ids.clone().map(Check::TokenIds));
        out.extend(self.min_completion_tokens.map(Check::MinCompletionTokens));
        out.extend(self.reference_tier_hits.map(Check::ReferenceTierHits));
        out.extend(self.same.map(Check::Same));
        out.extend(
            self.verdict
                .as_ref()
                .map(|v| Check::Verdict(v.as_slice().to_vec())),
        );
        out.extend(self.no_leaks.filter(|&n| n).map(|_| Check::NoLeaks));
        out.extend(self.stamps.map(Check::Stamps));
        let bounds = self.bounds().into_iter().map(|(n, b)| (n.to_owned(), b));
        out.extend(bounds.map(|(name, b)| Check::Metric(name, b)));
        out
    }

    /// The bounds by the name of their metric.
    #[must_use]
    pub fn bounds(&self) -> Vec<(&str, Bound)> {
        let named = [
            ("wall_s", self.wall_s),
            ("load_s", self.load_s),
            ("load_gib_s", self.load_gib_s),
            ("ttft_s", self.ttft_s),
            ("prefill_s", self.prefill_s),
            ("decode_s", self.decode_s),
            ("prefill_tok_s", self.prefill_tok_s),
            ("decode_tok_s", self.decode_tok_s),
            ("weights_gib", self.weights_gib),
            ("peak_rss_gib", self.peak_rss_gib),
            ("kv_bytes", self.kv_bytes),
            ("prompt_tokens", self.prompt_tokens),
            ("completion_tokens", self.completion_tokens),
        ];
        named
            .into_iter()
            .filter_map(|(name, bound)| Some((name, bound?)))
            .chain(self.metrics.iter().map(|(name, b)| (name.as_str(), *b)))
            .collect()
    }
}

/// The numbers of the signals that have one; `Gate::check` refuses the others.
fn numbers(spec: &OneOrMany<SignalSpec>) -> Vec<i32> {
    spec.as_slice()
        .iter()
        .filter_map(|s| match s {
            SignalSpec::Number(n) => Some(*n),
            SignalSpec::Name(name) => signal_number(name),
        })
        .collect()
}

impl Check {
    /// A token gate: it looks at what was generated, and a leg's speed waits for it.
    #[must_use]
    pub fn is_token(&self) -> bool {
        matches!(
            self,
            Check::TextEquals(_)
                | Check::TextStartsWith(_)
                | Check::TextContains(_)
                | Check::TokenIds(_)
                | Check::Same(_)
        )
    }

    /// Asks for a failure, so that the failure it asks for is none of the run's.
    #[must_use]
    pub fn excuses(&self) -> bool {
        match self {
            Check::Exit(codes) => !codes.contains(&0),
            Check::Signal(_) => true,
            Check::TimedOut(expected) => *expected,
            Check::Verdict(classes) => classes.iter().any(|c| *c != Class::Clean),
            _ => false,
        }
    }

    /// How the attempt went rather than what it computed or measured: where the attempt itself is undecided, so is this.
    #[must_use]
    pub fn follows_verdict(&self) -> bool {
        matches!(
            self,
            Check::Exit(_)
                | Check::Signal(_)
                | Check::TimedOut(_)
                | Check::Verdict(_)
                | Check::MinCompletionTokens(_)
                | Check::NoLeaks
                | Check::Stamps(_)
        )
    }

    /// The expectation in words, e.g. `exit = 0`.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Check::TimedOut(false) => "not timed out".to_owned(),
            Check::NoLeaks => "no leaks".to_owned(),
            Check::Same(Same::TokenIds) => "same token ids".to_owned(),
            Check::Same(Same::Text) => "same text".to_owned(),
            Check::TextStartsWith(_) => format!("text starts with {}", self.expected()),
            Check::TextContains(_) => format!("text contains {}", self.expected()),
            Check::MinCompletionTokens(_) => format!("tokens {}", self.expected()),
            Check::Metric(name, bound) => {
                let of = match bound.of {
                    Of::Each => "",
                    Of::Median => "median ",
                    Of::Mean => "mean ",
                };
                format!("{of}{name} {}", self.expected())
            }
            _ => format!("{} = {}", self.subject(), self.expected()),
        }
    }

    fn subject(&self) -> &'static str {
        match self {
            Check::Exit(_) => "exit",
            Check::Signal(_) => "signal",
            Check::TimedOut(_) => "timed out",
            Check::TextEquals(_) | Check::TextStartsWith(_) | Check::TextContains(_) => "text",
            Check::TokenIds(_) => "token ids",
            Check::MinCompletionTokens(_) => "tokens",
            Check::ReferenceTierHits(_) => "reference-tier hits",
            Check::Same(_) => "same",
            Check::Verdict(_) => "verdict",
            Check::NoLeaks => "leaks",
            Check::Stamps(_) => "stamps",
            Check::Metric(..) => "metric",
        }
    }

    /// What is expected, e.g. `0`.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Check::Exit(codes) => one_of(codes.iter().map(ToString::to_string)),
            Check::Signal(signals) => one_of(signals.iter().map(|&s| signal_name(s))),
            Check::TimedOut(expected) => (if *expected { "yes" } else { "no" }).to_owned(),
            Check::TextEquals(t) | Check::TextStartsWith(t) | Check::TextContains(t) => {
                quote(t, 60)
            }
            Check::TokenIds(ids) => ids_words(ids),
            Check::MinCompletionTokens(n) => format!("≥ {}", count(*n)),
            Check::ReferenceTierHits(n) => count(*n),
            Check::Same(_) => "equal in all attempts".to_owned(),
            Check::Verdict(classes) => one_of(classes.iter().map(ToString::to_string)),
            Check::NoLeaks => "none".to_owned(),
            Check::Stamps(s) => stamps_word(*s).to_owned(),
            Check::Metric(name, bound) => {
                let unit = describe(name).unit;
                let low = bound.min.map(|v| format!("≥ {}", with_unit(Some(v), unit)));
                let high = bound.max.map(|v| format!("≤ {}", with_unit(Some(v), unit)));
                let both: Vec<String> = low.into_iter().chain(high).collect();
                both.join(" and ")
            }
        }
    }
}

fn one_of(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" or ")
}

/// Token ids in brackets, the first eight of them.
pub(super) fn ids_words(ids: &[u32]) -> String {
    let shown: Vec<String> = ids.iter().take(8).map(ToString::to_string).collect();
    let rest = ids.len().saturating_sub(8);
    if rest > 0 {
        format!("[{}, … {rest} more]", shown.join(", "))
    } else {
        format!("[{}]", shown.join(", "))
    }
}

/// `ok` or `suspect`.
pub(super) fn stamps_word(stamps: Stamps) -> &'static str {
    match stamps {
        Stamps::Ok => "ok",
        Stamps::Suspect => "suspect",
    }
}
