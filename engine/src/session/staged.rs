//! Weights on their way to a device: several threads read them into pinned buffers, each copied from while others are filled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use legwork_kernels::gpu::staging::{Ring, SLOT};
use legwork_kernels::gpu::{GpuDomain, GpuError};
use legwork_kernels::tensor::DeviceMemory;

use crate::gguf::load::{LoadMode, LoadOptions, LoadStats, Staging, stage};
use crate::gguf::{Gguf, GgufError, Problem, TensorInfo};

/// Most pinned buffers: two for each reading thread, one being read into while the other is copied from.
const SLOTS: usize = 16;

/// Tensors that are on the device.
pub(super) type Staged = HashMap<String, Arc<dyn DeviceMemory>>;

/// Whether a model can be staged: its bytes are in files, and nobody asked for them to be mapped.
pub(super) fn applies(gguf: &Gguf, mode: LoadMode) -> bool {
    matches!(mode, LoadMode::Auto | LoadMode::Direct | LoadMode::Buffered)
        && gguf.shards().iter().all(|s| s.path().is_some())
}

/// What stops a piece: the file or the device.
enum Fault {
    File(GgufError),
    Device(GpuError),
}
impl From<GpuError> for Fault {
    fn from(e: GpuError) -> Self {
        Fault::Device(e)
    }
}

/// Loads the tensors that `keep` chooses into memory of `domain`.
///
/// # Errors
/// A file cannot be read, or the device has not that much memory.
pub(super) fn load(
    gguf: &Gguf,
    options: &LoadOptions,
    domain: &GpuDomain,
    keep: impl Fn(&TensorInfo) -> bool,
) -> Result<(Staged, LoadStats), GgufError> {
    let begin = Instant::now();
    let failed = |tensor: &str, what: String| {
        gguf.error(Problem::Device {
            tensor: tensor.to_owned(),
            what,
        })
    };
    let (mut staged, mut addresses) = (Staged::new(), Vec::new());
    for t in gguf.tensors() {
        if !keep(t) {
            addresses.push(0);
            continue;
        }
        let bytes = usize::try_from(t.bytes).unwrap_or(usize::MAX);
        let memory = domain
            .named(bytes, &t.name)
            .map_err(|e| failed(&t.name, e.to_string()))?;
        addresses.push(memory.address());
        staged.insert(t.name.to_string(), Arc::new(memory));
    }
    let pieces = gguf
        .tensors()
        .iter()
        .filter(|t| keep(t))
        .map(|t| t.bytes.div_ceil(SLOT as u64));
    let slots = usize::try_from(pieces.sum::<u64>())
        .unwrap_or(SLOTS)
        .clamp(1, SLOTS);
    let ring = Ring::new(Arc::clone(domain.driver()), slots)
        .map_err(|e| failed("the staging buffers", e.to_string()))?;
    let mut stats = stage(gguf, options, SLOT, keep, &|piece, fill| {
        let to = addresses[piece.tensor] + piece.at;
        ring.send(to, piece.skip, piece.len, |buffer| {
            fill(buffer).map_err(Fault::File)
        })
        .map_err(|fault| match fault {
            Fault::File(e) => e,
            Fault::Device(e) => failed(&gguf.tensors()[piece.tensor].name, e.to_string()),
        })
    })?;
    let times = ring
        .finish()
        .map_err(|e| failed("the staging buffers", e.to_string()))?;
    let share = |d: Duration| d.as_secs_f64() / stats.threads as f64;
    stats.staging = Some(Staging {
        read: share(times.read),
        copy: share(times.copy),
        wait: share(times.wait),
        slots,
    });
    stats.secs = begin.elapsed().as_secs_f64();
    Ok((staged, stats))
}
