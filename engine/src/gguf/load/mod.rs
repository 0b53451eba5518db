//! Bringing a model's weights into memory at the disk's own speed.
//!
//! - `plan`: which stretches of which file are needed, and where each lands. One anonymous arena holds
//!   them all; a stretch keeps its file's offset modulo the page size, so that reads that bypass the
//!   page cache can land in place, and a tensor is as aligned in memory as in its file (32 bytes).
//! - `read`: several threads, large reads, each straight into its part of the arena.
//! - `stage`: the same reads through buffers of a device's, without an arena.
//! - `cache`: how much of the files the page cache holds, and dropping it.
//!
//! Nothing is copied twice and nothing is held but the arena: peak memory is the weights plus the
//! page rounding of each stretch.

mod cache;
mod plan;
mod read;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use legwork_kernels::tensor::{SharedBytes, WeightData};
use memmap2::{Advice, Mmap, MmapMut};

use super::error::{GgufError, Problem};
use super::file::Gguf;
use super::tensor::TensorInfo;
pub use cache::{cached_fraction, drop_cached};
use plan::Plan;
pub use read::plain_read;
pub use stage::{Piece, stage};

/// How files become memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadMode {
    /// Direct when the page cache holds less than half of the files, buffered otherwise.
    Auto,
    /// `O_DIRECT` reads past the page cache; buffered where the file system does not have them.
    Direct,
    /// Reads through the page cache.
    Buffered,
    /// No reads: the files are mapped, and their pages touched once.
    Mmap,
    /// The bytes were in the executable already. Never asked for; reported for built-in models.
    InPlace,
}

impl LoadMode {
    /// The word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            LoadMode::Auto => "auto",
            LoadMode::Direct => "direct",
            LoadMode::Buffered => "buffered",
            LoadMode::Mmap => "mmap",
            LoadMode::InPlace => "in-place",
        }
    }
}

/// Settings of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// How.
    pub mode: LoadMode,
    /// Reading threads; 0 chooses (reads wait for the disk, so more than cores is useful).
    pub threads: usize,
    /// With [`LoadMode::Mmap`]: touch every page now. Off for models larger than memory.
    pub prefault: bool,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            mode: LoadMode::Auto,
            threads: 0,
            prefault: true,
        }
    }
}

/// What a load did.
#[derive(Debug, Clone)]
pub struct LoadStats {
    /// The way it went in the end.
    pub mode: LoadMode,
    /// Why that differs from what was asked, if it does.
    pub note: Option<String>,
    /// Bytes of weights available now.
    pub weights_bytes: u64,
    /// Bytes read or touched for them (page rounding and small gaps included).
    pub read_bytes: u64,
    /// Seconds for reading, allocation included.
    pub secs: f64,
    /// Threads that read.
    pub threads: usize,
    /// The fraction of the files that the page cache held before; `None` if it could not be asked.
    pub cached_before: Option<f64>,
    /// Where the time went on the way to a device; `None` where the weights stay in host memory.
    pub staging: Option<Staging>,
}

/// Seconds of a load to a device. Reads and copies overlap where several threads share them; each figure is then the mean of
/// the threads, so that they add up to the load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Staging {
    /// Reading the file, or touching its mapping.
    pub read: f64,
    /// Starting copies; the whole copies where nothing overlaps.
    pub copy: f64,
    /// Waiting for copies to give a buffer back, or to end.
    pub wait: f64,
    /// Pinned buffers; 0 where nothing overlaps.
    pub slots: usize,
}

/// The text that follows `[vt load] `.
impl std::fmt::Display for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "to the device: read {:.3} s, copy {:.3} s, wait {:.3} s",
            self.read, self.copy, self.wait
        )?;
        match self.slots {
            0 => f.write_str(" (one after the other)"),
            n => write!(f, " (overlapped, {n} pinned buffers)"),
        }
    }
}

