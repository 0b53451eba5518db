//! NVIDIA devices through the CUDA driver API, opened at run time: a table of the same shape as HIP's, so that both share
//! [`super::stream`].

use super::driver::{Allocator, DeviceFacts, Driver, Launch};
use super::error::GpuError;
use super::pack;
use super::stream::{Api, StreamDriver};
use crate::device::DeviceKind;
use crate::knobs::ManagedAlloc;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

type R<T> = Result<T, GpuError>;
type Handle = *mut c_void;

const NOT_READY: c_int = 600;
const NOT_FOUND: c_int = 500;
const NON_BLOCKING: c_uint = 1;
const ATTACH_GLOBAL: c_uint = 1;
const CAPTURE_THREAD_LOCAL: c_uint = 1;
// CUdevice_attribute
const MULTIPROCESSORS: c_int = 16;
const INTEGRATED: c_int = 18;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

macro_rules! cuda_table {
    ($($field:ident = $symbol:literal ($($t:ty),*);)*) => {
        struct Table { $($field: unsafe extern "C" fn($($t),*) -> c_int,)* _library: Library }
        impl Table {
            fn fill(library: Library) -> Result<Self, String> {
                $(
                    // SAFETY: the symbol has this C signature in every driver from CUDA 11.4 on.
                    let $field = match unsafe { library.get::<unsafe extern "C" fn($($t),*) -> c_int>($symbol.as_bytes()) } {
                        Ok(f) => *f,
                        Err(_) => return Err(format!("libcuda lacks {}: the driver is older than CUDA 11.4", $symbol)),
                    };
                )*
                Ok(Table { $($field,)* _library: library })
            }
        }
    };
}

