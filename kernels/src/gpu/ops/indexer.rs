//! Indexer cache, scores and selection.

use super::{OnDevice, blocks, blocks_yz, cache, f32s, gpu, i32s, i32s_mut, int};
use crate::gpu::args;
use crate::ops::{CacheRowsArgs, Ctx, IndexerArgs, OpError, OpId, TopkArgs};

const MAX_DIM: usize = 128;
const KEYS: usize = 64;

pub(super) fn cache_rows(ctx: &mut Ctx<'_>, a: CacheRowsArgs<'_>) -> Result<(), OpError> {
    let op = OpId::CacheRows;
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let view = a.cache.as_ref();
    let (cache, dtype) = cache(op, view, view.remaining())?;
    let args = args::CacheArgs {
        a: f32s(op, "x", a.x, a.rows * a.dim)?,
        b: 0,
        cache,
        slots: i32s(op, "slots", a.slots, a.rows)?,
        a_stride: a.dim as i64,
        b_stride: 0,
        rows: int(op, "rows", a.rows)?,
        n0: int(op, "dim", a.dim)?,
        n1: 0,
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

pub(super) fn supports(a: &IndexerArgs<'_>) -> Result<(), String> {
    if a.dim <= MAX_DIM {
        Ok(())
    } else {
        Err(format!("indexer heads of {}; at most {MAX_DIM}", a.dim))
    }
}

pub(super) fn logits(ctx: &mut Ctx<'_>, a: IndexerArgs<'_>) -> Result<(), OpError> {
    let op = OpId::DsaIndexerLogits;
    if a.rows == 0 {
        return Ok(());
    }
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let q = f32s(op, "q", a.q, a.rows * a.heads * a.dim)?;
    let w = f32s(op, "weights", a.weights, a.rows * a.heads)?;
    let base = i32s(op, "base", a.base, a.rows)?;
    let slots = i32s(op, "slots", a.slots, a.rows)?;
    // The last row may be shorter than the stride.
    let view = a.out.as_ref();
    let out = f32s(op, "out", view, (a.rows - 1) * a.stride + 1)?;
    let keys = a
        .stride
        .min(view.remaining() - (a.rows - 1) * a.stride)
        .max(if a.rows > 1 { a.stride } else { 0 });
    let (cache, dtype) = cache(op, a.cache, a.dim)?;
    for first in (0..a.rows).step_by(32768) {
        let rows = (a.rows - first).min(32768);
        let args = args::IndexerArgs {
            q: q + (first * a.heads * a.dim * 4) as u64,
            w: w + (first * a.heads * 4) as u64,
            cache,
            base: base + first as u64 * 4,
            slots: slots + first as u64 * 4,
            out: out + (first * a.stride * 4) as u64,
            stride: a.stride as i64,
            rows: int(op, "rows", rows)?,
            heads: int(op, "heads", a.heads)?,
            dim: int(op, "dim", a.dim)?,
            dtype,
            scale: a.scale,
            pad: 0,
        };
        gpu.launch(
            "indexer_logits",
            [
                blocks(op, "keys", keys.div_ceil(KEYS))?,
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

pub(super) fn topk(ctx: &mut Ctx<'_>, a: TopkArgs<'_>) -> Result<(), OpError> {
    let op = OpId::DsaTopkSelect;
    if a.rows == 0 {
        return Ok(());
    }
    let gpu = gpu(ctx, op)?;
    let kind = gpu.kind();
    let args = args::TopkArgs {
        scores: f32s(op, "scores", a.scores, (a.rows - 1) * a.stride + 1)?,
        base: i32s(op, "base", a.base, a.rows)?,
        slots: i32s(op, "slots", a.slots, a.rows)?,
        index: i32s_mut(op, "index", &a.index, a.rows * a.k)?,
        count: i32s_mut(op, "count", &a.count, a.rows)?,
        stride: a.stride as i64,
        rows: int(op, "rows", a.rows)?,
        k: int(op, "k", a.k)?,
    };
    gpu.launch(
        "topk_select",
        [blocks(op, "rows", a.rows)?, 1, 1],
        1024,
        &args,
    )
    .on(op, kind)
}
