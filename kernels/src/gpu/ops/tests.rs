//! Every kernel against the reference tier, on random inputs with tails: on the host fibres, or on the hardware that
//! `LEGWORK_TEST_DEVICE=rocm|cuda` names (`LEGWORK_TEST_KERNELS` is a folder of code objects for it).

use crate::blocks::{BlockType, decode};
use crate::cpu::Pool;
use crate::device::DeviceKind;
use crate::gpu::Gpu;
use crate::knobs::Knobs;
use crate::ops::{self, Ctx, Gating, MatPart, Op, OpError, RopeStyle, RopeTable, Selection};
use crate::registry::{Registry, TierChoice};
use crate::simt::SimtDriver;
use crate::tensor::{DType, HostDomain, MemoryDomain, Tensor, Weight, WeightData};
use std::sync::Arc;

/// A linear congruential generator: the tests need spread, not randomness.
struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
    /// Roughly normal, variance 1.
    fn normal(&mut self) -> f32 {
        (0..6)
            .map(|_| self.next() as f32 / 2f32.powi(31) - 0.5)
            .sum::<f32>()
            * std::f32::consts::SQRT_2
    }
    fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

/// Two sides of a comparison: the reference tier on the host, the kernels on the fibres.
struct Bench {
    host: Registry,
    device: Registry,
    pool: Pool,
    gpu: Gpu,
    /// The fibres' driver, unless the tests run on hardware.
    simt: Option<Arc<SimtDriver>>,
    rng: Rng,
}

/// The same tensor on both sides.
struct Pair {
    host: Tensor,
    device: Tensor,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let named = std::env::var("LEGWORK_TEST_DEVICE").unwrap_or_default();
        let kernels = std::env::var_os("LEGWORK_TEST_KERNELS").map(std::path::PathBuf::from);
        let open = |kind| Gpu::open(kind, &Knobs::default(), kernels.as_deref()).unwrap();
        let (gpu, simt) = match named.as_str() {
            "rocm" => (open(DeviceKind::Rocm), None),
            "cuda" => (open(DeviceKind::Cuda), None),
            "" | "simt" => {
                let driver = Arc::new(SimtDriver::new(seed));
                (
                    Gpu::with_driver(driver.clone(), None).unwrap(),
                    Some(driver),
                )
            }
            other => panic!("LEGWORK_TEST_DEVICE={other}"),
        };
        let mut device = Registry::empty(Knobs::default(), TierChoice::NativeOnly);
        crate::gpu::register(&mut device, gpu.kind());
        device.set_memory(gpu.kind(), gpu.memory_facts());
        Bench {
            host: Registry::new(Knobs::default(), TierChoice::ReferenceOnly),
            device,
            pool: Pool::new(1),
            gpu,
            simt,
            rng: Rng(seed * 77 + 5),
        }
    }

    fn f32(&mut self, values: Vec<f32>) -> Pair {
        let mut device = Tensor::zeros(&self.gpu.domain(), DType::F32, values.len()).unwrap();
        device.write_f32(0, &values).unwrap();
        Pair {
            host: Tensor::from_f32(values),
            device,
        }
    }

    fn random(&mut self, n: usize) -> Pair {
        let values = self.rng.normals(n);
        self.f32(values)
    }

    fn i32(&mut self, values: Vec<i32>) -> Pair {
        let mut device = Tensor::zeros(&self.gpu.domain(), DType::I32, values.len()).unwrap();
        device.write_i32(0, &values).unwrap();
        Pair {
            host: Tensor::from_i32(values),
            device,
        }
    }

    /// Zeroes of any type.
    fn zeros(&mut self, dtype: DType, n: usize) -> Pair {
        Pair {
            host: Tensor::zeros(&HostDomain, dtype, n).unwrap(),
            device: Tensor::zeros(&self.gpu.domain(), dtype, n).unwrap(),
        }
    }

    fn weight(
        &mut self,
        ty: BlockType,
        n_in: usize,
        n_out: usize,
        n_mat: usize,
    ) -> (Weight, Weight) {
        let bytes = random_blocks(&mut self.rng, ty, n_in * n_out * n_mat);
        let memory = self
            .gpu
            .domain()
            .weight(&bytes, &format!("weight {ty}"))
            .unwrap();
        let weight = |data| Weight {
            name: format!("test.{ty}"),
            ty,
            n_in,
            n_out,
            n_mat,
            data,
        };
        let len = bytes.len();
        (
            weight(WeightData::Host {
                bytes: Arc::new(bytes),
                offset: 0,
                len,
            }),
            weight(WeightData::Device(memory)),
        )
    }

    fn on_host<O: Op>(&mut self, args: O::Args<'_>) {
        self.host
            .run::<O>(
                &mut Ctx {
                    pool: &self.pool,
                    device: None,
                },
                DeviceKind::Cpu,
                args,
            )
            .unwrap();
    }

    fn on_device<O: Op>(&mut self, args: O::Args<'_>) -> Result<(), OpError> {
        let kind = self.gpu.kind();
        self.device.run::<O>(
            &mut Ctx {
                pool: &self.pool,
                device: Some(&mut self.gpu),
            },
            kind,
            args,
        )
    }
}

impl Pair {
    fn read(&self) -> (Vec<f32>, Vec<f32>) {
        let (mut a, mut b) = (vec![0.0; self.host.len()], vec![0.0; self.host.len()]);
        self.host.read_f32(0, &mut a).unwrap();
        self.device.read_f32(0, &mut b).unwrap();
        (a, b)
    }

