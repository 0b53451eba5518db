//! The first half of a layer: multi-head latent attention.

use legwork_kernels::device::DeviceKind;
use legwork_kernels::ops::{
    ConcatAndCacheMla, ConcatArgs, FusedArgs, FusedNormRope, MatPart, MatmulArgs, MatmulQuant,
    MlaArgs, MlaDecodeAttention, MlaPrefillAttention, OpId, RmsNorm, RmsNormArgs, Rope, RopeArgs,
    RopeStyle, Selection,
};
use legwork_kernels::registry::Registry;

use super::graph::coarse;
use super::step::Shape;
use super::{AttentionForm, Cost, Forward, Probe, Step};
use crate::model::ModelError;

/// Rope of queries and keys: interleaved in every architecture of this family; only the indexer's differs.
const MAIN_ROPE: RopeStyle = RopeStyle::Interleaved;

/// Whether norm, rope and cache write run as one operation.
///
/// Not when the knob switched it off; else where the device has it natively; else only where the split operations are not
/// all native either, since a reference-tier hit must not replace native code.
pub(super) fn fused_norm_rope(registry: &Registry, device: DeviceKind) -> bool {
    let split = [OpId::RmsNorm, OpId::Rope, OpId::ConcatAndCacheMla];
    registry.enabled(OpId::FusedNormRope)
        && (registry.registered(OpId::FusedNormRope, device)
            || (registry.available(OpId::FusedNormRope, device)
                && !split.iter().all(|op| registry.registered(*op, device))))
}

impl Forward {
    /// `x += W_o attention(norm(x))` for layer `i`; with `on` false only the keys go into the cache.
    pub(super) fn attention(
        &mut self,
        i: usize,
        shape: &Shape,
        on: bool,
        probe: Option<&mut Probe>,
    ) -> Result<(), ModelError> {
        let rows = shape.rows;
        self.project(i, rows, shape.sparse)?;
        self.select(i, shape)?;
        if let Some(p) = probe {
            p.selected.push(if shape.sparse {
                Some(self.last_selection(rows)?)
            } else {
                None
            });
        }
        if !on {
            return Ok(());
        }
        self.attend(i, shape)?;
        let (w, ws) = (&self.weights.layers[i], &mut self.ws);
        self.runner
            .matmul(&w.out, &ws.attn, &mut ws.x, rows, true)?;
        Ok(())
    }

