//! From a prompt to text.

use std::time::Instant;

use super::{EngineError, Session};
use crate::events::Event;
use crate::forward::{Choice, Row, Step, Wanted};
use crate::sampling::{Sampler, SamplingOptions, greedy};
use crate::tokenizer::StreamDecoder;

/// Why a generation ended; the words are those of the users' tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it: eos, eot or eom.
    Stop,
    /// As many tokens as were asked for.
    Length,
}

impl FinishReason {
    /// `stop` or `length`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen; sequence `i` of a batch samples with `seed + i`.
    pub sampling: SamplingOptions,
    /// Go on past the model's own end.
    pub ignore_eos: bool,
    /// Number of this run, from 1, and of all runs.
    pub run: (usize, usize),
}

/// What was generated in one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Tokens, the ending one included.
    pub token_ids: Vec<u32>,
    /// Their text; ending and other control tokens left out.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// Seconds for the prompt.
    pub prefill_secs: f64,
    /// Seconds from run start to the first token.
    pub ttft_secs: f64,
    /// Seconds from the first token to the last.
    pub decode_secs: f64,
    /// Seconds in all.
    pub secs: f64,
    /// Whether a step was sparse.
    pub sparse: bool,
}

impl Completion {
    /// Prompt tokens per second.
    #[must_use]
    pub fn prefill_tok_s(&self, prompt_tokens: usize) -> f64 {
        prompt_tokens as f64 / self.prefill_secs
    }

    /// Tokens after the first per second; `None` without any.
    #[must_use]
    pub fn decode_tok_s(&self) -> Option<f64> {
        (self.token_ids.len() > 1).then(|| (self.token_ids.len() - 1) as f64 / self.decode_secs)
    }
}

/// A sequence under way.
struct Live {
    sampler: Sampler,
    stream: StreamDecoder,
    ids: Vec<u32>,
    text: String,
    finish: Option<FinishReason>,
    first: f64,
    last: f64,
}

