//! The reference tier: portable f32 code that defines what each operation means.
//!
//! Written to be read against the formulas, not to be fast. Sums run in f32 over eight lanes, which keeps their rounding
//! error small and lets the compiler vectorise them; nothing is approximated.

mod attention;
mod dense;
mod indexer;
mod moe;

use crate::blocks::decode;
use crate::device::DeviceKind;
use crate::ops::{self, Named, OpError, OpId, ensure, index, shape};
use crate::registry::{Provider, Registry};
use crate::tensor::{DType, Mut, Ref, Weight};

/// Adds the reference providers, which serve every device whose memory the CPU can address.
pub fn register(r: &mut Registry) {
    let cpu = DeviceKind::Cpu;
    r.add(cpu, Provider::<ops::Embed>::reference(dense::embed));
    r.add(cpu, Provider::<ops::RmsNorm>::reference(dense::rms_norm));
    r.add(
        cpu,
        Provider::<ops::LayerNorm>::reference(dense::layer_norm),
    );
    r.add(cpu, Provider::<ops::MatmulQuant>::reference(dense::matmul));
    r.add(cpu, Provider::<ops::Add>::reference(dense::add));
    r.add(cpu, Provider::<ops::SiluMul>::reference(dense::silu_mul));
    r.add(cpu, Provider::<ops::Argmax>::reference(dense::argmax));
    r.add(cpu, Provider::<ops::Rope>::reference(attention::rope));
    r.add(
        cpu,
        Provider::<ops::FusedNormRope>::reference(attention::fused_norm_rope),
    );
    r.add(
        cpu,
        Provider::<ops::ConcatAndCacheMla>::reference(attention::concat_and_cache),
    );
    r.add(
        cpu,
        Provider::<ops::MlaDecodeAttention>::reference(attention::absorbed),
    );
    r.add(
        cpu,
        Provider::<ops::MlaPrefillAttention>::reference(attention::unabsorbed),
    );
    r.add(
        cpu,
        Provider::<ops::CacheRows>::reference(indexer::cache_rows),
    );
    r.add(
        cpu,
        Provider::<ops::DsaIndexerLogits>::reference(indexer::logits),
    );
    r.add(
        cpu,
        Provider::<ops::DsaTopkSelect>::reference(indexer::topk),
    );
    r.add(cpu, Provider::<ops::MoeRoute>::reference(moe::route));
    r.add(cpu, Provider::<ops::MoeExperts>::reference(moe::experts));
}

/// `Σ a[i] * b[i]` in f32 over eight lanes.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    for (x, y) in a8.iter().zip(b8) {
        for i in 0..8 {
            lanes[i] += x[i] * y[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h)) + rest
}

/// `y += a * x`.
pub(crate) fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// `x / (1 + exp(-x))`.
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// `1 / (1 + exp(-x))`.
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Decodes one matrix of a weight: `[n_out, n_in]`.
fn decode_mat(op: OpId, w: &Weight, m: usize) -> Result<Vec<f32>, OpError> {
    let mut out = vec![0.0; w.n_in * w.n_out];
    decode(w.ty, w.host_mat(m).named(op, "weight")?, &mut out)
        .map_err(|e| shape(op, format!("{}: {e}", w.name)))?;
    Ok(out)
}

/// `out[r, o] (+)= Σ_i w[o, i] * x[r, i]`, decoding one weight row at a time.
fn matmul_rows(
    op: OpId,
    w: &Weight,
    m: usize,
    x: &[f32],
    out: &mut [f32],
    add: bool,
) -> Result<(), OpError> {
    let bytes = w.host_mat(m).named(op, "weight")?;
    let mut row = vec![0.0; w.n_in];
    for (o, blocks) in bytes.chunks_exact(w.row_bytes()).enumerate() {
        decode(w.ty, blocks, &mut row).map_err(|e| shape(op, format!("{}: {e}", w.name)))?;
        for (x, out) in x.chunks_exact(w.n_in).zip(out.chunks_exact_mut(w.n_out)) {
            let v = dot(&row, x);
            if add {
                out[o] += v;
            } else {
                out[o] = v;
            }
        }
    }
    Ok(())
}

/// Writes `values` as row `row` of a cache of any float type.
fn cache_store(op: OpId, cache: &mut Mut<'_>, row: usize, values: &[f32]) -> Result<(), OpError> {
    let (from, to) = (row * values.len(), (row + 1) * values.len());
    match cache.dtype() {
        DType::F16 => {
            for (c, v) in cache.u16(to).named(op, "cache")?[from..]
                .iter_mut()
                .zip(values)
            {
                *c = half::f16::from_f32(*v).to_bits();
            }
        }
        DType::BF16 => {
            for (c, v) in cache.u16(to).named(op, "cache")?[from..]
                .iter_mut()
                .zip(values)
            {
                *c = half::bf16::from_f32(*v).to_bits();
            }
        }
        _ => cache.f32(to).named(op, "cache")?[from..].copy_from_slice(values),
    }
    Ok(())
}

/// Reads row `row` of a cache of any float type.
fn cache_load(op: OpId, cache: Ref<'_>, row: usize, out: &mut [f32]) -> Result<(), OpError> {
    let (from, to) = (row * out.len(), (row + 1) * out.len());
    match cache.dtype() {
        DType::F16 => {
            for (o, c) in out
                .iter_mut()
                .zip(&cache.u16(to).named(op, "cache")?[from..])
            {
                *o = half::f16::from_bits(*c).to_f32();
            }
        }
        DType::BF16 => {
            for (o, c) in out
                .iter_mut()
                .zip(&cache.u16(to).named(op, "cache")?[from..])
            {
                *o = half::bf16::from_bits(*c).to_f32();
            }
        }
        _ => out.copy_from_slice(&cache.f32(to).named(op, "cache")?[from..]),
    }
    Ok(())
}

/// Rows of a cache decoded to f32.
fn cache_rows(
    op: OpId,
    cache: Ref<'_>,
    dim: usize,
    rows: std::ops::Range<usize>,
) -> Result<Vec<f32>, OpError> {
    let mut out = vec![0.0; rows.len() * dim];
    for (row, out) in rows.zip(out.chunks_exact_mut(dim.max(1))) {
        cache_load(op, cache, row, out)?;
    }
    Ok(out)
}

/// Softmax in place over all values; `values` is not empty.
fn softmax(values: &mut [f32]) {
    softmax_with(values, None);
}

/// Softmax in place over all values and a sink, which is not among them. Returns the logarithm of the values' sum of
/// exponentials, minus infinity without values.
fn softmax_with(values: &mut [f32], sink: Option<f32>) -> f32 {
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        // NaN, which `max` skips, stays.
        values
            .iter_mut()
            .filter(|v| !v.is_nan())
            .for_each(|v| *v = 0.0);
        return max;
    }
    let mut sum = 0.0;
    for v in values.iter_mut() {
        *v = (*v - max).exp();
        sum += *v;
    }
    let total = sum + sink.map_or(0.0, |s| (s - max).exp());
    for v in values {
        *v /= total;
    }
    max + sum.ln()
}

#[cfg(test)]
mod tests;