    /// Queries, and this step's rows of the latent cache. A dense step selects nothing, so the indexer only makes keys.
    fn project(&mut self, i: usize, rows: usize, sparse: bool) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        self.runner.run::<RmsNorm>(RmsNormArgs {
            x: ws.x.at(0),
            x_stride: c.hidden,
            weight: w.attn_norm.at(0),
            out: ws.h.at_mut(0),
            rows,
            dim: c.hidden,
            eps: c.rms_eps,
        })?;
        // Everything that reads `h` in one operation: it is quantised once. The merged kv row is multiplied whole.
        let mut parts = vec![MatPart {
            weight: &w.kv_a,
            out: ws.kv.at_mut(0),
            accumulate: false,
        }];
        if let Some(q_a) = &w.q_a {
            parts.push(MatPart {
                weight: q_a,
                out: ws.q_latent.at_mut(0),
                accumulate: false,
            });
        } else {
            parts.push(MatPart {
                weight: &w.q_b,
                out: ws.q.at_mut(0),
                accumulate: false,
            });
        }
        if let Some(x) = &w.indexer {
            parts.push(MatPart {
                weight: &x.k,
                out: ws.ik.at_mut(0),
                accumulate: false,
            });
            if sparse {
                parts.push(MatPart {
                    weight: &x.proj,
                    out: ws.iw.at_mut(0),
                    accumulate: false,
                });
            }
        }
        self.runner.run::<MatmulQuant>(MatmulArgs {
            x: ws.h.at(0),
            rows,
            parts,
        })?;
        let device = self.runner.device.kind;
        if fused_norm_rope(&self.runner.registry, device) {
            self.norm_rope_fused(i, rows)?
        } else {
            self.norm_rope_split(i, rows)?
        }
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        if w.q_a.is_some() {
            let mut parts = vec![MatPart {
                weight: &w.q_b,
                out: ws.q.at_mut(0),
                accumulate: false,
            }];
            if let Some(x) = w.indexer.as_ref().filter(|_| sparse) {
                parts.push(MatPart {
                    weight: &x.q_b,
                    out: ws.iq.at_mut(0),
                    accumulate: false,
                });
            }
            self.runner.run::<MatmulQuant>(MatmulArgs {
                x: ws.q_latent.at(0),
                rows,
                parts,
            })?;
        }
        self.runner.run::<Rope>(RopeArgs {
            x: ws.q.at_mut(0),
            rows,
            heads: c.heads,
            row_stride: c.heads * c.head(),
            head_stride: c.head(),
            offset: c.nope,
            table: &c.rope,
            style: MAIN_ROPE,
            pos: ws.columns.pos(),
        })?;
        Ok(())
    }

    fn norm_rope_fused(&mut self, i: usize, rows: usize) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        let q = w.q_a_norm.as_ref().map(|_| ws.q_latent.at_mut(0));
        self.runner.run::<FusedNormRope>(FusedArgs {
            q,
            q_weight: w.q_a_norm.as_ref().map(|n| n.at(0)),
            q_lora: c.q_lora.unwrap_or(0),
            kv: ws.kv.at(0),
            kv_weight: w.kv_a_norm.at(0),
            cache: self.cache.latent[i].at_mut(0),
            slots: ws.columns.slots(),
            pos: ws.columns.pos(),
            rows,
            lora: c.kv_lora,
            table: &c.rope,
            style: MAIN_ROPE,
            eps: c.rms_eps,
        })?;
        Ok(())
    }

    /// The same in four operations. The kv row was multiplied whole; only its product is split.
    fn norm_rope_split(&mut self, i: usize, rows: usize) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        let width = c.cache_width();
        if let (Some(norm), Some(q_lora)) = (&w.q_a_norm, c.q_lora) {
            self.runner.run::<RmsNorm>(RmsNormArgs {
                x: ws.q_latent.at(0),
                x_stride: q_lora,
                weight: norm.at(0),
                out: ws.q_normed.at_mut(0),
                rows,
                dim: q_lora,
                eps: c.rms_eps,
            })?;
            std::mem::swap(&mut ws.q_latent, &mut ws.q_normed);
        }
        self.runner.run::<RmsNorm>(RmsNormArgs {
            x: ws.kv.at(0),
            x_stride: width,
            weight: w.kv_a_norm.at(0),
            out: ws.latent.at_mut(0),
            rows,
            dim: c.kv_lora,
            eps: c.rms_eps,
        })?;
        self.runner.run::<Rope>(RopeArgs {
            x: ws.kv.at_mut(0),
            rows,
            heads: 1,
            row_stride: width,
            head_stride: width,
            offset: c.kv_lora,
            table: &c.rope,
            style: MAIN_ROPE,
            pos: ws.columns.pos(),
        })?;
        self.runner.run::<ConcatAndCacheMla>(ConcatArgs {
            latent: ws.latent.at(0),
            k_pe: ws.kv.at(0),
            pe_stride: width,
            pe_offset: c.kv_lora,
            cache: self.cache.latent[i].at_mut(0),
            slots: ws.columns.slots(),
            rows,
            lora: c.kv_lora,
            rope: c.rope.dim,
        })?;
        Ok(())
    }

    fn attend(&mut self, i: usize, shape: &Shape) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        let top_k = c.indexer.as_ref().map_or(0, |x| x.top_k);
        let args = MlaArgs {
            q: ws.q.at(0),
            k_b: &w.k_b,
            v_b: &w.v_b,
            cache: self.cache.latent[i].at(0),
            base: ws.columns.base(),
            slots: ws.columns.slots(),
            slot_end: shape.slot_end,
            selection: shape.sparse.then(|| Selection {
                index: ws.selection.at(0),
                count: ws.selected.at(0),
                k: top_k,
            }),
            window: None,
            sinks: None,
            lse: None,
            out: ws.attn.at_mut(0),
            rows: shape.rows,
            heads: c.heads,
            nope: c.nope,
            rope: c.rope.dim,
            lora: c.kv_lora,
            v_dim: c.v_dim,
            scale: c.attn_scale,
        };
        match shape.form {
            AttentionForm::Absorbed => self.runner.run::<MlaDecodeAttention>(args)?,
            AttentionForm::Unabsorbed => self.runner.run::<MlaPrefillAttention>(args)?,
        }
        Ok(())
    }

    /// What the step's operations depend on.
    pub(super) fn shape(&self, step: &Step<'_>) -> Shape {
        let tokens = self.cache.spec().tokens;
        let slot_end = step
            .rows
            .iter()
            .map(|r| r.sequence as usize * tokens + r.position as usize + 1)
            .max()
            .unwrap_or(0);
        let sparse = step.sparse(&self.config);
        Shape {
            rows: step.rows.len(),
            wanted: step.wanted,
            sparse,
            form: self.cost(step, sparse).form(),
            slot_end: if self.runner.device.kind == DeviceKind::Cpu {
                slot_end
            } else {
                coarse(slot_end, self.cache.spec().slots())
            },
        }
    }

    fn cost(&self, step: &Step<'_>, sparse: bool) -> Cost {
        let c = &self.config;
        let limit = if sparse {
            c.indexer.as_ref().map_or(usize::MAX, |x| x.top_k)
        } else {
            usize::MAX
        };
        let pairs = step
            .rows
            .iter()
            .map(|r| (r.position as usize + 1).min(limit))
            .sum();
        let mut keys = vec![0usize; self.cache.spec().sequences];
        for row in step.rows {
            let n = &mut keys[row.sequence as usize];
            *n = (*n).max(row.position as usize + 1);
        }
        Cost {
            pairs,
            rows: step.rows.len(),
            keys: keys.iter().sum(),
            lora: c.kv_lora,
            nope: c.nope,
            rope: c.rope.dim,
            v_dim: c.v_dim,
        }
    }
}

