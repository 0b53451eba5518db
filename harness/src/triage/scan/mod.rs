//! From a log to its findings: one pass, bounded memory.
//!
//! Messages of several lines (page faults, ring timeouts with their process, hung tasks with their stack) are joined per
//! device, whatever is printed between them. Equal findings beyond a bound are counted, not kept.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};

use super::data::{self, is_amdgpu};
use super::finding::{Event, Finding, Origin, PageFault, Proc};
use super::lexer::{Ident, Lexer, Losses, Record, Stamp, read_lines};
use super::pattern::matches;
use super::pci::Pci;

mod output;
mod page_fault;

pub use output::output;
use page_fault::{fault_detail, header, process_line};

/// Equal findings kept one by one; the rest are counted.
const KEEP_EQUAL: u64 = 24;
/// Different findings kept.
const KEEP_ALL: usize = 8192;
/// Bytes of a line kept as evidence.
const KEEP_LINE: usize = 400;
/// Lines kept of one finding.
const KEEP_LINES: usize = 12;

/// What a log holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// Its findings in the order read.
    pub events: Vec<Event>,
    /// What it lost.
    pub losses: Losses,
    /// Records read.
    pub records: u64,
    /// Records whose prefix was recognised.
    pub prefixed: u64,
    /// Bytes of text that are not blank.
    pub bytes: u64,
    /// First stamp seen.
    pub first_stamp: Option<Stamp>,
    /// GPUs that named themselves.
    pub gpus: Vec<Pci>,
    /// Devices that drivers other than a GPU's speak for.
    pub others: Vec<Pci>,
    /// The kernel release, if the log prints it.
    pub kernel_release: Option<String>,
    /// Findings dropped beyond the bound.
    pub dropped: u64,
    /// Why reading stopped early.
    pub error: Option<String>,
}

fn keep(b: &[u8]) -> String {
    let b = &b[..b.len().min(KEEP_LINE)];
    String::from_utf8_lossy(b).trim_end().to_owned()
}

/// A page fault of which more lines may come.
struct Open {
    fault: PageFault,
    event: Event,
}

/// Collects findings.
struct Collector {
    scan: Scan,
    seen: HashMap<u64, (usize, u64)>,
    open: Vec<Open>,
    /// A line that names a process, without a page fault before it.
    orphan: Option<(u64, Proc, Event)>,
    /// Index of the last ring timeout that has no process yet.
    ring: Option<usize>,
    /// Index of the hung task or kernel bug whose stack is being read, and lines left.
    stack: Option<(usize, u32)>,
}

/// Findings with the same key are the same trouble over again.
fn equal_key(finding: &Finding, device: Option<Pci>) -> u64 {
    let mut h = DefaultHasher::new();
    finding.slug().hash(&mut h);
    device.hash(&mut h);
    if let Some(p) = finding.process() {
        p.hash(&mut h);
    }
    match finding {
        Finding::Program { word, .. } => word.hash(&mut h),
        Finding::Xid { code, .. } => code.hash(&mut h),
        Finding::Boilerplate { what } | Finding::Hint { what } => what.hash(&mut h),
        Finding::Harmless { why } => why.hash(&mut h),
        Finding::GpuPageFault(f) => {
            (f.client(), f.is_kernel_space(), f.status == Some(0)).hash(&mut h)
        }
        Finding::RasError {
            correctable, bogus, ..
        } => (correctable, bogus).hash(&mut h),
        Finding::Mce { corrected } => corrected.hash(&mut h),
        Finding::Aer { severity, .. } => (*severity as u8).hash(&mut h),
        Finding::GpuReset(step) => std::mem::discriminant(step).hash(&mut h),
        Finding::SqInterrupt { kind, .. } => kind.hash(&mut h),
        _ => {}
    }
    h.finish()
}

impl Collector {
    fn new() -> Self {
        Collector {
            scan: Scan::default(),
            seen: HashMap::new(),
            open: Vec::new(),
            orphan: None,
            ring: None,
            stack: None,
        }
    }

    /// Whether enough equal findings were kept: then this one is counted only.
    fn enough(&mut self, finding: &Finding, device: Option<Pci>) -> bool {
        let key = equal_key(finding, device);
        match self.seen.get_mut(&key) {
            Some(slot) if slot.1 >= KEEP_EQUAL => {
                slot.1 += 1;
                if let Some(e) = self.scan.events.get_mut(slot.0) {
                    e.count += 1;
                }
                true
            }
            _ => false,
        }
    }

