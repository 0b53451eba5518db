//! Question 3: did the host's kernel say so? Memory, CPU faults, shares, disks, network.

use legwork_reports::model::{Class, Confidence};

use super::decision::{Decision, Evidence};
use crate::triage::finding::{Event, Finding, OomScope, Word};
use crate::triage::scope::{Owner, may_be_gpu_path};
use crate::triage::settle::Settle;

use Class::{Board, Host, Inconclusive, Infra};
use Confidence::{High, Low, Medium};

/// The first statement about the attempt's own process, with its position: killed for memory, budget refused, crashed.
#[must_use]
pub fn process(ev: &Evidence<'_>) -> Option<(usize, Decision)> {
    ev.kernel().find_map(|(i, e, owner)| match &e.finding {
        Finding::OomKill { scope, process, unit } => oom(ev, i, *scope, process.is_some(), owner, unit),
        Finding::CpuFault { .. } => cpu_fault(ev, i, e, owner),
        Finding::SvmLimit if !ev.ending.success() => Some((
            i,
            Decision::by(
                i,
                Host,
                "svm-limit",
                Medium,
                "KFD's budget of resident system memory is used up: a mapped model file and its copy count against the same sum; programs then spin or crash",
            )
            .settle(&[Settle::NoMmap, Settle::Smaller, Settle::DefaultAllocator]),
        )),
        _ => None,
    })
}

fn oom(
    ev: &Evidence<'_>,
    i: usize,
    scope: OomScope,
    named: bool,
    owner: Owner,
    unit: &str,
) -> Option<(usize, Decision)> {
    if ev.ending.success() {
        return None;
    }
    let killed = ev.ending.signal == Some(9)
        || ev.ending.unknown()
        || ev.ending.timed_out && ev.ending.signal.is_none();
    let why = match scope {
        OomScope::Global => {
            "the machine ran out of memory and the kernel chose the attempt's process; on an APU its resident size may look tiny, since GPU buffers do not count"
        }
        OomScope::Cgroup => "the attempt's own memory limit was reached",
        OomScope::UserSpace => {
            "a user-space killer ended the attempt's unit on memory pressure; the kernel log has no line of it"
        }
    };
    if named {
        return match owner {
            Owner::Ours => Some((i, Decision::by(i, Host, "oom-kill", High, why))),
            Owner::Likely => Some((i, Decision::by(i, Host, "oom-kill", Medium, why))),
            _ => None,
        };
    }
    // A unit is named, not a process: it fits an attempt that was killed.
    let fits = killed
        || ev
            .ctx
            .descendants
            .iter()
            .any(|d| d.end.is_some_and(|e| e.signal == Some(9)));
    let ours = ev.scope_names(unit);
    (fits && (ours || ev.ending.signal == Some(9)))
        .then(|| (i, Decision::by(i, Host, "oom-kill", High, why)))
}

impl Evidence<'_> {
    /// Whether a cgroup or unit carries one of the attempt's names.
    fn scope_names(&self, unit: &str) -> bool {
        let unit = unit.to_ascii_lowercase();
        unit.contains("leg")
            || self
                .ctx
                .all_comms()
                .iter()
                .any(|c| c.len() > 2 && unit.contains(&c.to_ascii_lowercase()))
    }
}

/// Libraries in which a CPU fault may echo a sick GPU stack.
fn runtime_library(module: &str) -> bool {
    [
        "libamdhip64",
        "libhsa-runtime",
        "libhsakmt",
        "libcuda",
        "libamd_comgr",
        "libvulkan_radeon",
        "libnvidia",
    ]
    .iter()
    .any(|l| module.contains(l))
}

