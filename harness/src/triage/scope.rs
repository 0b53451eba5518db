//! Whose line is it: inside the attempt's window, on its GPU, of its process tree.

use super::context::{Context, comm15};
use super::finding::{Event, Finding, Origin, Proc, Word};
use super::pci::Pci;

/// Whose a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// By pid.
    Ours,
    /// By name, or because nothing is known to compare with.
    Likely,
    /// Nobody is named.
    Nobody,
    /// Somebody else.
    Other,
}

/// Why a line does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It counts.
    Inside(Owner),
    /// It lies before or after the attempt.
    OutsideWindow,
    /// It speaks of another GPU.
    OtherDevice,
}

/// Kernel and runtime name different pages of one fault, but the same 2 MiB block.
const BLOCK: u64 = 2 << 20;

/// The block that ROCr names in `Memory access fault by GPU node-1 (…) on address 0x7f….`
fn reported_block(e: &Event) -> Option<u64> {
    let Finding::Program {
        word: Word::MemoryAccessFault,
        ..
    } = e.finding
    else {
        return None;
    };
    let at = e.text().find("on address 0x")?;
    let address = super::pattern::parse_hex(&e.text().as_bytes()[at + 11..])?;
    (address >= BLOCK).then_some(address / BLOCK)
}

/// What belongs to the attempt.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pids: Vec<u64>,
    comms: Vec<String>,
    gpus: Vec<Pci>,
    passed: bool,
    /// 2 MiB blocks of addresses that the attempt's own runtime reported as faulting.
    reported: Vec<u64>,
    leader: Option<u64>,
    crashed: bool,
}

impl Scope {
    /// From the context; when the context names no GPU, the first GPU line that names one of the attempt's pids does.
    #[must_use]
    pub fn new(ctx: &Context, events: &[Event]) -> Scope {
        let ending = ctx.ending();
        let mut s = Scope {
            pids: ctx.all_pids(),
            comms: ctx.all_comms(),
            gpus: ctx.gpus(),
            passed: ending.success(),
            reported: events.iter().filter_map(reported_block).take(16).collect(),
            leader: ctx.pid,
            crashed: matches!(ending.signal, Some(4 | 5 | 7 | 8 | 11)),
        };
        // A line that names the attempt's pid is better than an address that fits.
        if events.iter().any(|e| {
            matches!(&e.finding, Finding::GpuPageFault(f) if f.process.as_ref().is_some_and(|p| s.by_pid(p)))
        }) {
            s.reported.clear();
        }
        if s.gpus.is_empty() {
            let own = events.iter().find_map(|e| {
                let p = e.finding.process()?;
                (s.by_pid(p) && matches!(e.finding, Finding::GpuPageFault(_) | Finding::Xid { .. }))
                    .then_some(e.device)
                    .flatten()
            });
            s.gpus.extend(own);
        }
        s
    }

    fn reported(&self, address: Option<u64>) -> bool {
        address.is_some_and(|a| a >= BLOCK && self.reported.contains(&(a / BLOCK)))
    }

    /// The attempt's GPUs, as far as known.
    #[must_use]
    pub fn gpus(&self) -> &[Pci] {
        &self.gpus
    }

    fn by_pid(&self, p: &Proc) -> bool {
        [p.pid, p.thread]
            .iter()
            .flatten()
            .any(|n| *n != 0 && self.pids.contains(n))
    }

    fn by_comm(&self, p: &Proc) -> bool {
        let is = |name: &str| {
            let name = name.trim();
            !name.is_empty() && self.comms.iter().any(|c| *c == comm15(name))
        };
        is(&p.comm) || is(&p.thread_comm)
    }

    /// Whose process it is.
    #[must_use]
    pub fn owner(&self, p: &Proc) -> Owner {
        if p.is_nobody() {
            return Owner::Nobody;
        }
        if self.by_pid(p) {
            return Owner::Ours;
        }
        if self.by_comm(p) {
            // A passed attempt's namesake is somebody else.
            return if self.passed && !self.pids.is_empty() {
                Owner::Other
            } else {
                Owner::Likely
            };
        }
        if self.pids.is_empty() && self.comms.is_empty() {
            return Owner::Likely;
        }
        Owner::Other
    }

