//! Speed of the CPU kernels, beside the reference way (decode to f32, then multiply) in the same run.
//!
//! `cargo bench -p legwork-kernels --bench cpu [-- FILTER]`. Each figure is the best of several
//! rounds on one thread; weights are larger than the second-level cache.

use legwork_kernels::blocks::{BlockType, decode};
use legwork_kernels::cpu::{ActKind, Acts, Isa, Matrix, Pool, Store, gemv, matmul};
use std::hint::black_box;
use std::time::Instant;

#[path = "../tests/common/mod.rs"]
mod common;

/// Best seconds of at least `rounds` calls and a quarter of a second: other work on the machine
/// makes single calls slow, never fast.
fn best(rounds: usize, mut f: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut done = 0;
    while done < rounds || begin.elapsed().as_secs_f64() < 0.25 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
        done += 1;
    }
    best
}

fn reference_gemv(ty: BlockType, w: &[u8], n: usize, x: &[f32], out: &mut [f32]) {
    let mut row = vec![0.0; n];
    let bytes = w.len() / out.len();
    for (out, w) in out.iter_mut().zip(w.chunks_exact(bytes)) {
        if decode(ty, w, &mut row).is_err() {
            return;
        }
        let mut lanes = [0.0_f32; 8];
        for (r, x) in row.as_chunks::<8>().0.iter().zip(x.as_chunks::<8>().0) {
            for i in 0..8 {
                lanes[i] += r[i] * x[i];
            }
        }
        *out = lanes.iter().sum();
    }
}

fn bench_gemv(filter: &str) {
    println!("GEMV, {}, one thread", Isa::best().name());
    println!("type       bits   n     GB/s  GMAC/s  reference GMAC/s  ratio");
    for &ty in BlockType::ALL {
        if !ty.name().contains(filter)
            || matches!(
                ty,
                BlockType::I8 | BlockType::I16 | BlockType::I32 | BlockType::I64 | BlockType::F64
            )
        {
            continue;
        }
        for (rows, n) in [(4096, 2048), (4096, 256)] {
            let w = common::random_rows(ty, rows, n, 1);
            let values = common::wave(n, 0.5);
            let Ok(acts) = Acts::new(ActKind::of(ty), &values, n) else {
                continue;
            };
            let mut out = vec![0.0; rows];
            let native = best(9, || {
                let done = gemv(Isa::best(), ty, &w, n, acts.row(0), &mut out);
                black_box((&out, done.is_ok()));
            });
            let some = rows / 16;
            let part = &w[..w.len() / 16];
            let reference = 16.0
                * best(3, || {
                    reference_gemv(ty, part, n, &values, &mut out[..some]);
                    black_box(&out);
                });
            let macs = (rows * n) as f64;
            println!(
                "{:9} {:5.2} {n:5} {:7.2} {:7.2} {:17.2} {:6.1}",
                ty.name(),
                ty.bits_per_element(),
                w.len() as f64 / native / 1e9,
                macs / native / 1e9,
                macs / reference / 1e9,
                reference / native
            );
        }
    }
}

fn bench_matmul(filter: &str, isa: Isa) {
    println!("matmul, {}, one thread, 512 x 2048 weights", isa.name());
    println!("type      rows  GFLOP/s  per row of gemv  ratio");
    let pool = Pool::new(1);
    let (n_out, n_in) = (512, 2048);
    for &ty in BlockType::ALL {
        if !ty.name().contains(filter) || is_plain_integer(ty) {
            continue;
        }
        let w = common::random_rows(ty, n_out, n_in, 1);
        let Ok(matrix) = Matrix::new(ty, n_in, n_out, &w) else {
            continue;
        };
        let one = Acts::new(ActKind::of(ty), &common::wave(n_in, 0.5), n_in);
        let Ok(one) = one else { continue };
        let mut out = vec![0.0; n_out];
        let single = best(5, || {
            let done = gemv(isa, ty, &w, n_in, one.row(0), &mut out);
            black_box((&out, done.is_ok()));
        });
        for m in [4, 16, 64, 512] {
            let Ok(acts) = Acts::new(ActKind::of(ty), &common::wave(m * n_in, 0.5), n_in) else {
                continue;
            };
            let mut out = vec![0.0; m * n_out];
            let native = best(if m > 64 { 3 } else { 5 }, || {
                let done = matmul(&pool, isa, matrix, &acts, &mut out, Store::Write);
                black_box((&out, done.is_ok()));
            });
            let flops = (2 * m * n_out * n_in) as f64;
            println!(
                "{:9} {m:4} {:8.1} {:16.1} {:6.1}",
                ty.name(),
                flops / native / 1e9,
                flops / (single * m as f64) / 1e9,
                single * m as f64 / native
            );
        }
    }
}

/// Types that no weight has.
fn is_plain_integer(ty: BlockType) -> bool {
    use BlockType::{F64, I8, I16, I32, I64};
    matches!(ty, I8 | I16 | I32 | I64 | F64)
}

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .unwrap_or_default();
    for isa in Isa::available() {
        if isa != Isa::Portable {
            bench_matmul(&filter, isa);
        }
    }
    bench_gemv(&filter);
}
