//! The timed loops.

use std::time::Instant;

use legwork_kernels::ops::OpId;

use crate::forward::{Row, Step, Wanted};
use crate::model::{Config, OUTPUT};
use crate::session::{EngineError, Session};

/// One test: a prompt of `n_prompt` tokens, or `n_gen` tokens one at a time, after `depth` tokens of context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    /// Prompt tokens; 0 for a decode test.
    pub n_prompt: usize,
    /// Generated tokens; 0 for a prompt test.
    pub n_gen: usize,
    /// Tokens in the cache before the clock starts.
    pub depth: usize,
    /// Sequences decoded together.
    pub batch: usize,
}

impl Test {
    /// Tokens of context that the test needs per sequence.
    #[must_use]
    pub fn context(&self) -> usize {
        self.depth + self.n_prompt + self.n_gen
    }

    /// Name as llama-bench prints it.
    #[must_use]
    pub fn name(&self) -> String {
        let base = if self.n_prompt > 0 {
            format!("pp{}", self.n_prompt)
        } else {
            format!("tg{}", self.n_gen)
        };
        let batch = if self.batch > 1 {
            format!(" x {}", self.batch)
        } else {
            String::new()
        };
        if self.depth > 0 {
            format!("{base}{batch} @ d{}", self.depth)
        } else {
            base + &batch
        }
    }

    /// Tokens that the clock runs for.
    #[must_use]
    pub fn tokens(&self) -> usize {
        (self.n_prompt + self.n_gen) * self.batch
    }
}

/// What a test took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Seconds of each timed run.
    pub secs: Vec<f64>,
    /// Seconds of each operation in one more run, where asked for.
    pub operations: Vec<(OpId, f64)>,
}

/// Runs a test once to warm up, `repeats` times with the clock, and where `by_operation` says so once more with a clock on
/// every operation. The context of a decode test at a depth is filled once: decoding again from the same depth overwrites
/// the same cache slots.
///
/// # Errors
/// As [`crate::forward::Forward::step`].
pub fn run(
    session: &mut Session,
    test: Test,
    repeats: usize,
    by_operation: bool,
) -> Result<Samples, EngineError> {
    let mut tokens = Tokens::new(session.forward.config().vocab);
    for s in 0..test.batch {
        session.prefill(&tokens.take(test.depth), 0, s)?;
    }
    let mut samples = Samples::default();
    for i in 0..=repeats + usize::from(by_operation) {
        if i > repeats {
            session.forward.registry().time_operations(true);
        }
        let prompt = tokens.take(test.n_prompt);
        let generated: Vec<Vec<u32>> = (0..test.n_gen).map(|_| tokens.take(test.batch)).collect();
        let started = Instant::now();
        if test.n_prompt > 0 {
            for s in 0..test.batch {
                session.prefill(&prompt, test.depth, s)?;
            }
        }
        for (g, ids) in generated.iter().enumerate() {
            let position = (test.depth + test.n_prompt + g) as u32;
            let rows: Vec<Row> = ids
                .iter()
                .enumerate()
                .map(|(s, t)| Row {
                    token: *t,
                    position,
                    sequence: s as u32,
                })
                .collect();
            session.forward.step(
                &Step {
                    rows: &rows,
                    wanted: Wanted::All,
                },
                None,
                &mut |_, _| (),
            )?;
        }
        // The first pass brings caches, page tables and clocks to where the others find them.
        if (1..=repeats).contains(&i) {
            samples.secs.push(started.elapsed().as_secs_f64());
        }
    }
    if by_operation {
        let registry = session.forward.registry();
        registry.time_operations(false);
        let spent = registry.time_spent().into_iter();
        samples.operations = spent.map(|(op, t)| (op, t.as_secs_f64())).collect();
    }
    Ok(samples)
}

/// Token ids without a pattern that a model or a cache could use: a 64-bit LCG (Knuth's MMIX constants), the high bits.
struct Tokens {
    state: u64,
    vocab: u64,
}

impl Tokens {
    fn new(vocab: usize) -> Self {
        Tokens {
            state: 1,
            vocab: vocab.max(1) as u64,
        }
    }

    fn take(&mut self, n: usize) -> Vec<u32> {
        (0..n)
            .map(|_| {
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                ((self.state >> 33) % self.vocab) as u32
            })
            .collect()
    }
}

/// Bytes of weights that one token decoded at `depth` reads: everything but the embedding, the experts that are not chosen,
/// and in dense steps the indexer's queries.
#[must_use]
pub fn bytes_per_token(session: &Session, depth: usize) -> f64 {
    let config: &Config = session.forward.config();
    let tied = session.gguf.tensor(OUTPUT).is_none();
    let sparse = config.sparse_at(depth);
    session
        .gguf
        .tensors()
        .iter()
        .map(|t| t.bytes as f64 * config.read_per_token(&t.name, tied, sparse))
        .sum()
}
