//! Products with weights in blocks. Few rows go to the wave-per-row kernels with activations in 8 bits, many to the tiled ones
//! with activations in f16; f32 weights stay in f32 throughout.

use super::{OnDevice, blocks, blocks_yz, ensure, f32s, f32s_mut, gpu, int};
use crate::blocks::BlockType;
use crate::gpu::args;
use crate::gpu::device::{Gpu, Rounded, Scratch};
use crate::ops::{Ctx, MatmulArgs, Named, OpError, OpId};
use crate::tensor::Weight;

/// Most activation rows for the wave-per-row kernels.
pub(super) const FEW: usize = 8;
/// Activation rows of a tile of the tiled kernels.
pub(super) const TILE: usize = 64;

macro_rules! names {
    ($prefix:expr, $ty:expr; $($p:literal: [$($v:ident $n:literal),*];)*) => {
        match ($prefix, $ty) { $($(($p, BlockType::$v) => Some(concat!($p, "_", $n)),)*)* _ => None }
    };
}

/// The kernel of a family (`embed`, `mmv1`, `mmv4`, `gemm`) for a type.
pub(super) fn kernel_name(family: &str, ty: BlockType) -> Option<&'static str> {
    macro_rules! all {
        ($($p:literal),*) => {
            names!(family, ty; $($p: [
                F32 "f32", F16 "f16", BF16 "bf16", Q4_0 "q4_0", Q4_1 "q4_1", Q5_0 "q5_0", Q5_1 "q5_1", Q8_0 "q8_0", Q2_K "q2_k",
                Q3_K "q3_k", Q4_K "q4_k", Q5_K "q5_k", Q6_K "q6_k", IQ2_XXS "iq2_xxs", IQ2_XS "iq2_xs", IQ3_XXS "iq3_xxs",
                IQ1_S "iq1_s", IQ4_NL "iq4_nl", IQ3_S "iq3_s", IQ2_S "iq2_s", IQ4_XS "iq4_xs", IQ1_M "iq1_m", MXFP4 "mxfp4"
            ];)*)
        };
    }
    if family == "gemm" && ty == BlockType::F32 {
        return None;
    }
    all!("embed", "mmv1", "mmv4", "gemm")
}

/// Whether the products know the type.
pub(super) fn known(w: &Weight) -> Result<(), String> {
    kernel_name("mmv1", w.ty)
        .map(|_| ())
        .ok_or_else(|| format!("{}: no kernel for type {}", w.name, w.ty))
}

pub(super) fn supports(a: &MatmulArgs<'_>) -> Result<(), String> {
    a.parts.iter().try_for_each(|p| known(p.weight))
}

/// Activation rows: where they are and how they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub x: u64,
    pub stride: usize,
    pub rows: usize,
    pub n: usize,
}

/// Rounded activations in scratch memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Q8 {
    pub q: u64,
    pub d: u64,
    pub s: u64,
}

impl Q8 {
    /// Room for `elements` rounded ones: a norm's, which several products read, or any others'.
    pub fn room(gpu: &mut Gpu, op: OpId, norm: bool, elements: usize) -> Result<Self, OpError> {
        let kind = gpu.kind();
        let units = elements / 32;
        let [q, d, s] = if norm {
            [Scratch::NormQ8, Scratch::NormQ8Scale, Scratch::NormQ8Sum]
        } else {
            [Scratch::Q8, Scratch::Q8Scale, Scratch::Q8Sum]
        };
        Ok(Q8 {
            q: gpu.scratch(q, units * 32).on(op, kind)?,
            d: gpu.scratch(d, units * 4).on(op, kind)?,
            s: gpu.scratch(s, units * 8).on(op, kind)?,
        })
    }

    /// What [`Gpu::round`] takes.
    pub fn of(self, x: Rows) -> Rounded {
        Rounded {
            x: x.x,
            stride: x.stride,
            rows: x.rows,
            n: x.n,
            q: self.q,
            d: self.d,
            s: self.s,
            host_writes: 0,
        }
    }
}

