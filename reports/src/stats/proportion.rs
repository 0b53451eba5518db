//! Faults per attempt: intervals and comparisons of proportions.

use super::special::ln_choose;

/// The exact 95 % interval of a probability of which `k` of `n` trials were seen (Clopper and Pearson 1934).
///
/// `None` when `n` is 0 or `k` exceeds it.
#[must_use]
pub fn clopper_pearson(k: u64, n: u64) -> Option<[f64; 2]> {
    if n == 0 || k > n {
        return None;
    }
    let tail = 0.025;
    // The upper tail P(X ≥ k) grows with p, the lower tail P(X ≤ k) falls.
    let low = if k == 0 {
        0.0
    } else {
        bisect(|p| at_least(k, n, p) < tail)
    };
    let high = if k == n {
        1.0
    } else {
        bisect(|p| 1.0 - at_least(k + 1, n, p) > tail)
    };
    Some([low, high])
}

/// The largest p in 0–1 below which `below` holds.
fn bisect(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// P(X ≥ k) of a binomial variable of `n` trials with probability `p` strictly between 0 and 1.
fn at_least(k: u64, n: u64, p: f64) -> f64 {
    (k..=n)
        .map(|i| (ln_choose(n, i) + i as f64 * p.ln() + (n - i) as f64 * (-p).ln_1p()).exp())
        .sum()
}

/// Two-sided p of Fisher's exact test that two arms fault alike: `k_a` of `n_a` against `k_b` of `n_b`. It sums the
/// tables that are no likelier than the one observed.
///
/// `None` when an arm has no trials or more faults than trials.
#[must_use]
pub fn fisher_exact(k_a: u64, n_a: u64, k_b: u64, n_b: u64) -> Option<f64> {
    if n_a == 0 || n_b == 0 || k_a > n_a || k_b > n_b {
        return None;
    }
    let faults = k_a + k_b;
    let likelihood =
        |k: u64| ln_choose(n_a, k) + ln_choose(n_b, faults - k) - ln_choose(n_a + n_b, faults);
    let observed = likelihood(k_a);
    let p: f64 = (faults.saturating_sub(n_b)..=faults.min(n_a))
        .map(likelihood)
        .filter(|&l| l <= observed + 1e-7)
        .map(f64::exp)
        .sum();
    Some(p.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9 * b.max(1e-9), "{a} is not {b}");
    }

    // Expected: scipy 1.17.1, stats.binomtest(k, n).proportion_ci(method="exact").
    #[test]
    fn intervals_as_scipy_has_them() {
        for (k, n, low, high) in [
            (3, 5, 0.14663279963467254, 0.9472550494736843),
            (0, 21, 0.0, 0.1610976152190796),
            (17, 21, 0.5809339588164454, 0.9455364318215961),
            (5, 5, 0.47817624989501856, 1.0),
            (1, 3, 0.008403758659612647, 0.9057006759492866),
        ] {
            let got = clopper_pearson(k, n).unwrap();
            close(got[0], low);
            close(got[1], high);
        }
        assert_eq!(clopper_pearson(0, 0), None);
        assert_eq!(clopper_pearson(2, 1), None);
    }

    // Expected: scipy 1.17.1, stats.fisher_exact([[k_a, n_a - k_a], [k_b, n_b - k_b]])[1].
    #[test]
    fn fisher_as_scipy_has_it() {
        for (k_a, n_a, k_b, n_b, p) in [
            (3, 5, 0, 5, 0.16666666666666666),
            (17, 21, 0, 21, 4.7003492566313045e-08),
            (1, 10, 11, 14, 0.0027594561852200836),
            (0, 3, 3, 3, 0.10000000000000002),
            (0, 5, 0, 5, 1.0),
        ] {
            close(fisher_exact(k_a, n_a, k_b, n_b).unwrap(), p);
        }
        assert_eq!(fisher_exact(0, 0, 1, 1), None);
    }
}