    fn push(&mut self, event: Event) -> Option<usize> {
        if self.enough(&event.finding, event.device) {
            return None;
        }
        if self.scan.events.len() >= KEEP_ALL {
            self.scan.dropped += 1;
            return None;
        }
        let index = self.scan.events.len();
        let slot = self
            .seen
            .entry(equal_key(&event.finding, event.device))
            .or_insert((index, 0));
        *slot = (index, slot.1 + 1);
        self.scan.events.push(event);
        Some(index)
    }

    fn close(&mut self, at: usize) {
        let o = self.open.swap_remove(at);
        let mut event = o.event;
        event.finding = Finding::GpuPageFault(Box::new(o.fault));
        self.push(event);
    }

    fn close_all(&mut self) {
        // In the order in which they began.
        self.open.sort_by_key(|o| o.event.line());
        while !self.open.is_empty() {
            let o = self.open.remove(0);
            let mut event = o.event;
            event.finding = Finding::GpuPageFault(Box::new(o.fault));
            self.push(event);
        }
    }

    fn record(&mut self, r: &Record<'_>) {
        self.scan.records += 1;
        self.scan.prefixed += u64::from(r.prefixed);
        if self.scan.first_stamp.is_none() && !r.stamp.is_empty() {
            self.scan.first_stamp = Some(r.stamp);
        }
        if let Ident::Program(name) = r.ident {
            if matches!(name, b"systemd-oomd" | b"systemd" | b"earlyoom" | b"nohang")
                && let Some((finding, source)) = data::find(data::memory::DAEMONS, r.body)
            {
                let event = self.event(r, finding, source);
                self.push(event);
            }
            return;
        }
        if self.stack_line(r) {
            return;
        }
        let gpu = is_amdgpu(r.tag);
        if gpu {
            if let Some(d) = r.device
                && !self.scan.gpus.contains(&d)
                && self.scan.gpus.len() < 64
            {
                self.scan.gpus.push(d);
            }
            if self.fault_header(r) || self.detail(r) {
                return;
            }
        } else if let Some(d) = r.device
            && !super::scope::may_be_gpu_path(std::str::from_utf8(r.tag).unwrap_or("?"))
            && self.scan.others.len() < 64
            && !self.scan.others.contains(&d)
        {
            self.scan.others.push(d);
        }
        if !gpu && r.tag.is_empty() && !self.open.is_empty() && self.detail(r) {
            return;
        }
        if self.scan.kernel_release.is_none()
            && r.body.first() == Some(&b'L')
            && let Some(c) = matches("Linux version {v} ", r.body)
        {
            self.scan.kernel_release = Some(c.text("v"));
        }
        let Some((finding, source)) = data::kernel_finding(r) else {
            return;
        };
        // Another event of this device ends its open page fault; chatter between its lines does not.
        let chatter = matches!(
            finding,
            Finding::Harmless { .. }
                | Finding::Hint { .. }
                | Finding::Boilerplate { .. }
                | Finding::RasError {
                    correctable: true,
                    ..
                }
                | Finding::Thermal { critical: false }
                | Finding::SvmLimit
        );
        if gpu
            && !chatter
            && let Some(at) = self.open.iter().position(|o| {
                r.device.is_none() || o.event.device.is_none() || o.event.device == r.device
            })
        {
            self.close(at);
        }
        let is_ring = matches!(
            finding,
            Finding::RingTimeout {
                soft_recovered: false,
                ..
            }
        );
        let has_stack = matches!(
            finding,
            Finding::HungTask { .. } | Finding::KernelBug { .. }
        );
        if self.enough(&finding, device_of(&finding, r)) {
            return;
        }
        let event = self.event(r, finding, source);
        let index = self.push(event);
        if is_ring {
            self.ring = index;
        }
        if has_stack {
            self.stack = index.map(|i| (i, 60));
        }
    }

    fn event(&self, r: &Record<'_>, finding: Finding, source: &'static str) -> Event {
        let device = device_of(&finding, r);
        Event {
            finding,
            origin: Origin::Kernel,
            device,
            driver: String::from_utf8_lossy(r.tag).into_owned(),
            lines: vec![(r.line, keep(r.text))],
            stamp: r.stamp,
            seq: r.seq,
            count: 1,
            source,
        }
    }

