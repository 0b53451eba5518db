//! Rope, the latent cache, and attention. Both forms of attention run absorbed here: one latent serves all heads, so keys are
//! read once per eight heads, and nothing of the size of keys times heads is ever stored.

use super::matmul::{FEW, Gemm, Mmv, Q8, Rows, gemm, kernel_name, known, mmv, quantize, rounds};
use super::{OnDevice, blocks, blocks_yz, cache, ensure, f32s, f32s_mut, gpu, i32s, int};
use crate::gpu::args::{self, MAX_ROPE_PAIRS};
use crate::gpu::device::{Gpu, Scratch};
use crate::ops::{
    ConcatArgs, Ctx, FusedArgs, MlaArgs, OpError, OpId, RopeArgs, RopeStyle, RopeTable,
};
use crate::tensor::Weight;

/// Longest latent and longest cache row of the attention kernel.
const MAX_LORA: usize = 512;
const MAX_WIDTH: usize = 576;
/// Query heads of a block, without and with matrix units.
const HEADS: usize = 8;
const MATRIX_HEADS: usize = 16;

fn table_fits(t: &RopeTable) -> Result<(), String> {
    if t.dim.is_multiple_of(2) && t.freq.len() == t.dim / 2 && t.freq.len() <= MAX_ROPE_PAIRS {
        Ok(())
    } else {
        Err(format!(
            "rope of {} elements with {} frequencies; at most {} elements",
            t.dim,
            t.freq.len(),
            2 * MAX_ROPE_PAIRS
        ))
    }
}

fn freqs(t: &RopeTable) -> [f32; MAX_ROPE_PAIRS] {
    let mut out = [0.0; MAX_ROPE_PAIRS];
    for (o, f) in out.iter_mut().zip(&t.freq) {
        *o = *f;
    }
    out
}

fn half_split(style: RopeStyle) -> i32 {
    i32::from(style == RopeStyle::HalfSplit)
}

pub(super) fn rope_supports(a: &RopeArgs<'_>) -> Result<(), String> {
    table_fits(a.table)
}

pub(super) fn rope(ctx: &mut Ctx<'_>, a: RopeArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Rope;
    if a.rows == 0 || a.heads == 0 {
        return Ok(());
    }
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let used = (a.rows - 1) * a.row_stride + (a.heads - 1) * a.head_stride + a.offset + a.table.dim;
    let args = args::RopeArgs {
        x: f32s_mut(op, "x", &a.x, used)?,
        pos: i32s(op, "pos", a.pos, a.rows)?,
        row_stride: a.row_stride as i64,
        head_stride: a.head_stride as i64,
        offset: a.offset as i64,
        rows: int(op, "rows", a.rows)?,
        heads: int(op, "heads", a.heads)?,
        pairs: int(op, "pairs", a.table.freq.len())?,
        half_split: half_split(a.style),
        freq: freqs(a.table),
    };
    gpu.launch(
        "rope",
        [
            blocks(op, "rows", a.rows)?,
            blocks_yz(op, "heads", a.heads)?,
            1,
        ],
        64,
        &args,
    )
    .on(op, kind)
}

pub(super) fn fused_supports(a: &FusedArgs<'_>) -> Result<(), String> {
    table_fits(a.table)
}

pub(super) fn fused(ctx: &mut Ctx<'_>, a: FusedArgs<'_>) -> Result<(), OpError> {
    let op = OpId::FusedNormRope;
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let width = a.lora + a.table.dim;
    let q =
        a.q.as_ref()
            .map(|q| f32s_mut(op, "q", q, a.rows * a.q_lora))
            .transpose()?
            .unwrap_or(0);
    let q_w = a
        .q_weight
        .map(|w| f32s(op, "q_weight", w, a.q_lora))
        .transpose()?
        .unwrap_or(0);
    ensure(op, (q == 0) == (q_w == 0), || {
        "q and q_weight go together".to_owned()
    })?;
    let view = a.cache.as_ref();
    let (cache, dtype) = cache(op, view, view.remaining())?;
    let few = q != 0 && (1..=FEW).contains(&a.rows) && a.q_lora.is_multiple_of(32);
    let rounded = if few {
        Some(Q8::room(gpu, op, true, a.rows * a.q_lora)?)
    } else {
        None
    };
    let args = args::FusedArgs {
        q8: rounded.map_or(0, |r| r.q),
        d8: rounded.map_or(0, |r| r.d),
        s8: rounded.map_or(0, |r| r.s),
        q,
        q_w,
        kv: f32s(op, "kv", a.kv, a.rows * width)?,
        kv_w: f32s(op, "kv_weight", a.kv_weight, a.lora)?,
        cache,
        slots: i32s(op, "slots", a.slots, a.rows)?,
        pos: i32s(op, "pos", a.pos, a.rows)?,
        rows: int(op, "rows", a.rows)?,
        q_lora: int(op, "q_lora", a.q_lora)?,
        lora: int(op, "lora", a.lora)?,
        pairs: int(op, "pairs", a.table.freq.len())?,
        half_split: half_split(a.style),
        dtype,
        eps: a.eps,
        pad: 0,
        freq: freqs(a.table),
    };
    gpu.launch(
        "fused_norm_rope",
        [blocks(op, "rows", 2 * a.rows)?, 1, 1],
        256,
        &args,
    )
    .on(op, kind)?;
    if let Some(q8) = rounded {
        let x = Rows {
            x: q,
            stride: a.q_lora,
            rows: a.rows,
            n: a.q_lora,
        };
        gpu.round(true, q8.of(x));
    }
    Ok(())
}

