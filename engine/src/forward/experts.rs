//! Routed experts paged from disk: a cache of a given size when memory cannot hold them all.
//!
//! Experts of equal shape and type share an arena of slots. Before a layer's experts run, those that its rows chose are read
//! into slots, the least recently used ones making room, and the router's ids are replaced by slot numbers: to the
//! operation, the arena is a weight with as many experts as there are slots. Nothing is copied.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use legwork_kernels::blocks::BlockType;
use legwork_kernels::tensor::{SharedBytes, Weight, WeightData};

use crate::gguf::Gguf;
use crate::model::{Config, Ffn, ModelError, Moe, Weights};

/// Counters, as printed in `[expert-stream] …`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamStats {
    /// Steps that ran experts.
    pub steps: u64,
    /// Experts that were there.
    pub hits: u64,
    /// Experts that had to be read.
    pub misses: u64,
    /// Experts that made room.
    pub evictions: u64,
    /// Times that a step's rows were split because they chose more experts than there are slots.
    pub exhausted: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Seconds spent reading.
    pub secs: f64,
}

impl std::fmt::Display for StreamStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "[expert-stream] steps={} hits={} misses={} evictions={} exhausted={} bytes_read={} read_s={:.3}",
            self.steps,
            self.hits,
            self.misses,
            self.evictions,
            self.exhausted,
            self.bytes,
            self.secs
        )
    }
}

/// What makes experts interchangeable in an arena: type and shape of each matrix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shape(Vec<(BlockType, usize, usize)>);

/// One matrix of all experts in an arena.
struct Arena {
    bytes: Arc<Vec<u8>>,
    expert_bytes: usize,
}

/// Slots of one shape.
struct Group {
    arenas: Vec<Arena>,
    /// Which expert a slot holds: layer and number.
    held: Vec<Option<(usize, usize)>>,
    /// When a slot was last used.
    used: Vec<u64>,
    by_expert: HashMap<(usize, usize), usize>,
}

/// The cache of streamed experts.
pub struct ExpertStream {
    gguf: Arc<Gguf>,
    groups: Vec<Group>,
    group_of_layer: Vec<Option<usize>>,
    clock: u64,
    stats: StreamStats,
}

/// The matrices of a mixture in the order of an arena set: gate, up where it is apart, down.
fn matrices(moe: &Moe) -> impl Iterator<Item = &Weight> {
    std::iter::once(&moe.gate)
        .chain(moe.up.as_ref())
        .chain(std::iter::once(&moe.down))
}

