//! The sparse selection of a layer.

use legwork_kernels::ops::{
    CacheRows, CacheRowsArgs, DsaIndexerLogits, DsaTopkSelect, IndexerArgs, LayerNorm,
    LayerNormArgs, Rope, RopeArgs, TopkArgs,
};

use super::Forward;
use super::step::Shape;
use super::trunk::probe_error;
use crate::model::ModelError;

impl Forward {
    /// Writes this step's indexer keys where the layer has an indexer, and selects keys when the step is sparse: when some row
    /// has more keys than `top_k`. A layer without an indexer shares the last selection.
    pub(super) fn select(&mut self, i: usize, shape: &Shape) -> Result<(), ModelError> {
        let rows = shape.rows;
        let Some(x) = self.config.indexer.clone() else {
            return Ok(());
        };
        if self.weights.layers[i].indexer.is_none() {
            return Ok(());
        }
        self.index_keys(i, rows)?;
        if !shape.sparse {
            return Ok(());
        }
        let (c, ws) = (&self.config, &mut self.ws);
        self.runner.run::<Rope>(RopeArgs {
            x: ws.iq.at_mut(0),
            rows,
            heads: x.heads,
            row_stride: x.heads * x.dim,
            head_stride: x.dim,
            offset: 0,
            table: &c.rope,
            style: x.style,
            pos: ws.columns.pos(),
        })?;
        let Some(cache) = &self.cache.index[i] else {
            return Ok(());
        };
        for first in (0..rows).step_by(ws.score_rows) {
            let n = ws.score_rows.min(rows - first);
            self.runner.run::<DsaIndexerLogits>(IndexerArgs {
                q: ws.iq.at(first * x.heads * x.dim),
                weights: ws.iw.at(first * x.heads),
                cache: cache.at(0),
                base: ws.columns.base().skip(first),
                slots: ws.columns.slots().skip(first),
                out: ws.scores.at_mut(0),
                stride: ws.score_stride,
                rows: n,
                heads: x.heads,
                dim: x.dim,
                scale: ((x.dim * x.heads) as f32).sqrt().recip(),
            })?;
            self.runner.run::<DsaTopkSelect>(TopkArgs {
                scores: ws.scores.at(0),
                stride: ws.score_stride,
                base: ws.columns.base().skip(first),
                slots: ws.columns.slots().skip(first),
                index: ws.selection.at_mut(first * x.top_k),
                count: ws.selected.at_mut(first),
                rows: n,
                k: x.top_k,
            })?;
        }
        Ok(())
    }

    /// Norm, rope and cache write of the indexer's keys; done in dense steps too, since later sparse steps read them.
    fn index_keys(&mut self, i: usize, rows: usize) -> Result<(), ModelError> {
        let (c, ws) = (&self.config, &mut self.ws);
        let (Some(x), Some(w)) = (&c.indexer, &self.weights.layers[i].indexer) else {
            return Ok(());
        };
        self.runner.run::<LayerNorm>(LayerNormArgs {
            x: ws.ik.at_mut(0),
            weight: w.k_norm.at(0),
            bias: w.k_bias.at(0),
            rows,
            dim: x.dim,
            eps: x.eps,
        })?;
        self.runner.run::<Rope>(RopeArgs {
            x: ws.ik.at_mut(0),
            rows,
            heads: 1,
            row_stride: x.dim,
            head_stride: x.dim,
            offset: 0,
            table: &c.rope,
            style: x.style,
            pos: ws.columns.pos(),
        })?;
        let Some(cache) = &mut self.cache.index[i] else {
            return Ok(());
        };
        self.runner.run::<CacheRows>(CacheRowsArgs {
            x: ws.ik.at(0),
            cache: cache.at_mut(0),
            slots: ws.columns.slots(),
            rows,
            dim: x.dim,
        })?;
        Ok(())
    }

    /// The last row's selected keys.
    pub(super) fn last_selection(&self, rows: usize) -> Result<Vec<i32>, ModelError> {
        let k = self.config.indexer.as_ref().map_or(0, |x| x.top_k);
        let mut count = [0i32];
        self.ws
            .selected
            .read_i32(rows - 1, &mut count)
            .map_err(probe_error)?;
        let mut keys = vec![0i32; usize::try_from(count[0]).unwrap_or(0).min(k)];
        self.ws
            .selection
            .read_i32((rows - 1) * k, &mut keys)
            .map_err(probe_error)?;
        Ok(keys)
    }
}
