//! Rope, the latent cache, and attention in both forms.

use super::dense::rms_scale;
use super::{axpy, cache_rows, cache_store, decode_mat, dot, ensure, index, softmax_with};
use crate::ops::{
    ConcatArgs, Ctx, FusedArgs, MlaArgs, Named, OpError, OpId, RopeArgs, RopeStyle, RopeTable,
};

/// Rotates one head's `table.dim` elements by the angles of `pos`. Angles in f64: at position 200,000 an f32 product would
/// be off by a hundredth of a radian.
pub(super) fn rotate(x: &mut [f32], table: &RopeTable, style: RopeStyle, pos: i32) {
    let half = table.dim / 2;
    for (j, freq) in table.freq.iter().enumerate() {
        let (sin, cos) = (f64::from(pos) * f64::from(*freq)).sin_cos();
        let (a, b) = match style {
            RopeStyle::Interleaved => (2 * j, 2 * j + 1),
            RopeStyle::HalfSplit => (j, j + half),
        };
        let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
        x[a] = (xa * cos - xb * sin) as f32;
        x[b] = (xa * sin + xb * cos) as f32;
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

pub(super) fn rope(_: &mut Ctx<'_>, mut a: RopeArgs<'_>) -> Result<(), OpError> {
    let op = OpId::Rope;
    check_table(op, a.table)?;
    let end = a.offset + a.table.dim;
    ensure(
        op,
        a.row_stride >= (a.heads.max(1) - 1) * a.head_stride + end,
        || "heads overlap the next row".to_owned(),
    )?;
    let pos = a.pos.i32(a.rows).named(op, "pos")?;
    let used = a.rows.saturating_sub(1) * a.row_stride + (a.heads.max(1) - 1) * a.head_stride + end;
    let x = a.x.f32(if a.rows == 0 { 0 } else { used }).named(op, "x")?;
    for (row, pos) in pos.iter().enumerate() {
        for head in 0..a.heads {
            let at = row * a.row_stride + head * a.head_stride + a.offset;
            rotate(&mut x[at..at + a.table.dim], a.table, a.style, *pos);
        }
    }
    Ok(())
}

pub(super) fn fused_norm_rope(_: &mut Ctx<'_>, mut a: FusedArgs<'_>) -> Result<(), OpError> {
    let op = OpId::FusedNormRope;
    check_table(op, a.table)?;
    if let (Some(q), Some(w)) = (&mut a.q, &a.q_weight) {
        let w = w.f32(a.q_lora).named(op, "q_weight")?;
        for q in q
            .f32(a.rows * a.q_lora)
            .named(op, "q")?
            .chunks_exact_mut(a.q_lora.max(1))
        {
            let scale = rms_scale(q, a.eps);
            for (q, w) in q.iter_mut().zip(w) {
                *q = *q * scale * w;
            }
        }
    }
    let width = a.lora + a.table.dim;
    let kv = a.kv.f32(a.rows * width).named(op, "kv")?;
    let w = a.kv_weight.f32(a.lora).named(op, "kv_weight")?;
    let pos = a.pos.i32(a.rows).named(op, "pos")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    let n_slots = a.cache.as_ref().remaining() / width;
    let mut row = vec![0.0; width];
    for ((kv, pos), slot) in kv.chunks_exact(width).zip(pos).zip(slots) {
        let scale = rms_scale(&kv[..a.lora], a.eps);
        for ((o, x), w) in row.iter_mut().zip(kv).zip(w) {
            *o = x * scale * w;
        }
        row[a.lora..].copy_from_slice(&kv[a.lora..]);
        rotate(&mut row[a.lora..], a.table, a.style, *pos);
        cache_store(
            op,
            &mut a.cache,
            index(op, "cache slot", *slot, n_slots)?,
            &row,
        )?;
    }
    Ok(())
}

pub(super) fn concat_and_cache(_: &mut Ctx<'_>, mut a: ConcatArgs<'_>) -> Result<(), OpError> {
    let op = OpId::ConcatAndCacheMla;
    let latent = a.latent.f32(a.rows * a.lora).named(op, "latent")?;
    let slots = a.slots.i32(a.rows).named(op, "slots")?;
    let width = a.lora + a.rope;
    let n_slots = a.cache.as_ref().remaining() / width;
    let mut row = vec![0.0; width];
    for (r, slot) in slots.iter().enumerate() {
        row[..a.lora].copy_from_slice(&latent[r * a.lora..(r + 1) * a.lora]);
        row[a.lora..].copy_from_slice(
            a.k_pe
                .skip(r * a.pe_stride + a.pe_offset)
                .f32(a.rope)
                .named(op, "k_pe")?,
        );
        cache_store(
            op,
            &mut a.cache,
            index(op, "cache slot", *slot, n_slots)?,
            &row,
        )?;
    }
    Ok(())
}

/// The head's sink, if there are sinks.
fn sink(op: OpId, a: &MlaArgs<'_>, h: usize) -> Result<Option<f32>, OpError> {
    a.sinks
        .map(|s| Ok(s.f32(a.heads).named(op, "sinks")?[h]))
        .transpose()
}

/// Scores to weights; the logarithm of the keys' sum goes to `lse`, if it is wanted.
fn weigh(
    op: OpId,
    a: &mut MlaArgs<'_>,
    (r, h): (usize, usize),
    scores: &mut [f32],
) -> Result<(), OpError> {
    let lse = softmax_with(scores, sink(op, a, h)?);
    if let Some(out) = &mut a.lse {
        out.f32(a.rows * a.heads).named(op, "lse")?[r * a.heads + h] = lse;
    }
    Ok(())
}

/// `score_s = scale * ((K_b q_nope) · c_s + q_pe · k_pe_s)`, `out = V_b Σ_s softmax(score)_s c_s`.
pub(super) fn absorbed(_: &mut Ctx<'_>, mut a: MlaArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MlaDecodeAttention;
    a.check(op)?;
    let rows = a.keys(op)?;
    let (width, head) = (a.lora + a.rope, a.nope + a.rope);
    let cache = cache_rows(op, a.cache, width, 0..a.slot_end)?;
    let q = a.q.f32(a.rows * a.heads * head).named(op, "q")?;
    for h in 0..a.heads {
        let k_b = decode_mat(op, a.k_b, h)?;
        let v_b = decode_mat(op, a.v_b, h)?;
        for (r, keys) in rows.iter().enumerate() {
            let slots = || (0..keys.len()).map(|i| keys.slot(i));
            let q = &q[(r * a.heads + h) * head..][..head];
            let mut query: Vec<f32> = k_b
                .chunks_exact(a.nope)
                .map(|row| dot(row, &q[..a.nope]))
                .collect();
            query.extend_from_slice(&q[a.nope..]);
            let mut p: Vec<f32> = slots()
                .map(|s| a.scale * dot(&query, &cache[s * width..][..width]))
                .collect();
            weigh(op, &mut a, (r, h), &mut p)?;
            let mut mixed = vec![0.0; a.lora];
            for (p, s) in p.iter().zip(slots()) {
                axpy(&mut mixed, *p, &cache[s * width..][..a.lora]);
            }
            let at = (r * a.heads + h) * a.v_dim;
            let out =
                &mut a.out.f32(a.rows * a.heads * a.v_dim).named(op, "out")?[at..at + a.v_dim];
            for (o, row) in out.iter_mut().zip(v_b.chunks_exact(a.lora)) {
                *o = dot(row, &mixed);
            }
        }
    }
    Ok(())
}

/// `k_s = [K_bᵀ c_s | k_pe_s]`, `v_s = V_b c_s`, then plain attention.
pub(super) fn unabsorbed(_: &mut Ctx<'_>, mut a: MlaArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MlaPrefillAttention;
    a.check(op)?;
    let rows = a.keys(op)?;
    let (width, head) = (a.lora + a.rope, a.nope + a.rope);
    let cache = cache_rows(op, a.cache, width, 0..a.slot_end)?;
    let q = a.q.f32(a.rows * a.heads * head).named(op, "q")?;
    // Slots before every row's base belong to other sequences: no keys are made for them.
    let Some(first) = rows.iter().map(|k| k.base).min() else {
        return Ok(());
    };
    for h in 0..a.heads {
        let k_b = decode_mat(op, a.k_b, h)?;
        let v_b = decode_mat(op, a.v_b, h)?;
        let n_keys = a.slot_end - first;
        let mut k = vec![0.0; n_keys * head];
        let mut v = vec![0.0; n_keys * a.v_dim];
        for (s, row) in cache[first * width..].chunks_exact(width).enumerate() {
            let (c, pe) = row.split_at(a.lora);
            let key = &mut k[s * head..(s + 1) * head];
            for (c, row) in c.iter().zip(k_b.chunks_exact(a.nope)) {
                axpy(&mut key[..a.nope], *c, row);
            }
            key[a.nope..].copy_from_slice(pe);
            for (o, row) in v[s * a.v_dim..(s + 1) * a.v_dim]
                .iter_mut()
                .zip(v_b.chunks_exact(a.lora))
            {
                *o = dot(row, c);
            }
        }
        for (r, keys) in rows.iter().enumerate() {
            let slots = || (0..keys.len()).map(|i| keys.slot(i) - first);
            let q = &q[(r * a.heads + h) * head..][..head];
            let mut p: Vec<f32> = slots()
                .map(|s| a.scale * dot(q, &k[s * head..][..head]))
                .collect();
            weigh(op, &mut a, (r, h), &mut p)?;
            let at = (r * a.heads + h) * a.v_dim;
            let out =
                &mut a.out.f32(a.rows * a.heads * a.v_dim).named(op, "out")?[at..at + a.v_dim];
            out.fill(0.0);
            for (p, s) in p.iter().zip(slots()) {
                axpy(out, *p, &v[s * a.v_dim..][..a.v_dim]);
            }
        }
    }
    Ok(())
}
