//! Any bytes as a GGUF file: opening it must not panic, and what it hands out must hold.
//!
//! Memory: run with `-malloc_limit_mb=64`; no input of the default length may need more.

#![no_main]

use legwork_engine::gguf::Gguf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let copy: *mut [u8] = Box::into_raw(data.into());
    {
        // SAFETY: the box is alive until it is taken back below, after everything that borrows it is gone.
        let bytes: &'static [u8] = unsafe { &*copy };
        if let Ok(gguf) = Gguf::from_bytes(bytes, "fuzz.gguf") {
            let _ = gguf.architecture();
            for tensor in gguf.tensors() {
                assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
                assert_eq!(gguf.tensor_bytes(tensor).map(|b| b.len() as u64), Some(tensor.bytes));
                assert_eq!(tensor.rows() * tensor.row_bytes(), tensor.bytes);
            }
            for (key, _) in gguf.metadata() {
                let _ = (gguf.opt_u32(key), gguf.opt_str(key), gguf.opt_array(key), gguf.opt_bool(key));
            }
        }
    }
    // SAFETY: `copy` came from a box and nothing borrows from it any more.
    drop(unsafe { Box::from_raw(copy) });
});
