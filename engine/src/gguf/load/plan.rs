//! Which stretches of the files to read, and where they land in the arena.

use crate::gguf::file::Gguf;

/// Unit of offsets, lengths and addresses of reads past the page cache: every disk's sector divides it.
pub(super) const PAGE: u64 = 4096;

/// Tensors closer than this are read in one stretch, gap included.
const JOIN: u64 = 16 * 1024;

/// A stretch of a file and its place in the arena; both begin on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) shard: usize,
    /// File offset of the first page.
    pub(super) offset: u64,
    /// Bytes that are needed from `offset` on (not rounded).
    pub(super) len: u64,
    /// Place in the arena.
    pub(super) at: usize,
}

impl Extent {
    /// Bytes that the stretch takes in the arena: whole pages.
    pub(super) fn room(&self) -> usize {
        self.len.next_multiple_of(PAGE) as usize
    }
}

/// The stretches in the order of the arena, and each tensor's place.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) extents: Vec<Extent>,
    pub(super) spots: Vec<Option<usize>>,
    pub(super) arena_len: usize,
}

impl Plan {
    /// Plans for the tensors with `kept[i]`.
    pub(super) fn new(gguf: &Gguf, kept: &[bool]) -> Plan {
        let tensors = gguf.tensors();
        let mut order: Vec<usize> = (0..tensors.len()).filter(|&i| kept[i]).collect();
        order.sort_unstable_by_key(|&i| (tensors[i].shard, tensors[i].offset));
        let mut plan = Plan {
            extents: Vec::new(),
            spots: vec![None; tensors.len()],
            arena_len: 0,
        };
        for i in order {
            let tensor = &tensors[i];
            let end = tensor.offset + tensor.bytes;
            match plan.extents.last_mut() {
                Some(last)
                    if last.shard == tensor.shard
                        && tensor.offset <= last.offset + last.len + JOIN =>
                {
                    last.len = end - last.offset;
                }
                _ => {
                    let at = plan.extents.last().map_or(0, |last| last.at + last.room());
                    let offset = tensor.offset - tensor.offset % PAGE;
                    plan.extents.push(Extent {
                        shard: tensor.shard,
                        offset,
                        len: end - offset,
                        at,
                    });
                }
            }
            plan.spots[i] = plan
                .extents
                .last()
                .map(|e| e.at + (tensor.offset - e.offset) as usize);
        }
        plan.arena_len = plan.extents.last().map_or(0, |last| last.at + last.room());
        plan
    }

    /// Bytes of all stretches.
    pub(super) fn bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.len).sum()
    }
}
