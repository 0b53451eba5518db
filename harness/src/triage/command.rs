//! What `legwork triage` and `legwork explain` do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use legwork_reports::model::{Class, ExitCode};

use super::args::{ExplainArgs, Format, TriageArgs};
use super::case::{Case, Source};
use super::context::{Context, ContextError, Window};
use super::group::group;
use super::lexer::{Lexer, Stamp};
use super::verdict::{Judgement, judge};
use super::{explain, render};

/// Why triage could not run.
#[derive(Debug, thiserror::Error)]
pub enum TriageError {
    /// A path that is not there.
    #[error("{0}: no such file or folder")]
    Missing(String),
    /// A folder in which no evidence lies.
    #[error("{0}: no attempt in it (looked for context.yaml, kernel.log, output.log)")]
    NoAttempt(String),
    /// Nothing was given to judge.
    #[error(
        "nothing to judge: give a folder, log files, or --kernel-log and --output (see `legwork triage --help`)"
    )]
    Nothing,
    /// A window that cannot be read.
    #[error("--window {0}: expected FROM..TO, e.g. \"7800..7920\" or \"Jul 24 12:31:00..\"")]
    Window(String),
    /// A GPU address that cannot be read.
    #[error("--gpu {0}: expected a PCI address such as 0000:c5:00.0")]
    Gpu(String),
    /// An exit that cannot be read.
    #[error(
        "--exit {0}: expected 0, 134, signal:6, timeout, \"host reset\" or \"lost connection\""
    )]
    Exit(String),
    /// An unknown kind.
    #[error("{kind}: no such kind{near} (legwork explain lists them)")]
    Kind {
        /// What was asked.
        kind: String,
        /// The nearest known kind, as `; did you mean …?`.
        near: String,
    },
    /// A context that cannot be read.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was read or written.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> TriageError {
    move |source| TriageError::Io {
        what: what.into(),
        source,
    }
}

/// Runs `legwork triage`.
///
/// # Errors
/// When there is nothing to judge, or a file or option cannot be read. A verdict is never an error.
pub fn run(args: &TriageArgs, out: &mut dyn Write) -> Result<ExitCode, TriageError> {
    let cases = cases(args)?;
    let judged: Vec<(String, Judgement)> = cases
        .into_iter()
        .map(|(name, case)| (name, judge(&case)))
        .collect();
    let text = if args.group {
        grouped(args, &judged)
    } else {
        listed(args, &judged)
    };
    out.write_all(text.as_bytes()).map_err(io("output"))?;
    Ok(worst(judged.iter().map(|(_, j)| j.verdict.class)))
}

