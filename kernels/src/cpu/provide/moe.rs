//! The router and the experts.

use super::{Borrowed, Floats, ensure, index, matrix, rounding, rows_of};
use crate::cpu::acts::TILED;
use crate::cpu::matmul::{ROWS, Rows, pieces, put, rows_per_task, with_scratch};
use crate::cpu::out::Out;
use crate::cpu::{ActKind, Acts, Element, Isa, Matrix, Store, elementwise};
use crate::ops::{Ctx, Gating, MoeExpertsArgs, MoeRouteArgs, Named, OpError, OpId};
use crate::tensor::Weight;

/// Guard of the weights' sum: the smallest normal half.
const MIN_WEIGHT_SUM: f32 = 1.0 / 16384.0;

pub(super) fn route(ctx: &mut Ctx<'_>, mut a: MoeRouteArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MoeRoute;
    let groups = a.groups.max(1);
    let fits = a.top_k <= a.experts && a.experts > 0 && i32::try_from(a.experts).is_ok();
    ensure(op, fits, || format!("{} of {} experts", a.top_k, a.experts))?;
    ensure(
        op,
        a.experts.is_multiple_of(groups) && a.groups_used <= groups,
        || {
            format!(
                "{} experts in {groups} groups, {} used",
                a.experts, a.groups_used
            )
        },
    )?;
    let logits = a.logits.f32(a.rows * a.experts).named(op, "logits")?;
    let bias = match a.bias {
        Some(bias) => Some(bias.f32(a.experts).named(op, "bias")?),
        None => None,
    };
    let ids = a.ids.i32(a.rows * a.top_k).named(op, "ids")?;
    let weights = a.weights.f32(a.rows * a.top_k).named(op, "weights")?;
    let (ids, weights) = (Out::new(ids, a.top_k), Out::new(weights, a.top_k));
    ctx.pool
        .ranges(a.rows, rows_of(16 * a.experts), |range, _| {
            let (mut p, mut choice) = (Vec::new(), Vec::new());
            for r in range {
                p.clear();
                p.extend_from_slice(&logits[r * a.experts..][..a.experts]);
                gate(&mut p, a.gating);
                choice.clone_from(&p);
                if let Some(bias) = bias {
                    choice.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
                }
                if groups > 1 {
                    mask_groups(&mut choice, a.experts / groups, a.groups_used);
                }
                // SAFETY: a row is one task's.
                let (ids, weights) =
                    unsafe { (ids.part(r, 0..a.top_k), weights.part(r, 0..a.top_k)) };
                let mut sum = 0.0;
                for (id, weight) in ids.iter_mut().zip(weights.iter_mut()) {
                    let e = take_best(&mut choice);
                    (*id, *weight) = (e as i32, p[e]);
                    sum += p[e];
                }
                let scale = if a.norm {
                    a.scale / sum.max(MIN_WEIGHT_SUM)
                } else {
                    a.scale
                };
                weights.iter_mut().for_each(|w| *w *= scale);
            }
        });
    Ok(())
}

fn gate(p: &mut [f32], gating: Gating) {
    match gating {
        Gating::Softmax => elementwise::softmax(Isa::Portable, p),
        // The library's exponential: a choice between two experts may hang on the last digit.
        Gating::Sigmoid => p.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
    }
}

/// The key that orders values as `total_cmp` does; 0 is below all.
fn order(v: f32) -> u64 {
    let bits = v.to_bits();
    let key = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    u64::from(key) + 1
}

/// The index of the largest value, the lower on ties; it is then out of the choice.
fn take_best(choice: &mut [f32]) -> usize {
    // A value that was taken is the lowest of all bit patterns.
    const TAKEN: f32 = f32::from_bits(u32::MAX);
    let mut best = (0, 0);
    for (i, v) in choice.iter().enumerate() {
        let key = order(*v);
        if key > best.0 {
            best = (key, i);
        }
    }
    choice[best.1] = TAKEN;
    best.1
}

/// Put all but the best `used` groups out of reach; a group counts by the sum of its two best.
fn mask_groups(choice: &mut [f32], size: usize, used: usize) {
    let score = |g: &[f32]| -> f32 {
        let mut rest = g.to_vec();
        let two = (0..g.len().min(2)).map(|_| g[take_best(&mut rest)]);
        two.sum()
    };
    let mut scores: Vec<f32> = choice.chunks(size).map(score).collect();
    let mut kept = vec![false; scores.len()];
    for _ in 0..used {
        kept[take_best(&mut scores)] = true;
    }
    for (chunk, kept) in choice.chunks_mut(size).zip(kept) {
        if !kept {
            chunk.fill(f32::NEG_INFINITY);
        }
    }
}

