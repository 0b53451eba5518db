//! The lightning indexer: scores of all keys, and the choice of the best.

use super::{ensure, index, shape};
use crate::cpu::cachemul::{Strided, relu_mix};
use crate::cpu::matmul::{ROWS, with_scratch};
use crate::cpu::out::Out;
use crate::cpu::{Element, Isa};
use crate::ops::{Ctx, IndexerArgs, Named, OpError, OpId, TopkArgs};
use crate::tensor::DType;
use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};

/// Rows of a task: their queries meet a tile of keys together.
const ROW_BLOCK: usize = 8;
/// Keys of a task.
const KEY_BLOCK: usize = 32 * ROWS;

pub(super) fn logits(ctx: &mut Ctx<'_>, mut a: IndexerArgs<'_>) -> Result<(), OpError> {
    let op = OpId::DsaIndexerLogits;
    ensure(op, a.dim > 0 && a.heads > 0, || "no heads".to_owned())?;
    let q = a.q.f32(a.rows * a.heads * a.dim).named(op, "q")?;
    let w = a.weights.f32(a.rows * a.heads).named(op, "weights")?;
    let base = a.base.i32(a.rows).named(op, "base")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    let n_slots = a.cache.remaining() / a.dim;
    let mut spans = Vec::with_capacity(a.rows);
    for (slot, base) in slots.iter().zip(base) {
        let last = index(op, "slot", *slot, n_slots)?;
        let base = index(op, "base", *base, last + 1)?;
        ensure(op, last - base < a.stride, || {
            format!(
                "{} keys do not fit a stride of {}",
                last - base + 1,
                a.stride
            )
        })?;
        spans.push((base, last));
    }
    let Some(last) = spans.iter().map(|(_, last)| *last).max() else {
        return Ok(());
    };
    let need = spans.len().saturating_sub(1) * a.stride
        + spans.last().map_or(0, |(base, last)| last - base + 1);
    let out = Out::new(a.out.f32(need).named(op, "out")?, a.stride);
    let weights: Vec<f32> = w.iter().map(|w| w * a.scale).collect();
    let len = (last + 1) * a.dim;
    let work = Logits {
        q,
        weights,
        spans,
        out,
        heads: a.heads,
        dim: a.dim,
    };
    match a.cache.dtype() {
        DType::F16 => {
            let keys = a.cache.u16(len).named(op, "cache")?;
            work.run(ctx, keys.reinterpret_cast::<f16>());
        }
        DType::BF16 => {
            let keys = a.cache.u16(len).named(op, "cache")?;
            work.run(ctx, keys.reinterpret_cast::<bf16>());
        }
        _ => work.run(ctx, a.cache.f32(len).named(op, "cache")?),
    }
    Ok(())
}

struct Logits<'a> {
    q: &'a [f32],
    /// [row, head], times the scale.
    weights: Vec<f32>,
    /// First and last slot of every row.
    spans: Vec<(usize, usize)>,
    out: Out<'a>,
    heads: usize,
    dim: usize,
}

impl Logits<'_> {
    fn run<T: Element>(&self, ctx: &Ctx<'_>, keys: &[T]) {
        // Tasks: blocks of rows of one sequence times blocks of that sequence's keys.
        let mut tasks = Vec::new();
        let mut from = 0;
        while from < self.spans.len() {
            let base = self.spans[from].0;
            let same = self.spans[from..].iter().take(ROW_BLOCK);
            let count = same.take_while(|(b, _)| *b == base).count();
            let end = self.spans[from..from + count]
                .iter()
                .map(|(_, l)| l + 1)
                .max();
            for key in (base..end.unwrap_or(base)).step_by(KEY_BLOCK) {
                tasks.push((from, count, key));
            }
            from += count;
        }
        ctx.pool.ranges(tasks.len(), 1, |range, _| {
            for (from, count, key) in &tasks[range] {
                self.block(keys, *from, *count, *key);
            }
        });
    }

    fn block<T: Element>(&self, keys: &[T], from: usize, count: usize, key: usize) {
        let isa = Isa::best();
        let rows = &self.spans[from..from + count];
        let last = rows.iter().map(|(_, last)| *last).max().unwrap_or(0);
        let end = (key + KEY_BLOCK).min(last + 1);
        let queries = Strided {
            x: &self.q[from * self.heads * self.dim..],
            stride: self.dim,
        };
        with_scratch(|s| {
            for key in (key..end).step_by(ROWS) {
                let count16 = ROWS.min(end - key);
                let mut tile: [&[T]; ROWS] = [&[]; ROWS];
                for (i, row) in tile.iter_mut().enumerate().take(count16) {
                    *row = &keys[(key + i) * self.dim..][..self.dim];
                }
                let m = count * self.heads;
                let sums = s.dots(isa, &tile[..count16], self.dim, queries, m);
                for (i, (base, last)) in rows.iter().enumerate() {
                    let n = (last + 1).saturating_sub(key).min(count16);
                    let sums = &sums[i * self.heads..(i + 1) * self.heads];
                    let weights = &self.weights[(from + i) * self.heads..][..self.heads];
                    let mut total = [0.0; ROWS];
                    relu_mix(isa, sums, weights, &mut total);
                    let first = key - base;
                    // SAFETY: these keys of this row are one task's.
                    let to = unsafe { self.out.part(from + i, first..first + n) };
                    to.copy_from_slice(&total[..n]);
                }
            }
        });
    }
}

