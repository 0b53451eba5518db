//! Every call into the operating system behind few functions: clocks, terminals, processes, control groups,
//! the kernel's process events, bounded helper runs and the tree of `/sys`-like files ([`root::Root`]).

pub mod cgroup;
pub mod clock;
pub mod helper;
pub mod page_cache;
pub mod proc_events;
pub mod process;
pub mod procfs;
pub mod pty;
pub mod root;
pub mod terminal;
pub mod wake;
