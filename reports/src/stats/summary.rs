//! Describing one set of samples.

use super::sorted;

/// What a set of samples looks like. Units are those of the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// (max − min) / median in percent; `None` when the median is 0.
    pub spread_pct: Option<f64>,
    /// Standard deviation with n − 1; `None` for one sample.
    pub stddev: Option<f64>,
    /// Median absolute deviation from the median, not scaled.
    pub mad: f64,
    /// stddev / mean; `None` for one sample or a mean of 0.
    pub cv: Option<f64>,
}

/// Describes the finite values of `samples`; `None` when there are none.
#[must_use]
pub fn summary(samples: &[f64]) -> Option<Summary> {
    let v = sorted(samples);
    let (min, max) = (*v.first()?, *v.last()?);
    let n = v.len();
    let mean = v.iter().sum::<f64>() / n as f64;
    let median = median_sorted(&v);
    let stddev = (n > 1)
        .then(|| (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0)).sqrt());
    Some(Summary {
        n,
        min,
        max,
        mean,
        median,
        spread_pct: (median != 0.0).then(|| 100.0 * (max - min) / median.abs()),
        stddev,
        mad: mad(&v).unwrap_or(0.0),
        cv: stddev.filter(|_| mean != 0.0).map(|s| s / mean.abs()),
    })
}

/// The median: the middle value, or the mean of the two in the middle. `None` without samples.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    let v = sorted(samples);
    (!v.is_empty()).then(|| median_sorted(&v))
}

/// The arithmetic mean. `None` without samples.
#[must_use]
pub fn mean(samples: &[f64]) -> Option<f64> {
    let v = sorted(samples);
    (!v.is_empty()).then(|| v.iter().sum::<f64>() / v.len() as f64)
}

/// The median absolute deviation from the median, not scaled. `None` without samples.
#[must_use]
pub fn mad(samples: &[f64]) -> Option<f64> {
    let centre = median(samples)?;
    let deviations: Vec<f64> = samples
        .iter()
        .filter(|x| x.is_finite())
        .map(|x| (x - centre).abs())
        .collect();
    median(&deviations)
}

/// The `p`-th percentile (0–100), interpolated linearly between the two nearest ranks (numpy's default). `None`
/// without samples or outside 0–100.
#[must_use]
pub fn percentile(samples: &[f64], p: f64) -> Option<f64> {
    let v = sorted(samples);
    if v.is_empty() || !(0.0..=100.0).contains(&p) {
        return None;
    }
    Some(percentile_sorted(&v, p))
}

/// As [`percentile`], on values that are sorted already. `v` must not be empty.
pub(super) fn percentile_sorted(v: &[f64], p: f64) -> f64 {
    let rank = p / 100.0 * (v.len() - 1) as f64;
    let low = rank.floor() as usize;
    let high = (low + 1).min(v.len() - 1);
    v[low] + (v[high] - v[low]) * (rank - low as f64)
}

/// The median of sorted values. `v` must not be empty.
pub(super) fn median_sorted(v: &[f64]) -> f64 {
    let mid = v.len() / 2;
    if v.len() % 2 == 1 {
        v[mid]
    } else {
        f64::midpoint(v[mid - 1], v[mid])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} is not {b}");
    }

    // Expected: numpy 2.4.6 median, mean, std(ddof=1), percentile; scipy 1.17.1 stats.median_abs_deviation,
    // stats.variation(ddof=1).
    #[test]
    fn five_samples_as_numpy_and_scipy_have_it() {
        let s = summary(&[25.877, 25.912, 25.641, 26.004, 25.733]).unwrap();
        assert_eq!(s.n, 5);
        close(s.median, 25.877);
        close(s.mean, 25.8334);
        close(s.stddev.unwrap(), 0.14515612284709245);
        close(s.mad, 0.12700000000000244);
        close(s.cv.unwrap(), 0.005618932190385023);
        close(s.spread_pct.unwrap(), 100.0 * (26.004 - 25.641) / 25.877);
    }

    #[test]
    fn six_samples_as_numpy_and_scipy_have_it() {
        let v = [27.135, 27.744, 27.302, 26.998, 27.51, 27.221];
        let s = summary(&v).unwrap();
        close(s.median, 27.261499999999998);
        close(s.stddev.unwrap(), 0.26977521507111524);
        close(s.mad, 0.1875);
        close(percentile(&v, 25.0).unwrap(), 27.1565);
        close(percentile(&v, 90.0).unwrap(), 27.627000000000002);
        close(percentile(&v, 95.0).unwrap(), 27.6855);
    }

    #[test]
    fn one_sample_has_no_deviation_and_none_has_nothing() {
        let s = summary(&[5.0]).unwrap();
        assert_eq!((s.stddev, s.cv, s.spread_pct), (None, None, Some(0.0)));
        assert_eq!(summary(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(percentile(&[1.0], 101.0), None);
    }

    #[test]
    fn values_that_are_not_finite_are_no_samples() {
        assert_eq!(summary(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(median(&[f64::NAN, 2.0]), Some(2.0));
        assert_eq!(summary(&[0.0, 0.0]).unwrap().spread_pct, None);
    }
}
