//! Calls into the operating system.

pub mod clock;
pub mod page_cache;
pub mod process;
pub mod procfs;
pub mod terminal;
