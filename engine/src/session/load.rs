//! From a file to a [`Session`].

use std::sync::Arc;
use std::time::Instant;

use legwork_kernels::cpu::Pool;
use legwork_kernels::device::DeviceKind;
use legwork_kernels::knobs::Knobs;
use legwork_kernels::registry::{Registry, Selected, Tier};

use super::placement::PlacedStore;
use super::{EngineError, KvFit, ModelOptions, Placement, available_memory, device, staged};
use crate::builtin::resolve_model;
use crate::events::{Event, Events};
use crate::forward::{CacheSpec, ExpertStream, Forward, KvCache};
use crate::gguf::load::{self, LoadOptions, Staging};
use crate::gguf::{Gguf, TensorInfo};
use crate::model::{Config, ModelError, Weights, WithoutExperts, is_routed_expert};
use crate::synth::parse_bytes;
use crate::tokenizer::Tokenizer;

const GIB: f64 = (1u64 << 30) as f64;

/// A loaded model on a device.
pub struct Session {
    /// The model file.
    pub gguf: Arc<Gguf>,
    /// Its tokenizer; `None` where the file has none that this engine knows and nothing asked for one.
    pub tokenizer: Option<Tokenizer>,
    /// The forward.
    pub forward: Forward,
    /// How long a context may be.
    pub kv: KvFit,
    /// Where events go.
    pub events: Arc<Events>,
    /// CPU threads.
    pub threads: usize,
    /// Bytes of the weights.
    pub weights_bytes: u64,
    /// Seconds from opening the file to weights in place.
    pub load_secs: f64,
    /// Where they went on the way to a device; `None` on the CPU.
    pub staging: Option<Staging>,
}

