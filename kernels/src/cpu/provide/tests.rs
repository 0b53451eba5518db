//! Every native provider against the reference provider of the same operation.

use crate::blocks::BlockType;
use crate::cpu::Pool;
use crate::device::DeviceKind;
use crate::knobs::Knobs;
use crate::ops::*;
use crate::registry::{Registry, TierChoice};
use crate::tensor::{DType, HostDomain, Tensor, Weight, WeightData};
use half::f16;
use std::sync::Arc;

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in -1..1.
    fn next(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn tensor(&mut self, n: usize) -> Tensor {
        Tensor::from_f32((0..n).map(|_| self.next()).collect())
    }

    /// Random blocks whose values are of order one.
    fn weight(&mut self, ty: BlockType, n_in: usize, n_out: usize, n_mat: usize) -> Weight {
        let size = ty.block_bytes();
        let mut bytes = vec![0_u8; n_mat * n_out * n_in / ty.block_len() * size];
        for b in bytes.chunks_exact_mut(size) {
            b.iter_mut().for_each(|b| *b = self.bits() as u8);
            let (at, scale): (&[usize], f32) = match ty {
                BlockType::Q8_0 => (&[0], 0.01),
                BlockType::Q4_K | BlockType::Q5_K => (&[0, 2], 0.001),
                BlockType::Q6_K => (&[208], 0.0005),
                BlockType::IQ1_S => (&[0], 0.1),
                BlockType::IQ2_XXS => (&[0], 0.01),
                BlockType::IQ3_XXS => (&[0], 0.005),
                BlockType::F32 => {
                    b.copy_from_slice(&self.next().to_le_bytes());
                    (&[], 0.0)
                }
                other => panic!("no scales known for {other}"),
            };
            for at in at {
                let v = f16::from_f32(scale * (1.0 + 0.5 * self.next()));
                b[*at..at + 2].copy_from_slice(&v.to_le_bytes());
            }
        }
        let len = bytes.len();
        Weight {
            name: format!("{ty}"),
            ty,
            n_in,
            n_out,
            n_mat,
            data: WeightData::Host {
                bytes: Arc::new(bytes),
                offset: 0,
                len,
            },
        }
    }
}

/// Run an operation natively and by the reference; both outputs.
fn both(mut f: impl FnMut(&Registry, &mut Ctx<'_>) -> Vec<f32>) -> (Vec<f32>, Vec<f32>) {
    let pool = Pool::new(2);
    let mut run = |tier| {
        let registry = Registry::new(Knobs::default(), tier);
        let mut ctx = Ctx {
            pool: &pool,
            device: None,
        };
        f(&registry, &mut ctx)
    };
    (run(TierChoice::NativeOnly), run(TierChoice::ReferenceOnly))
}

/// Normalised mean square error.
fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let (mut error, mut size) = (0.0, 0.0);
    for (f, e) in found.iter().zip(expected) {
        error += f64::from(f - e).powi(2);
        size += f64::from(*e).powi(2);
    }
    assert!(size > 0.0, "the expected values are all zero");
    error / size
}

fn close(what: &str, (found, expected): (Vec<f32>, Vec<f32>), limit: f64) {
    let e = nmse(&found, &expected);
    assert!(e <= limit, "{what}: NMSE {e:e} above {limit:e}");
}

fn values(t: &Tensor) -> Vec<f32> {
    t.at(0).f32(t.len()).expect("host f32").to_vec()
}

const CPU: DeviceKind = DeviceKind::Cpu;

#[test]
fn every_operation_is_registered_natively() {
    let registry = Registry::new(Knobs::default(), TierChoice::Auto);
    for op in OpId::ALL {
        assert!(registry.registered(op, CPU), "{}", op.name());
    }
}

