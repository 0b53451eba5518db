//! Decode steps recorded once and replayed.
//!
//! A token of a large model is a thousand launches, and starting them one by one takes longer than many of them run. What
//! changes from token to token (id, position, cache slot) lies in device memory, so the launches of two steps of one
//! [`Shape`] are the same, byte for byte. The first step of a shape runs launch by launch, which also brings scratch memory
//! to its size; the second is recorded; every later one is one call.

use std::collections::HashMap;

use legwork_kernels::device::DeviceKind;
use legwork_kernels::gpu::{Gpu, Recording};
use legwork_kernels::ops::{OpError, OpId};

use super::Forward;
use super::step::Shape;
use crate::model::ModelError;

/// Largest number of rows of a recorded step: beyond it the work of a launch hides the start of the next.
const ROWS: usize = 64;
/// Recordings held at once.
const HELD: usize = 64;

/// What became of a shape.
#[derive(Debug, Clone, Copy)]
enum Entry {
    /// Seen once.
    Seen,
    /// Recorded, in a generation of the device's scratch memory.
    Recorded(Recording, u64),
    /// Could not be recorded.
    Refused,
}

/// Counters of recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphStats {
    /// Recordings made.
    pub recorded: u64,
    /// Launches of the last recording.
    pub launches: u32,
    /// Steps that were replays.
    pub replayed: u64,
    /// Why a recording was not made, the last time that happened.
    pub refused: Option<String>,
}

impl std::fmt::Display for GraphStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "[graph] recorded={} launches={} replayed={}",
            self.recorded, self.launches, self.replayed
        )?;
        match &self.refused {
            Some(why) => write!(f, " refused: {why}"),
            None => Ok(()),
        }
    }
}

/// The recordings of a forward.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    entries: HashMap<Shape, Entry>,
    pub stats: GraphStats,
}

/// Bounds that grow in steps of at most a quarter, so that a growing context changes the shape now and then and not with
/// every token.
pub(super) fn coarse(n: usize, max: usize) -> usize {
    let unit = (n.next_power_of_two() / 8).max(64);
    n.next_multiple_of(unit).min(max).max(n)
}

impl Forward {
    fn gpu(&mut self) -> Option<&mut Gpu> {
        self.runner.device.state.as_mut()?.downcast_mut::<Gpu>()
    }

    /// Whether steps of this shape are worth a recording and can have one.
    pub(super) fn records(&self, shape: &Shape) -> bool {
        // Experts on the host are fetched in the middle of a step.
        self.graphs_on && shape.rows <= ROWS && self.stream.is_none() && self.host_experts.is_none()
    }

    /// Runs a step's launches: a replay where there is a recording.
    pub(super) fn run_recorded(&mut self, shape: &Shape) -> Result<(), ModelError> {
        let kind = self.runner.device.kind;
        let Some(generation) = self.gpu().map(|g| g.generation()) else {
            return self.launches(shape, None);
        };
        match self.graphs.entries.get(shape).copied() {
            None => {
                if self.graphs.entries.len() >= HELD {
                    self.forget_recordings();
                }
                self.graphs.entries.insert(*shape, Entry::Seen);
                return self.launches(shape, None);
            }
            Some(Entry::Refused) => return self.launches(shape, None),
            Some(Entry::Recorded(recording, of)) if of == generation => {
                return self.replay(kind, recording);
            }
            // Void, since a larger step made scratch memory move.
            Some(Entry::Recorded(recording, _)) => {
                if let Some(gpu) = self.gpu() {
                    gpu.forget(recording);
                }
            }
            Some(Entry::Seen) => {}
        }
        match self.record(kind, shape) {
            Ok(recording) => {
                self.graphs.stats.recorded += 1;
                self.graphs.stats.launches = recording.launches;
                let entry = Entry::Recorded(recording, generation);
                self.graphs.entries.insert(*shape, entry);
                self.replay(kind, recording)
            }
            Err(e) => {
                // Whatever is wrong with the step itself shows when it runs for good.
                self.graphs.stats.refused = Some(e.to_string());
                self.graphs.entries.insert(*shape, Entry::Refused);
                self.launches(shape, None)
            }
        }
    }

    fn record(&mut self, kind: DeviceKind, shape: &Shape) -> Result<Recording, ModelError> {
        let absent = || ModelError::Request("the device is not a GPU".to_owned());
        let gpu = self.gpu().ok_or_else(absent)?;
        gpu.record().map_err(|e| failed(kind, &e))?;
        let launched = self.launches(shape, None);
        let recorded = self.gpu().ok_or_else(absent)?.recorded();
        launched?;
        recorded.map_err(|e| failed(kind, &e))
    }

    fn replay(&mut self, kind: DeviceKind, recording: Recording) -> Result<(), ModelError> {
        self.graphs.stats.replayed += 1;
        match self.gpu() {
            Some(gpu) => gpu.replay(recording).map_err(|e| failed(kind, &e)),
            None => Ok(()),
        }
    }

    fn forget_recordings(&mut self) {
        let entries = std::mem::take(&mut self.graphs.entries);
        let Some(gpu) = self.gpu() else { return };
        for entry in entries.into_values() {
            if let Entry::Recorded(recording, _) = entry {
                gpu.forget(recording);
            }
        }
    }

    /// Counters of recordings and replays.
    #[must_use]
    pub fn graph_stats(&self) -> &GraphStats {
        &self.graphs.stats
    }
}

/// A recording has no operation of its own; its first one stands for it.
fn failed(device: DeviceKind, e: &legwork_kernels::gpu::GpuError) -> ModelError {
    ModelError::Op(OpError::Device {
        op: OpId::Embed,
        device,
        what: format!("in a recorded step: {e}"),
    })
}

#[cfg(test)]
mod tests {
    use super::coarse;

    #[test]
    fn a_growing_context_changes_the_bound_seldom_and_never_by_more_than_a_quarter() {
        let bounds: Vec<usize> = (1..=5000).map(|n| coarse(n, 5000)).collect();
        for (n, b) in (1..).zip(&bounds) {
            assert!(*b >= n && *b <= 5000);
            assert!(n <= 256 || *b <= n + n / 4, "{n} {b}");
        }
        let mut distinct = bounds.clone();
        distinct.dedup();
        assert!(distinct.len() <= 24, "{distinct:?}");
        assert_eq!(coarse(1, 10), 10);
        assert_eq!(coarse(64, 4096), 64);
        assert_eq!(coarse(65, 4096), 128);
    }
}
