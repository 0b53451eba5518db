//! One shard's header: metadata, tensor infos, and where the data begins.

use legwork_kernels::blocks::BlockType;

use super::cursor::Cursor;
use super::error::Problem;
use super::sniff;
use super::source::Source;
use super::tensor::TensorInfo;
use super::value::Value;

/// The alignment of tensor data where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u64 = 32;
/// A metadata pair takes at least: key length, one byte of key, type, one byte of value.
const LEAST_PAIR: u64 = 8 + 1 + 4 + 1;
/// A tensor info takes at least: name length, a byte of name, dims count, one dim, type, offset.
const LEAST_INFO: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// What a shard's header says, checked against the shard's size.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) alignment: u64,
    pub(super) meta: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
    /// Where the tensor data begins.
    pub(super) data_offset: u64,
}

/// Metadata in file order, with an index by key.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pairs: Vec<(Box<str>, Value)>,
    by_key: Vec<u32>,
}

impl Metadata {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let found = self
            .by_key
            .binary_search_by(|&i| self.pairs[i as usize].0.as_ref().cmp(key))
            .ok()?;
        Some(&self.pairs[self.by_key[found] as usize].1)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(key, value)| (key.as_ref(), value))
    }
}

impl Header {
    /// Parses the header of `source`, which becomes shard number `shard`.
    pub(super) fn parse(source: &Source, shard: usize) -> Result<Header, Problem> {
        let mut cursor = Cursor::new(source);
        let version = version(source, &mut cursor)?;
        let tensor_count = cursor.u64("the tensor count")?;
        let pair_count = cursor.u64("the metadata count")?;
        cursor.need(
            pair_count,
            LEAST_PAIR,
            &format!("a header of {pair_count} metadata pairs"),
        )?;
        let meta = metadata(&mut cursor, pair_count)?;
        let alignment = alignment(&meta, cursor.offset())?;
        cursor.need(
            tensor_count,
            LEAST_INFO,
            &format!("a header of {tensor_count} tensors"),
        )?;
        let mut tensors = Vec::with_capacity(tensor_count as usize);
        for i in 0..tensor_count {
            tensors.push(tensor(&mut cursor, i, shard, alignment)?);
        }
        let data_offset = cursor.offset().next_multiple_of(alignment);
        place(&mut tensors, data_offset, source.size())?;
        disjoint(&tensors)?;
        Ok(Header {
            version,
            alignment,
            meta,
            tensors,
            data_offset,
        })
    }
}

fn version(source: &Source, cursor: &mut Cursor<'_>) -> Result<u32, Problem> {
    let mut head = [0; 64];
    let len = source.size().min(64) as usize;
    source
        .read_at(0, &mut head[..len])
        .map_err(|source| Problem::Io {
            action: "read it",
            source,
        })?;
    if !head[..len].starts_with(b"GGUF") {
        return Err(Problem::BadMagic {
            looks_like: sniff::looks_like(&head[..len], source.size()),
        });
    }
    cursor.u32("the magic")?;
    match cursor.u32("the version")? {
        found @ 2..=3 => Ok(found),
        // A big-endian writer stores version 3 as 00 00 00 03.
        found if found & 0xffff == 0 && found != 0 => Err(Problem::BigEndian { found }),
        found => Err(Problem::Version { found }),
    }
}

fn metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, Problem> {
    let mut pairs: Vec<(Box<str>, Value)> = Vec::with_capacity(count as usize);
    let mut at = Vec::with_capacity(count as usize);
    for i in 0..count {
        at.push(cursor.offset());
        let key: Box<str> = cursor.string(&format!("metadata key {i}"))?.into();
        let value = Value::read(cursor, &format!("metadata `{}`", shorten(&key)))?;
        pairs.push((key, value));
    }
    let mut by_key: Vec<u32> = (0..pairs.len() as u32).collect();
    by_key.sort_by(|&a, &b| pairs[a as usize].0.cmp(&pairs[b as usize].0));
    if let Some(twice) = by_key
        .windows(2)
        .find(|w| pairs[w[0] as usize].0 == pairs[w[1] as usize].0)
    {
        let second = twice[1] as usize;
        return Err(Problem::DuplicateKey {
            key: shorten(&pairs[second].0),
            offset: at[second],
        });
    }
    Ok(Metadata { pairs, by_key })
}

