//! Units of figures.

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// GiB (2^30 bytes).
    Gib,
    /// MiB (2^20 bytes).
    Mib,
    /// Bytes.
    Bytes,
    /// Tokens.
    Tokens,
    /// Tokens per second.
    TokensPerSecond,
    /// GiB per second.
    GibPerSecond,
    /// MiB per second.
    MibPerSecond,
    /// Percent.
    Percent,
    /// MHz.
    Megahertz,
    /// Watt.
    Watt,
    /// Degrees Celsius.
    Celsius,
    /// A number.
    Plain,
}

/// Endings of names that tell a unit, longest first.
const ENDINGS: [(&str, Unit); 11] = [
    ("_tok_s", Unit::TokensPerSecond),
    ("_gib_s", Unit::GibPerSecond),
    ("_mib_s", Unit::MibPerSecond),
    ("_bytes", Unit::Bytes),
    ("_tokens", Unit::Tokens),
    ("_gib", Unit::Gib),
    ("_mib", Unit::Mib),
    ("_pct", Unit::Percent),
    ("_mhz", Unit::Megahertz),
    ("_ms", Unit::Milliseconds),
    ("_s", Unit::Seconds),
];

impl Unit {
    /// The unit that a metric's name ends in: `_s`, `_tok_s`, `_gib`, …; a number without such an ending.
    #[must_use]
    pub fn of_name(name: &str) -> Unit {
        if let Some((_, unit)) = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)) {
            return *unit;
        }
        match name.rsplit_once('_') {
            Some((_, "w")) => Unit::Watt,
            Some((_, "c")) => Unit::Celsius,
            _ => Unit::Plain,
        }
    }

    /// What is written behind a number of that unit.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::Gib => "GiB",
            Unit::Mib => "MiB",
            Unit::Bytes => "B",
            Unit::Tokens => "tokens",
            Unit::TokensPerSecond => "tok/s",
            Unit::GibPerSecond => "GiB/s",
            Unit::MibPerSecond => "MiB/s",
            Unit::Percent => "%",
            Unit::Megahertz => "MHz",
            Unit::Watt => "W",
            Unit::Celsius => "°C",
            Unit::Plain => "",
        }
    }

    /// A rate: more of it is faster.
    #[must_use]
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            Unit::TokensPerSecond | Unit::GibPerSecond | Unit::MibPerSecond
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_unit() {
        for (name, unit) in [
            ("decode_tok_s", Unit::TokensPerSecond),
            ("load_gib_s", Unit::GibPerSecond),
            ("vm_hwm_gib", Unit::Gib),
            ("ttft_s", Unit::Seconds),
            ("step_ms", Unit::Milliseconds),
            ("kv_bytes", Unit::Bytes),
            ("power_w", Unit::Watt),
            ("edge_c", Unit::Celsius),
            ("sclk_mhz", Unit::Megahertz),
            ("hits", Unit::Plain),
            ("_", Unit::Plain),
        ] {
            assert_eq!(Unit::of_name(name), unit, "{name}");
        }
    }
}
