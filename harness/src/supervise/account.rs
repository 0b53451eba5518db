//! Settles an attempt that is over: closes the collectors in order and writes down what it turned out to be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use legwork_reports::model::{Descendant, Exit, Files, Leak};

use super::attempt::Attempt;
use super::spec::{AttemptOutcome, CollectorNote, CoreFile, KernelLogInfo};
use crate::capture::writer::Captured;
use crate::evidence::board_dump;
use crate::evidence::telemetry::Sample;
use crate::os::clock;

/// Time that the kernel gets to finish its sentence after a clean end, a rough one, and a rough one with a GPU.
const SETTLE_CLEAN_NS: u64 = 5_000_000;
const SETTLE_ROUGH_NS: u64 = 300_000_000;
const SETTLE_GPU_NS: u64 = 3_000_000_000;
/// Longest time that reading the rest of the output may take.
const DRAIN: Duration = Duration::from_secs(20);
/// Longest time that the disk may take to make the captures safe.
const SYNC: Duration = Duration::from_secs(20);

/// Closes everything and gives the outcome.
pub(super) fn settle(mut a: Attempt<'_>) -> AttemptOutcome {
    let over_ns = clock::mono_ns();
    a.watch.look(over_ns);
    a.events_stop.set();
    let losses = a.events.take().map(|e| e.join().map_or(1, |e| e.losses));
    a.take_cores(); // crashes of which the kernel's word came late
    let rough = a.was_rough();
    let settle = match (rough, a.root.exists("/dev/kfd")) {
        (false, _) => SETTLE_CLEAN_NS,
        (true, false) => SETTLE_ROUGH_NS,
        (true, true) => SETTLE_GPU_NS,
    };
    a.kernel_end.close_at(over_ns.saturating_add(settle));
    a.capture_stop.set();
    let end_ns = a.leader_end.map_or(over_ns, |(_, at)| at.min(over_ns));
    a.oom_kills = a.cgroup.oom_kills(); // the guardian removes the groups when it goes
    dismiss_guardian(&mut a);
    let captured = join_within(&mut a);
    let kernel_log =
        match std::mem::replace(&mut a.kernel, std::thread::spawn(KernelLogInfo::default)).join() {
            Ok(k) => k,
            Err(_) => KernelLogInfo {
                source: "none".into(),
                note: Some("its reader died".into()),
                ..Default::default()
            },
        };
    let cores: Vec<CoreFile> = a
        .core_jobs
        .drain(..)
        .filter_map(|j| j.join().ok())
        .collect();
    outcome(a, over_ns, end_ns, losses, captured, kernel_log, cores)
}

fn dismiss_guardian(a: &mut Attempt<'_>) {
    drop(a.control_pipe.take()); // it ends what is left and then itself
    let most = if a.unkillable {
        Duration::from_millis(500)
    } else {
        Duration::from_secs(12)
    };
    let until = Instant::now() + most;
    while Instant::now() < until {
        match a.guardian.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            _ => return,
        }
    }
    if !a.unkillable {
        a.warnings.push(format!(
            "the spawn stub (pid {}) did not end in time",
            a.guardian_pid
        ));
    }
    let _ = a.guardian.kill();
}

fn join_within(a: &mut Attempt<'_>) -> Option<Captured> {
    let until = Instant::now() + DRAIN;
    while !a.capture.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !a.capture.is_finished() {
        a.warnings
            .push("capture did not end in time: its files may lack their last bytes".into());
        return None;
    }
    let c = std::mem::replace(&mut a.capture, std::thread::spawn(Captured::default));
    let mut c = c.join().ok()?;
    sync(std::mem::take(&mut c.files), &mut a.warnings);
    Some(c)
}

