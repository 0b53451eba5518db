//! The second half of a layer: dense feed-forward network, or router and experts.

use std::ops::Range;

use legwork_kernels::device::DeviceKind;
use legwork_kernels::ops::{
    Add, AddArgs, MatPart, MatmulArgs, MatmulQuant, MoeExperts, MoeExpertsArgs, MoeRoute,
    MoeRouteArgs, RmsNorm, RmsNormArgs, SiluMul, SiluMulArgs,
};

use legwork_kernels::tensor::Tensor;

use super::Forward;
use super::trunk::Runner;
use super::workspace::Workspace;
use crate::model::{Ffn, ModelError, Swiglu};

impl Forward {
    /// `x += ffn(norm(x))` for layer `i`, for some rows of `x`.
    pub(super) fn ffn(&mut self, i: usize, wanted: Range<usize>) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        let (rows, x) = (wanted.len(), wanted.start * c.hidden);
        if rows == 0 {
            return Ok(());
        }
        self.runner.run::<RmsNorm>(RmsNormArgs {
            x: ws.x.at(x),
            x_stride: c.hidden,
            weight: w.ffn_norm.at(0),
            out: ws.h.at_mut(0),
            rows,
            dim: c.hidden,
            eps: c.rms_eps,
        })?;
        let moe = match &w.ffn {
            Ffn::Dense(net) => return swiglu(&mut self.runner, ws, net, rows, x),
            Ffn::Moe(moe) => moe,
        };
        let Some(m) = &c.moe else { return Ok(()) };
        let runner = &mut self.runner;
        runner.matmul(&moe.router, &ws.h, &mut ws.router, rows, false)?;
        runner.run::<MoeRoute>(MoeRouteArgs {
            logits: ws.router.at(0),
            bias: moe.bias.as_ref().map(|b| b.at(0)),
            ids: ws.expert_ids.at_mut(0),
            weights: ws.expert_weights.at_mut(0),
            rows,
            experts: m.experts,
            top_k: m.used,
            gating: m.gating,
            groups: m.groups,
            groups_used: m.groups_used,
            norm: m.norm,
            scale: m.scale,
        })?;
        let away = self.host_experts.as_ref().is_some_and(|h| h.layers[i]);
        if away || self.stream.is_some() {
            self.experts_on_host(i, rows, x)?;
        } else {
            let args = MoeExpertsArgs {
                x: ws.h.at(0),
                ids: ws.expert_ids.at(0),
                weights: ws.expert_weights.at(0),
                gate: &moe.gate,
                up: moe.up.as_ref(),
                down: &moe.down,
                out: ws.x.at_mut(x),
                rows,
                dim: c.hidden,
                ff: m.ff,
                top_k: m.used,
            };
            self.runner.run::<MoeExperts>(args)?;
        }
        let (w, ws) = (&self.weights.layers[i], &mut self.ws);
        let Ffn::Moe(moe) = &w.ffn else { return Ok(()) };
        match &moe.shared {
            Some(shared) => swiglu(&mut self.runner, ws, shared, rows, x),
            None => Ok(()),
        }
    }
}

impl Forward {
    /// Runs a layer's routed experts on the CPU, from weights in memory or from the stream, and adds what they give to `x`
    /// wherever that is, from element `x` on.
    fn experts_on_host(&mut self, i: usize, rows: usize, x: usize) -> Result<(), ModelError> {
        let (c, ws) = (&self.config, &mut self.ws);
        let (Ffn::Moe(moe), Some(m)) = (&self.weights.layers[i].ffn, &c.moe) else {
            return Ok(());
        };
        let copy = |source| ModelError::Memory {
            what: "experts on the CPU".to_owned(),
            source,
        };
        let (mut h, mut p) = (vec![0.0; rows * c.hidden], vec![0.0; rows * m.used]);
        let mut ids = vec![0; rows * m.used];
        ws.h.read_f32(0, &mut h).map_err(copy)?;
        ws.expert_weights.read_f32(0, &mut p).map_err(copy)?;
        ws.expert_ids.read_i32(0, &mut ids).map_err(copy)?;
        let runs = match &mut self.stream {
            Some(stream) => stream.runs(i, &ids, m.used),
            None => std::iter::once(0..rows).collect(),
        };
        let (h, p) = (Tensor::from_f32(h), Tensor::from_f32(p));
        let mut y = Tensor::from_f32(vec![0.0; rows * c.hidden]);
        for run in runs {
            let streamed = match &mut self.stream {
                Some(stream) => {
                    stream.bring(i, moe, &mut ids[run.start * m.used..run.end * m.used])?
                }
                None => Vec::new(),
            };
            let (gate, up, down) = match streamed.as_slice() {
                [gate, up, down] => (gate, Some(up), down),
                [gate, down] => (gate, None, down),
                _ => (&moe.gate, moe.up.as_ref(), &moe.down),
            };
            let chosen = Tensor::from_i32(ids[run.start * m.used..run.end * m.used].to_vec());
            self.runner.run_on_cpu::<MoeExperts>(MoeExpertsArgs {
                x: h.at(run.start * c.hidden),
                ids: chosen.at(0),
                weights: p.at(run.start * m.used),
                gate,
                up,
                down,
                out: y.at_mut(run.start * c.hidden),
                rows: run.len(),
                dim: c.hidden,
                ff: m.ff,
                top_k: m.used,
            })?;
        }
        let n = rows * c.hidden;
        if self.runner.device.kind == DeviceKind::Cpu {
            self.runner.run::<Add>(AddArgs {
                x: ws.x.at_mut(x),
                y: y.at(0),
                n,
            })?;
            return Ok(());
        }
        let Some(away) = &mut self.host_experts else {
            return Ok(());
        };
        let mut values = vec![0.0; n];
        y.read_f32(0, &mut values).map_err(copy)?;
        away.sum.write_f32(0, &values).map_err(copy)?;
        self.runner.run::<Add>(AddArgs {
            x: ws.x.at_mut(x),
            y: away.sum.at(0),
            n,
        })?;
        Ok(())
    }
}

/// `x += down(silu(gate h) * up h)`, where `x` are the rows from element `x` of the residual stream on.
fn swiglu(
    runner: &mut Runner,
    ws: &mut Workspace,
    net: &Swiglu,
    rows: usize,
    x: usize,
) -> Result<(), ModelError> {
    let parts = vec![
        MatPart {
            weight: &net.gate,
            out: ws.gate.at_mut(0),
            accumulate: false,
        },
        MatPart {
            weight: &net.up,
            out: ws.up.at_mut(0),
            accumulate: false,
        },
    ];
    runner.run::<MatmulQuant>(MatmulArgs {
        x: ws.h.at(0),
        rows,
        parts,
    })?;
    let n = rows * net.gate.n_out;
    runner.run::<SiluMul>(SiluMulArgs {
        gate: ws.gate.at_mut(0),
        up: ws.up.at(0),
        n,
    })?;
    runner.run::<MatmulQuant>(MatmulArgs {
        x: ws.gate.at(0),
        rows,
        parts: vec![MatPart {
            weight: &net.down,
            out: ws.x.at_mut(x),
            accumulate: true,
        }],
    })?;
    Ok(())
}
