//! Routing and experts. Few tokens: one wave per expert row and pair. Many: pairs grouped by expert, so that each expert's
//! weights are read once per 64 of its tokens.

use super::dense::silu_mul_q8;
use super::matmul::{FEW, Mmv, Rows, TILE, kernel_name, known, mmv, quantize, rounds};
use super::{OnDevice, blocks, blocks_yz, ensure, f32s, f32s_mut, gpu, i32s, i32s_mut, int};
use crate::gpu::args;
use crate::gpu::device::{Gpu, Scratch};
use crate::ops::{Ctx, Gating, MoeExpertsArgs, MoeRouteArgs, Named, OpError, OpId};
use crate::tensor::Weight;

const MAX_EXPERTS: usize = 1024;
const MAX_GROUPS: usize = 64;

pub(super) fn route_supports(a: &MoeRouteArgs<'_>) -> Result<(), String> {
    if a.experts > MAX_EXPERTS || a.groups > MAX_GROUPS {
        return Err(format!(
            "{} experts in {} groups; at most {MAX_EXPERTS} in {MAX_GROUPS}",
            a.experts, a.groups
        ));
    }
    // The kernel keeps the chosen ones' weights where it kept the groups'.
    if a.top_k > MAX_GROUPS {
        return Err(format!("{} experts a token; at most {MAX_GROUPS}", a.top_k));
    }
    if a.groups > 1 && (!a.experts.is_multiple_of(a.groups) || a.groups_used == 0) {
        return Err(format!(
            "{} experts do not divide into {} groups, {} used",
            a.experts, a.groups, a.groups_used
        ));
    }
    Ok(())
}

pub(super) fn route(ctx: &mut Ctx<'_>, a: MoeRouteArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MoeRoute;
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    ensure(op, a.top_k <= a.experts, || {
        format!("{} of {} experts", a.top_k, a.experts)
    })?;
    let args = args::RouteArgs {
        logits: f32s(op, "logits", a.logits, a.rows * a.experts)?,
        bias: a
            .bias
            .map(|b| f32s(op, "bias", b, a.experts))
            .transpose()?
            .unwrap_or(0),
        ids: i32s_mut(op, "ids", &a.ids, a.rows * a.top_k)?,
        weights: f32s_mut(op, "weights", &a.weights, a.rows * a.top_k)?,
        rows: int(op, "rows", a.rows)?,
        experts: int(op, "experts", a.experts)?,
        top_k: int(op, "top_k", a.top_k)?,
        softmax: i32::from(a.gating == Gating::Softmax),
        groups: int(op, "groups", a.groups)?,
        groups_used: int(op, "groups_used", a.groups_used)?,
        norm: i32::from(a.norm),
        scale: a.scale,
    };
    gpu.written(args.ids, a.rows * a.top_k * 4);
    gpu.written(args.weights, a.rows * a.top_k * 4);
    gpu.launch("moe_route", [blocks(op, "rows", a.rows)?, 1, 1], 32, &args)
        .on(op, kind)
}

pub(super) fn experts_supports(a: &MoeExpertsArgs<'_>) -> Result<(), String> {
    known(a.gate)?;
    a.up.map_or(Ok(()), known)?;
    known(a.down)?;
    if a.gate.n_mat > MAX_EXPERTS {
        Err(format!("{} experts; at most {MAX_EXPERTS}", a.gate.n_mat))
    } else {
        Ok(())
    }
}

/// Which pairs go to which expert.
enum Plan {
    /// Each pair by itself; the expert is `ids[pair]`.
    Pairs,
    /// Tiles of pairs of one expert.
    Grouped {
        perm: u64,
        tiles: u64,
        max_tiles: usize,
    },
}

/// One projection of all pairs.
struct Projection<'a> {
    weight: &'a Weight,
    x: Rows,
    /// Pairs per activation row.
    x_div: usize,
    pairs: usize,
    ids: u64,
    out: u64,
}

fn project(gpu: &mut Gpu, op: OpId, plan: &Plan, p: &Projection<'_>) -> Result<(), OpError> {
    let kind = gpu.kind();
    let w = p.weight;
    let grouped = match plan {
        Plan::Grouped {
            perm,
            tiles,
            max_tiles,
        } => kernel_name("gemm", w.ty).map(|k| (k, *perm, *tiles, *max_tiles)),
        Plan::Pairs => None,
    };
    let Some((kernel, perm, tiles, max_tiles)) = grouped else {
        let q8 = if rounds(w.ty) {
            Some(quantize(gpu, op, p.x)?)
        } else {
            None
        };
        return mmv(
            gpu,
            op,
            &Mmv {
                weight: w,
                x: p.x,
                q8,
                ids: p.ids,
                results: p.pairs,
                x_div: p.x_div,
                out: p.out,
                out_stride: w.n_out,
                accumulate: false,
                shared: false,
            },
        );
    };
    gpu.written(p.out, p.pairs * w.n_out * 4);
    let args = args::GemmArgs {
        w: w.device_address().named(op, "expert")?,
        grid: gpu.grid(w.ty),
        x: p.x.x,
        tiles,
        perm,
        out: p.out,
        row_bytes: w.row_bytes() as i64,
        mat_bytes: w.mat_bytes() as i64,
        x_stride: p.x.stride as i64,
        out_stride: w.n_out as i64,
        x_z: 0,
        out_z: 0,
        rows: int(op, "pairs", p.pairs)?,
        n_in: int(op, "n_in", w.n_in)?,
        n_out: int(op, "n_out", w.n_out)?,
        x_div: int(op, "top_k", p.x_div)?,
        accumulate: 0,
        aligned: i32::from(p.x.aligned()),
    };
    gpu.launch(
        kernel,
        [
            blocks(op, "n_out", w.n_out.div_ceil(64))?,
            blocks_yz(op, "tiles", max_tiles)?,
            1,
        ],
        128,
        &args,
    )
    .on(op, kind)
}

