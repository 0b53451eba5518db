//! What a number of samples can show at all.

use super::summary;
use super::two_sample::smallest_p;

/// Whether the number of samples suffices to call a difference at p < 0.05.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleSize {
    /// An arm has no sample.
    Missing,
    /// No result of these many samples can reach p < 0.05; the smallest p that can be reached.
    TooSmall(f64),
    /// A difference can be shown.
    Enough,
}

/// Whether `n_a` against `n_b` samples can show a difference at p < 0.05.
#[must_use]
pub fn sample_size(n_a: usize, n_b: usize) -> SampleSize {
    match smallest_p(n_a, n_b) {
        None => SampleSize::Missing,
        Some(p) if p >= 0.05 => SampleSize::TooSmall(p),
        Some(_) => SampleSize::Enough,
    }
}

/// The smallest difference of means, in percent of a's mean, that samples of this scatter show in four of five runs at
/// p < 0.05: 2.80 standard errors (1.96 + 0.84, normal approximation, pooled deviation).
///
/// `None` when an arm has fewer than two samples or a's mean is 0.
#[must_use]
pub fn detectable_pct(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (summary(a)?, summary(b)?);
    let (s_a, s_b) = (a.stddev?, b.stddev?);
    let (n_a, n_b) = (a.n as f64, b.n as f64);
    if a.mean == 0.0 {
        return None;
    }
    let pooled = (((n_a - 1.0) * s_a * s_a + (n_b - 1.0) * s_b * s_b) / (n_a + n_b - 2.0)).sqrt();
    Some(100.0 * 2.80 * pooled * (1.0 / n_a + 1.0 / n_b).sqrt() / a.mean.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_and_three_is_too_small_four_and_four_is_not() {
        assert_eq!(sample_size(3, 3), SampleSize::TooSmall(0.1));
        assert_eq!(sample_size(4, 4), SampleSize::Enough);
        assert_eq!(sample_size(2, 20), SampleSize::Enough);
        assert_eq!(sample_size(0, 9), SampleSize::Missing);
    }

    // By hand: both arms have variance 1, so pooled = 1; 2.8 · sqrt(2/3) / 2 = 1.1431.
    #[test]
    fn detectable_difference_by_hand() {
        let d = detectable_pct(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).unwrap();
        assert!((d - 100.0 * 2.8 * (2.0f64 / 3.0).sqrt() / 2.0).abs() < 1e-9);
        assert_eq!(detectable_pct(&[1.0], &[1.0, 2.0]), None);
    }
}
