//! From findings to a verdict: an order of questions, the first "yes" wins.
//!
//! 1. Is the line inside the attempt's window, on its GPU, of its process tree? (`scope.rs`)
//! 2. Did hardware say so itself? (`hardware.rs`)
//! 3. Did the host's kernel say so? (`host.rs`)
//! 4. What was the first GPU event? (`incident.rs` sorts, `gpu.rs` judges; `stack_gate.rs` guards gfx1151)
//! 5. What did the program say? (`program.rs`)
//! 6. How did it end? (`ending.rs`)
//!
//! `evidence.rs` then gives every line its part.

mod decision;
mod ending;
mod evidence;
mod gpu;
mod hardware;
mod host;
mod incident;
mod program;
mod reset;

pub use decision::{Alternate, Decision, Evidence};
pub(super) use ending::{describe, signal_name};

use legwork_reports::model::{Class, Confidence, Verdict};

use super::case::Case;
use super::context::Ending;
use super::facts::Facts;
use super::finding::{Finding, Word};
use super::pci::Pci;
use super::scan::{self, Scan};
use super::scope::{Owner, Scope};
use super::settle::Settle;
use super::title;
use incident::Incident;

/// A verdict with what does not fit into the report's model.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Other readings of the same evidence.
    pub alternates: Vec<Alternate>,
    /// Why the logs may not be trusted in full: interleaved, cut or lost lines.
    pub corrupted: Option<String>,
    /// The attempt's GPUs, as far as known or inferred.
    pub gpus: Vec<Pci>,
}

/// Judges a case; never fails: what cannot be read becomes a warning.
#[must_use]
pub fn judge(case: &Case) -> Judgement {
    let mut warnings = Vec::new();
    let mut read = |source: &Option<super::case::Source>,
                    f: &dyn Fn(Box<dyn std::io::Read + '_>) -> Scan|
     -> Option<Scan> {
        let source = source.as_ref()?;
        match source.open() {
            Ok(r) => {
                let s = f(r);
                if let Some(e) = &s.error {
                    warnings.push(format!("{}: reading stopped: {e}", source.name()));
                }
                Some(s)
            }
            Err(e) => {
                warnings.push(format!("{}: {e}", source.name()));
                None
            }
        }
    };
    let kernel = read(&case.kernel, &|r| scan::kernel(r));
    let output = read(&case.output, &|r| scan::output(r));
    let mut judgement = weigh(case, kernel, output, warnings);
    if let Some(super::case::Source::Path(p)) = &case.kernel
        && p.file_name().is_some_and(|n| n == "kernel.reset.log")
    {
        for line in &mut judgement.verdict.evidence {
            if line.source == "kernel.log" {
                line.source = "kernel.reset.log".to_owned();
            }
        }
    }
    judgement
}

fn weigh(
    case: &Case,
    kernel: Option<Scan>,
    output: Option<Scan>,
    mut warnings: Vec<String>,
) -> Judgement {
    let ctx = &case.context;
    let has_kernel_log = kernel.is_some()
        && ctx
            .kernel_log
            .as_ref()
            .is_none_or(|k| k.source.as_deref() != Some("none"));
    let losses = kernel.as_ref().map(|k| k.losses).unwrap_or_default();
    let release = kernel.as_ref().and_then(|k| k.kernel_release.clone());
    let others = kernel
        .as_ref()
        .map(|k| k.others.clone())
        .unwrap_or_default();
    let mut events = Vec::new();
    let mut dropped = 0;
    for s in [kernel, output].into_iter().flatten() {
        dropped += s.dropped;
        events.extend(s.events);
    }
    let scope = Scope::new(ctx, &events);
    let facts = Facts::gather(ctx, release.as_deref());
    let places = events.iter().map(|e| scope.place(e, ctx)).collect();
    let (ending, hidden_crash) = worst_end(case);
    let ev = Evidence {
        ctx,
        events: &events,
        places,
        scope: &scope,
        facts: &facts,
        ending,
        hidden_crash,
        has_kernel_log,
        others: &others,
    };
    let incidents = incident::incidents(&ev);
    let mut d = decide(&ev, &incidents);
    if d.title.is_empty() {
        d.title = title::of(&ev, &d);
        // Two faults in two kernels are two troubles.
        if let Some(f) = &ctx.in_flight
            && d.decides
                .first()
                .is_some_and(|&i| events[i].finding.speaks_of_gpu())
        {
            d.title = format!("{}, {} in flight", d.title, f.kernel);
        }
    }
    notes(&ev, &incidents, &d, &mut warnings);
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} findings beyond the bound were counted, not kept"
        ));
    }
    let corrupted = corrupted(&losses, ctx);
    if let Some(c) = &corrupted {
        warnings.push(format!("corrupted: {c}"));
    }
    if losses.suppressed > 0 {
        warnings.push(format!(
            "the kernel's rate limit held back {} messages: an absent fault status means nothing",
            losses.suppressed
        ));
    }
    let evidence = evidence::lines(&ev, &incidents, &d, &mut warnings);
    let mut verdict = Verdict::new(d.class, &d.kind, d.confidence, d.title.clone());
    verdict.evidence = evidence;
    // An open question needs its next step; a settled one does not.
    if d.class == Class::Inconclusive || d.confidence != Confidence::High {
        verdict.would_settle = d.settle.iter().map(|s| s.words(ctx)).collect();
    }
    if d.class == Class::Inconclusive && verdict.would_settle.is_empty() {
        verdict.would_settle.push(Settle::Repeat.words(ctx));
    }
    verdict.stack_gate = d.gate.clone();
    verdict.alternates = d
        .alternates
        .iter()
        .map(|a| legwork_reports::model::Alternate {
            class: a.class,
            kind: a.kind.clone(),
            why: a.why.clone(),
        })
        .collect();
    warnings.append(&mut d.warnings);
    verdict.warnings = warnings;
    Judgement {
        verdict,
        alternates: d.alternates,
        corrupted,
        gpus: scope.gpus().to_vec(),
    }
}