pub(super) fn experts(ctx: &mut Ctx<'_>, a: MoeExpertsArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MoeExperts;
    if a.rows == 0 || a.top_k == 0 {
        return Ok(());
    }
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let pairs = a.rows * a.top_k;
    let wide = if a.up.is_some() { a.ff } else { 2 * a.ff };
    let (g, d) = ((a.gate.n_in, a.gate.n_out), (a.down.n_in, a.down.n_out));
    ensure(op, g == (a.dim, wide) && d == (a.ff, a.dim), || {
        format!(
            "gate is {g:?} and down {d:?} for dim {} and width {}",
            a.dim, a.ff
        )
    })?;
    if let Some(up) = a.up {
        ensure(
            op,
            (up.n_in, up.n_out, up.n_mat) == (a.dim, a.ff, a.gate.n_mat),
            || format!("up is {up:?}"),
        )?;
    }
    ensure(op, a.down.n_mat == a.gate.n_mat, || {
        format!("{} gate and {} down matrices", a.gate.n_mat, a.down.n_mat)
    })?;
    let ids = i32s(op, "ids", a.ids, pairs)?;
    let weights = f32s(op, "weights", a.weights, pairs)?;
    let out = f32s_mut(op, "out", &a.out, a.rows * a.dim)?;
    gpu.written(out, a.rows * a.dim * 4);
    let x = Rows {
        x: f32s(op, "x", a.x, a.rows * a.dim)?,
        stride: a.dim,
        rows: a.rows,
        n: a.dim,
    };

    let plan = if a.rows > FEW {
        group(gpu, op, ids, pairs, a.gate.n_mat)?
    } else {
        Plan::Pairs
    };
    let gate = gpu.scratch(Scratch::Gate, pairs * wide * 4).on(op, kind)?;
    project(
        gpu,
        op,
        &plan,
        &Projection {
            weight: a.gate,
            x,
            x_div: a.top_k,
            pairs,
            ids,
            out: gate,
        },
    )?;
    let (up, up_stride) = match a.up {
        Some(w) => {
            let up = gpu.scratch(Scratch::Up, pairs * a.ff * 4).on(op, kind)?;
            project(
                gpu,
                op,
                &plan,
                &Projection {
                    weight: w,
                    x,
                    x_div: a.top_k,
                    pairs,
                    ids,
                    out: up,
                },
            )?;
            (up, a.ff)
        }
        None => (gate + a.ff as u64 * 4, wide),
    };
    let h = Rows {
        x: gate,
        stride: wide,
        rows: pairs,
        n: a.ff,
    };
    gpu.written(gate, pairs * wide * 4);
    let rounded = matches!(plan, Plan::Pairs) && rounds(a.down.ty) && a.ff.is_multiple_of(32);
    if rounded {
        silu_mul_q8(gpu, op, h, up, up_stride)?;
    }
    for first in (0..if rounded { 0 } else { pairs }).step_by(32768) {
        let rows = (pairs - first).min(32768);
        let silu = args::EltArgs {
            x: gate + (first * wide * 4) as u64,
            y: up + (first * up_stride * 4) as u64,
            x_stride: wide as i64,
            y_stride: up_stride as i64,
            rows: int(op, "pairs", rows)?,
            n: int(op, "ff", a.ff)?,
        };
        gpu.launch(
            "silu_mul",
            [
                blocks(op, "ff", a.ff.div_ceil(256))?,
                blocks_yz(op, "pairs", rows)?,
                1,
            ],
            256,
            &silu,
        )
        .on(op, kind)?;
    }
    let y = gpu
        .scratch(Scratch::ExpertOut, pairs * a.dim * 4)
        .on(op, kind)?;
    project(
        gpu,
        op,
        &plan,
        &Projection {
            weight: a.down,
            x: h,
            x_div: 1,
            pairs,
            ids,
            out: y,
        },
    )?;
    for first in (0..a.rows).step_by(32768) {
        let rows = (a.rows - first).min(32768);
        let args = args::CombineArgs {
            y: y + (first * a.top_k * a.dim * 4) as u64,
            weights: weights + (first * a.top_k * 4) as u64,
            out: out + (first * a.dim * 4) as u64,
            rows: int(op, "rows", rows)?,
            dim: int(op, "dim", a.dim)?,
            top_k: int(op, "top_k", a.top_k)?,
            pad: 0,
        };
        gpu.launch(
            "moe_combine",
            [
                blocks(op, "dim", a.dim.div_ceil(256))?,
                blocks_yz(op, "rows", rows)?,
                1,
            ],
            256,
            &args,
        )
        .on(op, kind)?;
    }
    Ok(())
}

/// Groups pairs by expert on the device.
fn group(gpu: &mut Gpu, op: OpId, ids: u64, pairs: usize, experts: usize) -> Result<Plan, OpError> {
    let kind = gpu.kind();
    let max_tiles = pairs.div_ceil(TILE) + experts.min(pairs);
    let perm = gpu.scratch(Scratch::Perm, pairs * 4).on(op, kind)?;
    let tiles = gpu.scratch(Scratch::Tiles, max_tiles * 12).on(op, kind)?;
    let args = args::SortArgs {
        ids,
        perm,
        tiles,
        pairs: int(op, "pairs", pairs)?,
        experts: int(op, "experts", experts)?,
        tile: int(op, "tile", TILE)?,
        max_tiles: int(op, "tiles", max_tiles)?,
    };
    gpu.launch("moe_sort", [1, 1, 1], 256, &args).on(op, kind)?;
    Ok(Plan::Grouped {
        perm,
        tiles,
        max_tiles,
    })
}
