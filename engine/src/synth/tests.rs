//! Files written here, read back by the engine's own reader.

use std::path::Path;

use legwork_kernels::blocks::{BlockType, decode};

use super::{Mix, Preset, SynthError, SynthOptions, parse_bytes, plan, write};
use crate::builtin::resolve_model;
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

fn options(dir: &Path, mix: &str, split: u32) -> SynthOptions {
    let out = dir.join("s.gguf");
    SynthOptions {
        out,
        preset: Preset::Mini,
        bytes: None,
        mix: mix.parse().unwrap(),
        split,
        seed: 5,
    }
}

#[test]
fn a_mini_has_the_built_in_models_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = (0, 0);
    let report = write(&options(dir.path(), "ud-iq1_s", 1), &mut |done, all| {
        last = (done, all)
    })
    .unwrap();
    assert_eq!(last, (report.bytes, report.bytes));
    let (ours, real) = (
        Gguf::open(&report.files[0].0).unwrap(),
        resolve_model("builtin:mini").unwrap().open().unwrap(),
    );
    assert_eq!(ours.total_size(), report.bytes);
    assert_eq!(ours.architecture().unwrap(), "glm-dsa");
    for tensor in ours
        .tensors()
        .iter()
        .filter(|t| !t.name.contains("indexer"))
    {
        assert_eq!(
            tensor.ne,
            real.tensor(&tensor.name).unwrap().ne,
            "{}",
            tensor.name
        );
    }
    let missing: Vec<&str> = real
        .tensors()
        .iter()
        .map(|t| t.name.as_ref())
        .filter(|n| ours.tensor(n).is_none())
        .collect();
    // The real mini's last layer is full, this pattern's is shared.
    assert!(
        missing.iter().all(|name| name.starts_with("blk.5.indexer")),
        "{missing:?}"
    );
    for (key, _) in real
        .metadata()
        .filter(|(key, _)| key.starts_with("glm-dsa.") || key.starts_with("tokenizer."))
    {
        assert!(ours.meta(key).is_some(), "{key}");
    }
    assert_eq!(
        ours.meta("tokenizer.ggml.tokens"),
        real.meta("tokenizer.ggml.tokens")
    );
    let text = "The capital of France is";
    let ids = |gguf: &Gguf| {
        Tokenizer::from_gguf(gguf)
            .unwrap()
            .encode(text, true)
            .unwrap()
    };
    assert_eq!(ids(&ours), ids(&real));
}

#[test]
fn the_same_seed_gives_the_same_file_in_any_number_of_shards() {
    let (one, four) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let single = write(&options(one.path(), "ud-iq1_s", 1), &mut |_, _| ()).unwrap();
    let split = write(&options(four.path(), "ud-iq1_s", 4), &mut |_, _| ()).unwrap();
    assert_eq!(split.files.len(), 4);
    assert!(split.files[0].0.ends_with("s-00001-of-00004.gguf"));
    let (a, b) = (
        Gguf::open(&single.files[0].0).unwrap(),
        Gguf::open(&split.files[0].0).unwrap(),
    );
    assert_eq!(a.tensors().len(), b.tensors().len());
    assert!(b.tensors().iter().all(|t| t.shard > 0));
    for tensor in a.tensors() {
        let twin = b.tensor(&tensor.name).unwrap();
        let (mut x, mut y) = (vec![0; tensor.bytes as usize], vec![0; twin.bytes as usize]);
        a.read_tensor(tensor, &mut x).unwrap();
        b.read_tensor(twin, &mut y).unwrap();
        assert!(x == y, "{}", tensor.name);
    }
    assert_eq!(std::fs::read_dir(four.path()).unwrap().count(), 4);
}

