//! The C side of the fibre runtime.

use std::ffi::{c_char, c_int, c_void};

pub type Entry = unsafe extern "C" fn(*const c_void);

#[repr(C)]
pub struct Kernel {
    pub name: *const c_char,
    pub entry: Entry,
    pub args_size: u32,
    pub threads: u32,
    pub next: *const Kernel,
}

#[repr(C)]
pub struct Buffer {
    pub base: u64,
    pub len: u64,
    pub name: *const c_char,
}

#[repr(C)]
pub struct Launch {
    pub entry: Entry,
    pub args: *const c_void,
    pub grid: [u32; 3],
    pub threads: u32,
    pub seed: u64,
    pub buffers: *const Buffer,
    pub n_buffers: u64,
}

#[repr(C)]
pub struct RawReport {
    pub kind: i32,
    pub line: u32,
    pub block: [u32; 3],
    pub thread: u32,
    pub index: i64,
    pub len: u64,
    pub elem: u32,
    pub file: [u8; 96],
    pub buffer: [u8; 64],
    pub detail: [u8; 200],
}

impl RawReport {
    pub fn zeroed() -> Self {
        RawReport {
            kind: 0,
            line: 0,
            block: [0; 3],
            thread: 0,
            index: 0,
            len: 0,
            elem: 0,
            file: [0; 96],
            buffer: [0; 64],
            detail: [0; 200],
        }
    }
}

unsafe extern "C" {
    pub fn simt_kernels() -> *const Kernel;
    pub fn simt_run_blocks(
        launch: *const Launch,
        first: u64,
        step: u64,
        report: *mut RawReport,
        stop: *const c_int,
    ) -> c_int;
    pub fn simt_release_thread();
    static simt_keep: [Option<unsafe extern "C" fn()>; 7];
}

/// Keeps the kernels' objects in the link: they register themselves when the program starts.
pub fn keep() -> usize {
    std::hint::black_box(&raw const simt_keep).addr()
}
