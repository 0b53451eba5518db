//! Figures and facts in words: always with a unit, and absent is “–”, never 0.

mod quantity;
mod text;

pub use quantity::{bytes, count, gib, number, percent, probability, ratio, seconds, with_unit};
pub use text::{clean, exit_words, quote, shorten, signal_name, signal_number};

/// What stands where nothing was observed.
pub const ABSENT: &str = "–";