cuda_table! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (c_int, *mut *const c_char);
    error_string = "cuGetErrorString" (c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    context = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    set_current = "cuCtxSetCurrent" (Handle);
    malloc = "cuMemAlloc_v2" (*mut u64, usize);
    malloc_managed = "cuMemAllocManaged" (*mut u64, usize, c_uint);
    free = "cuMemFree_v2" (u64);
    host_alloc = "cuMemHostAlloc" (*mut Handle, usize, c_uint);
    host_free = "cuMemFreeHost" (Handle);
    h2d = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle);
    d2h = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Handle);
    d2d = "cuMemcpyDtoDAsync_v2" (u64, u64, usize, Handle);
    memset = "cuMemsetD8Async" (u64, u8, usize, Handle);
    stream_create = "cuStreamCreate" (*mut Handle, c_uint);
    stream_sync = "cuStreamSynchronize" (Handle);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_record = "cuEventRecord" (Handle, Handle);
    event_query = "cuEventQuery" (Handle);
    event_sync = "cuEventSynchronize" (Handle);
    event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
    module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
    module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    capture_begin = "cuStreamBeginCapture_v2" (Handle, c_uint);
    capture_end = "cuStreamEndCapture" (Handle, *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_destroy = "cuGraphDestroy" (Handle);
    graph_launch = "cuGraphLaunch" (Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (Handle);
}

/// Opens device `ordinal` and loads its code objects, embedded or from a folder.
///
/// # Errors
/// No driver, no device, or no code object for it; each by name.
pub fn open(ordinal: i32, managed: ManagedAlloc, kernels: Option<&Path>) -> R<Arc<dyn Driver>> {
    let absent = |reason: String| GpuError::Absent {
        device: DeviceKind::Cuda,
        reason,
    };
    let table = load().map_err(absent)?;
    let mut api = CudaApi {
        table,
        device: 0,
        context: null_mut(),
        stream: null_mut(),
        managed: managed == ManagedAlloc::On,
    };
    // SAFETY: the flag word must be 0.
    let code = unsafe { (api.table.init)(0) };
    api.ok("cuInit", code).map_err(|e| {
        absent(format!(
            "{e}; is the NVIDIA driver loaded, and /dev/nvidia0 visible?"
        ))
    })?;
    let mut count = 0;
    // SAFETY: valid pointers in these calls.
    api.ok("cuDeviceGetCount", unsafe {
        (api.table.device_count)(&raw mut count)
    })?;
    if ordinal < 0 || ordinal >= count {
        return Err(absent(format!(
            "device {ordinal} of {count}; CUDA_VISIBLE_DEVICES hides devices"
        )));
    }
    // SAFETY: as above.
    let code = unsafe { (api.table.device_get)(&raw mut api.device, ordinal) };
    api.ok("cuDeviceGet", code)?;
    // SAFETY: as above.
    let code = unsafe { (api.table.context)(&raw mut api.context, api.device) };
    api.ok("cuDevicePrimaryCtxRetain", code)?;
    api.bind()?;
    // SAFETY: as above.
    let code = unsafe { (api.table.stream_create)(&raw mut api.stream, NON_BLOCKING) };
    api.ok("cuStreamCreate", code)?;
    let facts = api.facts()?;
    let pack = pack::find(&facts.target, kernels)?;
    Ok(Arc::new(StreamDriver::new(api, facts, &pack)?))
}

fn load() -> Result<Table, String> {
    let mut tried = Vec::new();
    for name in ["libcuda.so.1", "libcuda.so"] {
        // SAFETY: opening a library runs its initialisers; a file of this name is the vendor's driver.
        match unsafe { Library::new(name) } {
            Ok(library) => return Table::fill(library),
            Err(_) => tried.push(name),
        }
    }
    Err(format!(
        "no CUDA driver: the loader finds none of {}",
        tried.join(", ")
    ))
}

struct CudaApi {
    table: Table,
    device: c_int,
    context: Handle,
    stream: Handle,
    managed: bool,
}
// SAFETY: the driver's calls may come from any thread; every use makes the context current first.
unsafe impl Send for CudaApi {}
// SAFETY: as above; the table and handles are not changed after opening.
unsafe impl Sync for CudaApi {}

fn ptr(address: u64) -> Handle {
    address as Handle
}

impl CudaApi {
    fn ok(&self, call: &'static str, code: c_int) -> R<()> {
        if code == 0 {
            return Ok(());
        }
        let text = |f: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut p = null();
            // SAFETY: a valid pointer; the driver hands out a constant string or null.
            let known = unsafe { f(code, &raw mut p) } == 0 && !p.is_null();
            // SAFETY: not null, and zero-terminated.
            known.then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
        };
        Err(GpuError::Call {
            call,
            code,
            name: text(self.table.error_name).unwrap_or_else(|| "CUDA error".to_owned()),
            hint: text(self.table.error_string),
        })
    }

    fn attribute(&self, attribute: c_int) -> i32 {
        let mut value = 0;
        // SAFETY: a valid pointer.
        let code = unsafe { (self.table.device_attribute)(&raw mut value, attribute, self.device) };
        if code == 0 { value } else { 0 }
    }

    fn facts(&self) -> R<DeviceFacts> {
        let mut name = [0; 256];
        // SAFETY: the buffer has the length that is passed.
        self.ok("cuDeviceGetName", unsafe {
            (self.table.device_name)(name.as_mut_ptr(), 255, self.device)
        })?;
        // SAFETY: the last byte is zero in any case.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }
            .to_string_lossy()
            .into_owned();
        let (mut memory, mut version) = (0, 0);
        // SAFETY: valid pointers.
        self.ok("cuDeviceTotalMem", unsafe {
            (self.table.device_memory)(&raw mut memory, self.device)
        })?;
        // SAFETY: a valid pointer.
        self.ok("cuDriverGetVersion", unsafe {
            (self.table.driver_version)(&raw mut version)
        })?;
        Ok(DeviceFacts {
            name,
            target: format!("sm_{}{}", self.attribute(MAJOR), self.attribute(MINOR)),
            multiprocessors: u32::try_from(self.attribute(MULTIPROCESSORS))
                .unwrap_or(1)
                .max(1),
            memory: memory as u64,
            integrated: self.attribute(INTEGRATED) == 1,
            // The knob's name is the product's; the rule behind it is HIP's and has no counterpart here.
            allocator: if self.managed {
                Allocator {
                    call: "cuMemAllocManaged",
                    reason: "VT_ROCM_MANAGED_ALLOC=1".to_owned(),
                }
            } else {
                Allocator {
                    call: "cuMemAlloc",
                    reason: "the default on CUDA".to_owned(),
                }
            },
            host_addressable: false,
            runtime: format!("CUDA driver API {version}"),
        })
    }
}