    /// First line of a page fault.
    fn fault_header(&mut self, r: &Record<'_>) -> bool {
        let Some(fault) = header(r.body) else {
            return false;
        };
        if let Some(at) = self.open.iter().position(|o| o.event.device == r.device) {
            self.close(at);
        }
        let event = self.event(r, Finding::Hint { what: "page fault" }, data::sources::GMC);
        self.ring = None;
        self.open.push(Open { fault, event });
        if self.open.len() > 16 {
            self.close(0);
        }
        true
    }

    /// Further lines of a page fault or of a ring timeout.
    fn detail(&mut self, r: &Record<'_>) -> bool {
        let b = r.body;
        let process = process_line(b);
        if let Some(p) = &process
            && let Some(i) = self.ring
            && self.open.is_empty()
        {
            self.ring = None;
            let line = (r.line, keep(r.text));
            if let Some(e) = self.scan.events.get_mut(i) {
                if let Finding::RingTimeout { process, .. } = &mut e.finding {
                    *process = Some(p.clone());
                }
                e.lines.push(line);
            }
            return true;
        }
        if self.open.is_empty() {
            return self.orphan(r, process);
        }
        let Some(o) = self
            .open
            .iter_mut()
            .rev()
            .find(|o| o.event.device == r.device || r.device.is_none())
        else {
            return false;
        };
        let f = &mut o.fault;
        let known = if let Some(p) = process {
            f.process = Some(p);
            true
        } else {
            fault_detail(f, b)
        };
        if known && o.event.lines.len() < KEEP_LINES {
            o.event.lines.push((r.line, keep(r.text)));
        }
        known
    }

    /// A page fault whose first lines were lost: by the rate limit, or because the excerpt begins in its middle.
    fn orphan(&mut self, r: &Record<'_>, process: Option<Proc>) -> bool {
        if let Some(p) = process {
            let event = self.event(r, Finding::Hint { what: "page fault" }, data::sources::GMC);
            self.orphan = Some((r.line, p, event));
            return true;
        }
        // Only lines that can belong to nothing else begin one.
        let begins = memchr::memmem::find(r.body, b"L2_PROTECTION_FAULT_STATUS")
            .is_some_and(|p| p < 8)
            || r.body.starts_with(b"in page starting at address 0x")
            || r.body.starts_with(b"Faulty UTCL2 client ID:");
        let mut fault = PageFault::default();
        if !begins || !fault_detail(&mut fault, r.body) {
            return false;
        }
        "gfxhub".clone_into(&mut fault.hub);
        let mut event = self.event(r, Finding::Hint { what: "page fault" }, data::sources::GMC);
        if let Some((line, p, mut named)) = self.orphan.take()
            && r.line - line <= 4
            && (named.device.is_none() || r.device.is_none() || named.device == r.device)
        {
            fault.process = Some(p);
            named.lines.append(&mut event.lines);
            event = named;
        }
        self.open.push(Open { fault, event });
        true
    }

    /// Lines of a call trace, read for the drivers in it.
    fn stack_line(&mut self, r: &Record<'_>) -> bool {
        let Some((i, left)) = self.stack else {
            return false;
        };
        let b = r.body;
        let starts_other = is_amdgpu(r.tag) && r.device.is_some()
            || b.starts_with(b"INFO: task ")
            || r.text.starts_with(b"INFO: task ");
        if left == 0 || starts_other {
            self.stack = None;
            return false;
        }
        self.stack = Some((i, left - 1));
        let has = |n: &[u8]| memchr::memmem::find(r.text, n).is_some();
        let what = if has(b"amdgpu")
            || has(b"dma_fence")
            || has(b"kfd_")
            || has(b"svm_range")
            || has(b"drm_sched")
            || has(b"nvidia")
            || has(b"_nv0")
            || has(b"amdkfd")
        {
            "gpu"
        } else if has(b"cifs")
            || has(b"smb2")
            || has(b"nfs")
            || has(b"rpc_")
            || has(b"fuse_")
            || has(b"ceph")
        {
            "share"
        } else if has(b"nvme") || has(b"blk_mq") || has(b"ext4_") || has(b"xfs_") || has(b"jbd2") {
            "storage"
        } else {
            ""
        };
        // The line that names the task or the modules loaded says nothing about its stack.
        let frame = has(b"+0x") || has(b"RIP:") || has(b"Workqueue:");
        let Some(e) = self.scan.events.get_mut(i) else {
            return false;
        };
        if frame && !what.is_empty() {
            match &mut e.finding {
                Finding::HungTask { frames, .. }
                    if frames.is_empty() || (*frames == "storage" && what != "storage") =>
                {
                    *frames = what
                }
                Finding::KernelBug { gpu, .. } if what == "gpu" => *gpu = true,
                _ => {}
            }
        }
        let trace = frame
            || b.starts_with(b"task:")
            || b.starts_with(b"Call Trace")
            || b.starts_with(b"<TASK>")
            || b.starts_with(b"</TASK>");
        if trace && e.lines.len() < KEEP_LINES {
            e.lines.push((r.line, keep(r.text)));
        }
        trace
    }
}

