//! Choosing the next token from logits.
//!
//! Order of the filters (as in `transformers` and vLLM): temperature, then top-k, then top-p, then
//! min-p, then one draw. Each works on what the one before left, renormalised. Ties go to the lower
//! id everywhere. A seed gives the same tokens on every machine: the generator is ChaCha12, and the
//! exponential is computed here from additions and multiplications alone (`exp`), because the
//! platforms' own differ in the last bit.

mod exp;
#[cfg(test)]
mod tests;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Why no token could be chosen, or the settings make no sense.
#[derive(Debug, thiserror::Error, Clone, PartialEq)]
pub enum SamplingError {
    /// A logit is not a number: the forward is wrong, or the weights are damaged.
    #[error("logit {index} of {len} is NaN; the forward pass or the weights are wrong")]
    NotANumber {
        /// The first one.
        index: usize,
        /// Logits in all.
        len: usize,
    },
    /// There is nothing to choose from.
    #[error("no token can be chosen: {0}")]
    Nothing(&'static str),
    /// A setting is out of range.
    #[error("{name} is {value}, expected {expected}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The range.
        expected: &'static str,
    },
}

/// How tokens are chosen. The default is greedy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// 0 is greedy: the largest logit, ties to the lower id, and the other settings have no effect.
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest most likely tokens whose probabilities sum to at least this; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

impl SamplingOptions {
    /// Checks the ranges; the messages name the setting as on the command line.
    pub fn check(&self) -> Result<(), SamplingError> {
        let bad = |name, value, expected| {
            Err(SamplingError::Setting {
                name,
                value,
                expected,
            })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return bad("temperature", self.temperature, "a number of at least 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return bad("top_p", self.top_p, "more than 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return bad("min_p", self.min_p, "0 to 1");
        }
        Ok(())
    }
}

/// Chooses tokens one after the other; holds the random state and its scratch.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplingOptions,
    rng: ChaCha12Rng,
    candidates: Vec<Candidate>,
}

/// A token that may still be chosen. `weight` is relative to the likeliest token's 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    id: u32,
    logit: f32,
    weight: f64,
}

impl Sampler {
    /// A sampler for one sequence.
    pub fn new(options: SamplingOptions) -> Result<Sampler, SamplingError> {
        options.check()?;
        Ok(Sampler {
            options,
            rng: ChaCha12Rng::seed_from_u64(options.seed),
            candidates: Vec::new(),
        })
    }

    /// The settings.
    pub fn options(&self) -> &SamplingOptions {
        &self.options
    }

    /// Chooses the next token's id.
    ///
    /// `logits` has one entry per vocabulary entry. `-inf` is never chosen.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplingError> {
        if self.options.temperature == 0.0 {
            return greedy(logits);
        }
        self.filter(logits)?;
        Ok(draw(&self.candidates, unit(&mut self.rng)))
    }

    /// The tokens that could be drawn with their probabilities, most likely first.
    /// For temperature 0 it is the greedy token alone.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<Vec<(u32, f64)>, SamplingError> {
        if self.options.temperature == 0.0 {
            return Ok(vec![(greedy(logits)?, 1.0)]);
        }
        self.filter(logits)?;
        let total: f64 = self.candidates.iter().map(|c| c.weight).sum();
        Ok(self
            .candidates
            .iter()
            .map(|c| (c.id, c.weight / total))
            .collect())
    }

    /// Leaves the tokens that pass every filter in `candidates`, most likely first.
    fn filter(&mut self, logits: &[f32]) -> Result<(), SamplingError> {
        let SamplingOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            ..
        } = self.options;
        let max = logits[greedy(logits)? as usize];
        let candidates = &mut self.candidates;
        candidates.clear();
        candidates.extend(
            (0u32..)
                .zip(logits)
                .filter(|(_, logit)| **logit != f32::NEG_INFINITY)
                .map(|(id, &logit)| Candidate {
                    id,
                    logit,
                    weight: 0.0,
                }),
        );
        let order =
            |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
        if (1..candidates.len()).contains(&top_k) {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        for candidate in candidates.iter_mut() {
            // In f64: the difference of two f32 is exact enough, and never positive.
            candidate.weight = exp::exp(f64::from(candidate.logit - max) / f64::from(temperature));
        }
        if top_p < 1.0 {
            let goal = f64::from(top_p) * candidates.iter().map(|c| c.weight).sum::<f64>();
            let mut sum = 0.0;
            let keep = candidates.iter().position(|c| {
                sum += c.weight;
                sum >= goal
            });
            candidates.truncate(keep.map_or(candidates.len(), |last| last + 1));
        }
        // The likeliest token's weight is 1, so that min-p is a plain bound on weights.
        let keep = candidates.partition_point(|c| c.weight >= f64::from(min_p));
        candidates.truncate(keep.max(1));
        Ok(())
    }
}

/// The id of the largest logit; ties go to the lower id.
pub fn greedy(logits: &[f32]) -> Result<u32, SamplingError> {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        if logit.is_nan() {
            return Err(SamplingError::NotANumber {
                index: i,
                len: logits.len(),
            });
        }
        if logit > logits[best] {
            best = i;
        }
    }
    match logits.get(best) {
        None => Err(SamplingError::Nothing("there are no logits")),
        Some(&f32::NEG_INFINITY) => Err(SamplingError::Nothing("every logit is -inf")),
        Some(&f32::INFINITY) => Err(SamplingError::Nothing(
            "a logit is +inf; the forward pass or the weights are wrong",
        )),
        Some(_) => Ok(best as u32),
    }
}

/// A number in [0, 1) from 53 random bits.
fn unit(rng: &mut ChaCha12Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The candidate at point `u` of the cumulated weights.
fn draw(candidates: &[Candidate], u: f64) -> u32 {
    let total: f64 = candidates.iter().map(|c| c.weight).sum();
    let mut left = u * total;
    for candidate in candidates {
        left -= candidate.weight;
        if left < 0.0 {
            return candidate.id;
        }
    }
    // Only rounding leads here; `filter` leaves at least one candidate.
    candidates.last().map_or(0, |c| c.id)
}
