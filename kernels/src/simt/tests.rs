//! The runtime finds what `simt/selftest.hip` does wrong, and says where.

use super::{Fault, Report, SimtDriver};
use crate::gpu::{Driver, GpuError, Launch};

fn run(kernel: &'static str, seed: u64) -> Result<Vec<f32>, Box<Report>> {
    let driver = SimtDriver::new(seed);
    let x = driver.allocate(64 * 4, "x").unwrap();
    let mut args = Vec::new();
    for word in [x, 0, 64] {
        args.extend_from_slice(&word.to_le_bytes());
    }
    match driver.launch(&Launch {
        kernel,
        grid: [1, 1, 1],
        threads: 64,
        args: &args,
    }) {
        Ok(()) => {
            let mut bytes = vec![0; 256];
            driver.download(&mut bytes, x).unwrap();
            Ok(bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|c| f32::from_le_bytes(*c))
                .collect())
        }
        Err(GpuError::Kernel(report)) => Err(report),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn each_wrong_kernel_is_found_under_every_schedule() {
    for seed in [1, 2, 99] {
        for (kernel, fault, line) in [
            ("selftest_bounds", Fault::OutOfBounds, 8),
            ("selftest_barrier", Fault::BarrierDivergence, 12),
            ("selftest_wave", Fault::WaveDivergence, 18),
            ("selftest_shuffle", Fault::ShuffleOutOfWave, 23),
            ("selftest_race", Fault::SharedRace, 29),
            ("selftest_shared", Fault::SharedOutOfBounds, 34),
            ("selftest_null", Fault::NullPointer, 39),
        ] {
            let report = run(kernel, seed).unwrap_err();
            assert_eq!(
                (report.fault, report.file.as_str()),
                (fault, "selftest.hip"),
                "{report}"
            );
            // A race is seen by whichever of the two comes second: the read, or a later write.
            assert!(
                report.line == line || fault == Fault::SharedRace && report.line == line - 1,
                "{report}"
            );
            assert_eq!((report.kernel.as_str(), report.seed), (kernel, seed));
        }
    }
}

#[test]
fn an_access_out_of_bounds_names_everything() {
    let text = run("selftest_bounds", 5).unwrap_err().to_string();
    assert_eq!(
        text,
        "kernel selftest_bounds: access out of bounds at selftest.hip:8, block (0, 0, 0), thread 63, a.x (x, 256 B)[64] of 64 elements of 4 bytes (schedule seed 5)"
    );
}

#[test]
fn shared_memory_begins_poisoned() {
    assert!(
        run("selftest_poison", 1)
            .unwrap()
            .iter()
            .all(|v| v.is_nan())
    );
}

#[test]
fn a_right_kernel_runs() {
    for seed in 1..5 {
        let x = run("selftest_fine", seed).unwrap();
        for (t, v) in x.iter().enumerate() {
            let s = |i: usize| (63 - i) as f32;
            assert_eq!(*v, s(t) + 8.0 + s(t ^ 1) + s(t / 32 * 32) + 31.0);
        }
    }
}

#[test]
fn copies_outside_an_allocation_are_refused() {
    let driver = SimtDriver::new(1);
    let x = driver.allocate(8, "x").unwrap();
    driver.upload(x, &[1; 8]).unwrap();
    assert!(driver.upload(x + 4, &[1; 8]).is_err());
    assert!(driver.download(&mut [0; 9], x).is_err());
    driver.free(x);
    assert!(driver.upload(x, &[1]).is_err());
}

#[test]
fn a_launch_that_does_not_fit_its_kernel_is_refused() {
    let driver = SimtDriver::new(1);
    let launch = |kernel, threads, args| {
        driver
            .launch(&Launch {
                kernel,
                grid: [1, 1, 1],
                threads,
                args,
            })
            .unwrap_err()
            .to_string()
    };
    assert!(launch("no_such_kernel", 64, &[]).contains("no source defines it"));
    assert!(
        launch("selftest_fine", 64, &[0; 8])
            .contains("24 bytes of arguments and 64 threads, the launch has 8 and 64")
    );
}