/// What the experts work on, checked.
struct Work<'a> {
    isa: Isa,
    /// Gate (or gate and up) matrices of the experts in use.
    gate: Vec<Option<Matrix<'a>>>,
    up: Option<Vec<Option<Matrix<'a>>>>,
    down: Vec<Option<Matrix<'a>>>,
    /// Expert of every slot; slot `r * top_k + j` is the `j`-th choice of row `r`.
    experts: Vec<usize>,
    weights: &'a [f32],
    top_k: usize,
    ff: usize,
    dim: usize,
}

pub(super) fn experts(ctx: &mut Ctx<'_>, mut a: MoeExpertsArgs<'_>) -> Result<(), OpError> {
    let (op, isa) = (OpId::MoeExperts, Isa::best());
    let gate_rows = if a.up.is_some() { a.ff } else { 2 * a.ff };
    let fits = |w: &Weight, n_in, n_out| {
        ensure(
            op,
            w.n_in == n_in && w.n_out == n_out && w.n_mat == a.gate.n_mat,
            || format!("{w:?} does not fit"),
        )
    };
    fits(a.gate, a.dim, gate_rows)?;
    if let Some(up) = a.up {
        fits(up, a.dim, a.ff)?;
        ensure(op, ActKind::of(up.ty) == ActKind::of(a.gate.ty), || {
            format!("{up:?} and {:?} round their input differently", a.gate)
        })?;
    }
    fits(a.down, a.ff, a.dim)?;
    let x = a.x.f32(a.rows * a.dim).named(op, "x")?;
    let ids = a.ids.i32(a.rows * a.top_k).named(op, "ids")?;
    let weights = a.weights.f32(a.rows * a.top_k).named(op, "weights")?;
    let out = a.out.f32(a.rows * a.dim).named(op, "out")?;
    let experts: Vec<usize> = ids
        .iter()
        .map(|id| index(op, "expert", *id, a.gate.n_mat))
        .collect::<Result<_, _>>()?;
    if experts.is_empty() {
        return Ok(());
    }
    let used = |w| -> Result<Vec<Option<Matrix<'_>>>, OpError> {
        let mut mats = vec![None; a.gate.n_mat];
        for e in &experts {
            if mats[*e].is_none() {
                mats[*e] = Some(matrix(op, w, *e)?);
            }
        }
        Ok(mats)
    };
    let work = Work {
        isa,
        gate: used(a.gate)?,
        up: a.up.map(used).transpose()?,
        down: used(a.down)?,
        weights,
        top_k: a.top_k,
        ff: a.ff,
        dim: a.dim,
        experts,
    };
    let mut acts = Borrowed::new();
    let kind = ActKind::of(a.gate.ty);
    acts.0
        .set_on(ctx.pool, isa, kind, x, a.dim)
        .map_err(rounding(op))?;
    let mut hidden = Floats::any(work.experts.len() * a.ff);
    let many = a.rows >= TILED;
    if many {
        work.hidden_many(ctx, &acts.0, &mut hidden.0);
    } else {
        work.hidden_few(ctx, &acts.0, &mut hidden.0);
    }
    let mut inner = Borrowed::new();
    let kind = ActKind::of(a.down.ty);
    inner
        .0
        .set_on(ctx.pool, isa, kind, &hidden.0, a.ff)
        .map_err(rounding(op))?;
    if many {
        work.down_many(ctx, &inner.0, out);
    } else {
        work.down_few(ctx, &inner.0, out);
    }
    Ok(())
}

