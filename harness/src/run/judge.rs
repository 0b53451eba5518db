//! Writes down what is known of an attempt (`context.yaml`) and asks triage whose fault it was.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::Utc;
use legwork_reports::model::{Attempt, Class, Confidence, Exit, Verdict};
use serde_json::{Map, Value, json};

use super::observe::Observed;
use crate::evidence::previous_boot::PreviousBoot;
use crate::journal::boot_id;
use crate::legfile::{LegSpec, Work};
use crate::plan::Step;
use crate::supervise::{AttemptOutcome, KillReason};
use crate::triage::context::{InFlight, LostShare};
use crate::triage::{self, Case};

/// Everything that is known when an attempt is judged.
pub(super) struct Facts<'a> {
    pub leg: &'a LegSpec,
    pub env: &'a [(String, String)],
    pub boot_before: Option<String>,
    pub identity: &'a BTreeMap<String, Value>,
    pub outcome: Option<&'a AttemptOutcome>,
    pub stage_error: Option<String>,
    pub spawn_error: Option<String>,
    pub observed: Option<&'a Observed>,
    /// The harness died while the attempt ran: its end was not seen.
    pub lost: bool,
    /// Shares of the leg that did not answer after it.
    pub shares: Vec<LostShare>,
    /// The machine was booted again meanwhile; what is left of the boot before.
    pub previous_boot: Option<PreviousBoot>,
    /// The GPU launch that was not over.
    pub in_flight: Option<InFlight>,
}

/// Writes the context and judges.
pub(super) fn judge(facts: &Facts<'_>, dir: &Path) -> Verdict {
    let written = write_context(&context(facts), dir);
    let mut verdict = verdict_of(dir);
    if let Err(e) = written {
        verdict
            .warnings
            .push(format!("context.yaml could not be written: {e}"));
    }
    verdict
}

/// The attempt of a step whose child was never started.
pub(super) fn without_outcome(
    step: &Step,
    facts: &Facts<'_>,
    dir: &Path,
    relative: &str,
) -> Attempt {
    let mut attempt = Attempt {
        warmup: step.warmup,
        boot_id: boot_id(),
        ..Attempt::new(step.n, step.round, Utc::now())
    };
    attempt.verdict = judge(facts, dir);
    attempt
        .files
        .insert("context".to_owned(), format!("{relative}/context.yaml"));
    attempt
}

/// Writes `context.yaml`.
pub(super) fn write_context(context: &Map<String, Value>, dir: &Path) -> std::io::Result<()> {
    let text = serde_yaml::to_string(context).map_err(std::io::Error::other)?;
    std::fs::write(dir.join("context.yaml"), text)
}

/// The attempt's context: what the captured files do not tell by themselves. Keys without a value are left out.
pub(super) fn context(facts: &Facts<'_>) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        let empty = value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        if !empty {
            out.insert(key.to_owned(), value);
        }
    };
    let fact = |name: &str| facts.identity.get(name).cloned().unwrap_or(Value::Null);
    put("hardware", json!(hardware(facts.identity)));
    put("process", json!(process_name(facts.leg)));
    put("leg", json!(facts.leg.name));
    put("gpu", fact("gpu.pci"));
    put("gfx", fact("gpu.gfx"));
    put("stack", stack(facts.identity));
    put("device", json!(device(facts)));
    put("own_gpu_code", json!(own_gpu_code(facts)));
    put(
        "env",
        json!(
            super::env::masked(facts.env)
                .into_iter()
                .filter(|(k, _)| interesting(k))
                .collect::<BTreeMap<_, _>>()
        ),
    );
    put(
        "boot_id",
        json!({"before": facts.boot_before, "after": boot_id()}),
    );
    put("stage_error", json!(facts.stage_error));
    put("spawn_error", json!(facts.spawn_error));
    put("shares", json!(facts.shares));
    put("previous_boot", json!(facts.previous_boot));
    put("in_flight", json!(facts.in_flight));
    if facts.lost {
        let rebooted = facts.boot_before.is_some() && facts.boot_before != boot_id();
        put(
            "exit",
            json!(if rebooted {
                "host reset"
            } else {
                "lost connection"
            }),
        );
        put("killed_by", json!("harness"));
    }
    if let Some(outcome) = facts.outcome {
        put("pid", json!(outcome.leader_pid));
        put("exit", json!(exit_words(&outcome.exit)));
        put("end", json!(outcome.exit));
        put("pids", json!(outcome.pids));
        put("comms", json!(comms(facts.leg, outcome)));
        put(
            "window",
            json!({
                "from_mono_ns": outcome.start_mono_ns, "to_mono_ns": outcome.end_mono_ns,
                "from_seq": outcome.kernel_log.first_seq, "to_seq": outcome.kernel_log.last_seq,
            }),
        );
        put("descendants", json!(outcome.descendants));
        put("leaks", json!(outcome.leaks));
        let cores: Vec<Value> = outcome
            .cores
            .iter()
            .map(|c| json!({"pid": c.pid, "comm": c.comm, "signal": c.signal, "code": c.si_code, "addr": c.address, "module": c.module, "path": c.path, "truncated": c.truncated}))
            .collect();
        put("cores", json!(cores));
        put(
            "killed_by",
            json!(outcome.killed_by_us.as_ref().map(killed_by)),
        );
        if outcome.unkillable {
            put("unkillable", json!(outcome.stuck));
        }
        put(
            "capture",
            json!({
                "bytes": outcome.output_bytes.unwrap_or(0), "failed": outcome.output_bytes.is_none(),
                "truncated": outcome.truncated, "flood": matches!(outcome.killed_by_us, Some(KillReason::LogFlood)),
            }),
        );
        put(
            "kernel_log",
            json!({"source": outcome.kernel_log.source, "records": outcome.kernel_log.records, "lost": outcome.kernel_log.lost, "note": outcome.kernel_log.note}),
        );
    }
    out
}

