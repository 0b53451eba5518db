//! [`Gguf`]: a whole model, one file or a split set.

use std::path::Path;

use super::error::{GgufError, Problem};
use super::header::{Header, shorten};
use super::source::Source;
use super::split::SplitName;
use super::tensor::TensorInfo;
use super::value::{Array, Value};

/// The architectures that the engine runs.
pub const SUPPORTED_ARCHITECTURES: [&str; 3] = ["glm-dsa", "deepseek32", "deepseek2"];

/// An opened and checked model. Holds its files open, and none of their tensor data in memory.
#[derive(Debug)]
pub struct Gguf {
    shards: Vec<Shard>,
    first: Header,
    tensors: Vec<TensorInfo>,
    by_name: Vec<u32>,
}

/// One file of a model.
#[derive(Debug)]
pub struct Shard {
    source: Source,
    data_offset: u64,
}

impl Shard {
    /// Path or built-in name.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The path; `None` for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        self.source.path()
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.source.size()
    }

    /// Where tensor data begins: the header's size, padding included.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }
}

impl Gguf {
    /// Opens a model: a single file, or the first shard of a split set (the others are found by
    /// name beside it). Reads the headers and checks them; reads no tensor data.
    ///
    /// # Errors
    /// Anything in [`Problem`], with the file it is in.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let source =
            Source::file(path).map_err(|problem| GgufError::new(path.display(), problem))?;
        Gguf::from_source(source)
    }

    /// Reads a model from memory, e.g. one compiled in. `name` is for messages.
    pub fn from_bytes(bytes: &'static [u8], name: &str) -> Result<Gguf, GgufError> {
        Gguf::from_source(Source::memory(bytes, name))
    }

    fn from_source(source: Source) -> Result<Gguf, GgufError> {
        let mut first =
            Header::parse(&source, 0).map_err(|problem| GgufError::new(source.name(), problem))?;
        let mut tensors = std::mem::take(&mut first.tensors);
        let count =
            split_number(&first, "split.count").map_err(|p| GgufError::new(source.name(), p))?;
        let mut shards = vec![Shard {
            source,
            data_offset: first.data_offset,
        }];
        if let Some(count) = count.filter(|&count| count > 1) {
            open_siblings(&mut shards, &first, count, &mut tensors)?;
        }
        let by_name = index(&tensors, &shards)?;
        Ok(Gguf {
            shards,
            first,
            tensors,
            by_name,
        })
    }

    /// The path or built-in name that the model was opened by.
    pub fn name(&self) -> &str {
        self.shards[0].name()
    }

    /// GGUF version of the first file.
    pub fn version(&self) -> u32 {
        self.first.version
    }

    /// Alignment of tensor data in the first file.
    pub fn alignment(&self) -> u64 {
        self.first.alignment
    }

    /// The files, in order; at least one.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Bytes of all files together.
    pub fn total_size(&self) -> u64 {
        self.shards.iter().map(Shard::size).sum()
    }

    /// A metadata value.
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.first.meta.get(key)
    }

    /// All metadata in file order.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.first.meta.iter()
    }

    /// All tensors, shard by shard, in the order of their infos.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(self.tensor_index(name)?)
    }

    /// A tensor's index in [`Gguf::tensors`].
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        let name_of = |i: u32| self.tensors[i as usize].name.as_ref();
        let found = self
            .by_name
            .binary_search_by(|&i| name_of(i).cmp(name))
            .ok()?;
        Some(self.by_name[found] as usize)
    }

    /// A tensor that must be there.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        self.tensor(name).ok_or_else(|| {
            self.error(Problem::MissingTensor {
                tensor: name.to_owned(),
            })
        })
    }

    /// `general.architecture`, if it is one of [`SUPPORTED_ARCHITECTURES`].
    pub fn architecture(&self) -> Result<&str, GgufError> {
        let arch = self.str("general.architecture")?;
        if SUPPORTED_ARCHITECTURES.contains(&arch) {
            return Ok(arch);
        }
        let supported = SUPPORTED_ARCHITECTURES.join(", ");
        let what = if arch == "glm5-next" {
            "this is GLM-5.3-Flash (`glm5-next`), which is another architecture than GLM-5.3's `glm-dsa`: \
             linear-attention layers, a pooled indexer and vision, none of which this engine has; \
             use a GLM-5, 5.1, 5.2 or 5.3 file"
                .to_owned()
        } else {
            format!(
                "architecture `{}` is not supported; this engine runs {supported}",
                shorten(arch)
            )
        };
        Err(self.error(Problem::Architecture { what }))
    }

    /// An integer of any width that fits u32.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        self.opt_u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Gguf::u32`]; `None` when the key is absent.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        let Some(value) = self.meta(key) else {
            return Ok(None);
        };
        match value.as_i128().map(u32::try_from) {
            Some(Ok(v)) => Ok(Some(v)),
            Some(Err(_)) => {
                Err(self.wrong(key, format!("{value:?}"), "an integer of 0 to 4294967295"))
            }
            None => Err(self.wrong(key, value.kind(), "an unsigned integer")),
        }
    }

    /// An f32 (or f64, rounded).
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        self.opt_f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Gguf::f32`]; `None` when the key is absent.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        match self.meta(key) {
            None => Ok(None),
            Some(Value::F32(v)) => Ok(Some(*v)),
            Some(Value::F64(v)) => Ok(Some(*v as f32)),
            Some(other) => Err(self.wrong(key, other.kind(), "an f32")),
        }
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        self.opt_bool(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Gguf::bool`]; `None` when the key is absent.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.meta(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(other) => Err(self.wrong(key, other.kind(), "a bool")),
        }
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.opt_str(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Gguf::str`]; `None` when the key is absent.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.meta(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v)),
            Some(other) => Err(self.wrong(key, other.kind(), "a string")),
        }
    }

    /// An array of any element type.
    pub fn array(&self, key: &str) -> Result<&Array, GgufError> {
        self.opt_array(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Gguf::array`]; `None` when the key is absent.
    pub fn opt_array(&self, key: &str) -> Result<Option<&Array>, GgufError> {
        match self.meta(key) {
            None => Ok(None),
            Some(Value::Array(v)) => Ok(Some(v)),
            Some(other) => Err(self.wrong(key, other.kind(), "an array")),
        }
    }

    /// Reads a tensor's bytes into `out`, which must have exactly `info.bytes`.
    pub fn read_tensor(&self, info: &TensorInfo, out: &mut [u8]) -> Result<(), GgufError> {
        let shard = &self.shards[info.shard];
        if out.len() as u64 != info.bytes {
            let problem = Problem::BufferLength {
                tensor: info.name.to_string(),
                expected: info.bytes,
                given: out.len() as u64,
            };
            return Err(GgufError::new(shard.name(), problem));
        }
        shard.source.read_at(info.offset, out).map_err(|source| {
            GgufError::new(
                shard.name(),
                Problem::Io {
                    action: "read tensor data",
                    source,
                },
            )
        })
    }

    /// Reads part of a tensor: `out.len()` bytes from byte `from` of its data.
    pub fn read_range(
        &self,
        info: &TensorInfo,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), GgufError> {
        let shard = &self.shards[info.shard];
        let end = from.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > info.bytes) {
            let problem = Problem::BufferLength {
                tensor: info.name.to_string(),
                expected: info.bytes.saturating_sub(from),
                given: out.len() as u64,
            };
            return Err(GgufError::new(shard.name(), problem));
        }
        shard
            .source
            .read_at(info.offset + from, out)
            .map_err(|source| {
                GgufError::new(
                    shard.name(),
                    Problem::Io {
                        action: "read part of a tensor",
                        source,
                    },
                )
            })
    }

    /// A tensor's bytes in place: in memory, or after [`Gguf::map`].
    pub fn tensor_bytes(&self, info: &TensorInfo) -> Option<&[u8]> {
        self.shards
            .get(info.shard)?
            .source
            .bytes(info.offset, info.bytes)
    }

    /// All bytes of a shard in place: in memory, or after [`Gguf::map`].
    pub fn shard_bytes(&self, shard: usize) -> Option<&[u8]> {
        let shard = self.shards.get(shard)?;
        shard.source.bytes(0, shard.size())
    }

    /// Maps every file, so that [`Gguf::tensor_bytes`] answers for files too.
    pub fn map(&self) -> Result<(), GgufError> {
        for shard in &self.shards {
            shard.source.map().map_err(|source| {
                GgufError::new(
                    shard.name(),
                    Problem::Io {
                        action: "map it",
                        source,
                    },
                )
            })?;
        }
        Ok(())
    }

    /// An error about this model as a whole.
    pub fn error(&self, problem: Problem) -> GgufError {
        GgufError::new(self.name(), problem)
    }

    fn missing(&self, key: &str) -> GgufError {
        self.error(Problem::MissingKey {
            key: key.to_owned(),
        })
    }

    fn wrong(&self, key: &str, found: String, expected: &'static str) -> GgufError {
        self.error(Problem::WrongType {
            key: key.to_owned(),
            found,
            expected,
        })
    }
}