impl Api for CudaApi {
    const KIND: DeviceKind = DeviceKind::Cuda;

    fn bind(&self) -> R<()> {
        // SAFETY: the retained context.
        self.ok("cuCtxSetCurrent", unsafe {
            (self.table.set_current)(self.context)
        })
    }
    fn malloc(&self, bytes: usize) -> R<u64> {
        let mut p = 0;
        if self.managed {
            // SAFETY: a valid pointer and a flag of the driver's.
            self.ok("cuMemAllocManaged", unsafe {
                (self.table.malloc_managed)(&raw mut p, bytes, ATTACH_GLOBAL)
            })?;
            return Ok(p);
        }
        // SAFETY: a valid pointer.
        self.ok("cuMemAlloc", unsafe {
            (self.table.malloc)(&raw mut p, bytes)
        })?;
        Ok(p)
    }
    fn free(&self, address: u64) -> R<()> {
        // SAFETY: an address that `malloc` gave.
        self.ok("cuMemFree", unsafe { (self.table.free)(address) })
    }
    fn host_alloc(&self, bytes: usize) -> R<u64> {
        let mut p = null_mut();
        // SAFETY: a valid pointer.
        self.ok("cuMemHostAlloc", unsafe {
            (self.table.host_alloc)(&raw mut p, bytes, 0)
        })?;
        Ok(p.expose_provenance() as u64)
    }
    fn host_free(&self, address: u64) -> R<()> {
        // SAFETY: an address that `host_alloc` gave.
        self.ok("cuMemFreeHost", unsafe {
            (self.table.host_free)(ptr(address))
        })
    }
    fn h2d(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        // SAFETY: pinned memory of that size, which stays until the stream has passed the copy.
        self.ok("cuMemcpyHtoDAsync", unsafe {
            (self.table.h2d)(to, ptr(from), bytes, self.stream)
        })
    }
    fn d2h(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        // SAFETY: as above.
        self.ok("cuMemcpyDtoHAsync", unsafe {
            (self.table.d2h)(ptr(to), from, bytes, self.stream)
        })
    }
    fn d2d(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        // SAFETY: device addresses.
        self.ok("cuMemcpyDtoDAsync", unsafe {
            (self.table.d2d)(to, from, bytes, self.stream)
        })
    }
    fn zero(&self, to: u64, bytes: usize) -> R<()> {
        // SAFETY: a device address.
        self.ok("cuMemsetD8Async", unsafe {
            (self.table.memset)(to, 0, bytes, self.stream)
        })
    }
    fn stream_sync(&self) -> R<()> {
        // SAFETY: our stream.
        self.ok("cuStreamSynchronize", unsafe {
            (self.table.stream_sync)(self.stream)
        })
    }
    fn event_create(&self) -> R<u64> {
        let mut e = null_mut();
        // SAFETY: a valid pointer.
        self.ok("cuEventCreate", unsafe {
            (self.table.event_create)(&raw mut e, 0)
        })?;
        Ok(e.expose_provenance() as u64)
    }
    fn event_record(&self, event: u64) -> R<()> {
        // SAFETY: an event of `event_create`.
        self.ok("cuEventRecord", unsafe {
            (self.table.event_record)(ptr(event), self.stream)
        })
    }
    fn event_done(&self, event: u64) -> R<bool> {
        // SAFETY: as above.
        match unsafe { (self.table.event_query)(ptr(event)) } {
            NOT_READY => Ok(false),
            code => self.ok("cuEventQuery", code).map(|()| true),
        }
    }
    fn event_sync(&self, event: u64) -> R<()> {
        // SAFETY: as above.
        self.ok("cuEventSynchronize", unsafe {
            (self.table.event_sync)(ptr(event))
        })
    }
    fn event_ms(&self, from: u64, to: u64) -> R<f32> {
        let mut ms = 0.0;
        // SAFETY: two events and a valid pointer.
        self.ok("cuEventElapsedTime", unsafe {
            (self.table.event_elapsed)(&raw mut ms, ptr(from), ptr(to))
        })?;
        Ok(ms)
    }
    fn module_load(&self, image: &[u8]) -> R<u64> {
        let mut m = null_mut();
        // SAFETY: a whole cubin, or PTX with its final zero; the driver copies it.
        self.ok("cuModuleLoadData", unsafe {
            (self.table.module_load)(&raw mut m, image.as_ptr().cast())
        })?;
        Ok(m.expose_provenance() as u64)
    }
    fn module_function(&self, module: u64, name: &CString) -> R<Option<u64>> {
        let mut f = null_mut();
        // SAFETY: a module of `module_load` and a C string.
        match unsafe { (self.table.module_function)(&raw mut f, ptr(module), name.as_ptr()) } {
            NOT_FOUND => Ok(None),
            code => self
                .ok("cuModuleGetFunction", code)
                .map(|()| Some(f.expose_provenance() as u64)),
        }
    }
    fn launch(&self, function: u64, l: &Launch<'_>) -> R<()> {
        let mut params = [l.args.as_ptr().cast_mut().cast::<c_void>()];
        let [x, y, z] = l.grid;
        // SAFETY: one parameter, a struct of the size that the kernel takes; the driver copies it during the call.
        self.ok("cuLaunchKernel", unsafe {
            (self.table.launch)(
                ptr(function),
                x,
                y,
                z,
                l.threads,
                1,
                1,
                0,
                self.stream,
                params.as_mut_ptr(),
                null_mut(),
            )
        })
    }
    fn capture_begin(&self) -> R<()> {
        // SAFETY: our stream.
        self.ok("cuStreamBeginCapture", unsafe {
            (self.table.capture_begin)(self.stream, CAPTURE_THREAD_LOCAL)
        })
    }
    fn capture_end(&self) -> R<u64> {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: our capturing stream and valid pointers.
        self.ok("cuStreamEndCapture", unsafe {
            (self.table.capture_end)(self.stream, &raw mut graph)
        })?;
        // SAFETY: a graph.
        let made = self.ok("cuGraphInstantiate", unsafe {
            (self.table.graph_instantiate)(&raw mut exec, graph, 0)
        });
        // SAFETY: the same graph, which its executable form does not need.
        unsafe { (self.table.graph_destroy)(graph) };
        made.map(|()| exec.expose_provenance() as u64)
    }
    fn graph_launch(&self, graph: u64) -> R<()> {
        // SAFETY: an executable graph of `capture_end`.
        self.ok("cuGraphLaunch", unsafe {
            (self.table.graph_launch)(ptr(graph), self.stream)
        })
    }
    fn graph_free(&self, graph: u64) -> R<()> {
        // SAFETY: an executable graph of `capture_end`, which no work uses any more.
        self.ok("cuGraphExecDestroy", unsafe {
            (self.table.graph_exec_destroy)(ptr(graph))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without an NVIDIA GPU the refusal names the device and a reason.
    #[test]
    fn a_machine_without_the_device_is_told_why() {
        if let Err(e) = open(0, ManagedAlloc::Auto, None) {
            assert!(
                e.to_string().contains("cuda") || e.to_string().contains("sm_"),
                "{e}"
            );
        }
    }
}
