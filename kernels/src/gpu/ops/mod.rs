//! The providers of GPU devices: each checks its arguments, then launches.

mod attention;
mod dense;
mod indexer;
mod matmul;
mod moe;
#[cfg(test)]
#[cfg(simt)]
mod tests;

use super::device::Gpu;
use super::error::GpuError;
use crate::device::DeviceKind;
use crate::ops::{self, Ctx, Named, OpError, OpId, ensure};
use crate::registry::{Provider, Registry};
use crate::tensor::{DType, Mut, Ref};

/// Adds the native providers for a device kind.
pub fn register(r: &mut Registry, kind: DeviceKind) {
    r.add(
        kind,
        Provider::<ops::Embed>::native("gpu-embed", dense::embed).supporting(dense::embed_supports),
    );
    r.add(
        kind,
        Provider::<ops::RmsNorm>::native("gpu-rms-norm", dense::rms_norm),
    );
    r.add(
        kind,
        Provider::<ops::LayerNorm>::native("gpu-layer-norm", dense::layer_norm),
    );
    r.add(
        kind,
        Provider::<ops::MatmulQuant>::native("gpu-matmul", matmul::matmul)
            .supporting(matmul::supports),
    );
    r.add(kind, Provider::<ops::Add>::native("gpu-add", dense::add));
    r.add(
        kind,
        Provider::<ops::SiluMul>::native("gpu-silu-mul", dense::silu_mul),
    );
    r.add(
        kind,
        Provider::<ops::Argmax>::native("gpu-argmax", dense::argmax),
    );
    r.add(
        kind,
        Provider::<ops::Rope>::native("gpu-rope", attention::rope)
            .supporting(attention::rope_supports),
    );
    r.add(
        kind,
        Provider::<ops::FusedNormRope>::native("gpu-fused-norm-rope", attention::fused)
            .supporting(attention::fused_supports),
    );
    r.add(
        kind,
        Provider::<ops::ConcatAndCacheMla>::native("gpu-concat-cache", attention::concat),
    );
    r.add(
        kind,
        Provider::<ops::MlaDecodeAttention>::native("gpu-mla-decode", attention::decode)
            .supporting(attention::supports),
    );
    r.add(
        kind,
        Provider::<ops::MlaPrefillAttention>::native("gpu-mla-prefill", attention::prefill)
            .supporting(attention::supports),
    );
    r.add(
        kind,
        Provider::<ops::CacheRows>::native("gpu-cache-rows", indexer::cache_rows),
    );
    r.add(
        kind,
        Provider::<ops::DsaIndexerLogits>::native("gpu-indexer", indexer::logits)
            .supporting(indexer::supports),
    );
    r.add(
        kind,
        Provider::<ops::DsaTopkSelect>::native("gpu-topk", indexer::topk),
    );
    r.add(
        kind,
        Provider::<ops::MoeRoute>::native("gpu-moe-route", moe::route)
            .supporting(moe::route_supports),
    );
    r.add(
        kind,
        Provider::<ops::MoeExperts>::native("gpu-moe-experts", moe::experts)
            .supporting(moe::experts_supports),
    );
}

/// The device that the context lends.
fn gpu<'c>(ctx: &'c mut Ctx<'_>, op: OpId) -> Result<&'c mut Gpu, OpError> {
    let gpu = ctx
        .device
        .as_deref_mut()
        .and_then(|d| d.downcast_mut::<Gpu>())
        .ok_or_else(|| OpError::Shape {
            op,
            what: "the context lends no GPU".to_owned(),
        })?;
    // These tell what they write; any other operation may write what was rounded.
    if !matches!(
        op,
        OpId::RmsNorm | OpId::MatmulQuant | OpId::SiluMul | OpId::MoeRoute | OpId::MoeExperts
    ) {
        gpu.forget_rounded();
    }
    Ok(gpu)
}

/// Turns a device failure into the operation's error.
trait OnDevice<T> {
    fn on(self, op: OpId, device: DeviceKind) -> Result<T, OpError>;
}
impl<T> OnDevice<T> for Result<T, GpuError> {
    fn on(self, op: OpId, device: DeviceKind) -> Result<T, OpError> {
        self.map_err(|e| OpError::Device {
            op,
            device,
            what: e.to_string(),
        })
    }
}

/// A size as a kernel takes it.
fn int(op: OpId, what: &str, value: usize) -> Result<i32, OpError> {
    i32::try_from(value).map_err(|_| OpError::Shape {
        op,
        what: format!("{what} {value} is above 2^31"),
    })
}

/// A grid dimension.
fn blocks(op: OpId, what: &str, value: usize) -> Result<u32, OpError> {
    u32::try_from(value)
        .ok()
        .filter(|v| *v < 1 << 31)
        .ok_or_else(|| OpError::Shape {
            op,
            what: format!("{what}: {value} blocks are too many"),
        })
}

/// y and z of a grid have 16 bits.
fn blocks_yz(op: OpId, what: &str, value: usize) -> Result<u32, OpError> {
    u32::try_from(value)
        .ok()
        .filter(|v| *v < 1 << 16)
        .ok_or_else(|| OpError::Shape {
            op,
            what: format!("{what}: {value} are more than the 65535 that one launch takes"),
        })
}

fn typed(
    op: OpId,
    what: &'static str,
    view: Ref<'_>,
    want: DType,
    n: usize,
) -> Result<u64, OpError> {
    if view.dtype() != want {
        return Err(OpError::Tensor {
            op,
            what,
            source: crate::tensor::TensorError::Type {
                have: view.dtype(),
                want,
            },
        });
    }
    view.device_address(n).named(op, what)
}

/// The address of `n` f32 elements.
fn f32s(op: OpId, what: &'static str, view: Ref<'_>, n: usize) -> Result<u64, OpError> {
    typed(op, what, view, DType::F32, n)
}
/// The address of `n` i32 elements.
fn i32s(op: OpId, what: &'static str, view: Ref<'_>, n: usize) -> Result<u64, OpError> {
    typed(op, what, view, DType::I32, n)
}
/// The address of `n` f32 elements to write.
fn f32s_mut(op: OpId, what: &'static str, view: &Mut<'_>, n: usize) -> Result<u64, OpError> {
    typed(op, what, view.as_ref(), DType::F32, n)
}
/// The address of `n` i32 elements to write.
fn i32s_mut(op: OpId, what: &'static str, view: &Mut<'_>, n: usize) -> Result<u64, OpError> {
    typed(op, what, view.as_ref(), DType::I32, n)
}
/// A cache's address and the kernels' number of its element type.
fn cache(op: OpId, view: Ref<'_>, n: usize) -> Result<(u64, i32), OpError> {
    let dtype = match view.dtype() {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::BF16 => 2,
        have @ DType::I32 => {
            return Err(OpError::Tensor {
                op,
                what: "cache",
                source: crate::tensor::TensorError::Type {
                    have,
                    want: DType::F32,
                },
            });
        }
    };
    Ok((view.device_address(n).named(op, "cache")?, dtype))
}
