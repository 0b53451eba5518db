//! Embedding, layers, head.

use std::any::Any;
use std::sync::Arc;

use legwork_kernels::cpu::Pool;
use legwork_kernels::device::DeviceKind;
use legwork_kernels::gpu::Gpu;
use legwork_kernels::ops::{
    Argmax, ArgmaxArgs, Ctx, Embed, EmbedArgs, MatPart, MatmulArgs, MatmulQuant, Op, OpError,
    RmsNorm, RmsNormArgs,
};
use legwork_kernels::registry::Registry;
use legwork_kernels::tensor::{DType, HostDomain, MemoryDomain, Tensor, TensorError, Weight};

use super::graph::Graphs;
use super::step::Shape;
use super::workspace::Workspace;
use super::{ExpertStream, KvCache, Probe, Step, StreamStats};
use crate::model::{Config, ModelError, Weights};

/// A device as the forward sees it.
pub struct Device {
    /// Its kind.
    pub kind: DeviceKind,
    /// Its memory.
    pub domain: Arc<dyn MemoryDomain>,
    /// What its providers keep between operations; `None` on the CPU.
    pub state: Option<Box<dyn Any + Send>>,
}

impl Device {
    /// The CPU.
    #[must_use]
    pub fn cpu() -> Self {
        Device {
            kind: DeviceKind::Cpu,
            domain: Arc::new(HostDomain),
            state: None,
        }
    }
}

/// What operations run with.
pub(super) struct Runner {
    pub registry: Arc<Registry>,
    pub pool: Arc<Pool>,
    pub device: Device,
}

impl Runner {
    pub fn run<O: Op>(&mut self, args: O::Args<'_>) -> Result<(), OpError> {
        let mut ctx = Ctx {
            pool: &self.pool,
            device: self.device.state.as_deref_mut(),
        };
        self.registry.run::<O>(&mut ctx, self.device.kind, args)
    }

    /// Runs an operation on host tensors, whatever the device.
    pub fn run_on_cpu<O: Op>(&mut self, args: O::Args<'_>) -> Result<(), OpError> {
        let mut ctx = Ctx {
            pool: &self.pool,
            device: None,
        };
        self.registry.run::<O>(&mut ctx, DeviceKind::Cpu, args)
    }

    /// One product without accumulation.
    pub fn matmul<'a>(
        &mut self,
        weight: &'a Weight,
        x: &'a Tensor,
        out: &'a mut Tensor,
        rows: usize,
        accumulate: bool,
    ) -> Result<(), OpError> {
        let parts = vec![MatPart {
            weight,
            out: out.at_mut(0),
            accumulate,
        }];
        self.run::<MatmulQuant>(MatmulArgs {
            x: x.at(0),
            rows,
            parts,
        })
    }
}

/// A model on a device, ready for steps.
pub struct Forward {
    pub(super) config: Config,
    pub(super) weights: Weights,
    pub(super) runner: Runner,
    pub(super) ws: Workspace,
    pub(super) cache: KvCache,
    pub(super) stream: Option<ExpertStream>,
    pub(super) host_experts: Option<HostExperts>,
    pub(super) graphs_on: bool,
    pub(super) graphs: Graphs,
}

/// Layers whose routed experts run on the CPU while the rest runs on a device.
pub(super) struct HostExperts {
    pub layers: Vec<bool>,
    /// `[rows, hidden]` on the device: what the experts gave.
    pub sum: Tensor,
}

impl Forward {
    /// Joins a model, a cache and a device. Steps may have up to `max_rows` rows.
    ///
    /// # Errors
    /// Not enough memory for the activations.
    pub fn new(
        config: Config,
        weights: Weights,
        cache: KvCache,
        registry: Arc<Registry>,
        pool: Arc<Pool>,
        device: Device,
        max_rows: usize,
    ) -> Result<Self, ModelError> {
        let ws = Workspace::new(
            &config,
            max_rows.max(1),
            cache.spec().tokens,
            &*device.domain,
        )
        .map_err(|source| ModelError::Memory {
            what: "activations".to_owned(),
            source,
        })?;
        let graphs_on = device
            .state
            .as_ref()
            .and_then(|s| s.downcast_ref::<Gpu>())
            .is_some_and(|g| g.graphs().is_ok());
        Ok(Forward {
            graphs_on,
            graphs: Graphs::default(),
            config,
            weights,
            runner: Runner {
                registry,
                pool,
                device,
            },
            ws,
            cache,
            stream: None,
            host_experts: None,
        })
    }

    /// Bytes of activations that each row of a step needs.
    #[must_use]
    pub fn bytes_per_row(config: &Config) -> usize {
        Workspace::bytes_per_row(config)
    }

    /// Takes routed experts from a stream instead of memory.
    pub fn stream_experts(&mut self, stream: ExpertStream) {
        self.stream = Some(stream);
    }