    fn read_i32(&self) -> (Vec<i32>, Vec<i32>) {
        let (mut a, mut b) = (vec![0; self.host.len()], vec![0; self.host.len()]);
        self.host.read_i32(0, &mut a).unwrap();
        self.device.read_i32(0, &mut b).unwrap();
        (a, b)
    }

    /// Normalised mean square error of the device's values.
    fn nmse(&self) -> f64 {
        let (want, have) = self.read();
        nmse(&want, &have)
    }

    fn assert_close(&self, limit: f64, what: &str) {
        let error = self.nmse();
        assert!(error <= limit, "{what}: NMSE {error:e} is above {limit:e}");
    }
}

fn nmse(want: &[f32], have: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let error: f64 = want
        .iter()
        .zip(have)
        .map(|(w, h)| square(f64::from(*w) - f64::from(*h)))
        .sum();
    let scale: f64 = want.iter().map(|w| square(f64::from(*w))).sum();
    error / scale.max(1e-30)
}

/// Random bytes with scales of ordinary size.
fn random_blocks(rng: &mut Rng, ty: BlockType, n: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n / ty.block_len() * ty.block_bytes())
        .map(|_| rng.next() as u8)
        .collect();
    let halves: &[usize] = match ty {
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
        BlockType::Q2_K => &[80, 82],
        BlockType::Q3_K => &[108],
        BlockType::Q6_K => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        let v = 0.01 + 0.02 * (rng.next() % 1000) as f32 / 1000.0;
        match ty {
            BlockType::F32 => block.copy_from_slice(&rng.normal().to_le_bytes()),
            BlockType::F16 => {
                block.copy_from_slice(&half::f16::from_f32(rng.normal()).to_le_bytes())
            }
            BlockType::BF16 => {
                block.copy_from_slice(&half::bf16::from_f32(rng.normal()).to_le_bytes())
            }
            BlockType::MXFP4 => block[0] = 118 + (rng.next() % 8) as u8,
            BlockType::IQ1_M => {
                let bits = half::f16::from_f32(v).to_bits();
                for w in 0..4 {
                    let high = &mut block[48 + 2 * w + 1];
                    *high = *high & 0x0f | ((bits >> (4 * w)) as u8 & 0xf) << 4;
                }
            }
            _ => {
                for at in halves {
                    block[*at..at + 2].copy_from_slice(&half::f16::from_f32(v).to_le_bytes());
                }
            }
        }
    }
    bytes
}

const TYPES: [BlockType; 23] = [
    BlockType::F32,
    BlockType::F16,
    BlockType::BF16,
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q8_0,
    BlockType::Q2_K,
    BlockType::Q3_K,
    BlockType::Q4_K,
    BlockType::Q5_K,
    BlockType::Q6_K,
    BlockType::IQ2_XXS,
    BlockType::IQ2_XS,
    BlockType::IQ3_XXS,
    BlockType::IQ1_S,
    BlockType::IQ4_NL,
    BlockType::IQ3_S,
    BlockType::IQ2_S,
    BlockType::IQ4_XS,
    BlockType::IQ1_M,
    BlockType::MXFP4,
];

#[test]
fn argument_structs_have_the_sizes_that_the_kernels_were_compiled_with() {
    use crate::gpu::args as a;
    let driver = SimtDriver::new(1);
    let mut seen = 0;
    for (name, size, threads) in driver.kernels().filter(|k| !k.0.starts_with("selftest")) {
        let want = match name.split('_').next().unwrap_or_default() {
            "embed" => size_of::<a::EmbedArgs>(),
            "mmv1" | "mmv4" => size_of::<a::MmvArgs>(),
            "gemm" => size_of::<a::GemmArgs>(),
            _ => match name {
                "rms_norm" | "layer_norm" => size_of::<a::NormArgs>(),
                "quantize_q8" => size_of::<a::QuantizeArgs>(),
                "rms_norm_q8" => size_of::<a::NormQ8Args>(),
                "silu_mul_q8" => size_of::<a::EltQ8Args>(),
                "add" | "silu_mul" => size_of::<a::EltArgs>(),
                "rope" => size_of::<a::RopeArgs>(),
                "fused_norm_rope" => size_of::<a::FusedArgs>(),
                "cache_rows" => size_of::<a::CacheArgs>(),
                "mla_attention" | "mla_attention_mma" | "mla_merge" => size_of::<a::MlaArgs>(),
                "indexer_logits" => size_of::<a::IndexerArgs>(),
                "topk_select" => size_of::<a::TopkArgs>(),
                "moe_route" => size_of::<a::RouteArgs>(),
                "moe_sort" => size_of::<a::SortArgs>(),
                "moe_combine" => size_of::<a::CombineArgs>(),
                "argmax" => size_of::<a::ArgmaxArgs>(),
                other => panic!("{other} has no Rust twin"),
            },
        };
        assert_eq!(size as usize, want, "{name}");
        assert!(threads.is_multiple_of(32) && threads <= 1024, "{name}");
        seen += 1;
    }
    assert!(seen >= 4 * 23, "{seen} kernels");
}

#[test]
fn embedding_decodes_every_type() {
    let mut b = Bench::new(1);
    for ty in TYPES {
        let (host, device) = b.weight(ty, 512, 5, 1);
        let ids = b.i32(vec![4, 0, 3]);
        let mut out = b.zeros(DType::F32, 3 * 512);
        b.on_host::<ops::Embed>(ops::EmbedArgs {
            table: &host,
            ids: ids.host.at(0),
            out: out.host.at_mut(0),
            rows: 3,
        });
        b.on_device::<ops::Embed>(ops::EmbedArgs {
            table: &device,
            ids: ids.device.at(0),
            out: out.device.at_mut(0),
            rows: 3,
        })
        .unwrap();
        out.assert_close(1e-12, ty.name());
    }
}