fn cpu_fault(ev: &Evidence<'_>, i: usize, e: &Event, owner: Owner) -> Option<(usize, Decision)> {
    let Finding::CpuFault {
        what,
        process,
        module,
        ip,
    } = &e.finding
    else {
        return None;
    };
    if owner > Owner::Likely || ev.ending.success() && owner != Owner::Ours {
        return None;
    }
    let place = if module.is_empty() {
        "an unnamed place".to_owned()
    } else {
        module.clone()
    };
    if what.contains("invalid opcode") {
        return Some((
            i,
            Decision::by(
                i,
                Host,
                "illegal-instruction",
                High,
                format!(
                    "the CPU met an instruction that it does not have, in {place}: host code built for another CPU"
                ),
            ),
        ));
    }
    // The same instruction trapping in unrelated programs points at RAM or CPU.
    let same: Vec<(usize, &str)> = ev
        .events
        .iter()
        .enumerate()
        .filter_map(|(k, o)| match (&o.finding, ip) {
            (
                Finding::CpuFault {
                    ip: Some(b),
                    process: p,
                    module: m,
                    ..
                },
                Some(a),
            ) if a == b && m == module && p.comm != process.comm => Some((k, p.comm.as_str())),
            _ => None,
        })
        .collect();
    let programs: std::collections::BTreeSet<&str> = same.iter().map(|s| s.1).collect();
    if programs.len() >= 2 {
        let mut d = Decision::by(
            i,
            Inconclusive,
            "segv-host",
            Medium,
            format!(
                "{what} in {place}, at the same place as in {} unrelated programs: suspect RAM or CPU",
                programs.len()
            ),
        )
        .or(Board, "segv-host", "if a memory test fails")
        .or(Host, "segv-host", "if the programs share a broken library")
        .settle(&[Settle::OtherBoard, Settle::ColdStart]);
        for (k, comm) in same.iter().take(4) {
            d = d.with(Some(*k), &format!("{comm} crashed at the same place"));
        }
        return Some((i, d));
    }
    let mut d = Decision::by(
        i,
        Host,
        "segv-host",
        if owner == Owner::Ours && !runtime_library(module) {
            High
        } else {
            Medium
        },
        format!("{what} on the CPU in {place}, and no GPU event of the attempt came before it"),
    );
    if runtime_library(module) {
        d = d
            .or(
                Board,
                "segv-host",
                "a sick GPU stack can be behind a crash inside its runtime",
            )
            .settle(&[Settle::Core, Settle::KnownGood]);
    }
    Some((i, d))
}

/// The surroundings: shares, disks, network; asked when nothing of the attempt itself decided.
#[must_use]
pub fn surroundings(ev: &Evidence<'_>) -> Option<Decision> {
    if ev.ending.success() {
        return None;
    }
    let mut best: Option<Decision> = ev.ctx.shares.first().map(|s| {
        let said = ev.said(&[Word::ReadError, Word::HostDown]);
        let how = match (&s.error, s.state.as_str()) {
            (Some(e), _) => e.as_str(),
            (None, "hangs") => "no answer",
            (None, state) => state,
        };
        Decision::fact(
            "share",
            format!("{} ({}): {how}", s.path, s.fs),
            "share-lost",
            Infra,
            "share-lost",
            if said.is_some() || s.state == "hangs" {
                High
            } else {
                Medium
            },
            "a share that the leg uses did not answer after the attempt",
        )
        .with(said, "the program saw its reads fail")
    });
    for (i, e, _) in ev.kernel() {
        let d = match &e.finding {
            Finding::ShareLost { recovered: false } => {
                let said = ev.said(&[Word::ReadError, Word::HostDown]);
                Decision::by(
                    i,
                    Infra,
                    "share-lost",
                    High,
                    "the network share stopped answering during the attempt",
                )
                .with(said, "the program saw its reads fail")
            }
            Finding::StorageLost { what } => {
                let said = ev.said(&[Word::ReadError]);
                Decision::by(
                    i,
                    Infra,
                    "storage-lost",
                    High,
                    format!("a disk or file system failed during the attempt ({what})"),
                )
                .with(said, "the program saw its reads fail")
            }
            Finding::DiskFull => Decision::by(i, Infra, "disk-full", High, "no space left"),
            Finding::NetworkLost => Decision::by(
                i,
                Infra,
                "network-lost",
                Medium,
                "a network card stopped sending: the connection and shares go with it; the attempt itself may have run on",
            ),
            Finding::HungTask {
                frames: "share", ..
            } => Decision::by(
                i,
                Infra,
                "share-lost",
                Medium,
                "a task is blocked inside the share's client",
            ),
            Finding::HungTask {
                frames: "storage", ..
            } => Decision::by(
                i,
                Infra,
                "storage-lost",
                Medium,
                "a task is blocked inside the block layer or a file system",
            )
            .or(Infra, "share-lost", "if the file system lies on a share"),
            _ => continue,
        };
        // A share or disk explains a failure; a card's queue or a blocked task only if nothing else does.
        let stronger = best.as_ref().is_none_or(|b| b.confidence < d.confidence);
        if stronger {
            best = Some(d);
        }
    }
    best
}