    /// The same for a CPU fault, whose line names a thread: a crash that fits the attempt's own and whose id lies just
    /// above the leader's pid is one of its threads.
    #[must_use]
    pub fn cpu_owner(&self, p: &Proc) -> Owner {
        let o = self.owner(p);
        if o == Owner::Other
            && self.crashed
            && let (Some(leader), Some(tid)) = (self.leader, p.pid)
            && tid > leader
            && tid - leader < 512
        {
            return Owner::Likely;
        }
        o
    }

    /// Whether a device is the attempt's GPU, or may be.
    #[must_use]
    pub fn on_our_gpu(&self, device: Option<Pci>) -> bool {
        match device {
            Some(d) => self.gpus.is_empty() || self.gpus.iter().any(|g| g.same_device(d)),
            None => true,
        }
    }

    /// Where a kernel-log finding stands.
    #[must_use]
    pub fn place(&self, e: &Event, ctx: &Context) -> Place {
        if e.origin == Origin::Output {
            return Place::Inside(Owner::Ours);
        }
        // What the next boot says about the end of the one before lies outside every window.
        let next_boot = ctx.ending().host_reset
            && matches!(e.finding, Finding::HostReset { .. } | Finding::Mce { .. })
            && e.stamp.mono_us.is_none_or(|us| us < 120_000_000);
        if let Some(w) = &ctx.window
            && !next_boot
            && !w.contains(&e.stamp, e.seq)
        {
            return Place::OutsideWindow;
        }
        let owner = match &e.finding {
            Finding::CpuFault { process, .. } => self.cpu_owner(process),
            Finding::GpuPageFault(f) if self.reported(f.address) => Owner::Ours,
            f => f.process().map_or(Owner::Nobody, |p| self.owner(p)),
        };
        // A fault that names the attempt's pid is the attempt's, on whatever GPU.
        if owner != Owner::Ours
            && e.device.is_some()
            && self.speaks_of_a_gpu(e)
            && !self.on_our_gpu(e.device)
        {
            return Place::OtherDevice;
        }
        Place::Inside(owner)
    }

    /// Findings whose device must be the attempt's GPU to count.
    fn speaks_of_a_gpu(&self, e: &Event) -> bool {
        matches!(
            e.finding,
            Finding::GpuPageFault(_)
                | Finding::MesTimeout { .. }
                | Finding::HwsTimeout
                | Finding::RingTimeout { .. }
                | Finding::GpuReset(_)
                | Finding::GpuInitFailed { .. }
                | Finding::DeviceLost
                | Finding::SmuFailure { .. }
                | Finding::SqInterrupt { .. }
                | Finding::RasError { .. }
                | Finding::Thermal { .. }
                | Finding::Xid { .. }
                | Finding::Aer { .. }
                | Finding::IommuFault { .. }
                | Finding::Boilerplate { .. }
                | Finding::QueueCreateFailed { .. }
        )
    }
}

/// Whether a PCI error or IOMMU fault was printed for something that can be a GPU or the way to it.
#[must_use]
pub fn may_be_gpu_path(driver: &str) -> bool {
    matches!(
        driver,
        "amdgpu"
            | "nvidia"
            | "snd_hda_intel"
            | "pcieport"
            | "AER"
            | "AMD-Vi"
            | "DMAR"
            | "radeon"
            | "vfio-pci"
            | ""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proc(comm: &str, pid: u64) -> Proc {
        Proc {
            comm: comm.into(),
            pid: Some(pid),
            ..Proc::default()
        }
    }

    #[test]
    fn pid_first_then_fifteen_characters() {
        let ctx = Context {
            process: Some("rocm-bandwidth-test".into()),
            pid: Some(7),
            ..Context::default()
        };
        let s = Scope::new(&ctx, &[]);
        assert_eq!(s.owner(&proc("whatever", 7)), Owner::Ours);
        assert_eq!(s.owner(&proc("rocm-bandwidth-", 9)), Owner::Likely);
        assert_eq!(s.owner(&proc("darktable", 9)), Owner::Other);
        assert_eq!(s.owner(&proc("", 0)), Owner::Nobody);
        let nothing = Scope::new(&Context::default(), &[]);
        assert_eq!(nothing.owner(&proc("darktable", 9)), Owner::Likely);
    }

    #[test]
    fn a_passed_legs_namesake_is_somebody_else() {
        let ctx = Context {
            process: Some("python".into()),
            pid: Some(7),
            exit: Some("0".into()),
            ..Context::default()
        };
        assert_eq!(
            Scope::new(&ctx, &[]).owner(&proc("python", 9)),
            Owner::Other
        );
    }
}
