//! Which device, and why.

use std::path::Path;
use std::sync::Arc;

use legwork_kernels::device::{DeviceKind, MemoryFacts};
use legwork_kernels::gpu::{Gpu, GpuDomain};
use legwork_kernels::knobs::Knobs;
use legwork_kernels::registry::Registry;
use legwork_kernels::tensor::WeightData;

use super::staged::Staged;
use super::{DeviceChoice, EngineError};
use crate::forward::Device;
use crate::gguf::{Gguf, GgufError, Problem, TensorInfo};
use crate::model::WeightStore;

/// A device that was opened, and the reason for taking it.
pub(super) struct Opened {
    pub device: Device,
    pub reason: String,
    gpu: Option<(GpuDomain, MemoryFacts)>,
}

/// Opens what was asked for, or the first that works. `kernels` is a folder of code objects that replaces the built-in ones.
///
/// # Errors
/// A device that was named and cannot be opened, with the reason.
pub(super) fn open(
    choice: DeviceChoice,
    knobs: &Knobs,
    kernels: Option<&Path>,
) -> Result<Opened, EngineError> {
    let kind = match choice {
        DeviceChoice::Cpu => return Ok(cpu("asked for by --device cpu".to_owned())),
        DeviceChoice::Rocm => DeviceKind::Rocm,
        DeviceChoice::Cuda => DeviceKind::Cuda,
        DeviceChoice::Simt => DeviceKind::Simt,
        DeviceChoice::Auto => {
            let mut reasons = Vec::new();
            for kind in [DeviceKind::Rocm, DeviceKind::Cuda] {
                match Gpu::open(kind, knobs, kernels) {
                    Ok(gpu) => return Ok(opened(gpu, "the first GPU that works")),
                    Err(e) => reasons.push(e.to_string()),
                }
            }
            return Ok(cpu(reasons.join("; ")));
        }
    };
    let gpu = Gpu::open(kind, knobs, kernels)
        .map_err(|e| EngineError::Usage(format!("--device {kind}: {e}")))?;
    Ok(opened(gpu, &format!("asked for by --device {kind}")))
}

fn cpu(reason: String) -> Opened {
    Opened {
        device: Device::cpu(),
        reason,
        gpu: None,
    }
}

fn opened(gpu: Gpu, why: &str) -> Opened {
    let facts = gpu.driver().facts();
    let graphs = match gpu.graphs() {
        Ok(why) => format!("graphs on ({why})"),
        Err(why) => format!("graphs off ({why})"),
    };
    let reason = format!(
        "{why}: {} ({}), allocator {} ({}), {}, {graphs}",
        facts.name, facts.target, facts.allocator.call, facts.allocator.reason, facts.runtime
    );
    let domain = gpu.domain();
    Opened {
        reason,
        gpu: Some((domain.clone(), gpu.memory_facts())),
        device: Device {
            kind: gpu.kind(),
            domain: Arc::new(domain),
            state: Some(Box::new(gpu)),
        },
    }
}

impl Opened {
    /// Tells the registry of the device's providers and memory.
    pub(super) fn register(&self, registry: &mut Registry) {
        if let Some((_, facts)) = &self.gpu {
            legwork_kernels::gpu::register(registry, self.device.kind);
            registry.set_memory(self.device.kind, facts.clone());
        }
    }

    /// The device's memory, where the device is not the CPU.
    pub(super) fn gpu_domain(&self) -> Option<&GpuDomain> {
        self.gpu.as_ref().map(|(domain, _)| domain)
    }

    /// The store that binds weights to this device; `staged` is what is there already.
    pub(super) fn store<'a>(&'a self, host: &'a dyn WeightStore, staged: &'a Staged) -> Store<'a> {
        Store {
            host,
            staged,
            domain: self.gpu_domain(),
        }
    }
}

/// Host weights, copied to the device where there is one.
pub(super) struct Store<'a> {
    host: &'a dyn WeightStore,
    staged: &'a Staged,
    domain: Option<&'a GpuDomain>,
}

impl WeightStore for Store<'_> {
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError> {
        if let Some(memory) = self.staged.get(&*info.name) {
            return Ok(WeightData::Device(Arc::clone(memory)));
        }
        let data = self.host.data(gguf, info)?;
        let (Some(domain), WeightData::Host { bytes, offset, len }) = (self.domain, &data) else {
            return Ok(data);
        };
        let failed = |what: String| {
            gguf.error(Problem::Device {
                tensor: info.name.to_string(),
                what,
            })
        };
        let all: &[u8] = (**bytes).as_ref();
        let blocks = offset
            .checked_add(*len)
            .and_then(|end| all.get(*offset..end))
            .ok_or_else(|| failed("its bytes are not all in memory".to_owned()))?;
        domain
            .weight(blocks, &info.name)
            .map(WeightData::Device)
            .map_err(|e| failed(e.to_string()))
    }
}
