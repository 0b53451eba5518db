//! Latent attention in both forms.

use super::{Borrowed, Floats, matrix, named, rounding};
use crate::blocks::decode;
use crate::cpu::cachemul::{Strided, WORTH};
use crate::cpu::matmul::{Job, ROWS, Scratch, products, put, with_scratch};
use crate::cpu::out::Out;
use crate::cpu::{ActKind, Element, Isa, Store, elementwise};
use crate::ops::{Ctx, Keys, MlaArgs, Named, OpError, OpId};
use crate::tensor::{DType, Mut, Weight};
use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};

/// Queries of a task: enough to pay for a tile of keys.
const QUERIES: usize = 64;
/// Floats of a task's scores.
const SCORES: usize = 1 << 21;

/// Give the cache to `$run` as a slice of its element type.
macro_rules! with_cache {
    ($op:expr, $cache:expr, $len:expr, |$slice:ident| $run:expr) => {
        match $cache.dtype() {
            DType::F16 => {
                let $slice = $cache
                    .u16($len)
                    .named($op, "cache")?
                    .reinterpret_cast::<f16>();
                $run
            }
            DType::BF16 => {
                let $slice = $cache
                    .u16($len)
                    .named($op, "cache")?
                    .reinterpret_cast::<bf16>();
                $run
            }
            _ => {
                let $slice = $cache.f32($len).named($op, "cache")?;
                $run
            }
        }
    };
}

/// `score_s = scale * ((K_b q_nope) · c_s + q_pe · k_pe_s)`, `out = V_b Σ_s softmax(score)_s c_s`.
pub(super) fn absorbed(ctx: &mut Ctx<'_>, mut a: MlaArgs<'_>) -> Result<(), OpError> {
    let (op, isa) = (OpId::MlaDecodeAttention, Isa::best());
    a.check(op)?;
    let (width, head) = (a.lora + a.rope, a.nope + a.rope);
    let q = a.q.f32(a.rows * a.heads * head).named(op, "q")?;
    let keys = a.keys(op)?;
    let (rows, heads) = (a.rows, a.heads);
    if rows == 0 || heads == 0 {
        return Ok(());
    }
    // Queries into the latent: one product per head, all as one piece of work.
    let mut split = Floats::empty();
    for h in 0..heads {
        for r in 0..rows {
            split
                .0
                .extend_from_slice(&q[(r * heads + h) * head..][..a.nope]);
        }
    }
    let mut latent = Floats::any(rows * heads * width);
    per_head(ctx, op, a.k_b, rows, &split.0, &mut latent.0, width)?;
    for (latent, q) in latent.0.chunks_exact_mut(width).zip(q.chunks_exact(head)) {
        latent[a.lora..].copy_from_slice(&q[a.nope..]);
    }
    let mut mixed = Floats::any(rows * heads * a.lora);
    let mut lse = a.lse.take();
    let work = Absorbed {
        isa,
        weigh: Weigh::new(op, &a, &mut lse)?,
        queries: &latent.0,
        keys: &keys,
        mixed: Out::new(&mut mixed.0, heads * a.lora),
        heads,
        width,
        lora: a.lora,
    };
    with_cache!(op, a.cache, a.slot_end * width, |cache| work
        .run(ctx, cache));
    // Back out of the latent. Sorted by head again.
    split.0.clear();
    for h in 0..heads {
        for r in 0..rows {
            split
                .0
                .extend_from_slice(&mixed.0[(r * heads + h) * a.lora..][..a.lora]);
        }
    }
    let out = a.out.f32(rows * heads * a.v_dim).named(op, "out")?;
    per_head(ctx, op, a.v_b, rows, &split.0, out, a.v_dim)
}

/// `out[r, h, ..n_out] = W_h x[h, r]` with rows of `out` being `heads * width` long.
fn per_head(
    ctx: &Ctx<'_>,
    op: OpId,
    w: &Weight,
    rows: usize,
    x: &[f32],
    out: &mut [f32],
    width: usize,
) -> Result<(), OpError> {
    let isa = Isa::best();
    let mut acts = Borrowed::new();
    let kind = ActKind::of(w.ty);
    acts.0
        .set_on(ctx.pool, isa, kind, x, w.n_in)
        .map_err(rounding(op))?;
    let stride = w.n_mat * width;
    let out = Out::new(out, stride);
    let mut jobs = Vec::with_capacity(w.n_mat);
    for h in 0..w.n_mat {
        jobs.push(Job {
            w: matrix(op, w, h)?,
            acts: &acts.0,
            first: h * rows,
            m: rows,
            // SAFETY: each job has its own columns, from `column` on.
            out: unsafe { out.again() },
            column: h * width,
            store: Store::Write,
        });
    }
    products(ctx.pool, isa, &jobs);
    Ok(())
}