fn listed(args: &TriageArgs, judged: &[(String, Judgement)]) -> String {
    let several = judged.len() > 1;
    match args.format {
        Format::Json => {
            let values: Vec<_> = judged
                .iter()
                .map(|(name, j)| render::json(j, several.then_some(name.as_str())))
                .collect();
            let value = if several {
                serde_json::Value::Array(values)
            } else {
                values.into_iter().next().unwrap_or_default()
            };
            format!(
                "{}\n",
                serde_json::to_string_pretty(&value).unwrap_or_default()
            )
        }
        Format::Md => judged
            .iter()
            .map(|(name, j)| render::markdown(j, several.then_some(name.as_str())))
            .collect::<Vec<_>>()
            .join("\n"),
        Format::Text => judged
            .iter()
            .map(|(name, j)| render::text(j, several.then_some(name.as_str()), args.all_lines))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

fn grouped(args: &TriageArgs, judged: &[(String, Judgement)]) -> String {
    let groups = group(judged.iter().map(|(n, j)| (n.as_str(), &j.verdict)));
    match args.format {
        Format::Json => format!(
            "{}\n",
            serde_json::to_string_pretty(&groups).unwrap_or_default()
        ),
        Format::Md => {
            let mut s = "| times | class | kind | title |\n|---:|---|---|---|\n".to_owned();
            for g in &groups {
                s.push_str(&format!(
                    "| {} | {} | `{}` | {} |\n",
                    g.count,
                    g.class,
                    g.kind,
                    g.title.replace('|', "\\|")
                ));
            }
            s
        }
        Format::Text => {
            let mut s = String::new();
            for g in &groups {
                s.push_str(&format!("{:>4} × {} {}\n", g.count, g.class, g.title));
                for m in &g.members {
                    s.push_str(&format!("       {}\n", m.path));
                }
            }
            s
        }
    }
}

/// The exit code of several verdicts is that of the worst.
fn worst(classes: impl Iterator<Item = Class>) -> ExitCode {
    let rank = |c: Class| match c {
        Class::Kernel => 5,
        Class::Board => 4,
        Class::Host => 3,
        Class::Infra => 2,
        Class::Inconclusive => 1,
        Class::Clean => 0,
    };
    match classes.max_by_key(|c| rank(*c)) {
        None | Some(Class::Clean) => ExitCode::Pass,
        Some(Class::Kernel) => ExitCode::KernelFault,
        Some(Class::Board) => ExitCode::BoardFault,
        Some(Class::Host) => ExitCode::HostFault,
        Some(Class::Infra) => ExitCode::Infra,
        Some(Class::Inconclusive) => ExitCode::Inconclusive,
    }
}

/// The context that the options describe, on top of `base`.
fn context(args: &TriageArgs, base: Context) -> Result<Context, TriageError> {
    let mut c = base;
    if let Some(first) = args.pid.first() {
        c.pid = Some(*first);
        c.pids = args.pid.clone();
    }
    if args.process.is_some() {
        c.process.clone_from(&args.process);
    }
    if let Some(exit) = &args.exit {
        if super::context::Ending::parse(exit).unknown() {
            return Err(TriageError::Exit(exit.clone()));
        }
        c.exit = Some(exit.clone());
        c.end = None;
    }
    if !args.gpu.is_empty() {
        for g in &args.gpu {
            if super::pci::Pci::parse(g.as_bytes()).is_none() {
                return Err(TriageError::Gpu(g.clone()));
            }
        }
        c.gpu.clone_from(&args.gpu);
    }
    if let Some(w) = &args.window {
        let bad = || TriageError::Window(w.clone());
        let (from, to) = w.split_once("..").ok_or_else(bad)?;
        let side = |s: &str| -> Result<Option<String>, TriageError> {
            let s = s.trim();
            if s.is_empty() {
                return Ok(None);
            }
            Stamp::parse(s).map(|_| Some(s.to_owned())).ok_or_else(bad)
        };
        c.window = Some(Window {
            from: side(from)?,
            to: side(to)?,
            ..Window::default()
        });
    }
    if args.hardware.is_some() {
        c.hardware.clone_from(&args.hardware);
    }
    Ok(c)
}

fn cases(args: &TriageArgs) -> Result<Vec<(String, Case)>, TriageError> {
    let mut out = Vec::new();
    let mut bare = Case::default();
    let mut bare_names = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            let dirs = attempts(path)?;
            if dirs.is_empty() {
                return Err(TriageError::NoAttempt(path.display().to_string()));
            }
            for d in dirs {
                let mut case = Case::from_dir(&d)?;
                case.context = context(args, case.context)?;
                out.push((d.display().to_string(), case));
            }
        } else {
            if path.as_os_str() != "-" && !path.is_file() {
                return Err(TriageError::Missing(path.display().to_string()));
            }
            bare_names.push(path.display().to_string());
            let source = slurp_stdin(path)?;
            if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
                bare.context = Context::read(path)?;
            } else if bare.kernel.is_none() && looks_like_kernel_log(&source, path)? {
                bare.kernel = Some(source);
            } else if bare.output.is_none() {
                bare.output = Some(source);
            } else if bare.kernel.is_none() {
                bare.kernel = Some(source);
            }
        }
    }
    for (given, slot) in [(&args.kernel_log, true), (&args.output, false)] {
        if let Some(p) = given {
            if p.as_os_str() != "-" && !p.is_file() {
                return Err(TriageError::Missing(p.display().to_string()));
            }
            bare_names.push(p.display().to_string());
            let source = Some(slurp_stdin(p)?);
            if slot {
                bare.kernel = source;
            } else {
                bare.output = source;
            }
        }
    }
    let has_bare = bare.kernel.is_some()
        || bare.output.is_some()
        || args.context.is_some()
        || (out.is_empty() && args.exit.is_some());
    if has_bare {
        if let Some(p) = &args.context {
            bare.context = Context::read(p)?;
        }
        bare.context = context(args, bare.context)?;
        out.push((bare_names.join(" + "), bare));
    }
    if out.is_empty() {
        return Err(TriageError::Nothing);
    }
    Ok(out)
}