/// Waits until the disk has the captures: in a thread, since a disk that hangs must not take the account along.
fn sync(files: Vec<(&'static str, std::fs::File)>, warnings: &mut Vec<String>) {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (name, f) in files {
            let _ = tell.send(f.sync_data().err().map(|e| format!("{name}: {e}")));
        }
    });
    let until = Instant::now() + SYNC;
    loop {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Some(e)) => warnings.push(format!("capture: not safe on the disk: {e}")),
            Ok(None) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                warnings.push(format!(
                    "capture: the disk did not take it within {} s: it is lost if the machine goes down now",
                    SYNC.as_secs()
                ));
                return;
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[allow(clippy::too_many_lines)]
fn outcome(
    a: Attempt<'_>,
    over_ns: u64,
    end_ns: u64,
    losses: Option<u64>,
    captured: Option<Captured>,
    kernel_log: KernelLogInfo,
    cores: Vec<CoreFile>,
) -> AttemptOutcome {
    let rough = a.was_rough();
    let Attempt {
        spec,
        mut warnings,
        mut collectors,
        ..
    } = a;
    let (sample, rows, error) = a.sampler.finish();
    collectors.push(CollectorNote {
        name: "telemetry".into(),
        ok: error.is_none() && (rows > 0 || spec.telemetry_every.is_zero()),
        note: error.unwrap_or_else(|| format!("{rows} rows")),
    });
    let (mut descendants, mut pids) = (Vec::new(), Vec::new());
    if let Ok(t) = a.tree.lock() {
        descendants = t.descendants(a.start_ns, &a.survivors);
        pids = t.pids();
        if t.unknown_ends() > 0 {
            warnings.push(format!(
                "{} process(es) below the leader ended unseen: how is not known{}",
                t.unknown_ends(),
                if losses.is_some() {
                    " (the kernel did not tell)"
                } else {
                    " (run as root for process events)"
                }
            ));
        }
    }
    for d in &mut descendants {
        if let Some(c) = cores.iter().find(|c| c.pid == d.pid) {
            d.comm = c.comm.clone().or(d.comm.take()); // the core knows better than a look that came late
        }
    }
    let mut leaks = a.leaks;
    let by_itself = a.killed_by.is_none(); // ended by us, the rest was to go
    for d in hung_up(&descendants, end_ns.saturating_sub(a.start_ns)) {
        if by_itself && !leaks.iter().any(|l| l.pid == d.pid) {
            leaks.push(Leak {
                pid: d.pid,
                comm: d.comm.clone().unwrap_or_default(),
                age_s: None,
            });
        }
    }
    if losses.is_some_and(|l| l > 0) {
        let note = "the kernel lost process events (ENOBUFS): some ends of descendants are unknown";
        warnings.push(note.into());
        if let Some(c) = collectors.iter_mut().find(|c| c.name == "process-events") {
            (c.ok, c.note) = (false, note.into());
        }
    }
    if let Some(n) = a.oom_kills.filter(|&n| n > 0) {
        warnings.push(format!(
            "the kernel killed {n} process(es) of the tree for lack of memory in its control group"
        ));
    }
    for (name, ok, note) in a.snapshots.iter().flat_map(|s| {
        std::iter::once((
            "stacks",
            s.processes > 0,
            format!("{} processes", s.processes),
        ))
        .chain(s.notes.iter().map(|n| ("stacks", false, n.clone())))
    }) {
        collectors.push(CollectorNote {
            name: name.into(),
            ok,
            note,
        });
    }
    collectors.push(CollectorNote {
        name: "kernel-log".into(),
        ok: kernel_log.source != "none",
        note: kernel_log
            .note
            .clone()
            .unwrap_or_else(|| format!("{} records", kernel_log.records)),
    });
    if rough {
        board_dump::keep_device_dumps(&a.root, &spec.dir, &a.device_dumps_before, &mut collectors);
        board_dump::keep_gpu_cores(&spec.dir, &spec.cwd, a.core_setup.started, &mut collectors);
    }
    for c in &cores {
        for n in &c.notes {
            collectors.push(CollectorNote {
                name: "core".into(),
                ok: c.path.is_some(),
                note: format!("pid {}: {n}", c.pid),
            });
        }
    }
    for u in a.root.unknown_accesses() {
        warnings.push(format!("fake board: unknown access {u}"));
    }
    if !a.unkillable && !a.cgroup.remove() {
        warnings.push("the attempt's control group could not be removed".into());
    }
    let cap = capture_account(captured, &mut warnings, &mut collectors);
    let phases: BTreeMap<String, f64> = a.state.phases.lock().map(|p| p.done()).unwrap_or_default();
    let end = a.leader_end.map(|(e, _)| e);
    if end.is_none() {
        warnings.push("the leader's status is not known: it could not be ended".into());
    }
    let end = end.unwrap_or_default();
    let peak = peak_rss(&sample, a.leader_max_rss);
    super::leftovers::forget(&spec.dir);
    #[allow(clippy::cast_precision_loss)]
    let wall_s = (end_ns
        .saturating_sub(a.start_ns)
        .saturating_sub(a.watch.stopped_ns())) as f64
        / 1e9;
    AttemptOutcome {
        leader_pid: a.leader,
        exit: Exit {
            code: end.code,
            signal: end.signal,
            core_dumped: end.core_dumped,
            timed_out: a
                .killed_by
                .as_ref()
                .and_then(super::spec::KillReason::timed_out),
        },
        started: a.started,
        start_mono_ns: a.start_ns,
        end_mono_ns: end_ns.min(over_ns),
        boot_offset_ns: a.boot_offset_ns,
        wall_s,
        descendants,
        pids,
        leaks,
        output_bytes: cap.bytes,
        stamps: cap.stamps,
        phases,
        events: cap.events,
        peak_rss_bytes: peak,
        kernel_log,
        cores,
        killed_by_us: a.killed_by,
        truncated: cap.truncated,
        unkillable: a.unkillable,
        stuck: a.stuck,
        warnings,
        collectors,
        files: files(&spec.dir),
    }
}

