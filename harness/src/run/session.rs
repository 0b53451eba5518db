//! The loop of a run.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Utc;
use legwork_reports::admissible::Binaries;
use legwork_reports::model::{
    Attempt, Class, Confidence, ExitCode, Files, Leg, Report, RunInfo, Verdict,
};

use super::archive::Archive;
use super::attempt::{self, Surroundings};
use super::env::{child_env, inherited};
use super::judge::{self, Facts};
use super::live::Live;
use super::{
    Options, RunDir, RunError, StopFlags, cache, finish, identity, observe, shares, trace,
};
use crate::board::driver;
use crate::journal::{Entry, JOURNAL, Writer, boot_id};
use crate::legfile::{LegSet, OnFail, Selection, format_duration};
use crate::os::{clock, root::Root};
use crate::plan::{Plan, Step, draw_seed, plan, report_leg};
use crate::stage::{Program, Stage, StageError, mount_of, stage_leg};
use crate::supervise;

/// A run that is over.
#[derive(Debug)]
pub struct Done {
    /// The exit code.
    pub code: ExitCode,
    /// The report as written.
    pub report: Report,
    /// Where it lies.
    pub dir: RunDir,
}

/// A run in progress.
pub(super) struct Session<'a> {
    pub set: &'a LegSet,
    pub plan: &'a Plan,
    pub options: &'a Options,
    pub dir: RunDir,
    pub journal: Writer,
    pub report: Report,
    pub archive: Archive,
    pub live: Live,
    pub stop: StopFlags,
    pub start_dir: PathBuf,
    pub lease_end_mono_ns: Option<u64>,
    /// Which load of the GPU's driver the run began with.
    pub driver: Option<String>,
    /// Counted attempts that were not begun: by leg and reason.
    skipped: BTreeMap<(String, String), u32>,
    /// Number of the last attempt given out.
    pub last_n: u32,
    stage: Option<Stage>,
    exe: PathBuf,
    programs: Vec<Result<Program, StageError>>,
    journal_failed: bool,
}

/// Runs a leg set from its plan to its report.
///
/// # Errors
/// When nothing could be run at all; whatever an attempt does is in the report.
pub fn run(mut set: LegSet, selection: &Selection, options: &Options) -> Result<Done, RunError> {
    set.select(selection)?;
    if set.legs.is_empty() || set.legs.iter().all(|l| l.repeat == 0) {
        return Err(RunError::Nothing(format!(
            "leg set `{}` has no leg to run",
            set.name
        )));
    }
    let stop = StopFlags::install();
    let _lock = identity::guard(&set, options)?;
    let plan = plan(&set, draw_seed());
    let started = Utc::now();
    let dir = RunDir::create(&options.out, &set.name, started)?;
    std::fs::write(dir.path.join("legs.yaml"), &set.source.text)
        .map_err(RunError::io("writing", &dir.path.join("legs.yaml")))?;
    let journal_path = dir.path.join(JOURNAL);
    let mut journal =
        Writer::create(&journal_path).map_err(RunError::io("making the journal", &journal_path))?;
    let begin = Entry::RunBegin {
        run: dir.id.clone(),
        leg_set: set.name.clone(),
        leg_file: set.source.name.clone(),
        leg_file_sha256: set.source.sha256.clone(),
        selection: Box::new(selection.clone()),
        seed: plan.seed,
        steps: plan.steps.clone(),
        pid: std::process::id(),
        boot_id: boot_id(),
        driver: driver::generation(&Root::new(options.sysroot.as_deref())),
        argv: options.argv.clone(),
        legwork: env!("CARGO_PKG_VERSION").to_owned(),
        base: set.source.base.clone(),
    };
    journal
        .append_sync(begin)
        .map_err(RunError::io("writing the journal", &journal_path))?;
    let mut info = RunInfo::new(&dir.id, &set.name, started, plan.seed);
    info.question.clone_from(&set.question);
    info.host = identity::host();
    info.boot_id = boot_id();
    info.order = Some(set.order.as_str().to_owned());
    info.leg_file_sha256 = Some(set.source.sha256.clone());
    info.quick = options.quick;
    info.reproduce = Some(super::quoted(&options.argv));
    let mut session = Session::new(&set, &plan, options, dir, journal, Report::new(info), stop);
    session.prepare()?;
    for step in &plan.steps {
        session.step(step);
    }
    Ok(session.close())
}

