//! Evidence: collectors beside the attempt, each with its own bound in time and size, none of which can fail it.
//!
//! [`kmsg`] the kernel's log inside the attempt's window, [`cores`] core files and what their notes say
//! ([`elf_core`]), [`snapshot`] stacks of a tree that is about to be ended, [`telemetry`] the sampler with [`gpu`],
//! [`board_dump`] what a board leaves after a fault.

pub mod board_dump;
pub mod cores;
pub mod elf_core;
pub mod gpu;
pub mod kmsg;
pub mod previous_boot;
pub mod snapshot;
pub mod telemetry;