#[test]
fn matmul_of_mixed_parts() {
    use BlockType::*;
    let mut random = Random(11);
    let weights = [
        random.weight(Q8_0, 512, 40, 1),
        random.weight(Q5_K, 512, 24, 1),
        random.weight(F32, 512, 16, 1),
        random.weight(IQ1_S, 512, 33, 1),
        random.weight(Q6_K, 512, 17, 1),
    ];
    for rows in [1, 3, 4, 29] {
        let x = random.tensor(rows * 512);
        for (i, w) in weights.iter().enumerate() {
            let limit = if w.ty == F32 { 1e-11 } else { 5e-4 };
            let outs = both(|registry, ctx| {
                let mut outs: Vec<Tensor> = weights
                    .iter()
                    .map(|w| Tensor::from_f32(vec![0.5; rows * w.n_out]))
                    .collect();
                let parts = weights.iter().zip(&mut outs).map(|(weight, out)| MatPart {
                    weight,
                    out: out.at_mut(0),
                    accumulate: weight.ty == Q5_K,
                });
                let args = MatmulArgs {
                    x: x.at(0),
                    rows,
                    parts: parts.collect(),
                };
                registry.run::<MatmulQuant>(ctx, CPU, args).expect("runs");
                values(&outs[i])
            });
            close(&format!("{} x {rows}", w.name), outs, limit);
        }
    }
}

#[test]
fn experts_few_and_many_split_and_fused() {
    use BlockType::*;
    let (dim, ff, experts, top_k) = (512, 256, 6, 3);
    let mut random = Random(5);
    for fused in [false, true] {
        let gate_rows = if fused { 2 * ff } else { ff };
        let gate = random.weight(IQ1_S, dim, gate_rows, experts);
        let up = random.weight(IQ2_XXS, dim, ff, experts);
        let down = random.weight(IQ3_XXS, ff, dim, experts);
        for rows in [1, 2, 4, 23] {
            let x = random.tensor(rows * dim);
            let ids = (0..rows * top_k).map(|i| ((i * 7 + i / 3) % experts) as i32);
            let ids = Tensor::from_i32(ids.collect());
            let weights = random.tensor(rows * top_k);
            let outs = both(|registry, ctx| {
                let mut out = Tensor::from_f32(vec![1.0; rows * dim]);
                let args = MoeExpertsArgs {
                    x: x.at(0),
                    ids: ids.at(0),
                    weights: weights.at(0),
                    gate: &gate,
                    up: (!fused).then_some(&up),
                    down: &down,
                    out: out.at_mut(0),
                    rows,
                    dim,
                    ff,
                    top_k,
                };
                registry.run::<MoeExperts>(ctx, CPU, args).expect("runs");
                values(&out)
            });
            close(&format!("experts {fused} x {rows}"), outs, 1e-3);
        }
    }
}

#[test]
fn an_expert_out_of_range_is_refused_and_writes_nothing() {
    let mut random = Random(3);
    let gate = random.weight(BlockType::Q8_0, 32, 32, 2);
    let ids = Tensor::from_i32(vec![0, 2]);
    let (x, weights) = (random.tensor(32), random.tensor(2));
    let mut out = Tensor::from_f32(vec![0.0; 32]);
    let registry = Registry::new(Knobs::default(), TierChoice::NativeOnly);
    let mut ctx = Ctx {
        pool: &Pool::new(1),
        device: None,
    };
    let args = MoeExpertsArgs {
        x: x.at(0),
        ids: ids.at(0),
        weights: weights.at(0),
        gate: &gate,
        up: Some(&gate),
        down: &gate,
        out: out.at_mut(0),
        rows: 1,
        dim: 32,
        ff: 32,
        top_k: 2,
    };
    let error = registry
        .run::<MoeExperts>(&mut ctx, CPU, args)
        .expect_err("refused");
    assert!(
        error.to_string().contains("expert 2 is outside 0..2"),
        "{error}"
    );
    assert_eq!(values(&out), [0.0; 32]);
}

