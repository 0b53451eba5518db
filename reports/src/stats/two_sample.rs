//! Whether two arms differ: a two-sided p.

use super::sorted;
use super::special::{choose, normal_two_sided};

/// Up to this many ways to deal the samples to two arms the permutation test goes through all of them (10 and 10
/// samples: 184,756).
pub const EXACT_LIMIT: u64 = 200_000;

/// A p-value and how it was computed.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoSample {
    /// Two-sided p.
    pub p: f64,
    /// The test, for people.
    pub method: &'static str,
}

/// Two-sided p that `a` and `b` come from the same source: an exact permutation test of the difference of means while
/// it can be enumerated ([`EXACT_LIMIT`]), the Mann-Whitney test beyond.
///
/// `None` when an arm has no samples, or neither has two.
#[must_use]
pub fn two_sample_p(a: &[f64], b: &[f64]) -> Option<TwoSample> {
    let (a, b) = (sorted(a), sorted(b));
    if a.is_empty() || b.is_empty() || a.len() + b.len() < 3 {
        return None;
    }
    let ways = choose((a.len() + b.len()) as u64, a.len() as u64);
    Some(match ways {
        Some(ways) if ways <= EXACT_LIMIT => TwoSample {
            p: permutation(&a, &b),
            method: "exact permutation of the difference of means, two-sided",
        },
        _ => TwoSample {
            p: mann_whitney(&a, &b),
            method: "Mann-Whitney, normal approximation with tie and continuity correction, two-sided",
        },
    })
}

/// The smallest p that the permutation test can give with that many samples, whatever they are.
#[must_use]
pub fn smallest_p(n_a: usize, n_b: usize) -> Option<f64> {
    if n_a == 0 || n_b == 0 {
        return None;
    }
    let ways = choose((n_a + n_b) as u64, n_a as u64).map_or(f64::INFINITY, |w| w as f64);
    Some((2.0 / ways).min(1.0))
}

/// Twice the smaller one-sided share of all dealings whose difference of means is at least as extreme as the observed
/// one, at most 1. Differences within 1e-9 of the observed one count as equal to it.
fn permutation(a: &[f64], b: &[f64]) -> f64 {
    let pool: Vec<f64> = a.iter().chain(b).copied().collect();
    let observed: f64 = a.iter().sum();
    // The sum of arm a orders the dealings as the difference of means does.
    let tolerance = 1e-9
        * pool
            .iter()
            .map(|x| x.abs())
            .sum::<f64>()
            .max(f64::MIN_POSITIVE);
    let (mut at_least, mut at_most, mut all) = (0u64, 0u64, 0u64);
    let mut chosen: Vec<usize> = (0..a.len()).collect();
    loop {
        let sum: f64 = chosen.iter().map(|&i| pool[i]).sum();
        all += 1;
        at_least += u64::from(sum >= observed - tolerance);
        at_most += u64::from(sum <= observed + tolerance);
        if !next_combination(&mut chosen, pool.len()) {
            break;
        }
    }
    (2.0 * at_least.min(at_most) as f64 / all as f64).min(1.0)
}

/// Moves to the next way to choose indices below `n`, in lexicographic order; false after the last one.
fn next_combination(chosen: &mut [usize], n: usize) -> bool {
    let k = chosen.len();
    for i in (0..k).rev() {
        if chosen[i] < n - k + i {
            chosen[i] += 1;
            for j in i + 1..k {
                chosen[j] = chosen[j - 1] + 1;
            }
            return true;
        }
    }
    false
}

/// The Mann-Whitney U test by its normal approximation, corrected for ties and continuity (Mann and Whitney 1947;
/// Lehmann, Nonparametrics, 1.2).
fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let mut pool: Vec<(f64, bool)> = a
        .iter()
        .map(|&x| (x, true))
        .chain(b.iter().map(|&x| (x, false)))
        .collect();
    pool.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (n_a, n_b) = (a.len() as f64, b.len() as f64);
    let n = n_a + n_b;
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut i = 0;
    while i < pool.len() {
        let j = pool[i..].iter().take_while(|x| x.0 == pool[i].0).count() + i;
        let rank = (i + 1 + j) as f64 / 2.0;
        rank_sum += rank * pool[i..j].iter().filter(|x| x.1).count() as f64;
        let t = (j - i) as f64;
        ties += t * t * t - t;
        i = j;
    }
    let u = rank_sum - n_a * (n_a + 1.0) / 2.0;
    let centre = n_a * n_b / 2.0;
    let variance = n_a * n_b / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0; // all values equal
    }
    let z = ((u - centre).abs() - 0.5) / variance.sqrt();
    if z <= 0.0 { 1.0 } else { normal_two_sided(z) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
    }

    // Expected: scipy 1.17.1, stats.permutation_test((x, y), difference of np.mean, permutation_type="independent",
    // n_resamples=np.inf, alternative="two-sided").
    #[test]
    fn permutation_as_scipy_has_it() {
        let cases: [(&[f64], &[f64], f64); 4] = [
            (
                &[25.877, 25.912, 25.641, 26.004, 25.733],
                &[27.135, 27.744, 27.302, 26.998, 27.51, 27.221],
                0.004329004329004329,
            ),
            (&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.1),
            (
                &[8.1, 8.4, 8.2, 9.9],
                &[8.3, 8.0, 10.1, 8.5, 8.9],
                0.7777777777777778,
            ),
            (&[5.0, 5.0, 6.0], &[5.0, 6.0, 6.0, 7.0], 0.5714285714285714),
        ];
        for (a, b, p) in cases {
            let got = two_sample_p(a, b).unwrap();
            assert!(got.method.starts_with("exact permutation"));
            close(got.p, p);
        }
    }

    // Expected: scipy 1.17.1, stats.mannwhitneyu(x, y, method="asymptotic", alternative="two-sided").
    #[test]
    fn mann_whitney_as_scipy_has_it() {
        let x = [12., 15., 11., 18., 14., 13., 17., 16., 19., 20., 15., 14.];
        let y = [
            16., 19., 21., 18., 22., 17., 20., 23., 19., 24., 18., 25., 21.,
        ];
        let got = two_sample_p(&x, &y).unwrap();
        assert!(got.method.starts_with("Mann-Whitney"));
        close(got.p, 0.0008780786007193366);
        close(mann_whitney(&[1., 2., 3., 4.], &[1., 2., 3., 4.]), 1.0);
    }

    #[test]
    fn order_of_the_arms_does_not_matter_and_equal_samples_give_one() {
        let (a, b) = ([1.0, 2.0, 4.0], [2.5, 3.0, 9.0, 11.0]);
        close(
            two_sample_p(&a, &b).unwrap().p,
            two_sample_p(&b, &a).unwrap().p,
        );
        close(two_sample_p(&[3.0; 4], &[3.0; 4]).unwrap().p, 1.0);
    }

    #[test]
    fn too_few_samples_have_no_p() {
        assert_eq!(two_sample_p(&[], &[1.0, 2.0]), None);
        assert_eq!(two_sample_p(&[1.0], &[2.0]), None);
        assert_eq!(smallest_p(3, 3), Some(0.1));
        assert_eq!(smallest_p(0, 3), None);
        assert!(smallest_p(4, 4).unwrap() < 0.05);
    }
}