pub(super) fn concat(ctx: &mut Ctx<'_>, a: ConcatArgs<'_>) -> Result<(), OpError> {
    let op = OpId::ConcatAndCacheMla;
    if a.rows == 0 {
        return Ok(());
    }
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let view = a.cache.as_ref();
    let (cache, dtype) = cache(op, view, view.remaining())?;
    let args = args::CacheArgs {
        a: f32s(op, "latent", a.latent, a.rows * a.lora)?,
        b: f32s(
            op,
            "k_pe",
            a.k_pe.skip(a.pe_offset),
            (a.rows - 1) * a.pe_stride + a.rope,
        )?,
        cache,
        slots: i32s(op, "slots", a.slots, a.rows)?,
        a_stride: a.lora as i64,
        b_stride: a.pe_stride as i64,
        rows: int(op, "rows", a.rows)?,
        n0: int(op, "lora", a.lora)?,
        n1: int(op, "rope", a.rope)?,
        dtype,
    };
    gpu.launch(
        "cache_rows",
        [blocks(op, "rows", a.rows)?, 1, 1],
        128,
        &args,
    )
    .on(op, kind)
}

pub(super) fn supports(a: &MlaArgs<'_>) -> Result<(), String> {
    known(a.k_b)?;
    known(a.v_b)?;
    if a.lora > MAX_LORA || a.lora + a.rope > MAX_WIDTH {
        return Err(format!(
            "latent of {} and cache rows of {}; at most {MAX_LORA} and {MAX_WIDTH}",
            a.lora,
            a.lora + a.rope
        ));
    }
    Ok(())
}

pub(super) fn decode(ctx: &mut Ctx<'_>, a: MlaArgs<'_>) -> Result<(), OpError> {
    attention(ctx, OpId::MlaDecodeAttention, a)
}

pub(super) fn prefill(ctx: &mut Ctx<'_>, a: MlaArgs<'_>) -> Result<(), OpError> {
    attention(ctx, OpId::MlaPrefillAttention, a)
}

/// A product of every head's own matrix with that head's part of every row.
struct PerHead<'a> {
    weight: &'a Weight,
    heads: usize,
    x: u64,
    head_stride: usize,
    out: u64,
    rows: usize,
}

fn per_head(gpu: &mut Gpu, op: OpId, p: &PerHead<'_>) -> Result<(), OpError> {
    let w = p.weight;
    let n_out = w.n_out;
    if p.rows > FEW && kernel_name("gemm", w.ty).is_some() {
        let x = Rows {
            x: p.x,
            stride: p.heads * p.head_stride,
            rows: p.rows,
            n: w.n_in,
        };
        let out_stride = p.heads * n_out;
        return gemm(
            gpu,
            op,
            &Gemm {
                weight: w,
                x,
                mats: p.heads,
                x_z: p.head_stride,
                out: p.out,
                out_stride,
                out_z: n_out,
                accumulate: false,
            },
        );
    }
    let x = Rows {
        x: p.x,
        stride: p.head_stride,
        rows: p.rows * p.heads,
        n: w.n_in,
    };
    let q8 = if rounds(w.ty) {
        Some(quantize(gpu, op, x)?)
    } else {
        None
    };
    mmv(
        gpu,
        op,
        &Mmv {
            weight: w,
            x,
            q8,
            ids: 0,
            results: x.rows,
            x_div: 1,
            out: p.out,
            out_stride: n_out,
            accumulate: false,
            shared: false,
        },
    )
}

