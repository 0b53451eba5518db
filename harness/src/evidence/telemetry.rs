//! Telemetry: one row per interval, in `telemetry.csv` with a header line. An empty cell was not observed.
//!
//! The sampler also tells the loop what it needs for the idle deadline and the progress line. It reads files only;
//! it never runs a tool.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::gpu::{GPU_COLUMNS, GpuReader};
use crate::os::procfs::{self, Stat};
use crate::os::root::Root;
use crate::os::wake::Wake;
use crate::os::{clock, process};

/// Columns that every machine has.
const HOST_COLUMNS: &[&str] = &[
    "mono_s",
    "processes",
    "threads",
    "rss_bytes",
    "cpu_s",
    "d_state",
    "mem_available_bytes",
    "load1",
    "psi_cpu_some_pct",
    "psi_memory_some_pct",
    "psi_memory_full_pct",
    "psi_io_some_pct",
    "psi_io_full_pct",
    "disk_free_bytes",
    "tree_read_bytes",
    "tree_write_bytes",
];

/// How often the disks are looked at.
const DISK_EVERY: Duration = Duration::from_millis(100);

/// The latest sample.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// CLOCK_MONOTONIC ns; 0 before the first sample.
    pub at_ns: u64,
    /// Processes alive.
    pub processes: usize,
    /// Sum of resident sizes.
    pub rss_bytes: Option<u64>,
    /// Highest sum of resident sizes, and highest single high-water mark, so far.
    pub peak_rss_bytes: Option<u64>,
    /// CPU time of the tree so far, ns.
    pub cpu_ns: Option<u64>,
    /// Highest GPU busy percentage of the board's GPUs.
    pub gpu_busy_pct: Option<f64>,
    /// A watched disk is below its floor; in words.
    pub disk_low: Option<String>,
}

/// Where a sampler gets its facts.
pub struct SamplerSetup {
    /// Board files.
    pub root: Root,
    /// The attempt's folder.
    pub dir: PathBuf,
    /// Whether rows are written.
    pub write: bool,
    /// Interval.
    pub every: Duration,
    /// Start of the attempt, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// The tree's processes.
    pub alive: Box<dyn Fn() -> Vec<Stat> + Send>,
    /// CPU time of the whole tree, µs, where a control group counts it.
    pub group_cpu_usec: Box<dyn Fn() -> Option<u64> + Send>,
    /// Places whose free space is watched.
    pub disks: Vec<PathBuf>,
    /// Their floor, bytes, if it is not the usual one.
    pub disk_floor: Option<u64>,
}

/// A running sampler.
#[derive(Debug)]
pub struct Sampler {
    latest: Arc<Mutex<Sample>>,
    stop: Wake,
    thread: JoinHandle<(u64, Option<String>)>,
}

impl Sampler {
    /// Starts it.
    pub fn start(set: SamplerSetup) -> io::Result<Self> {
        let latest = Arc::new(Mutex::new(Sample::default()));
        let stop = Wake::new()?;
        let (l, s) = (Arc::clone(&latest), stop.clone());
        let thread = std::thread::spawn(move || run(&set, &l, &s));
        Ok(Sampler {
            latest,
            stop,
            thread,
        })
    }

    /// The latest sample.
    #[must_use]
    pub fn latest(&self) -> Sample {
        self.latest.lock().map(|s| s.clone()).unwrap_or_default()
    }

    /// Ends it; rows written and the first error.
    #[must_use]
    pub fn finish(self) -> (Sample, u64, Option<String>) {
        self.stop.set();
        let (rows, error) = self
            .thread
            .join()
            .unwrap_or((0, Some("the sampler died".into())));
        (
            self.latest.lock().map(|s| s.clone()).unwrap_or_default(),
            rows,
            error,
        )
    }
}

fn run(set: &SamplerSetup, latest: &Mutex<Sample>, stop: &Wake) -> (u64, Option<String>) {
    let mut gpu = GpuReader::find(&set.root);
    let mut error = None;
    let mut file = match set
        .write
        .then(|| open(&set.dir, !gpu.is_empty()))
        .transpose()
    {
        Ok(f) => f,
        Err(e) => {
            error = Some(format!("telemetry.csv: {e}"));
            None
        }
    };
    let mut rows = 0;
    let mut peak: Option<u64> = None;
    loop {
        let (sample, row) = take(set, &mut gpu, &mut peak);
        if let Ok(mut l) = latest.lock() {
            *l = sample;
        }
        if let Some(f) = &mut file {
            match f.write_all(row.as_bytes()) {
                Ok(()) => rows += 1,
                Err(e) => {
                    error.get_or_insert_with(|| format!("telemetry.csv: {e}"));
                    file = None; // once the disk is full, stop trying
                }
            }
        }
        // A leg can fill a disk faster than rows are due.
        let mut left = set.every;
        while !left.is_zero() {
            let nap = if set.disks.is_empty() {
                left
            } else {
                left.min(DISK_EVERY)
            };
            if stop.sleep(nap) {
                return (rows, error);
            }
            left = left.saturating_sub(nap);
            if let Some(low) = process::low_disk(&set.disks, set.disk_floor)
                && let Ok(mut l) = latest.lock()
            {
                l.at_ns = clock::mono_ns();
                l.disk_low = Some(low);
            }
        }
    }
}

