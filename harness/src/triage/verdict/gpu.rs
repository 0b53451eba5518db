//! Question 4: the first GPU event of the window decides.

use legwork_reports::model::{Class, Confidence, StackState};

use super::decision::{Decision, Evidence};
use super::incident::Incident;
use crate::triage::data::nvidia::{XidClass, xid_class, xid_row};
use crate::triage::fault_status::{Client, FaultStatus};
use crate::triage::finding::{Event, Finding, PageFault, Proc, ResetStep, Word};
use crate::triage::scope::Owner;
use crate::triage::settle::Settle;
use crate::triage::stack_gate;

use Class::{Board, Inconclusive, Infra, Kernel};
use Confidence::{High, Low, Medium};

/// The verdict on one incident that is ours, or nobody's.
#[must_use]
pub fn judge(ev: &Evidence<'_>, inc: &Incident) -> Decision {
    let i = inc.guilty;
    let e = &ev.events[i];
    let mut d = match &e.finding {
        Finding::GpuPageFault(f) => page_fault(ev, inc, i, f),
        Finding::MesTimeout { .. } | Finding::HwsTimeout => scheduler(ev, inc, i, e),
        Finding::SmuFailure { .. } => Decision::by(
            i,
            Board,
            "smu-hang",
            High,
            "the power-management firmware stopped answering before anything else; a pid in a later timeout only says whose work was there",
        ),
        Finding::RingTimeout { ring, process, .. } => ring_timeout(i, ring, process.as_ref()),
        Finding::SqInterrupt { kind, .. } => wave(ev, i, *kind),
        Finding::Xid { code, process, previous } => xid(ev, inc, i, *code, process.as_ref(), *previous),
        Finding::GpuReset(ResetStep::Begin { source: Some(5) }) => Decision::by(
            i,
            Infra,
            "gpu-reset-by-user",
            High,
            "somebody asked for the reset (source 5: debugfs amdgpu_gpu_recover)",
        )
        .settle(&[Settle::Repeat]),
        Finding::IommuFault { .. } => Decision::by(
            i,
            Inconclusive,
            "iommu-fault",
            Medium,
            "the device reached for a bus address that the IOMMU does not map: a shader's pointer is a GPU virtual address, so this is mapping, pinning or stale DMA",
        )
        .or(Board, "iommu-fault", "if no host buffer was freed while in use")
        .settle(&[Settle::IommuPt, Settle::Repeat]),
        _ => Decision::by(
            i,
            Inconclusive,
            "gpu-reset",
            Low,
            "a reset began, and its cause lies before the lines at hand",
        )
        .settle(&[Settle::KernelLog, Settle::Devcoredump, Settle::Repeat]),
    };
    if inc.owner == Owner::Likely && d.confidence == High {
        d.confidence = Medium;
    }
    // What the program said about the same event.
    for (word, why) in [
        (
            Word::MemoryAccessFault,
            "ROCr reports the same fault to the program",
        ),
        (
            Word::HwException,
            "ROCr was told of the reset; it says nothing about the cause",
        ),
        (Word::IllegalAddress, "the program was told of the fault"),
        (
            Word::LaunchFailure,
            "the program was told that its work was lost",
        ),
    ] {
        let said = ev.said(&[word]);
        d = d.with(said, why);
    }
    d
}

