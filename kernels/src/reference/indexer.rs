//! The lightning indexer.

use super::{cache_load, cache_store, dot, ensure, index, shape};
use crate::ops::{CacheRowsArgs, Ctx, IndexerArgs, Named, OpError, OpId, TopkArgs};

pub(super) fn cache_rows(_: &mut Ctx<'_>, mut a: CacheRowsArgs<'_>) -> Result<(), OpError> {
    let op = OpId::CacheRows;
    ensure(op, a.dim > 0, || "rows without elements".to_owned())?;
    let x = a.x.f32(a.rows * a.dim).named(op, "x")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    let n_slots = a.cache.as_ref().remaining() / a.dim;
    for (x, slot) in x.chunks_exact(a.dim).zip(slots) {
        cache_store(
            op,
            &mut a.cache,
            index(op, "cache slot", *slot, n_slots)?,
            x,
        )?;
    }
    Ok(())
}

pub(super) fn logits(_: &mut Ctx<'_>, mut a: IndexerArgs<'_>) -> Result<(), OpError> {
    let op = OpId::DsaIndexerLogits;
    let q = a.q.f32(a.rows * a.heads * a.dim).named(op, "q")?;
    let w = a.weights.f32(a.rows * a.heads).named(op, "weights")?;
    let base = a.base.i32(a.rows).named(op, "base")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    let n_slots = a.cache.remaining() / a.dim.max(1);
    let mut key = vec![0.0; a.dim];
    for r in 0..a.rows {
        let last = index(op, "slot", slots[r], n_slots)?;
        let base = index(op, "base", base[r], last + 1)?;
        let n = last - base + 1;
        ensure(op, n <= a.stride, || {
            format!("{n} keys do not fit a stride of {}", a.stride)
        })?;
        let out = &mut a.out.f32(r * a.stride + n).named(op, "out")?[r * a.stride..];
        for (s, out) in out.iter_mut().enumerate() {
            cache_load(op, a.cache, base + s, &mut key)?;
            *out = 0.0;
            for h in 0..a.heads {
                let score = dot(&q[(r * a.heads + h) * a.dim..][..a.dim], &key).max(0.0);
                *out += w[r * a.heads + h] * a.scale * score;
            }
        }
    }
    Ok(())
}

pub(super) fn topk(_: &mut Ctx<'_>, mut a: TopkArgs<'_>) -> Result<(), OpError> {
    let op = OpId::DsaTopkSelect;
    let base = a.base.i32(a.rows).named(op, "base")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    for r in 0..a.rows {
        let n = usize::try_from(i64::from(slots[r]) - i64::from(base[r]) + 1).map_err(|_| {
            shape(
                op,
                format!("slot {} lies before base {}", slots[r], base[r]),
            )
        })?;
        let scores = a.scores.skip(r * a.stride).f32(n).named(op, "scores")?;
        let chosen = best(scores, a.k);
        a.count.i32(r + 1).named(op, "count")?[r] =
            i32::try_from(chosen.len()).map_err(|_| shape(op, "k too large for an i32"))?;
        let out = &mut a.index.i32((r + 1) * a.k).named(op, "index")?[r * a.k..];
        for (o, c) in out.iter_mut().zip(&chosen) {
            *o = i32::try_from(*c).map_err(|_| shape(op, "index too large for an i32"))?;
        }
    }
    Ok(())
}

/// Indices of the `k` largest, ties to the lower index, in ascending order. Adding 0.0 makes -0.0 and 0.0 a tie.
fn best(scores: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| {
        (scores[*b] + 0.0)
            .total_cmp(&(scores[*a] + 0.0))
            .then(a.cmp(b))
    });
    order.truncate(k);
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn ties_go_to_the_lower_index() {
        assert_eq!(best(&[1.0, 0.0, 0.0, 2.0, 0.0], 3), [0, 1, 3]);
        assert_eq!(best(&[0.0, -1.0], 5), [0, 1]);
        assert!(best(&[], 3).is_empty());
    }
}