fn matmul(b: &mut Bench, ty: BlockType, n_in: usize, n_out: usize, rows: usize) -> f64 {
    let (host, device) = b.weight(ty, n_in, n_out, 1);
    let x = b.random(rows * n_in);
    let mut out = b.random(rows * n_out); // accumulated onto
    let parts = vec![MatPart {
        weight: &host,
        out: out.host.at_mut(0),
        accumulate: true,
    }];
    b.on_host::<ops::MatmulQuant>(ops::MatmulArgs {
        x: x.host.at(0),
        rows,
        parts,
    });
    let parts = vec![MatPart {
        weight: &device,
        out: out.device.at_mut(0),
        accumulate: true,
    }];
    b.on_device::<ops::MatmulQuant>(ops::MatmulArgs {
        x: x.device.at(0),
        rows,
        parts,
    })
    .unwrap();
    out.nmse()
}

#[test]
fn products_of_few_rows_in_every_type() {
    let mut b = Bench::new(2);
    for ty in TYPES {
        let limit = if matches!(ty, BlockType::F32 | BlockType::F16 | BlockType::BF16) {
            1e-10
        } else {
            5e-4
        };
        for rows in [1, 5] {
            let error = matmul(&mut b, ty, 768, 37, rows);
            assert!(error <= limit, "{ty}, {rows} rows: NMSE {error:e}");
        }
    }
    // a row that is no multiple of the wave's stride, in a type of 32
    assert!(matmul(&mut b, BlockType::Q8_0, 192, 3, 2) <= 5e-4);
}

#[test]
fn products_of_many_rows_in_every_type() {
    let mut b = Bench::new(3);
    for ty in TYPES {
        let limit = if ty == BlockType::F32 { 1e-10 } else { 1e-6 };
        let error = matmul(&mut b, ty, 256, 70, 66);
        assert!(error <= limit, "{ty}: NMSE {error:e}");
    }
    assert!(matmul(&mut b, BlockType::Q8_0, 224, 9, 9) <= 1e-6);
}

#[test]
fn one_activation_meets_several_matrices() {
    let mut b = Bench::new(4);
    let x = b.random(2 * 256);
    let (wa, wb) = (
        b.weight(BlockType::Q6_K, 256, 6, 1),
        b.weight(BlockType::F32, 256, 3, 1),
    );
    let (mut oa, mut ob) = (b.zeros(DType::F32, 12), b.zeros(DType::F32, 6));
    let part = |weight, out| MatPart {
        weight,
        out,
        accumulate: false,
    };
    b.on_host::<ops::MatmulQuant>(ops::MatmulArgs {
        x: x.host.at(0),
        rows: 2,
        parts: vec![
            part(&wa.0, oa.host.at_mut(0)),
            part(&wb.0, ob.host.at_mut(0)),
        ],
    });
    b.on_device::<ops::MatmulQuant>(ops::MatmulArgs {
        x: x.device.at(0),
        rows: 2,
        parts: vec![
            part(&wa.1, oa.device.at_mut(0)),
            part(&wb.1, ob.device.at_mut(0)),
        ],
    })
    .unwrap();
    oa.assert_close(5e-4, "Q6_K");
    ob.assert_close(1e-10, "F32");
}

#[test]
fn norms_and_element_wise_operations() {
    let mut b = Bench::new(5);
    let (rows, dim, stride) = (3, 301, 310);
    let (x, w, bias) = (b.random(rows * stride), b.random(dim), b.random(dim));
    let mut out = b.zeros(DType::F32, rows * dim);
    macro_rules! rms {
        ($side:ident) => {
            ops::RmsNormArgs {
                x: x.$side.at(0),
                x_stride: stride,
                weight: w.$side.at(0),
                out: out.$side.at_mut(0),
                rows,
                dim,
                eps: 1e-5,
            }
        };
    }
    b.on_host::<ops::RmsNorm>(rms!(host));
    b.on_device::<ops::RmsNorm>(rms!(device)).unwrap();
    out.assert_close(1e-12, "rms_norm");

    let mut y = b.random(rows * dim);
    macro_rules! layer {
        ($side:ident) => {
            ops::LayerNormArgs {
                x: y.$side.at_mut(0),
                weight: w.$side.at(0),
                bias: bias.$side.at(0),
                rows,
                dim,
                eps: 1e-6,
            }
        };
    }
    b.on_host::<ops::LayerNorm>(layer!(host));
    b.on_device::<ops::LayerNorm>(layer!(device)).unwrap();
    y.assert_close(1e-12, "layer_norm");

    let n = rows * dim;
    macro_rules! add {
        ($side:ident) => {
            ops::AddArgs {
                x: out.$side.at_mut(0),
                y: y.$side.at(0),
                n,
            }
        };
    }
    b.on_host::<ops::Add>(add!(host));
    b.on_device::<ops::Add>(add!(device)).unwrap();
    out.assert_close(1e-12, "add");

    macro_rules! silu {
        ($side:ident) => {
            ops::SiluMulArgs {
                gate: out.$side.at_mut(0),
                up: y.$side.at(0),
                n,
            }
        };
    }
    b.on_host::<ops::SiluMul>(silu!(host));
    b.on_device::<ops::SiluMul>(silu!(device)).unwrap();
    out.assert_close(1e-12, "silu_mul");
}

