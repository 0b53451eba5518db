//! Leg files, version 1: from YAML text to a checked [`LegSet`].
//!
//! `doc` holds the document as written (one struct per mapping, unknown keys refused, every value that a
//! later check may complain about keeps its place); the JSON Schema is generated from the same structs. `parse` turns
//! text into a document, `resolve` lies the defaults under the legs and checks what one mapping alone cannot
//! tell, `error` prints what is wrong with file, line, column, the offending line and the nearest right name.
//! `builtin` holds the leg files that are compiled in.

mod at;
mod builtin;
mod doc;
mod engine_keys;
mod error;
mod parse;
mod resolve;
mod scalar;
mod schema;
mod set;
mod units;

pub use at::At;
pub use builtin::{BUILTINS, Builtin, builtin, builtin_prompt};
pub use doc::{Cache, CorePolicy, LegFile, OnFail, Order, SchemaText};
pub use engine_keys::EngineKeys;
pub use error::{LegFileError, Problem};
pub(crate) use parse::hex;
pub use parse::{load, parse};
pub use scalar::ScalarText;
pub use schema::leg_schema;
pub use set::{Cwd, LegSet, LegSpec, PhaseSpec, SelectError, Selection, Source, TimeoutSpec, Work};
pub use units::{Dur, Size, format_duration, format_size, parse_duration, parse_size};