fn open(dir: &Path, gpu: bool) -> io::Result<File> {
    let mut f = File::create_new(dir.join("telemetry.csv"))?;
    let mut names = HOST_COLUMNS.to_vec();
    if gpu {
        names.extend(GPU_COLUMNS);
    }
    f.write_all(format!("{}\n", names.join(",")).as_bytes())?;
    Ok(f)
}

/// A cell: empty when it was not observed.
pub(super) fn cell<T: std::fmt::Display>(v: Option<T>) -> String {
    v.map_or_else(String::new, |v| v.to_string())
}

#[allow(clippy::cast_precision_loss)]
fn take(set: &SamplerSetup, gpu: &mut GpuReader, peak: &mut Option<u64>) -> (Sample, String) {
    let now = clock::mono_ns();
    let alive = (set.alive)();
    let page = procfs::page_size();
    let rss = (!alive.is_empty()).then(|| alive.iter().map(|s| s.rss_pages * page).sum::<u64>());
    let hwm = alive
        .iter()
        .filter_map(|s| procfs::status_kb(s.pid, "VmHWM"))
        .max();
    *peak = [*peak, rss, hwm].into_iter().flatten().max();
    let cpu_ns = (set.group_cpu_usec)().map(|u| u * 1000).or_else(|| {
        let ticks: u64 = alive.iter().map(|s| s.cpu_ticks).sum();
        (!alive.is_empty()).then(|| ticks * (1_000_000_000 / procfs::ticks_per_second()))
    });
    let own: Vec<i32> = alive.iter().map(|s| s.pid).collect();
    let gpu_row = gpu.sample(&set.root, &own);
    let sample = Sample {
        at_ns: now,
        processes: alive.len(),
        rss_bytes: rss,
        peak_rss_bytes: *peak,
        cpu_ns,
        gpu_busy_pct: gpu_row.as_ref().and_then(|g| g.busy_pct),
        disk_low: process::low_disk(&set.disks, set.disk_floor),
    };
    let psi =
        |what: &str, kind: &str| psi_avg10(&set.root.text(format!("/proc/pressure/{what}"))?, kind);
    let io = |key: &str| -> Option<u64> {
        let v: Vec<u64> = alive.iter().filter_map(|s| proc_io(s.pid, key)).collect();
        (!v.is_empty()).then(|| v.iter().sum())
    };
    let mut cells = vec![
        format!("{:.6}", now.saturating_sub(set.start_ns) as f64 / 1e9),
        alive.len().to_string(),
        alive
            .iter()
            .map(|s| u64::from(s.threads))
            .sum::<u64>()
            .to_string(),
        cell(rss),
        cell(cpu_ns.map(|c| format!("{:.3}", c as f64 / 1e9))),
        alive.iter().filter(|s| s.state == 'D').count().to_string(),
        cell(mem_available(&set.root)),
        cell(
            set.root
                .text("/proc/loadavg")
                .and_then(|t| t.split(' ').next().map(str::to_owned)),
        ),
        cell(psi("cpu", "some")),
        cell(psi("memory", "some")),
        cell(psi("memory", "full")),
        cell(psi("io", "some")),
        cell(psi("io", "full")),
        cell(process::free_bytes(&set.dir)),
        cell(io("read_bytes")),
        cell(io("write_bytes")),
    ];
    if let Some(g) = gpu_row {
        cells.extend(g.cells);
    }
    (sample, format!("{}\n", cells.join(",")))
}

fn proc_io(pid: i32, key: &str) -> Option<u64> {
    procfs::status_field(&procfs::read_text(format!("/proc/{pid}/io"))?, key)?
        .parse()
        .ok()
}

/// `MemAvailable`, bytes.
#[must_use]
pub fn mem_available(root: &Root) -> Option<u64> {
    let t = root.text("/proc/meminfo")?;
    let kb: u64 = procfs::status_field(&t, "MemAvailable")?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    Some(kb * 1024)
}

/// The ten-second average of a line of `/proc/pressure/*`.
fn psi_avg10(text: &str, kind: &str) -> Option<f64> {
    text.lines()
        .find_map(|l| l.strip_prefix(kind)?.trim_start().strip_prefix("avg10="))?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_and_absent_values() {
        let t = "some avg10=1.50 avg60=0.20 avg300=0.00 total=1\nfull avg10=0.25 avg60=0.1 avg300=0 total=2";
        assert_eq!(psi_avg10(t, "some"), Some(1.5));
        assert_eq!(psi_avg10(t, "full"), Some(0.25));
        assert_eq!(psi_avg10("some avg10=1", "full"), None);
        assert_eq!(cell::<u64>(None), "");
        assert_eq!(cell(Some(0)), "0");
    }
}