fn interesting(name: &str) -> bool {
    super::HYGIENE_PREFIXES.iter().any(|p| name.starts_with(p))
}

/// One line about the machine, as a person would give it in a bug report.
pub(super) fn hardware(identity: &BTreeMap<String, Value>) -> Option<String> {
    let text = |name: &str| {
        identity
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let mut parts: Vec<String> = text("cpu.model").into_iter().collect();
    match (text("gpu.name"), text("gpu.gfx")) {
        (Some(name), Some(gfx)) => parts.push(format!("{name} ({gfx})")),
        (Some(one), None) | (None, Some(one)) => parts.push(one),
        (None, None) => {}
    }
    parts.extend(text("kernel.release").map(|k| format!("kernel {k}")));
    parts.extend(text("rocm.version").map(|r| format!("ROCm {r}")));
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn stack(identity: &BTreeMap<String, Value>) -> Value {
    let pairs = [
        ("kernel", "kernel.release"),
        ("cwsr_enable", "amdgpu.cwsr_enable"),
        ("mes", "firmware.mes"),
        ("rocm", "rocm.version"),
    ];
    Value::Object(
        pairs
            .into_iter()
            .filter_map(|(key, name)| {
                Some((
                    key.to_owned(),
                    identity.get(name).filter(|v| !v.is_null())?.clone(),
                ))
            })
            .collect(),
    )
}

fn process_name(leg: &LegSpec) -> String {
    let program = match &leg.work {
        Work::Engine(_) => "legwork".to_owned(),
        Work::Command(argv) => argv.first().cloned().unwrap_or_default(),
        Work::Script { path, .. } => path.clone(),
    };
    Path::new(&program)
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or(program)
}

fn comms(leg: &LegSpec, outcome: &AttemptOutcome) -> Vec<String> {
    let mut out: Vec<String> = std::iter::once(process_name(leg).chars().take(15).collect())
        .chain(outcome.descendants.iter().filter_map(|d| d.comm.clone()))
        .collect();
    out.sort();
    out.dedup();
    out
}

/// The device on which an engine leg ran: what the engine said, else what it was asked for.
fn device(facts: &Facts<'_>) -> Option<String> {
    let Work::Engine(keys) = &facts.leg.work else {
        return None;
    };
    facts
        .observed
        .and_then(|o| o.device.clone())
        .or_else(|| keys.device.clone().filter(|d| d != "auto"))
}

fn own_gpu_code(facts: &Facts<'_>) -> Option<&'static str> {
    match device(facts)?.as_str() {
        "cpu" | "simt" => Some("none"),
        "rocm" | "cuda" => Some("new"),
        _ => None,
    }
}

fn killed_by(reason: &KillReason) -> &'static str {
    match reason {
        KillReason::Total => "deadline",
        KillReason::Idle => "idle",
        KillReason::Phase(_) => "phase",
        KillReason::Lease => "lease",
        KillReason::FatalPattern(_) => "fatal-pattern",
        KillReason::Stopped | KillReason::Killed => "user",
        KillReason::LogFlood => "output-cap",
        KillReason::DiskFull => "disk-floor",
    }
}

fn exit_words(exit: &Exit) -> Option<String> {
    match (&exit.timed_out, exit.code, exit.signal) {
        (Some(_), _, _) => Some("timeout".to_owned()),
        (None, _, Some(signal)) => Some(format!("signal {signal}")),
        (None, Some(code), None) => Some(code.to_string()),
        (None, None, None) => None,
    }
}

/// Asks triage; what it cannot read is a verdict too.
fn verdict_of(dir: &Path) -> Verdict {
    match Case::from_dir(dir) {
        Ok(case) => triage::triage(&case),
        Err(e) => {
            let mut verdict = Verdict::new(
                Class::Inconclusive,
                "context-unreadable",
                Confidence::Low,
                "the attempt's context cannot be read",
            );
            verdict.warnings.push(e.to_string());
            verdict
                .would_settle
                .push("run the leg once more: its folder could not be read back".to_owned());
            verdict
        }
    }
}