impl LoadStats {
    /// Replaces [`LoadMode::Auto`] by what the page cache speaks for.
    fn resolve_mode(&mut self) {
        if self.mode == LoadMode::Auto {
            let warm = self.cached_before.is_some_and(|fraction| fraction >= 0.5);
            self.mode = if warm {
                LoadMode::Buffered
            } else {
                LoadMode::Direct
            };
        }
    }

    /// A load that came in two parts, one after the other.
    #[must_use]
    pub fn and(mut self, other: &LoadStats) -> LoadStats {
        self.weights_bytes += other.weights_bytes;
        self.read_bytes += other.read_bytes;
        self.secs += other.secs;
        self.note = self.note.or_else(|| other.note.clone());
        self
    }

    /// Notes that direct reads were given up.
    fn refused(&mut self) {
        self.note = Some(
            "the file system refused a direct read; the rest was read through the page cache"
                .into(),
        );
        self.mode = LoadMode::Buffered;
    }

    /// GiB of weights per second; `None` when nothing was moved.
    pub fn gib_per_s(&self) -> Option<f64> {
        (self.secs > 0.0 && self.mode != LoadMode::InPlace)
            .then(|| self.weights_bytes as f64 / (1u64 << 30) as f64 / self.secs)
    }

    /// `cold`, `warm`, `mixed` or `unknown`: the page cache before the load.
    pub fn cache_state(&self) -> &'static str {
        match self.cached_before {
            None => "unknown",
            Some(f) if f < 0.05 => "cold",
            Some(f) if f > 0.95 => "warm",
            Some(_) => "mixed",
        }
    }
}

/// The text that follows `[vt load] weights `.
impl std::fmt::Display for LoadStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = self.weights_bytes as f64 / (1u64 << 30) as f64;
        write!(f, "{:.3} s ({gib:.3} GiB", self.secs)?;
        if let Some(rate) = self.gib_per_s() {
            write!(f, ", {rate:.2} GiB/s")?;
        }
        write!(
            f,
            ", {}, {} threads, page cache {}",
            self.mode.name(),
            self.threads,
            self.cache_state()
        )?;
        if let Some(cached) = self.cached_before {
            write!(f, " {:.0}%", cached * 100.0)?;
        }
        f.write_str(")")
    }
}

/// A model's weights in memory. Cheap to share (`Arc`); read-only.
#[derive(Debug)]
pub struct Weights {
    gguf: Arc<Gguf>,
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// `spots[i]` is where tensor `i` begins in the arena, if it was kept.
    Arena {
        arena: Arc<Mmap>,
        spots: Vec<Option<usize>>,
    },
    /// Tensor bytes lie in the model's mapping or in the executable; `kept[i]` says whether asked for.
    InPlace { kept: Vec<bool> },
}

impl Weights {
    /// Loads the tensors that `keep` chooses.
    ///
    /// # Errors
    /// A file cannot be read or mapped, became shorter, or memory for the weights was refused.
    pub fn load(
        gguf: Arc<Gguf>,
        options: &LoadOptions,
        keep: impl Fn(&TensorInfo) -> bool,
    ) -> Result<(Weights, LoadStats), GgufError> {
        let begin = Instant::now();
        let kept: Vec<bool> = gguf.tensors().iter().map(keep).collect();
        let weights_bytes = gguf
            .tensors()
            .iter()
            .zip(&kept)
            .filter(|(_, k)| **k)
            .map(|(t, _)| t.bytes)
            .sum();
        let mut stats = LoadStats {
            mode: options.mode,
            note: None,
            weights_bytes,
            read_bytes: 0,
            secs: 0.0,
            threads: 1,
            cached_before: None,
            staging: None,
        };
        if gguf.shards().iter().all(|shard| shard.path().is_none()) {
            stats.mode = LoadMode::InPlace;
            stats.secs = begin.elapsed().as_secs_f64();
            return Ok((
                Weights {
                    gguf,
                    store: Store::InPlace { kept },
                },
                stats,
            ));
        }
        stats.cached_before = cached_fraction(&gguf);
        stats.resolve_mode();
        let plan = Plan::new(&gguf, &kept);
        let store = if stats.mode == LoadMode::Mmap {
            gguf.map()?;
            if options.prefault {
                read::touch(&gguf, &plan, threads(options, stats.mode), &mut stats);
            }
            Store::InPlace { kept }
        } else {
            let arena = fill(&gguf, &plan, threads(options, stats.mode), &mut stats)?;
            Store::Arena {
                arena: Arc::new(arena),
                spots: plan.spots,
            }
        };
        stats.secs = begin.elapsed().as_secs_f64();
        Ok((Weights { gguf, store }, stats))
    }

