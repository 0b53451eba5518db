//! Capture: a thread of its own reads the pty (and stderr, and the engine's events) and stamps what it read at that
//! moment; a second one writes it down before anybody looks at it.
//!
//! [`reader`] owns the descriptors and stamps, [`writer`] owns the files and tells, [`lines`] cuts lines, [`capped`]
//! bounds a file, [`stamps`] judges whether stamps are times, [`phases`] turns events and lines into phases, [`fatal`]
//! knows the lines that no run survives.

pub mod capped;
pub mod fatal;
pub mod lines;
pub mod phases;
mod reader;
pub mod stamps;
pub mod writer;
