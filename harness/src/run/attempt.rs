//! One attempt: what the supervisor is asked for, and what the report says of it afterwards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use legwork_reports::model::{Attempt, Files};
use regex::Regex;

use super::observe::Observed;
use crate::legfile::{CorePolicy, Cwd, LegSpec, Work};
use crate::plan::Step;
use crate::stage::Program;
use crate::supervise::{self, AttemptOutcome, AttemptSpec, PhaseRule, Timeouts};

/// Everything that one attempt needs besides its leg.
pub(super) struct Surroundings<'a> {
    pub program: &'a Program,
    /// The attempt's folder.
    pub dir: &'a Path,
    /// Where legwork was started.
    pub start_dir: &'a Path,
    pub env: Vec<(String, String)>,
    pub stub: &'a Path,
    pub lease_end_mono_ns: Option<u64>,
    pub sysroot: Option<&'a Path>,
}

/// The supervisor's orders for one attempt, and what had to be done differently than declared.
pub(super) fn spec(leg: &LegSpec, around: &Surroundings<'_>) -> (AttemptSpec, Option<String>) {
    let wanted: PathBuf = match &leg.cwd {
        Cwd::Start => around.start_dir.to_owned(),
        Cwd::Attempt => around.dir.to_owned(),
        Cwd::Stage => around.program.dir.clone(),
        Cwd::Path(path) => path.clone(),
    };
    // The folder of the start may have gone with its share: a leg that needs nothing from it can run all the same.
    let (cwd, note) =
        if leg.cwd == Cwd::Start && !(crate::stage::answers(&wanted) && wanted.is_dir()) {
            let note = format!(
                "the working directory {} is gone: the attempt ran in its own folder",
                wanted.display()
            );
            (around.dir.to_owned(), Some(note))
        } else {
            (wanted, None)
        };
    let mut spec = AttemptSpec::new(around.program.argv.clone(), cwd, around.dir.to_owned());
    spec.env = around.env.clone();
    spec.env
        .extend(super::trace::variable(leg, &around.env, around.dir));
    spec.timeouts = Timeouts {
        total: leg.timeout.total,
        idle: leg.timeout.idle,
        grace: leg.timeout.grace,
        phases: leg.timeout.phases.clone(),
        lease_end_mono_ns: around.lease_end_mono_ns,
        unkillable_after: Timeouts::default()
            .unkillable_after
            .min(crate::stage::patience()),
    };
    spec.core = match leg.core {
        CorePolicy::Off => supervise::CorePolicy::Off,
        CorePolicy::Bounded => supervise::CorePolicy::Bounded,
        CorePolicy::Full => supervise::CorePolicy::Full,
    };
    spec.abort_on_deadline = leg.timeout.abort;
    spec.output_cap = leg.output_cap;
    spec.separate_stderr = leg.separate_stderr;
    spec.events = matches!(leg.work, Work::Engine(_));
    spec.fatal_patterns = leg.fatal_patterns;
    spec.memory_max = leg.memory_max;
    spec.sysroot = around.sysroot.map(Path::to_owned);
    spec.stub_exe = Some(around.stub.to_owned());
    spec.phase_rules = leg
        .phases
        .iter()
        // Both compiled when the leg file was checked.
        .filter_map(|p| {
            Some(PhaseRule {
                name: p.name.clone(),
                from: Regex::new(&p.from).ok()?,
                to: Regex::new(&p.to).ok()?,
            })
        })
        .collect();
    (spec, note)
}

/// What the report says of an attempt that ran.
pub(super) fn attempt(
    step: &Step,
    outcome: &AttemptOutcome,
    observed: Observed,
    dir: &str,
) -> Attempt {
    let mut metrics = observed.metrics;
    #[allow(clippy::cast_precision_loss)]
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    metrics.peak_rss_gib = outcome.peak_rss_bytes.map(gib);
    let files: Files = outcome
        .files
        .iter()
        .map(|(name, path)| (name.clone(), format!("{dir}/{path}")))
        .collect();
    Attempt {
        warmup: step.warmup,
        wall_s: outcome.wall_s,
        exit: outcome.exit.clone(),
        descendants: outcome.descendants.clone(),
        phases: observed.phases,
        phases_from: observed.phases_from,
        metrics,
        text: observed.text,
        token_ids: observed.token_ids,
        reference_tier_hits: observed.reference_tier_hits,
        provider_lines: observed.provider_lines,
        finish_reason: observed.finish_reason,
        leaks: outcome.leaks.clone(),
        output_bytes: outcome.output_bytes,
        stamps: outcome.stamps,
        boot_id: crate::journal::boot_id(),
        files,
        ..Attempt::new(step.n, step.round, outcome.started)
    }
}

/// The lease's end less its reserve on CLOCK_MONOTONIC, for a run that began at `start_mono_ns`.
pub(super) fn lease_end(
    max_runtime: Option<Duration>,
    reserve: Duration,
    start_mono_ns: u64,
) -> Option<u64> {
    let available = max_runtime?.saturating_sub(reserve);
    Some(start_mono_ns.saturating_add(u64::try_from(available.as_nanos()).unwrap_or(u64::MAX)))
}
