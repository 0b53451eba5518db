//! Triage of a long kernel log, generated on the fly: lines and bytes per second, and peak memory.
//!
//! `cargo bench -p legwork --bench triage` reads 1 GB; `-- 100` reads 100 MB.

use std::io::Read;
use std::time::Instant;

use legwork::triage::scan_kernel;

/// What a busy machine's log holds: mostly other people's lines, some of the GPU's, few that matter.
const LINES: &[&str] = &[
    "[UFW BLOCK] IN=enp1s0 OUT= MAC= SRC=192.0.2.1 DST=224.0.0.1 LEN=36 TOS=0x00 PREC=0x00 TTL=1 ID=30516 DF PROTO=2",
    "audit: type=1400 audit(1776016193.288:126): apparmor=\"STATUS\" operation=\"profile_load\" profile=\"unconfined\" name=\"docker-default\"",
    "usb 1-3: new high-speed USB device number 4 using xhci_hcd",
    "amdgpu 0000:c5:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
    "amdgpu: Freeing queue vital buffer 0x7f1c94000000, queue evicted",
    "systemd-journald[445]: Under memory pressure, flushing caches.",
    "amdgpu 0000:c5:00.0: amdgpu: SMU is resumed successfully!",
    "br-4f1c: port 2(veth11) entered forwarding state",
    "[drm] PCIE GART of 512M enabled (table at 0x00000081FFB00000).",
    "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
];

const FAULT: &[&str] = &[
    "amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32771)",
    "amdgpu 0000:c5:00.0: amdgpu:  Process legwork pid 77 thread legwork pid 77",
    "amdgpu 0000:c5:00.0: amdgpu:   in page starting at address 0x00007b3c41001000 from client 10",
    "amdgpu 0000:c5:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00801031",
    "amdgpu 0000:c5:00.0: amdgpu: \t Faulty UTCL2 client ID: TCP (0x8)",
];

/// A log that is never in memory as a whole.
struct Log {
    left: u64,
    line: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl Read for Log {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            while self.buffer.len() < 1 << 20 && self.left > 0 {
                let n = self.line;
                let text = if n % 1000 < FAULT.len() as u64 {
                    FAULT[(n % 1000) as usize]
                } else {
                    LINES[(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % LINES.len()]
                };
                let before = self.buffer.len();
                let head = format!("[{:8}.{:06}] ", n / 1000, n % 1000 * 1000);
                self.buffer.extend_from_slice(head.as_bytes());
                self.buffer.extend_from_slice(text.as_bytes());
                self.buffer.push(b'\n');
                self.left = self
                    .left
                    .saturating_sub((self.buffer.len() - before) as u64);
                self.line += 1;
            }
        }
        let n = out.len().min(self.buffer.len() - self.at);
        out[..n].copy_from_slice(&self.buffer[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn peak_rss_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Seconds that this process spent on a CPU: what counts on a machine that others use too.
fn cpu_s() -> f64 {
    std::fs::read_to_string("/proc/self/schedstat")
        .ok()
        .and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(0.0, |ns| ns / 1e9)
}

fn main() {
    let megabytes: u64 = std::env::args()
        .skip(1)
        .find_map(|a| a.parse().ok())
        .unwrap_or(1000);
    let log = Log {
        left: megabytes * 1_000_000,
        line: 0,
        buffer: Vec::new(),
        at: 0,
    };
    // The generator's own time, to be taken off.
    let mut idle = Log {
        left: megabytes * 1_000_000,
        line: 0,
        buffer: Vec::new(),
        at: 0,
    };
    let before = cpu_s();
    let mut sink = vec![0u8; 256 * 1024];
    while idle.read(&mut sink).is_ok_and(|n| n > 0) {}
    let generate = cpu_s() - before;
    let (start, before) = (Instant::now(), cpu_s());
    let scan = scan_kernel(log);
    let wall = start.elapsed().as_secs_f64();
    let net = (cpu_s() - before - generate).max(1e-9);
    println!(
        "{} MB, {} lines: {:.2} s of CPU besides {:.2} s of generation ({:.2} s wall) = {:.2} M lines/s, {:.0} MB/s; {} findings kept; peak memory {} MiB",
        megabytes,
        scan.records,
        net,
        generate,
        wall,
        scan.records as f64 / net / 1e6,
        megabytes as f64 / net,
        scan.events.len(),
        peak_rss_kib().map_or_else(|| "?".to_owned(), |k| (k / 1024).to_string()),
    );
}
