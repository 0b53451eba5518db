//! Embedding, norms, element-wise operations, argmax.

use super::matmul::{FEW, Q8, Rows, kernel_name};
use super::{OnDevice, blocks, blocks_yz, f32s, f32s_mut, gpu, i32s, i32s_mut, int};
use crate::gpu::args;
use crate::gpu::device::Gpu;
use crate::ops::{
    AddArgs, ArgmaxArgs, Ctx, EmbedArgs, LayerNormArgs, Named, OpError, OpId, RmsNormArgs,
    SiluMulArgs,
};

/// Longest row of `rms_norm_q8`.
const MAX_NORM: usize = 8192;
/// Most elements whose SiLU is rounded as it is made.
const MAX_SILU: usize = 1 << 17;

/// `x = silu(x) * y` row by row, and the result in 8 bits. Rows have a multiple of 32 elements, and are at most 65,535.
pub(super) fn silu_mul_q8(
    gpu: &mut Gpu,
    op: OpId,
    x: Rows,
    y: u64,
    y_stride: usize,
) -> Result<(), OpError> {
    let kind = gpu.kind();
    let q8 = Q8::room(gpu, op, false, x.rows * x.n)?;
    let args = args::EltQ8Args {
        x: x.x,
        y,
        q: q8.q,
        d: q8.d,
        s: q8.s,
        x_stride: x.stride as i64,
        y_stride: y_stride as i64,
        rows: int(op, "rows", x.rows)?,
        n: int(op, "n", x.n)?,
    };
    gpu.launch(
        "silu_mul_q8",
        [
            blocks(op, "n", x.n.div_ceil(128))?,
            blocks_yz(op, "rows", x.rows)?,
            1,
        ],
        128,
        &args,
    )
    .on(op, kind)?;
    gpu.round(false, q8.of(x));
    Ok(())
}

pub(super) fn embed_supports(a: &EmbedArgs<'_>) -> Result<(), String> {
    kernel_name("embed", a.table.ty)
        .map(|_| ())
        .ok_or_else(|| format!("no kernel for type {}", a.table.ty))
}

pub(super) fn embed(ctx: &mut Ctx<'_>, a: EmbedArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Embed;
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let kernel = kernel_name("embed", a.table.ty).ok_or_else(|| OpError::Shape {
        op,
        what: format!("no kernel for type {}", a.table.ty),
    })?;
    let dim = a.table.n_in;
    let args = args::EmbedArgs {
        table: a.table.device_address().named(op, "table")?,
        ids: i32s(op, "ids", a.ids, a.rows)?,
        out: f32s_mut(op, "out", &a.out, a.rows * dim)?,
        grid: gpu.grid(a.table.ty),
        row_bytes: a.table.row_bytes() as i64,
        rows: int(op, "rows", a.rows)?,
        dim: int(op, "dim", dim)?,
    };
    gpu.launch(kernel, [blocks(op, "rows", a.rows)?, 1, 1], 128, &args)
        .on(op, kind)
}

