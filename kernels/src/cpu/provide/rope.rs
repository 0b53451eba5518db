//! Rope, and the writes into the caches.

use super::{ensure, index, rows_of};
use crate::cpu::out::Out;
use crate::cpu::{Element, Isa, elementwise};
use crate::ops::{
    CacheRowsArgs, ConcatArgs, Ctx, FusedArgs, Named, OpError, OpId, RopeArgs, RopeStyle, RopeTable,
};
use crate::tensor::{DType, Mut};
use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use std::cell::RefCell;

/// Sines and cosines of a step's positions. All layers, queries and keys rotate by the same ones, so
/// the last set is kept.
#[derive(Default)]
struct Angles {
    freq: Vec<f32>,
    pos: Vec<i32>,
    /// [position, pair] (cos, sin).
    turns: Vec<(f32, f32)>,
}

thread_local! {
    static LAST: RefCell<Angles> = RefCell::default();
}

/// Call `f` with the turns of all positions, `table.freq.len()` for each. In f64: at position
/// 200,000 an f32 product would be off by a hundredth of a radian.
fn with_turns<R>(table: &RopeTable, pos: &[i32], f: impl FnOnce(&[(f32, f32)]) -> R) -> R {
    LAST.with_borrow_mut(|a| {
        if a.freq != table.freq || a.pos != pos {
            a.freq.clone_from(&table.freq);
            a.pos.clear();
            a.pos.extend_from_slice(pos);
            a.turns.clear();
            for p in pos {
                a.turns.extend(table.freq.iter().map(|freq| {
                    let (sin, cos) = (f64::from(*p) * f64::from(*freq)).sin_cos();
                    (cos as f32, sin as f32)
                }));
            }
        }
        f(&a.turns)
    })
}

