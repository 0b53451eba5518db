//! Times the GPU operations on one device beside what its memory gives, and prints a Markdown table.
//!
//! `gpu_bench DEVICE [SCALE] [KERNELS]`: DEVICE is rocm, cuda or simt; SCALE divides the sizes (simt wants 64). Times are
//! medians between events in the device's stream, over buffers that together exceed its caches.

use legwork_kernels::blocks::BlockType;
use legwork_kernels::cpu::Pool;
use legwork_kernels::device::DeviceKind;
use legwork_kernels::gpu::{self, Gpu};
use legwork_kernels::knobs::Knobs;
use legwork_kernels::ops::{self, Ctx, MatPart, Op, OpError, Selection};
use legwork_kernels::registry::{Registry, TierChoice};
use legwork_kernels::tensor::{DType, Tensor, Weight, WeightData};
use std::error::Error;
use std::path::PathBuf;

type R<T> = Result<T, Box<dyn Error>>;

struct Bench {
    registry: Registry,
    pool: Pool,
    gpu: Gpu,
    rng: u64,
}

impl Bench {
    fn run<O: Op>(&mut self, args: O::Args<'_>) -> Result<(), OpError> {
        let kind = self.gpu.kind();
        self.registry.run::<O>(
            &mut Ctx {
                pool: &self.pool,
                device: Some(&mut self.gpu),
            },
            kind,
            args,
        )
    }

    fn random(&mut self) -> u32 {
        self.rng = self
            .rng
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 33) as u32
    }

    fn f32s(&mut self, n: usize) -> R<Tensor> {
        let values: Vec<f32> = (0..n)
            .map(|_| self.random() as f32 / 2f32.powi(30) - 1.0)
            .collect();
        let mut t = Tensor::zeros(&self.gpu.domain(), DType::F32, n)?;
        t.write_f32(0, &values)?;
        Ok(t)
    }

    fn i32s(&self, values: &[i32]) -> R<Tensor> {
        let mut t = Tensor::zeros(&self.gpu.domain(), DType::I32, values.len())?;
        t.write_i32(0, values)?;
        Ok(t)
    }

    /// Random blocks; their halves are kept small, so that sums stay finite.
    fn weight(&mut self, ty: BlockType, n_in: usize, n_out: usize, n_mat: usize) -> R<Weight> {
        let len = ty.row_bytes(n_in)? * n_out * n_mat;
        let mut bytes = Vec::with_capacity(len + 4);
        while bytes.len() < len {
            bytes.extend_from_slice(&(self.random() & 0x2fff_2fff).to_le_bytes());
        }
        bytes.truncate(len);
        let data = WeightData::Device(self.gpu.domain().weight(&bytes, ty.name())?);
        Ok(Weight {
            name: ty.name().to_owned(),
            ty,
            n_in,
            n_out,
            n_mat,
            data,
        })
    }

    /// Median milliseconds of `runs` runs after two that do not count.
    fn time(&mut self, runs: usize, mut work: impl FnMut(&mut Self, usize) -> R<()>) -> R<f64> {
        let mut times = Vec::new();
        for i in 0..runs + 2 {
            let from = self.gpu.driver().mark()?;
            work(self, i)?;
            let to = self.gpu.driver().mark()?;
            if i >= 2 {
                times.push(f64::from(self.gpu.driver().elapsed_ms(from, to)?));
            }
        }
        self.gpu.synchronize()?;
        times.sort_by(f64::total_cmp);
        times
            .get(times.len() / 2)
            .copied()
            .ok_or_else(|| "no run".into())
    }
}

