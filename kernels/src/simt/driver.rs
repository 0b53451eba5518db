//! Host memory and fibre launches behind the device trait.

use super::report::{Fault, Report};
use super::{ffi, pool};
use crate::device::DeviceKind;
use crate::gpu::{Allocator, DeviceFacts, Driver, GpuError, GraphId, Launch, Mark};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const ALIGN: usize = 256;
const PAGE: usize = 4096;

struct Block {
    layout: std::alloc::Layout,
    bytes: usize,
    label: CString,
}

/// The simt device. Allocations are process memory, known by their bounds.
pub struct SimtDriver {
    facts: DeviceFacts,
    seed: AtomicU64,
    blocks: Mutex<BTreeMap<u64, Block>>,
    kernels: HashMap<&'static str, Entry>,
    start: Instant,
    graphs: Mutex<Graphs>,
    pinned: Mutex<BTreeMap<u64, std::alloc::Layout>>,
}

/// Recorded launches, and the recording under way.
#[derive(Default)]
struct Graphs {
    recording: Option<Vec<Recorded>>,
    done: BTreeMap<u64, std::sync::Arc<[Recorded]>>,
    next: u64,
}

/// A launch with its own copy of the arguments.
struct Recorded {
    kernel: &'static str,
    grid: [u32; 3],
    threads: u32,
    args: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Entry {
    run: ffi::Entry,
    args_size: u32,
    threads: u32,
}

impl std::fmt::Debug for SimtDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimtDriver")
    }
}