fn rotate(x: &mut [f32], turns: &[(f32, f32)], style: RopeStyle) {
    match style {
        RopeStyle::Interleaved => {
            for (pair, (cos, sin)) in x.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                let [a, b] = *pair;
                *pair = [a * cos - b * sin, a * sin + b * cos];
            }
        }
        RopeStyle::HalfSplit => {
            let (low, high) = x.split_at_mut(turns.len());
            for ((a, b), (cos, sin)) in low.iter_mut().zip(high).zip(turns) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}

fn check_table(op: OpId, table: &RopeTable) -> Result<(), OpError> {
    ensure(
        op,
        table.dim.is_multiple_of(2) && table.freq.len() == table.dim / 2,
        || {
            format!(
                "rope of {} elements has {} frequencies",
                table.dim,
                table.freq.len()
            )
        },
    )
}

pub(super) fn rope(ctx: &mut Ctx<'_>, mut a: RopeArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Rope;
    check_table(op, a.table)?;
    let dim = a.table.dim;
    let row_end = (a.heads.max(1) - 1) * a.head_stride + a.offset + dim;
    ensure(
        op,
        a.row_stride >= row_end && (a.heads < 2 || a.head_stride >= a.offset + dim),
        || "heads overlap each other or the next row".to_owned(),
    )?;
    if a.rows == 0 || a.heads == 0 || dim == 0 {
        return Ok(());
    }
    let pos = a.pos.i32(a.rows).named(op, "pos")?;
    let used = (a.rows - 1) * a.row_stride + row_end;
    let x = Out::new(a.x.f32(used).named(op, "x")?, a.row_stride);
    with_turns(a.table, pos, |turns| {
        ctx.pool.ranges(a.rows, rows_of(a.heads * dim), |range, _| {
            for r in range {
                let turns = &turns[r * dim / 2..][..dim / 2];
                // SAFETY: a row is one task's.
                let row = unsafe { x.part(r, 0..row_end) };
                for h in 0..a.heads {
                    let head = &mut row[h * a.head_stride + a.offset..][..dim];
                    rotate(head, turns, a.style);
                }
            }
        });
    });
    Ok(())
}

/// Write rows into a cache of any float type: `fill(row, buffer)` makes each row.
fn store_rows(
    op: OpId,
    ctx: &Ctx<'_>,
    cache: &mut Mut<'_>,
    slots: &[i32],
    width: usize,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<(), OpError> {
    ensure(op, width > 0, || "cache rows without elements".to_owned())?;
    let n_slots = cache.as_ref().remaining() / width;
    let mut targets = Vec::with_capacity(slots.len());
    for slot in slots {
        targets.push(index(op, "cache slot", *slot, n_slots)?);
    }
    let len = targets.iter().max().map_or(0, |last| (last + 1) * width);
    // Where two rows write the same slot the last one counts, so they may not be shared out.
    let mut sorted = targets.clone();
    sorted.sort_unstable();
    let distinct = sorted.windows(2).all(|w| w[0] != w[1]);
    let rows = if distinct { rows_of(width) } else { usize::MAX };
    match cache.dtype() {
        DType::F16 => {
            let bits = cache.u16(len).named(op, "cache")?;
            let cache = bits.reinterpret_cast_mut::<f16>();
            scatter(ctx, cache, &targets, width, rows, fill);
        }
        DType::BF16 => {
            let bits = cache.u16(len).named(op, "cache")?;
            let cache = bits.reinterpret_cast_mut::<bf16>();
            scatter(ctx, cache, &targets, width, rows, fill);
        }
        _ => {
            let cache = cache.f32(len).named(op, "cache")?;
            scatter(ctx, cache, &targets, width, rows, fill);
        }
    }
    Ok(())
}

fn scatter<T: Element>(
    ctx: &Ctx<'_>,
    cache: &mut [T],
    targets: &[usize],
    width: usize,
    rows: usize,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) {
    let cache = Out::new(cache, width);
    ctx.pool.ranges(targets.len(), rows, |range, _| {
        let mut row = vec![0.0; width];
        for r in range {
            fill(r, &mut row);
            // SAFETY: slots are distinct where several tasks write.
            let slot = unsafe { cache.part(targets[r], 0..width) };
            for (c, v) in slot.iter_mut().zip(&row) {
                *c = T::from_f32(*v);
            }
        }
    });
}

pub(super) fn fused_norm_rope(ctx: &mut Ctx<'_>, mut a: FusedArgs<'_>) -> Result<(), OpError> {
    let (op, isa) = (OpId::FusedNormRope, Isa::best());
    check_table(op, a.table)?;
    let width = a.lora + a.table.dim;
    let kv = a.kv.f32(a.rows * width).named(op, "kv")?;
    let w = a.kv_weight.f32(a.lora).named(op, "kv_weight")?;
    let pos = a.pos.i32(a.rows).named(op, "pos")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    if let (Some(q), Some(w)) = (&mut a.q, &a.q_weight) {
        let w = w.f32(a.q_lora).named(op, "q_weight")?;
        let q = Out::new(q.f32(a.rows * a.q_lora).named(op, "q")?, a.q_lora);
        ctx.pool.ranges(a.rows, rows_of(a.q_lora), |range, _| {
            for r in range {
                // SAFETY: a row is one task's.
                let q = unsafe { q.part(r, 0..a.q_lora) };
                let scale = elementwise::rms_scale(isa, q, a.eps);
                q.iter_mut().zip(w).for_each(|(q, w)| *q = *q * scale * w);
            }
        });
    }
    let half = a.table.dim / 2;
    with_turns(a.table, pos, |turns| {
        store_rows(op, ctx, &mut a.cache, slots, width, |r, row| {
            let kv = &kv[r * width..][..width];
            let (latent, pe) = row.split_at_mut(a.lora);
            elementwise::rms_norm(isa, &kv[..a.lora], w, a.eps, latent);
            pe.copy_from_slice(&kv[a.lora..]);
            rotate(pe, &turns[r * half..][..half], a.style);
        })
    })
}

pub(super) fn concat_and_cache(ctx: &mut Ctx<'_>, mut a: ConcatArgs<'_>) -> Result<(), OpError> {
    let op = OpId::ConcatAndCacheMla;
    if a.rows == 0 {
        return Ok(());
    }
    let latent = a.latent.f32(a.rows * a.lora).named(op, "latent")?;
    let end = (a.rows - 1) * a.pe_stride + a.pe_offset + a.rope;
    let k_pe = a.k_pe.f32(end).named(op, "k_pe")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    store_rows(op, ctx, &mut a.cache, slots, a.lora + a.rope, |r, row| {
        let (c, pe) = row.split_at_mut(a.lora);
        c.copy_from_slice(&latent[r * a.lora..][..a.lora]);
        pe.copy_from_slice(&k_pe[r * a.pe_stride + a.pe_offset..][..a.rope]);
    })
}

pub(super) fn cache_rows(ctx: &mut Ctx<'_>, mut a: CacheRowsArgs<'_>) -> Result<(), OpError> {
    let op = OpId::CacheRows;
    let x = a.x.f32(a.rows * a.dim).named(op, "x")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    store_rows(op, ctx, &mut a.cache, slots, a.dim, |r, row| {
        row.copy_from_slice(&x[r * a.dim..][..a.dim]);
    })
}