fn main() -> R<()> {
    let mut args = std::env::args().skip(1);
    let kind = match args.next().as_deref() {
        Some("rocm") => DeviceKind::Rocm,
        Some("cuda") => DeviceKind::Cuda,
        Some("simt") => DeviceKind::Simt,
        _ => return Err("usage: gpu_bench rocm|cuda|simt [SCALE] [KERNELS]".into()),
    };
    let scale: usize = args.next().map_or(Ok(1), |s| s.parse())?;
    let kernels = args.next().map(PathBuf::from);
    let gpu = Gpu::open(kind, &Knobs::default(), kernels.as_deref())?;
    let mut registry = Registry::empty(Knobs::default(), TierChoice::NativeOnly);
    gpu::register(&mut registry, kind);
    println!("device: {:?}", gpu.driver().facts());
    let mut b = Bench {
        registry,
        pool: Pool::new(1),
        gpu,
        rng: 1,
    };
    let copy = copy_rate(&mut b, scale)?;
    println!("copy: {copy:.0} GB/s (read plus written)\n");
    products(&mut b, scale, copy)?;
    attention(&mut b, scale, copy)?;
    indexer(&mut b, scale)
}

fn copy_rate(b: &mut Bench, scale: usize) -> R<f64> {
    let n = (1usize << 30) / scale;
    let memory = b.gpu.domain();
    let (from, to) = (memory.named(n, "from")?, memory.named(n, "to")?);
    let (from, to) = (
        legwork_kernels::tensor::DeviceMemory::address(&from),
        legwork_kernels::tensor::DeviceMemory::address(&to),
    );
    let ms = b.time(9, |b, _| Ok(b.gpu.driver().copy(to, from, n)?))?;
    Ok(2.0 * n as f64 / ms * 1e-6)
}

fn products(b: &mut Bench, scale: usize, copy: f64) -> R<()> {
    println!(
        "| product | rows | ms | GB/s of weights | of copy | GFLOP/s |\n|---|---|---|---|---|---|"
    );
    let (n_in, n_out) = (6144, 65536 / scale);
    for ty in [
        BlockType::Q8_0,
        BlockType::Q6_K,
        BlockType::Q5_K,
        BlockType::Q4_K,
        BlockType::IQ4_XS,
        BlockType::IQ3_XXS,
        BlockType::IQ2_XXS,
        BlockType::IQ1_S,
        BlockType::F16,
        BlockType::F32,
    ] {
        let w = b.weight(ty, n_in, n_out, 1)?;
        let bytes = w.mat_bytes() as f64;
        for rows in [1, 4, 512] {
            if rows == 512 && (scale > 1 || ty == BlockType::F32) {
                continue;
            }
            let x = b.f32s(rows * n_in)?;
            let mut out = Tensor::zeros(&b.gpu.domain(), DType::F32, rows * n_out)?;
            let ms = b.time(15, |b, _| {
                let parts = vec![MatPart {
                    weight: &w,
                    out: out.at_mut(0),
                    accumulate: false,
                }];
                Ok(b.run::<ops::MatmulQuant>(ops::MatmulArgs {
                    x: x.at(0),
                    rows,
                    parts,
                })?)
            })?;
            let rate = bytes / ms * 1e-6;
            let flops = 2.0 * (rows * n_in * n_out) as f64 / ms * 1e-6;
            println!(
                "| {ty} {n_in}x{n_out} | {rows} | {ms:.3} | {rate:.0} | {:.2} | {flops:.0} |",
                rate / copy
            );
        }
    }
    Ok(())
}