impl ExpertStream {
    /// A cache of at most `bytes` for the experts of `weights`, whose own expert bytes were not loaded.
    ///
    /// # Errors
    /// Fewer slots than one token's experts, with the size that would do.
    pub fn new(
        gguf: Arc<Gguf>,
        config: &Config,
        weights: &Weights,
        bytes: usize,
    ) -> Result<Self, ModelError> {
        let used = config.moe.as_ref().map_or(0, |m| m.used);
        let mut shapes: Vec<(Shape, usize, usize)> = Vec::new();
        let mut group_of_layer = Vec::new();
        for layer in &weights.layers {
            let Ffn::Moe(moe) = &layer.ffn else {
                group_of_layer.push(None);
                continue;
            };
            let shape = Shape(matrices(moe).map(|w| (w.ty, w.n_in, w.n_out)).collect());
            let size: usize = matrices(moe).map(Weight::mat_bytes).sum();
            let at = shapes
                .iter()
                .position(|(s, ..)| *s == shape)
                .unwrap_or_else(|| {
                    shapes.push((shape, size, 0));
                    shapes.len() - 1
                });
            shapes[at].2 += moe.gate.n_mat;
            group_of_layer.push(Some(at));
        }
        // Every group gets the part of the memory that its experts are of all experts.
        let total: usize = shapes.iter().map(|(_, size, n)| size * n).sum();
        let groups = shapes
            .iter()
            .map(|(shape, size, n)| {
                let share = bytes as u128 * (*size as u128 * *n as u128) / total.max(1) as u128;
                let slots = (usize::try_from(share).unwrap_or(usize::MAX) / size).min(*n);
                if slots < used {
                    return Err(ModelError::Request(format!(
                        "an expert cache of {bytes} bytes holds {slots} experts of {size} bytes, but a token uses {used}; \
                         at least {} bytes are needed",
                        total.div_ceil(size * n) * size * used
                    )));
                }
                Ok(Group {
                    arenas: shape
                        .0
                        .iter()
                        .map(|(ty, n_in, n_out)| {
                            let expert_bytes = n_in / ty.block_len() * ty.block_bytes() * n_out;
                            Arena { bytes: Arc::new(vec![0; expert_bytes * slots]), expert_bytes }
                        })
                        .collect(),
                    held: vec![None; slots],
                    used: vec![0; slots],
                    by_expert: HashMap::new(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(ExpertStream {
            gguf,
            groups,
            group_of_layer,
            clock: 0,
            stats: StreamStats::default(),
        })
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Splits a step's rows into runs whose experts fit the slots at once; `ids` holds `top_k` per row.
    pub(super) fn runs(
        &mut self,
        layer: usize,
        ids: &[i32],
        top_k: usize,
    ) -> Vec<std::ops::Range<usize>> {
        let slots = self.group_of_layer[layer].map_or(0, |g| self.groups[g].held.len());
        let (mut runs, mut start, mut chosen) = (Vec::new(), 0, Vec::new());
        for (row, ids) in ids.chunks_exact(top_k.max(1)).enumerate() {
            let fresh: Vec<i32> = ids
                .iter()
                .copied()
                .filter(|e| !chosen.contains(e))
                .collect();
            if chosen.len() + fresh.len() > slots && row > start {
                runs.push(start..row);
                self.stats.exhausted += 1;
                start = row;
                chosen = ids.to_vec();
            } else {
                chosen.extend(fresh);
            }
        }
        runs.push(start..ids.len() / top_k.max(1));
        self.stats.steps += 1;
        runs
    }

    /// Brings the experts of `ids` into slots and replaces each id by its slot. The returned weights stand for the arenas and
    /// must be dropped before the next call.
    ///
    /// # Errors
    /// The file could not be read, or the ids name experts that do not exist.
    pub(super) fn bring(
        &mut self,
        layer: usize,
        moe: &Moe,
        ids: &mut [i32],
    ) -> Result<Vec<Weight>, ModelError> {
        let g = self.group_of_layer[layer]
            .ok_or_else(|| ModelError::Request(format!("layer {layer} streams no experts")))?;
        self.clock += 1;
        for id in ids.iter_mut() {
            let expert = usize::try_from(*id)
                .ok()
                .filter(|e| *e < moe.gate.n_mat)
                .ok_or_else(|| {
                    ModelError::Request(format!(
                        "the router chose expert {id} of {}",
                        moe.gate.n_mat
                    ))
                })?;
            let slot = match self.groups[g].by_expert.get(&(layer, expert)) {
                Some(slot) => {
                    self.stats.hits += 1;
                    *slot
                }
                None => self.fill(g, layer, expert, moe)?,
            };
            self.groups[g].used[slot] = self.clock;
            *id = i32::try_from(slot)
                .map_err(|_| ModelError::Request("too many expert slots".to_owned()))?;
        }
        let group = &self.groups[g];
        Ok(matrices(moe)
            .zip(&group.arenas)
            .map(|(w, arena)| {
                let bytes: SharedBytes = Arc::<Vec<u8>>::clone(&arena.bytes);
                let len = arena.bytes.len();
                Weight {
                    n_mat: group.held.len(),
                    data: WeightData::Host {
                        bytes,
                        offset: 0,
                        len,
                    },
                    ..w.clone()
                }
            })
            .collect())
    }

    /// Reads an expert into the least recently used slot.
    fn fill(
        &mut self,
        g: usize,
        layer: usize,
        expert: usize,
        moe: &Moe,
    ) -> Result<usize, ModelError> {
        let group = &mut self.groups[g];
        // `runs` saw to it that fewer experts are in use at this clock than there are slots.
        let slot = (0..group.held.len())
            .min_by_key(|s| group.used[*s])
            .ok_or_else(|| ModelError::Request("the expert cache has no slots".to_owned()))?;
        if let Some(old) = group.held[slot].take() {
            group.by_expert.remove(&old);
            self.stats.evictions += 1;
        }
        let started = Instant::now();
        for (w, arena) in matrices(moe).zip(&mut group.arenas) {
            let info = self.gguf.require_tensor(&w.name)?;
            let size = arena.expert_bytes;
            let bytes = Arc::get_mut(&mut arena.bytes)
                .ok_or_else(|| ModelError::Request("an expert arena is still in use".to_owned()))?;
            self.gguf.read_range(
                info,
                (expert * size) as u64,
                &mut bytes[slot * size..(slot + 1) * size],
            )?;
            self.stats.bytes += size as u64;
        }
        self.stats.secs += started.elapsed().as_secs_f64();
        self.stats.misses += 1;
        group.held[slot] = Some((layer, expert));
        group.by_expert.insert((layer, expert), slot);
        Ok(slot)
    }
}