/// Who was still there when the leader ended, and went because the session's terminal hung up.
fn hung_up(all: &[Descendant], leader_end_ns: u64) -> impl Iterator<Item = &Descendant> {
    #[allow(clippy::cast_precision_loss)]
    let end_s = leader_end_ns as f64 / 1e9;
    all.iter().filter(move |d| {
        d.end.is_some_and(|e| e.signal == Some(libc::SIGHUP))
            && d.ended_s.is_some_and(|s| s >= end_s - 0.05)
    })
}

/// The tree's peak: the largest sum that was sampled, or the kernel's own figure for the largest process.
fn peak_rss(s: &Sample, leader: Option<u64>) -> Option<u64> {
    [s.peak_rss_bytes, leader].into_iter().flatten().max()
}

#[derive(Default)]
struct CaptureAccount {
    bytes: Option<u64>,
    stamps: Option<legwork_reports::model::Stamps>,
    events: Vec<super::spec::EngineEvent>,
    truncated: bool,
}

fn capture_account(
    captured: Option<Captured>,
    warnings: &mut Vec<String>,
    collectors: &mut Vec<CollectorNote>,
) -> CaptureAccount {
    let mut note = |ok: bool, note: String| {
        collectors.push(CollectorNote {
            name: "capture".into(),
            ok,
            note,
        });
    };
    let Some(c) = captured else {
        note(
            false,
            "CAPTURE_FAILED: the capture thread did not end".into(),
        );
        return CaptureAccount::default();
    };
    let err_total = c.stderr.as_ref().map_or(0, |k| k.total);
    let total = c.raw.total + err_total;
    let lost = c.raw.lost + c.stderr.as_ref().map_or(0, |k| k.lost);
    let mut bytes = Some(total);
    if let Some(e) = &c.raw.error {
        warnings.push(format!(
            "capture: output.raw: {e}: {lost} of {total} bytes are not on disk"
        ));
        if lost >= total {
            bytes = None;
        }
    }
    for (name, k) in [
        ("output.log", Some(&c.log)),
        ("stderr.raw", c.stderr.as_ref()),
    ] {
        if let Some(e) = k.and_then(|k| k.error.as_ref()) {
            warnings.push(format!("capture: {name}: {e}"));
        }
    }
    if let Some(e) = &c.read_error {
        warnings.push(format!("capture: reading stopped: {e}"));
    }
    if total == 0 {
        warnings.push("CAPTURE_FAILED: not one byte of output was captured".into());
        note(false, "CAPTURE_FAILED: 0 bytes".into());
    } else {
        note(
            c.raw.error.is_none() && c.read_error.is_none(),
            format!("RAW BYTES CAPTURED: {total}"),
        );
    }
    if c.raw.cut > 0 {
        warnings.push(format!(
            "LOG_FLOOD: {} of {total} bytes of output were cut out of the middle (output_cap)",
            c.raw.cut
        ));
    }
    warnings.extend(c.stamps_why);
    if c.bad_events > 0 {
        warnings.push(format!(
            "{} line(s) of the event pipe were no events",
            c.bad_events
        ));
    }
    if c.events_left_out > 0 {
        warnings.push(format!(
            "{} events are in events.jsonl only",
            c.events_left_out
        ));
    }
    CaptureAccount {
        bytes,
        stamps: c.stamps,
        events: c.events,
        truncated: c.raw.cut > 0,
    }
}

/// The files that the attempt left, by their use.
fn files(dir: &std::path::Path) -> Files {
    [
        ("output", "output.raw"),
        ("log", "output.log"),
        ("stderr", "stderr.raw"),
        ("kernel", "kernel.log"),
        ("events", "events.jsonl"),
        ("telemetry", "telemetry.csv"),
        ("stacks", "stacks.txt"),
        ("backtrace", "backtrace.txt"),
        ("cores", "cores"),
    ]
    .into_iter()
    .filter(|(_, f)| dir.join(f).exists())
    .map(|(k, f)| (k.to_owned(), f.to_owned()))
    .collect()
}