#[cfg(test)]
mod tests {
    use legwork_kernels::device::MemoryFacts;
    use legwork_kernels::knobs::Knobs;
    use legwork_kernels::registry::{Provider, TierChoice};

    use super::*;

    const DEVICE: DeviceKind = DeviceKind::Rocm;

    /// A device with the split operations, and the fused one where asked; the reference tier reaches it where asked.
    fn registry(fused_knob: bool, fused_native: bool, host_addressable: bool) -> Registry {
        let knobs = Knobs {
            fused_norm_rope: fused_knob,
            ..Knobs::default()
        };
        let mut r = Registry::new(knobs, TierChoice::Auto);
        r.set_memory(
            DEVICE,
            MemoryFacts {
                host_addressable,
                reason: "as the test says".to_owned(),
            },
        );
        r.add(
            DEVICE,
            Provider::<RmsNorm>::native("vt-native", |_, _| Ok(())),
        );
        r.add(DEVICE, Provider::<Rope>::native("vt-native", |_, _| Ok(())));
        r.add(
            DEVICE,
            Provider::<ConcatAndCacheMla>::native("vt-native", |_, _| Ok(())),
        );
        if fused_native {
            r.add(
                DEVICE,
                Provider::<FusedNormRope>::native("vt-native", |_, _| Ok(())),
            );
        }
        r
    }

    #[test]
    fn the_fused_operation_is_taken_only_where_it_is_native_and_not_switched_off() {
        for host in [false, true] {
            assert!(fused_norm_rope(&registry(true, true, host), DEVICE));
            assert!(!fused_norm_rope(&registry(false, true, host), DEVICE));
            // A device without the fused operation takes the split ones, never a reference-tier hit in their place.
            assert!(!fused_norm_rope(&registry(true, false, host), DEVICE));
        }
    }
}
