//! A wall clock that is set while a leg runs: durations and deadlines must not follow it.
//!
//! The machine's own clock is left alone: a shim between the harness and its C library answers for it.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

mod common;

use std::path::PathBuf;
use std::process::Command;

use chrono::{DateTime, Utc};
use common::Bench;
use legwork_reports::model::Class;
use nix::time::{ClockId, clock_gettime};

/// Adds `STEP_BY` seconds to the real-time clock from `STEP_AT` (seconds of the monotonic clock) on.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int failed = (int)syscall(SYS_clock_gettime, id, t);
    const char *at = getenv("STEP_AT"), *by = getenv("STEP_BY");
    if (failed || id != CLOCK_REALTIME || !at || !by) return failed;
    struct timespec m;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &m);
    if (m.tv_sec >= atoll(at)) t->tv_sec += atoll(by);
    return 0;
}
"#;

fn shim(bench: &Bench) -> PathBuf {
    let source = bench.write("step.c", SHIM);
    let library = bench.path().join("step.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
        .unwrap();
    assert!(built.success());
    library
}

/// Runs a leg of about two seconds with the clock set by `by` seconds after the first.
fn stepped(by: i64) {
    let bench = Bench::new();
    let library = shim(&bench);
    bench.write("job.sh", "#!/bin/sh\necho before\nsleep 2\necho after\n");
    bench.write(
        "set.yaml",
        "name: t\nenv_allow: [LD_PRELOAD]\nlegs:\n  - {name: a, script: job.sh, timeout: {total: 60s, idle: 30s}}\n",
    );
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().tv_sec();
    let output = bench
        .legwork(&["run", "set.yaml", "--out", "runs"])
        .env("LD_PRELOAD", &library)
        .env("STEP_AT", (now + 2).to_string())
        .env("STEP_BY", by.to_string())
        .output()
        .unwrap();
    let ran = bench.ran(output);
    ran.expect_code(0);
    let report = ran.report();
    let attempt = &report.legs[0].attempts[0];
    assert_eq!(attempt.verdict.class, Class::Clean, "{}", ran.said());
    // `sleep 2` takes two seconds whatever the wall says; the bounds only tell them from an hour or a day.
    assert!(
        (1.9..60.0).contains(&attempt.wall_s),
        "{} s by a clock that was set by {by} s",
        attempt.wall_s
    );
    let log = std::fs::read_to_string(ran.dir().join(&attempt.files["log"])).unwrap();
    let stamps: Vec<(f64, DateTime<Utc>)> = log
        .lines()
        .map(|l| {
            let mut parts = l.split(' ');
            let mut next = || parts.next().unwrap();
            (next().parse().unwrap(), next().parse().unwrap())
        })
        .collect();
    let [(from, wall_from), (to, wall_to)] = stamps[..] else {
        panic!("{log}");
    };
    assert!(to - from > 1.9 && to < 60.0, "{log}");
    // The wall stamps say what the wall said, or the shim did nothing.
    let jump = (wall_to - wall_from).num_seconds() - by;
    assert!((1..60).contains(&jump), "{log}");
}

#[test]
fn a_clock_set_back_by_an_hour_changes_no_duration() {
    stepped(-3600);
}

#[test]
fn a_clock_set_forward_by_a_day_ends_no_leg() {
    stepped(86_400);
}
