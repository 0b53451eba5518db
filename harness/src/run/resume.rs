//! Going on with a run whose harness died, or whose machine was booted again.

use std::path::{Path, PathBuf};

use legwork_reports::model::{Attempt, ExitCode, Report, RunInfo};

use super::judge::{self, Facts};
use super::session::Session;
use super::{Options, RunDir, RunError, StopFlags, identity, observe};
use crate::evidence::previous_boot;
use crate::journal::{self, Entry, Fate, JOURNAL, Journal, StepFate, Writer, boot_id, fates};
use crate::legfile::{self, LegSet, Selection, hex};
use crate::os::process;
use crate::plan::{Plan, Step, plan};
use crate::supervise::leftovers;

/// What the journal's first record says.
struct Begun {
    leg_file: String,
    leg_file_sha256: String,
    selection: Box<Selection>,
    seed: u64,
    base: PathBuf,
    argv: Vec<String>,
    at: chrono::DateTime<chrono::Utc>,
    boot_id: Option<String>,
    driver: Option<String>,
}

/// Goes on with the run in `dir`; with `dry_run` only says what would be done.
///
/// # Errors
/// When it is no run, has ended, is still running, or its leg file has changed.
pub fn resume(dir: &Path, dry_run: bool, options: &Options) -> Result<ExitCode, RunError> {
    let dir = RunDir::open(dir)?;
    let refuse = |why: String| RunError::RunDir {
        path: dir.path.clone(),
        why,
    };
    let journal = journal::read(&dir.path)?;
    if journal.finished() {
        return Err(refuse(
            "this run has ended: there is nothing to go on with; see `legwork report`".to_owned(),
        ));
    }
    let begun = begun(&journal).ok_or_else(|| refuse("its journal has no beginning".to_owned()))?;
    let set = leg_set(&dir, &begun)?;
    let mut plan = plan(&set, begun.seed);
    plan.seed = begun.seed;
    let decided = fates(&journal, boot_id().as_deref(), |relative| {
        has_evidence(&dir.path.join(relative))
    });
    plan.steps = decided.iter().map(|f| f.step).collect();
    if plan.steps.iter().any(|s| s.leg >= set.legs.len()) {
        return Err(refuse(
            "its journal speaks of legs that its leg file does not have".to_owned(),
        ));
    }
    if dry_run {
        for fate in &decided {
            println!("{}", words(fate, &set));
        }
        return Ok(ExitCode::Pass);
    }
    let journal_path = dir.path.join(JOURNAL);
    let mut writer =
        Writer::reopen(&journal_path, journal.last_seq()).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => refuse(format!("this run is still going on: {e}")),
            _ => RunError::io("opening the journal", &journal_path)(e),
        })?;
    let stop = StopFlags::install();
    let _lock = identity::guard(&set, options)?;
    let mut reaped: Vec<i32> = decided
        .iter()
        .filter_map(|f| match &f.fate {
            Fate::Lost { dir: relative, .. } => Some(leftovers::end(&dir.path.join(relative))),
            _ => None,
        })
        .flatten()
        .collect();
    reaped.extend(reap(&dir.path));
    let resumed = Entry::Resumed {
        pid: std::process::id(),
        boot_id: boot_id(),
        reaped: reaped.clone(),
    };
    writer
        .append_sync(resumed)
        .map_err(RunError::io("writing the journal", &journal_path))?;
    let mut report = Report::new(run_info(&dir, &set, &begun));
    report.warnings.push(format!(
        "the harness of this run died; it was resumed at {}",
        chrono::Utc::now().format("%Y-%m-%d %H:%M:%SZ")
    ));
    if !reaped.is_empty() {
        report.warnings.push(format!(
            "processes of the dead run were still alive and were ended: {reaped:?}"
        ));
    }
    if !journal.torn.is_empty() {
        report
            .warnings
            .push(format!("the journal has torn lines: {:?}", journal.torn));
    }
    let mut session = Session::new(&set, &plan, options, dir, writer, report, stop);
    session.driver = begun.driver.clone().or(session.driver);
    go_on(session, &plan, decided)
}

