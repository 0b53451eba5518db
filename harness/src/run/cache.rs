//! Puts the page cache into the state that a leg declares, and measures the disk beside it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::legfile::{Cache, LegSpec, Work};
use crate::os::page_cache;

/// Files of the leg's model: the shards of a split file, or the one file.
pub(super) fn model_files(leg: &LegSpec) -> Vec<PathBuf> {
    let Work::Engine(keys) = &leg.work else {
        return Vec::new();
    };
    let Some(model) = keys.model.as_deref().filter(|m| !m.starts_with("builtin:")) else {
        return Vec::new();
    };
    let first = Path::new(model);
    // A share that does not answer is not asked for the sisters either.
    if !crate::stage::answers(first) {
        return vec![first.to_owned()];
    }
    shards(first)
}

/// `m-00001-of-00006.gguf` and its sisters, as far as they exist.
fn shards(first: &Path) -> Vec<PathBuf> {
    let name = first
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let parts = name.strip_suffix(".gguf").and_then(|stem| {
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (stem, _) = rest.rsplit_once('-')?;
        Some((stem.to_owned(), count.parse::<u32>().ok()?, count.len()))
    });
    match parts {
        Some((stem, count, width)) if count <= 10_000 => (1..=count)
            .map(|i| first.with_file_name(format!("{stem}-{i:0width$}-of-{count:0width$}.gguf")))
            .filter(|p| p.exists())
            .collect(),
        _ => vec![first.to_owned()],
    }
}

/// What was done, for the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Prepared {
    /// Share of the model's pages that are in memory when the attempt begins; `None` when it could not be told.
    pub cached_share: Option<f64>,
    /// GiB/s of a plain sequential read of the same files just now; only measured when the cache was cold.
    pub disk_gib_s: Option<f64>,
    /// What did not work.
    pub trouble: Option<String>,
}

/// Drops or fills the cache for the leg's model files.
pub(super) fn prepare(leg: &LegSpec, stop: super::StopFlags) -> Prepared {
    let mut out = Prepared::default();
    let Some(cache) = leg.cache else { return out };
    let files = model_files(leg);
    if files.is_empty() {
        out.trouble =
            Some("`cache` has no effect: the model is compiled in or the leg has none".to_owned());
        return out;
    }
    if files.iter().any(|f| crate::stage::is_remote(f)) {
        out.trouble = Some(
            "`cache` has no effect: the model lies on a share, whose cache is not this machine's alone"
                .to_owned(),
        );
        return out;
    }
    let mut bytes = 0u64;
    let mut resident = 0u64;
    let result: std::io::Result<()> = (|| {
        if cache == Cache::Cold {
            for file in &files {
                page_cache::drop_file(file)?;
            }
        }
        let begun = Instant::now();
        for file in &files {
            bytes += read_through(file, stop)?;
        }
        if cache == Cache::Cold {
            #[allow(clippy::cast_precision_loss)]
            let gib = bytes as f64 / (1u64 << 30) as f64;
            let secs = begun.elapsed().as_secs_f64();
            out.disk_gib_s = (secs > 0.0).then(|| gib / secs);
            for file in &files {
                page_cache::drop_file(file)?;
            }
        }
        for file in &files {
            resident += page_cache::resident_bytes(file)?;
        }
        Ok(())
    })();
    match result {
        #[allow(clippy::cast_precision_loss)]
        Ok(()) => out.cached_share = (bytes > 0).then(|| (resident as f64 / bytes as f64).min(1.0)),
        Err(e) => {
            out.trouble = Some(format!(
                "the page cache could not be made {}: {e}",
                if cache == Cache::Cold { "cold" } else { "warm" }
            ))
        }
    }
    out
}

fn read_through(path: &Path, stop: super::StopFlags) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0u8; 4 << 20];
    let mut total = 0u64;
    while !stop.stopping() {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        total += n as u64;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_of_a_split_file_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for i in 1..=3 {
            std::fs::write(dir.path().join(format!("m-0000{i}-of-00003.gguf")), "x").unwrap();
        }
        assert_eq!(shards(&dir.path().join("m-00001-of-00003.gguf")).len(), 3);
        assert_eq!(
            shards(Path::new("/x/plain.gguf")),
            [PathBuf::from("/x/plain.gguf")]
        );
        assert_eq!(
            shards(Path::new("/x/end-of-days.gguf")),
            [PathBuf::from("/x/end-of-days.gguf")]
        );
    }
}
