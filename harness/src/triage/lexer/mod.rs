//! From lines of any prefix style to records, in one pass and with bounded memory.
//!
//! - `stamp.rs`: the two clocks that a line may carry, and the gap between two lines.
//! - `prefix.rs`: what loggers put in front of a message: raw kmsg, dmesg in any mode, journal, syslog, none.
//! - `record.rs`: the message itself: driver, device, function, text.
//! - `stream.rs`: cuts a stream into lines and hands each record to a sink; counts lost records.

mod prefix;
mod record;
mod stamp;
mod stream;

pub use prefix::Ident;
pub use record::Record;
pub use stamp::Stamp;
pub use stream::{Lexer, Losses, read_lines};
