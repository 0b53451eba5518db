//! The table of calls: one field per function, filled when the library is opened.

use crate::LoadError;
use crate::types::{
    DevicePtr, Event, Function, Graph, GraphExec, GraphNode, HipError, Module, Stream,
};
use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;

macro_rules! hip_table {
    (required { $($(#[$rd:meta])* $r:ident = $rs:literal ($($rt:ty),*);)* } optional { $($(#[$od:meta])* $o:ident = $os:literal ($($ot:ty),*);)* }) => {
        /// HIP's functions. A field of type `Option` is absent from some releases.
        #[allow(clippy::type_complexity)]
        pub struct Hip {
            $($(#[$rd])* pub $r: unsafe extern "C" fn($($rt),*) -> HipError,)*
            $($(#[$od])* pub $o: Option<unsafe extern "C" fn($($ot),*) -> HipError>,)*
            // The addresses above are valid while the library stays open.
            _library: Library,
        }

        impl Hip {
            /// Names of all symbols that must exist.
            pub const REQUIRED: &[&str] = &[$($rs),*];
            /// Names of the symbols that may be absent.
            pub const OPTIONAL: &[&str] = &[$($os),*];

            pub(crate) fn fill(library: Library, path: &Path) -> Result<Self, LoadError> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the symbol has this C signature in every HIP release from 5.2 on.
                    let $r = match unsafe { library.get::<unsafe extern "C" fn($($rt),*) -> HipError>($rs.as_bytes()) } {
                        Ok(f) => Some(*f),
                        Err(_) => { missing.push($rs); None }
                    };
                )*
                $(
                    // SAFETY: as above.
                    let $o = unsafe { library.get::<unsafe extern "C" fn($($ot),*) -> HipError>($os.as_bytes()) }.ok().map(|f| *f);
                )*
                if let ($(Some($r),)*) = ($($r,)*) {
                    Ok(Hip { $($r,)* $($o,)* _library: library })
                } else {
                    Err(LoadError::MissingSymbols { library: path.to_path_buf(), missing })
                }
            }
        }
    };
}

hip_table! {
    required {
        /// `hipInit`
        init = "hipInit" (c_uint);
        /// `hipRuntimeGetVersion`
        runtime_version = "hipRuntimeGetVersion" (*mut c_int);
        /// `hipDriverGetVersion`
        driver_version = "hipDriverGetVersion" (*mut c_int);
        /// `hipGetDeviceCount`
        device_count = "hipGetDeviceCount" (*mut c_int);
        /// `hipSetDevice`
        set_device = "hipSetDevice" (c_int);
        /// `hipDeviceGetAttribute`
        device_attribute = "hipDeviceGetAttribute" (*mut c_int, c_int, c_int);
        /// `hipDeviceGetName`
        device_name = "hipDeviceGetName" (*mut c_char, c_int, c_int);
        /// `hipDeviceTotalMem`
        device_total_mem = "hipDeviceTotalMem" (*mut usize, c_int);
        /// `hipMemGetInfo`
        mem_info = "hipMemGetInfo" (*mut usize, *mut usize);
        /// `hipSetDeviceFlags`
        set_device_flags = "hipSetDeviceFlags" (c_uint);
        /// `hipGetLastError`
        last_error = "hipGetLastError" ();
        /// `hipDeviceSynchronize`
        device_synchronize = "hipDeviceSynchronize" ();
        /// `hipMalloc`
        malloc = "hipMalloc" (*mut DevicePtr, usize);
        /// `hipFree`
        free = "hipFree" (DevicePtr);
        /// `hipHostMalloc`
        host_malloc = "hipHostMalloc" (*mut *mut c_void, usize, c_uint);
        /// `hipHostFree`
        host_free = "hipHostFree" (*mut c_void);
        /// `hipMemcpy`
        memcpy = "hipMemcpy" (*mut c_void, *const c_void, usize, c_int);
        /// `hipMemcpyAsync`
        memcpy_async = "hipMemcpyAsync" (*mut c_void, *const c_void, usize, c_int, Stream);
        /// `hipMemsetAsync`
        memset_async = "hipMemsetAsync" (DevicePtr, c_int, usize, Stream);
        /// `hipStreamCreateWithFlags`
        stream_create = "hipStreamCreateWithFlags" (*mut Stream, c_uint);
        /// `hipStreamDestroy`
        stream_destroy = "hipStreamDestroy" (Stream);
        /// `hipStreamSynchronize`
        stream_synchronize = "hipStreamSynchronize" (Stream);
        /// `hipStreamQuery`
        stream_query = "hipStreamQuery" (Stream);
        /// `hipStreamWaitEvent`
        stream_wait_event = "hipStreamWaitEvent" (Stream, Event, c_uint);
        /// `hipEventCreateWithFlags`
        event_create = "hipEventCreateWithFlags" (*mut Event, c_uint);
        /// `hipEventRecord`
        event_record = "hipEventRecord" (Event, Stream);
        /// `hipEventQuery`
        event_query = "hipEventQuery" (Event);
        /// `hipEventSynchronize`
        event_synchronize = "hipEventSynchronize" (Event);
        /// `hipEventElapsedTime`
        event_elapsed = "hipEventElapsedTime" (*mut f32, Event, Event);
        /// `hipEventDestroy`
        event_destroy = "hipEventDestroy" (Event);
        /// `hipModuleLoadData`
        module_load = "hipModuleLoadData" (*mut Module, *const c_void);
        /// `hipModuleGetFunction`
        module_function = "hipModuleGetFunction" (*mut Function, Module, *const c_char);
        /// `hipModuleUnload`
        module_unload = "hipModuleUnload" (Module);
        /// `hipModuleLaunchKernel`
        module_launch = "hipModuleLaunchKernel" (Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void);
    }
    optional {
        /// `hipHostGetDevicePointer`
        host_device_pointer = "hipHostGetDevicePointer" (*mut DevicePtr, *mut c_void, c_uint);
        /// `hipHostRegister`
        host_register = "hipHostRegister" (*mut c_void, usize, c_uint);
        /// `hipHostUnregister`
        host_unregister = "hipHostUnregister" (*mut c_void);
        /// `hipMallocManaged`
        malloc_managed = "hipMallocManaged" (*mut DevicePtr, usize, c_uint);
        /// `hipMemAdvise`
        mem_advise = "hipMemAdvise" (*const c_void, usize, c_int, c_int);
        /// `hipMallocAsync`
        malloc_async = "hipMallocAsync" (*mut DevicePtr, usize, Stream);
        /// `hipFreeAsync`
        free_async = "hipFreeAsync" (DevicePtr, Stream);
        /// `hipExtMallocWithFlags`
        ext_malloc = "hipExtMallocWithFlags" (*mut DevicePtr, usize, c_uint);
        /// `hipMemcpyDtoDAsync`
        memcpy_dtod_async = "hipMemcpyDtoDAsync" (DevicePtr, DevicePtr, usize, Stream);
        /// `hipMemsetD8Async`
        memset_d8_async = "hipMemsetD8Async" (DevicePtr, u8, usize, Stream);
        /// `hipMemsetD32Async`
        memset_d32_async = "hipMemsetD32Async" (DevicePtr, c_int, usize, Stream);
        /// `hipModuleGetGlobal`
        module_global = "hipModuleGetGlobal" (*mut DevicePtr, *mut usize, Module, *const c_char);
        /// `hipFuncGetAttribute`
        function_attribute = "hipFuncGetAttribute" (*mut c_int, c_int, Function);
        /// `hipModuleOccupancyMaxActiveBlocksPerMultiprocessor`
        occupancy = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor" (*mut c_int, Function, c_int, usize);
        /// `hipStreamBeginCapture`
        capture_begin = "hipStreamBeginCapture" (Stream, c_int);
        /// `hipStreamEndCapture`
        capture_end = "hipStreamEndCapture" (Stream, *mut Graph);
        /// `hipGraphInstantiate`
        graph_instantiate = "hipGraphInstantiate" (*mut GraphExec, Graph, *mut GraphNode, *mut c_char, usize);
        /// `hipGraphLaunch`
        graph_launch = "hipGraphLaunch" (GraphExec, Stream);
        /// `hipGraphExecDestroy`
        graph_exec_destroy = "hipGraphExecDestroy" (GraphExec);
        /// `hipGraphDestroy`
        graph_destroy = "hipGraphDestroy" (Graph);
        /// `hipGraphExecKernelNodeSetParams`
        graph_exec_kernel_set = "hipGraphExecKernelNodeSetParams" (GraphExec, GraphNode, *const c_void);
        /// `hipDevicePrimaryCtxGetState`
        primary_context_state = "hipDevicePrimaryCtxGetState" (c_int, *mut c_uint, *mut c_int);
        /// `hipDeviceGetPCIBusId`
        device_pci = "hipDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
    }
}

impl std::fmt::Debug for Hip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hip")
    }
}