struct Absorbed<'a> {
    isa: Isa,
    weigh: Weigh<'a>,
    /// [row, head, width].
    queries: &'a [f32],
    keys: &'a [Keys<'a>],
    /// [row, head, lora].
    mixed: Out<'a>,
    heads: usize,
    width: usize,
    lora: usize,
}

impl Absorbed<'_> {
    fn run<T: Element>(&self, ctx: &Ctx<'_>, cache: &[T]) {
        // Tasks: some rows that share their keys, and some of their heads.
        let mut tasks = Vec::new();
        let mut from = 0;
        while from < self.keys.len() {
            let first = &self.keys[from];
            let longest = self.keys[from..].iter().map(Keys::len).max().unwrap_or(1);
            let limit = (QUERIES / self.heads).min(SCORES / (self.heads * longest).max(1));
            let alike = |k: &&Keys<'_>| k.selected.is_none() && k.base == first.base;
            let rows = self.keys[from..].iter().take(limit.max(1));
            let count = rows.take_while(alike).count().max(1);
            // A single row is cut by heads, so that there is something for every thread.
            let group = if self.keys.len() < 8 {
                self.heads.div_ceil(4).min(16)
            } else {
                self.heads
            };
            for head in (0..self.heads).step_by(group) {
                tasks.push((from, count, head, group.min(self.heads - head)));
            }
            from += count;
        }
        ctx.pool.ranges(tasks.len(), 1, |range, _| {
            let mut scores = Floats::empty();
            for (from, count, head, group) in &tasks[range] {
                for (r, count) in self.pieces(*from, *count, *group) {
                    self.attend(cache, r, count, *head, *group, &mut scores.0);
                }
            }
        });
    }

    /// Rows go together only where all heads do: queries must lie one after another.
    fn pieces(&self, from: usize, count: usize, group: usize) -> Vec<(usize, usize)> {
        if group == self.heads {
            vec![(from, count)]
        } else {
            (from..from + count).map(|r| (r, 1)).collect()
        }
    }

    /// Rows `from..from + count`, which share their first key, and heads `head..head + group`.
    fn attend<T: Element>(
        &self,
        cache: &[T],
        from: usize,
        count: usize,
        head: usize,
        group: usize,
        scores: &mut Vec<f32>,
    ) {
        let rows = &self.keys[from..from + count];
        let Some(longest) = rows.iter().max_by_key(|k| k.len()) else {
            return;
        };
        let key = |i: usize| &cache[longest.slot(i) * self.width..][..self.width];
        let (n, m) = (longest.len(), count * group);
        if n == 0 {
            for i in from..from + count {
                let heads = head * self.lora..(head + group) * self.lora;
                // SAFETY: this row's heads are one task's.
                unsafe {
                    self.mixed.part(i, heads).fill(0.0);
                    (head..head + group).for_each(|h| self.weigh.run(i, h, &mut []));
                }
            }
            return;
        }
        let queries = Strided {
            x: &self.queries[(from * self.heads + head) * self.width..],
            stride: self.width,
        };
        with_scratch(|s| {
            score(s, self.isa, key, n, self.width, queries, m, scores);
            for (i, p) in scores.chunks_exact_mut(n).enumerate() {
                let own = rows[i / group].len();
                // SAFETY: this row's head is one task's.
                unsafe {
                    self.weigh
                        .run(from + i / group, head + i % group, &mut p[..own])
                };
                p[own..].fill(0.0);
            }
            let weights = Strided {
                x: scores,
                stride: n,
            };
            let value = |i: usize| &key(i)[..self.lora];
            if m < WORTH {
                for (i, p) in scores.chunks_exact(n).enumerate() {
                    let (r, h) = (from + i / group, head + i % group);
                    // SAFETY: this row's head is one task's.
                    let to = unsafe { self.mixed.part(r, h * self.lora..(h + 1) * self.lora) };
                    T::mix(self.isa, value, p, to);
                }
                return;
            }
            for c in (0..self.lora).step_by(ROWS) {
                let cols = ROWS.min(self.lora - c);
                let sums = s.mix(self.isa, value, n, c, weights, m);
                for (i, sums) in sums.iter().enumerate() {
                    let (r, h) = (from + i / group, head + i % group);
                    let at = h * self.lora + c;
                    // SAFETY: this row's head is one task's.
                    let to = unsafe { self.mixed.part(r, at..at + cols) };
                    put(to, sums, Store::Write);
                }
            }
        });
    }
}