/// The leader's end; when it claims success, that of a descendant which crashed.
fn worst_end(case: &Case) -> (Ending, bool) {
    let top = case.context.ending();
    if !top.success() {
        return (top, false);
    }
    let hidden = case.context.descendants.iter().find_map(|d| {
        let end = d.end?;
        end.crashed().then_some(Ending {
            code: end.code,
            signal: end.signal,
            core_dumped: end.core_dumped,
            ..Ending::default()
        })
    });
    match hidden {
        Some(e) => (e, true),
        None => (top, false),
    }
}

/// The order of questions.
fn decide(ev: &Evidence<'_>, incidents: &[Incident]) -> Decision {
    if let Some(d) = ending::never_ran(ev) {
        return d;
    }
    if let Some(d) = hardware::ask(ev, incidents) {
        return d;
    }
    let own = own_incident(ev, incidents);
    let host = host::process(ev);
    let collateral = collateral_incident(ev, incidents);
    // Whatever came first: the GPU's event, somebody else's reset, or the process's own end on the host.
    let position = |inc: Option<&Incident>| {
        inc.map_or(usize::MAX, |i| {
            i.members.first().copied().unwrap_or(i.guilty)
        })
    };
    let (p_own, p_other) = (position(own), position(collateral));
    let p_host = host.as_ref().map_or(usize::MAX, |h| h.0);
    if let Some((_, d)) = &host
        && p_host < p_own
        && p_host < p_other
    {
        return d.clone();
    }
    if let Some(d) = host::heap_with_iommu(ev) {
        return d;
    }
    if let Some(inc) = own
        && (p_own < p_other || alive_after(ev, inc, collateral))
    {
        let mut d = gpu::judge(ev, inc);
        if let Some((i, _)) = host {
            d = d.with(
                Some(i),
                "the process fell over its lost GPU context: a consequence",
            );
        }
        return d;
    }
    if let Some(inc) = collateral {
        return gpu::collateral(ev, inc);
    }
    if let Some(inc) = own {
        return gpu::judge(ev, inc);
    }
    if let Some(d) = reset::ask(ev) {
        return d;
    }
    if let Some(d) = host::driver(ev) {
        return d;
    }
    if let Some(d) = ending::unkillable(ev) {
        return match host::surroundings(ev) {
            Some(s) if s.kind == "share-lost" || s.kind == "storage-lost" => s,
            _ => d,
        };
    }
    let gpu_word = program::first(ev).is_some_and(|(_, w)| {
        matches!(
            w,
            Word::MemoryAccessFault
                | Word::ApertureViolation
                | Word::IllegalInstruction
                | Word::QueueException
                | Word::IllegalAddress
                | Word::DeviceAssert
                | Word::DeviceEcc
                | Word::NoCodeObject
                | Word::OpRefused
                | Word::DeviceOom
        )
    });
    if !gpu_word {
        if let Some(d) = ending::harness(ev) {
            return d;
        }
        if let Some(d) = host::surroundings(ev) {
            return d;
        }
    }
    if let Some(d) = program::judge(ev) {
        return d;
    }
    if let Some(d) = ending::harness(ev).or_else(|| host::surroundings(ev)) {
        return d;
    }
    if let Some(d) = host::kernel_trouble(ev) {
        return d;
    }
    if let Some(d) = ending::capture(ev) {
        return d;
    }
    let mut d = ending::alone(ev);
    if !ev.has_kernel_log && d.class != Class::Clean {
        d = d.settle(&[Settle::Privileged]);
    }
    d
}

