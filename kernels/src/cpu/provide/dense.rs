//! Embedding, norms, matrix products and element-wise operations.

use super::{Borrowed, ensure, index, matrix, named, rounding, rows_of, shape};
use crate::blocks::decode;
use crate::cpu::matmul::{Job, products};
use crate::cpu::out::Out;
use crate::cpu::{ActKind, Element, Isa, Store, elementwise};
use crate::ops::{
    AddArgs, ArgmaxArgs, Ctx, EmbedArgs, LayerNormArgs, MatmulArgs, Named, OpError, OpId,
    RmsNormArgs, SiluMulArgs,
};

pub(super) fn embed(ctx: &mut Ctx<'_>, mut a: EmbedArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Embed;
    let (w, dim) = (a.table, a.table.n_in);
    let table = matrix(op, w, 0)?;
    let ids = a.ids.i32(a.rows).named(op, "ids")?;
    let rows: Vec<usize> = ids
        .iter()
        .map(|id| index(op, "token id", *id, w.n_out))
        .collect::<Result<_, _>>()?;
    let out = a.out.f32(a.rows * dim).named(op, "out")?;
    let size = w.row_bytes();
    let one =
        |row: usize, out: &mut [f32]| decode(w.ty, &table.bytes[row * size..(row + 1) * size], out);
    // Every row has the same size, so all decode if the first does.
    if let (Some(first), Some(out)) = (rows.first(), out.get_mut(..dim)) {
        one(*first, out).map_err(|e| named(op, w, &e))?;
    }
    let out = Out::new(out, dim);
    ctx.pool.ranges(a.rows, rows_of(16 * dim), |range, _| {
        for r in range {
            // SAFETY: a row is one task's.
            let done = one(rows[r], unsafe { out.part(r, 0..dim) });
            debug_assert!(done.is_ok());
        }
    });
    Ok(())
}

pub(super) fn rms_norm(ctx: &mut Ctx<'_>, mut a: RmsNormArgs<'_>) -> Result<(), OpError> {
    let (op, isa) = (OpId::RmsNorm, Isa::best());
    ensure(op, a.x_stride >= a.dim && a.dim > 0, || {
        format!("stride {} under dim {}", a.x_stride, a.dim)
    })?;
    if a.rows == 0 {
        return Ok(());
    }
    let x = a.x.f32((a.rows - 1) * a.x_stride + a.dim).named(op, "x")?;
    let w = a.weight.f32(a.dim).named(op, "weight")?;
    let out = Out::new(a.out.f32(a.rows * a.dim).named(op, "out")?, a.dim);
    ctx.pool.ranges(a.rows, rows_of(a.dim), |range, _| {
        for r in range {
            let x = &x[r * a.x_stride..][..a.dim];
            // SAFETY: a row is one task's.
            let out = unsafe { out.part(r, 0..a.dim) };
            elementwise::rms_norm(isa, x, w, a.eps, out);
        }
    });
    Ok(())
}

pub(super) fn layer_norm(_: &mut Ctx<'_>, mut a: LayerNormArgs<'_>) -> Result<(), OpError> {
    let op = OpId::LayerNorm;
    ensure(op, a.dim > 0, || "rows without elements".to_owned())?;
    let w = a.weight.f32(a.dim).named(op, "weight")?;
    let b = a.bias.f32(a.dim).named(op, "bias")?;
    let x = a.x.f32(a.rows * a.dim).named(op, "x")?;
    for x in x.chunks_exact_mut(a.dim) {
        let n = x.len() as f32;
        let mean = x.iter().sum::<f32>() / n;
        x.iter_mut().for_each(|v| *v -= mean);
        let var = f32::dot(Isa::best(), x, x) / n;
        let scale = 1.0 / (var + a.eps).sqrt();
        for ((x, w), b) in x.iter_mut().zip(w).zip(b) {
            *x = *x * scale * w + b;
        }
    }
    Ok(())
}

/// All parts as one piece of work; the activations are rounded once for each way of rounding.
pub(super) fn matmul(ctx: &mut Ctx<'_>, mut a: MatmulArgs<'_>) -> Result<(), OpError> {
    let (op, isa) = (OpId::MatmulQuant, Isa::best());
    let mut rounded: Vec<(ActKind, Borrowed)> = Vec::new();
    for part in &a.parts {
        let kind = ActKind::of(part.weight.ty);
        if rounded.iter().any(|(k, _)| *k == kind) {
            continue;
        }
        let n = part.weight.n_in;
        let x = a.x.f32(a.rows * n).named(op, "x")?;
        let mut acts = Borrowed::new();
        acts.0
            .set_on(ctx.pool, isa, kind, x, n)
            .map_err(rounding(op))?;
        rounded.push((kind, acts));
    }
    let mut jobs = Vec::with_capacity(a.parts.len());
    for part in &mut a.parts {
        let w = part.weight;
        let kind = ActKind::of(w.ty);
        let acts = rounded.iter().find(|(k, _)| *k == kind).map(|(_, a)| &a.0);
        let Some(acts) = acts.filter(|acts| acts.n() == w.n_in) else {
            return Err(named(op, w, &"its rows are not as long as the activations"));
        };
        jobs.push(Job {
            w: matrix(op, w, 0)?,
            acts,
            first: 0,
            m: a.rows,
            column: 0,
            out: Out::new(part.out.f32(a.rows * w.n_out).named(op, "out")?, w.n_out),
            store: if part.accumulate {
                Store::Add
            } else {
                Store::Write
            },
        });
    }
    products(ctx.pool, isa, &jobs);
    Ok(())
}

pub(super) fn add(_: &mut Ctx<'_>, mut a: AddArgs<'_>) -> Result<(), OpError> {
    let y = a.y.f32(a.n).named(OpId::Add, "y")?;
    let x = a.x.f32(a.n).named(OpId::Add, "x")?;
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    Ok(())
}

pub(super) fn silu_mul(ctx: &mut Ctx<'_>, mut a: SiluMulArgs<'_>) -> Result<(), OpError> {
    let op = OpId::SiluMul;
    let up = a.up.f32(a.n).named(op, "up")?;
    let gate = Out::new(a.gate.f32(a.n).named(op, "gate")?, 1);
    ctx.pool.ranges(a.n, 1 << 13, |range, _| {
        // SAFETY: a range is one task's.
        let gate = unsafe { gate.part(0, range.clone()) };
        elementwise::silu_mul(Isa::best(), gate, &up[range]);
    });
    Ok(())
}

pub(super) fn argmax(_: &mut Ctx<'_>, mut a: ArgmaxArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Argmax;
    ensure(op, a.n > 0, || "no values to choose from".to_owned())?;
    let x = a.x.f32(a.rows * a.n).named(op, "x")?;
    let out = a.out.i32(a.rows).named(op, "out")?;
    for (x, out) in x.chunks_exact(a.n).zip(out) {
        // The largest first (NaN is skipped by `max`, hence looked for), then where it is.
        let (largest, nan) = x.iter().fold((f32::NEG_INFINITY, false), |(a, nan), v| {
            (a.max(*v), nan | v.is_nan())
        });
        let at = match x.iter().position(|v| *v == largest) {
            Some(at) if !nan && largest > f32::NEG_INFINITY => Some(at),
            _ => None,
        };
        *out = match at.map(i32::try_from) {
            None => -1,
            Some(Ok(at)) => at,
            Some(Err(_)) => return Err(shape(op, "row too long for an i32 index")),
        };
    }
    Ok(())
}