impl<'a> Session<'a> {
    pub(super) fn new(
        set: &'a LegSet,
        plan: &'a Plan,
        options: &'a Options,
        dir: RunDir,
        journal: Writer,
        report: Report,
        stop: StopFlags,
    ) -> Session<'a> {
        let worker = Some(PathBuf::from("/proc/self/exe"));
        dir.reserve();
        let archive = Archive::new(options.archive.as_deref(), &dir.id, worker);
        Session {
            live: Live::new(options, plan.steps.len(), stop),
            lease_end_mono_ns: attempt::lease_end(set.max_runtime, set.reserve, clock::mono_ns()),
            driver: driver::generation(&Root::new(options.sysroot.as_deref())),
            skipped: BTreeMap::new(),
            last_n: plan.steps.iter().map(|s| s.n).max().unwrap_or(0),
            set,
            plan,
            options,
            dir,
            journal,
            report,
            archive,
            stop,
            start_dir: set.source.base.clone(),
            stage: None,
            exe: PathBuf::new(),
            programs: Vec::new(),
            journal_failed: false,
        }
    }

    /// Identity, pins, staging, arms: everything before the first attempt.
    pub(super) fn prepare(&mut self) -> Result<(), RunError> {
        let path = inherited()
            .into_iter()
            .find(|(k, _)| k == "PATH")
            .map_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned(), |(_, v)| v);
        let mut stage = Stage::create()?;
        for refused in &stage.refused {
            self.report
                .warnings
                .push(format!("not staged there: {refused}"));
        }
        self.exe = stage.own_executable()?;
        self.programs = self
            .set
            .legs
            .iter()
            .map(|leg| stage_leg(&mut stage, leg, &self.exe, &self.set.source.base, &path))
            .collect();
        self.record(
            Entry::Staged {
                dir: stage.path().to_owned(),
                files: stage.files.clone(),
            },
            true,
        );
        self.report.legs = self
            .set
            .legs
            .iter()
            .zip(&self.programs)
            .map(|(leg, program)| Leg {
                binary_sha256: program.as_ref().ok().and_then(|p| p.sha256.clone()),
                ..report_leg(leg)
            })
            .collect();
        self.report.identity = identity::collect(
            self.set,
            &stage,
            &self.programs,
            self.options,
            &self.dir.path,
        );
        self.stage = Some(stage);
        self.report.files = Files::from([
            ("leg file as run".to_owned(), "legs.yaml".to_owned()),
            ("journal".to_owned(), JOURNAL.to_owned()),
        ]);
        self.check_arms()?;
        let broken = identity::check_pins(self.set, &self.report.identity);
        if !broken.is_empty() {
            if !self.options.ignore_pins {
                self.abandon("pins do not hold");
                return Err(RunError::Pins(broken.join("\n")));
            }
            self.report
                .warnings
                .extend(broken.into_iter().map(|b| format!("pin ignored: {b}")));
        }
        self.report.warnings.extend(self.plan.warnings.clone());
        if let Some(mount) = mount_of(&self.dir.path).filter(crate::stage::Mount::network) {
            self.warn_once(&format!(
                "the run directory lies on a network file system ({} at {}): captures are lost with it; use --out on a local disk and --archive for the share",
                mount.fs_type,
                mount.point.display()
            ));
        }
        let others = identity::gpu_users(self.set, self.options);
        if !others.is_empty() {
            self.warn_once(&format!(
                "other processes use the GPU: {}",
                others.join(", ")
            ));
        }
        for warning in &self.plan.warnings {
            self.live.say(&format!("warning: {warning}"));
        }
        Ok(())
    }

    /// A run that ends before its first attempt leaves a journal that says so.
    fn abandon(&mut self, why: &str) {
        self.record(
            Entry::Decision {
                what: "nothing was run".to_owned(),
                why: why.to_owned(),
            },
            false,
        );
        self.record(
            Entry::RunEnd {
                verdict: "fail".to_owned(),
                exit_code: ExitCode::Infra.code(),
            },
            true,
        );
    }

    /// The declared relation of the arms' binaries holds, or nothing is run: the comparison would say nothing.
    fn check_arms(&mut self) -> Result<(), RunError> {
        let Some(rule) = self.set.arms else {
            return Ok(());
        };
        let hashes: Vec<(&str, &str)> = self
            .report
            .legs
            .iter()
            .filter_map(|l| Some((l.name.as_str(), l.binary_sha256.as_deref()?)))
            .collect();
        let trouble = match rule {
            Binaries::Any => None,
            Binaries::MustMatch => hashes.windows(2).find(|w| w[0].1 != w[1].1).map(|w| {
                format!("arms: must_match, but the programs of `{}` ({}) and `{}` ({}) differ", w[0].0, &w[0].1[..12], w[1].0, &w[1].1[..12])
            }),
            Binaries::MustDiffer => hashes.iter().enumerate().find_map(|(i, a)| {
                let same = hashes[..i].iter().find(|b| a.1 == b.1)?;
                Some(format!("arms: must_differ, but the programs of `{}` and `{}` are the same ({}): a build would be compared with itself", same.0, a.0, &a.1[..12]))
            }),
        };
        match trouble {
            Some(text) => {
                self.abandon(&text);
                Err(RunError::Arms(text))
            }
            None => Ok(()),
        }
    }

    /// One step, unless the run is to stop or the lease is over.
    pub(super) fn step(&mut self, step: &Step) {
        let leg = &self.set.legs[step.leg];
        let skip = if self.stop.stopping() {
            self.report.run.interrupted = true;
            Some("the run was stopped".to_owned())
        } else if let Some(why) = self.stopped_by() {
            Some(why)
        } else {
            self.no_time_left(leg.timeout.grace)
        };
        if let Some(why) = skip {
            self.record(
                Entry::StepSkipped {
                    step: *step,
                    why: why.clone(),
                },
                false,
            );
            if !step.warmup {
                *self.skipped.entry((leg.name.clone(), why)).or_default() += 1;
            }
            return;
        }
        // The folder is there before the journal speaks of it, and empty: what a resumption finds in it was captured.
        let made = self.dir.make_attempt(step, &leg.name);
        let relative = made
            .as_ref()
            .map_or_else(|_| RunDir::attempt(step, &leg.name), Clone::clone);
        let folder = self.dir.path.join(&relative);
        self.record(
            Entry::StepBegin {
                step: *step,
                dir: relative.clone(),
                boot_id: boot_id(),
            },
            true,
        );
        let kind = if step.warmup { "warm-up" } else { "round" };
        self.live.begin(format!(
            "{} {}/{} {kind} {}",
            leg.name, step.n, self.last_n, step.round
        ));
        let attempt = match made {
            Ok(_) => self.attempt(step, &relative, &folder),
            Err(e) => infra(
                step,
                "attempt-folder",
                format!("the attempt's folder cannot be made: {e}"),
            ),
        };
        self.finish_step(step, &leg.name, &relative, attempt);
    }

    /// Runs and judges; a bug of ours becomes the attempt's verdict, never the end of the run.
    fn attempt(&mut self, step: &Step, relative: &str, folder: &Path) -> Attempt {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.attempt_inner(step, relative, folder)
        }));
        caught.unwrap_or_else(|panic| {
            let words = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_default();
            self.report
                .warnings
                .push(format!("bug in legwork in attempt {}: {words}", step.n));
            infra(
                step,
                "harness-bug",
                format!("legwork itself failed: {words}"),
            )
        })
    }

    fn attempt_inner(&mut self, step: &Step, relative: &str, folder: &Path) -> Attempt {
        let leg = &self.set.legs[step.leg];
        let env = {
            let mut env = child_env(&inherited(), &self.set.env_allow, &leg.env);
            env.push(("LEGWORK_RUN".to_owned(), self.dir.id.clone()));
            env.push(("LEGWORK_LEG".to_owned(), leg.name.clone()));
            // By it, `resume` finds and ends what this run left when its harness was killed.
            env.push((
                "LEGWORK_ATTEMPT_DIR".to_owned(),
                folder.to_string_lossy().into_owned(),
            ));
            env
        };
        let boot_before = boot_id();
        let mut facts = Facts {
            leg,
            env: &env,
            boot_before,
            identity: &self.report.identity,
            outcome: None,
            stage_error: None,
            spawn_error: None,
            observed: None,
            lost: false,
            shares: Vec::new(),
            previous_boot: None,
            in_flight: None,
        };
        let program = match &self.programs[step.leg] {
            Ok(program) => program,
            Err(e) => {
                facts.stage_error = Some(e.to_string());
                return judge::without_outcome(step, &facts, folder, relative);
            }
        };
        // What the leg cannot do without must be there, and a disk that is full before is not the leg's doing.
        let missing =
            crate::os::process::low_disk(&self.disks(), None).or_else(|| shares::lost(leg));
        if let Some(why) = missing {
            facts.stage_error = Some(why);
            return judge::without_outcome(step, &facts, folder, relative);
        }
        let prepared = cache::prepare(leg, self.stop);
        let around = Surroundings {
            program,
            dir: folder,
            start_dir: &self.start_dir,
            env: env.clone(),
            stub: &self.exe,
            lease_end_mono_ns: self.lease_end_mono_ns,
            sysroot: self.options.sysroot.as_deref(),
        };
        let (mut spec, note) = attempt::spec(leg, &around);
        spec.disks = self.disks();
        let leg_runs = self.stop.leg_runs();
        let outcome = supervise::run(&spec, &mut self.live);
        drop(leg_runs);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(e) => {
                facts.spawn_error = Some(e.to_string());
                return judge::without_outcome(step, &facts, folder, relative);
            }
        };
        let observed = observe::observe(folder, &outcome.phases);
        facts.outcome = Some(&outcome);
        facts.observed = Some(&observed);
        if outcome.exit.code != Some(0) || outcome.unkillable {
            facts.shares = shares::ask(leg, &self.start_dir);
            facts.in_flight = trace::in_flight(folder);
        }
        let verdict = judge::judge(&facts, folder);
        let mut attempt = attempt::attempt(step, &outcome, observed, relative);
        attempt.verdict = verdict;
        attempt.verdict.warnings.extend(note);
        attempt.verdict.warnings.extend(prepared.trouble);
        attempt
            .verdict
            .warnings
            .extend(outcome.warnings.iter().cloned());
        if let Some(share) = prepared.cached_share {
            attempt
                .metrics
                .other
                .insert("cached_before_pct".to_owned(), share * 100.0);
        }
        if let Some(rate) = prepared.disk_gib_s {
            attempt.metrics.other.insert("disk_gib_s".to_owned(), rate);
        }
        for file in cache::model_files(leg) {
            if let Some(mount) = mount_of(&file).filter(crate::stage::Mount::network) {
                attempt.void_notes.push(format!(
                    "the model lies on a network file system ({} at {})",
                    mount.fs_type,
                    mount.point.display()
                ));
                break;
            }
        }
        let now = driver::generation(&Root::new(self.options.sysroot.as_deref()));
        if self.driver != now {
            attempt.void_notes.push(format!(
                "the GPU's driver was loaded anew since the run began (then {}, now {})",
                self.driver.as_deref().unwrap_or("none"),
                now.as_deref().unwrap_or("none")
            ));
        }
        attempt
            .files
            .insert("context".to_owned(), format!("{relative}/context.yaml"));
        if folder.join(trace::FILE).is_file() {
            attempt.files.insert(
                "kernel-trace".to_owned(),
                format!("{relative}/{}", trace::FILE),
            );
        }
        // A process that is stuck may hold the GPU, and a reset that failed leaves none to use.
        let suspect = if outcome.unkillable {
            Some("a process survived SIGKILL")
        } else if attempt.verdict.kind == "gpu-reset-failed" {
            Some("a reset of the GPU failed")
        } else {
            None
        };
        if let Some(what) = suspect {
            self.record(
                Entry::Decision {
                    what: "the board is suspect".to_owned(),
                    why: what.to_owned(),
                },
                true,
            );
            let why = format!("attempt {}: {what}", step.n);
            let trouble = identity::set_aside(self.set, self.options, &why, &self.dir.id);
            self.report.warnings.extend(trouble);
        }
        attempt
    }

    pub(super) fn finish_step(&mut self, step: &Step, leg: &str, relative: &str, attempt: Attempt) {
        self.live.end(&line_of(&attempt, leg, step, self.last_n));
        self.record(
            Entry::StepEnd {
                step: *step,
                leg: leg.to_owned(),
                attempt: Box::new(attempt.clone()),
            },
            true,
        );
        if let Some(report_leg) = self.report.legs.iter_mut().find(|l| l.name == leg) {
            report_leg.attempts.push(attempt);
        }
        self.archive_attempt(step, relative);
        if let Err(e) = finish::write_reports(&mut self.report, self.set, &self.dir.path, false) {
            self.dir.release();
            self.warn_once(&format!("the report could not be written: {e}"));
        }
    }

    /// Copies one attempt's folder to the archive.
    pub(super) fn archive_attempt(&mut self, step: &Step, relative: &str) {
        if let Some(done) = self.archive.take(&self.dir.path, relative) {
            if let Some(error) = &done.error {
                self.report.warnings.push(format!(
                    "attempt {} is not archived ({error}); it lies in {}",
                    step.n,
                    self.dir.path.join(relative).display()
                ));
            }
            self.record(
                Entry::Archived {
                    n: step.n,
                    to: done.to,
                    files: done.files,
                    error: done.error,
                },
                false,
            );
        }
    }

    /// Places that must not fill up.
    fn disks(&self) -> Vec<PathBuf> {
        std::iter::once(self.dir.path.clone())
            .chain(self.stage.as_ref().map(|s| s.path().to_owned()))
            .collect()
    }

    /// A leg that failed and was told to stop the rest, or a process that cannot be ended.
    fn stopped_by(&self) -> Option<String> {
        self.report
            .legs
            .iter()
            .zip(&self.set.legs)
            .find_map(|(leg, spec)| {
                let failed = |a: &&Attempt| a.verdict.class != Class::Clean;
                if leg.attempts.iter().any(|a| a.verdict.kind == "unkillable") {
                    return Some(format!(
                        "leg `{}` left a process that cannot be ended: the board is suspect",
                        leg.name
                    ));
                }
                let stopper = leg
                    .attempts
                    .iter()
                    .find(failed)
                    .filter(|_| spec.on_fail == OnFail::Stop)?;
                Some(format!(
                    "leg `{}` failed in attempt {} and has on_fail: stop",
                    leg.name, stopper.n
                ))
            })
    }

    fn no_time_left(&self, grace: Duration) -> Option<String> {
        let end = self.lease_end_mono_ns?;
        let left = Duration::from_nanos(end.saturating_sub(clock::mono_ns()));
        (left <= grace + Duration::from_secs(1)).then(|| {
            format!(
                "the lease leaves {} for attempts",
                format_duration(Duration::from_secs(left.as_secs()))
            )
        })
    }

    /// Writes to the journal. A journal that cannot be written (disk full) is said once and does not end the run.
    pub(super) fn record(&mut self, entry: Entry, sync: bool) {
        let result = if sync {
            self.journal.append_sync(entry)
        } else {
            self.journal.append(entry)
        };
        if result.is_err() {
            self.dir.release(); // what comes next may find room again
        }
        if let Err(e) = result
            && !std::mem::replace(&mut self.journal_failed, true)
        {
            self.warn_once(&format!(
                "the journal cannot be written ({e}): this run cannot be resumed"
            ));
        }
    }

    fn warn_once(&mut self, text: &str) {
        if !self.report.warnings.iter().any(|w| w == text) {
            self.live.say(&format!("warning: {text}"));
            self.report.warnings.push(text.to_owned());
        }
    }

    /// Concludes, writes every report, prints the table and gives the exit code.
    pub(super) fn close(mut self) -> Done {
        self.live.finish();
        self.dir.release();
        self.report.run.finished = Some(Utc::now());
        for ((leg, why), n) in std::mem::take(&mut self.skipped) {
            self.report
                .warnings
                .push(format!("{n} attempts of leg `{leg}` were not begun: {why}"));
        }
        let written = finish::write_reports(&mut self.report, self.set, &self.dir.path, true);
        let code = finish::exit_code(&self.report);
        let verdict = format!("{:?}", self.report.verdict).to_lowercase();
        self.record(
            Entry::RunEnd {
                verdict,
                exit_code: code.code(),
            },
            true,
        );
        if let Err(e) = self.archive.write_sums(&self.dir.path) {
            self.warn_once(&format!("SHA256SUMS could not be written: {e}"));
        }
        for file in [
            "legs.yaml",
            JOURNAL,
            "report.json",
            "report.md",
            "report.html",
            "junit.xml",
            "SHA256SUMS",
        ] {
            if let Some(error) = self
                .archive
                .take(&self.dir.path, file)
                .and_then(|a| a.error)
            {
                self.warn_once(&format!("{file} is not archived: {error}"));
                break;
            }
        }
        if let (true, Some(stage)) = (self.options.keep_stage, self.stage.take()) {
            let kept = stage.keep();
            self.live
                .say(&format!("staged copies kept in {}", kept.display()));
        }
        finish::print(
            &self.report,
            &self.dir.path,
            self.options,
            written.err().map(|e| e.to_string()).as_deref(),
        );
        Done {
            code,
            report: self.report,
            dir: self.dir,
        }
    }
}

/// An attempt that never ran because of us or of the surroundings.
pub(super) fn infra(step: &Step, kind: &str, title: String) -> Attempt {
    let mut attempt = Attempt {
        warmup: step.warmup,
        ..Attempt::new(step.n, step.round, Utc::now())
    };
    attempt.verdict = Verdict::new(Class::Infra, kind, Confidence::High, title);
    attempt.boot_id = boot_id();
    attempt
}

/// `[3/9] managed round 1: clean, 12.3 s, " Paris, which is"`.
fn line_of(attempt: &Attempt, leg: &str, step: &Step, of: u32) -> String {
    let kind = if step.warmup { "warm-up" } else { "round" };
    let mut line = format!(
        "[{}/{of}] {leg} {kind} {}: {}",
        step.n, step.round, attempt.verdict.class
    );
    if attempt.verdict.class != Class::Clean {
        line.push_str(&format!(
            " ({}: {})",
            attempt.verdict.kind, attempt.verdict.title
        ));
    }
    line.push_str(&format!(", {:.1} s", attempt.wall_s));
    if let Some(text) = &attempt.text {
        let text: String = text.chars().take(40).collect();
        line.push_str(&format!(", {text:?}"));
    }
    line
}
