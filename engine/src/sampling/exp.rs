//! An exponential with the same bits on every machine.

/// e^x for x ≤ 0, to within a few units in the last place; 0 below -745.
///
/// x = k·ln 2 + r with |r| ≤ ln 2 / 2, then the Taylor series of e^r (18 terms reach 1e-21) and a
/// multiplication by 2^k. Only IEEE additions and multiplications, which are exact everywhere; Rust
/// never contracts them.
pub(super) fn exp(x: f64) -> f64 {
    if x < -745.0 {
        return 0.0;
    }
    /// ln 2 in two parts, so that k·HIGH is exact (fdlibm's split).
    const HIGH: f64 = 6.931_471_803_691_238e-1;
    const LOW: f64 = 1.908_214_929_270_587_7e-10;
    let k = (x * std::f64::consts::LOG2_E).round();
    let r = (x - k * HIGH) - k * LOW;
    let mut sum = 1.0;
    for n in (1..=18).rev() {
        sum = 1.0 + sum * r / f64::from(n);
    }
    // Two steps, so that results below 2^-1022 are reached without a zero factor on the way.
    let k = k as i32;
    let (a, b) = (k / 2, k - k / 2);
    sum * power_of_two(a) * power_of_two(b)
}

/// 2^k for -1022 ≤ k ≤ 1023.
fn power_of_two(k: i32) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn agrees_with_the_platforms_exponential() {
        let mut x = 0.0f64;
        while x > -740.0 {
            let (ours, theirs) = (exp(x), x.exp());
            assert!(
                (ours - theirs).abs() <= 4e-16 * theirs + f64::MIN_POSITIVE * f64::EPSILON,
                "{x}: {ours} {theirs}"
            );
            x -= 0.037;
        }
        assert_eq!(
            (exp(0.0), exp(-0.0), exp(-1e9), exp(f64::NEG_INFINITY)),
            (1.0, 1.0, 0.0, 0.0)
        );
    }

    /// Values of e^-1 and e^-20 rounded to f64 (from tables of 30 digits).
    #[test]
    fn has_known_values() {
        assert_eq!(exp(-1.0), 0.367_879_441_171_442_33);
        assert_eq!(exp(-20.0), 2.061_153_622_438_558e-9);
    }
}