/// `scores[i, k] = key(k) · x[i]` for `n` keys and `m` rows.
#[expect(clippy::too_many_arguments, reason = "a matrix product's shapes")]
fn score<'a, T: Element>(
    s: &mut Scratch,
    isa: Isa,
    key: impl Fn(usize) -> &'a [T],
    n: usize,
    width: usize,
    x: Strided<'_>,
    m: usize,
    scores: &mut Vec<f32>,
) {
    scores.resize(m * n, 0.0);
    for k in (0..n).step_by(ROWS) {
        let count = ROWS.min(n - k);
        let mut tile: [&[T]; ROWS] = [&[]; ROWS];
        for (i, row) in tile.iter_mut().enumerate().take(count) {
            *row = key(k + i);
        }
        let sums = s.dots(isa, &tile[..count], width, x, m);
        for (row, sums) in scores.chunks_exact_mut(n).zip(sums) {
            put(&mut row[k..k + count], sums, Store::Write);
        }
    }
}

/// How scores become weights.
struct Weigh<'a> {
    isa: Isa,
    scale: f32,
    /// [heads], or empty.
    sinks: &'a [f32],
    /// [row, head], where it is wanted.
    lse: Option<Out<'a>>,
}

impl<'a> Weigh<'a> {
    /// `lse` is what the arguments held.
    fn new(op: OpId, a: &MlaArgs<'a>, lse: &'a mut Option<Mut<'_>>) -> Result<Weigh<'a>, OpError> {
        let sinks = match a.sinks {
            Some(s) => s.f32(a.heads).named(op, "sinks")?,
            None => &[],
        };
        let lse = match lse {
            Some(lse) => {
                let lse = lse.f32(a.rows * a.heads).named(op, "lse")?;
                Some(Out::new(lse, a.heads))
            }
            None => None,
        };
        Ok(Weigh {
            isa: Isa::best(),
            scale: a.scale,
            sinks,
            lse,
        })
    }

    /// The scores of row `r` and head `h` become weights.
    ///
    /// # Safety
    /// Nobody else has this row's head.
    unsafe fn run(&self, r: usize, h: usize, p: &mut [f32]) {
        p.iter_mut().for_each(|v| *v *= self.scale);
        let lse = elementwise::softmax_with(self.isa, p, self.sinks.get(h).copied());
        if let Some(out) = &self.lse {
            // SAFETY: the caller's promise.
            unsafe { out.part(r, h..h + 1) }.fill(lse);
        }
    }
}

/// `k_s = [K_bᵀ c_s | k_pe_s]`, `v_s = V_b c_s`, then plain attention.
pub(super) fn unabsorbed(ctx: &mut Ctx<'_>, mut a: MlaArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MlaPrefillAttention;
    a.check(op)?;
    let (width, head) = (a.lora + a.rope, a.nope + a.rope);
    let q = a.q.f32(a.rows * a.heads * head).named(op, "q")?;
    let keys = a.keys(op)?;
    // Slots before every row's base belong to other sequences: no keys are made for them.
    let Some(first) = keys.iter().map(|k| k.base).min() else {
        return Ok(());
    };
    // A head's two matrices in f32: they meet every key, so they are decoded once.
    for w in [a.k_b, a.v_b] {
        w.ty.row_bytes(w.n_in).map_err(|e| named(op, w, &e))?;
        w.host_mat(a.heads - 1).named(op, "weight")?;
    }
    let mut latents = Floats::empty();
    with_cache!(op, a.cache, a.slot_end * width, |cache| {
        let used = &cache[first * width..];
        latents.0.extend(used.iter().map(|v| v.to_f32()));
    });
    let mut lse = a.lse.take();
    let weigh = Weigh::new(op, &a, &mut lse)?;
    let out = a.out.f32(a.rows * a.heads * a.v_dim).named(op, "out")?;
    let work = Unabsorbed {
        isa: Isa::best(),
        q,
        keys: &keys,
        first,
        latents: &latents.0,
        out: Out::new(out, a.heads * a.v_dim),
        heads: a.heads,
        nope: a.nope,
        rope: a.rope,
        lora: a.lora,
        v_dim: a.v_dim,
        weigh,
    };
    let (k_b, v_b) = (a.k_b, a.v_b);
    ctx.pool.ranges(a.heads, 1, |range, _| {
        for h in range {
            let (Ok(k_b), Ok(v_b)) = (decoded(k_b, h), decoded(v_b, h)) else {
                continue; // checked above
            };
            work.head(h, &k_b, &v_b);
        }
    });
    Ok(())
}

fn decoded(w: &Weight, m: usize) -> Result<Vec<f32>, ()> {
    let mut out = vec![0.0; w.n_in * w.n_out];
    decode(w.ty, w.host_mat(m).map_err(|_| ())?, &mut out).map_err(|_| ())?;
    Ok(out)
}

struct Unabsorbed<'a> {
    isa: Isa,
    q: &'a [f32],
    keys: &'a [Keys<'a>],
    /// Slot of the first latent.
    first: usize,
    /// [slot - first, lora + rope].
    latents: &'a [f32],
    /// [row, head, v_dim].
    out: Out<'a>,
    heads: usize,
    nope: usize,
    rope: usize,
    lora: usize,
    v_dim: usize,
    weigh: Weigh<'a>,
}

