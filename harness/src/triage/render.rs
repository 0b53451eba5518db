//! A judgement as text, JSON or Markdown.

use std::fmt::Write as _;

use legwork_reports::model::{EvidenceLine, Role};
use serde_json::{Value, json as object};

use super::verdict::Judgement;

/// The public JSON of `legwork triage`. `acceptable_if_wrong` is a placeholder for people who keep corpora.
#[must_use]
pub fn json(j: &Judgement, path: Option<&str>) -> Value {
    let v = &j.verdict;
    let mut out = object!({
        "class": v.class,
        "kind": v.kind,
        "confidence": v.confidence,
        "title": v.title,
        "acceptable_if_wrong": null,
        "evidence": v.evidence,
        "would_settle": v.would_settle,
        "stack_gate": v.stack_gate,
        "warnings": v.warnings,
        "alternates": j.alternates.iter().map(|a| object!({"class": a.class, "kind": a.kind, "why": a.why})).collect::<Vec<_>>(),
        "corrupted": j.corrupted,
    });
    if let (Some(p), Some(map)) = (path, out.as_object_mut()) {
        map.insert("path".to_owned(), Value::String(p.to_owned()));
    }
    out
}

fn role(r: Role) -> &'static str {
    match r {
        Role::Decides => "decides",
        Role::Supports => "supports",
        Role::Consequence => "consequence",
        Role::Ignored => "ignored",
    }
}

fn place(e: &EvidenceLine) -> String {
    match e.line {
        Some(n) => format!("{}:{n}", e.source),
        None => e.source.clone(),
    }
}

fn short(s: &str, n: usize) -> String {
    let s: String = s
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let s = s.split_whitespace().collect::<Vec<_>>().join(" ");
    match s.char_indices().nth(n) {
        Some((i, _)) => format!("{}…", &s[..i]),
        None => s,
    }
}

/// For a terminal: verdict, chain, what would settle it.
#[must_use]
pub fn text(j: &Judgement, path: Option<&str>, verbose: bool) -> String {
    let v = &j.verdict;
    let mut s = String::new();
    if let Some(p) = path {
        let _ = writeln!(s, "{p}");
    }
    let _ = writeln!(s, "{} {} ({} confidence)", v.class, v.kind, v.confidence);
    let _ = writeln!(s, "  {}", v.title);
    let mut last = (Role::Decides, String::new());
    for e in &v.evidence {
        if !verbose && e.role == Role::Ignored {
            continue;
        }
        let _ = writeln!(
            s,
            "  {:<11} {:<16} {}",
            role(e.role),
            place(e),
            short(&e.text, 150)
        );
        if e.why != "belongs to the line above" && (e.role, e.why.clone()) != last {
            let _ = writeln!(s, "  {:<28} = {}", "", e.why);
            last = (e.role, e.why.clone());
        }
    }
    let ignored = v
        .evidence
        .iter()
        .filter(|e| e.role == Role::Ignored)
        .count();
    if !verbose && ignored > 0 {
        let _ = writeln!(
            s,
            "  {ignored} lines were looked at and set aside (--verbose lists them)"
        );
    }
    if let Some(g) = &v.stack_gate {
        let _ = writeln!(s, "  stack: {:?}", g.state);
    }
    for a in &j.alternates {
        let _ = writeln!(s, "  or {} {}: {}", a.class, a.kind, a.why);
    }
    for w in &v.would_settle {
        let _ = writeln!(s, "  would settle: {w}");
    }
    for w in &v.warnings {
        let _ = writeln!(s, "  warning: {w}");
    }
    s
}

fn cell(s: &str) -> String {
    short(s, 200).replace('|', "\\|").replace('`', "'")
}

/// For an issue or a report.
#[must_use]
pub fn markdown(j: &Judgement, path: Option<&str>) -> String {
    let v = &j.verdict;
    let mut s = String::new();
    if let Some(p) = path {
        let _ = writeln!(s, "## {}\n", cell(p));
    }
    let _ = writeln!(
        s,
        "**{}** `{}`, {} confidence: {}\n",
        v.class,
        v.kind,
        v.confidence,
        cell(&v.title)
    );
    if !v.evidence.is_empty() {
        let _ = writeln!(s, "| part | where | line | why |\n|---|---|---|---|");
        for e in v.evidence.iter().filter(|e| e.role != Role::Ignored) {
            let _ = writeln!(
                s,
                "| {} | {} | `{}` | {} |",
                role(e.role),
                place(e),
                cell(&e.text),
                cell(&e.why)
            );
        }
        s.push('\n');
    }
    if let Some(g) = &v.stack_gate {
        let _ = writeln!(s, "Stack: {:?}. {}\n", g.state, g.reasons.join("; "));
    }
    for a in &j.alternates {
        let _ = writeln!(s, "- or {} `{}` {}", a.class, a.kind, a.why);
    }
    for w in &v.would_settle {
        let _ = writeln!(s, "- would settle: {w}");
    }
    for w in &v.warnings {
        let _ = writeln!(s, "- warning: {w}");
    }
    s
}