fn page_fault(ev: &Evidence<'_>, inc: &Incident, i: usize, f: &PageFault) -> Decision {
    let client = f.client();
    if f.is_kernel_space() {
        return Decision::by(
            i,
            Board,
            "gpu-page-fault-cp",
            if client == Client::CommandProcessor {
                High
            } else {
                Medium
            },
            "the first event is a fault in the kernel's own address space (vmid 0, no process): driver or firmware",
        );
    }
    match client {
        Client::CommandProcessor => {
            let named = f.client_name.is_some() || f.status.is_some_and(|s| s != 0);
            Decision::by(
                i,
                Board,
                "gpu-page-fault-cp",
                if named { High } else { Medium },
                if f.no_page_table() {
                    "the command processor, not a shader, walked page tables that are not there: queue set-up by driver, firmware or runtime"
                } else {
                    "the command processor, not a shader, made the access: queue set-up by driver, firmware or runtime"
                },
            )
        }
        Client::Firmware => Decision::by(i, Board, "gpu-page-fault-firmware", High, "a microcontroller of the GPU made the access"),
        Client::Gone => Decision::by(i, Board, "device-lost", Medium, "the fault status reads as all ones: the device does not answer"),
        Client::Sdma => Decision::by(
            i,
            Inconclusive,
            "gpu-page-fault-sdma",
            Medium,
            "a copy engine made the access: a bad copy address of the program, or mixed-up state of driver and firmware; not a compute kernel",
        )
        .or(Class::Host, "gpu-page-fault-sdma", "if the program passed a freed or wrong pointer to a copy")
        .or(Board, "gpu-page-fault-sdma", "if the addresses in the runtime's log are valid")
        .settle(&[Settle::RuntimeLog, Settle::QuietGpu]),
        Client::Graphics if f.status.is_some_and(|s| s != 0) => Decision::by(
            i,
            Inconclusive,
            "gpu-page-fault-graphics",
            Low,
            "a graphics unit made the access, which compute never uses",
        )
        .settle(&[Settle::QuietGpu, Settle::Repeat]),
        _ if f.hub.starts_with("mmhub") => Decision::by(
            i,
            Inconclusive,
            "gpu-page-fault-sdma",
            Low,
            "the fault is on the multimedia hub: a copy or video engine, not a compute kernel",
        )
        .settle(&[Settle::RuntimeLog, Settle::QuietGpu]),
        _ => shader_fault(ev, inc, i, f, client),
    }
}

fn shader_fault(
    ev: &Evidence<'_>,
    inc: &Incident,
    i: usize,
    f: &PageFault,
    client: Client,
) -> Decision {
    let gate = stack_gate::judge(ev.facts);
    let unit = if client.is_shader() {
        client.words()
    } else {
        "an unnamed unit, probably a shader"
    };
    let said = ev.said(&[Word::MemoryAccessFault, Word::IllegalAddress]);
    // Nobody is named, but the program itself reports the fault: it is the program's.
    let ours = inc.owner <= Owner::Likely || said.is_some();
    if !ours {
        return Decision::by(
            i,
            Inconclusive,
            "gpu-page-fault",
            Low,
            format!("{unit} touched a page that is not there, but no line says whose work it was"),
        )
        .settle(&[Settle::KernelLog, Settle::QuietGpu, Settle::Repeat]);
    }
    if let Some(v) = ev.ctx.gfx_override() {
        return Decision::by(
            i,
            Kernel,
            "gpu-page-fault",
            Medium,
            format!("{unit} touched a page that is not there, and HSA_OVERRIDE_GFX_VERSION={v} makes the board run code of another target"),
        )
        .settle(&[Settle::NoOverride]);
    }
    let null = f.address.is_some_and(|a| a < 0x1_0000);
    let mut why = format!(
        "{unit} of the attempt's process touched a page that is not there, before any scheduler or reset line"
    );
    if null {
        why.push_str("; the address is null or a small offset from it");
    }
    let mut d = match gate.state {
        StackState::Bad => Decision::by(i, Inconclusive, "gpu-page-fault", Medium, format!("{why}; but this stack is known to fault by itself in the same words"))
            .or(Kernel, "gpu-page-fault", "if the leg faults on a sound stack too")
            .or(Board, "gpu-page-fault", "if it passes there")
            .settle(&[Settle::CwsrOff, Settle::FixedStack, Settle::OtherBoard, Settle::Serialise, Settle::Simt]),
        StackState::Unknown => Decision::by(i, Inconclusive, "gpu-page-fault", Medium, format!("{why}; but gfx1151 stacks before the VGPR-size fix fault by themselves in the same words, and this stack is not known to be sound"))
            .or(Kernel, "gpu-page-fault", "if the stack has the fix")
            .or(Board, "gpu-page-fault", "if it has not")
            .settle(&[Settle::RecordStack, Settle::CwsrOff, Settle::FixedStack, Settle::OtherBoard, Settle::Serialise]),
        StackState::Good | StackState::NotApplicable if ev.known_good() => Decision::by(i, Inconclusive, "gpu-page-fault", Medium, format!("{why}; but the GPU code is known to work elsewhere"))
            .or(Board, "gpu-page-fault", "if the same leg passes on a second board")
            .settle(&[Settle::OtherBoard, Settle::Repeat, Settle::Serialise]),
        StackState::Good | StackState::NotApplicable => Decision::by(
            i,
            Kernel,
            "gpu-page-fault",
            if client.is_shader() && inc.owner <= Owner::Likely { Medium } else { Low },
            why,
        )
        .or(Board, "gpu-page-fault", "if the same leg passes on a second board of the same type"),
    };
    if client == Client::ShaderFetch {
        d = d.or(
            Class::Host,
            "gpu-page-fault",
            "if the program unloaded the code object before the dispatch ended",
        );
    }
    if d.confidence == Low && d.class == Kernel {
        d = d.settle(&[Settle::Serialise, Settle::OtherBoard, Settle::Simt]);
    }
    d.gate = Some(gate);
    // Waves that announced it.
    for &m in &inc.members {
        if m < i
            && matches!(ev.events[m].finding, Finding::SqInterrupt { .. })
            && d.supports.len() < 4
        {
            d.supports
                .push((m, "a wave raised a memory violation just before".to_owned()));
        }
    }
    let more = inc
        .members
        .iter()
        .filter(|&&m| m != i && matches!(ev.events[m].finding, Finding::GpuPageFault(_)))
        .count();
    for &m in inc
        .members
        .iter()
        .filter(|&&m| m != i && matches!(ev.events[m].finding, Finding::GpuPageFault(_)))
        .take(4)
    {
        d.supports
            .push((m, format!("one of {} faults of the burst", more + 1)));
    }
    d
}

