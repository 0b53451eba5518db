//! Synthetic models: valid GLM-DSA files of any size with random weights, written straight in their
//! block types. Loading and throughput are measured on them where the real file is not.
//!
//! - `shape`: presets, and fitting one to a size in bytes.
//! - `mix`: which type each tensor is stored in.
//! - `layout`: every tensor of a shape.
//! - `fill`: random blocks whose decoded values have a wanted spread.
//! - `meta`: metadata and tokenizer (the built-in model's, padded).
//!
//! The same options give the same bytes on every machine. A file appears under its name only when
//! it is whole.

mod fill;
mod layout;
mod meta;
mod mix;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::gguf::{GgufError, HeaderWriter, Value};
use fill::Filler;
use layout::TensorPlan;
pub use mix::Mix;
pub use shape::{Preset, Shape};

/// Alignment of tensor data.
const ALIGNMENT: u64 = 32;
/// Bytes generated and written at a time; nothing larger is ever held.
const CHUNK: usize = 4 << 20;

/// What to write.
#[derive(Debug, Clone)]
pub struct SynthOptions {
    /// The file, ending in `.gguf`. With several shards its stem becomes their prefix.
    pub out: PathBuf,
    /// Dimensions to start from.
    pub preset: Preset,
    /// Size to reach within 5 % by more or fewer layers and experts; `None` keeps the preset's own.
    pub bytes: Option<u64>,
    /// Storage types.
    pub mix: Mix,
    /// Number of files. Of several, the first holds metadata only, as in large public models.
    pub split: u32,
    /// Seed of the weights.
    pub seed: u64,
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthReport {
    /// The files with their sizes; the first is the one to load.
    pub files: Vec<(PathBuf, u64)>,
    /// Their sum.
    pub bytes: u64,
    /// The dimensions after fitting.
    pub shape: Shape,
    /// Weights in all.
    pub parameters: u64,
    /// Bytes of tensor data by type name.
    pub types: BTreeMap<&'static str, u64>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The system refused.
    #[error("cannot write {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The output's name has the wrong form.
    #[error("{path}: the name must end in .gguf")]
    Name {
        /// The name.
        path: PathBuf,
    },
    /// The size is out of the preset's reach.
    #[error(
        "preset {preset} with mix {mix} reaches {least} to {most} bytes, not {asked}; choose another preset"
    )]
    Size {
        /// The preset's name.
        preset: &'static str,
        /// The mix's name.
        mix: String,
        /// What was asked.
        asked: u64,
        /// The smallest size.
        least: u64,
        /// The largest size.
        most: u64,
    },
    /// Shards are counted by five digits, and each must hold a tensor.
    #[error("cannot split into {asked} files; 1 to {most} are possible for this model")]
    Split {
        /// What was asked.
        asked: u32,
        /// The most.
        most: u32,
    },
    /// No such mix.
    #[error("unknown mix `{asked}`; known: {known}")]
    Mix {
        /// What was asked.
        asked: String,
        /// What there is.
        known: String,
    },
    /// No such preset.
    #[error("unknown preset `{asked}`; known: mini, small, medium, full")]
    Preset {
        /// What was asked.
        asked: String,
    },
    /// The built-in model, whose vocabulary is used, could not be read.
    #[error(transparent)]
    Vocabulary(#[from] GgufError),
    /// A type cannot be filled with random blocks.
    #[error("type {name} cannot be synthesised")]
    Type {
        /// Its name.
        name: &'static str,
    },
}

/// The sizes that a model of these options will have, without writing it.
pub fn plan(options: &SynthOptions) -> Result<SynthReport, SynthError> {
    Ok(prepare(options)?.1)
}