/// Blocked tasks, kernel bugs and queue refusals: asked after incidents.
#[must_use]
pub fn driver(ev: &Evidence<'_>) -> Option<Decision> {
    if ev.ending.success() {
        return None;
    }
    ev.kernel().find_map(|(i, e, _)| match &e.finding {
        Finding::HungTask { frames: "gpu", .. } => Some(
            Decision::by(i, Board, "hung-task", Medium, "a kernel task waits for the GPU driver without end")
                .settle(&[Settle::KnownGood, Settle::Devcoredump]),
        ),
        Finding::QueueCreateFailed { code: -22 } => Some(
            Decision::by(i, Board, "queue-create-failed", Medium, "the driver refuses the queue that the runtime asks for (EINVAL): driver and runtime do not match; this is not a lack of memory")
                .with(ev.said(&[Word::OutOfResources]), "the runtime passes it on as out of resources"),
        ),
        Finding::QueueCreateFailed { .. } if ev.said(&[Word::OutOfResources]).is_some() => Some(
            Decision::by(i, Inconclusive, "queue-create-failed", Medium, "a queue was refused; out of resources here is not proof of out of memory")
                .with(ev.said(&[Word::OutOfResources]), "the runtime passes it on")
                .or(Board, "queue-create-failed", "if driver and runtime do not match")
                .settle(&[Settle::QuietGpu, Settle::RuntimeLog]),
        ),
        _ => None,
    })
}

/// Blocked tasks and kernel bugs that name nobody: asked late.
#[must_use]
pub fn kernel_trouble(ev: &Evidence<'_>) -> Option<Decision> {
    if ev.ending.success() {
        return None;
    }
    ev.kernel().find_map(|(i, e, _)| match &e.finding {
        Finding::KernelBug { gpu: false, what } => Some(
            Decision::by(
                i,
                Inconclusive,
                "kernel-bug",
                Low,
                format!("the kernel itself failed ({what}), outside the GPU driver"),
            )
            .or(Board, "kernel-bug", "if memory or CPU are sick")
            .settle(&[Settle::OtherBoard, Settle::Pstore]),
        ),
        Finding::HungTask { frames: "", .. } => Some(
            Decision::by(
                i,
                Inconclusive,
                "hung-task",
                Low,
                "a task was blocked for minutes; its stack is not in the window",
            )
            .settle(&[Settle::KernelLog]),
        ),
        _ => None,
    })
}

/// IOMMU faults beside a corrupt heap: the same bad pointers reached the device.
#[must_use]
pub fn heap_with_iommu(ev: &Evidence<'_>) -> Option<Decision> {
    let said = ev.said(&[Word::HeapCorrupt])?;
    let (i, _, _) = ev.kernel().find(|(_, e, _)| {
        matches!(e.finding, Finding::IommuFault { .. }) && may_be_gpu_path(&e.driver)
    })?;
    Some(
        Decision::by(
            said,
            Host,
            "abort-host",
            Medium,
            "the C library found the heap corrupt: the host program's own memory error",
        )
        .with(Some(i), "the same bad pointers reached the device")
        .settle(&[Settle::Asan]),
    )
}
