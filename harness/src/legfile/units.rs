//! Durations (`3h`, `20m`, `10s`, `500ms`, `1h30m`) and sizes (`64MiB`, `2GB`, `512`).

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

/// A duration as written in a leg file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dur(pub Duration);

/// A number of bytes as written in a leg file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

const SIZE_UNITS: [(&str, u64); 12] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
];

/// Reads `1h30m`, `20m`, `2.5s`, `500ms`. Longest accepted: 1000 days.
///
/// # Errors
/// A sentence that says what is wrong and how to write it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("an empty duration: write a number and a unit, such as 20m".to_owned());
    }
    let mut total_ms = 0f64;
    while !rest.is_empty() {
        let split = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(split);
        let unit_end = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let Ok(number) = number.parse::<f64>() else {
            return Err(format!(
                "`{text}` is no duration: write a number and a unit, such as 20m or 1h30m"
            ));
        };
        if unit.is_empty() {
            return Err(format!(
                "`{text}` has no unit: write {text}s for seconds (units: ms, s, m, h, d)"
            ));
        }
        let Some(&(_, ms)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!(
                "`{unit}` in `{text}` is no unit of time (units: ms, s, m, h, d)"
            ));
        };
        #[allow(clippy::cast_precision_loss)] // at most 86 400 000
        {
            total_ms += number * ms as f64;
        }
        rest = next;
    }
    if total_ms > 1000.0 * 86_400_000.0 {
        return Err(format!("`{text}` is longer than 1000 days"));
    }
    Ok(Duration::from_secs_f64(total_ms / 1000.0))
}

/// Reads `64MiB`, `2GB`, `512` (bytes).
///
/// # Errors
/// A sentence that says what is wrong and how to write it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    let Ok(number) = number.parse::<f64>() else {
        return Err(format!(
            "`{text}` is no size: write a number and a unit, such as 64MiB"
        ));
    };
    let Some(&(_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "`{unit}` in `{text}` is no unit of size (units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)"
        ));
    };
    #[allow(clippy::cast_precision_loss)]
    let bytes = number * factor as f64;
    if bytes >= 9.0e18 {
        return Err(format!("`{text}` is more than can be addressed"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in range: just checked
    Ok(bytes as u64)
}

/// `1h30m`, `20m`, `2.5s`, `500ms`: the shortest form that [`parse_duration`] reads back.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    let mut rest = ms;
    for (unit, size) in [("d", 86_400_000u128), ("h", 3_600_000), ("m", 60_000)] {
        if rest >= size {
            out.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if rest >= 1000 && rest.is_multiple_of(1000) {
        out.push_str(&format!("{}s", rest / 1000));
    } else if rest >= 1000 {
        out.push_str(&format!("{}.{:03}s", rest / 1000, rest % 1000).replace("00s", "s"));
    } else if rest > 0 {
        out.push_str(&format!("{rest}ms"));
    }
    out
}

/// `64 MiB`, `1.5 GiB`, `512 B`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    for (unit, factor) in [
        ("TiB", 1u64 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ] {
        if bytes >= factor {
            #[allow(clippy::cast_precision_loss)]
            let value = bytes as f64 / factor as f64;
            return if bytes.is_multiple_of(factor) {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.2} {unit}")
            };
        }
    }
    format!("{bytes} B")
}

struct DurVisitor;

impl Visitor<'_> for DurVisitor {
    type Value = Dur;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 20m, 3h or 500ms")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Dur, E> {
        parse_duration(text).map(Dur).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Dur {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurVisitor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Size).map_err(D::Error::custom)
    }
}

impl JsonSchema for Dur {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration: number and unit (ms, s, m, h, d), more than one may follow: 1h30m.",
            "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$",
        })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes, or a number and a unit: 64MiB, 2GB.",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB|K)?$"},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, ms) in [
            ("3h", 10_800_000),
            ("20m", 1_200_000),
            ("10s", 10_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("2.5s", 2_500),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_duration(text).unwrap().as_millis(), ms, "{text}");
        }
        for text in ["", "10", "h", "10 s", "10x", "-1s", "1..5s", "99999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("10").unwrap_err().contains("10s"));
    }

    #[test]
    fn a_printed_duration_reads_back_the_same() {
        for ms in [
            1u64,
            500,
            1000,
            1500,
            2_050,
            60_000,
            61_000,
            5_400_000,
            86_400_000 + 1,
        ] {
            let duration = Duration::from_millis(ms);
            assert_eq!(
                parse_duration(&format_duration(duration)).unwrap(),
                duration,
                "{ms}"
            );
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("512", 512),
            ("2GB", 2_000_000_000),
            ("1.5KiB", 1536),
            ("10 MB", 10_000_000),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "MiB", "64mib", "1e3", "-5", "99999999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
