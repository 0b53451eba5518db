//! `legwork run` and `legwork resume`.

use std::path::{Path, PathBuf};

use legwork_reports::model::ExitCode;

use super::Failure;
use super::args::{Global, PlaceArgs, ReproArgs, ResumeArgs, RunArgs};
use super::terminal::Terminal;
use crate::legfile::{self, LegSet, Selection};
use crate::repro;
use crate::run::{self, Options, Verbosity};

/// The leg set that was named: a built-in, or a file. A name that is both is the built-in; `./NAME` is the file.
pub(super) fn leg_set(what: &str) -> Result<LegSet, Failure> {
    if let Some(builtin) = legfile::builtin(what) {
        let base = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        return Ok(legfile::parse(
            Path::new(&format!("builtin:{what}")),
            &base,
            builtin.text,
        )?);
    }
    let path = Path::new(what);
    let looks_like_a_name = !what.contains('/') && !what.contains('.');
    if looks_like_a_name && !path.exists() {
        let names = legfile::BUILTINS.iter().map(|b| b.name);
        let near = names
            .clone()
            .min_by_key(|n| strsim::levenshtein(n, what))
            .unwrap_or_default();
        return Err(Failure::usage(format!(
            "`{what}` is neither a leg file nor a built-in leg set; did you mean `{near}`? (built in: {})",
            names.collect::<Vec<_>>().join(", ")
        )));
    }
    Ok(legfile::load(path)?)
}

fn options(place: &PlaceArgs, global: &Global, terminal: Terminal, argv: Vec<String>) -> Options {
    Options {
        out: place.out.clone(),
        archive: place.archive.clone(),
        keep_stage: place.keep_stage,
        verbosity: match (global.quiet, global.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        },
        color: terminal.color,
        width: terminal.width,
        bar: terminal.bar,
        heartbeat: place.heartbeat,
        sysroot: place.sysroot.clone(),
        wait_for_board: place.wait,
        allow_env: place.allow_env,
        ignore_pins: place.ignore_pins,
        argv,
        quick: false,
    }
}

/// `legwork run`.
pub(super) fn run(
    args: &RunArgs,
    global: &Global,
    terminal: Terminal,
    argv: Vec<String>,
) -> Result<ExitCode, Failure> {
    let set = leg_set(&args.what)?;
    let mut model = args.model.clone();
    if let Some(path) = model.as_mut().filter(|m| !m.starts_with("builtin:")) {
        let full = std::path::absolute(&*path)
            .map_err(|e| Failure::usage(format!("--model {path}: {e}")))?;
        if !full.is_file() {
            return Err(Failure::usage(format!("--model {path}: no such file")));
        }
        *path = full.to_string_lossy().into_owned();
    }
    let selection = Selection {
        legs: args.legs.clone(),
        repeat: if args.quick { Some(1) } else { args.repeat },
        warmup: if args.quick { Some(0) } else { args.warmup },
        env: args.env.clone(),
        device: args.device.clone(),
        model,
        timeout: args.timeout,
        seed: args.seed,
        max_runtime: args.place.max_runtime,
        stop_on_fail: args.fail_fast,
    };
    let options = Options {
        quick: args.quick,
        ..options(&args.place, global, terminal, argv)
    };
    Ok(run::run(set, &selection, &options)?.code)
}

/// `legwork resume`.
pub(super) fn resume(
    args: &ResumeArgs,
    global: &Global,
    terminal: Terminal,
    argv: Vec<String>,
) -> Result<ExitCode, Failure> {
    let options = options(&args.place, global, terminal, argv);
    Ok(run::resume(&args.run, args.dry_run, &options)?)
}

/// `legwork repro`.
pub(super) fn repro(
    args: &ReproArgs,
    global: &Global,
    terminal: Terminal,
    argv: Vec<String>,
) -> Result<ExitCode, Failure> {
    let report = run::load_report(&args.run)?;
    let set = run::set_as_run(&args.run)?;
    let chosen = repro::choose(&report, args.attempt)
        .map_err(|e| Failure::new(ExitCode::NothingSelected, e.to_string()))?;
    let selection = Selection {
        env: args.env.clone(),
        device: args.device.clone(),
        max_runtime: args.place.max_runtime,
        ..repro::again(&chosen, args.repeat)
    };
    let done = run::run(
        set,
        &selection,
        &options(&args.place, global, terminal, argv),
    )?;
    super::out(&format!(
        "attempt {} of {}: {}\n",
        chosen.attempt.n,
        report.run.id,
        repro::outcome(chosen.attempt, &done.report)
    ))?;
    Ok(done.code)
}