#[test]
fn routing_is_the_same_choice() {
    let mut random = Random(17);
    let (rows, experts, top_k) = (40, 16, 4);
    let mut logits = random.tensor(rows * experts);
    logits.write_f32(0, &[0.25; 32]).expect("two rows of ties");
    let bias = random.tensor(experts);
    for (gating, groups, groups_used, bias) in [
        (Gating::Sigmoid, 1, 1, Some(&bias)),
        (Gating::Sigmoid, 4, 2, Some(&bias)),
        (Gating::Softmax, 1, 1, None),
    ] {
        let (found, expected) = both(|registry, ctx| {
            let mut ids = Tensor::from_i32(vec![-1; rows * top_k]);
            let mut weights = Tensor::from_f32(vec![0.0; rows * top_k]);
            let args = MoeRouteArgs {
                logits: logits.at(0),
                bias: bias.map(|b| b.at(0)),
                ids: ids.at_mut(0),
                weights: weights.at_mut(0),
                rows,
                experts,
                top_k,
                gating,
                groups,
                groups_used,
                norm: true,
                scale: 2.5,
            };
            registry.run::<MoeRoute>(ctx, CPU, args).expect("runs");
            let ids = ids.at(0).i32(rows * top_k).expect("i32");
            let mut all: Vec<f32> = ids.iter().map(|i| *i as f32).collect();
            all.extend(values(&weights));
            all
        });
        let n = rows * top_k;
        assert_eq!(found[..n], expected[..n], "{gating:?} {groups}");
        assert!(nmse(&found[n..], &expected[n..]) < 1e-12);
    }
}

/// A latent cache of `slots` rows in `dtype`.
fn cache(random: &mut Random, dtype: DType, slots: usize, width: usize) -> Tensor {
    let x = random.tensor(slots * width);
    let mut cache = Tensor::zeros(&HostDomain, dtype, slots * width).expect("memory");
    let all: Vec<i32> = (0..slots as i32).collect();
    let slots_t = Tensor::from_i32(all);
    let registry = Registry::new(Knobs::default(), TierChoice::ReferenceOnly);
    let mut ctx = Ctx {
        pool: &Pool::new(1),
        device: None,
    };
    let args = CacheRowsArgs {
        x: x.at(0),
        cache: cache.at_mut(0),
        slots: slots_t.at(0),
        rows: slots,
        dim: width,
    };
    registry
        .run::<CacheRows>(&mut ctx, CPU, args)
        .expect("runs");
    cache
}

/// Attention of `rows` rows over two sequences in both forms, with all keys, `k` selected ones, or a window with sinks.
fn attention(rows: usize, dtype: DType, k: Option<usize>, window: Option<usize>) {
    let (heads, nope, rope, lora, v_dim) = (4, 64, 32, 96, 48);
    let mut random = Random(23 + rows as u64);
    let head = nope + rope;
    let q = random.tensor(rows * heads * head);
    let k_b = random.weight(BlockType::Q8_0, nope, lora, heads);
    let v_b = random.weight(BlockType::Q8_0, lora, v_dim, heads);
    let slot_end = 130;
    let cache = cache(&mut random, dtype, slot_end, lora + rope);
    // The first rows belong to a sequence at slot 5, the others to one at slot 60.
    let first = rows.div_ceil(3);
    let base: Vec<i32> = (0..rows).map(|r| if r < first { 5 } else { 60 }).collect();
    let slots: Vec<i32> = (0..rows)
        .map(|r| {
            if r < first {
                20 + r as i32
            } else {
                129 - (rows - 1 - r) as i32
            }
        })
        .collect();
    let (mut index, mut count) = (Vec::new(), Vec::new());
    for (base, slot) in base.iter().zip(&slots) {
        let n = (slot - base + 1) as usize;
        let k = k.unwrap_or(1);
        let chosen: Vec<i32> = (0..n as i32).step_by(n.div_ceil(k)).collect();
        count.push(chosen.len() as i32);
        index.extend((0..k).map(|i| chosen.get(i).copied().unwrap_or(-1)));
    }
    let (base, slots) = (Tensor::from_i32(base), Tensor::from_i32(slots));
    let (index, count) = (Tensor::from_i32(index), Tensor::from_i32(count));
    let sinks = Tensor::from_f32(vec![-1.0, 0.5, 2.0, -30.0]);
    for absorbed in [true, false] {
        let mut sums = Vec::new();
        let outs = both(|registry, ctx| {
            let mut out = Tensor::from_f32(vec![9.0; rows * heads * v_dim]);
            let mut lse = Tensor::from_f32(vec![9.0; rows * heads]);
            let args = MlaArgs {
                q: q.at(0),
                k_b: &k_b,
                v_b: &v_b,
                cache: cache.at(0),
                base: base.at(0),
                slots: slots.at(0),
                slot_end,
                selection: k.map(|k| Selection {
                    index: index.at(0),
                    count: count.at(0),
                    k,
                }),
                window,
                sinks: window.map(|_| sinks.at(0)),
                lse: Some(lse.at_mut(0)),
                out: out.at_mut(0),
                rows,
                heads,
                nope,
                rope,
                lora,
                v_dim,
                scale: 0.1,
            };
            if absorbed {
                registry.run::<MlaDecodeAttention>(ctx, CPU, args)
            } else {
                registry.run::<MlaPrefillAttention>(ctx, CPU, args)
            }
            .expect("runs");
            sums.push(values(&lse));
            values(&out)
        });
        // The absorbed form rounds queries and mixed latents to eight bits.
        let (limit, sum_limit) = if absorbed { (5e-4, 0.1) } else { (1e-10, 1e-5) };
        for (native, reference) in sums[0].iter().zip(&sums[1]) {
            let off = (native - reference).abs();
            assert!(off < sum_limit, "{absorbed}: {native} {reference}");
        }
        let what = format!("{absorbed} {rows} {dtype:?} {k:?} {window:?}");
        close(&what, outs, limit);
    }
}