fn scheduler(ev: &Evidence<'_>, inc: &Incident, i: usize, e: &Event) -> Decision {
    let what = match &e.finding {
        Finding::MesTimeout { msg } if !msg.is_empty() => {
            format!("the scheduler firmware (MES) does not answer {msg}")
        }
        Finding::MesTimeout { .. } => "the scheduler firmware (MES) does not answer".to_owned(),
        _ => "the hardware scheduler could not take a queue off the GPU".to_owned(),
    };
    let _ = inc;
    // The log has no fault, but the driver's own memory of one may say whose the hang is.
    let dumped = ev.ctx.dumped_fault.as_ref().filter(|f| {
        f.status
            .is_some_and(|s| s != u32::MAX && Client::from_id(FaultStatus(s).client()).is_shader())
    });
    if let Some(f) = dumped {
        return Decision::by(
            i,
            Inconclusive,
            "mes-hang",
            Medium,
            format!(
                "{what}, and no fault came before it in the log; but the driver's state dump remembers a page fault of a shader (address {:#x}), after which the scheduler stops in the same way",
                f.address.unwrap_or(0)
            ),
        )
        .or(Kernel, "gpu-page-fault", "if that fault is the attempt's and the stack under it is sound")
        .or(Board, "mes-hang", "if that fault is older than the attempt")
        .settle(&[Settle::Serialise, Settle::KnownGood, Settle::Smaller]);
    }
    if ev.new_code() {
        return Decision::by(
            i,
            Inconclusive,
            "mes-hang",
            Medium,
            format!("{what}, and no fault came before it; but a new kernel that never ends prints the same"),
        )
        .or(Board, "mes-hang", "if a known-good workload stops the scheduler too")
        .or(Kernel, "mes-hang", "if only this kernel does, and ends at a smaller size")
        .settle(&[Settle::Smaller, Settle::KnownGood, Settle::Devcoredump, Settle::Simt]);
    }
    let d = Decision::by(
        i,
        Board,
        "mes-hang",
        if ev.ending.timed_out && !ev.known_good() { Low } else { Medium },
        format!("{what}, and no fault, wave interrupt or power-management line came before it: firmware or driver"),
    )
    .or(Inconclusive, "mes-hang", "if the leg's kernel never ends: a deadlocked kernel prints the same");
    if d.confidence == Low {
        return d.settle(&[Settle::KnownGood, Settle::Smaller, Settle::Devcoredump]);
    }
    d.settle(&[Settle::Devcoredump, Settle::KnownGood])
}

fn ring_timeout(i: usize, ring: &str, process: Option<&Proc>) -> Decision {
    if ring.starts_with("sdma") && process.is_none_or(Proc::is_nobody) {
        return Decision::by(
            i,
            Board,
            "ring-timeout",
            Medium,
            "a copy job of the kernel itself hung: nobody's compute kernel",
        )
        .or(
            Inconclusive,
            "ring-timeout",
            "if a client's job is found behind it",
        )
        .settle(&[Settle::QuietGpu, Settle::Repeat]);
    }
    Decision::by(
        i,
        Inconclusive,
        "ring-timeout",
        Medium,
        format!("a job on ring {ring} did not end; HIP never uses these rings, so a HIP leg is not the culprit; a Vulkan or GL leg may be, and so may the board"),
    )
    .settle(&[Settle::QuietGpu, Settle::Smaller, Settle::Devcoredump, Settle::OtherBoard])
}