fn alignment(meta: &Metadata, offset: u64) -> Result<u64, Problem> {
    let Some(value) = meta.get("general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match value.as_i128().and_then(|v| u64::try_from(v).ok()) {
        // The upper bound only keeps sums far from overflow; 4096 is the most that is in use.
        Some(v) if v.is_power_of_two() && v <= 1 << 24 => Ok(v),
        _ => Err(Problem::Header {
            offset,
            what: format!("general.alignment is {value:?}, expected a power of two"),
        }),
    }
}

fn tensor(
    cursor: &mut Cursor<'_>,
    i: u64,
    shard: usize,
    alignment: u64,
) -> Result<TensorInfo, Problem> {
    let offset = cursor.offset();
    let name: Box<str> = cursor.string(&format!("the name of tensor {i}"))?.into();
    let bad = |what: String| Problem::Tensor {
        tensor: shorten(&name),
        offset,
        what,
    };
    let what = format!("the description of tensor `{}`", shorten(&name));
    let n_dims = cursor.u32(&what)?;
    if !(1..=4).contains(&n_dims) {
        return Err(bad(format!(
            "it has {n_dims} dimensions, expected 1 to 4; the file is damaged"
        )));
    }
    let mut ne = [1u64; 4];
    for dim in ne.iter_mut().take(n_dims as usize) {
        *dim = cursor.u64(&what)?;
    }
    if ne.contains(&0) {
        return Err(bad(format!(
            "a dimension is zero ({ne:?}); the file is damaged"
        )));
    }
    let id = cursor.u32(&what)?;
    let relative = cursor.u64(&what)?;
    let ty = BlockType::from_id(id).map_err(|error| bad(error.to_string()))?;
    let block = ty.block_len() as u64;
    if ne[0] % block != 0 {
        return Err(bad(format!(
            "its rows have {} elements, not a multiple of the {block} in a block of {}; the file is damaged",
            ne[0],
            ty.name()
        )));
    }
    let bytes = ne[1..]
        .iter()
        .try_fold(ne[0] / block, |product, &dim| product.checked_mul(dim))
        .and_then(|blocks| blocks.checked_mul(ty.block_bytes() as u64))
        .filter(|_| {
            ne.iter()
                .try_fold(1u64, |product, &dim| product.checked_mul(dim))
                .is_some()
        })
        .ok_or_else(|| {
            bad(format!(
                "its dimensions {ne:?} overflow; the file is damaged"
            ))
        })?;
    if relative % alignment != 0 {
        return Err(bad(format!(
            "its data offset {relative} is not a multiple of the alignment {alignment}; the file is damaged"
        )));
    }
    Ok(TensorInfo {
        name,
        ne,
        n_dims,
        ty,
        shard,
        offset: relative,
        bytes,
    })
}

/// Turns offsets relative to the data section into absolute ones inside the file.
fn place(tensors: &mut [TensorInfo], data_offset: u64, size: u64) -> Result<(), Problem> {
    for tensor in tensors {
        let begin = data_offset.saturating_add(tensor.offset);
        let end = begin.saturating_add(tensor.bytes);
        if end > size {
            return Err(Problem::OutsideFile {
                tensor: shorten(&tensor.name),
                begin,
                end,
                size,
            });
        }
        tensor.offset = begin;
    }
    Ok(())
}

fn disjoint(tensors: &[TensorInfo]) -> Result<(), Problem> {
    let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
    order.sort_unstable_by_key(|&i| tensors[i as usize].offset);
    for pair in order.windows(2) {
        let (a, b) = (&tensors[pair[0] as usize], &tensors[pair[1] as usize]);
        if a.offset + a.bytes > b.offset {
            return Err(Problem::Overlap {
                first: shorten(&a.name),
                second: shorten(&b.name),
                at: b.offset,
            });
        }
    }
    Ok(())
}

/// A name for a message: a damaged file may give one of megabytes.
pub(super) fn shorten(name: &str) -> String {
    match name.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", name[..end].escape_debug()),
        None => name.escape_debug().to_string(),
    }
}
