//! Rope frequencies.

use legwork_kernels::ops::RopeTable;

/// YaRN parameters, as GGUF stores them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Stretch of the context.
    pub factor: f64,
    /// Context length that the model was trained on first.
    pub original_context: f64,
    /// `mscale_all_dim`: GGUF stores a tenth of it.
    pub mscale_all_dim: f64,
}

/// Rotations over the original context below which a pair is interpolated fully, and above which not at all.
const BETA_FAST: f64 = 32.0;
const BETA_SLOW: f64 = 1.0;

/// `theta^(-2j/dim)` radians per position for pair `j`, stretched by YaRN where given (Peng et al. 2023, section 3.2).
pub fn table(dim: usize, theta: f64, yarn: Option<Yarn>) -> RopeTable {
    let d = dim as f64;
    let plain = |j: usize| theta.powf(-2.0 * j as f64 / d);
    let freq = match yarn {
        None => (0..dim / 2).map(|j| plain(j) as f32).collect(),
        Some(y) => {
            let correction = |beta: f64| {
                d * (y.original_context / (beta * 2.0 * std::f64::consts::PI)).ln()
                    / (2.0 * theta.ln())
            };
            let low = correction(BETA_FAST).floor().max(0.0);
            let high = correction(BETA_SLOW).ceil().min(d - 1.0);
            let extrapolated =
                |j: usize| 1.0 - ((j as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            (0..dim / 2)
                .map(|j| {
                    let r = extrapolated(j);
                    (plain(j) / y.factor * (1.0 - r) + plain(j) * r) as f32
                })
                .collect()
        }
    };
    RopeTable { dim, freq }
}

/// What YaRN multiplies the softmax scale by: `(1 + 0.1 * mscale_all_dim * ln factor)^2`.
pub fn yarn_scale(y: Yarn) -> f64 {
    (1.0 + 0.1 * y.mscale_all_dim * y.factor.ln()).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_fall_from_one() {
        let t = table(4, 100.0, None);
        assert_eq!(t.freq.len(), 2);
        assert!((t.freq[0] - 1.0).abs() < 1e-7 && (t.freq[1] - 0.1).abs() < 1e-7);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let y = Yarn {
            factor: 4.0,
            original_context: 1024.0,
            mscale_all_dim: 1.0,
        };
        let (t, p) = (table(64, 1e4, Some(y)), table(64, 1e4, None));
        assert_eq!(t.freq[0], p.freq[0]);
        assert!((t.freq[31] * 4.0 / p.freq[31] - 1.0).abs() < 1e-6);
        // (1 + 0.1 ln 4)^2
        assert!((yarn_scale(y) - 1.296_477_3).abs() < 1e-6);
    }
}
