//! Figures of the samples.

/// Mean, spread and middle of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation with n - 1; 0 for one sample.
    pub stddev: f64,
    /// Middle value, or the mean of the two middle ones.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// `None` without samples.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = samples.iter().sum::<f64>() / n as f64;
        let square = samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
        let stddev = if n > 1 {
            (square / (n - 1) as f64).sqrt()
        } else {
            0.0
        };
        Some(Summary {
            mean,
            stddev,
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            min,
            max,
        })
    }

    /// Largest minus smallest over the median, in percent.
    #[must_use]
    pub fn spread_pct(&self) -> f64 {
        (self.max - self.min) / self.median * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_four() {
        let s = Summary::of(&[2.0, 4.0, 4.0, 6.0]).unwrap();
        assert_eq!((s.mean, s.median, s.min, s.max), (4.0, 4.0, 2.0, 6.0));
        assert!((s.stddev - (8.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(s.spread_pct(), 100.0);
        assert_eq!(Summary::of(&[]), None);
    }
}
