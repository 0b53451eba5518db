//! The confidence interval of a ratio of medians.

use super::sorted;
use super::summary::{median_sorted, percentile_sorted};

/// Resamples drawn by [`ratio_of_medians_ci`].
pub const BOOTSTRAP_RESAMPLES: usize = 9_999;

/// Seed of the resampling: a report rendered twice must show the same interval.
const SEED: u64 = 0x6c65_6777_6f72_6b31;

/// 95 % interval of median(b) / median(a) by the percentile bootstrap: each arm is resampled on its own, with
/// replacement, [`BOOTSTRAP_RESAMPLES`] times from a fixed seed.
///
/// The percentile interval and not BCa: the acceleration of BCa is a jackknife, and the jackknife of a median is
/// degenerate for the few samples met here.
///
/// `None` when an arm has fewer than two samples or a value that is not above 0 (a ratio of it means nothing).
#[must_use]
pub fn ratio_of_medians_ci(a: &[f64], b: &[f64]) -> Option<[f64; 2]> {
    let (a, b) = (sorted(a), sorted(b));
    if a.len() < 2 || b.len() < 2 || a[0] <= 0.0 || b[0] <= 0.0 {
        return None;
    }
    let mut rng = SplitMix(SEED);
    let mut ratios: Vec<f64> = (0..BOOTSTRAP_RESAMPLES)
        .map(|_| {
            let denominator = resampled_median(&a, &mut rng);
            resampled_median(&b, &mut rng) / denominator
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    Some([
        percentile_sorted(&ratios, 2.5),
        percentile_sorted(&ratios, 97.5),
    ])
}

/// The median of as many values drawn from `sorted` with replacement. Draws indices and sorts those: cheaper than
/// sorting floats, and the same thing, because the values are in order.
fn resampled_median(sorted: &[f64], rng: &mut SplitMix) -> f64 {
    let n = sorted.len();
    let mut drawn: Vec<usize> = (0..n).map(|_| rng.below(n)).collect();
    drawn.sort_unstable();
    let values: Vec<f64> = drawn.into_iter().map(|i| sorted[i]).collect();
    median_sorted(&values)
}

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, the same sequence on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An index below `n`; the bias of the multiplication is below n / 2^64.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [f64; 5] = [25.877, 25.912, 25.641, 26.004, 25.733];
    const B: [f64; 6] = [27.135, 27.744, 27.302, 26.998, 27.51, 27.221];

    // Expected: scipy 1.17.1, stats.bootstrap((a, b), ratio of np.median, n_resamples=99999, method="percentile",
    // vectorized=True); seeds 1 and 2 gave the same interval to all digits.
    #[test]
    fn interval_as_scipy_has_it() {
        let [low, high] = ratio_of_medians_ci(&A, &B).unwrap();
        assert!((low - 1.0451469004768497).abs() < 1e-3, "{low}");
        assert!((high - 1.0695604865347996).abs() < 1e-3, "{high}");
    }

    // With two samples each the 16 × 16 … resamples can be counted by hand: a resampled median of (1, 2) is 1, 1.5 or 2
    // with probability 1/4, 1/2, 1/4, so the extreme ratios have probability 1/16 each, above 2.5 %.
    #[test]
    fn two_samples_each_give_the_range() {
        assert_eq!(
            ratio_of_medians_ci(&[1.0, 2.0], &[4.0, 8.0]),
            Some([2.0, 8.0])
        );
    }

    #[test]
    fn the_same_twice_and_independent_of_order() {
        let mut turned = A;
        turned.reverse();
        assert_eq!(
            ratio_of_medians_ci(&A, &B),
            ratio_of_medians_ci(&turned, &B)
        );
    }

    #[test]
    fn no_interval_without_samples_or_of_zero() {
        assert_eq!(ratio_of_medians_ci(&[1.0], &B), None);
        assert_eq!(ratio_of_medians_ci(&A, &[0.0, 1.0]), None);
        assert_eq!(ratio_of_medians_ci(&[f64::NAN, 1.0], &B), None);
    }
}