    /// The model that the weights are of.
    pub fn gguf(&self) -> &Arc<Gguf> {
        &self.gguf
    }

    /// A tensor's bytes: at least 32-byte aligned (by the file's alignment); `None` if there is no such
    /// tensor or it was not kept.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let index = self.gguf.tensor_index(name)?;
        let info = self.gguf.tensors().get(index)?;
        match &self.store {
            Store::Arena { arena, spots } => {
                let begin = (*spots.get(index)?)?;
                arena.get(begin..begin.checked_add(usize::try_from(info.bytes).ok()?)?)
            }
            Store::InPlace { kept } => kept.get(index)?.then(|| self.gguf.tensor_bytes(info))?,
        }
    }

    /// A tensor's bytes with a share in whatever holds them: the arena, the mapping or the executable.
    pub fn share(&self, info: &TensorInfo) -> Option<WeightData> {
        let index = self.gguf.tensor_index(&info.name)?;
        let len = usize::try_from(info.bytes).ok()?;
        match &self.store {
            Store::Arena { arena, spots } => {
                let bytes: SharedBytes = Arc::<Mmap>::clone(arena);
                let offset = (*spots.get(index)?)?;
                Some(WeightData::Host { bytes, offset, len })
            }
            Store::InPlace { kept } => {
                (*kept.get(index)?).then_some(())?;
                let shard = ShardBytes {
                    gguf: Arc::clone(&self.gguf),
                    shard: info.shard,
                };
                let offset = usize::try_from(info.offset).ok()?;
                Some(WeightData::Host {
                    bytes: Arc::new(shard),
                    offset,
                    len,
                })
            }
        }
    }

    /// As [`Weights::get`], by a tensor's info.
    pub fn bytes(&self, info: &TensorInfo) -> Option<&[u8]> {
        self.get(&info.name)
    }

    /// As [`Weights::get`], for a tensor that must be there.
    pub fn require(&self, name: &str) -> Result<&[u8], GgufError> {
        self.get(name).ok_or_else(|| {
            self.gguf.error(Problem::MissingTensor {
                tensor: name.to_owned(),
            })
        })
    }
}

/// All bytes of a shard that is mapped or in memory.
struct ShardBytes {
    gguf: Arc<Gguf>,
    shard: usize,
}

impl AsRef<[u8]> for ShardBytes {
    fn as_ref(&self) -> &[u8] {
        self.gguf.shard_bytes(self.shard).unwrap_or_default()
    }
}

/// Reads bring a handful of requests to the disk at once; copies from the page cache need cores.
fn threads(options: &LoadOptions, mode: LoadMode) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match (options.threads, mode) {
        (0, LoadMode::Direct) => 8,
        (0, _) => cores.clamp(1, 8),
        (asked, _) => asked.min(64),
    }
}

fn fill(
    gguf: &Gguf,
    plan: &Plan,
    threads: usize,
    stats: &mut LoadStats,
) -> Result<Mmap, GgufError> {
    // A mapping of nothing is refused by the system.
    let mut arena = MmapMut::map_anon(plan.arena_len.max(1)).map_err(|source| {
        gguf.error(Problem::Memory {
            bytes: plan.arena_len as u64,
            source,
        })
    })?;
    // Fewer faults and fewer TLB misses; where huge pages are off, nothing is lost.
    let _ = arena.advise(Advice::HugePage);
    read::fill(gguf, plan, &mut arena, threads, stats)?;
    arena.make_read_only().map_err(|source| {
        gguf.error(Problem::Memory {
            bytes: plan.arena_len as u64,
            source,
        })
    })
}