fn attention(b: &mut Bench, scale: usize, copy: f64) -> R<()> {
    println!(
        "\n| attention, 64 heads, 512+64, f16 | rows | keys | ms | GB/s of cache | of copy |\n|---|---|---|---|---|---|"
    );
    let (heads, nope, rope, lora, v_dim) = ((64 / scale).max(8), 192, 64, 512, 256);
    let (k_b, v_b) = (
        b.weight(BlockType::Q8_0, nope, lora, heads)?,
        b.weight(BlockType::Q8_0, lora, v_dim, heads)?,
    );
    for (rows, keys, sparse) in [
        (1, 2048, false),
        (1, 32768, false),
        (1, 32768, true),
        (16, 2048, false),
        (64, 2048, true),
    ] {
        let keys = (keys / scale).max(64);
        let cache = Tensor::zeros(&b.gpu.domain(), DType::F16, rows * keys * (lora + rope))?;
        let q = b.f32s(rows * heads * (nope + rope))?;
        let base = b.i32s(&(0..rows).map(|r| (r * keys) as i32).collect::<Vec<_>>())?;
        let slots = b.i32s(
            &(0..rows)
                .map(|r| (r * keys + keys - 1) as i32)
                .collect::<Vec<_>>(),
        )?;
        let k = keys.min(2048);
        let index: Vec<i32> = (0..rows)
            .flat_map(|_| (0..k).map(|i| (i * (keys / k)) as i32))
            .collect();
        let (index, count) = (b.i32s(&index)?, b.i32s(&vec![k as i32; rows])?);
        let mut out = Tensor::zeros(&b.gpu.domain(), DType::F32, rows * heads * v_dim)?;
        let ms = b.time(9, |b, _| {
            let selection = sparse.then(|| Selection {
                index: index.at(0),
                count: count.at(0),
                k,
            });
            Ok(b.run::<ops::MlaDecodeAttention>(ops::MlaArgs {
                q: q.at(0),
                k_b: &k_b,
                v_b: &v_b,
                cache: cache.at(0),
                base: base.at(0),
                slots: slots.at(0),
                slot_end: rows * keys,
                selection,
                window: None,
                sinks: None,
                lse: None,
                out: out.at_mut(0),
                rows,
                heads,
                nope,
                rope,
                lora,
                v_dim,
                scale: 0.0625,
            })?)
        })?;
        let used = if sparse { k } else { keys };
        let rate = (rows * used * (lora + rope) * 2) as f64 / ms * 1e-6;
        println!(
            "| {} | {rows} | {used} of {keys} | {ms:.3} | {rate:.0} | {:.2} |",
            if sparse { "sparse" } else { "dense" },
            rate / copy
        );
    }
    Ok(())
}

fn indexer(b: &mut Bench, scale: usize) -> R<()> {
    println!(
        "\n| indexer, 32 heads of 128 | rows | keys | scores ms | top-2048 ms |\n|---|---|---|---|---|"
    );
    let (heads, dim) = (32, 128);
    for (rows, keys) in [(1, 32768), (1, 131_072), (64, 8192)] {
        let keys = (keys / scale).max(64);
        let cache = Tensor::zeros(&b.gpu.domain(), DType::F16, keys * dim)?;
        let (q, w) = (b.f32s(rows * heads * dim)?, b.f32s(rows * heads)?);
        let (base, slots) = (
            b.i32s(&vec![0; rows])?,
            b.i32s(&vec![keys as i32 - 1; rows])?,
        );
        let mut out = b.f32s(rows * keys)?;
        let scores = b.time(9, |b, _| {
            Ok(b.run::<ops::DsaIndexerLogits>(ops::IndexerArgs {
                q: q.at(0),
                weights: w.at(0),
                cache: cache.at(0),
                base: base.at(0),
                slots: slots.at(0),
                out: out.at_mut(0),
                stride: keys,
                rows,
                heads,
                dim,
                scale: 0.0156,
            })?)
        })?;
        let random = b.f32s(rows * keys)?;
        let k = 2048.min(keys);
        let (mut index, mut count) = (b.i32s(&vec![0; rows * k])?, b.i32s(&vec![0; rows])?);
        let topk = b.time(9, |b, _| {
            Ok(b.run::<ops::DsaTopkSelect>(ops::TopkArgs {
                scores: random.at(0),
                stride: keys,
                base: base.at(0),
                slots: slots.at(0),
                index: index.at_mut(0),
                count: count.at_mut(0),
                rows,
                k,
            })?)
        })?;
        println!("| | {rows} | {keys} | {scores:.3} | {topk:.3} |");
    }
    Ok(())
}
