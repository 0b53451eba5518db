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
    terminal();
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

/// What the kernel's terminal gives at most: the same writer, read by a loop that throws everything away.
fn bare_terminal(bytes: u64) -> f64 {
    use std::io::Read;
    let mut pty = legwork::os::pty::open((120, 40)).unwrap();
    let argv = helper(&["spam", &bytes.to_string()]);
    let t = Instant::now();
    let mut child = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(pty.slave.try_clone().unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(pty.slave);
    let mut buf = vec![0u8; 64 << 10];
    let mut got = 0u64;
    loop {
        match pty.master.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => got += n as u64,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                use std::os::fd::AsRawFd;
                let _ = legwork::os::wake::wait_readable(&[pty.master.as_raw_fd()], 1000);
            }
            Err(_) => break, // the writer is gone
        }
    }
    let s = t.elapsed().as_secs_f64();
    child.wait().unwrap();
    assert_eq!(got, bytes);
    got as f64 / 1e6 / s
}

fn supervised_terminal(bytes: u64) -> f64 {
    let r = attempt(helper(&["spam", &bytes.to_string()]), |s| {
        s.timeouts.total = Some(Duration::from_secs(300));
        s.output_cap = 64 << 20;
    });
    assert_eq!(r.outcome.output_bytes, Some(bytes));
    bytes as f64 / 1e6 / r.outcome.wall_s
}

/// Interleaved, since the machine is never the same twice.
fn terminal() {
    const BYTES: u64 = 400_000_000;
    let (mut b, mut s) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        b.push(bare_terminal(BYTES));
        s.push(supervised_terminal(BYTES));
    }
    let (best_b, best_s) = (
        b.iter().copied().fold(0.0, f64::max),
        s.iter().copied().fold(0.0, f64::max),
    );
    let (b, s) = (median(b), median(s));
    println!(
        "terminal, 5 x 400 MB, interleaved: kernel alone {b:.0} MB/s (best {best_b:.0}), supervised {s:.0} MB/s (best {best_s:.0}), ratio {:.2}",
        s / b
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
        "1 GB of output: {} bytes in {:.2} s = {:.0} MB/s; supervisor RSS {before:.1} MiB before, {:.1} MiB at its peak",
        o.output_bytes.unwrap_or(0),
        o.wall_s,
        o.output_bytes.unwrap_or(0) as f64 / 1e6 / o.wall_s,
        own("VmHWM")
    );
}