/// The device that a finding speaks of.
fn device_of(finding: &Finding, r: &Record<'_>) -> Option<Pci> {
    match finding {
        Finding::Xid { .. } => xid_device(r.body).or(r.device),
        Finding::Aer { origin, .. } => origin.or(r.device),
        _ => r.device,
    }
}

fn xid_device(body: &[u8]) -> Option<Pci> {
    let open = body.iter().position(|&c| c == b'(')?;
    let close = body[open..].iter().position(|&c| c == b')')? + open;
    Pci::parse(&body[open + 1..close])
}

/// Reads a kernel log.
///
/// # Errors
/// None: a read error ends the log and is kept in `error`.
#[must_use]
pub fn kernel(input: impl Read) -> Scan {
    let mut lexer = Lexer::new();
    let mut c = Collector::new();
    let mut bytes = 0u64;
    let end: io::Result<u64> = read_lines(input, |line| {
        bytes += line.len() as u64;
        lexer.feed(line, &mut |r| c.record(r));
    });
    match end {
        Ok(n) => lexer.add_too_long(n),
        Err(e) => c.scan.error = Some(e.to_string()),
    }
    c.close_all();
    // Joined messages close late: restore the order of their first lines.
    c.scan.events.sort_by_key(Event::line);
    c.scan.bytes = bytes;
    c.scan.losses = lexer.losses();
    c.scan
}

#[cfg(test)]
mod tests {
    use super::output::unstamp;
    use super::page_fault::parse_process;
    use super::*;

    #[test]
    fn a_fault_is_joined_across_foreign_lines() {
        let log = "\
amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:40 vmid:8 pasid:32771)
[UFW BLOCK] IN=eth0
amdgpu 0000:c5:00.0: amdgpu:  Process my prog pid 7 thread worker 0 pid 9
amdgpu 0000:c5:00.0: amdgpu:   in page starting at address 0x00007b3c41001000 from client 10
usb 1-3: new device
amdgpu 0000:c5:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00841051
amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE
";
        let s = kernel(log.as_bytes());
        assert_eq!(s.events.len(), 2);
        let Finding::GpuPageFault(f) = &s.events[0].finding else {
            panic!()
        };
        let p = f.process.as_ref().unwrap();
        assert_eq!(
            (p.comm.as_str(), p.pid, p.thread_comm.as_str(), p.thread),
            ("my prog", Some(7), "worker 0", Some(9))
        );
        assert_eq!(
            (f.address, f.write(), f.vmid),
            (Some(0x7b3c_4100_1000), Some(true), Some(8))
        );
        assert!(f.client().is_shader());
        assert_eq!(s.events[0].lines.len(), 4);
    }

    #[test]
    fn nobody_is_nobody() {
        let p = parse_process(b"  pid 0 thread  pid 0)").unwrap();
        assert!(p.is_nobody());
        assert_eq!(p.thread, Some(0));
    }

    #[test]
    fn floods_are_counted_not_kept() {
        let mut log = String::new();
        for i in 0..10_000 {
            log.push_str(&format!("[{i}.000000] amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:3)\n"));
        }
        let s = kernel(log.as_bytes());
        assert_eq!(s.events.len() as u64, KEEP_EQUAL);
        assert_eq!(s.events.iter().map(|e| e.count).sum::<u64>(), 10_000);
    }

    #[test]
    fn our_own_stamps_are_taken_off() {
        let line = b"12.000000345 2026-12-01T04:47:49.123456Z | Memory access fault by GPU node-1";
        assert_eq!(unstamp(line).1, b"Memory access fault by GPU node-1");
        assert_eq!(unstamp(b"| model | size |").1, b"| model | size |");
    }
}