/// Activation rows in 8 bits: those that are there, where their source has not changed since.
pub(super) fn quantize(gpu: &mut Gpu, op: OpId, x: Rows) -> Result<Q8, OpError> {
    let kind = gpu.kind();
    ensure(op, x.n.is_multiple_of(32), || {
        format!("rows of {} elements are no multiple of 32", x.n)
    })?;
    if let Some(Rounded { q, d, s, .. }) = gpu.rounded(x.x, x.stride, x.rows, x.n) {
        return Ok(Q8 { q, d, s });
    }
    let q8 = Q8::room(gpu, op, false, x.rows * x.n)?;
    // y of a grid is short, so many rows go in several launches.
    for first in (0..x.rows).step_by(32768) {
        let rows = (x.rows - first).min(32768);
        let done = (first * (x.n / 32)) as u64;
        let args = args::QuantizeArgs {
            x: x.x + (first * x.stride * 4) as u64,
            q: q8.q + done * 32,
            d: q8.d + done * 4,
            s: q8.s + done * 8,
            x_stride: x.stride as i64,
            rows: int(op, "rows", rows)?,
            n: int(op, "n", x.n)?,
        };
        gpu.launch(
            "quantize_q8",
            [
                blocks(op, "row", (x.n / 32).div_ceil(4))?,
                blocks_yz(op, "rows", rows)?,
                1,
            ],
            128,
            &args,
        )
        .on(op, kind)?;
    }
    gpu.round(false, q8.of(x));
    Ok(q8)
}

/// One product per activation row. `ids` chooses the matrix of each, else row `y` takes matrix `y % n_mat`.
pub(super) struct Mmv<'a> {
    pub weight: &'a Weight,
    pub x: Rows,
    pub q8: Option<Q8>,
    pub ids: u64,
    /// Results; row `y` uses activation row `y / x_div`.
    pub results: usize,
    pub x_div: usize,
    pub out: u64,
    pub out_stride: usize,
    pub accumulate: bool,
    /// Whether neighbouring rows share the matrix.
    pub shared: bool,
}

/// Weight rows of a block that copies a codebook first: as many as leave a few blocks for every multiprocessor of a large
/// GPU. The blocks' eight waves take two rows each at a time.
fn rows_per_block(rows: usize) -> usize {
    const BLOCKS: usize = 528;
    rows.div_ceil(BLOCKS).next_multiple_of(16).clamp(16, 256)
}

pub(super) fn mmv(gpu: &mut Gpu, op: OpId, m: &Mmv<'_>) -> Result<(), OpError> {
    let kind = gpu.kind();
    let w = m.weight;
    let columns = if m.shared && m.results > 1 { 4 } else { 1 };
    let family = if columns == 4 { "mmv4" } else { "mmv1" };
    let kernel = kernel_name(family, w.ty).ok_or_else(|| OpError::Shape {
        op,
        what: format!("{}: no kernel for type {}", w.name, w.ty),
    })?;
    let (per_block, threads) = if columns == 1 && gpu.grid(w.ty) != 0 {
        (rows_per_block(w.n_out * m.results), 256)
    } else {
        (4, 128)
    };
    let q8 = m.q8.unwrap_or(Q8 { q: 0, d: 0, s: 0 });
    let last = m.results.saturating_sub(1) * m.out_stride;
    gpu.written(m.out, (last + w.n_out) * 4);
    // y of a grid is short; chunks start where matrices and activation rows begin anew.
    let unit = m.x_div
        * if m.ids == 0 && !m.shared {
            w.n_mat.max(1)
        } else {
            1
        };
    let step = unit * (32768 / unit).max(1);
    for first in (0..m.results).step_by(step) {
        let rows = (m.results - first).min(step);
        let x_first = first / m.x_div;
        let units = (x_first * (w.n_in / 32)) as u64;
        let on = |base: u64, bytes: u64| if base == 0 { 0 } else { base + bytes };
        let args = args::MmvArgs {
            w: w.device_address().named(op, "weight")?,
            grid: gpu.grid(w.ty),
            x: on(m.x.x, (x_first * m.x.stride * 4) as u64),
            q: on(q8.q, units * 32),
            d: on(q8.d, units * 4),
            s: on(q8.s, units * 8),
            ids: on(m.ids, first as u64 * 4),
            out: m.out + (first * m.out_stride * 4) as u64,
            row_bytes: w.row_bytes() as i64,
            mat_bytes: w.mat_bytes() as i64,
            x_stride: m.x.stride as i64,
            out_stride: m.out_stride as i64,
            rows: int(op, "rows", rows)?,
            n_in: int(op, "n_in", w.n_in)?,
            n_out: int(op, "n_out", w.n_out)?,
            n_mat: if m.shared {
                1
            } else {
                int(op, "matrices", w.n_mat)?
            },
            x_div: int(op, "rows per activation", m.x_div)?,
            accumulate: i32::from(m.accumulate),
            rows_per_block: int(op, "rows of a block", per_block)?,
            pad: 0,
        };
        let grid = [
            blocks(op, "n_out", w.n_out.div_ceil(per_block))?,
            blocks_yz(op, "rows", rows.div_ceil(columns))?,
            1,
        ];
        gpu.launch(kernel, grid, threads, &args).on(op, kind)?;
    }
    Ok(())
}

