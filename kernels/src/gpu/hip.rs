//! AMD devices through the HIP runtime.

use super::driver::{Allocator, DeviceFacts, Driver, Launch};
use super::error::GpuError;
use super::pack;
use super::stream::{Api, StreamDriver};
use crate::device::DeviceKind;
use crate::knobs::ManagedAlloc;
use hip_sys::types::{self, Attribute, copy_kind};
use hip_sys::{Hip, error_hint, error_name};
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

type R<T> = Result<T, GpuError>;

/// Opens device `ordinal` and loads its code objects, embedded or from a folder.
///
/// # Errors
/// No runtime, no device, no permission, or no code object for it; each by name.
pub fn open(ordinal: i32, managed: ManagedAlloc, kernels: Option<&Path>) -> R<Arc<dyn Driver>> {
    let absent = |reason: String| GpuError::Absent {
        device: DeviceKind::Rocm,
        reason,
    };
    let (hip, library, count) = hip_sys::devices().map_err(|e| absent(e.to_string()))?;
    if usize::try_from(ordinal).map_or(true, |o| o >= count) {
        return Err(absent(format!("device {ordinal} of {count}")));
    }
    let mut api = HipApi {
        hip,
        ordinal,
        stream: null_mut(),
        managed: false,
    };
    api.bind()?;
    // A waiting thread then sleeps instead of taking a core and its share of the power budget; too late is no harm.
    // SAFETY: a flag word.
    let _ = unsafe { (api.hip.set_device_flags)(types::SCHEDULE_BLOCKING_SYNC) };
    let facts = api.facts(managed, &library)?;
    api.managed = facts.allocator.call == "hipMallocManaged";
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { (api.hip.stream_create)(&raw mut api.stream, types::STREAM_NON_BLOCKING) };
    api.ok("hipStreamCreateWithFlags", code)?;
    let pack = pack::find(&facts.target, kernels)?;
    Ok(Arc::new(StreamDriver::new(api, facts, &pack)?))
}

/// The allocator for what the user asked and what the device can, and why.
#[must_use]
pub fn choose_allocator(
    asked: ManagedAlloc,
    managed_memory: bool,
    pageable_access: bool,
) -> Allocator {
    let (managed, reason) = match asked {
        ManagedAlloc::On => (true, "VT_ROCM_MANAGED_ALLOC=1".to_owned()),
        ManagedAlloc::Off => (false, "VT_ROCM_MANAGED_ALLOC=0".to_owned()),
        ManagedAlloc::Auto => (
            managed_memory && pageable_access,
            format!(
                "PageableMemoryAccess={}, ManagedMemory={}",
                u8::from(pageable_access),
                u8::from(managed_memory)
            ),
        ),
    };
    Allocator {
        call: if managed {
            "hipMallocManaged"
        } else {
            "hipMalloc"
        },
        reason,
    }
}

struct HipApi {
    hip: Hip,
    ordinal: c_int,
    stream: types::Stream,
    managed: bool,
}
// SAFETY: HIP's calls may come from any thread; every use binds the device first.
unsafe impl Send for HipApi {}
// SAFETY: as above; the table and handles are not changed after opening.
unsafe impl Sync for HipApi {}

fn ptr(address: u64) -> *mut c_void {
    address as *mut c_void
}

impl HipApi {
    #[allow(clippy::unused_self)] // reads as a method at every call
    fn ok(&self, call: &'static str, code: c_int) -> R<()> {
        if code == types::SUCCESS {
            return Ok(());
        }
        Err(GpuError::Call {
            call,
            code,
            name: error_name(code).to_owned(),
            hint: error_hint(code).map(str::to_owned),
        })
    }

    fn absent(&self, what: &'static str) -> GpuError {
        let _ = self.ordinal;
        GpuError::Unsupported {
            device: DeviceKind::Rocm,
            what,
        }
    }