#[test]
fn dense_attention() {
    for rows in [1, 2, 5, 40] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            attention(rows, dtype, None, None);
        }
    }
}

#[test]
fn sparse_attention() {
    for rows in [1, 3, 33] {
        attention(rows, DType::F32, Some(7), None);
        attention(rows, DType::F16, Some(64), None);
    }
}

#[test]
fn windows_with_sinks() {
    for rows in [1, 5, 40] {
        for window in [1, 9, 1000] {
            attention(rows, DType::F32, None, Some(window));
            attention(rows, DType::F16, None, Some(window));
        }
    }
}

/// One row of two heads over 12 keys, of which some are selected or the window takes the last; in the reference tier.
struct OneRow {
    q: Tensor,
    k_b: Weight,
    v_b: Weight,
    cache: Tensor,
}

impl OneRow {
    fn new() -> Self {
        let mut random = Random(77);
        OneRow {
            q: random.tensor(2 * 24),
            k_b: random.weight(BlockType::F32, 16, 32, 2),
            v_b: random.weight(BlockType::F32, 32, 8, 2),
            cache: cache(&mut random, DType::F32, 12, 40),
        }
    }

    /// Outputs of both heads, and the logarithms of their sums.
    fn run(
        &self,
        chosen: Option<&[i32]>,
        window: Option<usize>,
        sinks: Option<[f32; 2]>,
    ) -> Result<(Vec<f64>, Vec<f64>), OpError> {
        let (base, slots) = (Tensor::from_i32(vec![0]), Tensor::from_i32(vec![11]));
        let index = Tensor::from_i32(chosen.unwrap_or(&[0]).to_vec());
        let count = Tensor::from_i32(vec![chosen.map_or(0, <[i32]>::len) as i32]);
        let sink_values = Tensor::from_f32(sinks.unwrap_or_default().to_vec());
        let mut out = Tensor::from_f32(vec![9.0; 16]);
        let mut lse = Tensor::from_f32(vec![9.0; 2]);
        let mut ctx = Ctx {
            pool: &Pool::new(1),
            device: None,
        };
        let args = MlaArgs {
            q: self.q.at(0),
            k_b: &self.k_b,
            v_b: &self.v_b,
            cache: self.cache.at(0),
            base: base.at(0),
            slots: slots.at(0),
            slot_end: 12,
            selection: chosen.map(|c| Selection {
                index: index.at(0),
                count: count.at(0),
                k: c.len(),
            }),
            window,
            sinks: sinks.map(|_| sink_values.at(0)),
            lse: Some(lse.at_mut(0)),
            out: out.at_mut(0),
            rows: 1,
            heads: 2,
            nope: 16,
            rope: 8,
            lora: 32,
            v_dim: 8,
            scale: 0.3,
        };
        Registry::new(Knobs::default(), TierChoice::ReferenceOnly)
            .run::<MlaDecodeAttention>(&mut ctx, CPU, args)?;
        let wide = |t: &Tensor| values(t).into_iter().map(f64::from).collect();
        Ok((wide(&out), wide(&lse)))
    }
}