#[test]
fn argmax_takes_the_lower_index_and_finds_nan() {
    let mut b = Bench::new(6);
    let n = 700;
    let mut values = b.rng.normals(5 * n);
    (values[650], values[130]) = (50.0, 50.0);
    values[n + 3] = f32::NAN;
    (values[n + 1], values[n + 690]) = (f32::INFINITY, f32::INFINITY);
    values[2 * n..3 * n].fill(f32::NEG_INFINITY);
    values[3 * n..4 * n].fill(f32::NAN);
    values[4 * n..].fill(f32::NEG_INFINITY);
    values[5 * n - 1] = -3e38;
    let x = b.f32(values);
    let mut out = b.i32(vec![9; 5]);
    macro_rules! args {
        ($side:ident) => {
            ops::ArgmaxArgs {
                x: x.$side.at(0),
                out: out.$side.at_mut(0),
                rows: 5,
                n,
            }
        };
    }
    b.on_host::<ops::Argmax>(args!(host));
    b.on_device::<ops::Argmax>(args!(device)).unwrap();
    let (want, have) = out.read_i32();
    assert_eq!(have, [130, -1, -1, -1, 699]);
    assert_eq!(want, have);
}

fn table(pairs: usize) -> RopeTable {
    let freq = (0..pairs)
        .map(|j| 8e6f32.powf(-(j as f32) / pairs as f32))
        .collect();
    RopeTable {
        dim: 2 * pairs,
        freq,
    }
}

#[test]
fn rope_turns_heads_in_both_styles_at_far_positions() {
    let mut b = Bench::new(7);
    let table = table(32);
    for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
        let (rows, heads, head) = (3, 2, 80);
        let mut x = b.random(rows * heads * head);
        let pos = b.i32(vec![0, 77, 1_048_575]);
        macro_rules! args {
            ($side:ident) => {
                ops::RopeArgs {
                    x: x.$side.at_mut(0),
                    rows,
                    heads,
                    row_stride: heads * head,
                    head_stride: head,
                    offset: 16,
                    table: &table,
                    style,
                    pos: pos.$side.at(0),
                }
            };
        }
        b.on_host::<ops::Rope>(args!(host));
        b.on_device::<ops::Rope>(args!(device)).unwrap();
        x.assert_close(1e-12, "rope");
    }
}

/// A cache's content as f32, which both sides hold in its own type.
fn cache_values(b: &mut Bench, cache: &Pair, width: usize) -> (Vec<f32>, Vec<f32>) {
    if cache.host.dtype() == DType::F32 {
        return cache.read();
    }
    let n = cache.host.len();
    let host: Vec<u16> = cache.host.at(0).u16(n).unwrap().to_vec();
    let address = cache.device.at(0).device_address(n).unwrap();
    let mut bytes = vec![0u8; n * 2];
    b.gpu.driver().download(&mut bytes, address).unwrap();
    let device: Vec<u16> = bytes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|c| u16::from_le_bytes(*c))
        .collect();
    let value = |bits: &u16| match cache.host.dtype() {
        DType::F16 => half::f16::from_bits(*bits).to_f32(),
        _ => half::bf16::from_bits(*bits).to_f32(),
    };
    assert!(n.is_multiple_of(width));
    (
        host.iter().map(value).collect(),
        device.iter().map(value).collect(),
    )
}

#[test]
fn the_fused_operation_writes_the_cache_that_its_parts_write() {
    let mut b = Bench::new(8);
    let (rows, q_lora, lora) = (3, 96, 64);
    let table = table(16);
    let width = lora + 32;
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let (mut q, q_w) = (b.random(rows * q_lora), b.random(q_lora));
        let (kv, kv_w) = (b.random(rows * width), b.random(lora));
        let mut cache = b.zeros(dtype, 7 * width);
        let (slots, pos) = (b.i32(vec![6, 2, 0]), b.i32(vec![5, 1, 9]));
        macro_rules! args {
            ($side:ident) => {
                ops::FusedArgs {
                    q: Some(q.$side.at_mut(0)),
                    q_weight: Some(q_w.$side.at(0)),
                    q_lora,
                    kv: kv.$side.at(0),
                    kv_weight: kv_w.$side.at(0),
                    cache: cache.$side.at_mut(0),
                    slots: slots.$side.at(0),
                    pos: pos.$side.at(0),
                    rows,
                    lora,
                    table: &table,
                    style: RopeStyle::Interleaved,
                    eps: 1e-5,
                }
            };
        }
        b.on_host::<ops::FusedNormRope>(args!(host));
        b.on_device::<ops::FusedNormRope>(args!(device)).unwrap();
        q.assert_close(1e-12, "q");
        let (want, have) = cache_values(&mut b, &cache, width);
        // a half may round the other way where the f32 values differ in the last bit
        assert!(
            nmse(&want, &have) <= if dtype == DType::F32 { 1e-12 } else { 1e-6 },
            "{dtype:?}"
        );

        let (latent, pe) = (b.random(rows * lora), b.random(rows * 40));
        macro_rules! concat {
            ($side:ident) => {
                ops::ConcatArgs {
                    latent: latent.$side.at(0),
                    k_pe: pe.$side.at(0),
                    pe_stride: 40,
                    pe_offset: 8,
                    cache: cache.$side.at_mut(0),
                    slots: slots.$side.at(0),
                    rows,
                    lora,
                    rope: 32,
                }
            };
        }
        b.on_host::<ops::ConcatAndCacheMla>(concat!(host));
        b.on_device::<ops::ConcatAndCacheMla>(concat!(device))
            .unwrap();
        macro_rules! rows_ {
            ($side:ident) => {
                ops::CacheRowsArgs {
                    x: kv.$side.at(0),
                    cache: cache.$side.at_mut(width),
                    slots: slots.$side.at(1),
                    rows: 2,
                    dim: width,
                }
            };
        }
        b.on_host::<ops::CacheRows>(rows_!(host));
        b.on_device::<ops::CacheRows>(rows_!(device)).unwrap();
        let (want, have) = cache_values(&mut b, &cache, width);
        assert!(
            nmse(&want, &have) <= if dtype == DType::F32 { 1e-12 } else { 1e-6 },
            "{dtype:?}"
        );
    }
}