    fn attribute(&self, attribute: Attribute) -> i32 {
        let mut value = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe {
            (self.hip.device_attribute)(&raw mut value, attribute as c_int, self.ordinal)
        };
        if code == types::SUCCESS { value } else { 0 }
    }

    fn facts(&self, asked: ManagedAlloc, library: &Path) -> R<DeviceFacts> {
        let mut name = [0; 256];
        // SAFETY: the buffer has the length that is passed.
        self.ok("hipDeviceGetName", unsafe {
            (self.hip.device_name)(name.as_mut_ptr(), 256, self.ordinal)
        })?;
        // SAFETY: HIP ends the name with a zero inside the buffer; the last byte is zero in any case.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }
            .to_string_lossy()
            .into_owned();
        let mut memory = 0;
        // SAFETY: the pointer is valid for the call.
        self.ok("hipDeviceTotalMem", unsafe {
            (self.hip.device_total_mem)(&raw mut memory, self.ordinal)
        })?;
        let (mut runtime, mut driver) = (0, 0);
        // SAFETY: the pointers are valid for the calls; a failure leaves 0, which is printed as such.
        unsafe {
            (self.hip.runtime_version)(&raw mut runtime);
            (self.hip.driver_version)(&raw mut driver);
        }
        let allocator = choose_allocator(
            asked,
            self.attribute(Attribute::ManagedMemory) == 1,
            self.attribute(Attribute::PageableMemoryAccess) == 1,
        );
        if allocator.call == "hipMallocManaged" && self.hip.malloc_managed.is_none() {
            return Err(self.absent("hipMallocManaged (VT_ROCM_MANAGED_ALLOC=1)"));
        }
        let target = self.target().ok_or_else(|| GpuError::Absent {
            device: DeviceKind::Rocm,
            reason: "the gfx target could not be read from /sys/class/kfd/kfd/topology/nodes; is KFD visible in this container?".to_owned(),
        })?;
        Ok(DeviceFacts {
            name,
            target,
            multiprocessors: u32::try_from(self.attribute(Attribute::MultiprocessorCount))
                .unwrap_or(1)
                .max(1),
            memory: memory as u64,
            integrated: self.attribute(Attribute::Integrated) == 1,
            host_addressable: allocator.call == "hipMallocManaged",
            allocator,
            runtime: format!("HIP {runtime}, driver {driver}, {}", library.display()),
        })
    }

    /// The instruction set, from the kernel's topology: `hipDeviceProp_t` changed between releases and is not used.
    fn target(&self) -> Option<String> {
        let nodes = topology(Path::new("/sys/class/kfd/kfd/topology/nodes"));
        let mut pci = [0; 64];
        let known = self.hip.device_pci.is_some_and(|f| {
            // SAFETY: the buffer has the length that is passed.
            unsafe { f(pci.as_mut_ptr(), 64, self.ordinal) == types::SUCCESS }
        });
        // SAFETY: zero-terminated inside the buffer.
        let text = unsafe { CStr::from_ptr(pci.as_ptr()) };
        let pci = known.then(|| text.to_string_lossy().into_owned());
        choose_node(
            &nodes,
            pci.as_deref(),
            usize::try_from(self.ordinal).unwrap_or(0),
        )
    }
}

/// What is needed of a topology node.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    location: u64,
    domain: u64,
    gfx: u64,
}

fn topology(folder: &Path) -> Vec<Node> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut ids: Vec<u32> = entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    ids.into_iter()
        .filter_map(|id| {
            std::fs::read_to_string(folder.join(id.to_string()).join("properties")).ok()
        })
        .filter_map(|text| {
            let value = |key: &str| {
                text.lines()
                    .find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            (value("simd_count ") > 0).then(|| Node {
                location: value("location_id "),
                domain: value("domain "),
                gfx: value("gfx_target_version "),
            })
        })
        .collect()
}

