//! The figures of an attempt by name: what a leg file's bounds, the comparisons and the tables all mean by
//! `decode_tok_s`.

mod table;
mod unit;

pub use table::{Better, METRICS, Metric, Place, describe, is_suspect, names, value};
pub use unit::Unit;