fn alike(found: &[f64], expected: &[f64]) {
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() < 1e-5, "{found:?} {expected:?}");
    }
}

#[test]
fn results_of_two_sets_of_keys_merge_by_their_sums() {
    let row = OneRow::new();
    let (whole, whole_lse) = row.run(None, None, None).expect("runs");
    let (a, lse_a) = row.run(Some(&[0, 2, 3, 11]), None, None).expect("runs");
    let others = [1, 4, 5, 6, 7, 8, 9, 10];
    let (b, lse_b) = row.run(Some(&others), None, None).expect("runs");
    let sum: Vec<f64> = (0..2).map(|h| lse_a[h].exp() + lse_b[h].exp()).collect();
    let merged: Vec<f64> = (0..16)
        .map(|i| (a[i] * lse_a[i / 8].exp() + b[i] * lse_b[i / 8].exp()) / sum[i / 8])
        .collect();
    alike(&merged, &whole);
    alike(&sum.iter().map(|s| s.ln()).collect::<Vec<_>>(), &whole_lse);
}

#[test]
fn a_window_is_the_selection_of_the_last_keys() {
    let row = OneRow::new();
    let (window, lse) = row.run(None, Some(3), None).expect("runs");
    let (chosen, chosen_lse) = row.run(Some(&[9, 10, 11]), None, None).expect("runs");
    alike(&window, &chosen);
    alike(&lse, &chosen_lse);
    assert!(row.run(None, Some(0), None).is_err());
    assert!(row.run(Some(&[1]), Some(3), None).is_err());
}

#[test]
fn a_sink_takes_its_share_and_no_value() {
    let row = OneRow::new();
    let (plain, lse) = row.run(None, None, None).expect("runs");
    let sinks = [1.5, -2.0];
    let (with, same) = row.run(None, None, Some(sinks)).expect("runs");
    let share: Vec<f64> = (0..16)
        .map(|i| plain[i] / (1.0 + (f64::from(sinks[i / 8]) - lse[i / 8]).exp()))
        .collect();
    alike(&with, &share);
    alike(&same, &lse);
}

#[test]
fn indexer_scores_and_choice() {
    let (heads, dim, slots) = (5, 24, 700);
    let mut random = Random(41);
    for (rows, dtype) in [(1, DType::F32), (3, DType::F16), (21, DType::BF16)] {
        let keys = cache(&mut random, dtype, slots, dim);
        let q = random.tensor(rows * heads * dim);
        let w = random.tensor(rows * heads);
        let base: Vec<i32> = (0..rows).map(|r| if r < 10 { 3 } else { 300 }).collect();
        let own: Vec<i32> = (0..rows).map(|r| 699 - (rows - 1 - r) as i32).collect();
        let n: Vec<usize> = own
            .iter()
            .zip(&base)
            .map(|(o, b)| (o - b + 1) as usize)
            .collect();
        let (base, own) = (Tensor::from_i32(base), Tensor::from_i32(own));
        let stride = 701;
        let outs = both(|registry, ctx| {
            let mut out = Tensor::from_f32(vec![0.0; rows * stride]);
            let args = IndexerArgs {
                q: q.at(0),
                weights: w.at(0),
                cache: keys.at(0),
                base: base.at(0),
                slots: own.at(0),
                out: out.at_mut(0),
                stride,
                rows,
                heads,
                dim,
                scale: 0.3,
            };
            registry
                .run::<DsaIndexerLogits>(ctx, CPU, args)
                .expect("runs");
            let out = values(&out);
            (0..rows)
                .flat_map(|r| out[r * stride..][..n[r]].to_vec())
                .collect()
        });
        close("indexer", outs, 1e-11);

        let scores = random.tensor(rows * stride);
        for k in [1, 64, 2048] {
            let (found, expected) = both(|registry, ctx| {
                let mut index = Tensor::from_i32(vec![-1; rows * k]);
                let mut count = Tensor::from_i32(vec![-1; rows]);
                let args = TopkArgs {
                    scores: scores.at(0),
                    stride,
                    base: base.at(0),
                    slots: own.at(0),
                    index: index.at_mut(0),
                    count: count.at_mut(0),
                    rows,
                    k,
                };
                registry.run::<DsaTopkSelect>(ctx, CPU, args).expect("runs");
                let index = index.at(0).i32(rows * k).expect("i32");
                let count = count.at(0).i32(rows).expect("i32");
                index.iter().chain(count).map(|v| *v as f32).collect()
            });
            assert_eq!(found, expected, "k {k}");
        }
    }
}