fn choose_node(nodes: &[Node], pci: Option<&str>, ordinal: usize) -> Option<String> {
    let place = pci.and_then(|text| {
        let mut parts = text.split([':', '.']).map(|p| u64::from_str_radix(p, 16));
        let mut next = || parts.next()?.ok();
        let (domain, bus, device, function) = (next()?, next()?, next()?, next()?);
        Some((domain, bus << 8 | device << 3 | function))
    });
    let node = match place {
        Some((domain, location)) => nodes
            .iter()
            .find(|n| n.location == location && n.domain == domain),
        None => None,
    };
    let node = node.or_else(|| nodes.get(ordinal))?;
    (node.gfx > 0).then(|| {
        format!(
            "gfx{}{:x}{:x}",
            node.gfx / 10000,
            node.gfx / 100 % 100,
            node.gfx % 100
        )
    })
}

impl Api for HipApi {
    const KIND: DeviceKind = DeviceKind::Rocm;

    fn bind(&self) -> R<()> {
        // SAFETY: a device number.
        self.ok("hipSetDevice", unsafe {
            (self.hip.set_device)(self.ordinal)
        })
    }
    fn malloc(&self, bytes: usize) -> R<u64> {
        let mut p = null_mut();
        if self.managed {
            let f = self
                .hip
                .malloc_managed
                .ok_or_else(|| self.absent("hipMallocManaged"))?;
            // SAFETY: the pointer is valid for the call.
            self.ok("hipMallocManaged", unsafe {
                f(&raw mut p, bytes, types::MEM_ATTACH_GLOBAL)
            })?;
        } else {
            // SAFETY: the pointer is valid for the call.
            self.ok("hipMalloc", unsafe { (self.hip.malloc)(&raw mut p, bytes) })?;
        }
        Ok(p.expose_provenance() as u64)
    }
    fn free(&self, address: u64) -> R<()> {
        // SAFETY: the caller hands over an address that `malloc` gave.
        self.ok("hipFree", unsafe { (self.hip.free)(ptr(address)) })
    }
    fn host_alloc(&self, bytes: usize) -> R<u64> {
        let mut p = null_mut();
        // SAFETY: the pointer is valid for the call.
        self.ok("hipHostMalloc", unsafe {
            (self.hip.host_malloc)(&raw mut p, bytes, types::HOST_MALLOC_DEFAULT)
        })?;
        Ok(p.expose_provenance() as u64)
    }
    fn host_free(&self, address: u64) -> R<()> {
        // SAFETY: as `free`.
        self.ok("hipHostFree", unsafe { (self.hip.host_free)(ptr(address)) })
    }
    fn h2d(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        // SAFETY: pinned memory of at least that size, which stays until the stream has passed the copy.
        self.ok("hipMemcpyAsync", unsafe {
            (self.hip.memcpy_async)(
                ptr(to),
                ptr(from),
                bytes,
                copy_kind::HOST_TO_DEVICE,
                self.stream,
            )
        })
    }
    fn d2h(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        // SAFETY: as above.
        self.ok("hipMemcpyAsync", unsafe {
            (self.hip.memcpy_async)(
                ptr(to),
                ptr(from),
                bytes,
                copy_kind::DEVICE_TO_HOST,
                self.stream,
            )
        })
    }
    fn d2d(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        // SAFETY: both are device addresses.
        self.ok("hipMemcpyAsync", unsafe {
            (self.hip.memcpy_async)(
                ptr(to),
                ptr(from),
                bytes,
                copy_kind::DEVICE_TO_DEVICE,
                self.stream,
            )
        })
    }
    fn zero(&self, to: u64, bytes: usize) -> R<()> {
        // SAFETY: a device address with that many bytes.
        self.ok("hipMemsetAsync", unsafe {
            (self.hip.memset_async)(ptr(to), 0, bytes, self.stream)
        })
    }
    fn stream_sync(&self) -> R<()> {
        // SAFETY: our stream.
        self.ok("hipStreamSynchronize", unsafe {
            (self.hip.stream_synchronize)(self.stream)
        })
    }
    fn event_create(&self) -> R<u64> {
        let mut e = null_mut();
        // SAFETY: the pointer is valid for the call.
        self.ok("hipEventCreateWithFlags", unsafe {
            (self.hip.event_create)(&raw mut e, types::EVENT_DEFAULT)
        })?;
        Ok(e.expose_provenance() as u64)
    }
    fn event_record(&self, event: u64) -> R<()> {
        // SAFETY: an event of `event_create`.
        self.ok("hipEventRecord", unsafe {
            (self.hip.event_record)(ptr(event), self.stream)
        })
    }
    fn event_done(&self, event: u64) -> R<bool> {
        // SAFETY: as above.
        match unsafe { (self.hip.event_query)(ptr(event)) } {
            types::NOT_READY => Ok(false),
            code => self.ok("hipEventQuery", code).map(|()| true),
        }
    }
    fn event_sync(&self, event: u64) -> R<()> {
        // SAFETY: as above.
        self.ok("hipEventSynchronize", unsafe {
            (self.hip.event_synchronize)(ptr(event))
        })
    }
    fn event_ms(&self, from: u64, to: u64) -> R<f32> {
        let mut ms = 0.0;
        // SAFETY: two events and a valid pointer.
        self.ok("hipEventElapsedTime", unsafe {
            (self.hip.event_elapsed)(&raw mut ms, ptr(from), ptr(to))
        })?;
        Ok(ms)
    }
    fn module_load(&self, image: &[u8]) -> R<u64> {
        let mut m = null_mut();
        // SAFETY: a whole ELF image; HIP copies it.
        self.ok("hipModuleLoadData", unsafe {
            (self.hip.module_load)(&raw mut m, image.as_ptr().cast())
        })?;
        Ok(m.expose_provenance() as u64)
    }
    fn module_function(&self, module: u64, name: &CString) -> R<Option<u64>> {
        let mut f = null_mut();
        // SAFETY: a module of `module_load` and a C string.
        match unsafe { (self.hip.module_function)(&raw mut f, ptr(module), name.as_ptr()) } {
            500 => Ok(None),
            code => self
                .ok("hipModuleGetFunction", code)
                .map(|()| Some(f.expose_provenance() as u64)),
        }
    }
    fn launch(&self, function: u64, l: &Launch<'_>) -> R<()> {
        let mut params = [l.args.as_ptr().cast_mut().cast::<c_void>()];
        let [x, y, z] = l.grid;
        // SAFETY: one parameter, a struct of the size that the kernel's metadata states; HIP copies it during the call.
        self.ok("hipModuleLaunchKernel", unsafe {
            (self.hip.module_launch)(
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
        let f = self
            .hip
            .capture_begin
            .ok_or_else(|| self.absent("hipStreamBeginCapture"))?;
        // SAFETY: our stream.
        self.ok("hipStreamBeginCapture", unsafe {
            f(self.stream, types::CAPTURE_THREAD_LOCAL)
        })
    }
    fn capture_end(&self) -> R<u64> {
        let end = self
            .hip
            .capture_end
            .ok_or_else(|| self.absent("hipStreamEndCapture"))?;
        let make = self
            .hip
            .graph_instantiate
            .ok_or_else(|| self.absent("hipGraphInstantiate"))?;
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: our stream, which is capturing; valid pointers.
        self.ok("hipStreamEndCapture", unsafe {
            end(self.stream, &raw mut graph)
        })?;
        // SAFETY: a graph, and null for the error log.
        let made = self.ok("hipGraphInstantiate", unsafe {
            make(&raw mut exec, graph, null_mut(), null_mut(), 0)
        });
        if let Some(destroy) = self.hip.graph_destroy {
            // SAFETY: the same graph, which its executable form does not need.
            let _ = unsafe { destroy(graph) };
        }
        made.map(|()| exec.expose_provenance() as u64)
    }
    fn graph_launch(&self, graph: u64) -> R<()> {
        let f = self
            .hip
            .graph_launch
            .ok_or_else(|| self.absent("hipGraphLaunch"))?;
        // SAFETY: an executable graph of `capture_end`.
        self.ok("hipGraphLaunch", unsafe { f(ptr(graph), self.stream) })
    }
    fn graph_free(&self, graph: u64) -> R<()> {
        let f = self
            .hip
            .graph_exec_destroy
            .ok_or_else(|| self.absent("hipGraphExecDestroy"))?;
        // SAFETY: an executable graph of `capture_end`, which no work uses any more.
        self.ok("hipGraphExecDestroy", unsafe { f(ptr(graph)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_follows_the_knob_then_the_device() {
        let call = |asked, managed, pageable| choose_allocator(asked, managed, pageable).call;
        // gfx1151: managed memory exists, pageable access does not
        assert_eq!(call(ManagedAlloc::Auto, true, false), "hipMalloc");
        assert_eq!(call(ManagedAlloc::Auto, true, true), "hipMallocManaged");
        assert_eq!(call(ManagedAlloc::Auto, false, true), "hipMalloc");
        assert_eq!(call(ManagedAlloc::On, true, false), "hipMallocManaged");
        assert_eq!(call(ManagedAlloc::Off, true, true), "hipMalloc");
        assert_eq!(
            choose_allocator(ManagedAlloc::Auto, true, false).reason,
            "PageableMemoryAccess=0, ManagedMemory=1"
        );
        assert_eq!(
            choose_allocator(ManagedAlloc::On, true, false).reason,
            "VT_ROCM_MANAGED_ALLOC=1"
        );
    }

    #[test]
    fn the_gfx_target_comes_from_the_topology() {
        let nodes = [
            Node {
                location: 0x300,
                domain: 0,
                gfx: 110_000,
            },
            Node {
                location: 0xc500,
                domain: 0,
                gfx: 110_501,
            },
        ];
        assert_eq!(
            choose_node(&nodes, Some("0000:c5:00.0"), 0).as_deref(),
            Some("gfx1151")
        );
        assert_eq!(choose_node(&nodes, None, 0).as_deref(), Some("gfx1100"));
        assert_eq!(
            choose_node(&nodes, Some("nonsense"), 1).as_deref(),
            Some("gfx1151")
        );
        assert_eq!(choose_node(&[], None, 0), None);
        assert_eq!(
            choose_node(
                &[Node {
                    location: 0,
                    domain: 0,
                    gfx: 90_010
                }],
                None,
                0
            )
            .as_deref(),
            Some("gfx90a")
        );
    }

    #[test]
    fn topology_files_are_read() {
        let folder = std::env::temp_dir().join(format!("legwork-kfd-{}", std::process::id()));
        for (id, text) in [
            ("0", "simd_count 0\ngfx_target_version 0\n"),
            (
                "1",
                "simd_count 80\nlocation_id 50432\ndomain 0\ngfx_target_version 110501\n",
            ),
        ] {
            std::fs::create_dir_all(folder.join(id)).unwrap();
            std::fs::write(folder.join(id).join("properties"), text).unwrap();
        }
        let nodes = topology(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            nodes,
            [Node {
                location: 0xc500,
                domain: 0,
                gfx: 110_501
            }]
        );
    }

    /// On a machine without an AMD GPU the refusal names the device and a reason.
    #[test]
    fn a_machine_without_the_device_is_told_why() {
        if let Err(e) = open(0, ManagedAlloc::Auto, None) {
            assert!(!e.to_string().is_empty());
            assert!(
                e.to_string().contains("rocm") || e.to_string().contains("gfx"),
                "{e}"
            );
        }
    }
}