/// Whether the type's activations are rounded to 8 bits in the wave-per-row kernels.
pub(super) fn rounds(ty: BlockType) -> bool {
    !matches!(ty, BlockType::F32 | BlockType::F16 | BlockType::BF16)
}

/// A tiled product; `mats` of them side by side, each `x_z` and `out_z` elements further on.
pub(super) struct Gemm<'a> {
    pub weight: &'a Weight,
    pub x: Rows,
    pub mats: usize,
    pub x_z: usize,
    pub out: u64,
    pub out_stride: usize,
    pub out_z: usize,
    pub accumulate: bool,
}

pub(super) fn gemm(gpu: &mut Gpu, op: OpId, g: &Gemm<'_>) -> Result<(), OpError> {
    let kind = gpu.kind();
    let w = g.weight;
    let kernel = kernel_name("gemm", w.ty).ok_or_else(|| OpError::Shape {
        op,
        what: format!("{}: no tiled kernel for type {}", w.name, w.ty),
    })?;
    let last = g.x.rows.saturating_sub(1) * g.out_stride + g.mats.saturating_sub(1) * g.out_z;
    gpu.written(g.out, (last + w.n_out) * 4);
    let args = args::GemmArgs {
        w: w.device_address().named(op, "weight")?,
        grid: gpu.grid(w.ty),
        x: g.x.x,
        tiles: 0,
        perm: 0,
        out: g.out,
        row_bytes: w.row_bytes() as i64,
        mat_bytes: w.mat_bytes() as i64,
        x_stride: g.x.stride as i64,
        out_stride: g.out_stride as i64,
        x_z: g.x_z as i64,
        out_z: g.out_z as i64,
        rows: int(op, "rows", g.x.rows)?,
        n_in: int(op, "n_in", w.n_in)?,
        n_out: int(op, "n_out", w.n_out)?,
        x_div: 1,
        accumulate: i32::from(g.accumulate),
        pad: 0,
    };
    let grid = [
        blocks(op, "n_out", w.n_out.div_ceil(64))?,
        blocks_yz(op, "rows", g.x.rows.div_ceil(TILE))?,
        blocks_yz(op, "matrices", g.mats)?,
    ];
    gpu.launch(kernel, grid, 128, &args).on(op, kind)
}

pub(super) fn matmul(ctx: &mut Ctx<'_>, a: MatmulArgs<'_>) -> Result<(), OpError> {
    let op = OpId::MatmulQuant;
    let gpu = gpu(ctx, op)?;
    let Some(n) = a.parts.first().map(|p| p.weight.n_in) else {
        return Ok(());
    };
    if a.rows == 0 {
        return Ok(());
    }
    let x = Rows {
        x: f32s(op, "x", a.x, a.rows * n)?,
        stride: n,
        rows: a.rows,
        n,
    };
    let mut q8 = None;
    for part in &a.parts {
        let w = part.weight;
        ensure(op, w.n_in == n && w.n_mat == 1, || {
            format!("{w:?} among matrices of {n} inputs")
        })?;
        let out = f32s_mut(op, "out", &part.out, a.rows * w.n_out)?;
        if a.rows > FEW && kernel_name("gemm", w.ty).is_some() {
            gemm(
                gpu,
                op,
                &Gemm {
                    weight: w,
                    x,
                    mats: 1,
                    x_z: 0,
                    out,
                    out_stride: w.n_out,
                    out_z: 0,
                    accumulate: part.accumulate,
                },
            )?;
            continue;
        }
        if rounds(w.ty) && q8.is_none() {
            q8 = Some(quantize(gpu, op, x)?);
        }
        mmv(
            gpu,
            op,
            &Mmv {
                weight: w,
                x,
                q8,
                ids: 0,
                results: a.rows,
                x_div: 1,
                out,
                out_stride: w.n_out,
                accumulate: part.accumulate,
                shared: true,
            },
        )?;
    }
    Ok(())
}