impl Unabsorbed<'_> {
    fn head(&self, h: usize, k_b: &[f32], v_b: &[f32]) {
        let (width, head) = (self.lora + self.rope, self.nope + self.rope);
        let n_keys = self.latents.len() / width;
        let latents = Strided {
            x: self.latents,
            stride: width,
        };
        let mut k = Floats::any(n_keys * head);
        let mut v = Floats::any(n_keys * self.v_dim);
        with_scratch(|s| {
            let row = |l: usize| &k_b[l * self.nope..][..self.nope];
            for c in (0..self.nope).step_by(ROWS) {
                let cols = ROWS.min(self.nope - c);
                let sums = s.mix(self.isa, row, self.lora, c, latents, n_keys);
                for (k, sums) in k.0.chunks_exact_mut(head).zip(sums) {
                    put(&mut k[c..c + cols], sums, Store::Write);
                }
            }
            for (k, latent) in
                k.0.chunks_exact_mut(head)
                    .zip(self.latents.chunks_exact(width))
            {
                k[self.nope..].copy_from_slice(&latent[self.lora..]);
            }
            for c in (0..self.v_dim).step_by(ROWS) {
                let cols = ROWS.min(self.v_dim - c);
                let mut rows: [&[f32]; ROWS] = [&[]; ROWS];
                for (i, row) in rows.iter_mut().enumerate().take(cols) {
                    *row = &v_b[(c + i) * self.lora..][..self.lora];
                }
                let sums = s.dots(self.isa, &rows[..cols], self.lora, latents, n_keys);
                for (v, sums) in v.0.chunks_exact_mut(self.v_dim).zip(sums) {
                    put(&mut v[c..c + cols], sums, Store::Write);
                }
            }
        });
        let mut scores = Floats::empty();
        let mut from = 0;
        while from < self.keys.len() {
            let first = &self.keys[from];
            let longest = self.keys[from..].iter().map(Keys::len).max().unwrap_or(1);
            let limit = QUERIES.min(SCORES / longest.max(1)).max(1);
            let alike = |k: &&Keys<'_>| k.selected.is_none() && k.base == first.base;
            let rows = self.keys[from..].iter().take(limit);
            let count = rows.take_while(alike).count().max(1);
            self.rows(h, from, count, &k.0, &v.0, &mut scores.0);
            from += count;
        }
    }

    /// Rows `from..from + count`, which share their first key.
    fn rows(
        &self,
        h: usize,
        from: usize,
        count: usize,
        k: &[f32],
        v: &[f32],
        scores: &mut Vec<f32>,
    ) {
        let head = self.nope + self.rope;
        let rows = &self.keys[from..from + count];
        let Some(longest) = rows.iter().max_by_key(|k| k.len()) else {
            return;
        };
        let at = |i: usize| longest.slot(i) - self.first;
        let key = |i: usize| &k[at(i) * head..][..head];
        let value = |i: usize| &v[at(i) * self.v_dim..][..self.v_dim];
        let n = longest.len();
        if n == 0 {
            let at = h * self.v_dim;
            for i in from..from + count {
                // SAFETY: this row's head is one task's.
                unsafe {
                    self.out.part(i, at..at + self.v_dim).fill(0.0);
                    self.weigh.run(i, h, &mut []);
                }
            }
            return;
        }
        let queries = Strided {
            x: &self.q[(from * self.heads + h) * head..],
            stride: self.heads * head,
        };
        with_scratch(|s| {
            score(s, self.isa, key, n, head, queries, count, scores);
            for (i, (p, keys)) in scores.chunks_exact_mut(n).zip(rows).enumerate() {
                // SAFETY: this row's head is one task's.
                unsafe { self.weigh.run(from + i, h, &mut p[..keys.len()]) };
                p[keys.len()..].fill(0.0);
            }
            let weights = Strided {
                x: scores,
                stride: n,
            };
            if count < WORTH {
                for (i, p) in scores.chunks_exact(n).enumerate() {
                    // SAFETY: this row's head is one task's.
                    let to = unsafe {
                        self.out
                            .part(from + i, h * self.v_dim..(h + 1) * self.v_dim)
                    };
                    f32::mix(self.isa, value, p, to);
                }
                return;
            }
            for c in (0..self.v_dim).step_by(ROWS) {
                let cols = ROWS.min(self.v_dim - c);
                let sums = s.mix(self.isa, value, n, c, weights, count);
                for (i, sums) in sums.iter().enumerate() {
                    let at = h * self.v_dim + c;
                    // SAFETY: this row's head is one task's.
                    let to = unsafe { self.out.part(from + i, at..at + cols) };
                    put(to, sums, Store::Write);
                }
            }
        });
    }
}