fn wave(ev: &Evidence<'_>, i: usize, kind: u8) -> Decision {
    let (slug, what) = if kind == 1 {
        (
            "gpu-illegal-instruction",
            "a wave met an illegal instruction",
        )
    } else {
        ("gpu-memviol", "a wave violated memory")
    };
    // The program's own report of a fault says whose wave it was.
    if let Some(said) = ev.said(&[
        Word::MemoryAccessFault,
        Word::ApertureViolation,
        Word::IllegalInstruction,
        Word::IllegalAddress,
    ]) {
        let gate = stack_gate::judge(ev.facts);
        let sound = matches!(gate.state, StackState::Good | StackState::NotApplicable);
        let kind_slug = if kind == 1 {
            "gpu-illegal-instruction"
        } else {
            "gpu-page-fault"
        };
        let mut d = if sound || ev.ctx.gfx_override().is_some() {
            Decision::by(
                i,
                Kernel,
                kind_slug,
                Medium,
                format!("{what}, and the program itself reports the fault"),
            )
        } else {
            Decision::by(i, Inconclusive, kind_slug, Medium, format!("{what}, and the program reports the fault; but this gfx1151 stack is not known to be sound"))
                .settle(&[Settle::RecordStack, Settle::CwsrOff, Settle::FixedStack, Settle::Serialise])
        };
        d.gate = Some(gate);
        return d.with(Some(said), "the program's own report names its process");
    }
    Decision::by(
        i,
        Inconclusive,
        slug,
        Medium,
        format!("{what}, but these lines carry no pid and the page-fault line that would is not in the window"),
    )
    .or(Kernel, slug, "if the page-fault line names the attempt's pid and the stack is sound")
    .or(Board, slug, "if the wave was being saved or restored by a defective stack")
    .settle(&[Settle::KernelLog, Settle::Serialise])
}

fn xid(
    ev: &Evidence<'_>,
    inc: &Incident,
    i: usize,
    code: u16,
    process: Option<&Proc>,
    previous: Option<u16>,
) -> Decision {
    // 45 repeats another Xid: by its own words, or by what else was printed.
    if code == 45 {
        let other = previous.or_else(|| {
            inc.members
                .iter()
                .find_map(|&m| match ev.events[m].finding {
                    Finding::Xid { code, .. } if code != 45 => Some(code),
                    _ => None,
                })
        });
        if let Some(n) = other.filter(|n| *n != 45) {
            let name = xid_row(n).map_or("error", |r| r.name);
            return match xid_class(n) {
                XidClass::Hardware => Decision::by(
                    i,
                    Board,
                    format!("xid-{n}"),
                    High,
                    format!("the channel was removed because of Xid {n}: {name}"),
                ),
                XidClass::Application => Decision::by(
                    i,
                    Kernel,
                    format!("xid-{n}"),
                    Medium,
                    format!("the channel was removed because of Xid {n}: {name}"),
                ),
                _ => Decision::by(
                    i,
                    Inconclusive,
                    format!("xid-{n}"),
                    Medium,
                    format!("the channel was removed because of Xid {n}: {name}"),
                )
                .settle(&[Settle::Smaller, Settle::Profile]),
            };
        }
        return Decision::by(
            i,
            Inconclusive,
            "xid-45",
            Low,
            "a channel was removed after another error or a kill that is not in the window",
        )
        .settle(&[Settle::KernelLog, Settle::Repeat]);
    }
    let name = xid_row(code).map_or("not in the table", |r| r.name);
    let _ = process;
    match xid_class(code) {
        XidClass::Application => Decision::by(
            i,
            Kernel,
            format!("xid-{code}"),
            Medium,
            format!("Xid {code}: {name}; no bus or memory error came before it"),
        )
        .or(
            Class::Host,
            format!("xid-{code}"),
            "if the program handed a bad address to the GPU",
        ),
        XidClass::Hardware => Decision::by(
            i,
            Board,
            format!("xid-{code}"),
            High,
            format!("Xid {code}: {name}"),
        ),
        _ => Decision::by(
            i,
            Inconclusive,
            format!("xid-{code}"),
            Medium,
            format!(
                "Xid {code}: {name}; a kernel that runs too long and a GPU that hangs look the same"
            ),
        )
        .settle(&[Settle::Smaller, Settle::Profile, Settle::OtherBoard]),
    }
}