/// Writes the model; `progress` gets bytes written so far and in all.
pub fn write(
    options: &SynthOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SynthReport, SynthError> {
    let (shards, report) = prepare(options)?;
    let mut done = 0;
    for (shard, (path, size)) in shards.iter().zip(&report.files) {
        let part = part_name(path);
        let written = write_shard(&part, shard, options.seed, &mut |bytes| {
            done += bytes;
            progress(done, report.bytes);
        })
        .and_then(|()| {
            std::fs::rename(&part, path).map_err(|source| SynthError::Io {
                path: path.clone(),
                source,
            })
        });
        if let Err(error) = written {
            let _ = std::fs::remove_file(&part);
            return Err(error);
        }
        debug_assert_eq!(std::fs::metadata(path).map(|m| m.len()).ok(), Some(*size));
    }
    Ok(report)
}

/// One file to be written.
struct ShardPlan {
    header: Vec<u8>,
    tensors: Vec<TensorPlan>,
}

fn prepare(options: &SynthOptions) -> Result<(Vec<ShardPlan>, SynthReport), SynthError> {
    if options.out.extension().is_none_or(|ext| ext != "gguf") {
        return Err(SynthError::Name {
            path: options.out.clone(),
        });
    }
    let shape = match options.bytes {
        Some(bytes) => shape::fit(options.preset, options.mix, bytes)?,
        None => options.preset.shape(),
    };
    let tensors = layout::tensors(&shape, options.mix);
    let most = (tensors.len() as u32 + 1).min(99_999);
    if !(1..=most).contains(&options.split) {
        return Err(SynthError::Split {
            asked: options.split,
            most,
        });
    }
    let mut report = SynthReport {
        files: Vec::new(),
        bytes: 0,
        parameters: tensors.iter().map(TensorPlan::elements).sum(),
        types: BTreeMap::new(),
        shape: shape.clone(),
    };
    for tensor in &tensors {
        *report.types.entry(tensor.ty.name()).or_default() += tensor.bytes();
    }
    let count = tensors.len();
    let mut shards = Vec::new();
    for (no, group) in share(tensors, options.split as usize)
        .into_iter()
        .enumerate()
    {
        let mut header = HeaderWriter::new(ALIGNMENT);
        if no == 0 {
            meta::write(&mut header, &shape, options.mix)?;
        }
        if options.split > 1 {
            header.set("split.no", Value::U16(no as u16));
            header.set("split.count", Value::U16(options.split as u16));
            header.set("split.tensors.count", Value::I32(count as i32));
        }
        let mut at = 0;
        for tensor in &group {
            header.tensor(&tensor.name, &tensor.dims, tensor.ty.id(), at);
            at += tensor.bytes().next_multiple_of(ALIGNMENT);
        }
        let header = header.finish();
        let size = header.len() as u64 + at;
        report
            .files
            .push((shard_path(&options.out, no as u32 + 1, options.split), size));
        report.bytes += size;
        shards.push(ShardPlan {
            header,
            tensors: group,
        });
    }
    Ok((shards, report))
}

/// Deals tensors out to files: the first of several gets none, the others about equal bytes each.
fn share(tensors: Vec<TensorPlan>, count: usize) -> Vec<Vec<TensorPlan>> {
    if count == 1 {
        return vec![tensors];
    }
    let total: u64 = tensors.iter().map(TensorPlan::bytes).sum();
    let mut shards: Vec<Vec<TensorPlan>> = (0..count).map(|_| Vec::new()).collect();
    let mut left = tensors.len();
    let (mut at, mut done) = (1, 0);
    for tensor in tensors {
        let full = done >= total / (count as u64 - 1) * at as u64;
        // Every later file still needs a tensor.
        if at + 1 < count && !shards[at].is_empty() && (full || left < count - at) {
            at += 1;
        }
        done += tensor.bytes();
        left -= 1;
        shards[at].push(tensor);
    }
    shards
}

fn shard_path(out: &Path, number: u32, count: u32) -> PathBuf {
    if count == 1 {
        return out.to_owned();
    }
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf"))
}

fn part_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn write_shard(
    path: &Path,
    shard: &ShardPlan,
    seed: u64,
    wrote: &mut dyn FnMut(u64),
) -> Result<(), SynthError> {
    let failed = |source| SynthError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = File::create(path).map_err(failed)?;
    file.write_all(&shard.header).map_err(failed)?;
    wrote(shard.header.len() as u64);
    let mut buffer = vec![0u8; CHUNK];
    for tensor in &shard.tensors {
        let filler = Filler::new(tensor.ty, tensor.spread)?;
        let unit = tensor.ty.block_bytes();
        let per_chunk = CHUNK / unit * unit;
        let mut left = tensor.bytes();
        let mut part = 0;
        while left > 0 {
            let len = left.min(per_chunk as u64) as usize;
            let out = &mut buffer[..len];
            filler.fill(out, fill::seed_of(seed, &tensor.name, part));
            file.write_all(out).map_err(failed)?;
            wrote(len as u64);
            left -= len as u64;
            part += 1;
        }
        let pad = tensor.bytes().next_multiple_of(ALIGNMENT) - tensor.bytes();
        file.write_all(&[0; ALIGNMENT as usize][..pad as usize])
            .map_err(failed)?;
        wrote(pad);
    }
    file.sync_data().map_err(failed)
}

/// Takes a size as users write it: `2GiB`, `512MB`, `1.5g`, `1000000`. Binary units have an `i` or a single letter.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0f64.powi(2),
        "g" | "gib" => 1024.0f64.powi(3),
        "t" | "tib" => 1024.0f64.powi(4),
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return None,
    };
    let bytes = (number * factor).round();
    (1.0..1e18).contains(&bytes).then_some(bytes as u64)
}
