//! The few special functions that the tests need.

/// Natural logarithm of `n`!, by summation: exact to rounding for the counts met here.
pub(super) fn ln_factorial(n: u64) -> f64 {
    (2..=n).map(|k| (k as f64).ln()).sum()
}

/// Natural logarithm of the binomial coefficient.
pub(super) fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// The binomial coefficient as a count; `None` when it does not fit 64 bits.
pub(super) fn choose(n: u64, k: u64) -> Option<u64> {
    let mut c: u128 = 1;
    for i in 0..k.min(n - k) {
        c = c * u128::from(n - i) / u128::from(i + 1);
        if c > u128::from(u64::MAX) {
            return None;
        }
    }
    u64::try_from(c).ok()
}

/// P(|Z| ≥ z) of the standard normal distribution.
///
/// Below 3 by the power series of the error function, from there by the continued fraction of its complement
/// (Abramowitz and Stegun 7.1.6 and 7.1.14).
pub(super) fn normal_two_sided(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    if x < 3.0 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        let erf = 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum;
        (1.0 - erf).clamp(0.0, 1.0)
    } else {
        let mut fraction = 0.0;
        for n in (1..=60).rev() {
            fraction = f64::from(n) / 2.0 / (x + fraction);
        }
        (-x * x).exp() / std::f64::consts::PI.sqrt() / (x + fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected: scipy 1.17.1, 2 * stats.norm.sf(z).
    #[test]
    fn normal_tail_as_scipy_has_it() {
        for (z, p) in [
            (0.3, 0.7641771556220948),
            (1.0, 0.31731050786291415),
            (1.96, 0.04999579029644087),
            (2.5, 0.012419330651552265),
            (4.0, 6.334248366623973e-05),
            (6.5, 8.032001167718176e-11),
        ] {
            let got = normal_two_sided(z);
            assert!((got / p - 1.0).abs() < 1e-10, "z = {z}: {got} is not {p}");
        }
    }

    #[test]
    fn binomial_coefficients() {
        assert_eq!(choose(20, 10), Some(184_756));
        assert_eq!(choose(6, 0), Some(1));
        assert_eq!(choose(200, 100), None);
        assert!((ln_choose(20, 10).exp() - 184_756.0).abs() < 1e-6);
    }
}