#[test]
fn norms_rope_and_cache_writes() {
    let (rows, lora, q_lora) = (19, 40, 72);
    let mut random = Random(77);
    let table = RopeTable {
        dim: 16,
        freq: (0..8).map(|j| 0.3_f32.powi(j)).collect(),
    };
    let pos = Tensor::from_i32((0..rows).map(|r| 1000 * r as i32 + 7).collect());
    let slots = Tensor::from_i32((0..rows).map(|r| (r as i32 * 5) % 32).collect());
    let (q, kv) = (
        random.tensor(rows * q_lora),
        random.tensor(rows * (lora + 16)),
    );
    let (qw, kw) = (random.tensor(q_lora), random.tensor(lora));
    for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let outs = both(|registry, ctx| {
                let mut q = Tensor::from_f32(values(&q));
                let mut cache =
                    Tensor::zeros(&HostDomain, dtype, 32 * (lora + 16)).expect("memory");
                let args = FusedArgs {
                    q: Some(q.at_mut(0)),
                    q_weight: Some(qw.at(0)),
                    q_lora,
                    kv: kv.at(0),
                    kv_weight: kw.at(0),
                    cache: cache.at_mut(0),
                    slots: slots.at(0),
                    pos: pos.at(0),
                    rows,
                    lora,
                    table: &table,
                    style,
                    eps: 1e-5,
                };
                registry.run::<FusedNormRope>(ctx, CPU, args).expect("runs");
                let mut all = values(&q);
                all.extend(match dtype {
                    DType::F32 => values(&cache),
                    // f16 and bf16 bits
                    _ => cache
                        .at(0)
                        .u16(cache.len())
                        .expect("bits")
                        .iter()
                        .map(|b| {
                            if dtype == DType::F16 {
                                f16::from_bits(*b).to_f32()
                            } else {
                                half::bf16::from_bits(*b).to_f32()
                            }
                        })
                        .collect(),
                });
                all
            });
            // One unit of the cache's type may differ where f32 values differ by their last digit.
            let limit = if dtype == DType::F32 { 1e-12 } else { 1e-7 };
            close("fused", outs, limit);
        }
        let x = random.tensor(rows * 100);
        let outs = both(|registry, ctx| {
            let mut x = Tensor::from_f32(values(&x));
            let args = RopeArgs {
                x: x.at_mut(0),
                rows,
                heads: 3,
                row_stride: 100,
                head_stride: 30,
                offset: 9,
                table: &table,
                style,
                pos: pos.at(0),
            };
            registry.run::<Rope>(ctx, CPU, args).expect("runs");
            values(&x)
        });
        close("rope", outs, 1e-12);
    }
    let outs = both(|registry, ctx| {
        let mut cache = Tensor::zeros(&HostDomain, DType::F32, 32 * 56).expect("memory");
        let args = ConcatArgs {
            latent: kv.at(0),
            k_pe: kv.at(0),
            pe_stride: 56,
            pe_offset: 40,
            cache: cache.at_mut(0),
            slots: slots.at(0),
            rows,
            lora: 40,
            rope: 16,
        };
        registry
            .run::<ConcatAndCacheMla>(ctx, CPU, args)
            .expect("runs");
        values(&cache)
    });
    assert_eq!(outs.0, outs.1);
}

