//! Many activation rows against decoded weights, for every type, instruction set and tail.

use legwork_kernels::blocks::{BlockType, decode};
use legwork_kernels::cpu::{ActKind, Acts, Isa, Matrix, Pool, Store, matmul};

mod common;
use common::{random_rows, wave};

fn check(ty: BlockType, n_out: usize, n_in: usize, m: usize) {
    let w = random_rows(ty, n_out, n_in, 11);
    let mut decoded = vec![0.0; n_out * n_in];
    decode(ty, &w, &mut decoded).expect("whole rows");
    let acts = Acts::new(ActKind::of(ty), &wave(m * n_in, 0.7), n_in).expect("whole blocks");
    let x = acts.to_f32();
    let matrix = Matrix::new(ty, n_in, n_out, &w).expect("matching shape");
    let pool = Pool::new(2);
    for isa in Isa::available() {
        let mut out = vec![1.0; m * n_out];
        matmul(&pool, isa, matrix, &acts, &mut out, Store::Add).expect("matching shapes");
        for (i, x) in x.chunks_exact(n_in).enumerate() {
            for (r, w) in decoded.chunks_exact(n_in).enumerate() {
                let (mut sum, mut size) = (0.0, 0.0);
                for (w, x) in w.iter().zip(x) {
                    let p = f64::from(*w) * f64::from(*x);
                    sum += p;
                    size += p.abs();
                }
                // Q4_1 and Q5_1 take the sum of the activations rounded to half.
                let tolerance = match ty {
                    BlockType::Q4_1 | BlockType::Q5_1 => 1e-3,
                    _ => 2e-6,
                };
                let found = f64::from(out[i * n_out + r]) - 1.0;
                assert!(
                    (found - sum).abs() <= tolerance * size + 1e-6,
                    "{ty} {isa:?} [{i}, {r}] of {m} x {n_out} x {n_in}: {found} instead of {sum}"
                );
            }
        }
    }
}

#[test]
fn every_type_with_odd_rows_and_activations() {
    for &ty in BlockType::ALL {
        for (n_out, n_in, m) in [(16, 256, 6), (21, 512, 11), (3, 768, 4), (40, 256, 2)] {
            check(ty, n_out, n_in, m);
        }
    }
}

#[test]
fn rows_of_192() {
    for ty in [
        BlockType::Q8_0,
        BlockType::IQ4_NL,
        BlockType::Q5_1,
        BlockType::F32,
    ] {
        check(ty, 19, 192, 7);
    }
}

#[test]
fn largest_sums_do_not_overflow() {
    // Every level and every activation at its extreme: 16-bit sums are as large as they can be.
    for &ty in BlockType::ALL {
        if ActKind::of(ty) == ActKind::F32 {
            continue;
        }
        for fill in [0x00_u8, 0xFF, 0x7F, 0x80] {
            for sign in [1.0, -1.0] {
                let mut w = random_rows(ty, 16, 256, 1);
                let scales = random_rows(ty, 16, 256, 1);
                // Keep float scales (finite), fill everything else.
                let size = ty.block_bytes();
                for (w, s) in w.chunks_exact_mut(size).zip(scales.chunks_exact(size)) {
                    w.fill(fill);
                    common::copy_scales(ty, w, s);
                }
                let mut decoded = vec![0.0; 16 * 256];
                decode(ty, &w, &mut decoded).expect("whole rows");
                let acts = Acts::new(ActKind::of(ty), &[sign; 256 * 6], 256).expect("rows");
                let matrix = Matrix::new(ty, 256, 16, &w).expect("matching shape");
                let mut out = vec![0.0; 96];
                matmul(
                    &Pool::new(1),
                    Isa::best(),
                    matrix,
                    &acts,
                    &mut out,
                    Store::Write,
                )
                .expect("matching shapes");
                for (r, w) in decoded.chunks_exact(256).enumerate() {
                    let x = f64::from(acts.to_f32()[0]);
                    let sum: f64 = w.iter().map(|w| f64::from(*w) * x).sum();
                    let size: f64 = w.iter().map(|w| f64::from(*w).abs() * x.abs()).sum();
                    let found = f64::from(out[r]);
                    assert!(
                        (found - sum).abs() <= 1e-3 * size,
                        "{ty} {fill:#x} {sign} row {r}: {found} instead of {sum}"
                    );
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_or_batch() {
    let (n_out, n_in, m) = (70, 512, 13);
    for ty in [
        BlockType::IQ1_S,
        BlockType::Q8_0,
        BlockType::Q5_K,
        BlockType::F32,
    ] {
        let w = random_rows(ty, n_out, n_in, 2);
        let matrix = Matrix::new(ty, n_in, n_out, &w).expect("matching shape");
        let x = wave(m * n_in, 0.2);
        let acts = Acts::new(ActKind::of(ty), &x, n_in).expect("rows");
        let mut one = vec![0.0; m * n_out];
        matmul(
            &Pool::new(1),
            Isa::best(),
            matrix,
            &acts,
            &mut one,
            Store::Write,
        )
        .expect("shapes");
        let mut three = vec![0.0; m * n_out];
        matmul(
            &Pool::new(3),
            Isa::best(),
            matrix,
            &acts,
            &mut three,
            Store::Write,
        )
        .expect("shapes");
        assert_eq!(one, three, "{ty}: threads");
        // The last five rows alone: another grouping of the activations.
        let tail = Acts::new(ActKind::of(ty), &x[8 * n_in..], n_in).expect("rows");
        let mut part = vec![0.0; 5 * n_out];
        matmul(
            &Pool::new(2),
            Isa::best(),
            matrix,
            &tail,
            &mut part,
            Store::Write,
        )
        .expect("shapes");
        assert_eq!(&one[8 * n_out..], part, "{ty}: batch");
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let w = random_rows(BlockType::Q8_0, 4, 64, 1);
    assert!(Matrix::new(BlockType::Q8_0, 64, 5, &w).is_err());
    let matrix = Matrix::new(BlockType::Q8_0, 64, 4, &w).expect("matching shape");
    let acts = Acts::new(ActKind::Q32, &wave(64, 1.0), 32).expect("rows");
    let pool = Pool::new(1);
    assert!(
        matmul(
            &pool,
            Isa::best(),
            matrix,
            &acts,
            &mut [0.0; 8],
            Store::Write
        )
        .is_err()
    );
    let acts = Acts::new(ActKind::Q32, &wave(64, 1.0), 64).expect("rows");
    assert!(
        matmul(
            &pool,
            Isa::best(),
            matrix,
            &acts,
            &mut [0.0; 3],
            Store::Write
        )
        .is_err()
    );
}