struct Shape {
    rows: usize,
    heads: usize,
    nope: usize,
    rope: usize,
    lora: usize,
    v_dim: usize,
    keys: usize,
    ty: BlockType,
    dtype: DType,
    sparse: Option<usize>,
    /// With sinks.
    window: Option<usize>,
    splits: Option<i32>,
}

fn attention(b: &mut Bench, s: &Shape) -> f64 {
    let (head, width) = (s.nope + s.rope, s.lora + s.rope);
    let first = 3; // the sequence begins at slot 3
    let q = b.random(s.rows * s.heads * head);
    let (k_b, v_b) = (
        b.weight(s.ty, s.nope, s.lora, s.heads),
        b.weight(s.ty, s.lora, s.v_dim, s.heads),
    );
    let slot_end = first + s.keys;
    let mut cache = b.zeros(s.dtype, slot_end * width);
    let values = b.random(slot_end * width);
    let all = b.i32((0..slot_end as i32).collect());
    macro_rules! fill {
        ($side:ident) => {
            ops::CacheRowsArgs {
                x: values.$side.at(0),
                cache: cache.$side.at_mut(0),
                slots: all.$side.at(0),
                rows: slot_end,
                dim: width,
            }
        };
    }
    b.on_host::<ops::CacheRows>(fill!(host));
    b.on_device::<ops::CacheRows>(fill!(device)).unwrap();
    let base = b.i32(vec![first as i32; s.rows]);
    let own: Vec<i32> = (0..s.rows)
        .map(|r| (slot_end - s.rows + r) as i32)
        .collect();
    let slots = b.i32(own.clone());
    let (index, count) = match s.sparse {
        None => (b.i32(vec![0]), b.i32(vec![0])),
        Some(k) => {
            let (mut index, mut count) = (Vec::new(), Vec::new());
            for own in &own {
                let n = (*own as usize - first + 1).min(k);
                let mut chosen: Vec<i32> = Vec::new();
                while chosen.len() < n {
                    let c = b.rng.below(*own as usize - first + 1) as i32;
                    if !chosen.contains(&c) {
                        chosen.push(c);
                    }
                }
                chosen.sort_unstable();
                chosen.resize(k, -1);
                index.extend(chosen);
                count.push(n as i32);
            }
            (b.i32(index), b.i32(count))
        }
    };
    let sinks = b.random(s.heads);
    let mut out = b.zeros(DType::F32, s.rows * s.heads * s.v_dim);
    let mut lse = b.zeros(DType::F32, s.rows * s.heads);
    b.gpu.splits = s.splits;
    macro_rules! args {
        ($side:ident, $k:expr, $v:expr) => {
            ops::MlaArgs {
                q: q.$side.at(0),
                k_b: $k,
                v_b: $v,
                cache: cache.$side.at(0),
                base: base.$side.at(0),
                slots: slots.$side.at(0),
                slot_end,
                selection: s.sparse.map(|k| Selection {
                    index: index.$side.at(0),
                    count: count.$side.at(0),
                    k,
                }),
                window: s.window,
                sinks: s.window.map(|_| sinks.$side.at(0)),
                lse: Some(lse.$side.at_mut(0)),
                out: out.$side.at_mut(0),
                rows: s.rows,
                heads: s.heads,
                nope: s.nope,
                rope: s.rope,
                lora: s.lora,
                v_dim: s.v_dim,
                scale: 0.09,
            }
        };
    }
    b.on_host::<ops::MlaDecodeAttention>(args!(host, &k_b.0, &v_b.0));
    b.on_device::<ops::MlaDecodeAttention>(args!(device, &k_b.1, &v_b.1))
        .unwrap();
    let decode = out.nmse().max(lse.nmse());
    b.on_device::<ops::MlaPrefillAttention>(args!(device, &k_b.1, &v_b.1))
        .unwrap();
    decode.max(out.nmse()).max(lse.nmse())
}