impl Session {
    /// Loads a model. `sequences` of up to `tokens` tokens each must fit; `None` takes all that the fit allows.
    ///
    /// # Errors
    /// The model, the device or the memory.
    pub fn load(
        options: &ModelOptions,
        sequences: usize,
        tokens: impl FnOnce(Option<&Tokenizer>, &KvFit) -> Result<usize, EngineError>,
        events: Arc<Events>,
    ) -> Result<Self, EngineError> {
        let knobs = Knobs::from_vars(std::env::vars())?;
        let started = Instant::now();
        let source = resolve_model(&options.model)?;
        events.send(&Event::LoadBegin {
            path: &options.model,
        });
        let gguf = Arc::new(source.open()?);
        let config = Config::read(&gguf)?;
        let header_secs = started.elapsed().as_secs_f64();
        let header_bytes = gguf.shards().iter().map(|s| s.data_offset()).sum();
        if knobs.load_stats {
            eprintln!("[vt load] mmap+header {header_secs:>11.3} s");
        }
        events.send(&Event::LoadHeader {
            secs: header_secs,
            bytes: header_bytes,
        });

        let threads = options.threads.unwrap_or_else(default_threads).max(1);
        let opened = device::open(options.device, &knobs, options.kernels.as_deref())?;
        let kind = opened.device.kind;
        eprintln!(
            "engine: device {kind} ({}), {threads} threads",
            opened.reason
        );
        events.send(&Event::Device {
            device: kind.name(),
            device_id: kind.id(),
            reason: &opened.reason,
            threads,
        });

        let load = LoadOptions {
            mode: options.load_mode().into(),
            ..LoadOptions::default()
        };
        let names: Vec<&str> = gguf.tensors().iter().map(|t| &*t.name).collect();
        let placement = Placement::resolve(&config, &names, kind, knobs.cpu_moe, &options.place)?;
        if let Some(line) = placement.line() {
            eprintln!("{line}");
        }
        let expert_cache = expert_cache(options)?;
        let wanted = |t: &TensorInfo| {
            Weights::used(&config, &t.name)
                && (expert_cache.is_none() || !is_routed_expert(&t.name))
        };
        // Vectors are read where they are bound.
        let to_device = |t: &TensorInfo| wanted(t) && t.dims().len() > 1 && !placement.on_cpu(t);
        let staged = match opened.gpu_domain() {
            Some(domain) if staged::applies(&gguf, load.mode) => {
                Some(staged::load(&gguf, &load, domain, to_device)?)
            }
            _ => None,
        };
        let (store, host) = load::Weights::load(Arc::clone(&gguf), &load, |t| {
            wanted(t) && !(staged.is_some() && (to_device(t) || t.dims().len() < 2))
        })?;
        let (staged, mut stats) = match staged {
            Some((staged, stats)) => (staged, stats.and(&host)),
            None => (staged::Staged::new(), host),
        };
        let placed = PlacedStore {
            host: &store,
            device: &opened.store(&store, &staged),
            placement: &placement,
        };
        let domain = &*opened.device.domain;
        let copying = Instant::now();
        let weights = match expert_cache {
            Some(_) => Weights::bind(&gguf, &config, &WithoutExperts(&placed), domain)?,
            None => Weights::bind(&gguf, &config, &placed, domain)?,
        };
        if kind != DeviceKind::Cpu && stats.staging.is_none() {
            let copy = copying.elapsed().as_secs_f64();
            stats.staging = Some(Staging {
                read: stats.secs,
                copy,
                ..Staging::default()
            });
            stats.secs += copy;
        }
        if knobs.load_stats {
            eprintln!("[vt load] weights {stats}");
            if let Some(staging) = &stats.staging {
                eprintln!("[vt load] {staging}");
            }
            if let Some(note) = &stats.note {
                eprintln!("[vt load] {note}");
            }
        }
        events.send(&Event::LoadEnd {
            secs: stats.secs,
            bytes: stats.read_bytes,
            weights_bytes: stats.weights_bytes,
            gib_s: stats.gib_per_s(),
            mode: stats.mode.name(),
            cached_fraction: stats.cached_before,
            read_secs: stats.staging.map(|s| s.read),
            copy_secs: stats.staging.map(|s| s.copy),
            wait_secs: stats.staging.map(|s| s.wait),
        });

        let tokenizer = match Tokenizer::from_gguf(&gguf) {
            Ok(t) => Some(t),
            Err(e) => {
                eprintln!("engine: no tokenizer: {e}");
                None
            }
        };
        let dtype = options.kv_dtype.into();
        let kv = KvFit::resolve(
            &config,
            dtype,
            sequences,
            options.max_model_len,
            available_memory(),
        )?;
        if let Some(line) = kv.line() {
            eprintln!("{line}");
        }
        let tokens = tokens(tokenizer.as_ref(), &kv)?.max(1);
        let spec = CacheSpec {
            sequences,
            tokens,
            dtype,
        };
        let cache = KvCache::new(&config, spec, &*opened.device.domain).map_err(|source| {
            ModelError::Memory {
                what: "KV cache".to_owned(),
                source,
            }
        })?;
        let bytes = spec.bytes(&config);
        eprintln!(
            "engine: KV cache {tokens} tokens x {sequences} sequences, {}, {:.3} GiB (context {} of {})",
            dtype.name(),
            bytes as f64 / GIB,
            kv.resolved,
            kv.requested
        );
        events.send(&Event::Kv {
            max_tokens: tokens,
            bytes,
            dtype: dtype.name(),
            requested: kv.requested,
            resolved: kv.resolved,
            sequences,
        });
        eprintln!("engine: Asynchronous scheduling is disabled (max_concurrent_batches=1)");

        let mut registry = registry(knobs, options, &events);
        opened.register(&mut registry);
        let ubatch = options
            .ubatch
            .unwrap_or_else(|| default_ubatch(&config, kind, stats.weights_bytes));
        let max_rows = ubatch.clamp(1, tokens).max(sequences);
        let stream = expert_cache
            .map(|bytes| ExpertStream::new(Arc::clone(&gguf), &config, &weights, bytes))
            .transpose()?;
        let mut forward = Forward::new(
            config,
            weights,
            cache,
            Arc::new(registry),
            Arc::new(Pool::new(threads)),
            opened.device,
            max_rows,
        )?;
        if kind != DeviceKind::Cpu && (stream.is_some() || placement.experts_on_cpu.contains(&true))
        {
            // Streamed experts are in host memory, so they run there.
            let layers = match &stream {
                Some(_) => vec![true; placement.experts_on_cpu.len()],
                None => placement.experts_on_cpu,
            };
            forward.place_experts(layers)?;
        }
        if let Some(stream) = stream {
            forward.stream_experts(stream);
        }
        let load_secs = started.elapsed().as_secs_f64();
        Ok(Session {
            gguf,
            tokenizer,
            forward,
            kv,
            events,
            threads,
            weights_bytes: stats.weights_bytes,
            load_secs,
            staging: stats.staging,
        })
    }