fn go_on(
    mut session: Session<'_>,
    plan: &Plan,
    decided: Vec<StepFate>,
) -> Result<ExitCode, RunError> {
    session.prepare()?;
    let mut todo: Vec<Step> = Vec::new();
    for StepFate {
        step,
        fate,
        dir,
        archived,
    } in decided
    {
        let what = format!("step {}: {}", step.n, short(&fate));
        session.record(
            Entry::Decision {
                what,
                why: "resumed".to_owned(),
            },
            false,
        );
        match fate {
            Fate::Done(attempt) => {
                session.keep(&step, *attempt);
                // The harness may have died between the attempt's end and its archiving.
                if let (false, Some(dir)) = (archived, dir) {
                    session.archive_attempt(&step, &dir);
                }
            }
            Fate::Redo => todo.push(step),
            Fate::Lost {
                dir,
                begun,
                boot_id,
                made_up,
                begun_mono_ns,
                ..
            } => {
                if !made_up {
                    session.last_n += 1;
                    let again = Step {
                        n: session.last_n,
                        ..step
                    };
                    session.record(
                        Entry::Again {
                            of: step.n,
                            step: again,
                        },
                        true,
                    );
                    todo.push(again);
                }
                session.lose(&step, &dir, begun, boot_id, begun_mono_ns);
            }
        }
    }
    debug_assert!(plan.steps.len() <= session.last_n as usize);
    for step in &todo {
        session.step(step);
    }
    Ok(session.close().code)
}

impl Session<'_> {
    /// An attempt that ended before the harness died.
    fn keep(&mut self, step: &Step, attempt: Attempt) {
        self.report.legs[step.leg].attempts.push(attempt);
    }

    /// An attempt whose end was not seen: what it left is judged.
    fn lose(
        &mut self,
        step: &Step,
        relative: &str,
        begun: chrono::DateTime<chrono::Utc>,
        boot_before: Option<String>,
        begun_mono_ns: Option<u64>,
    ) {
        let leg = &self.set.legs[step.leg];
        let folder = self.dir.path.join(relative);
        let env: Vec<(String, String)> = leg.env.clone().into_iter().collect();
        let rebooted = boot_before.is_some() && boot_before != boot_id();
        let previous_boot = rebooted.then(|| {
            let root = crate::os::root::Root::new(self.options.sysroot.as_deref());
            previous_boot::keep(&root, &folder, begun_mono_ns)
        });
        let notes = previous_boot
            .as_ref()
            .map(|p| p.notes.clone())
            .unwrap_or_default();
        let observed = observe::observe(&folder, &std::collections::BTreeMap::new());
        let facts = Facts {
            leg,
            env: &env,
            boot_before,
            identity: &self.report.identity,
            outcome: None,
            stage_error: None,
            spawn_error: None,
            observed: Some(&observed),
            lost: true,
            shares: Vec::new(),
            previous_boot,
            in_flight: super::trace::in_flight(&folder),
        };
        let mut verdict = judge::judge(&facts, &folder);
        verdict.warnings.extend(notes);
        let output = std::fs::metadata(folder.join("output.raw"))
            .ok()
            .map(|m| m.len());
        let mut attempt = Attempt {
            warmup: step.warmup,
            verdict,
            text: observed.text,
            token_ids: observed.token_ids,
            phases: observed.phases,
            phases_from: observed.phases_from,
            output_bytes: output,
            boot_id: boot_id(),
            void_notes: vec!["the harness died while it ran".to_owned()],
            ..Attempt::new(step.n, step.round, begun)
        };
        for name in [
            "output.raw",
            "output.log",
            "stderr.raw",
            "kernel.log",
            "events.jsonl",
            "context.yaml",
            "backtrace.txt",
            "telemetry.csv",
            "kernel.reset.log",
            "kernel.previous.log",
            "kernel-trace.bin",
        ] {
            if folder.join(name).is_file() {
                let key = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
                let key = if name == "output.log" { "log" } else { key };
                attempt
                    .files
                    .insert(key.to_owned(), format!("{relative}/{name}"));
            }
        }
        let name = leg.name.clone();
        self.finish_step(step, &name, relative, attempt);
    }
}

fn begun(journal: &Journal) -> Option<Begun> {
    journal.records.iter().find_map(|r| match &r.entry {
        Entry::RunBegin {
            leg_file,
            leg_file_sha256,
            selection,
            seed,
            base,
            argv,
            boot_id,
            driver,
            ..
        } => Some(Begun {
            leg_file: leg_file.clone(),
            leg_file_sha256: leg_file_sha256.clone(),
            selection: selection.clone(),
            seed: *seed,
            base: base.clone(),
            argv: argv.clone(),
            at: r.at,
            boot_id: boot_id.clone(),
            driver: driver.clone(),
        }),
        _ => None,
    })
}