#[test]
fn attention_dense_and_sparse_in_both_forms() {
    let mut b = Bench::new(9);
    let plain = Shape {
        rows: 2,
        heads: 10,
        nope: 48,
        rope: 16,
        lora: 96,
        v_dim: 20,
        keys: 45,
        ty: BlockType::F32,
        dtype: DType::F32,
        sparse: None,
        window: None,
        splits: Some(1),
    };
    for (splits, sparse, window) in [
        (Some(1), None, None),
        (Some(5), None, None),
        (Some(1), Some(17), None),
        (Some(3), Some(17), None),
        (None, None, None),
        (Some(7), Some(4), None),
        (Some(1), None, Some(9)),
        (Some(3), None, Some(44)),
        (Some(2), None, Some(1)),
    ] {
        let error = attention(
            &mut b,
            &Shape {
                splits,
                sparse,
                window,
                ..plain
            },
        );
        assert!(
            error <= 1e-10,
            "splits {splits:?}, sparse {sparse:?}, window {window:?}: NMSE {error:e}"
        );
    }
    // the tiled products of many rows, 16-bit caches, blocks
    let error = attention(
        &mut b,
        &Shape {
            rows: 11,
            ty: BlockType::F16,
            dtype: DType::F16,
            ..plain
        },
    );
    assert!(error <= 1e-5, "f16: NMSE {error:e}");
    // matrix units: few keys, more keys than a tile, splits that hold less than one
    for (keys, splits, sparse, window, dtype) in [
        (3, Some(1), None, None, DType::F16),
        (45, Some(5), None, None, DType::F16),
        (45, Some(2), Some(17), None, DType::BF16),
        (45, Some(1), None, Some(19), DType::F16),
        (45, Some(3), None, Some(30), DType::BF16),
    ] {
        let error = attention(
            &mut b,
            &Shape {
                keys,
                splits,
                sparse,
                window,
                dtype,
                heads: 18,
                ..plain
            },
        );
        assert!(
            error <= 1e-5,
            "{keys} keys, {splits:?} splits: NMSE {error:e}"
        );
    }
    for rows in [1, 9] {
        let error = attention(
            &mut b,
            &Shape {
                rows,
                nope: 192,
                lora: 128,
                ty: BlockType::Q8_0,
                dtype: DType::BF16,
                ..plain
            },
        );
        assert!(error <= 5e-4, "Q8_0, {rows} rows: NMSE {error:e}");
    }
}

/// GLM-5.2's own widths, few keys.
#[test]
fn attention_at_the_real_widths() {
    let mut b = Bench::new(10);
    let shape = Shape {
        rows: 1,
        heads: 16,
        nope: 192,
        rope: 64,
        lora: 512,
        v_dim: 256,
        keys: 30,
        ty: BlockType::Q8_0,
        dtype: DType::F16,
        sparse: Some(11),
        window: None,
        splits: Some(2),
    };
    let error = attention(&mut b, &shape);
    assert!(error <= 5e-4, "NMSE {error:e}");
}

#[test]
fn indexer_scores_follow_the_formula() {
    let mut b = Bench::new(11);
    for (heads, dim, dtype, limit) in [
        (32, 128, DType::F32, 1e-10),
        (5, 64, DType::F16, 1e-10),
        (64, 96, DType::BF16, 1e-10),
    ] {
        let (rows, keys) = (3, 70);
        let (q, w) = (b.random(rows * heads * dim), b.random(rows * heads));
        let values = b.random(keys * dim);
        let all = b.i32((0..keys as i32).collect());
        let mut cache = b.zeros(dtype, keys * dim);
        macro_rules! fill {
            ($side:ident) => {
                ops::CacheRowsArgs {
                    x: values.$side.at(0),
                    cache: cache.$side.at_mut(0),
                    slots: all.$side.at(0),
                    rows: keys,
                    dim,
                }
            };
        }
        b.on_host::<ops::CacheRows>(fill!(host));
        b.on_device::<ops::CacheRows>(fill!(device)).unwrap();
        let (base, slots) = (b.i32(vec![2, 2, 0]), b.i32(vec![5, 69, 66]));
        let mut out = b.f32(vec![7.0; rows * 80]); // what is not written stays
        macro_rules! args {
            ($side:ident) => {
                ops::IndexerArgs {
                    q: q.$side.at(0),
                    weights: w.$side.at(0),
                    cache: cache.$side.at(0),
                    base: base.$side.at(0),
                    slots: slots.$side.at(0),
                    out: out.$side.at_mut(0),
                    stride: 80,
                    rows,
                    heads,
                    dim,
                    scale: 1.0 / ((heads * dim) as f32).sqrt(),
                }
            };
        }
        b.on_host::<ops::DsaIndexerLogits>(args!(host));
        b.on_device::<ops::DsaIndexerLogits>(args!(device)).unwrap();
        out.assert_close(limit, "indexer");
    }
}

#[test]
fn selection_is_exact_with_ties_and_odd_values() {
    let mut b = Bench::new(12);
    let (stride, k) = (900, 50);
    let mut values = b.rng.normals(6 * stride);
    values[stride..2 * stride].fill(0.25); // all equal
    for (i, v) in values[2 * stride..3 * stride].iter_mut().enumerate() {
        *v = if i % 3 == 0 {
            0.0
        } else if i % 3 == 1 {
            -0.0
        } else {
            -1.0
        }; // zeroes of both signs tie
    }
    for v in &mut values[3 * stride..4 * stride] {
        *v = (*v * 4.0).round(); // many ties
    }
    for v in &mut values[4 * stride..5 * stride] {
        *v = -v.abs() * 1e-30;
    }
    let scores = b.f32(values);
    let base = b.i32(vec![0, 10, 0, 100, 0, 0]);
    let slots = b.i32(vec![899, 800, 899, 900, 511, 30]); // the last row has fewer than k
    let (mut index, mut count) = (b.i32(vec![-1; 6 * k]), b.i32(vec![-1; 6]));
    macro_rules! args {
        ($side:ident) => {
            ops::TopkArgs {
                scores: scores.$side.at(0),
                stride,
                base: base.$side.at(0),
                slots: slots.$side.at(0),
                index: index.$side.at_mut(0),
                count: count.$side.at_mut(0),
                rows: 6,
                k,
            }
        };
    }
    b.on_host::<ops::DsaTopkSelect>(args!(host));
    b.on_device::<ops::DsaTopkSelect>(args!(device)).unwrap();
    let ((want, have), (want_n, have_n)) = (index.read_i32(), count.read_i32());
    assert_eq!(want_n, have_n);
    assert_eq!(have_n, [50, 50, 50, 50, 50, 31]);
    for (r, n) in have_n.iter().enumerate() {
        let n = *n as usize;
        assert_eq!(want[r * k..r * k + n], have[r * k..r * k + n], "row {r}");
    }
}

