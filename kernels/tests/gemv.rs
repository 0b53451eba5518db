//! Weight rows in their blocks against decoded rows, for every type and instruction set.

use legwork_kernels::blocks::{BlockType, decode};
use legwork_kernels::cpu::{ActKind, Acts, Isa, gemv};

mod common;
use common::{random_rows, wave};

/// Σ w x and Σ |w x| of a decoded row in f64.
fn exact(w: &[f32], x: &[f32]) -> (f64, f64) {
    w.iter().zip(x).fold((0.0, 0.0), |(sum, size), (&w, &x)| {
        let p = f64::from(w) * f64::from(x);
        (sum + p, size + p.abs())
    })
}

#[test]
fn rows_equal_their_decoded_products() {
    for &ty in BlockType::ALL {
        let kind = ActKind::of(ty);
        for (rows, n) in [(1, 256), (3, 512), (6, 768), (7, 2304)] {
            let w = random_rows(ty, rows, n, 5);
            let mut decoded = vec![0.0; rows * n];
            decode(ty, &w, &mut decoded).expect("whole rows");
            let acts = Acts::new(kind, &wave(n, 0.3), n).expect("whole blocks");
            let x = acts.to_f32();
            for isa in Isa::available() {
                let mut out = vec![f32::NAN; rows];
                gemv(isa, ty, &w, n, acts.row(0), &mut out).expect("matching lengths");
                for (r, (out, w)) in out.iter().zip(decoded.chunks_exact(n)).enumerate() {
                    let (sum, size) = exact(w, &x);
                    // Q4_1 and Q5_1 take the sum of the activations rounded to half.
                    let tolerance = match ty {
                        BlockType::Q4_1 | BlockType::Q5_1 => 1e-3,
                        _ => 2e-6,
                    };
                    assert!(
                        (f64::from(*out) - sum).abs() <= tolerance * size + 1e-30,
                        "{ty} {isa:?} row {r} of {rows} x {n}: {out} instead of {sum} (of {size})"
                    );
                }
            }
        }
    }
}

#[test]
fn rows_of_192_in_blocks_of_32() {
    for ty in [
        BlockType::Q8_0,
        BlockType::IQ4_NL,
        BlockType::Q5_0,
        BlockType::F16,
    ] {
        let w = random_rows(ty, 5, 192, 9);
        let mut decoded = vec![0.0; 5 * 192];
        decode(ty, &w, &mut decoded).expect("whole rows");
        let acts = Acts::new(ActKind::of(ty), &wave(192, 1.1), 192).expect("whole blocks");
        for isa in Isa::available() {
            let mut out = vec![0.0; 5];
            gemv(isa, ty, &w, 192, acts.row(0), &mut out).expect("matching lengths");
            for (out, w) in out.iter().zip(decoded.chunks_exact(192)) {
                let (sum, size) = exact(w, &acts.to_f32());
                assert!((f64::from(*out) - sum).abs() <= 2e-6 * size);
            }
        }
    }
}

#[test]
fn unrounded_activations_meet_any_type() {
    let ty = BlockType::IQ2_S;
    let w = random_rows(ty, 2, 512, 3);
    let mut decoded = vec![0.0; 1024];
    decode(ty, &w, &mut decoded).expect("whole rows");
    let acts = Acts::new(ActKind::F32, &wave(512, 0.9), 512).expect("rows");
    let mut out = vec![0.0; 2];
    gemv(Isa::best(), ty, &w, 512, acts.row(0), &mut out).expect("matching lengths");
    let (sum, size) = exact(&decoded[512..], &acts.to_f32());
    assert!((f64::from(out[1]) - sum).abs() <= 2e-6 * size);
}

#[test]
fn short_weights_are_refused() {
    let acts = Acts::new(ActKind::Q256, &wave(256, 1.0), 256).expect("one block");
    let mut out = [0.0; 2];
    assert!(
        gemv(
            Isa::best(),
            BlockType::IQ1_S,
            &[0; 99],
            256,
            acts.row(0),
            &mut out
        )
        .is_err()
    );
    assert!(
        gemv(
            Isa::best(),
            BlockType::IQ1_S,
            &[0; 100],
            255,
            acts.row(0),
            &mut out
        )
        .is_err()
    );
}
