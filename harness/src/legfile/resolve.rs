//! Lies the defaults under the legs and checks what one mapping alone cannot tell: names, references, exclusive keys,
//! expressions, bounds. Every problem is collected, so that one pass over the message mends the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use legwork_reports::compare::{Pair, PairError};
use legwork_reports::gates::{Gate, GateError};
use regex::Regex;

use super::doc::{DefaultsDoc, LegDoc, LegFile, PhaseDoc};
use super::error::Problem;
use super::set::{Cwd, LegSet, LegSpec, PhaseSpec, Source, TimeoutSpec, Work};
use super::{At, EngineKeys};

/// Output kept per attempt unless the leg says otherwise.
const OUTPUT_CAP: u64 = 64 << 20;
/// Between SIGTERM and SIGKILL unless the leg says otherwise.
const GRACE: Duration = Duration::from_secs(10);
/// Kept of `max_runtime` for archiving and the report.
const RESERVE: Duration = Duration::from_secs(60);
/// More attempts than this is a slip of the pen.
const MOST_ATTEMPTS: u32 = 100_000;
/// Devices that the engine knows.
const DEVICES: [&str; 5] = ["auto", "cpu", "rocm", "cuda", "simt"];
/// Models that are compiled in.
const MODELS: [&str; 1] = ["builtin:mini"];
/// Phases that the engine's own events mark.
const ENGINE_PHASES: [&str; 4] = ["load", "ttft", "prefill", "decode"];
/// Document to leg set.
///
/// # Errors
/// Every problem found.
pub(super) fn resolve(file: LegFile, source: Source) -> Result<LegSet, Vec<Problem>> {
    let mut problems = Vec::new();
    check_name(&file.name, "leg set", &mut problems);
    let repeat = count(file.repeat.as_ref(), 1, "repeat", &mut problems);
    let warmup = file.warmup.as_ref().map_or(0, |w| {
        if w.value > MOST_ATTEMPTS {
            problems.push(Problem::at(
                w,
                format!("warmup {} is more than {MOST_ATTEMPTS}", w.value),
            ));
        }
        w.value
    });
    let defaults = file.defaults.unwrap_or_default();
    check_defaults(&defaults, &mut problems);
    if file.legs.is_empty() {
        problems.push(Problem::whole(
            "`legs` is empty: a leg set has at least one leg",
        ));
    }
    for allowed in &file.env_allow {
        check_env_name(&allowed.value, allowed, &mut problems);
    }
    let mut legs: Vec<LegSpec> = Vec::new();
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut control: Option<&At<LegDoc>> = None;
    for leg in &file.legs {
        let name = &leg.value.name;
        check_name(name, "leg", &mut problems);
        if let Some(line) = first.get(&name.value) {
            problems.push(
                Problem::at(
                    name,
                    format!("a second leg `{}`: the first is in line {line}", name.value),
                )
                .help("give every leg its own name: gates, comparisons and folders go by it"),
            );
        }
        first.entry(name.value.clone()).or_insert(name.line);
        if leg.value.control {
            if let Some(other) = control {
                problems.push(Problem::at(
                    name,
                    format!(
                        "`{}` is a second control: `{}` in line {} is one already",
                        name.value, other.value.name.value, other.value.name.line
                    ),
                ));
            } else {
                control = Some(leg);
            }
        }
        if let Some(spec) = resolve_leg(
            leg,
            &defaults,
            repeat,
            file.on_fail.unwrap_or_default(),
            &source,
            &mut problems,
        ) {
            legs.push(spec);
        }
    }
    let names: Vec<&str> = file
        .legs
        .iter()
        .map(|l| l.value.name.value.as_str())
        .collect();
    let gates = file
        .gates
        .iter()
        .map(|g| resolve_gate(g, &names, &mut problems))
        .collect();
    let compare = file
        .compare
        .iter()
        .map(|c| resolve_compare(c, &names, &mut problems))
        .collect();
    for pin in file.pins.values() {
        if let Some(expression) = pin.value.0.strip_prefix('~') {
            check_regex(expression, pin, &mut problems);
        }
    }
    let reserve = file.reserve.as_ref().map_or(RESERVE, |r| r.value.0);
    if let Some(max) = &file.max_runtime
        && max.value.0 <= reserve
    {
        problems.push(
            Problem::at(
                max,
                "max_runtime leaves no time: it is not longer than the reserve",
            )
            .help(format!("reserve is {}", super::format_duration(reserve))),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(LegSet {
        name: file.name.value,
        question: file.question,
        order: file.order.unwrap_or_default(),
        seed: file.seed,
        warmup,
        env_allow: file.env_allow.into_iter().map(|a| a.value).collect(),
        arms: file.arms,
        pins: file.pins.into_iter().map(|(k, v)| (k, v.value.0)).collect(),
        max_runtime: file.max_runtime.map(|m| m.value.0),
        reserve,
        legs,
        gates,
        compare,
        source,
    })
}

fn count(value: Option<&At<u32>>, default: u32, key: &str, problems: &mut Vec<Problem>) -> u32 {
    let Some(value) = value else { return default };
    if value.value == 0 {
        problems.push(Problem::at(
            value,
            format!("{key} is 0: a leg runs at least once"),
        ));
    } else if value.value > MOST_ATTEMPTS {
        problems.push(Problem::at(
            value,
            format!("{key} {} is more than {MOST_ATTEMPTS}", value.value),
        ));
    }
    value.value
}

/// Names become folder names: keep them plain.
fn check_name(name: &At<String>, what: &str, problems: &mut Vec<Problem>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let text = &name.value;
    let bad = text.is_empty()
        || text.len() > 64
        || text.starts_with(['.', '-'])
        || !text.chars().all(plain);
    if bad {
        problems.push(
            Problem::at(name, format!("`{text}` cannot name a {what}")).help(
                "use 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter, a digit or `_`",
            ),
        );
    }
}

fn check_env_name<T>(name: &str, place: &At<T>, problems: &mut Vec<Problem>) {
    let good =
        !name.is_empty() && !name.contains(['=', '\0']) && !name.chars().any(char::is_whitespace);
    if !good {
        problems.push(Problem::at(
            place,
            format!("`{name}` cannot name an environment variable"),
        ));
    }
    if name.starts_with("LEGWORK_") {
        problems.push(
            Problem::at(place, format!("`{name}` is set by legwork itself"))
                .help("names that begin with LEGWORK_ cannot be declared"),
        );
    }
}

fn check_regex<T>(expression: &str, place: &At<T>, problems: &mut Vec<Problem>) {
    if let Err(e) = Regex::new(expression) {
        let reason = e.to_string();
        let last = reason.lines().last().unwrap_or_default().trim().to_owned();
        problems.push(Problem::at(
            place,
            format!("`{expression}` is no regular expression: {last}"),
        ));
    }
}

fn check_defaults(defaults: &DefaultsDoc, problems: &mut Vec<Problem>) {
    exclusive(
        defaults.engine.as_ref().map(|e| e.with(())),
        defaults.command.as_ref().map(|c| c.with(())),
        defaults.script.as_ref().map(|s| s.with(())),
        "defaults",
        problems,
    );
}

/// `engine`, `command` and `script` exclude each other.
fn exclusive(
    engine: Option<At<()>>,
    command: Option<At<()>>,
    script: Option<At<()>>,
    whose: &str,
    problems: &mut Vec<Problem>,
) {
    let given: Vec<(&str, At<()>)> = [("engine", engine), ("command", command), ("script", script)]
        .into_iter()
        .filter_map(|(name, place)| place.map(|p| (name, p)))
        .collect();
    if let [(first, _), (second, place), ..] = given.as_slice() {
        problems.push(
            Problem::at(
                place,
                format!("`{second}` and `{first}` exclude each other in {whose}"),
            )
            .help("keep the one that is to be run"),
        );
    }
}

fn resolve_leg(
    leg: &At<LegDoc>,
    defaults: &DefaultsDoc,
    repeat: u32,
    on_fail: super::OnFail,
    source: &Source,
    problems: &mut Vec<Problem>,
) -> Option<LegSpec> {
    let doc = &leg.value;
    let whose = format!("leg `{}`", doc.name.value);
    exclusive(
        doc.engine.as_ref().map(|e| e.with(())),
        doc.command.as_ref().map(|c| c.with(())),
        doc.script.as_ref().map(|s| s.with(())),
        &whose,
        problems,
    );
    let args = doc.args.as_ref().or(defaults.args.as_ref());
    let work = match (&doc.engine, &doc.command, &doc.script) {
        (Some(own), _, _) => {
            let under = defaults
                .engine
                .as_ref()
                .map(|e| e.value.clone())
                .unwrap_or_default();
            engine_work(&own.with(own.value.over(&under)), source, problems)
        }
        (_, Some(command), _) => command_work(command, problems),
        (_, _, Some(script)) => script_work(script, args, problems),
        (None, None, None) => match (&defaults.engine, &defaults.command, &defaults.script) {
            (Some(engine), _, _) => engine_work(engine, source, problems),
            (_, Some(command), _) => command_work(command, problems),
            (_, _, Some(script)) => script_work(script, args, problems),
            (None, None, None) => {
                problems.push(
                    Problem::at(&doc.name, format!("{whose} has nothing to run"))
                        .help("give it `engine`, `command` or `script`, or give `defaults` one"),
                );
                None
            }
        },
    };
    if let Some(args) = &doc.args
        && !matches!(work, Some(Work::Script { .. }) | None)
    {
        problems.push(
            Problem::at(args, "`args` belong to a `script`")
                .help("a `command` lists its arguments itself"),
        );
    }
    let mut env = BTreeMap::new();
    for (key, value) in defaults.env.iter().chain(&doc.env) {
        check_env_name(key, value, problems);
        if value.value.0.contains('\0') {
            problems.push(Problem::at(
                value,
                format!("the value of `{key}` holds a NUL character"),
            ));
        }
        env.insert(key.clone(), value.value.0.clone());
    }
    let is_engine = matches!(work, Some(Work::Engine(_)));
    let cwd = doc.cwd.as_ref().or(defaults.cwd.as_ref());
    let cwd = match cwd.map(|c| (c, c.value.as_str())) {
        None if is_engine => Cwd::Attempt,
        None | Some((_, "start")) => Cwd::Start,
        Some((_, "attempt")) => Cwd::Attempt,
        Some((_, "stage")) => Cwd::Stage,
        Some((_, path)) if path.starts_with('/') => Cwd::Path(PathBuf::from(path)),
        Some((place, other)) => {
            let problem = Problem::at(place, format!("`{other}` is no working directory"));
            problems.push(problem.help("write start, attempt, stage or an absolute path"));
            Cwd::Start
        }
    };
    let phases = resolve_phases(defaults, doc, problems);
    let timeout = resolve_timeout(leg, defaults, is_engine, &phases, problems);
    let repeat = if doc.repeat.is_some() {
        count(doc.repeat.as_ref(), repeat, "repeat", problems)
    } else {
        repeat
    };
    let stage = doc.stage.as_ref().or(defaults.stage.as_ref());
    Some(LegSpec {
        name: doc.name.value.clone(),
        control: doc.control,
        diagnostic: doc.diagnostic,
        repeat,
        work: work?,
        stage: stage
            .map(|s| s.iter().map(|f| f.value.clone()).collect())
            .unwrap_or_default(),
        env,
        cwd,
        timeout,
        core: doc.core.or(defaults.core).unwrap_or_default(),
        output_cap: doc
            .output_cap
            .or(defaults.output_cap)
            .map_or(OUTPUT_CAP, |s| s.0),
        phases,
        separate_stderr: doc
            .separate_stderr
            .or(defaults.separate_stderr)
            .unwrap_or(false),
        memory_max: doc.memory_max.or(defaults.memory_max).map(|s| s.0),
        cache: doc.cache.or(defaults.cache),
        fatal_patterns: doc
            .fatal_patterns
            .or(defaults.fatal_patterns)
            .unwrap_or(true),
        on_fail: doc.on_fail.or(defaults.on_fail).unwrap_or(on_fail),
    })
}

fn engine_work(
    engine: &At<EngineKeys>,
    source: &Source,
    problems: &mut Vec<Problem>,
) -> Option<Work> {
    let mut keys = engine.value.clone();
    match &keys.model {
        None => problems.push(
            Problem::at(engine, "the engine has no `model`")
                .help("name a GGUF file, or builtin:mini"),
        ),
        Some(model) if model.starts_with("builtin:") && !MODELS.contains(&model.as_str()) => {
            problems.push(
                Problem::at(engine, format!("no model `{model}` is compiled in"))
                    .nearest(model, MODELS),
            );
        }
        Some(_) => {}
    }
    if keys.prompt.is_some() && keys.prompt_file.is_some() {
        problems.push(Problem::at(
            engine,
            "`prompt` and `prompt_file` exclude each other",
        ));
    }
    if keys.prompt.is_none() && keys.prompt_file.is_none() {
        problems.push(Problem::at(
            engine,
            "the engine has no `prompt` and no `prompt_file`",
        ));
    }
    for (key, value, right) in [
        ("device", &keys.device, &DEVICES[..]),
        ("tier", &keys.tier, &["auto", "native", "reference"]),
        ("kv_dtype", &keys.kv_dtype, &["f32", "f16", "bf16"]),
        ("load", &keys.load, &["auto", "direct", "buffered", "mmap"]),
    ] {
        if let Some(value) = value
            && !right.contains(&value.as_str())
        {
            problems.push(
                Problem::at(engine, format!("no {key} `{value}`"))
                    .nearest(value, right.iter().copied()),
            );
        }
    }
    if keys.mmap == Some(true) && keys.load.as_deref().is_some_and(|l| l != "mmap") {
        problems.push(
            Problem::at(engine, "`mmap: true` and `load` exclude each other")
                .help("write `load: mmap`"),
        );
    }
    for (key, value, low, high) in [
        ("temperature", keys.temperature, 0.0, 100.0),
        ("top_p", keys.top_p, 0.0, 1.0),
        ("min_p", keys.min_p, 0.0, 1.0),
    ] {
        if value.is_some_and(|v| !(low..=high).contains(&v)) {
            problems.push(Problem::at(
                engine,
                format!("{key} must be between {low} and {high}"),
            ));
        }
    }
    keys.anchor(&source.base);
    Some(Work::Engine(Box::new(keys)))
}

fn command_work(command: &At<Vec<String>>, problems: &mut Vec<Problem>) -> Option<Work> {
    if command.value.first().is_none_or(String::is_empty) {
        problems.push(
            Problem::at(command, "`command` names no program").help("write [program, argument, …]"),
        );
        return None;
    }
    no_nul(&command.value, command, problems);
    Some(Work::Command(command.value.clone()))
}

fn script_work(
    script: &At<String>,
    args: Option<&At<Vec<String>>>,
    problems: &mut Vec<Problem>,
) -> Option<Work> {
    if script.value.is_empty() {
        problems.push(Problem::at(script, "`script` names no file"));
        return None;
    }
    let args = args.map(|a| a.value.clone()).unwrap_or_default();
    no_nul(&args, script, problems);
    Some(Work::Script {
        path: script.value.clone(),
        args,
    })
}

fn no_nul<T>(words: &[String], place: &At<T>, problems: &mut Vec<Problem>) {
    if words.iter().any(|w| w.contains('\0')) {
        problems.push(Problem::at(place, "an argument holds a NUL character"));
    }
}

fn resolve_phases(
    defaults: &DefaultsDoc,
    doc: &LegDoc,
    problems: &mut Vec<Problem>,
) -> Vec<PhaseSpec> {
    let mut merged: BTreeMap<&str, &At<PhaseDoc>> = BTreeMap::new();
    for (name, phase) in defaults.phases.iter().chain(&doc.phases) {
        merged.insert(name, phase);
    }
    merged
        .into_iter()
        .map(|(name, phase)| {
            check_regex(&phase.value.from.value, &phase.value.from, problems);
            check_regex(&phase.value.to.value, &phase.value.to, problems);
            PhaseSpec {
                name: name.to_owned(),
                from: phase.value.from.value.clone(),
                to: phase.value.to.value.clone(),
            }
        })
        .collect()
}

fn resolve_timeout(
    leg: &At<LegDoc>,
    defaults: &DefaultsDoc,
    is_engine: bool,
    phases: &[PhaseSpec],
    problems: &mut Vec<Problem>,
) -> TimeoutSpec {
    let own = leg.value.timeout.clone().unwrap_or_default();
    let under = defaults.timeout.clone().unwrap_or_default();
    let mut bounds: BTreeMap<String, Duration> = BTreeMap::new();
    for (name, bound) in under.phases.iter().chain(&own.phases) {
        bounds.insert(name.clone(), bound.0);
    }
    // A default's phase bound may be meant for the other legs; a leg's own must name a phase that it has.
    for name in own.phases.keys() {
        let known = phases.iter().any(|p| &p.name == name)
            || (is_engine && ENGINE_PHASES.contains(&name.as_str()));
        if !known {
            let right = phases
                .iter()
                .map(|p| p.name.as_str())
                .chain(ENGINE_PHASES.into_iter().filter(|_| is_engine));
            problems.push(
                Problem::at(
                    &leg.value.name,
                    format!(
                        "leg `{}` bounds a phase `{name}` that it does not have",
                        leg.value.name.value
                    ),
                )
                .nearest(name, right),
            );
        }
    }
    bounds.retain(|name, _| {
        phases.iter().any(|p| &p.name == name)
            || (is_engine && ENGINE_PHASES.contains(&name.as_str()))
    });
    TimeoutSpec {
        total: own.total.or(under.total).map(|d| d.0),
        idle: own.idle.or(under.idle).map(|d| d.0),
        grace: own.grace.or(under.grace).map_or(GRACE, |d| d.0),
        abort: own.abort.or(under.abort).unwrap_or(false),
        phases: bounds,
    }
}

/// What the gate itself finds wrong, at the gate's place, with the nearest leg.
fn resolve_gate(gate: &At<Gate>, names: &[&str], problems: &mut Vec<Problem>) -> Gate {
    for wrong in gate.value.check(names) {
        let problem = Problem::at(gate, wrong.to_string());
        problems.push(match &wrong {
            GateError::UnknownLeg(name) => problem.nearest(name, names.iter().copied()),
            _ => problem,
        });
    }
    gate.value.clone()
}

/// What the comparison itself finds wrong, at its place, with the nearest leg.
fn resolve_compare(compare: &At<Pair>, names: &[&str], problems: &mut Vec<Problem>) -> Pair {
    for wrong in compare.value.check(names) {
        let problem = Problem::at(compare, wrong.to_string());
        problems.push(match &wrong {
            PairError::UnknownLeg(name) => problem.nearest(name, names.iter().copied()),
            _ => problem,
        });
    }
    compare.value.clone()
}