#[test]
fn routing_in_every_variant() {
    let mut b = Bench::new(13);
    for (experts, gating, groups, groups_used, bias, norm) in [
        (256, Gating::Sigmoid, 1, 1, true, true),
        (40, Gating::Softmax, 1, 1, false, false),
        (64, Gating::Sigmoid, 8, 3, true, true),
        (16, Gating::Softmax, 4, 1, false, true),
    ] {
        let (rows, top_k) = (5, 4);
        let (logits, bias_t) = (b.random(rows * experts), b.random(experts));
        let (mut ids, mut weights) = (
            b.i32(vec![-1; rows * top_k]),
            b.zeros(DType::F32, rows * top_k),
        );
        macro_rules! args {
            ($side:ident) => {
                ops::MoeRouteArgs {
                    logits: logits.$side.at(0),
                    bias: bias.then(|| bias_t.$side.at(0)),
                    ids: ids.$side.at_mut(0),
                    weights: weights.$side.at_mut(0),
                    rows,
                    experts,
                    top_k,
                    gating,
                    groups,
                    groups_used,
                    norm,
                    scale: 2.5,
                }
            };
        }
        b.on_host::<ops::MoeRoute>(args!(host));
        b.on_device::<ops::MoeRoute>(args!(device)).unwrap();
        let (want, have) = ids.read_i32();
        assert_eq!(want, have, "{experts} experts, {groups} groups");
        weights.assert_close(1e-12, "weights");
    }
}

#[test]
fn experts_by_pairs_and_by_groups() {
    let mut b = Bench::new(14);
    let (dim, ff, experts, top_k) = (256, 256, 5, 2);
    for (rows, fused, up_ty, down_ty) in [
        (2, false, BlockType::IQ1_S, BlockType::IQ3_XXS),
        (40, false, BlockType::IQ2_XXS, BlockType::IQ4_XS),
        (3, true, BlockType::Q8_0, BlockType::Q6_K),
        (10, true, BlockType::F16, BlockType::F32),
    ] {
        let wide = if fused { 2 * ff } else { ff };
        let (gate, up, down) = (
            b.weight(up_ty, dim, wide, experts),
            b.weight(up_ty, dim, ff, experts),
            b.weight(down_ty, ff, dim, experts),
        );
        let x = b.random(rows * dim);
        let chosen: Vec<i32> = (0..rows)
            .flat_map(|_| {
                let e = b.rng.below(experts);
                [e as i32, ((e + 1) % experts) as i32]
            })
            .collect();
        let ids = b.i32(chosen);
        let weights = b.random(rows * top_k);
        let mut out = b.random(rows * dim);
        macro_rules! args {
            ($side:ident, $n:tt) => {
                ops::MoeExpertsArgs {
                    x: x.$side.at(0),
                    ids: ids.$side.at(0),
                    weights: weights.$side.at(0),
                    gate: &gate.$n,
                    up: (!fused).then_some(&up.$n),
                    down: &down.$n,
                    out: out.$side.at_mut(0),
                    rows,
                    dim,
                    ff,
                    top_k,
                }
            };
        }
        b.on_host::<ops::MoeExperts>(args!(host, 0));
        b.on_device::<ops::MoeExperts>(args!(device, 1)).unwrap();
        out.assert_close(1e-3, &format!("{rows} rows of {up_ty} and {down_ty}"));
    }
}

/// A schedule must not change a result: barriers are where they are needed.
#[test]
fn results_do_not_depend_on_the_schedule() {
    let run = |seed| {
        let mut b = Bench::new(15);
        if let Some(driver) = &b.simt {
            driver.set_seed(seed);
        }
        let x = b.random(4 * 900);
        let (base, slots) = (b.i32(vec![0; 4]), b.i32(vec![899, 700, 400, 899]));
        let (mut index, mut count) = (b.i32(vec![-1; 4 * 60]), b.i32(vec![0; 4]));
        b.on_device::<ops::DsaTopkSelect>(ops::TopkArgs {
            scores: x.device.at(0),
            stride: 900,
            base: base.device.at(0),
            slots: slots.device.at(0),
            index: index.device.at_mut(0),
            count: count.device.at_mut(0),
            rows: 4,
            k: 60,
        })
        .unwrap();
        let (w, y) = (b.weight(BlockType::Q5_K, 256, 33, 1), b.random(20 * 256));
        let mut out = b.zeros(DType::F32, 20 * 33);
        b.on_device::<ops::MatmulQuant>(ops::MatmulArgs {
            x: y.device.at(0),
            rows: 20,
            parts: vec![MatPart {
                weight: &w.1,
                out: out.device.at_mut(0),
                accumulate: false,
            }],
        })
        .unwrap();
        (index.read_i32().1, out.read().1)
    };
    let first = run(1);
    assert!(first == run(2) && first == run(0xdead_beef));
}