/// Standard input can be read once, and is looked at twice.
fn slurp_stdin(path: &Path) -> Result<Source, TriageError> {
    if path.as_os_str() != "-" {
        return Ok(Source::Path(path.to_path_buf()));
    }
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(io("standard input"))?;
    Ok(Source::Bytes(bytes))
}

/// Attempt folders below a folder, in the order of their names; a folder that holds evidence itself is one.
fn attempts(dir: &Path) -> Result<Vec<PathBuf>, TriageError> {
    fn walk(dir: &Path, depth: usize, out: &mut Vec<PathBuf>) -> io::Result<()> {
        if Case::is_case_dir(dir) {
            out.push(dir.to_path_buf());
            return Ok(());
        }
        if depth == 0 || out.len() > 10_000 {
            return Ok(());
        }
        let mut below: Vec<PathBuf> = std::fs::read_dir(dir)?
            .filter_map(Result::ok)
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .map(|e| e.path())
            .collect();
        below.sort();
        for d in below {
            walk(&d, depth - 1, out)?;
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(dir, 5, &mut out).map_err(io(dir.display().to_string()))?;
    Ok(out)
}

/// Whether a file is a kernel log: by its name, else by its first lines.
fn looks_like_kernel_log(source: &Source, path: &Path) -> Result<bool, TriageError> {
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default();
    if ["kernel", "dmesg", "kmsg", "journal", "syslog", "messages"]
        .iter()
        .any(|w| name.contains(w))
    {
        return Ok(true);
    }
    if ["output", "stdout", "stderr"]
        .iter()
        .any(|w| name.contains(w))
    {
        return Ok(false);
    }
    let mut lexer = Lexer::new();
    let (mut lines, mut like) = (0, 0);
    let reader =
        BufReader::new(source.open().map_err(io(path.display().to_string()))?).take(256 * 1024);
    for line in reader.split(b'\n').take(400) {
        let line = line.map_err(io(path.display().to_string()))?;
        lexer.feed(&line, &mut |r| {
            lines += 1;
            let driver =
                super::data::is_amdgpu(r.tag) || matches!(r.tag, b"NVRM" | b"traps" | b"CIFS");
            if driver
                || r.prefixed && r.stamp.mono_us.is_some()
                || r.ident == super::lexer::Ident::Kernel && r.prefixed
            {
                like += 1;
            }
        });
    }
    Ok(like * 2 > lines)
}

/// Runs `legwork explain`.
///
/// # Errors
/// When the kind is not known.
pub fn run_explain(args: &ExplainArgs, out: &mut dyn Write) -> Result<ExitCode, TriageError> {
    let Some(kind) = &args.kind else {
        let mut text = String::new();
        for k in explain::kinds() {
            if let Some(e) = explain::explain(&k) {
                let first = e
                    .means
                    .split(". ")
                    .next()
                    .unwrap_or("")
                    .trim_end_matches('.')
                    .to_owned();
                text.push_str(&format!("{:<26} {:<22} {first}\n", e.kind, e.classes));
            }
        }
        out.write_all(text.as_bytes()).map_err(io("output"))?;
        return Ok(ExitCode::Pass);
    };
    let Some(e) = explain::explain(kind) else {
        let near = explain::kinds()
            .into_iter()
            .map(|k| (strsim::jaro_winkler(kind, &k), k))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(score, _)| *score > 0.75)
            .map_or_else(String::new, |(_, k)| format!("; did you mean {k}?"));
        return Err(TriageError::Kind {
            kind: kind.clone(),
            near,
        });
    };
    let text = match args.format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&e).unwrap_or_default()),
        Format::Md => format!(
            "### `{}` ({})\n\n{}\n\n**Causes.** {}\n\n**Do.** {}\n\n{}\n",
            e.kind,
            e.classes,
            e.means,
            e.causes,
            e.act,
            e.sources
                .iter()
                .map(|s| format!("- {s}\n"))
                .collect::<String>()
        ),
        Format::Text => format!(
            "{} ({})\n\nMeans   {}\nCauses  {}\nDo      {}\nSources {}\n",
            e.kind,
            e.classes,
            e.means,
            e.causes,
            e.act,
            e.sources.join("\n        ")
        ),
    };
    out.write_all(text.as_bytes()).map_err(io("output"))?;
    Ok(ExitCode::Pass)
}