/// Somebody else's event that took our GPU down with it.
#[must_use]
pub fn collateral(ev: &Evidence<'_>, inc: &Incident) -> Decision {
    let i = inc.guilty;
    let e = &ev.events[i];
    let who = e.finding.process().map_or_else(
        || "another process".to_owned(),
        |p| format!("{} (pid {})", p.comm, p.pid.unwrap_or(0)),
    );
    let told = ev.said(&[Word::HwException, Word::VulkanLost, Word::LaunchFailure]);
    Decision::by(
        i,
        Inconclusive,
        "collateral-reset",
        if told.is_some() && inc.reset { High } else { Medium },
        format!("the event is {who}'s; its reset tore down every queue on the GPU, the attempt's included"),
    )
    .with(
        inc.members.iter().copied().find(|&m| {
            matches!(
                ev.events[m].finding,
                Finding::GpuReset(ResetStep::Begin { .. } | ResetStep::Disabled)
            )
        }),
        "the reset that took the attempt's queues",
    )
    .with(told, "the program was told of the reset, not of a fault of its own")
    .settle(&[Settle::QuietGpu])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::context::{DumpedFault, InFlight, LostShare};
    use crate::triage::{Case, Context, Source, triage};

    const MES: &str = "[ 100.000000] amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE\n[ 100.100000] amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!\n";

    fn verdict(context: Context) -> legwork_reports::model::Verdict {
        triage(&Case {
            kernel: Some(Source::Text(MES.into())),
            output: None,
            context,
        })
    }

    fn crashed() -> Context {
        Context {
            exit: Some("signal 6".into()),
            own_gpu_code: Some("known_good".into()),
            ..Context::default()
        }
    }

    #[test]
    fn a_shader_fault_in_the_drivers_dump_takes_a_bare_mes_hang_from_the_board() {
        let bare = verdict(crashed());
        assert_eq!((bare.class, bare.kind.as_str()), (Board, "mes-hang"));
        assert!(
            !bare.alternates.is_empty(),
            "the report holds the other reading"
        );
        let with = |status| {
            verdict(Context {
                dumped_fault: Some(DumpedFault {
                    text: "Page fault observed; 0x7f0000001000".into(),
                    address: Some(0x7f00_0000_1000),
                    status: Some(status),
                    file: "devcoredump.0.zst".into(),
                }),
                ..crashed()
            })
        };
        // Client 8 is TCP, a shader's vector memory; 4 is CPF, the command processor (fault rules, 1.1 and 1.2).
        let shader = with(0x0080_1031);
        assert_eq!(
            (shader.class, shader.kind.as_str()),
            (Inconclusive, "mes-hang")
        );
        assert!(
            shader
                .evidence
                .iter()
                .any(|e| e.source == "devcoredump.0.zst")
        );
        assert!(shader.alternates.iter().any(|a| a.class == Kernel));
        assert_eq!(with(4 << 9 | 1).class, Board);
    }

    #[test]
    fn the_launch_in_flight_is_named_where_the_gpu_was_in_trouble() {
        let in_flight = Some(InFlight {
            kernel: "mla_attention".into(),
            seq: 77,
            grid: [3, 2, 1],
            threads: 128,
            state: "issued".into(),
            open: 1,
            recorded: 77,
        });
        let v = verdict(Context {
            in_flight: in_flight.clone(),
            ..crashed()
        });
        assert!(v.title.ends_with("mla_attention in flight"), "{}", v.title);
        let line = v.evidence.iter().find(|e| e.source == "kernel-trace.bin");
        assert!(line.is_some_and(|l| l.text.contains("launch 77 mla_attention")));
        // A lost share with the same recording says nothing about the kernel.
        let v = triage(&Case {
            kernel: Some(Source::Text(String::new())),
            output: None,
            context: Context {
                exit: Some("1".into()),
                shares: vec![LostShare {
                    path: "/share/m.gguf".into(),
                    fs: "cifs".into(),
                    state: "hangs".into(),
                    error: None,
                }],
                in_flight,
                ..Context::default()
            },
        });
        assert_eq!((v.class, v.kind.as_str()), (Infra, "share-lost"));
        assert!(!v.title.contains("in flight"), "{}", v.title);
    }
}