#[test]
fn a_bad_token_id_is_a_report_with_its_place() {
    let mut b = Bench::new(16);
    if b.simt.is_none() {
        return; // hardware would not survive it
    }
    let (_, table) = b.weight(BlockType::Q8_0, 256, 5, 1);
    let ids = b.i32(vec![1, 5]); // one past the last row
    let mut out = b.zeros(DType::F32, 512);
    let error = b
        .on_device::<ops::Embed>(ops::EmbedArgs {
            table: &table,
            ids: ids.device.at(0),
            out: out.device.at_mut(0),
            rows: 2,
        })
        .unwrap_err();
    let text = error.to_string();
    for part in [
        "Embed on device simt",
        "kernel embed_q8_0: access out of bounds at ",
        "block (1, 0, 0)",
        "a.table (weight Q8_0, 1360 B)",
        "of 680 elements of 2 bytes",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn types_without_a_kernel_are_refused_by_name() {
    let mut b = Bench::new(17);
    let (_, w) = b.weight(BlockType::TQ1_0, 256, 2, 1);
    let x = b.random(256);
    let mut out = b.zeros(DType::F32, 2);
    let parts = vec![MatPart {
        weight: &w,
        out: out.device.at_mut(0),
        accumulate: false,
    }];
    let text = b
        .on_device::<ops::MatmulQuant>(ops::MatmulArgs {
            x: x.device.at(0),
            rows: 1,
            parts,
        })
        .unwrap_err()
        .to_string();
    assert!(text.contains("no kernel for type TQ1_0"), "{text}");
}

/// Blocks of every type decode as the exact decoder says, which the products alone could hide.
#[test]
fn random_blocks_are_finite() {
    let mut rng = Rng(3);
    for ty in TYPES {
        let bytes = random_blocks(&mut rng, ty, 1024);
        let mut out = vec![0.0; 1024];
        decode(ty, &bytes, &mut out).unwrap();
        assert!(out.iter().all(|v| v.is_finite()), "{ty}");
        assert!(out.iter().any(|v| *v != 0.0), "{ty}");
    }
    let _: &dyn MemoryDomain = &HostDomain;
}

/// Activations rounded by the norm, by SiLU or by an earlier product serve later products as long as their source stands; a
/// later operation's or the host's write to it voids them.
#[test]
fn rounded_activations_are_used_only_while_their_source_stands() {
    let mut b = Bench::new(31);
    let (rows, n) = (2, 256);
    let (w_host, w_device) = b.weight(BlockType::Q8_0, n, n, 1);
    let (x, norm) = (b.random(rows * n), b.random(n));
    let (mut h, mut y) = (b.zeros(DType::F32, rows * n), b.zeros(DType::F32, rows * n));
    let other = b.random(rows * n);

    let norm_args = |x, w, out| ops::RmsNormArgs {
        x,
        x_stride: n,
        weight: w,
        out,
        rows,
        dim: n,
        eps: 1e-5,
    };
    b.on_host::<ops::RmsNorm>(norm_args(x.host.at(0), norm.host.at(0), h.host.at_mut(0)));
    b.on_device::<ops::RmsNorm>(norm_args(
        x.device.at(0),
        norm.device.at(0),
        h.device.at_mut(0),
    ))
    .unwrap();
    h.assert_close(1e-6, "norm");
    product(&mut b, (&w_host, &w_device), &h, &mut y, rows);
    y.assert_close(5e-4, "of the norm's rounding");
    product(&mut b, (&w_host, &w_device), &h, &mut y, rows);
    y.assert_close(5e-4, "of the same once more");

    // Another product writes to the source.
    product(&mut b, (&w_host, &w_device), &other, &mut h, rows);
    product(&mut b, (&w_host, &w_device), &h, &mut y, rows);
    y.assert_close(5e-4, "after a product wrote the source");

    // SiLU rounds what it makes.
    let silu = |gate, up| ops::SiluMulArgs {
        gate,
        up,
        n: rows * n,
    };
    b.on_host::<ops::SiluMul>(silu(h.host.at_mut(0), other.host.at(0)));
    b.on_device::<ops::SiluMul>(silu(h.device.at_mut(0), other.device.at(0)))
        .unwrap();
    h.assert_close(1e-3, "silu of a rounded product");
    product(&mut b, (&w_host, &w_device), &h, &mut y, rows);
    y.assert_close(1e-3, "of SiLU's rounding");

    // The host writes to the source.
    let values = b.rng.normals(rows * n);
    h.host.write_f32(0, &values).unwrap();
    h.device.write_f32(0, &values).unwrap();
    product(&mut b, (&w_host, &w_device), &h, &mut y, rows);
    y.assert_close(5e-4, "after the host wrote the source");
}

/// One product on both sides.
fn product(b: &mut Bench, weight: (&Weight, &Weight), x: &Pair, out: &mut Pair, rows: usize) {
    fn args<'a>(
        weight: &'a Weight,
        x: &'a Tensor,
        out: &'a mut Tensor,
        rows: usize,
    ) -> ops::MatmulArgs<'a> {
        ops::MatmulArgs {
            x: x.at(0),
            rows,
            parts: vec![MatPart {
                weight,
                out: out.at_mut(0),
                accumulate: false,
            }],
        }
    }
    b.on_host::<ops::MatmulQuant>(args(weight.0, &x.host, &mut out.host, rows));
    b.on_device::<ops::MatmulQuant>(args(weight.1, &x.device, &mut out.device, rows))
        .unwrap();
}
