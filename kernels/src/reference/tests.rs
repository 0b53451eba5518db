//! Hand-computed values; the whole forward is held to independent golden values by the engine's tests.

use super::*;
use crate::cpu::Pool;
use crate::ops::{Ctx, RmsNormArgs, RopeStyle, RopeTable};
use crate::tensor::Tensor;

#[test]
fn rms_norm_of_three_four() {
    // mean square of (3, 4) is 12.5
    let (x, w) = (
        Tensor::from_f32(vec![3.0, 4.0]),
        Tensor::from_f32(vec![1.0, 2.0]),
    );
    let mut out = Tensor::from_f32(vec![0.0; 2]);
    let args = RmsNormArgs {
        x: x.at(0),
        x_stride: 2,
        weight: w.at(0),
        out: out.at_mut(0),
        rows: 1,
        dim: 2,
        eps: 0.0,
    };
    let pool = Pool::new(1);
    dense::rms_norm(
        &mut Ctx {
            pool: &pool,
            device: None,
        },
        args,
    )
    .unwrap();
    let expected = [3.0 / 12.5f32.sqrt(), 8.0 / 12.5f32.sqrt()];
    for (o, e) in out.at(0).f32(2).unwrap().iter().zip(expected) {
        assert!((o - e).abs() < 1e-6);
    }
}

#[test]
fn rope_turns_a_quarter_in_both_styles() {
    let table = RopeTable {
        dim: 4,
        freq: vec![std::f32::consts::FRAC_PI_2, 0.0],
    };
    let mut x = [1.0, 2.0, 3.0, 4.0];
    attention::rotate(&mut x, &table, RopeStyle::Interleaved, 1);
    for (a, e) in x.iter().zip([-2.0, 1.0, 3.0, 4.0]) {
        assert!((a - e).abs() < 1e-6);
    }
    let mut x = [1.0, 2.0, 3.0, 4.0];
    attention::rotate(&mut x, &table, RopeStyle::HalfSplit, 1);
    for (a, e) in x.iter().zip([-3.0, 2.0, 1.0, 4.0]) {
        assert!((a - e).abs() < 1e-6);
    }
}

#[test]
fn a_view_that_is_too_short_names_operation_and_argument() {
    let (x, w) = (
        Tensor::from_f32(vec![3.0]),
        Tensor::from_f32(vec![1.0, 2.0]),
    );
    let mut out = Tensor::from_f32(vec![0.0; 2]);
    let args = RmsNormArgs {
        x: x.at(0),
        x_stride: 2,
        weight: w.at(0),
        out: out.at_mut(0),
        rows: 1,
        dim: 2,
        eps: 0.0,
    };
    let pool = Pool::new(1);
    let error = dense::rms_norm(
        &mut Ctx {
            pool: &pool,
            device: None,
        },
        args,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "RmsNorm: x: a view of 2 F32 elements at offset 0 does not fit a tensor of 1"
    );
}