#[test]
fn rows_and_elements() {
    let mut random = Random(99);
    let (rows, dim) = (17, 130);
    let (x, y) = (random.tensor(rows * dim), random.tensor(rows * dim));
    let (w, b) = (random.tensor(dim), random.tensor(dim));
    close(
        "rms",
        both(|registry, ctx| {
            let mut out = Tensor::from_f32(vec![0.0; rows * 100]);
            let args = RmsNormArgs {
                x: x.at(0),
                x_stride: dim,
                weight: w.at(0),
                out: out.at_mut(0),
                rows,
                dim: 100,
                eps: 1e-5,
            };
            registry.run::<RmsNorm>(ctx, CPU, args).expect("runs");
            values(&out)
        }),
        1e-12,
    );
    close(
        "layer norm",
        both(|registry, ctx| {
            let mut x = Tensor::from_f32(values(&x));
            let args = LayerNormArgs {
                x: x.at_mut(0),
                weight: w.at(0),
                bias: b.at(0),
                rows,
                dim,
                eps: 1e-6,
            };
            registry.run::<LayerNorm>(ctx, CPU, args).expect("runs");
            values(&x)
        }),
        1e-12,
    );
    close(
        "silu",
        both(|registry, ctx| {
            let mut gate = Tensor::from_f32(values(&x).iter().map(|v| v * 20.0).collect());
            let args = SiluMulArgs {
                gate: gate.at_mut(0),
                up: y.at(0),
                n: rows * dim,
            };
            registry.run::<SiluMul>(ctx, CPU, args).expect("runs");
            values(&gate)
        }),
        1e-12,
    );
    let outs = both(|registry, ctx| {
        let mut x = Tensor::from_f32(values(&x));
        let args = AddArgs {
            x: x.at_mut(0),
            y: y.at(0),
            n: rows * dim,
        };
        registry.run::<Add>(ctx, CPU, args).expect("runs");
        values(&x)
    });
    assert_eq!(outs.0, outs.1);
    let special = Tensor::from_f32(vec![
        f32::NAN,
        1.0,
        2.0,
        2.0,
        -1.0,
        f32::NEG_INFINITY,
        f32::NAN,
        -5.0,
    ]);
    for (t, rows, n) in [(&x, rows, dim), (&special, 2, 4), (&special, 1, 8)] {
        let outs = both(|registry, ctx| {
            let mut out = Tensor::from_i32(vec![-1; rows]);
            let args = ArgmaxArgs {
                x: t.at(0),
                out: out.at_mut(0),
                rows,
                n,
            };
            registry.run::<Argmax>(ctx, CPU, args).expect("runs");
            out.at(0)
                .i32(rows)
                .expect("i32")
                .iter()
                .map(|v| *v as f32)
                .collect()
        });
        assert_eq!(outs.0, outs.1);
    }
    let table = random.weight(BlockType::Q4_K, 256, 9, 1);
    let ids = Tensor::from_i32(vec![8, 0, 3, 3]);
    let outs = both(|registry, ctx| {
        let mut out = Tensor::from_f32(vec![0.0; 4 * 256]);
        let args = EmbedArgs {
            table: &table,
            ids: ids.at(0),
            out: out.at_mut(0),
            rows: 4,
        };
        registry.run::<Embed>(ctx, CPU, args).expect("runs");
        values(&out)
    });
    assert_eq!(outs.0, outs.1);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut random = Random(123);
    let (rows, dim, ff, experts, top_k) = (9, 256, 256, 4, 2);
    let gate = random.weight(BlockType::IQ1_S, dim, ff, experts);
    let down = random.weight(BlockType::IQ3_XXS, ff, dim, experts);
    let (x, weights) = (random.tensor(rows * dim), random.tensor(rows * top_k));
    let ids = Tensor::from_i32((0..rows * top_k).map(|i| (i % experts) as i32).collect());
    let run = |threads, rows| {
        let registry = Registry::new(Knobs::default(), TierChoice::NativeOnly);
        let pool = Pool::new(threads);
        let mut ctx = Ctx {
            pool: &pool,
            device: None,
        };
        let mut out = Tensor::from_f32(vec![0.0; rows * dim]);
        let args = MoeExpertsArgs {
            x: x.at(0),
            ids: ids.at(0),
            weights: weights.at(0),
            gate: &gate,
            up: Some(&gate),
            down: &down,
            out: out.at_mut(0),
            rows,
            dim,
            ff,
            top_k,
        };
        registry
            .run::<MoeExperts>(&mut ctx, CPU, args)
            .expect("runs");
        values(&out)
    };
    for rows in [1, 2, 9] {
        assert!(run(1, rows) == run(3, rows), "{rows} rows");
    }
}