impl Session {
    /// Runs the same request in `sequences` sequences at once; `on_text` gets sequence and text as it becomes certain.
    ///
    /// # Errors
    /// A prompt that is empty or does not fit, a refusal, a device failure, or logits that are not numbers.
    pub fn generate(
        &mut self,
        request: &Request,
        sequences: usize,
        on_text: &mut dyn FnMut(usize, &str),
    ) -> Result<Vec<Completion>, EngineError> {
        let n = request.prompt.len();
        if n == 0 {
            return Err(EngineError::Usage("the prompt has no tokens".to_owned()));
        }
        let started = Instant::now();
        let (run, of) = request.run;
        let mut live = Vec::with_capacity(sequences);
        for s in 0..sequences {
            self.events.send(&Event::RunBegin {
                run,
                of,
                sequence: s,
                prompt_tokens: n,
            });
            let seed = request.sampling.seed.wrapping_add(s as u64);
            live.push(Live {
                sampler: Sampler::new(SamplingOptions {
                    seed,
                    ..request.sampling
                })?,
                stream: StreamDecoder::new(),
                ids: Vec::new(),
                text: String::new(),
                finish: None,
                first: 0.0,
                last: 0.0,
            });
        }
        let mut prefill_secs = 0.0;
        for (s, sequence) in live.iter_mut().enumerate() {
            let logits = self.prefill(&request.prompt, 0, s)?;
            prefill_secs = started.elapsed().as_secs_f64();
            sequence.first = prefill_secs;
            self.events.send(&Event::FirstToken {
                run,
                sequence: s,
                secs: prefill_secs,
            });
            let id = sequence.sampler.sample(&logits)?;
            self.accept(request, s, sequence, id, on_text);
            sequence.last = started.elapsed().as_secs_f64();
        }
        let mut position = n;
        loop {
            let active: Vec<usize> = (0..sequences)
                .filter(|s| live[*s].finish.is_none())
                .collect();
            if active.is_empty() {
                break;
            }
            let rows: Vec<Row> = active
                .iter()
                .filter_map(|s| {
                    live[*s].ids.last().map(|t| Row {
                        token: *t,
                        position: position as u32,
                        sequence: *s as u32,
                    })
                })
                .collect();
            let step = Step {
                rows: &rows,
                wanted: Wanted::All,
            };
            let mut chosen = Vec::with_capacity(rows.len());
            if request.sampling.temperature == 0.0 {
                self.forward.choose(&step, &mut |_, choice| {
                    chosen.push(match choice {
                        Choice::Token(id) => Ok(id),
                        Choice::None(logits) => greedy(logits),
                    });
                })?;
            } else {
                self.forward.step(&step, None, &mut |r, logits| {
                    chosen.push(live[active[r]].sampler.sample(logits));
                })?;
            }
            for (s, id) in active.iter().zip(chosen) {
                self.accept(request, *s, &mut live[*s], id?, on_text);
                live[*s].last = started.elapsed().as_secs_f64();
            }
            position += 1;
        }
        let top_k = self.forward.config().indexer.as_ref().map(|x| x.top_k);
        let completions: Vec<Completion> = live
            .into_iter()
            .map(|l| Completion {
                sparse: top_k.is_some_and(|k| n + l.ids.len() - 1 > k),
                token_ids: l.ids,
                text: l.text,
                finish: l.finish.unwrap_or(FinishReason::Length),
                prefill_secs,
                ttft_secs: l.first,
                decode_secs: l.last - l.first,
                secs: l.last,
            })
            .collect();
        for (s, c) in completions.iter().enumerate() {
            self.events.send(&Event::RunEnd {
                run,
                of,
                sequence: s,
                finish_reason: c.finish.name(),
                prompt_tokens: n,
                completion_tokens: c.token_ids.len(),
                secs: c.secs,
                tok_s: c.token_ids.len() as f64 / c.secs,
                prefill_secs,
                prefill_tok_s: (n * sequences) as f64 / prefill_secs,
                decode_secs: c.decode_secs,
                decode_tok_s: c.decode_tok_s(),
                text: &c.text,
                token_ids: &c.token_ids,
                sparse: c.sparse,
            });
        }
        Ok(completions)
    }

    /// Sends tokens through the model in chunks, the first of them at position `first`, and returns the last one's logits.
    ///
    /// # Errors
    /// As [`crate::forward::Forward::step`].
    pub fn prefill(
        &mut self,
        prompt: &[u32],
        first: usize,
        sequence: usize,
    ) -> Result<Vec<f32>, EngineError> {
        let mut last = Vec::new();
        let chunk = self.forward.max_rows();
        for (c, part) in prompt.chunks(chunk).enumerate() {
            let rows = Row::run(part, first + c * chunk, sequence);
            let done = c * chunk + part.len() == prompt.len();
            let wanted = if done { Wanted::Last } else { Wanted::None };
            self.forward.step(
                &Step {
                    rows: &rows,
                    wanted,
                },
                None,
                &mut |_, l| last = l.to_vec(),
            )?;
        }
        Ok(last)
    }

    /// Takes a sequence's next token and tells about it.
    fn accept(
        &self,
        request: &Request,
        s: usize,
        l: &mut Live,
        id: u32,
        on_text: &mut dyn FnMut(usize, &str),
    ) {
        l.ids.push(id);
        let tokenizer = self.tokenizer.as_ref();
        let ended = tokenizer.is_some_and(|t| t.vocab().is_end(id)) && !request.ignore_eos;
        let mut text = tokenizer.map(|t| l.stream.push(t, id)).unwrap_or_default();
        l.finish = if ended {
            Some(FinishReason::Stop)
        } else if l.ids.len() >= request.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        };
        if l.finish.is_some() {
            text += &l.stream.finish();
        }
        self.events.send(&Event::Token {
            run: request.run.0,
            sequence: s,
            index: l.ids.len() - 1,
            id,
            text: &text,
        });
        on_text(s, &text);
        l.text += &text;
    }
}