#[test]
fn every_mix_gives_finite_weights() {
    for &ty in BlockType::ALL {
        let Ok(mix) = ty.name().parse::<Mix>() else {
            continue;
        };
        let dir = tempfile::tempdir().unwrap();
        // Two layers are enough to have every role.
        let bytes = Some(
            plan(&SynthOptions {
                bytes: None,
                ..options(dir.path(), ty.name(), 1)
            })
            .unwrap()
            .bytes
                / 2,
        );
        let report = write(
            &SynthOptions {
                bytes,
                mix,
                ..options(dir.path(), ty.name(), 1)
            },
            &mut |_, _| (),
        )
        .unwrap();
        let gguf = Gguf::open(&report.files[0].0).unwrap();
        for tensor in gguf.tensors() {
            let mut bytes = vec![0; tensor.bytes as usize];
            gguf.read_tensor(tensor, &mut bytes).unwrap();
            let mut values = vec![0.0; tensor.elements() as usize];
            decode(tensor.ty, &bytes, &mut values).unwrap();
            assert!(
                values.iter().all(|v| v.is_finite()),
                "{mix} {}",
                tensor.name
            );
        }
        assert!(
            report.types[ty.name()] > report.bytes / 3,
            "{:?}",
            report.types
        );
    }
}

#[test]
fn sizes_are_hit_within_five_percent() {
    for (preset, bytes, mix) in [
        (Preset::Mini, "10MB", "ud-iq1_s"),
        (Preset::Mini, "300MB", "q8_0"),
        (Preset::Small, "2GiB", "ud-iq1_s"),
        (Preset::Small, "6GB", "q4_k"),
        (Preset::Small, "1GiB", "iq2_xxs"),
        (Preset::Medium, "20GiB", "ud-iq1_s"),
        (Preset::Medium, "8GiB", "iq1_m"),
        (Preset::Full, "150GiB", "ud-iq1_s"),
    ] {
        let target = parse_bytes(bytes).unwrap();
        let options = SynthOptions {
            out: "x.gguf".into(),
            preset,
            bytes: Some(target),
            mix: mix.parse().unwrap(),
            split: 1,
            seed: 0,
        };
        let report = plan(&options).unwrap();
        assert!(
            (report.bytes as f64 / target as f64 - 1.0).abs() < 0.05,
            "{preset:?} {bytes} {mix}: {}",
            report.bytes
        );
        assert!(report.shape.experts != 8 && report.shape.experts > report.shape.experts_used);
    }
}

/// The public UD-IQ1_S file of GLM-5.2 has 216.7 GB, of which 3.9 GB are its MTP block.
#[test]
fn the_full_preset_has_the_real_files_size() {
    let options = SynthOptions {
        out: "x.gguf".into(),
        preset: Preset::Full,
        bytes: None,
        mix: Mix::UdIq1S,
        split: 6,
        seed: 0,
    };
    let report = plan(&options).unwrap();
    let (got, real) = (report.bytes as f64, 212.8e9);
    assert!((got / real - 1.0).abs() < 0.02, "{got}");
    assert!(
        (report.parameters as f64 / 743.4e9 - 1.0).abs() < 0.01,
        "{}",
        report.parameters
    );
    assert_eq!(
        (0..78)
            .filter(|layer| report.shape.full_indexer(*layer))
            .count(),
        21
    );
}

#[test]
fn impossible_wishes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = options(dir.path(), "q8_0", 1);
    let size = plan(&SynthOptions {
        bytes: Some(1000),
        ..base.clone()
    })
    .unwrap_err();
    assert!(matches!(size, SynthError::Size { asked: 1000, .. }));
    assert!(matches!(
        plan(&SynthOptions {
            out: "x.bin".into(),
            ..base.clone()
        }),
        Err(SynthError::Name { .. })
    ));
    assert!(matches!(
        plan(&SynthOptions {
            split: 0,
            ..base.clone()
        }),
        Err(SynthError::Split { .. })
    ));
    assert!(
        "q9_x"
            .parse::<Mix>()
            .unwrap_err()
            .to_string()
            .contains("ud-iq1_s, f32")
    );
    assert!("q8_k".parse::<Mix>().is_err() && "huge".parse::<Preset>().is_err());
    let nowhere = SynthOptions {
        out: dir.path().join("no/such/x.gguf"),
        ..base
    };
    assert!(matches!(
        write(&nowhere, &mut |_, _| ()),
        Err(SynthError::Io { .. })
    ));
    assert_eq!(
        ["2GiB", "1.5k", "10MB", "7", "x", "-1", "0", "1zb"].map(parse_bytes),
        [
            Some(2 << 30),
            Some(1536),
            Some(10_000_000),
            Some(7),
            None,
            None,
            None,
            None,
        ]
    );
}
