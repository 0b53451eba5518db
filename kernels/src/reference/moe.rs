//! The router and the experts.

use super::{axpy, ensure, index, matmul_rows, shape, sigmoid, silu, softmax};
use crate::ops::{Ctx, Gating, MoeExpertsArgs, MoeRouteArgs, Named, OpError, OpId};

/// Guard of the weights' sum, as in llama.cpp: the smallest normal f16.
const MIN_WEIGHT_SUM: f32 = 1.0 / 16384.0;

pub(super) fn route(_: &mut Ctx<'_>, mut a: MoeRouteArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MoeRoute;
    let groups = a.groups.max(1);
    ensure(op, a.top_k <= a.experts && a.experts > 0, || {
        format!("{} of {} experts", a.top_k, a.experts)
    })?;
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
    let bias = a
        .bias
        .map(|b| b.f32(a.experts).named(op, "bias"))
        .transpose()?;
    let ids = a.ids.i32(a.rows * a.top_k).named(op, "ids")?;
    let weights = a.weights.f32(a.rows * a.top_k).named(op, "weights")?;
    for r in 0..a.rows {
        let mut p = logits[r * a.experts..(r + 1) * a.experts].to_vec();
        match a.gating {
            Gating::Softmax => softmax(&mut p),
            Gating::Sigmoid => p.iter_mut().for_each(|v| *v = sigmoid(*v)),
        }
        let mut choice = p.clone();
        if let Some(bias) = bias {
            axpy(&mut choice, 1.0, bias);
        }
        if groups > 1 {
            mask_groups(&mut choice, a.experts / groups, a.groups_used);
        }
        let chosen = best(&choice, a.top_k);
        let sum: f32 = chosen.iter().map(|e| p[*e]).sum();
        let scale = if a.norm {
            a.scale / sum.max(MIN_WEIGHT_SUM)
        } else {
            a.scale
        };
        for (j, e) in chosen.iter().enumerate() {
            ids[r * a.top_k + j] = i32::try_from(*e).map_err(|_| shape(op, "too many experts"))?;
            weights[r * a.top_k + j] = p[*e] * scale;
        }
    }
    Ok(())
}

/// Indices of the `k` largest, best first, ties to the lower index.
fn best(values: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    order.truncate(k);
    order
}

/// Puts all but the best `used` groups out of reach; a group counts by the sum of its two best.
fn mask_groups(choice: &mut [f32], size: usize, used: usize) {
    let score = |g: &[f32]| best(g, 2).iter().map(|i| g[*i]).sum::<f32>();
    let scores: Vec<f32> = choice.chunks(size).map(score).collect();
    let kept = best(&scores, used);
    for (g, chunk) in choice.chunks_mut(size).enumerate() {
        if !kept.contains(&g) {
            chunk.fill(f32::NEG_INFINITY);
        }
    }
}

pub(super) fn experts(_: &mut Ctx<'_>, mut a: MoeExpertsArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MoeExperts;
    let gate_rows = if a.up.is_some() { a.ff } else { 2 * a.ff };
    ensure(
        op,
        a.gate.n_in == a.dim && a.gate.n_out == gate_rows,
        || format!("{:?} does not fit", a.gate),
    )?;
    ensure(op, a.down.n_in == a.ff && a.down.n_out == a.dim, || {
        format!("{:?} does not fit", a.down)
    })?;
    let x = a.x.f32(a.rows * a.dim).named(op, "x")?;
    let ids = a.ids.i32(a.rows * a.top_k).named(op, "ids")?;
    let weights = a.weights.f32(a.rows * a.top_k).named(op, "weights")?;
    let out = a.out.f32(a.rows * a.dim).named(op, "out")?;
    for e in 0..a.gate.n_mat {
        // The rows that chose this expert, gathered so that its weights are decoded once.
        let mine: Vec<usize> = (0..ids.len())
            .filter(|i| usize::try_from(ids[*i]) == Ok(e))
            .collect();
        if mine.is_empty() {
            continue;
        }
        let h: Vec<f32> = mine
            .iter()
            .flat_map(|i| &x[i / a.top_k * a.dim..][..a.dim])
            .copied()
            .collect();
        let mut hidden = vec![0.0; mine.len() * gate_rows];
        matmul_rows(op, a.gate, e, &h, &mut hidden, false)?;
        let hidden: Vec<f32> = match a.up {
            Some(w) => {
                let mut up = vec![0.0; mine.len() * a.ff];
                matmul_rows(op, w, e, &h, &mut up, false)?;
                hidden.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect()
            }
            None => {
                let fused = |row: &[f32]| {
                    (0..a.ff)
                        .map(|i| silu(row[i]) * row[a.ff + i])
                        .collect::<Vec<_>>()
                };
                hidden.chunks_exact(gate_rows).flat_map(fused).collect()
            }
        };
        let mut y = vec![0.0; mine.len() * a.dim];
        matmul_rows(op, a.down, e, &hidden, &mut y, false)?;
        for (i, y) in mine.iter().zip(y.chunks_exact(a.dim)) {
            axpy(&mut out[i / a.top_k * a.dim..][..a.dim], weights[*i], y);
        }
    }
    for id in ids {
        index(op, "expert", *id, a.gate.n_mat)?;
    }
    Ok(())
}