/// The first incident that is charged to the attempt or to nobody.
fn own_incident<'i>(ev: &Evidence<'_>, incidents: &'i [Incident]) -> Option<&'i Incident> {
    let first = incidents.iter().find(|inc| match inc.owner {
        Owner::Ours | Owner::Likely => true,
        Owner::Other => false,
        Owner::Nobody => nobody_counts(ev, inc),
    })?;
    if first.owner != Owner::Nobody || !first.ended {
        return Some(first);
    }
    // A process that still faults after a finished reset did not live through it: that reset was before its time.
    let own = incidents.iter().find(|inc| {
        inc.owner <= Owner::Likely
            && inc.guilty > first.guilty
            && matches!(
                ev.events[inc.guilty].finding,
                Finding::GpuPageFault(_) | Finding::Xid { .. }
            )
    });
    Some(own.unwrap_or(first))
}

/// Whether an incident that names nobody is the attempt's business.
fn nobody_counts(ev: &Evidence<'_>, inc: &Incident) -> bool {
    let e = &ev.events[inc.guilty];
    // A passed attempt is charged with what took the GPU down under it, not with a complaint that passed.
    if ev.ending.success() && !inc.reset {
        return false;
    }
    match &e.finding {
        Finding::GpuPageFault(f) => {
            // Compute VM ids start at 8 (3 on MI200 and MI300); below are graphics clients.
            let first = if ev.facts.instinct { 3 } else { 8 };
            let graphics = f.vmid.is_some_and(|v| v > 0 && v < first);
            !graphics && (!ev.ending.success() || f.is_kernel_space())
        }
        // A passed attempt is not charged with a wave, an unmapped bus address or a display's timeout of nobody.
        Finding::SqInterrupt { .. }
        | Finding::IommuFault { .. }
        | Finding::RingTimeout { .. }
        | Finding::Xid { .. } => !ev.ending.success(),
        Finding::GpuReset(_) => !ev.ending.success(),
        _ => true,
    }
}

/// Somebody else's incident that took the attempt with it.
fn collateral_incident<'i>(ev: &Evidence<'_>, incidents: &'i [Incident]) -> Option<&'i Incident> {
    if ev.ending.success() {
        return None;
    }
    let word = program::first(ev).map(|(_, w)| w);
    if word.is_some_and(|w| !program::told_of_reset(w)) {
        return None;
    }
    let told = ev
        .said(&[Word::HwException, Word::VulkanLost, Word::LaunchFailure])
        .is_some();
    incidents
        .iter()
        .find(|inc| inc.owner == Owner::Other && (inc.reset || told))
}

/// Whether the attempt lived on after a collateral reset: a later event of its own decides then.
fn alive_after(ev: &Evidence<'_>, own: &Incident, collateral: Option<&Incident>) -> bool {
    let Some(other) = collateral else { return true };
    let by_name = own.owner <= Owner::Likely;
    let later = own.guilty > other.members.last().copied().unwrap_or(other.guilty);
    let _ = ev;
    by_name && later && other.ended
}

