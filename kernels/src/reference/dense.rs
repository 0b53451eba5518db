//! Embedding, norms, matrix products and element-wise operations.

use super::{axpy, decode, ensure, index, matmul_rows, shape, silu};
use crate::ops::{
    AddArgs, ArgmaxArgs, Ctx, EmbedArgs, LayerNormArgs, MatmulArgs, Named, OpError, OpId,
    RmsNormArgs, SiluMulArgs,
};

pub(super) fn embed(_: &mut Ctx<'_>, mut a: EmbedArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Embed;
    let dim = a.table.n_in;
    let table = a.table.host().named(op, "table")?;
    let ids = a.ids.i32(a.rows).named(op, "ids")?;
    let out = a.out.f32(a.rows * dim).named(op, "out")?;
    let size = a.table.row_bytes();
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(dim)) {
        let id = index(op, "token id", *id, a.table.n_out)?;
        decode(a.table.ty, &table[id * size..(id + 1) * size], out)
            .map_err(|e| shape(op, e.to_string()))?;
    }
    Ok(())
}

pub(super) fn rms_scale(x: &[f32], eps: f32) -> f32 {
    // The mean in f64: a sum of 6,144 squares in f32 would cost digits that the norm hands to every element.
    let sum: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    1.0 / ((sum / x.len() as f64) as f32 + eps).sqrt()
}

pub(super) fn rms_norm(_: &mut Ctx<'_>, mut a: RmsNormArgs<'_>) -> Result<(), OpError> {
    let op = OpId::RmsNorm;
    ensure(op, a.x_stride >= a.dim && a.dim > 0, || {
        format!("stride {} under dim {}", a.x_stride, a.dim)
    })?;
    if a.rows == 0 {
        return Ok(());
    }
    let x = a.x.f32((a.rows - 1) * a.x_stride + a.dim).named(op, "x")?;
    let w = a.weight.f32(a.dim).named(op, "weight")?;
    let out = a.out.f32(a.rows * a.dim).named(op, "out")?;
    for (x, out) in x.chunks(a.x_stride).zip(out.chunks_exact_mut(a.dim)) {
        let scale = rms_scale(&x[..a.dim], a.eps);
        for ((o, x), w) in out.iter_mut().zip(x).zip(w) {
            *o = x * scale * w;
        }
    }
    Ok(())
}

pub(super) fn layer_norm(_: &mut Ctx<'_>, mut a: LayerNormArgs<'_>) -> Result<(), OpError> {
    let op = OpId::LayerNorm;
    let w = a.weight.f32(a.dim).named(op, "weight")?;
    let b = a.bias.f32(a.dim).named(op, "bias")?;
    for x in
        a.x.f32(a.rows * a.dim)
            .named(op, "x")?
            .chunks_exact_mut(a.dim)
    {
        let n = x.len() as f64;
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let var = x
            .iter()
            .map(|v| (f64::from(*v) - mean).powi(2))
            .sum::<f64>()
            / n;
        let scale = 1.0 / (var + f64::from(a.eps)).sqrt();
        for ((x, w), b) in x.iter_mut().zip(w).zip(b) {
            *x = ((f64::from(*x) - mean) * scale) as f32 * w + b;
        }
    }
    Ok(())
}

pub(super) fn matmul(_: &mut Ctx<'_>, a: MatmulArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MatmulQuant;
    for mut part in a.parts {
        let w = part.weight;
        let x = a.x.f32(a.rows * w.n_in).named(op, "x")?;
        let out = part.out.f32(a.rows * w.n_out).named(op, "out")?;
        matmul_rows(op, w, 0, x, out, part.accumulate)?;
    }
    Ok(())
}

pub(super) fn add(_: &mut Ctx<'_>, mut a: AddArgs<'_>) -> Result<(), OpError> {
    let y = a.y.f32(a.n).named(OpId::Add, "y")?;
    axpy(a.x.f32(a.n).named(OpId::Add, "x")?, 1.0, y);
    Ok(())
}

pub(super) fn silu_mul(_: &mut Ctx<'_>, mut a: SiluMulArgs<'_>) -> Result<(), OpError> {
    let up = a.up.f32(a.n).named(OpId::SiluMul, "up")?;
    for (g, u) in a
        .gate
        .f32(a.n)
        .named(OpId::SiluMul, "gate")?
        .iter_mut()
        .zip(up)
    {
        *g = silu(*g) * u;
    }
    Ok(())
}

pub(super) fn argmax(_: &mut Ctx<'_>, mut a: ArgmaxArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Argmax;
    ensure(op, a.n > 0, || "no values to choose from".to_owned())?;
    let x = a.x.f32(a.rows * a.n).named(op, "x")?;
    let out = a.out.i32(a.rows).named(op, "out")?;
    for (x, out) in x.chunks_exact(a.n).zip(out) {
        let mut best = 0;
        for (i, v) in x.iter().enumerate() {
            if *v > x[best] {
                best = i;
            }
        }
        *out = if x[best] == f32::NEG_INFINITY || x.iter().any(|v| v.is_nan()) {
            -1
        } else {
            i32::try_from(best).map_err(|_| shape(op, "row too long for an i32 index"))?
        };
    }
    Ok(())
}
