//! The second half of a layer: dense feed-forward network, or router and experts.

use legwork_kernels::ops::{
    MatPart, MatmulArgs, MatmulQuant, MoeExperts, MoeExpertsArgs, MoeRoute, MoeRouteArgs, RmsNorm,
    RmsNormArgs, SiluMul, SiluMulArgs,
};

use super::Forward;
use super::trunk::Runner;
use super::workspace::Workspace;
use crate::model::{Ffn, ModelError, Swiglu};

impl Forward {
    /// `x += ffn(norm(x))` for layer `i`.
    pub(super) fn ffn(&mut self, i: usize, rows: usize) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights.layers[i], &mut self.ws);
        self.runner.run::<RmsNorm>(RmsNormArgs {
            x: ws.x.at(0),
            x_stride: c.hidden,
            weight: w.ffn_norm.at(0),
            out: ws.h.at_mut(0),
            rows,
            dim: c.hidden,
            eps: c.rms_eps,
        })?;
        let moe = match &w.ffn {
            Ffn::Dense(net) => return swiglu(&mut self.runner, ws, net, rows),
            Ffn::Moe(moe) => moe,
        };
        let Some(m) = &c.moe else { return Ok(()) };
        let (runner, h) = (&mut self.runner, &ws.h);
        runner.matmul(&moe.router, h, &mut ws.router, rows, false)?;
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
        runner.run::<MoeExperts>(MoeExpertsArgs {
            x: h.at(0),
            ids: ws.expert_ids.at(0),
            weights: ws.expert_weights.at(0),
            gate: &moe.gate,
            up: moe.up.as_ref(),
            down: &moe.down,
            out: ws.x.at_mut(0),
            rows,
            dim: c.hidden,
            ff: m.ff,
            top_k: m.used,
        })?;
        match &moe.shared {
            Some(shared) => swiglu(&mut self.runner, ws, shared, rows),
            None => Ok(()),
        }
    }
}

/// `x += down(silu(gate h) * up h)`.
fn swiglu(
    runner: &mut Runner,
    ws: &mut Workspace,
    net: &Swiglu,
    rows: usize,
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
    runner.matmul(&net.down, &ws.gate, &mut ws.x, rows, true)?;
    Ok(())
}
