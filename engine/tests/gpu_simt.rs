//! The whole forward on the GPU sources, run on host fibres: every operation native, dense and sparse, held to the values
//! that `transformers` computed from the same weights (`data/golden.json`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use legwork_engine::builtin::resolve_model;
use legwork_engine::forward::{CacheSpec, Device, Forward, KvCache, Row, Step, Wanted};
use legwork_engine::gguf::{Gguf, GgufError, TensorInfo, load};
use legwork_engine::model::{Config, WeightStore, Weights};
use legwork_kernels::cpu::Pool;
use legwork_kernels::device::DeviceKind;
use legwork_kernels::gpu::{self, Gpu, GpuDomain};
use legwork_kernels::knobs::Knobs;
use legwork_kernels::registry::{Registry, TierChoice};
use legwork_kernels::tensor::{DType, WeightData};

/// Copies every weight to the device.
struct Upload<'a>(&'a load::Weights, GpuDomain);

impl WeightStore for Upload<'_> {
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError> {
        let data = self.0.data(gguf, info)?;
        let WeightData::Host { bytes, offset, len } = &data else {
            return Ok(data);
        };
        let all: &[u8] = (**bytes).as_ref();
        Ok(WeightData::Device(
            self.1
                .weight(&all[*offset..offset + len], &info.name)
                .unwrap(),
        ))
    }
}

/// `None` where this build has no fibre runtime, which the device's own refusal explains.
fn forward(knobs: Knobs, tokens: usize, max_rows: usize) -> Option<Forward> {
    let device = match Gpu::open(DeviceKind::Simt, &knobs, None) {
        Ok(device) => device,
        Err(e) => {
            assert!(e.to_string().contains("C++ compiler"), "{e}");
            return None;
        }
    };
    let gguf = Arc::new(resolve_model("builtin:mini").unwrap().open().unwrap());
    let config = Config::read(&gguf).unwrap();
    let (store, _) =
        load::Weights::load(Arc::clone(&gguf), &load::LoadOptions::default(), |_| true).unwrap();
    let domain = device.domain();
    let weights = Weights::bind(&gguf, &config, &Upload(&store, domain.clone()), &domain).unwrap();
    let cache = KvCache::new(
        &config,
        CacheSpec {
            sequences: 1,
            tokens,
            dtype: DType::F32,
        },
        &domain,
    )
    .unwrap();
    let mut registry = Registry::new(knobs, TierChoice::NativeOnly);
    gpu::register(&mut registry, DeviceKind::Simt);
    registry.set_memory(DeviceKind::Simt, device.memory_facts());
    let device = Device {
        kind: DeviceKind::Simt,
        domain: Arc::new(domain),
        state: Some(Box::new(device)),
    };
    Some(
        Forward::new(
            config,
            weights,
            cache,
            Arc::new(registry),
            Arc::new(Pool::new(1)),
            device,
            max_rows,
        )
        .unwrap(),
    )
}

fn step(f: &mut Forward, ids: &[u32], first: usize) -> Vec<u32> {
    let rows: Vec<Row> = ids
        .iter()
        .enumerate()
        .map(|(i, t)| Row {
            token: *t,
            position: (first + i) as u32,
            sequence: 0,
        })
        .collect();
    let mut best = Vec::new();
    f.step(
        &Step {
            rows: &rows,
            wanted: Wanted::All,
        },
        None,
        &mut |_, logits| {
            let top = (0..logits.len())
                .max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a)))
                .unwrap();
            best.push(top as u32);
        },
    )
    .unwrap();
    best
}

fn golden(case: &str, key: &str) -> Vec<f64> {
    let all: serde_json::Value = serde_json::from_str(include_str!("data/golden.json")).unwrap();
    serde_json::from_value(all["cases"][case][key].clone()).unwrap()
}

fn ids(case: &str, key: &str) -> Vec<u32> {
    golden(case, key).into_iter().map(|v| v as u32).collect()
}

/// Greedy tokens up to the first place where the two best are closer than 0.5: activations are rounded to 8 bits here.
#[test]
fn dense_steps_say_the_golden_tokens_fused_or_not() {
    let (prompt, want, gaps) = (
        ids("japan_question", "ids"),
        ids("japan_question", "greedy"),
        golden("japan_question", "greedy_gap_to_second"),
    );
    for fused_norm_rope in [true, false] {
        let knobs = Knobs {
            fused_norm_rope,
            ..Knobs::default()
        };
        let Some(mut f) = forward(knobs, 16, prompt.len()) else {
            return;
        };
        let mut next = *step(&mut f, &prompt, 0).last().unwrap();
        for i in 0..4 {
            assert_eq!(next, want[i], "token {i}, fused {fused_norm_rope}");
            assert!(gaps[i] > 0.5, "the case was chosen for its clear tokens");
            next = step(&mut f, &[next], prompt.len() + i)[0];
        }
        assert_eq!(f.registry().reference_hits(), 0);
    }
}

/// Past index_topk (128 in this model): the rows after it attend to selected keys only.
#[test]
fn sparse_steps_agree_with_the_golden_argmax() {
    let (prompt, want) = (ids("long", "ids"), ids("long", "argmax"));
    let Some(mut f) = forward(Knobs::default(), 140, 64) else {
        return;
    };
    let mut best = Vec::new();
    for (c, part) in prompt[..132].chunks(64).enumerate() {
        best.extend(step(&mut f, part, c * 64));
    }
    let same = best.iter().zip(&want).filter(|(a, b)| a == b).count();
    assert!(
        same * 100 >= 93 * best.len(),
        "{same} of {} positions agree",
        best.len()
    );
    assert_eq!(best[128..], want[128..132], "the sparse rows");
    assert_eq!(f.registry().reference_hits(), 0);
}
