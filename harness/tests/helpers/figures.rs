//! Figures of the supervisor, printed by `scripts/bench-supervise`: no test, since they are of one machine at one time.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::model::{attempt, helper};

/// Prints them when the arguments say `figures`.
pub fn print_if_asked() {
    if !std::env::args().any(|a| a == "figures") {
        return;
    }
    stamp_error();
    overhead_of_true();
    overhead_of_ten_seconds();
    flood();
    std::process::exit(0);
}

fn percentile(sorted: &[u64], p: usize) -> f64 {
    sorted[(sorted.len() - 1) * p / 100] as f64 / 1e3
}

fn stamp_error() {
    let r = attempt(helper(&["clock-lines", "2000"]), |_| {});
    let mut late: Vec<u64> = r
        .read("output.log")
        .lines()
        .filter_map(|l| {
            let (stamp, text) = l.split_once(" | ")?;
            let (s, ns) = stamp.split(' ').next()?.split_once('.')?;
            let read = r.outcome.start_mono_ns
                + s.parse::<u64>().ok()? * 1_000_000_000
                + ns.parse::<u64>().ok()?;
            Some(read.saturating_sub(text.parse().ok()?))
        })
        .collect();
    late.sort_unstable();
    println!(
        "stamp error over {} lines: p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        late.len(),
        percentile(&late, 50),
        percentile(&late, 99),
        percentile(&late, 100)
    );
}

fn bare(argv: &[&str]) -> f64 {
    let t = Instant::now();
    let s = Command::new(argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(s.success());
    t.elapsed().as_secs_f64()
}

fn supervised(argv: &[&str]) -> f64 {
    let t = Instant::now();
    let r = attempt(argv.iter().map(|s| (*s).to_owned()).collect(), |_| {});
    assert_eq!(r.outcome.exit.code, Some(0));
    t.elapsed().as_secs_f64()
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn overhead_of_true() {
    let (mut b, mut s) = (Vec::new(), Vec::new());
    for _ in 0..31 {
        b.push(bare(&["/bin/true"]));
        s.push(supervised(&["/bin/true"]));
    }
    println!(
        "`true`: bare {:.2} ms, supervised {:.2} ms (medians of 31, interleaved)",
        median(b) * 1e3,
        median(s) * 1e3
    );
}

fn overhead_of_ten_seconds() {
    let (b, s) = (
        bare(&["/bin/sleep", "10"]),
        supervised(&["/bin/sleep", "10"]),
    );
    println!(
        "`sleep 10`: bare {b:.4} s, supervised {s:.4} s ({:+.2} %)",
        (s / b - 1.0) * 100.0
    );
}

fn flood() {
    let own = |k| {
        let me = i32::try_from(std::process::id()).unwrap();
        legwork::os::procfs::status_kb(me, k).unwrap_or(0) as f64 / f64::from(1 << 20)
    };
    let before = own("VmRSS");
    let r = attempt(helper(&["spam", "1000000000"]), |s| {
        s.timeouts.total = Some(Duration::from_secs(300))
    });
    let o = &r.outcome;
    println!(
        "pty: {} bytes in {:.2} s = {:.0} MB/s; supervisor RSS {before:.1} MiB before, {:.1} MiB at its peak",
        o.output_bytes.unwrap_or(0),
        o.wall_s,
        o.output_bytes.unwrap_or(0) as f64 / 1e6 / o.wall_s,
        own("VmHWM")
    );
}
