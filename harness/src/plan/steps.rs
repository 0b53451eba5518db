//! The order of the attempts.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde::{Deserialize, Serialize};

use crate::legfile::{LegSet, Order};

/// One attempt to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// 1-based number in the run.
    pub n: u32,
    /// Index into the leg set's legs.
    pub leg: usize,
    /// 1-based round; warm-up rounds count from 1 too.
    pub round: u32,
    /// Run and discarded.
    pub warmup: bool,
}

/// A seed for a run whose leg file gives none. Below 2^53, so that every JSON reader keeps it whole.
#[must_use]
pub fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 11
}

/// SplitMix64 (Steele, Lea and Flood, 2014): written here, so that a recorded seed gives the same order in every release.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            // The bias of `%` is below 2^-50 for the lengths here.
            #[allow(clippy::cast_possible_truncation)] // below items.len()
            let j = (self.next() % (i as u64 + 1)) as usize;
            items.swap(i, j);
        }
    }
}

/// The attempts of a leg set in order: warm-up rounds first, then the counted rounds.
///
/// Interleaved rounds run the legs forward and backward in turn (A B C, C B A, …), so that a drift of the
/// board falls on all legs alike.
#[must_use]
pub fn steps(set: &LegSet, seed: u64) -> Vec<Step> {
    let mut order: Vec<(usize, u32, bool)> = Vec::new();
    let mut random = SplitMix(seed);
    if set.order == Order::Sequential {
        for (leg, spec) in set.legs.iter().enumerate() {
            order.extend((1..=set.warmup).map(|round| (leg, round, true)));
            order.extend((1..=spec.repeat).map(|round| (leg, round, false)));
        }
    } else {
        let most = set.legs.iter().map(|l| l.repeat).max().unwrap_or(0);
        let rounds = (1..=set.warmup)
            .map(|r| (r, true))
            .chain((1..=most).map(|r| (r, false)));
        for (round, warmup) in rounds {
            let mut legs: Vec<usize> = (0..set.legs.len())
                .filter(|&l| warmup || set.legs[l].repeat >= round)
                .collect();
            match set.order {
                Order::Shuffled => random.shuffle(&mut legs),
                _ if round.is_multiple_of(2) => legs.reverse(),
                _ => {}
            }
            order.extend(legs.into_iter().map(|leg| (leg, round, warmup)));
        }
    }
    order
        .into_iter()
        .zip(1u32..)
        .map(|((leg, round, warmup), n)| Step {
            n,
            leg,
            round,
            warmup,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn set(order: &str, repeat: u32, warmup: u32) -> LegSet {
        let text = format!(
            "name: t\norder: {order}\nrepeat: {repeat}\nwarmup: {warmup}\ndefaults: {{command: [/bin/true]}}\nlegs:\n  - {{name: a, control: true}}\n  - {{name: b}}\n  - {{name: c, repeat: 1}}\n"
        );
        crate::legfile::parse(Path::new("t.yaml"), Path::new("/"), &text).unwrap()
    }

    fn letters(set: &LegSet, seed: u64) -> String {
        steps(set, seed)
            .iter()
            .map(|s| if s.warmup { "ABC" } else { "abc" }.as_bytes()[s.leg] as char)
            .collect()
    }

    #[test]
    fn interleaved_rounds_alternate_and_warmups_come_first() {
        assert_eq!(letters(&set("interleaved", 3, 1), 0), "ABCabcbaab");
    }

    #[test]
    fn sequential_runs_a_leg_at_a_time() {
        assert_eq!(letters(&set("sequential", 2, 1), 0), "AaaBbbCc");
    }

    #[test]
    fn a_shuffled_order_is_the_seeds_and_every_round_holds_every_leg() {
        let set = set("shuffled", 6, 0);
        let one = letters(&set, 7);
        assert_eq!(one, letters(&set, 7));
        assert!((0..20).any(|seed| letters(&set, seed) != one));
        assert_eq!(one.chars().filter(|&c| c == 'a').count(), 6);
        assert_eq!(one.chars().filter(|&c| c == 'c').count(), 1);
        let mut first: Vec<char> = one.chars().take(3).collect();
        first.sort_unstable();
        assert_eq!(first, ['a', 'b', 'c']);
    }

    /// First outputs of SplitMix64 for seed 1234567, as published with the reference implementation
    /// (prng.di.unimi.it/splitmix64.c; the values are those of the Rosetta Code task "Pseudo-random numbers/Splitmix64").
    #[test]
    fn splitmix_gives_the_published_numbers() {
        let mut random = SplitMix(1_234_567);
        let expected = [
            6_457_827_717_110_365_317u64,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for value in expected {
            assert_eq!(random.next(), value);
        }
    }
}