impl SimtDriver {
    /// Opens the device with a schedule seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let _ = ffi::keep();
        let mut kernels = HashMap::new();
        // SAFETY: a linked list of constants that the C++ side built before `main`.
        let mut at = unsafe { ffi::simt_kernels() };
        while !at.is_null() {
            // SAFETY: as above.
            let k = unsafe { &*at };
            // SAFETY: a string literal of the C++ side.
            let name = unsafe { CStr::from_ptr(k.name) }
                .to_str()
                .unwrap_or_default();
            kernels.insert(
                name,
                Entry {
                    run: k.entry,
                    args_size: k.args_size,
                    threads: k.threads,
                },
            );
            at = k.next;
        }
        SimtDriver {
            facts: DeviceFacts {
                name: "host fibres".to_owned(),
                target: "simt".to_owned(),
                multiprocessors: 2,
                memory: 0,
                integrated: true,
                allocator: Allocator {
                    call: "host",
                    reason: "simt checks every access to its own allocations".to_owned(),
                },
                host_addressable: false,
                runtime: format!("seed {seed}"),
            },
            seed: AtomicU64::new(seed),
            blocks: Mutex::new(BTreeMap::new()),
            kernels,
            start: Instant::now(),
            graphs: Mutex::default(),
            pinned: Mutex::default(),
        }
    }

    /// Sets the seed of the next launches' schedules.
    pub fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Names, argument sizes and block sizes of all kernels.
    pub fn kernels(&self) -> impl Iterator<Item = (&'static str, u32, u32)> {
        self.kernels
            .iter()
            .map(|(n, e)| (*n, e.args_size, e.threads))
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Block>> {
        self.blocks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn graphs(&self) -> std::sync::MutexGuard<'_, Graphs> {
        self.graphs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Refuses what a GPU's runtime refuses while launches are recorded.
    fn not_recording(&self, call: &'static str) -> Result<(), GpuError> {
        if self.graphs().recording.is_none() {
            return Ok(());
        }
        Err(GpuError::Call {
            call,
            code: 900,
            name: "not permitted while launches are recorded".to_owned(),
            hint: None,
        })
    }

    /// Refuses a copy that leaves its allocation, as a GPU's runtime would.
    fn check(&self, call: &'static str, address: u64, bytes: usize) -> Result<(), GpuError> {
        let blocks = self.blocks();
        let inside = blocks
            .range(..=address)
            .next_back()
            .is_some_and(|(base, b)| address - base + bytes as u64 <= b.bytes as u64);
        if inside || bytes == 0 {
            return Ok(());
        }
        Err(GpuError::Call {
            call,
            code: 1,
            name: "invalid value".to_owned(),
            hint: Some(format!(
                "{bytes} bytes at {address:#x} are not inside one allocation"
            )),
        })
    }

    fn report(&self, kernel: &str, seed: u64, raw: &ffi::RawReport) -> GpuError {
        let text = |bytes: &[u8]| {
            CStr::from_bytes_until_nul(bytes)
                .map(|s| s.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        GpuError::Kernel(Box::new(Report {
            fault: Fault::from_code(raw.kind),
            kernel: kernel.to_owned(),
            file: text(&raw.file),
            line: raw.line,
            block: raw.block,
            thread: raw.thread,
            buffer: text(&raw.buffer),
            index: raw.index,
            len: raw.len,
            elem: raw.elem,
            detail: text(&raw.detail),
            seed,
        }))
    }
}

impl Drop for SimtDriver {
    fn drop(&mut self) {
        for (base, b) in std::mem::take(&mut *self.blocks()) {
            // SAFETY: allocated with this layout and not freed before.
            unsafe { std::alloc::dealloc(base as *mut u8, b.layout) }
        }
        let pinned = self
            .pinned
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (base, layout) in std::mem::take(pinned) {
            // SAFETY: as above.
            unsafe { std::alloc::dealloc(base as *mut u8, layout) }
        }
    }
}

impl Driver for SimtDriver {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Simt
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn allocate(&self, bytes: usize, label: &str) -> Result<u64, GpuError> {
        self.not_recording("allocate")?;
        let exhausted = || GpuError::OutOfMemory {
            device: DeviceKind::Simt,
            bytes,
            what: "the host has not that much".to_owned(),
        };
        let layout =
            std::alloc::Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| exhausted())?;
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(exhausted());
        }
        let label = CString::new(format!("{label}, {bytes} B")).unwrap_or_default();
        self.blocks().insert(
            base.addr() as u64,
            Block {
                layout,
                bytes,
                label,
            },
        );
        Ok(base.expose_provenance() as u64)
    }

    fn free(&self, address: u64) {
        if let Some(b) = self.blocks().remove(&address) {
            // SAFETY: allocated with this layout, and removed from the map only once.
            unsafe { std::alloc::dealloc(address as *mut u8, b.layout) }
        }
    }

    fn upload(&self, to: u64, from: &[u8]) -> Result<(), GpuError> {
        self.not_recording("upload")?;
        self.check("upload", to, from.len())?;
        // SAFETY: inside one allocation, and launches are over when they return.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) }
        Ok(())
    }

    fn download(&self, to: &mut [u8], from: u64) -> Result<(), GpuError> {
        self.not_recording("download")?;
        self.check("download", from, to.len())?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) }
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), GpuError> {
        self.not_recording("copy")?;
        self.check("copy", to, bytes)?;
        self.check("copy", from, bytes)?;
        // SAFETY: both inside allocations; they may overlap.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) }
        Ok(())
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<(), GpuError> {
        let no_kernel = |reason: String| GpuError::NoKernel {
            kernel: launch.kernel.to_owned(),
            target: "simt".to_owned(),
            reason,
        };
        let entry = self
            .kernels
            .get(launch.kernel)
            .ok_or_else(|| no_kernel("no source defines it".to_owned()))?;
        if entry.args_size as usize != launch.args.len() || entry.threads != launch.threads {
            return Err(no_kernel(format!(
                "the source takes {} bytes of arguments and {} threads, the launch has {} and {}",
                entry.args_size,
                entry.threads,
                launch.args.len(),
                launch.threads
            )));
        }
        let blocks: u64 = launch.grid.iter().map(|g| u64::from(*g)).product();
        if blocks == 0 {
            return Ok(());
        }
        if let Some(recording) = &mut self.graphs().recording {
            recording.push(Recorded {
                kernel: launch.kernel,
                grid: launch.grid,
                threads: launch.threads,
                args: launch.args.to_vec(),
            });
            return Ok(());
        }
        // The map is held through the launch: nothing is freed under a kernel.
        let live = self.blocks();
        let table: Vec<ffi::Buffer> = live
            .iter()
            .map(|(base, b)| ffi::Buffer {
                base: *base,
                len: b.bytes as u64,
                name: b.label.as_ptr(),
            })
            .collect();
        // Arguments are read in place, so they must be aligned as the struct is.
        let mut args = vec![0u64; launch.args.len().div_ceil(8)];
        // SAFETY: the vector has at least that many bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                launch.args.as_ptr(),
                args.as_mut_ptr().cast(),
                launch.args.len(),
            )
        };
        let seed = self.seed.load(Ordering::Relaxed);
        let raw = ffi::Launch {
            entry: entry.run,
            args: args.as_ptr().cast(),
            grid: launch.grid,
            threads: launch.threads,
            seed,
            buffers: table.as_ptr(),
            n_buffers: table.len() as u64,
        };
        match pool::run(&raw, blocks) {
            (0, _) => Ok(()),
            (1, report) => Err(self.report(launch.kernel, seed, &report)),
            _ => Err(GpuError::OutOfMemory {
                device: DeviceKind::Simt,
                bytes: 64 << 20,
                what: "no memory for fibre stacks".to_owned(),
            }),
        }
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.not_recording("synchronize")
    }

    fn mark(&self) -> Result<Mark, GpuError> {
        Ok(Mark(
            u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        ))
    }

    fn elapsed_ms(&self, from: Mark, to: Mark) -> Result<f32, GpuError> {
        Ok(to.0.saturating_sub(from.0) as f32 * 1e-6)
    }

    fn capture_begin(&self) -> Result<(), GpuError> {
        self.not_recording("capture_begin")?;
        self.graphs().recording = Some(Vec::new());
        Ok(())
    }

    fn capture_end(&self) -> Result<GraphId, GpuError> {
        let mut graphs = self.graphs();
        let recorded = graphs.recording.take().ok_or(GpuError::Unsupported {
            device: DeviceKind::Simt,
            what: "the end of a recording that was not begun",
        })?;
        graphs.next += 1;
        let id = graphs.next;
        graphs.done.insert(id, recorded.into());
        Ok(GraphId(id))
    }

    fn graph_launch(&self, graph: GraphId) -> Result<(), GpuError> {
        let launches = self
            .graphs()
            .done
            .get(&graph.0)
            .cloned()
            .ok_or(GpuError::Unsupported {
                device: DeviceKind::Simt,
                what: "a recording that was given back",
            })?;
        launches.iter().try_for_each(|l| {
            self.launch(&Launch {
                kernel: l.kernel,
                grid: l.grid,
                threads: l.threads,
                args: &l.args,
            })
        })
    }

    fn graph_free(&self, graph: GraphId) {
        self.graphs().done.remove(&graph.0);
    }

    fn pinned(&self, bytes: usize) -> Result<Option<u64>, GpuError> {
        let exhausted = || GpuError::OutOfMemory {
            device: DeviceKind::Simt,
            bytes,
            what: "the host has not that much".to_owned(),
        };
        let layout =
            std::alloc::Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| exhausted())?;
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(exhausted());
        }
        let address = base.expose_provenance() as u64;
        self.pinned
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(address, layout);
        Ok(Some(address))
    }

    fn free_pinned(&self, address: u64) {
        let layout = self
            .pinned
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&address);
        if let Some(layout) = layout {
            // SAFETY: allocated with this layout, and removed from the map only once.
            unsafe { std::alloc::dealloc(address as *mut u8, layout) }
        }
    }

    fn upload_pinned(&self, to: u64, from: u64, bytes: usize) -> Result<(), GpuError> {
        self.not_recording("upload_pinned")?;
        self.check("upload_pinned", to, bytes)?;
        let inside = self
            .pinned
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .range(..=from)
            .next_back()
            .is_some_and(|(base, l)| from - base + bytes as u64 <= l.size() as u64);
        if !inside {
            return Err(GpuError::Call {
                call: "upload_pinned",
                code: 1,
                name: "invalid value".to_owned(),
                hint: Some(format!("{bytes} bytes at {from:#x} are not pinned memory")),
            });
        }
        // SAFETY: both ranges are inside live allocations, and they are different ones.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
        Ok(())
    }
}
