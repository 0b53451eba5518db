//! Every way of loading gives the same bytes.

use std::sync::Arc;

use super::{LoadMode, LoadOptions, Weights, cached_fraction, drop_cached, plain_read};
use crate::builtin::resolve_model;
use crate::gguf::{Gguf, HeaderWriter, TensorInfo, Value};

fn mini_on_disk(dir: &std::path::Path) -> Arc<Gguf> {
    let path = dir.join("mini.gguf");
    std::fs::write(
        &path,
        resolve_model("builtin:mini")
            .unwrap()
            .builtin_bytes()
            .unwrap(),
    )
    .unwrap();
    Arc::new(Gguf::open(&path).unwrap())
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn modes() -> impl Iterator<Item = LoadOptions> {
    [
        LoadMode::Auto,
        LoadMode::Direct,
        LoadMode::Buffered,
        LoadMode::Mmap,
    ]
    .into_iter()
    .flat_map(|mode| {
        [1, 3].map(|threads| LoadOptions {
            mode,
            threads,
            prefault: true,
        })
    })
}

#[test]
fn every_mode_gives_the_files_bytes() {
    let dir = dir();
    let disk = mini_on_disk(dir.path());
    let memory = resolve_model("builtin:mini").unwrap().open().unwrap();
    for options in modes() {
        let (weights, stats) = Weights::load(disk.clone(), &options, |_| true).unwrap();
        for tensor in memory.tensors() {
            let bytes = weights.get(&tensor.name).unwrap();
            assert!(
                bytes == memory.tensor_bytes(tensor).unwrap(),
                "{options:?} {}",
                tensor.name
            );
            assert!(bytes.as_ptr().addr().is_multiple_of(32));
        }
        assert_eq!(
            stats.weights_bytes,
            memory.tensors().iter().map(|t| t.bytes).sum::<u64>()
        );
        assert!(
            stats.mode != LoadMode::Auto && stats.read_bytes >= stats.weights_bytes,
            "{stats:?}"
        );
        let line = stats.to_string();
        assert!(
            line.contains(" s (0.01") && line.contains(stats.mode.name()),
            "{line}"
        );
    }
}

#[test]
fn built_in_models_are_used_in_place() {
    let gguf = Arc::new(resolve_model("builtin:mini").unwrap().open().unwrap());
    let (weights, stats) = Weights::load(gguf.clone(), &LoadOptions::default(), |_| true).unwrap();
    assert_eq!((stats.mode, stats.cached_before), (LoadMode::InPlace, None));
    let tensor = &gguf.tensors()[3];
    assert_eq!(
        weights.bytes(tensor).unwrap().as_ptr(),
        gguf.tensor_bytes(tensor).unwrap().as_ptr()
    );
}

#[test]
fn tensors_that_are_not_kept_cost_no_memory() {
    let dir = dir();
    let disk = mini_on_disk(dir.path());
    let keep = |t: &TensorInfo| t.layer() != Some(4);
    for options in modes() {
        let (weights, stats) = Weights::load(disk.clone(), &options, keep).unwrap();
        for tensor in disk.tensors() {
            assert_eq!(
                weights.get(&tensor.name).is_some(),
                keep(tensor),
                "{}",
                tensor.name
            );
        }
        assert!(stats.read_bytes < 13 << 20, "{stats:?}");
        assert!(weights.require("blk.4.attn_norm.weight").is_err());
        assert_eq!(weights.get("no such"), None);
    }
}

/// Shards with tensors of odd sizes at the end of a file, far gaps, and one shard without tensors.
#[test]
fn split_sets_and_odd_ends_load_alike() {
    let dir = dir();
    for no in 0..3u16 {
        let mut w = HeaderWriter::new(32);
        w.set("split.no", Value::U16(no));
        w.set("split.count", Value::U16(3));
        let mut data = Vec::new();
        if no > 0 {
            w.tensor(&format!("a{no}"), &[5], 0, 0);
            w.tensor(&format!("b{no}"), &[3000], 0, 100_000);
            w.tensor(&format!("c{no}"), &[1], 0, 112_000);
            data = (0..112_004u32)
                .map(|i| (i * 31 + u32::from(no)) as u8)
                .collect();
        }
        let mut file = w.finish();
        file.extend(data);
        std::fs::write(
            dir.path().join(format!("m-{:05}-of-00003.gguf", no + 1)),
            file,
        )
        .unwrap();
    }
    let gguf = Arc::new(Gguf::open(&dir.path().join("m-00001-of-00003.gguf")).unwrap());
    for options in modes() {
        let (weights, _) = Weights::load(gguf.clone(), &options, |_| true).unwrap();
        for tensor in gguf.tensors() {
            let mut expected = vec![0; tensor.bytes as usize];
            gguf.read_tensor(tensor, &mut expected).unwrap();
            assert_eq!(weights.bytes(tensor).unwrap(), expected);
        }
        let (none, stats) = Weights::load(gguf.clone(), &options, |_| false).unwrap();
        assert_eq!((none.get("a1"), stats.weights_bytes), (None, 0));
    }
}

#[test]
fn a_file_that_became_shorter_is_an_error() {
    let dir = dir();
    let disk = mini_on_disk(dir.path());
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("mini.gguf"))
        .unwrap()
        .set_len(9_000_000)
        .unwrap();
    for mode in [LoadMode::Direct, LoadMode::Buffered] {
        let options = LoadOptions {
            mode,
            threads: 2,
            prefault: true,
        };
        let said = Weights::load(disk.clone(), &options, |_| true)
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("mini.gguf: cannot read tensor data"),
            "{said}"
        );
    }
}

#[test]
fn the_page_cache_is_measured_and_dropped() {
    let dir = dir();
    let disk = mini_on_disk(dir.path());
    let (bytes, secs) = plain_read(&disk, false).unwrap();
    assert_eq!((bytes, secs > 0.0), (disk.total_size(), true));
    // File systems differ in what they let go; what must hold is the range and the order.
    let warm = cached_fraction(&disk).unwrap();
    assert!(drop_cached(&disk));
    let cold = cached_fraction(&disk).unwrap();
    assert!((0.0..=1.0).contains(&warm) && cold <= warm, "{warm} {cold}");
}