    /// The tokenizer, or why there is none.
    ///
    /// # Errors
    /// The file has none that this engine knows.
    pub fn tokenizer(&self) -> Result<&Tokenizer, EngineError> {
        self.tokenizer.as_ref().ok_or_else(|| {
            EngineError::Usage(format!(
                "{}: the file has no tokenizer that this engine knows",
                self.gguf.name()
            ))
        })
    }

    /// Prints how often the reference tier was used.
    pub fn report_reference_hits(&self) {
        let hits = self.forward.registry().reference_hits();
        if let Some(stats) = self.forward.stream_stats() {
            eprintln!("{stats}");
        }
        let graphs = self.forward.graph_stats();
        if graphs.recorded > 0 || graphs.refused.is_some() {
            eprintln!("{graphs}");
        }
        eprintln!("reference-tier hits: {hits}");
        self.events.send(&Event::ReferenceTierHits { hits });
    }
}

/// The size of the expert cache, if one was asked for.
fn expert_cache(options: &ModelOptions) -> Result<Option<usize>, EngineError> {
    let Some(text) = &options.expert_cache else {
        return Ok(None);
    };
    parse_bytes(text)
        .and_then(|b| usize::try_from(b).ok())
        .map(Some)
        .ok_or_else(|| {
            EngineError::Usage(format!(
                "--expert-cache {text}: not a size; write e.g. 24GiB or 500MB"
            ))
        })
}

fn registry(knobs: Knobs, options: &ModelOptions, events: &Arc<Events>) -> Registry {
    let print = knobs.op_provider_stats;
    let mut registry = Registry::new(knobs, options.tier.into());
    let events = Arc::clone(events);
    registry.observe(move |s: &Selected| {
        if print {
            eprintln!("{s}");
            if s.tier == Tier::Reference && !s.registered {
                eprintln!(
                    "[vt reference-tier] op={} device={} has NO native kernel; running the PORTABLE CPU fallback (correct but slow)",
                    s.op.number(),
                    s.device.id()
                );
            }
        }
        events.send(&Event::OpProvider {
            op: s.op.name(),
            id: s.op.number(),
            device: s.device.name(),
            device_id: s.device.id(),
            selected: s.name,
            priority: s.priority,
            registered: s.registered,
            reference: s.tier == Tier::Reference,
        });
    });
    registry
}

/// Cores that this process may use.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Prompt tokens per step: 512, halved (to no less than 64) on a CPU while their activations would take more than half of
/// what the weights take, since memory is what a small model is chosen for.
fn default_ubatch(config: &Config, kind: DeviceKind, weights_bytes: u64) -> usize {
    let mut rows = 512;
    // What the operations themselves need is about as much as their operands.
    let per_row = 2 * Forward::bytes_per_row(config) as u64;
    while kind == DeviceKind::Cpu && rows > 64 && rows as u64 * per_row > weights_bytes / 2 {
        rows /= 2;
    }
    rows
}