pub(super) fn topk(ctx: &mut Ctx<'_>, mut a: TopkArgs<'_>) -> Result<(), OpError> {
    let op = OpId::DsaTopkSelect;
    let base = a.base.i32(a.rows).named(op, "base")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    ensure(op, i32::try_from(a.k).is_ok(), || {
        "k too large for an i32".to_owned()
    })?;
    let mut rows = Vec::with_capacity(a.rows);
    for (r, (slot, base)) in slots.iter().zip(base).enumerate() {
        let n = i64::from(*slot) - i64::from(*base) + 1;
        let n = usize::try_from(n)
            .map_err(|_| shape(op, format!("slot {slot} lies before base {base}")))?;
        rows.push(a.scores.skip(r * a.stride).f32(n).named(op, "scores")?);
    }
    let index = Out::new(a.index.i32(a.rows * a.k).named(op, "index")?, a.k);
    let count = Out::new(a.count.i32(a.rows).named(op, "count")?, 1);
    ctx.pool.ranges(a.rows, 1, |range, _| {
        let mut keys = Vec::new();
        for r in range {
            // SAFETY: a row is one task's.
            let (to, count) = unsafe { (index.part(r, 0..a.k), count.part(r, 0..1)) };
            count[0] = best(rows[r], to, &mut keys) as i32;
        }
    });
    Ok(())
}

/// Indices of the `to.len()` largest, ties to the lower index, ascending; their number is returned.
fn best(scores: &[f32], to: &mut [i32], keys: &mut Vec<u64>) -> usize {
    let n = scores.len().min(to.len());
    if scores.len() <= to.len() {
        for (i, to) in to.iter_mut().take(n).enumerate() {
            *to = i as i32;
        }
        return n;
    }
    if n == 0 {
        return 0;
    }
    // One integer orders by score, then by lower index: larger is better.
    keys.clear();
    keys.extend(scores.iter().enumerate().map(|(i, v)| {
        let bits = (v + 0.0).to_bits(); // -0.0 and 0.0 tie
        let key = if bits >> 31 == 1 {
            !bits
        } else {
            bits | 1 << 31
        };
        u64::from(key) << 32 | u64::from(!(i as u32))
    }));
    let at = keys.len() - n;
    keys.select_nth_unstable(at);
    for (to, key) in to.iter_mut().zip(&keys[at..]) {
        *to = !(*key as u32) as i32;
    }
    to[..n].sort_unstable();
    n
}

#[cfg(test)]
mod tests {
    use super::best;

    fn chosen(scores: &[f32], k: usize) -> Vec<i32> {
        let mut to = vec![-1; k];
        let n = best(scores, &mut to, &mut Vec::new());
        to.truncate(n);
        to
    }

    #[test]
    fn ties_go_to_the_lower_index() {
        assert_eq!(chosen(&[1.0, 0.0, -0.0, 2.0, 0.0], 3), [0, 1, 3]);
        assert_eq!(chosen(&[-0.0, 0.0, 0.0], 2), [0, 1]);
        assert_eq!(chosen(&[0.0, -1.0], 5), [0, 1]);
        assert_eq!(chosen(&[f32::NEG_INFINITY, -3.0, -2.0], 1), [2]);
        assert!(chosen(&[], 3).is_empty());
        assert!(chosen(&[1.0], 0).is_empty());
    }
}
