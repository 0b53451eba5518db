//! What this machine's memory gives to plain reads.

use std::time::Instant;

/// Larger than any last-level cache of the machines in question.
const BYTES: usize = 512 << 20;
const PASSES: usize = 3;

/// Bytes per second that `threads` threads read from memory: the best of three passes over 512 MiB.
#[must_use]
pub fn read_bandwidth(threads: usize) -> f64 {
    let threads = threads.max(1);
    let buffer = vec![1u64; BYTES / 8];
    let part = buffer.len().div_ceil(threads);
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let started = Instant::now();
        let sum: u64 = std::thread::scope(|scope| {
            let parts: Vec<_> = buffer
                .chunks(part)
                .map(|c| scope.spawn(|| sum(c)))
                .collect();
            parts
                .into_iter()
                .filter_map(|p| p.join().ok())
                .fold(0, u64::wrapping_add)
        });
        // The sum is looked at, so that the reads cannot be left out.
        assert_eq!(sum, buffer.len() as u64, "every word was written as 1");
        best = best.min(started.elapsed().as_secs_f64());
    }
    BYTES as f64 / best
}

/// Sums with as many independent lanes as keep the loads in flight.
fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 16];
    let (chunks, rest) = words.as_chunks::<16>();
    for c in chunks {
        for (lane, w) in lanes.iter_mut().zip(c) {
            *lane = lane.wrapping_add(*w);
        }
    }
    lanes.iter().chain(rest).fold(0, |a, b| a.wrapping_add(*b))
}