fn corrupted(losses: &super::lexer::Losses, ctx: &super::context::Context) -> Option<String> {
    let mut why = Vec::new();
    if losses.interleaved > 0 {
        why.push(format!(
            "{} lines hold two messages written into each other",
            losses.interleaved
        ));
    }
    let lost = losses
        .seq_gap
        .max(ctx.kernel_log.as_ref().and_then(|k| k.lost).unwrap_or(0));
    if lost > 0 {
        why.push(format!("{lost} kernel records are missing (sequence gap)"));
    }
    if losses.too_long > 0 {
        why.push(format!(
            "{} lines were longer than is read",
            losses.too_long
        ));
    }
    if ctx.capture.as_ref().is_some_and(|c| c.truncated) {
        why.push("the output was cut at its cap".to_owned());
    }
    (!why.is_empty()).then(|| why.join("; "))
}

/// What the reader should know besides.
fn notes(ev: &Evidence<'_>, incidents: &[Incident], d: &Decision, warnings: &mut Vec<String>) {
    if !ev.has_kernel_log {
        warnings.push(
            "no kernel log was read: board and kernel faults cannot be told apart without it"
                .to_owned(),
        );
    }
    for (_, e, owner) in ev.kernel() {
        match &e.finding {
            Finding::OomKill {
                process: Some(p), ..
            } if owner > Owner::Likely => {
                warnings.push(format!(
                    "memory ran out: the kernel killed {} (pid {}), not the attempt",
                    p.comm,
                    p.pid.unwrap_or(0)
                ));
            }
            Finding::Mce { corrected: true } => {
                warnings.push("corrected machine checks: watch this machine".to_owned())
            }
            Finding::RasError { bogus: true, .. } => warnings.push(
                "RAS counters grow by 1048560 per query: a read of a sleeping device, not errors"
                    .to_owned(),
            ),
            Finding::RasError {
                correctable: true, ..
            } => warnings.push("corrected RAS errors: watch this board".to_owned()),
            Finding::Thermal { critical: false } => warnings.push(
                "the CPU was throttled for heat: its speed figures are not comparable".to_owned(),
            ),
            Finding::ShareLost { .. } if d.class != Class::Infra => {
                warnings.push("a network share stopped answering during the attempt".to_owned())
            }
            _ => {}
        }
    }
    if d.kind != "gpu-reset-failed"
        && ev.kernel().any(|(_, e, _)| {
            matches!(
                e.finding,
                Finding::GpuReset(super::finding::ResetStep::Failed(_))
            )
        })
    {
        warnings.push(
            "a reset of the board failed: quarantine it until it was started anew".to_owned(),
        );
    }
    if ev.ctx.unkillable.is_some() && d.kind != "unkillable" {
        warnings.push(
            "processes of the attempt are still alive after SIGKILL: quarantine the board"
                .to_owned(),
        );
    }
    if !ev.ctx.leaks.is_empty() {
        warnings.push(format!(
            "{} processes outlived the leader and were killed",
            ev.ctx.leaks.len()
        ));
    }
    if incidents.iter().filter(|i| i.owner == Owner::Other).count() > 0 && d.class == Class::Clean {
        warnings.push("another process had GPU trouble at the same time".to_owned());
    }
    if ev.ctx.capture.as_ref().is_some_and(|c| c.failed) && d.kind != "capture-failed" {
        warnings.push("the capture of output failed".to_owned());
    }
    if let Some(k) = &ev.ctx.kernel_log
        && let Some(note) = &k.note
    {
        warnings.push(format!("kernel log: {note}"));
    }
    if ev.ctx.window.as_ref().is_some_and(|w| {
        [&w.from, &w.to]
            .into_iter()
            .flatten()
            .any(|s| super::lexer::Stamp::parse(s).is_none())
    }) {
        warnings.push("the window's stamps cannot be read: every line counts".to_owned());
    }
    warnings.sort();
    warnings.dedup();
}
