//! Numbers with their units.

use super::ABSENT;
use crate::metrics::Unit;

/// A number with four significant digits, thousands grouped: `0.02712`, `8.130`, `4,118`.
#[must_use]
pub fn number(v: f64) -> String {
    if !v.is_finite() {
        return ABSENT.to_owned();
    }
    if v == 0.0 {
        return "0".to_owned();
    }
    let magnitude = v.abs().log10().floor() as i32;
    let decimals = (3 - magnitude).clamp(0, 9) as usize;
    let text = format!("{:.*}", decimals, v.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let sign = if v < 0.0 { "−" } else { "" };
    let grouped = group(whole);
    if fraction.is_empty() {
        format!("{sign}{grouped}")
    } else {
        format!("{sign}{grouped}.{fraction}")
    }
}

/// A whole number with its thousands grouped.
#[must_use]
pub fn count(v: u64) -> String {
    group(&v.to_string())
}

fn group(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A duration given in seconds: `3.1 ms`, `0.412 s`, `38.2 s`, `11m40s`, `1h08m38s`.
#[must_use]
pub fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return ABSENT.to_owned();
    }
    let a = s.abs();
    if a == 0.0 {
        "0 s".to_owned()
    } else if a < 0.01 {
        format!("{} ms", trim(&format!("{:.2}", s * 1e3)))
    } else if a < 10.0 {
        format!("{s:.3} s")
    } else if a < 119.95 {
        format!("{s:.1} s")
    } else {
        let whole = s.round() as i64;
        let (h, m, s) = (whole / 3600, whole / 60 % 60, whole % 60);
        if h > 0 {
            format!("{h}h{m:02}m{s:02}s")
        } else {
            format!("{m}m{s:02}s")
        }
    }
}

fn trim(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A size in bytes in the unit that fits: `512 B`, `14.1 MiB`, `96.0 GiB`.
#[must_use]
pub fn bytes(v: f64) -> String {
    if !v.is_finite() {
        return ABSENT.to_owned();
    }
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut v = v;
    let mut unit = 0;
    while v.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        v /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{v:.0} B")
    } else {
        format!("{} {}", three(v), UNITS[unit])
    }
}

fn three(v: f64) -> String {
    let decimals = if v.abs() < 10.0 {
        2
    } else {
        usize::from(v.abs() < 100.0)
    };
    format!("{v:.decimals$}")
}

/// A size in GiB; small ones in MiB.
#[must_use]
pub fn gib(v: f64) -> String {
    bytes(v * 1024.0 * 1024.0 * 1024.0)
}

/// A share in percent: `1.40 %`.
#[must_use]
pub fn percent(v: f64) -> String {
    if !v.is_finite() {
        return ABSENT.to_owned();
    }
    let decimals = if v.abs() < 10.0 {
        2
    } else {
        usize::from(v.abs() < 100.0)
    };
    format!("{v:.decimals$} %")
}

/// A probability: `0.4`, `0.029`, `< 0.001`.
#[must_use]
pub fn probability(p: f64) -> String {
    if !p.is_finite() {
        ABSENT.to_owned()
    } else if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        trim(&format!("{p:.3}")).to_owned()
    }
}

/// A ratio: `1.492×`.
#[must_use]
pub fn ratio(v: f64) -> String {
    if !v.is_finite() {
        return ABSENT.to_owned();
    }
    format!("{v:.3}×")
}

/// A figure in its unit, or [`ABSENT`].
#[must_use]
pub fn with_unit(v: Option<f64>, unit: Unit) -> String {
    let Some(v) = v.filter(|v| v.is_finite()) else {
        return ABSENT.to_owned();
    };
    match unit {
        Unit::Seconds => seconds(v),
        Unit::Milliseconds => seconds(v / 1e3),
        Unit::Gib => gib(v),
        Unit::Mib => gib(v / 1024.0),
        Unit::Bytes => bytes(v),
        Unit::Percent => percent(v),
        Unit::Tokens if v >= 0.0 && v.fract() == 0.0 && v < 1e15 => count(v as u64),
        Unit::Plain if v.fract() == 0.0 && v.abs() < 1e15 => {
            let sign = if v < 0.0 { "−" } else { "" };
            format!("{sign}{}", count(v.abs() as u64))
        }
        _ => {
            let suffix = unit.suffix();
            if suffix.is_empty() {
                number(v)
            } else {
                format!("{} {suffix}", number(v))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        for (v, text) in [
            (0.0, "0"),
            (0.001234, "0.001234"),
            (0.0271249, "0.02712"),
            (8.13, "8.130"),
            (25.877, "25.88"),
            (413.0, "413.0"),
            (1301.4, "1,301"),
            (-2.5, "−2.500"),
            (15848.2, "15,848"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(v), text);
        }
        assert_eq!(count(1_048_576), "1,048,576");
        assert_eq!(count(999), "999");
    }

    #[test]
    fn durations_read_as_people_say_them() {
        for (s, text) in [
            (0.0, "0 s"),
            (0.0031, "3.1 ms"),
            (0.027, "0.027 s"),
            (4.1184, "4.118 s"),
            (38.24, "38.2 s"),
            (119.96, "2m00s"),
            (700.4, "11m40s"),
            (4118.0, "1h08m38s"),
        ] {
            assert_eq!(seconds(s), text);
        }
    }

    #[test]
    fn sizes_and_units() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(gib(96.0), "96.0 GiB");
        assert_eq!(gib(0.01379), "14.1 MiB");
        assert_eq!(with_unit(None, Unit::Gib), "–");
        assert_eq!(with_unit(Some(f64::INFINITY), Unit::Gib), "–");
        assert_eq!(with_unit(Some(8.0), Unit::Tokens), "8");
        assert_eq!(with_unit(Some(8.129), Unit::TokensPerSecond), "8.129 tok/s");
        assert_eq!(with_unit(Some(0.0), Unit::TokensPerSecond), "0 tok/s");
        assert_eq!(percent(1.4), "1.40 %");
        assert_eq!(ratio(1.4924), "1.492×");
        assert_eq!(probability(0.4), "0.4");
        assert_eq!(probability(1.0), "1");
        assert_eq!(probability(0.02857), "0.029");
        assert_eq!(probability(4.7e-8), "< 0.001");
    }
}
