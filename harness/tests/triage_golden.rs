//! Golden cases of triage, one file each in `tests/data/triage/`.
//!
//! A file is a header, a context and up to two logs:
//! ```text
//! CLASS: board            authored by hand: the expected verdict
//! KIND: mes-hang          authored by hand
//! CONFIDENCE: medium      the rest is written by LEGWORK_UPDATE=1 and reviewed in the diff
//! TITLE: …
//! DECIDES: kernel.log:1
//! ALT: inconclusive mes-hang
//! CORRUPTED: …
//! # remarks
//! --- context
//! --- kernel
//! --- output
//! ```
//! The logs are made by hand in the drivers' formats; processes, addresses and stamps are invented.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use legwork::triage::{Case, Context, Judgement, Source, judge};
use legwork_reports::model::Role;

struct Golden {
    class: String,
    kind: String,
    remarks: Vec<String>,
    derived: String,
    body: String,
    case: Case,
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/triage")
}

fn read(path: &Path) -> Golden {
    let text = std::fs::read_to_string(path).unwrap();
    let at = text
        .find("--- ")
        .unwrap_or_else(|| panic!("{}: no sections", path.display()));
    let (head, body) = text.split_at(at);
    let field = |key: &str| {
        head.lines()
            .find_map(|l| l.strip_prefix(key))
            .map(|v| v.trim().to_owned())
            .unwrap_or_else(|| panic!("{}: no {key}", path.display()))
    };
    let mut case = Case::default();
    for section in format!("\n{body}").split("\n--- ").skip(1) {
        let (name, content) = section.split_once('\n').unwrap_or((section, ""));
        match name.trim() {
            "context" => {
                case.context = Context::from_yaml(content)
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            }
            "kernel" => case.kernel = Some(Source::Text(content.to_owned())),
            "output" => case.output = Some(Source::Text(content.to_owned())),
            other => panic!("{}: section {other}", path.display()),
        }
    }
    Golden {
        class: field("CLASS:"),
        kind: field("KIND:"),
        remarks: head
            .lines()
            .filter(|l| l.starts_with('#'))
            .map(str::to_owned)
            .collect(),
        derived: head
            .lines()
            .filter(|l| !l.starts_with('#') && !l.starts_with("CLASS:") && !l.starts_with("KIND:"))
            .map(|l| format!("{l}\n"))
            .collect(),
        body: body.to_owned(),
        case,
    }
}

fn derived(j: &Judgement) -> String {
    let v = &j.verdict;
    let mut s = format!("CONFIDENCE: {}\nTITLE: {}\n", v.confidence, v.title);
    let decides: Vec<String> = v
        .evidence
        .iter()
        .filter(|e| e.role == Role::Decides && e.why != "belongs to the line above")
        .map(|e| {
            e.line
                .map_or_else(|| e.source.clone(), |n| format!("{}:{n}", e.source))
        })
        .collect();
    let _ = writeln!(s, "DECIDES: {}", decides.join(" "));
    for a in &j.alternates {
        let _ = writeln!(s, "ALT: {} {}", a.class, a.kind);
    }
    if let Some(g) = &v.stack_gate {
        let _ = writeln!(s, "STACK: {:?}", g.state);
    }
    if let Some(c) = &j.corrupted {
        let _ = writeln!(s, "CORRUPTED: {c}");
    }
    s
}

#[test]
fn golden_cases() {
    let update = std::env::var_os("LEGWORK_UPDATE").is_some();
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 100, "{} golden cases", files.len());
    let mut wrong = String::new();
    for path in files {
        let g = read(&path);
        let j = judge(&g.case);
        let v = &j.verdict;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if (v.class.as_str(), v.kind.as_str()) != (g.class.as_str(), g.kind.as_str()) {
            let _ = writeln!(
                wrong,
                "{name}: want {} {}, got {} {} ({}): {}",
                g.class, g.kind, v.class, v.kind, v.confidence, v.title
            );
            continue;
        }
        let now = derived(&j);
        if now != g.derived {
            if update {
                let mut text = format!("CLASS: {}\nKIND: {}\n{now}", g.class, g.kind);
                for r in &g.remarks {
                    text.push_str(r);
                    text.push('\n');
                }
                text.push_str(&g.body);
                // Other tests read the same files meanwhile.
                let new = path.with_extension("new");
                std::fs::write(&new, text).unwrap();
                std::fs::rename(&new, &path).unwrap();
            } else {
                let _ = writeln!(
                    wrong,
                    "{name}: the header changed (LEGWORK_UPDATE=1 rewrites it)\n--- file\n{}--- now\n{now}",
                    g.derived
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The kinds that a log of our own making shows, against those that can be emitted.
#[test]
fn every_kind_has_a_golden_case() {
    let seen: std::collections::BTreeSet<String> = std::fs::read_dir(dir())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .map(|p| read(&p).kind)
        .collect();
    let missing: Vec<String> = legwork::triage::kinds()
        .into_iter()
        .filter(|k| !k.starts_with("xid-") && !seen.contains(k))
        .collect();
    assert!(missing.is_empty(), "no golden case for {missing:?}");
    for k in &seen {
        assert!(
            legwork::triage::explain(k).is_some(),
            "{k} is emitted but not explained"
        );
    }
}

/// An open verdict says what would settle it, and every verdict has a title and a chain.
#[test]
fn verdicts_are_complete() {
    for e in std::fs::read_dir(dir()).unwrap() {
        let path = e.unwrap().path();
        if path.extension().is_none_or(|e| e != "txt") {
            continue;
        }
        let g = read(&path);
        let v = judge(&g.case).verdict;
        let name = path.display();
        assert!(!v.title.is_empty(), "{name}");
        assert!(
            v.evidence.iter().any(|e| e.role == Role::Decides),
            "{name}: nothing decides"
        );
        assert!(v.evidence.iter().all(|e| !e.why.is_empty()), "{name}");
        if v.class == legwork_reports::model::Class::Inconclusive {
            assert!(
                !v.would_settle.is_empty(),
                "{name}: nothing would settle it"
            );
        }
        assert_eq!(
            legwork::triage::normalise_title(&v.title),
            v.title,
            "{name}"
        );
    }
}