pub(super) fn rms_norm(ctx: &mut Ctx<'_>, a: RmsNormArgs<'_>) -> Result<(), OpError> {
    let op = OpId::RmsNorm;
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let used = a
        .rows
        .checked_sub(1)
        .map_or(0, |last| last * a.x_stride + a.dim);
    let out = f32s_mut(op, "out", &a.out, a.rows * a.dim)?;
    gpu.written(out, a.rows * a.dim * 4);
    if (1..=FEW).contains(&a.rows) && a.dim.is_multiple_of(32) && a.dim <= MAX_NORM {
        // The products of these rows want them in 8 bits.
        let q8 = Q8::room(gpu, op, true, a.rows * a.dim)?;
        let args = args::NormQ8Args {
            x: f32s(op, "x", a.x, used)?,
            w: f32s(op, "weight", a.weight, a.dim)?,
            out,
            q: q8.q,
            d: q8.d,
            s: q8.s,
            x_stride: a.x_stride as i64,
            rows: int(op, "rows", a.rows)?,
            dim: int(op, "dim", a.dim)?,
            eps: a.eps,
            pad: 0,
        };
        gpu.launch(
            "rms_norm_q8",
            [blocks(op, "rows", a.rows)?, 1, 1],
            1024,
            &args,
        )
        .on(op, kind)?;
        let x = Rows {
            x: out,
            stride: a.dim,
            rows: a.rows,
            n: a.dim,
        };
        gpu.round(true, q8.of(x));
        return Ok(());
    }
    let args = args::NormArgs {
        x: f32s(op, "x", a.x, used)?,
        w: f32s(op, "weight", a.weight, a.dim)?,
        b: 0,
        out,
        x_stride: a.x_stride as i64,
        rows: int(op, "rows", a.rows)?,
        dim: int(op, "dim", a.dim)?,
        eps: a.eps,
        pad: 0,
    };
    gpu.launch("rms_norm", [blocks(op, "rows", a.rows)?, 1, 1], 256, &args)
        .on(op, kind)
}

pub(super) fn layer_norm(ctx: &mut Ctx<'_>, a: LayerNormArgs<'_>) -> Result<(), OpError> {
    let op = OpId::LayerNorm;
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let x = f32s_mut(op, "x", &a.x, a.rows * a.dim)?;
    let args = args::NormArgs {
        x,
        w: f32s(op, "weight", a.weight, a.dim)?,
        b: f32s(op, "bias", a.bias, a.dim)?,
        out: x,
        x_stride: a.dim as i64,
        rows: int(op, "rows", a.rows)?,
        dim: int(op, "dim", a.dim)?,
        eps: a.eps,
        pad: 0,
    };
    gpu.launch(
        "layer_norm",
        [blocks(op, "rows", a.rows)?, 1, 1],
        256,
        &args,
    )
    .on(op, kind)
}

pub(super) fn add(ctx: &mut Ctx<'_>, a: AddArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Add;
    let args = args::EltArgs {
        x: f32s_mut(op, "x", &a.x, a.n)?,
        y: f32s(op, "y", a.y, a.n)?,
        x_stride: 0,
        y_stride: 0,
        rows: 1,
        n: int(op, "n", a.n)?,
    };
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    gpu.launch(
        "add",
        [blocks(op, "n", a.n.div_ceil(256))?, 1, 1],
        256,
        &args,
    )
    .on(op, kind)
}

pub(super) fn silu_mul(ctx: &mut Ctx<'_>, a: SiluMulArgs<'_>) -> Result<(), OpError> {
    let op = OpId::SiluMul;
    let args = args::EltArgs {
        x: f32s_mut(op, "gate", &a.gate, a.n)?,
        y: f32s(op, "up", a.up, a.n)?,
        x_stride: 0,
        y_stride: 0,
        rows: 1,
        n: int(op, "n", a.n)?,
    };
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    gpu.written(args.x, a.n * 4);
    // Longer ones are of many rows, whose products take f16.
    if a.n > 0 && a.n.is_multiple_of(32) && a.n <= MAX_SILU {
        let x = Rows {
            x: args.x,
            stride: a.n,
            rows: 1,
            n: a.n,
        };
        return silu_mul_q8(gpu, op, x, args.y, a.n);
    }
    gpu.launch(
        "silu_mul",
        [blocks(op, "n", a.n.div_ceil(256))?, 1, 1],
        256,
        &args,
    )
    .on(op, kind)
}

pub(super) fn argmax(ctx: &mut Ctx<'_>, a: ArgmaxArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Argmax;
    let args = args::ArgmaxArgs {
        x: f32s(op, "x", a.x, a.rows * a.n)?,
        out: i32s_mut(op, "out", &a.out, a.rows)?,
        rows: int(op, "rows", a.rows)?,
        n: int(op, "n", a.n)?,
    };
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    gpu.launch("argmax", [blocks(op, "rows", a.rows)?, 1, 1], 256, &args)
        .on(op, kind)
}