/// A `split.*` number; absent is `None`.
fn split_number(header: &Header, key: &str) -> Result<Option<u32>, Problem> {
    let Some(value) = header.meta.get(key) else {
        return Ok(None);
    };
    value
        .as_i128()
        .and_then(|v| u32::try_from(v).ok())
        .map(Some)
        .ok_or_else(|| Problem::WrongType {
            key: key.to_owned(),
            found: value.kind(),
            expected: "an unsigned integer",
        })
}

/// Opens shards 2..=count beside the first and appends their tensors.
fn open_siblings(
    shards: &mut Vec<Shard>,
    first: &Header,
    count: u32,
    tensors: &mut Vec<TensorInfo>,
) -> Result<(), GgufError> {
    let here = shards[0].name().to_owned();
    let fail = |problem| GgufError::new(&here, problem);
    let split = |what: String| Problem::Split { what };
    let Some(path) = shards[0].path() else {
        return Err(fail(split(format!(
            "it is one of {count} shards, and bytes in memory have no siblings"
        ))));
    };
    let name = SplitName::parse(path);
    let number = split_number(first, "split.no").map_err(fail)?.unwrap_or(0);
    if number > 0 {
        let first = match &name {
            Some(name) => name.sibling(1, count).display().to_string(),
            None => format!("…-00001-of-{count:05}.gguf"),
        };
        return Err(fail(Problem::NotFirstShard {
            number: number.saturating_add(1),
            count,
            first,
        }));
    }
    let Some(name) = name.filter(|name| name.number == 1 && name.count == count) else {
        return Err(fail(split(format!(
            "this is shard 1 of {count}, so its name must end in -00001-of-{count:05}.gguf for the others \
             to be found; give all files their original names back"
        ))));
    };
    // The name's five digits bound the count, so that a made-up one costs little.
    let mut missing = (2..=count)
        .map(|number| name.sibling(number, count))
        .filter(|path| !path.exists());
    if let Some(one) = missing.next() {
        return Err(fail(split(format!(
            "{} of its {count} shards are missing, the first is {}; fetch them into the same directory",
            1 + missing.count(),
            one.display()
        ))));
    }
    for number in 2..=count {
        let path = name.sibling(number, count);
        let fail = |problem| GgufError::new(path.display(), problem);
        let source = Source::file(&path).map_err(fail)?;
        if let Some(twin) = shards
            .iter()
            .find(|shard| shard.source.file_id() == source.file_id())
        {
            let what = format!(
                "this is the same file as {} under another name; fetch the real shard {number}",
                twin.name()
            );
            return Err(fail(split(what)));
        }
        let header = Header::parse(&source, shards.len()).map_err(fail)?;
        let says_no = split_number(&header, "split.no").map_err(fail)?;
        let says_count = split_number(&header, "split.count").map_err(fail)?;
        if says_no != Some(number - 1) || says_count != Some(count) {
            let show = |n: Option<u32>| n.map_or("absent".to_owned(), |n| n.to_string());
            let what = format!(
                "expected shard {number} of {count}, but split.no is {} (expected {}) and split.count {}; \
                 the files are mixed up, fetch this one again",
                show(says_no),
                number - 1,
                show(says_count)
            );
            return Err(fail(split(what)));
        }
        tensors.extend(header.tensors);
        shards.push(Shard {
            source,
            data_offset: header.data_offset,
        });
    }
    let total = split_number(first, "split.tensors.count").map_err(fail)?;
    if let Some(total) = total.filter(|&total| total as usize != tensors.len()) {
        let what = format!(
            "split.tensors.count promises {total} tensors and the {count} shards hold {}; shards of different \
             models are mixed, fetch the set again",
            tensors.len()
        );
        return Err(fail(split(what)));
    }
    Ok(())
}

/// The order of tensors by name; a name must be unique in the whole set.
fn index(tensors: &[TensorInfo], shards: &[Shard]) -> Result<Vec<u32>, GgufError> {
    let mut by_name: Vec<u32> = (0..tensors.len() as u32).collect();
    by_name.sort_by(|&a, &b| tensors[a as usize].name.cmp(&tensors[b as usize].name));
    for pair in by_name.windows(2) {
        let (a, b) = (&tensors[pair[0] as usize], &tensors[pair[1] as usize]);
        if a.name == b.name {
            let where_ = if a.shard == b.shard {
                "in the same file".to_owned()
            } else {
                format!(
                    "in {} and in {}",
                    shards[a.shard].name(),
                    shards[b.shard].name()
                )
            };
            let problem = Problem::DuplicateTensor {
                tensor: shorten(&a.name),
                where_,
            };
            return Err(GgufError::new(shards[b.shard].name(), problem));
        }
    }
    Ok(by_name)
}
