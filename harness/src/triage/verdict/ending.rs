//! Before the questions: did the harness fail? After them: what does the end alone say?

use legwork_reports::model::{Class, Confidence, TimedOut};

use super::decision::{Decision, Evidence};
use crate::triage::finding::Word;
use crate::triage::settle::Settle;
use crate::triage::title;

use Class::{Board, Clean, Host, Inconclusive, Infra};
use Confidence::{High, Low, Medium};

/// The attempt never ran.
#[must_use]
pub fn never_ran(ev: &Evidence<'_>) -> Option<Decision> {
    let (source, text) = match (&ev.ctx.stage_error, &ev.ctx.spawn_error) {
        (Some(t), _) => ("stage", t),
        (None, Some(t)) => ("spawn", t),
        _ => return None,
    };
    let l = text.to_ascii_lowercase();
    let (kind, why) = if l.contains("no space left") || l.contains("disk quota") {
        ("disk-full", "no space left while the attempt was prepared")
    } else if l.contains("host is down")
        || l.contains("stale file")
        || l.contains("input/output error")
        || l.contains("not connected")
        || l.contains("timed out")
    {
        (
            "share-lost",
            "the share failed while the attempt was prepared",
        )
    } else if source == "stage" {
        ("stage-failed", "the attempt could not be prepared")
    } else {
        ("spawn-failed", "the program could not be started")
    };
    Some(Decision::fact(
        source,
        text.clone(),
        kind_finding(kind),
        Infra,
        kind,
        High,
        why,
    ))
}

fn kind_finding(kind: &str) -> &'static str {
    match kind {
        "disk-full" => "disk-full",
        "share-lost" => "share-lost",
        "stage-failed" => "stage-failed",
        _ => "spawn-failed",
    }
}

/// Processes that SIGKILL does not end.
#[must_use]
pub fn unkillable(ev: &Evidence<'_>) -> Option<Decision> {
    let u = ev.ctx.unkillable.as_ref()?;
    let place = format!("{} {}", u.wchan.join(" "), u.stack.as_deref().unwrap_or(""));
    let has = |words: &[&str]| words.iter().any(|w| place.contains(w));
    let text = if place.trim().is_empty() {
        format!("pids {:?} alive after SIGKILL", u.pids)
    } else {
        format!(
            "pids {:?} alive after SIGKILL, waiting in {}",
            u.pids,
            u.wchan.join(", ")
        )
    };
    if has(&["cifs", "smb2", "nfs", "rpc_wait", "fuse", "ceph"]) {
        return Some(Decision::fact(
            "unkillable",
            text,
            "unkillable",
            Infra,
            "share-lost",
            Medium,
            "the process waits without end inside the share's client",
        ));
    }
    let gpu = has(&[
        "amdgpu",
        "svm_range",
        "kfd",
        "dma_fence",
        "drm_",
        "ttm_",
        "nvidia",
        "mmu_notifier",
    ]);
    Some(
        Decision::fact(
            "unkillable",
            text,
            "unkillable",
            Board,
            "unkillable",
            if gpu { High } else { Medium },
            if gpu {
                "the process waits without end inside the GPU driver, and SIGKILL does not reach it"
            } else {
                "SIGKILL does not end the process: it waits inside the kernel"
            },
        )
        .settle(&[Settle::ColdStart, Settle::KnownGood]),
    )
}

/// The harness ended it, or could not record it.
#[must_use]
pub fn harness(ev: &Evidence<'_>) -> Option<Decision> {
    let capture = ev.ctx.capture.clone().unwrap_or_default();
    if capture.flood || ev.ctx.killed_by.as_deref() == Some("output-cap") {
        return Some(Decision::fact(
            "capture",
            format!(
                "{} bytes of output",
                capture
                    .bytes
                    .map_or_else(|| "too many".to_owned(), |b| b.to_string())
            ),
            "log-flood",
            Infra,
            "log-flood",
            High,
            "the attempt was ended because its output flooded the capture",
        ));
    }
    match ev.ctx.killed_by.as_deref() {
        Some("user") => Some(
            Decision::fact(
                "killed_by",
                "user",
                "interrupted",
                Inconclusive,
                "interrupted",
                High,
                "the user stopped the attempt",
            )
            .settle(&[Settle::Repeat]),
        ),
        Some("disk-floor") => Some(Decision::fact(
            "killed_by",
            "disk floor",
            "disk-full",
            Infra,
            "disk-full",
            High,
            "the disk filled up under the attempt, which was ended so that what was captured could still be kept",
        )),
        Some("oom" | "memory-limit") => Some(Decision::fact(
            "killed_by",
            "memory limit",
            "oom-kill",
            Host,
            "oom-kill",
            High,
            "the attempt's memory limit was reached",
        )),
        Some("oomd") => Some(Decision::fact(
            "killed_by",
            "systemd-oomd",
            "oom-kill",
            Host,
            "oom-kill",
            High,
            "systemd-oomd ended the attempt on memory pressure",
        )),
        _ => None,
    }
}

