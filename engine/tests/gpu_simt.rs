//! The whole forward on the GPU kernels, every operation native, dense and sparse, held to the values that `transformers`
//! computed from the same weights (`data/golden.json`). They run on host fibres, or on hardware with
//! `LEGWORK_TEST_DEVICE=rocm|cuda`, where all five cases are run in full; `LEGWORK_TEST_KERNELS` is a folder of code objects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
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

/// The device under test.
fn kind() -> DeviceKind {
    match std::env::var("LEGWORK_TEST_DEVICE").ok().as_deref() {
        None | Some("" | "simt") => DeviceKind::Simt,
        Some("rocm") => DeviceKind::Rocm,
        Some("cuda") => DeviceKind::Cuda,
        Some(other) => panic!("LEGWORK_TEST_DEVICE={other}: simt, rocm or cuda"),
    }
}

/// `None` where this build has no fibre runtime, which the device's own refusal explains. A device that was asked for by name
/// must be there.
fn forward(knobs: Knobs, tokens: usize, max_rows: usize, dtype: DType) -> Option<Forward> {
    let kind = kind();
    let kernels = std::env::var_os("LEGWORK_TEST_KERNELS").filter(|k| !k.is_empty());
    let device = match Gpu::open(kind, &knobs, kernels.as_deref().map(Path::new)) {
        Ok(device) => device,
        Err(e) if kind == DeviceKind::Simt => {
            assert!(e.to_string().contains("C++ compiler"), "{e}");
            return None;
        }
        Err(e) => panic!("{e}"),
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
            dtype,
        },
        &domain,
    )
    .unwrap();
    let mut registry = Registry::new(knobs, TierChoice::NativeOnly);
    gpu::register(&mut registry, kind);
    registry.set_memory(kind, device.memory_facts());
    let device = Device {
        kind,
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

/// Runs a step and returns every row's most likely token.
fn step(f: &mut Forward, ids: &[u32], first: usize) -> Vec<u32> {
    let rows = Row::run(ids, first, 0);
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

struct Case {
    ids: Vec<u32>,
    greedy: Vec<u32>,
    gaps: Vec<f64>,
    argmax: Vec<u32>,
}

fn case(name: &str) -> Case {
    let all: serde_json::Value = serde_json::from_str(include_str!("data/golden.json")).unwrap();
    let c = &all["cases"][name];
    Case {
        ids: serde_json::from_value(c["ids"].clone()).unwrap(),
        greedy: serde_json::from_value(c["greedy"].clone()).unwrap(),
        gaps: serde_json::from_value(c["greedy_gap_to_second"].clone()).unwrap(),
        argmax: serde_json::from_value(c["argmax"].clone()).unwrap(),
    }
}

/// Prefill in chunks, then `n` greedy tokens one by one, the oracle's own being fed. Activations are rounded to 8 bits in
/// these steps, which moves logits of this small model by 1.5 %: every choice that the oracle makes by 1.0 or more must be
/// the same. `agreement` is the least part of the prompt's positions whose most likely token is the oracle's.
fn check(f: &mut Forward, name: &str, chunk: usize, n: usize, agreement: f64) {
    let c = case(name);
    let mut best = Vec::new();
    for (i, part) in c.ids.chunks(chunk).enumerate() {
        best.extend(step(f, part, i * chunk));
    }
    let same = best.iter().zip(&c.argmax).filter(|(a, b)| a == b).count();
    let reached = same as f64 / best.len() as f64;
    assert!(reached >= agreement, "{name}: argmax agreement {reached}");
    let mut next = *best.last().unwrap();
    let mut equal = 0;
    for i in 0..n {
        equal += usize::from(next == c.greedy[i]);
        if c.gaps[i] >= 1.0 {
            assert_eq!(next, c.greedy[i], "{name}: token {i}, gap {}", c.gaps[i]);
        }
        if i + 1 < n {
            next = step(f, &[c.greedy[i]], c.ids.len() + i)[0];
        }
    }
    assert_eq!(f.registry().reference_hits(), 0, "{name}");
    println!(
        "{name} on {}: argmax agreement {reached:.4}, {equal} of {n} greedy tokens equal, {:?}",
        f.device(),
        f.graph_stats()
    );
}

fn knobs(fused_norm_rope: bool, graph: bool) -> Knobs {
    Knobs {
        fused_norm_rope,
        graph: Some(graph),
        ..Knobs::default()
    }
}

/// A short prompt, with the fused and the split projection, launch by launch and from recordings.
#[test]
fn dense_steps_say_the_golden_tokens_fused_or_not_recorded_or_not() {
    for (fused, graph) in [(true, false), (false, true)] {
        let Some(mut f) = forward(knobs(fused, graph), 16, 7, DType::F32) else {
            return;
        };
        check(&mut f, "japan_question", 7, 6, 1.0);
        let stats = f.graph_stats();
        // One token at a time: the first is run, the second recorded, the others replayed.
        let want = if graph { (1, 4) } else { (0, 0) };
        assert_eq!((stats.recorded, stats.replayed), want, "{stats:?}");
        assert_eq!(stats.refused, None);
    }
}

/// Past index_topk (128 in this model): the rows after it attend to selected keys only.
#[test]
fn sparse_steps_agree_with_the_golden_argmax() {
    let (prompt, want) = (case("long").ids, case("long").argmax);
    let Some(mut f) = forward(Knobs::default(), 140, 64, DType::F32) else {
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

/// A recording is void once scratch memory that it may use has grown: a longer step in between makes a new one.
#[test]
fn recordings_survive_a_longer_step_in_between() {
    let c = case("japan_question");
    let Some(mut f) = forward(knobs(true, true), 40, 24, DType::F32) else {
        return;
    };
    let mut best = Vec::new();
    // The first token of all takes the other form of attention, so it has a shape of its own.
    for i in 0..4 {
        best.extend(step(&mut f, &c.ids[i..=i], i));
    }
    assert_eq!(f.graph_stats().replayed, 2);
    step(&mut f, &case("long").ids[..24], 16);
    for i in 4..c.ids.len() {
        best.extend(step(&mut f, &c.ids[i..=i], i));
    }
    assert_eq!(best, c.argmax);
    let stats = f.graph_stats();
    assert_eq!((stats.recorded, stats.refused.as_deref()), (2, None));
}

/// All five cases in full, with both projections, launch by launch and replayed, and with 16-bit caches: on hardware.
#[test]
fn every_golden_case_on_hardware() {
    if kind() == DeviceKind::Simt {
        println!(
            "host fibres take too long for the long cases; LEGWORK_TEST_DEVICE=rocm|cuda runs them"
        );
        return;
    }
    for (fused, graph, dtype) in [
        (true, false, DType::F32),
        (true, true, DType::F32),
        (false, true, DType::F16),
        (true, true, DType::BF16),
    ] {
        println!("fused {fused}, recordings {graph}, cache {}", dtype.name());
        let Some(mut f) = forward(knobs(fused, graph), 640, 512, dtype) else {
            return;
        };
        for (name, agreement) in [("france", 1.0), ("japan_question", 1.0), ("chat", 1.0)] {
            check(&mut f, name, 512, 32, agreement);
        }
        check(&mut f, "at_topk", 512, 32, 0.93);
        check(&mut f, "long", 200, 32, 0.95);
        assert_eq!(
            f.graph_stats().replayed > 100,
            graph,
            "{:?}",
            f.graph_stats()
        );
    }
}