fn attention(ctx: &mut Ctx<'_>, op: OpId, a: MlaArgs<'_>) -> Result<(), OpError> {
    if a.rows == 0 {
        return Ok(());
    }
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let (head, width) = (a.nope + a.rope, a.lora + a.rope);
    a.check(op)?;
    let q = f32s(op, "q", a.q, a.rows * a.heads * head)?;
    let out = f32s_mut(op, "out", &a.out, a.rows * a.heads * a.v_dim)?;
    let (cache, dtype) = cache(op, a.cache, a.slot_end * width)?;
    let (index, count, chosen) = match &a.selection {
        Some(s) => (
            i32s(op, "selection", s.index, a.rows * s.k)?,
            i32s(op, "count", s.count, a.rows)?,
            s.k,
        ),
        None => (0, 0, 0),
    };

    let sinks = match a.sinks {
        Some(s) => f32s(op, "sinks", s, a.heads)?,
        None => 0,
    };
    let lse = match &a.lse {
        Some(lse) => f32s_mut(op, "lse", lse, a.rows * a.heads)?,
        None => 0,
    };

    let pairs = a.rows * a.heads;
    let qa = gpu
        .scratch(Scratch::QueryLatent, pairs * a.lora * 4)
        .on(op, kind)?;
    let latent = gpu
        .scratch(Scratch::Latent, pairs * a.lora * 4)
        .on(op, kind)?;
    per_head(
        gpu,
        op,
        &PerHead {
            weight: a.k_b,
            heads: a.heads,
            x: q,
            head_stride: head,
            out: qa,
            rows: a.rows,
        },
    )?;

    // Enough blocks to fill the device, but no split of fewer than 64 keys.
    let matrix = dtype != 0 && a.lora.is_multiple_of(16) && a.rope.is_multiple_of(16);
    let (kernel, heads) = if matrix {
        ("mla_attention_mma", MATRIX_HEADS)
    } else {
        ("mla_attention", HEADS)
    };
    let groups = a.heads.div_ceil(heads);
    let keys = if a.selection.is_some() {
        chosen.min(a.slot_end)
    } else {
        a.window.map_or(a.slot_end, |w| w.min(a.slot_end))
    };
    let wanted = (4 * gpu.driver().facts().multiprocessors as usize).div_ceil(a.rows * groups);
    let splits = gpu
        .splits
        .unwrap_or_else(|| i32::try_from(wanted.min(keys.div_ceil(64)).clamp(1, 64)).unwrap_or(1));
    let (part, stat) = if splits > 1 {
        let n = pairs * splits as usize;
        (
            gpu.scratch(Scratch::Part, n * a.lora * 4).on(op, kind)?,
            gpu.scratch(Scratch::Stat, n * 8).on(op, kind)?,
        )
    } else {
        (0, 0)
    };
    let base = i32s(op, "base", a.base, a.rows)?;
    let slots = i32s(op, "slots", a.slots, a.rows)?;
    let mut args = args::MlaArgs {
        qa,
        q,
        cache,
        base,
        slots,
        index,
        count,
        part,
        stat,
        out: latent,
        sinks,
        lse,
        q_stride: head as i64,
        pe_offset: a.nope as i64,
        rows: int(op, "rows", a.rows)?,
        heads: int(op, "heads", a.heads)?,
        rope: int(op, "rope", a.rope)?,
        lora: int(op, "lora", a.lora)?,
        k: int(op, "k", chosen)?,
        splits,
        dtype,
        window: int(op, "window", a.window.map_or(0, |w| w.min(a.slot_end)))?,
        scale: a.scale,
        pad: 0,
    };
    let x = blocks(op, "splits", splits as usize)?;
    let y = blocks_yz(op, "heads", groups)?;
    for first in (0..a.rows).step_by(32768) {
        let rows = (a.rows - first).min(32768);
        let move_on = |p: u64, per_row: usize| {
            if p == 0 {
                0
            } else {
                p + (first * per_row * 4) as u64
            }
        };
        args = args::MlaArgs {
            qa: move_on(qa, a.heads * a.lora),
            q: move_on(q, a.heads * head),
            base: move_on(base, 1),
            slots: move_on(slots, 1),
            index: move_on(index, chosen),
            count: move_on(count, 1),
            part: move_on(part, a.heads * splits as usize * a.lora),
            stat: move_on(stat, a.heads * splits as usize * 2),
            out: move_on(latent, a.heads * a.lora),
            lse: move_on(lse, a.heads),
            rows: int(op, "rows", rows)?,
            ..args
        };
        gpu.launch(kernel, [x, y, blocks_yz(op, "rows", rows)?], 256, &args)
            .on(op, kind)?;
        if splits > 1 {
            gpu.launch(
                "mla_merge",
                [blocks(op, "rows", rows * a.heads)?, 1, 1],
                256,
                &args,
            )
            .on(op, kind)?;
        }
    }
    per_head(
        gpu,
        op,
        &PerHead {
            weight: a.v_b,
            heads: a.heads,
            x: latent,
            head_stride: a.lora,
            out,
            rows: a.rows,
        },
    )
}