impl Work<'_> {
    /// Slots of each expert, in order.
    fn slots_by_expert(&self) -> Vec<(usize, Vec<u32>)> {
        let mut lists = vec![Vec::new(); self.gate.len()];
        for (slot, e) in self.experts.iter().enumerate() {
            lists[*e].push(slot as u32);
        }
        let all = lists.into_iter().enumerate();
        all.filter(|(_, slots)| !slots.is_empty()).collect()
    }

    /// `hidden[slot] = silu(gate x) * (up x)`, slot by slot: for a few rows.
    fn hidden_few(&self, ctx: &Ctx<'_>, acts: &Acts, hidden: &mut [f32]) {
        let slots = self.experts.len();
        // One run of 2 ff rows per slot, gate then up, whatever the form of the weights.
        let mut both = Floats::any(slots * 2 * self.ff);
        let total = both.0.len();
        let bytes = slots
            * self
                .gate
                .iter()
                .flatten()
                .next()
                .map_or(0, |g| g.bytes.len());
        let chunk = rows_per_task(total, 2 * bytes, 1, ctx.pool.threads());
        let shared = Out::new(&mut both.0, 2 * self.ff);
        ctx.pool.ranges(total, chunk, |range, _| {
            let lengths = std::iter::repeat_n(self.ff, 2 * slots);
            pieces(lengths, range, |i, rows| {
                let (slot, is_up) = (i / 2, i % 2);
                let e = self.experts[slot];
                let from = is_up * self.ff;
                let (w, first) = match &self.up {
                    Some(up) if is_up == 1 => (up[e], 0),
                    Some(_) => (self.gate[e], 0),
                    None => (self.gate[e], from),
                };
                // SAFETY: a range is one task's.
                let to = unsafe { shared.part(slot, from + rows.start..from + rows.end) };
                let x = acts.row(slot / self.top_k);
                if let Some(w) = w {
                    let done = w.gemv(self.isa, first + rows.start..first + rows.end, x, to);
                    debug_assert!(done.is_ok());
                }
            });
        });
        for (hidden, both) in hidden
            .chunks_exact_mut(self.ff)
            .zip(both.0.chunks_exact(2 * self.ff))
        {
            let (gate, up) = both.split_at(self.ff);
            hidden.copy_from_slice(gate);
            elementwise::silu_mul(self.isa, hidden, up);
        }
    }

    /// `out[r] += Σ_j weight_j * (down hidden[r, j])`, in the order of `j`.
    fn down_few(&self, ctx: &Ctx<'_>, inner: &Acts, out: &mut [f32]) {
        let bytes = self
            .down
            .iter()
            .flatten()
            .next()
            .map_or(0, |d| d.bytes.len());
        let slots = self.experts.len();
        let chunk = rows_per_task(self.dim, bytes * slots, 1, ctx.pool.threads());
        let out = Out::new(out, self.dim);
        ctx.pool.ranges(self.dim, chunk, |rows, _| {
            with_scratch(|s| {
                s.few.resize(rows.len(), 0.0);
                for (slot, e) in self.experts.iter().enumerate() {
                    let Some(w) = self.down[*e] else { continue };
                    let done = w.gemv(self.isa, rows.clone(), inner.row(slot), &mut s.few);
                    debug_assert!(done.is_ok());
                    // SAFETY: these columns are one task's.
                    let to = unsafe { out.part(slot / self.top_k, rows.clone()) };
                    f32::axpy(self.isa, to, self.weights[slot], &s.few);
                }
            });
        });
    }

    /// The same for many rows: each expert's rows are decoded once for all tokens that chose it.
    fn hidden_many(&self, ctx: &Ctx<'_>, acts: &Acts, hidden: &mut [f32]) {
        let lists = self.slots_by_expert();
        let panels = self.ff.div_ceil(ROWS);
        let out = Out::new(hidden, self.ff);
        ctx.pool.ranges(lists.len() * panels, 2, |range, _| {
            let (mut tokens, mut gates) = (Vec::new(), Vec::new());
            for task in range {
                let (e, slots) = &lists[task / panels];
                let p = task % panels;
                let rows = p * ROWS..((p + 1) * ROWS).min(self.ff);
                tokens.clear();
                tokens.extend(slots.iter().map(|s| s / self.top_k as u32));
                let (Some(gate), up) = (self.gate[*e], self.up.as_ref()) else {
                    continue;
                };
                let (up, up_rows) = match up.map(|up| up[*e]) {
                    Some(Some(up)) => (up, rows.clone()),
                    _ => (gate, self.ff + rows.start..self.ff + rows.end),
                };
                with_scratch(|s| {
                    let m = tokens.len();
                    let sums = s.panel(self.isa, gate, rows.clone(), acts, Rows::Of(&tokens), m);
                    gates.clear();
                    gates.extend_from_slice(sums);
                    let ups = s.panel(self.isa, up, up_rows, acts, Rows::Of(&tokens), m);
                    for ((slot, gate), up) in slots.iter().zip(&mut gates).zip(ups) {
                        elementwise::silu_mul(self.isa, gate, up);
                        // SAFETY: these columns of this slot are one task's.
                        let to = unsafe { out.part(*slot as usize, rows.clone()) };
                        put(to, gate, Store::Write);
                    }
                });
            }
        });
    }

    /// As `down_few`, in the order of the experts: a task owns 16 columns of every row's sum.
    fn down_many(&self, ctx: &Ctx<'_>, inner: &Acts, out: &mut [f32]) {
        let lists = self.slots_by_expert();
        let panels = self.dim.div_ceil(ROWS);
        let out = Out::new(out, self.dim);
        ctx.pool.ranges(panels, 1, |range, _| {
            for p in range {
                let rows = p * ROWS..((p + 1) * ROWS).min(self.dim);
                for (e, slots) in &lists {
                    let Some(w) = self.down[*e] else { continue };
                    with_scratch(|s| {
                        let m = slots.len();
                        let sums = s.panel(self.isa, w, rows.clone(), inner, Rows::Of(slots), m);
                        for (slot, sums) in slots.iter().zip(sums) {
                            let slot = *slot as usize;
                            // SAFETY: these columns are one task's.
                            let to = unsafe { out.part(slot / self.top_k, rows.clone()) };
                            let weight = self.weights[slot];
                            put(to, &sums.map(|y| weight * y), Store::Add);
                        }
                    });
                }
            }
        });
    }
}
