//! The architectures that share the forward, each on a small random model, held to an independent float64 numpy reference
//! of the published formulas (`data/tiny-golden.json`; `scripts/make-tiny-models.py` writes the models).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;

use legwork_engine::forward::{CacheSpec, Device, Forward, KvCache, Row, Step, Wanted};
use legwork_engine::gguf::{Gguf, load};
use legwork_engine::model::{Config, Weights};
use legwork_kernels::cpu::Pool;
use legwork_kernels::knobs::Knobs;
use legwork_kernels::registry::{Registry, TierChoice};
use legwork_kernels::tensor::{DType, HostDomain};

/// All logits of the golden token sequence.
fn logits(model: &str, knobs: Knobs, chunk: usize) -> Vec<Vec<f32>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/tiny-{model}.gguf"));
    let gguf = Arc::new(Gguf::open(&path).unwrap());
    let config = Config::read(&gguf).unwrap();
    let keep = |t: &legwork_engine::gguf::TensorInfo| Weights::used(&config, &t.name);
    let (store, _) =
        load::Weights::load(Arc::clone(&gguf), &load::LoadOptions::default(), keep).unwrap();
    let weights = Weights::bind(&gguf, &config, &store, &HostDomain).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(golden()["tokens"].clone()).unwrap();
    let spec = CacheSpec {
        sequences: 1,
        tokens: tokens.len(),
        dtype: DType::F32,
    };
    let cache = KvCache::new(&config, spec, &HostDomain).unwrap();
    let registry = Arc::new(Registry::new(knobs, TierChoice::ReferenceOnly));
    let pool = Arc::new(Pool::new(1));
    let mut forward =
        Forward::new(config, weights, cache, registry, pool, Device::cpu(), chunk).unwrap();
    let mut out = Vec::new();
    let rows: Vec<Row> = tokens
        .iter()
        .enumerate()
        .map(|(i, t)| Row {
            token: *t,
            position: i as u32,
            sequence: 0,
        })
        .collect();
    for part in rows.chunks(chunk) {
        let step = Step {
            rows: part,
            wanted: Wanted::All,
        };
        forward
            .step(&step, None, &mut |_, l| out.push(l.to_vec()))
            .unwrap();
    }
    out
}

fn golden() -> serde_json::Value {
    serde_json::from_str(include_str!("data/tiny-golden.json")).unwrap()
}

fn check(model: &str, knobs: Knobs, chunk: usize) {
    let want = &golden()["models"][model];
    let last: Vec<f32> = serde_json::from_value(want["last_logits"].clone()).unwrap();
    let argmax: Vec<usize> = serde_json::from_value(want["argmax"].clone()).unwrap();
    let got = logits(model, knobs, chunk);
    let worst = got
        .last()
        .unwrap()
        .iter()
        .zip(&last)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(worst < 1e-3, "{model}: last logits differ by up to {worst}");
    let best = |l: &Vec<f32>| (0..l.len()).max_by(|a, b| l[*a].total_cmp(&l[*b])).unwrap();
    assert_eq!(got.iter().map(best).collect::<Vec<_>>(), argmax, "{model}");
}

#[test]
fn glm_dsa_with_shared_indexer_layers() {
    check("glm-dsa", Knobs::default(), 70);
}

#[test]
fn glm_dsa_token_by_token() {
    check("glm-dsa", Knobs::default(), 1);
}

/// An MTP block after the trunk is skipped, and a file without `indexer.types` has an indexer in every layer.
#[test]
fn glm_dsa_with_an_mtp_block() {
    check("glm-dsa-mtp", Knobs::default(), 33);
}

/// Expert groups, YaRN, half-split indexer rope.
#[test]
fn deepseek32() {
    check("deepseek32", Knobs::default(), 70);
}

#[test]
fn deepseek2() {
    check("deepseek2", Knobs::default(), 70);
}

/// The same weights with a merged `attn_kv_b` and fused gate and up experts.
#[test]
fn deepseek2_legacy_layout() {
    check("deepseek2-legacy", Knobs::default(), 70);
}

/// Norm, rope and cache write in one operation or in four: the same bits.
#[test]
fn split_projection_computes_the_same() {
    let fused = logits("glm-dsa", Knobs::default(), 16);
    let split = logits(
        "glm-dsa",
        Knobs {
            fused_norm_rope: false,
            ..Knobs::default()
        },
        16,
    );
    assert_eq!(fused, split);
}