/// Nothing was captured.
#[must_use]
pub fn capture(ev: &Evidence<'_>) -> Option<Decision> {
    let c = ev.ctx.capture.as_ref()?;
    let empty = c.bytes == Some(0) && ev.ending.success();
    if !c.failed && !empty {
        return None;
    }
    let text = c
        .error
        .clone()
        .unwrap_or_else(|| format!("{} bytes captured", c.bytes.unwrap_or(0)));
    Some(
        Decision::fact(
            "capture",
            text,
            "capture-failed",
            Infra,
            "capture-failed",
            if c.failed { High } else { Medium },
            "nothing of the attempt's output was captured: an empty capture is not a pass",
        )
        .settle(&[Settle::Recapture]),
    )
}

/// The name of a signal.
pub fn signal_name(n: i32) -> &'static str {
    match n {
        1 => "SIGHUP",
        2 => "SIGINT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "a signal",
    }
}

/// Question 6: the end alone.
#[must_use]
pub fn alone(ev: &Evidence<'_>) -> Decision {
    let e = ev.ending;
    let text = describe(ev);
    let fact = |class, kind: &str, c, why: String| {
        Decision::fact("exit", text.clone(), "exit", class, kind, c, why)
    };
    if e.success() {
        return Decision {
            title: "clean".to_owned(),
            ..fact(
                Clean,
                "none",
                High,
                "it exited with 0 and nothing in the evidence is charged to it".to_owned(),
            )
        };
    }
    if e.lost_connection {
        return fact(
            Infra,
            "lost-connection",
            Medium,
            "the connection to the attempt was lost; what became of it is not known".to_owned(),
        )
        .settle(&[Settle::Repeat]);
    }
    // A hang is asked before the signal that ended it: the killer was the deadline.
    if e.timed_out {
        let phase = match ev.ctx.deadline() {
            Some(TimedOut::Phase(p)) => format!(" in phase {p}"),
            _ => String::new(),
        };
        return fact(
            Inconclusive,
            "hang-no-kernel-log",
            Medium,
            format!("it did not end in time{phase}, and {}: a kernel that never ends, a stopped GPU and a waiting host look the same",
                if ev.has_kernel_log { "the kernel log is silent" } else { "no kernel log was read" }),
        )
        .or(Class::Kernel, "hang-no-kernel-log", "if it ends at a smaller size")
        .or(Board, "hang-no-kernel-log", "if a known-good workload hangs too")
        .settle(&[Settle::Smaller, Settle::KnownGood, Settle::NoHws, Settle::Core]);
    }
    if let Some(core) = ev.ctx.cores.iter().find(|c| c.module.is_some())
        && matches!(e.signal, Some(4 | 5 | 7 | 8 | 11))
    {
        let module = core.module.clone().unwrap_or_default();
        let base = module.rsplit('/').next().unwrap_or("").to_owned();
        let (kind, c) = match e.signal {
            Some(4) => ("illegal-instruction", High),
            Some(7) => ("bus-error", Medium),
            _ => ("segv-host", Medium),
        };
        let mut d = Decision::fact(
            "core",
            format!(
                "signal {} in {module}{}",
                e.signal.unwrap_or(0),
                core.addr
                    .map_or_else(String::new, |a| format!(", address {a:#x}"))
            ),
            "core",
            Host,
            kind,
            c,
            format!("the core shows the CPU-side crash in {base}"),
        );
        if ["libamdhip64", "libhsa-runtime", "libhsakmt"]
            .iter()
            .any(|l| base.contains(l))
        {
            d = d
                .or(
                    Board,
                    kind,
                    "a sick GPU stack can be behind a crash inside its runtime",
                )
                .settle(&[Settle::KnownGood, Settle::KernelLog]);
        }
        d.title = title::normalise(&format!(
            "{kind}: {} in {base}",
            signal_name(e.signal.unwrap_or(0))
        ));
        return d;
    }
    match e.signal {
        Some(11) => fact(Host, "segv-host", Medium, "it died of SIGSEGV, and no GPU event or GPU error came before".to_owned()).settle(&[Settle::Core]),
        Some(4) => fact(Host, "illegal-instruction", High, "it died of SIGILL: the CPU met an instruction that it does not have".to_owned()),
        Some(7) => fact(Host, "bus-error", Medium, "it died of SIGBUS: usually a mapped file that went away or shrank".to_owned())
            .or(Infra, "storage-lost", "if the file's share or disk failed")
            .settle(&[Settle::KernelLog]),
        Some(8) => fact(Host, "fpe-host", High, "it died of SIGFPE: an integer division by zero on the CPU".to_owned()),
        Some(6) => {
            let said = ev.said(&[Word::CrashEcho]);
            fact(Host, "abort-host", Low, "it aborted itself without a word that names the cause".to_owned())
                .with(said, "the shell's report of the end")
                .settle(&[Settle::Core, Settle::RuntimeLog])
        }
        Some(9 | 15) if ev.ctx.killed_by.is_some() => {
            let by = ev.ctx.killed_by.clone().unwrap_or_default();
            fact(
                Inconclusive,
                "killed",
                Medium,
                format!("the harness ended it ({by}), and nothing in the evidence says more"),
            )
            .settle(&[Settle::KernelLog, Settle::Repeat])
        }
        Some(9) => fact(Inconclusive, "killed", Medium, "it was killed by SIGKILL, and no killer is in the evidence: no OOM line, no deadline of the harness".to_owned())
            .or(Host, "oom-kill", "if a user-space killer acted on memory pressure")
            .or(Infra, "killed", "if the runner or an operator did it")
            .settle(&[Settle::KernelLog, Settle::Repeat]),
        Some(n @ (1 | 2 | 15)) => fact(Infra, "terminated", Low, format!("{} came from outside: a runner, a session that ended, an operator", signal_name(n))).settle(&[Settle::Repeat]),
        Some(13) => fact(Infra, "terminated", Low, "its reader went away (SIGPIPE)".to_owned()),
        Some(n) => fact(Host, "killed-by-signal", Low, format!("it died of {} (signal {n})", signal_name(n))).settle(&[Settle::Core]),
        None => match e.code {
            Some(126) => fact(Infra, "exec-failed", High, "126: the program could not be executed (permission, noexec, format)".to_owned()),
            Some(127) => fact(Infra, "exec-failed", High, "127: the program or one of its libraries was not found".to_owned()),
            Some(c) => fact(Host, "exit-nonzero", Low, format!("it ended itself with status {c} and said nothing that names a cause")).settle(&[Settle::RuntimeLog]),
            None => fact(Inconclusive, "no-evidence", Low, "how it ended is not known, and nothing in the evidence is charged to it".to_owned())
                .settle(&[Settle::KernelLog, Settle::Repeat]),
        },
    }
}

/// The end in words.
#[must_use]
pub fn describe(ev: &Evidence<'_>) -> String {
    let e = ev.ending;
    let mut s = match (e.signal, e.code) {
        (Some(n), Some(c)) => format!("exit {c} = signal {n} ({})", signal_name(n)),
        (Some(n), None) => format!("signal {n} ({})", signal_name(n)),
        (None, Some(c)) => format!("exit {c}"),
        (None, None) if e.host_reset => "host reset".to_owned(),
        (None, None) if e.lost_connection => "lost connection".to_owned(),
        (None, None) if e.timed_out => "timed out".to_owned(),
        (None, None) => "unknown".to_owned(),
    };
    if e.timed_out && (e.signal.is_some() || e.code.is_some()) {
        s.push_str(", deadline");
    }
    if e.core_dumped {
        s.push_str(", core dumped");
    }
    if ev.hidden_crash {
        s.push_str(" of a descendant, while the leader exited with 0");
    }
    s
}