    /// Counters of the expert stream, if there is one.
    #[must_use]
    pub fn stream_stats(&self) -> Option<StreamStats> {
        self.stream.as_ref().map(ExpertStream::stats)
    }

    /// Runs the routed experts of the layers that say so on the CPU. Their weights must be in host memory.
    ///
    /// # Errors
    /// Not enough device memory for what comes back.
    pub fn place_experts(&mut self, layers: Vec<bool>) -> Result<(), ModelError> {
        let sum = Tensor::zeros(
            &*self.runner.device.domain,
            DType::F32,
            self.ws.rows * self.config.hidden,
        )
        .map_err(|source| ModelError::Memory {
            what: "experts on the CPU".to_owned(),
            source,
        })?;
        self.host_experts = Some(HostExperts { layers, sum });
        Ok(())
    }

    /// The model's hyperparameters.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The providers, and the counters of their use.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.runner.registry
    }

    /// The device that it runs on.
    #[must_use]
    pub fn device(&self) -> DeviceKind {
        self.runner.device.kind
    }

    /// Largest number of rows of a step.
    #[must_use]
    pub fn max_rows(&self) -> usize {
        self.ws.rows
    }

    /// Runs a step. The wanted rows' logits go to `sink` in order, one row of `vocab` at a time.
    ///
    /// # Errors
    /// A row that the cache or vocabulary does not hold, a refusal, or a device failure.
    pub fn step(
        &mut self,
        step: &Step<'_>,
        probe: Option<&mut Probe>,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ModelError> {
        self.run(step, probe, &mut |me, first, rows| {
            me.deliver(first, rows, sink)
        })
    }

    /// Runs a step and chooses the likeliest token of every wanted row where the logits are, so that they need not come to
    /// the host.
    ///
    /// # Errors
    /// As [`Forward::step`].
    pub fn choose(
        &mut self,
        step: &Step<'_>,
        sink: &mut dyn FnMut(usize, Choice<'_>),
    ) -> Result<(), ModelError> {
        self.run(step, None, &mut |me, first, rows| {
            me.deliver_choices(first, rows, sink)
        })
    }

    /// Runs a step; `take` gets the wanted rows, as many at a time as the logits buffer holds.
    fn run(
        &mut self,
        step: &Step<'_>,
        probe: Option<&mut Probe>,
        take: &mut dyn FnMut(&mut Self, usize, usize) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if step.rows.is_empty() {
            return Ok(());
        }
        self.place(step)?;
        let shape = self.shape(step);
        if probe.is_none() && self.records(&shape) {
            self.run_recorded(&shape)?;
        } else {
            self.launches(&shape, probe)?;
        }
        // The first rows' logits are there; where not all fit the buffer, the others come after those have been read.
        let wanted = step.wanted.of(step.rows.len());
        for first in wanted.clone().step_by(self.ws.logit_rows) {
            let rows = self.ws.logit_rows.min(wanted.end - first);
            if first > wanted.start {
                self.head(first, rows)?;
            }
            take(self, first, rows)?;
        }
        Ok(())
    }

    /// All operations of a step, the head for as many of the wanted rows as the logits buffer holds included. They depend on
    /// the shape alone.
    pub(super) fn launches(
        &mut self,
        shape: &Shape,
        mut probe: Option<&mut Probe>,
    ) -> Result<(), ModelError> {
        let rows = shape.rows;
        let (c, w, ws) = (&self.config, &self.weights, &mut self.ws);
        let args = EmbedArgs {
            table: &w.embedding,
            ids: ws.columns.ids(),
            out: ws.x.at_mut(0),
            rows,
        };
        self.runner.run::<Embed>(args)?;
        if let Some(p) = probe.as_deref_mut() {
            *p = Probe::default();
            p.hidden.push(last_row(&ws.x, rows, c.hidden)?);
        }
        // Rows that nobody asks about end with their keys in the last layer's cache.
        let wanted = shape.wanted.of(rows);
        let seen = if probe.is_some() && wanted.is_empty() {
            rows - 1..rows
        } else {
            wanted.clone()
        };
        for layer in 0..self.config.layers {
            let on = if layer + 1 == self.config.layers {
                seen.clone()
            } else {
                0..rows
            };
            self.attention(layer, shape, !on.is_empty(), probe.as_deref_mut())?;
            self.ffn(layer, on)?;
            if let Some(p) = probe.as_deref_mut() {
                p.hidden
                    .push(last_row(&self.ws.x, rows, self.config.hidden)?);
            }
        }
        match self.ws.logit_rows.min(wanted.len()) {
            0 => Ok(()),
            n => self.head(wanted.start, n),
        }
    }

    /// Checks the rows and writes ids, positions and slots.
    fn place(&mut self, step: &Step<'_>) -> Result<(), ModelError> {
        let (n, spec) = (step.rows.len(), self.cache.spec());
        if n > self.ws.rows {
            return Err(ModelError::Request(format!(
                "a step of {n} rows is larger than {}",
                self.ws.rows
            )));
        }
        let mut columns = [vec![0i32; n], vec![0; n], vec![0; n], vec![0; n]];
        for (i, row) in step.rows.iter().enumerate() {
            let (seq, pos) = (row.sequence as usize, row.position as usize);
            if row.token as usize >= self.config.vocab {
                return Err(ModelError::Request(format!(
                    "token {} is outside the vocabulary of {}",
                    row.token, self.config.vocab
                )));
            }
            if seq >= spec.sequences || pos >= spec.tokens {
                return Err(ModelError::Request(format!(
                    "position {pos} of sequence {seq} is outside the KV cache of {} sequences of {} tokens",
                    spec.sequences, spec.tokens
                )));
            }
            let base = seq * spec.tokens;
            let as_i32 = |v: usize| {
                i32::try_from(v)
                    .map_err(|_| ModelError::Request(format!("{v} does not fit a cache index")))
            };
            columns[0][i] = as_i32(row.token as usize)?;
            columns[1][i] = as_i32(pos)?;
            columns[2][i] = as_i32(base + pos)?;
            columns[3][i] = as_i32(base)?;
        }
        let [ids, pos, slots, base] = &columns;
        self.ws
            .columns
            .write([ids, pos, slots, base])
            .map_err(|source| ModelError::Memory {
                what: "step".to_owned(),
                source,
            })
    }

    /// Final norm and head for `rows` rows from `first` on, at most as many as the logits buffer holds.
    fn head(&mut self, first: usize, rows: usize) -> Result<(), ModelError> {
        let (c, w, ws) = (&self.config, &self.weights, &mut self.ws);
        self.runner.run::<RmsNorm>(RmsNormArgs {
            x: ws.x.at(first * c.hidden),
            x_stride: c.hidden,
            weight: w.output_norm.at(0),
            out: ws.h.at_mut(0),
            rows,
            dim: c.hidden,
            eps: c.rms_eps,
        })?;
        self.runner
            .matmul(&w.head, &ws.h, &mut ws.logits, rows, false)?;
        Ok(())
    }

    /// Hands out the logits of the rows that the last head was for.
    fn deliver(
        &mut self,
        first: usize,
        rows: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ModelError> {
        let (vocab, ws) = (self.config.vocab, &mut self.ws);
        let n = rows * vocab;
        let logits: &[f32] = if self.runner.device.kind == DeviceKind::Cpu {
            ws.logits.at(0).f32(n)
        } else {
            ws.logits_host.resize(ws.logits_host.len().max(n), 0.0);
            let host = &mut ws.logits_host[..n];
            ws.logits.read_f32(0, host).map(|()| &*host)
        }
        .map_err(|source| ModelError::Memory {
            what: "logits".to_owned(),
            source,
        })?;
        for (r, row) in logits.chunks_exact(vocab.max(1)).enumerate() {
            sink(first + r, row);
        }
        Ok(())
    }
}

impl Forward {
    /// Hands out the likeliest tokens of the rows that the last head was for.
    fn deliver_choices(
        &mut self,
        first: usize,
        rows: usize,
        sink: &mut dyn FnMut(usize, Choice<'_>),
    ) -> Result<(), ModelError> {
        let ws = &mut self.ws;
        self.runner.run::<Argmax>(ArgmaxArgs {
            x: ws.logits.at(0),
            out: ws.chosen.at_mut(0),
            rows,
            n: self.config.vocab,
        })?;
        let mut chosen = vec![0; rows];
        ws.chosen
            .read_i32(0, &mut chosen)
            .map_err(|source| ModelError::Memory {
                what: "chosen tokens".to_owned(),
                source,
            })?;
        if chosen.iter().all(|c| *c >= 0) {
            for (r, id) in chosen.iter().enumerate() {
                sink(first + r, Choice::Token(id.cast_unsigned()));
            }
            return Ok(());
        }
        self.deliver(first, rows, &mut |r, logits| {
            let choice = match u32::try_from(chosen[r - first]) {
                Ok(id) => Choice::Token(id),
                Err(_) => Choice::None(logits),
            };
            sink(r, choice);
        })
    }
}

/// What [`Forward::choose`] found in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice<'a> {
    /// The likeliest token, the lower id on ties.
    Token(u32),
    /// None: these logits hold a NaN, or nothing above minus infinity.
    None(&'a [f32]),
}

pub(super) fn last_row(x: &Tensor, rows: usize, width: usize) -> Result<Vec<f32>, ModelError> {
    let mut out = vec![0.0; width];
    x.read_f32((rows - 1) * width, &mut out)
        .map_err(probe_error)?;
    Ok(out)
}

pub(super) fn probe_error(source: TensorError) -> ModelError {
    ModelError::Memory {
        what: "probe".to_owned(),
        source,
    }
}