/// The leg set of a run directory as it was run, the command line's changes applied.
///
/// # Errors
/// When it is no run directory, or its leg file has changed.
pub fn set_as_run(dir: &Path) -> Result<LegSet, RunError> {
    let dir = RunDir::open(dir)?;
    let journal = journal::read(&dir.path)?;
    let begun = begun(&journal).ok_or_else(|| RunError::RunDir {
        path: dir.path.clone(),
        why: "its journal has no beginning".to_owned(),
    })?;
    leg_set(&dir, &begun)
}

/// The leg file as it was run, with the command line's changes.
fn leg_set(dir: &RunDir, begun: &Begun) -> Result<LegSet, RunError> {
    let path = dir.path.join("legs.yaml");
    let text = std::fs::read_to_string(&path)
        .map_err(RunError::io("reading the leg file as run", &path))?;
    use sha2::{Digest, Sha256};
    if hex(&Sha256::digest(text.as_bytes())) != begun.leg_file_sha256 {
        return Err(RunError::RunDir {
            path,
            why: "was changed after the run began (its SHA-256 is another one)".to_owned(),
        });
    }
    let mut set = legfile::parse(Path::new(&begun.leg_file), &begun.base, &text)?;
    set.select(&begun.selection)?;
    Ok(set)
}

fn run_info(dir: &RunDir, set: &LegSet, begun: &Begun) -> RunInfo {
    RunInfo {
        question: set.question.clone(),
        host: identity::host(),
        boot_id: begun.boot_id.clone(),
        order: Some(set.order.as_str().to_owned()),
        leg_file_sha256: Some(set.source.sha256.clone()),
        reproduce: Some(super::quoted(&begun.argv)),
        ..RunInfo::new(&dir.id, &set.name, begun.at, begun.seed)
    }
}

/// Whether an attempt's folder holds anything that was captured.
fn has_evidence(folder: &Path) -> bool {
    ["output.raw", "events.jsonl", "kernel.log"]
        .iter()
        .any(|name| std::fs::metadata(folder.join(name)).is_ok_and(|m| m.len() > 0))
}

/// Ends processes that a dead run left. They carry their attempt's folder in their environment; the run's name would
/// not do, as two runs below different folders may begin in one second. A process that took the folder off has left the
/// run.
fn reap(run: &Path) -> Vec<i32> {
    let mark = format!("LEGWORK_ATTEMPT_DIR={}/", run.to_string_lossy());
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let (tell, told) = std::sync::mpsc::channel();
    // In a thread: a process that hangs with its memory locked holds whoever reads its environment.
    std::thread::spawn(move || {
        // Twice: a process may have forked while the first pass went by.
        for _ in 0..2 {
            for pid in crate::os::procfs::all_pids() {
                let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else {
                    continue;
                };
                let marked = environ
                    .split(|&b| b == 0)
                    .any(|v| v.starts_with(mark.as_bytes()));
                if marked && pid != own && process::kill(pid, 9).unwrap_or(false) {
                    let _ = tell.send(pid);
                }
            }
        }
    });
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut reaped = Vec::new();
    while let Ok(pid) =
        told.recv_timeout(until.saturating_duration_since(std::time::Instant::now()))
    {
        reaped.push(pid);
    }
    reaped.sort_unstable();
    reaped.dedup();
    reaped
}

fn short(fate: &Fate) -> &'static str {
    match fate {
        Fate::Done(_) => "done",
        Fate::Redo => "run",
        Fate::Lost { rebooted: true, .. } => "lost (the machine was booted again), run once more",
        Fate::Lost {
            rebooted: false, ..
        } => "lost with evidence, run once more",
    }
}

fn words(fate: &StepFate, set: &LegSet) -> String {
    let step = &fate.step;
    let kind = if step.warmup { "warm-up" } else { "round" };
    format!(
        "{:>3} {:<20} {kind} {}: {}",
        step.n,
        set.legs[step.leg].name,
        step.round,
        short(&fate.fate)
    )
}
