//! The first five lines: they hold the answer.

use crate::format::{clean, number, percent, ratio, shorten, with_unit};
use crate::metrics::{describe, value};
use crate::model::{Class, GateStatus, Leg, Report, RunVerdict};
use crate::stats;

use super::super::document::Tone;
use super::plural;

/// The tone of a run's verdict.
pub(super) fn tone(verdict: RunVerdict) -> Tone {
    match verdict {
        RunVerdict::Pass => Tone::Good,
        RunVerdict::Fail => Tone::Bad,
        RunVerdict::Inconclusive => Tone::Warn,
    }
}

/// What an exit code of legwork means, in two or three words.
pub fn code_words(code: u8) -> &'static str {
    match code {
        0 => "pass",
        1 => "bug in legwork",
        2 => "usage",
        3 => "nothing selected",
        4 => "inconclusive",
        10 => "a gate or leg failed",
        11 => "kernel fault",
        12 => "board fault",
        13 => "host fault",
        14 => "infra",
        20 => "regression",
        30 => "interrupted",
        _ => "unknown code",
    }
}

pub(super) fn subtitle(report: &Report) -> String {
    format!(
        "{} (exit code {})",
        code_words(report.exit_code),
        report.exit_code
    )
}

/// At most four lines: question, answer, speed, gates.
pub(super) fn summary(report: &Report) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if let Some(question) = &report.run.question {
        out.push(("Question".to_owned(), clean(question)));
    }
    out.push(("Answer".to_owned(), answer(report)));
    if let Some(speed) = speed(report) {
        out.push(("Speed".to_owned(), speed));
    }
    out.push(("Gates".to_owned(), gates(report)));
    out
}

/// The answer in one sentence.
pub fn answer(report: &Report) -> String {
    let mut parts = faults(report);
    if parts.is_empty() {
        parts.extend(failing_gates(report));
    }
    parts.extend(regressions(report));
    if report.verdict != RunVerdict::Pass {
        parts.extend(undecided(report));
    }
    if report.run.interrupted {
        parts.push("stopped before the plan was done".to_owned());
    }
    if parts.is_empty() {
        parts.push(all_well(report));
    }
    let rest = parts.len().saturating_sub(4);
    parts.truncate(4);
    let mut text = parts.join("; ");
    if rest > 0 {
        text.push_str(&format!("; and {rest} more below"));
    }
    text
}

/// One phrase for each leg that faulted: how often, and its most frequent trouble.
fn faults(report: &Report) -> Vec<String> {
    let mut out = Vec::new();
    for leg in &report.legs {
        let failed: Vec<_> = leg
            .counted()
            .filter(|a| !matches!(a.verdict.class, Class::Clean | Class::Inconclusive))
            .collect();
        let Some(first) = failed.first() else {
            continue;
        };
        let kinds: std::collections::BTreeSet<&str> =
            failed.iter().map(|a| a.verdict.kind.as_str()).collect();
        let v = &first.verdict;
        let more = if kinds.len() > 1 {
            format!(" and {} more", plural(kinds.len() - 1, "kind"))
        } else {
            String::new()
        };
        out.push(format!(
            "{} failed {} of {}: {} ({}{more}, {} confidence)",
            clean(&leg.name),
            failed.len(),
            leg.counted().count(),
            v.class,
            clean(&v.kind),
            v.confidence
        ));
    }
    if out.is_empty() {
        return out;
    }
    let clean_legs: Vec<String> = report
        .legs
        .iter()
        .filter(|l| l.counted().next().is_some())
        .filter(|l| l.counted().all(|a| a.verdict.class == Class::Clean))
        .map(|l| format!("{} 0 of {}", clean(&l.name), l.counted().count()))
        .collect();
    if !clean_legs.is_empty() {
        out.push(clean_legs.join(", "));
    }
    out
}

/// The gates that do not hold, equal expectations of several legs in one phrase.
fn failing_gates(report: &Report) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for g in report
        .gates
        .iter()
        .filter(|g| g.status == GateStatus::Fail && !g.undecided)
    {
        let of = g.legs.join(", ");
        // A gate that has a name of its own keeps it.
        let (words, of) = match g.name.strip_prefix(&of).and_then(|n| n.strip_prefix(": ")) {
            Some(words) => (words, Some(of)),
            None => (g.name.as_str(), None),
        };
        match groups.iter_mut().find(|(w, _)| *w == words) {
            Some((_, legs)) => legs.extend(of),
            None => groups.push((words, of.into_iter().collect())),
        }
    }
    groups
        .into_iter()
        .map(|(words, legs)| {
            let of = if legs.is_empty() {
                String::new()
            } else {
                format!(" of {}", clean(&legs.join(", ")))
            };
            format!("gate `{}`{of} does not hold", clean(words))
        })
        .collect()
}

fn regressions(report: &Report) -> Vec<String> {
    let mut out = Vec::new();
    for c in &report.comparisons {
        for m in c.metrics.iter().filter(|m| m.regressed == Some(true)) {
            let by = m
                .ratio
                .map_or_else(String::new, |r| format!(" {}", ratio(r)));
            let bound = m
                .max_loss_pct
                .map_or_else(String::new, |l| format!(", allowed loss {}", percent(l)));
            let name = &describe(&m.metric).title;
            out.push(format!(
                "{} regressed against {}: {name}{by}{bound}",
                clean(&c.b),
                clean(&c.a)
            ));
        }
    }
    out
}

fn undecided(report: &Report) -> Vec<String> {
    let mut out = Vec::new();
    for leg in &report.legs {
        let open: Vec<_> = leg
            .counted()
            .filter(|a| a.verdict.class == Class::Inconclusive)
            .collect();
        if let Some(first) = open.first() {
            out.push(format!(
                "{} undecided {} of {} ({})",
                clean(&leg.name),
                open.len(),
                leg.counted().count(),
                clean(&first.verdict.kind)
            ));
        }
    }
    for c in report.comparisons.iter().filter(|c| c.confounded) {
        out.push(format!(
            "{} against {} is CONFOUNDED({})",
            clean(&c.b),
            clean(&c.a),
            c.variables.len()
        ));
    }
    let open = report
        .gates
        .iter()
        .filter(|g| g.status == GateStatus::NotMeasurable)
        .count();
    if open > 0 {
        out.push(format!("{} not measurable", plural(open, "gate")));
    }
    if !report.owed.is_empty() {
        out.push(format!("{} owed", plural(report.owed.len(), "leg")));
    }
    out
}

fn all_well(report: &Report) -> String {
    let counted: usize = report.legs.iter().map(|l| l.counted().count()).sum();
    if counted == 0 {
        return "no counted attempt was run".to_owned();
    }
    let clean_ones = report
        .legs
        .iter()
        .flat_map(Leg::counted)
        .filter(|a| a.verdict.class == Class::Clean)
        .count();
    let legs = plural(report.legs.len(), "leg");
    let attempts = if clean_ones == counted {
        format!("all {} of {legs} clean", plural(counted, "attempt"))
    } else {
        format!(
            "{clean_ones} of {} of {legs} clean, the others failed as their gates ask",
            plural(counted, "attempt")
        )
    };
    let tokens = if report.gates.iter().any(|g| g.token) {
        ", tokens as gated"
    } else {
        ""
    };
    let compared: Vec<String> = report.comparisons.iter().filter_map(ratio_words).collect();
    if compared.is_empty() {
        format!("{attempts}{tokens}")
    } else {
        format!("{attempts}{tokens}; {}", compared.join("; "))
    }
}

/// `managed decodes at 0.982× of default (95 % 0.97–0.99)`.
fn ratio_words(c: &crate::model::Comparison) -> Option<String> {
    let m = c.metrics.iter().find(|m| m.metric == "decode_tok_s")?;
    let r = m.ratio?;
    let interval = match m.ratio_ci95 {
        _ if m.note.is_some() => " (n too small to tell)".to_owned(),
        Some([low, high]) => format!(" (95%: {low:.3}–{high:.3})"),
        None => String::new(),
    };
    Some(format!(
        "{} decodes at {} of {}{interval}",
        clean(&c.b),
        ratio(r),
        clean(&c.a)
    ))
}

/// The first metric of speed that any leg has, leg by leg: median, n, spread, or VOID(reason).
fn speed(report: &Report) -> Option<String> {
    let name = ["decode_tok_s", "prefill_tok_s", "load_gib_s", "load_s"]
        .into_iter()
        .find(|n| {
            let mut counted = report.legs.iter().flat_map(Leg::counted);
            counted.any(|a| value(a, n).is_some())
        })?;
    let metric = describe(name);
    let mut legs: Vec<String> = report
        .legs
        .iter()
        .map(|leg| {
            let samples: Vec<f64> = leg
                .counted()
                .filter(|a| a.speed.admissible)
                .filter_map(|a| value(a, name))
                .collect();
            let figure = match stats::summary(&samples) {
                Some(s) => {
                    let spread = match s.spread_pct {
                        Some(p) if s.n > 1 => format!(", spread {}", percent(p)),
                        _ => String::new(),
                    };
                    format!(
                        "{} (median of {}{spread})",
                        with_unit(Some(s.median), metric.unit),
                        number_of(s.n)
                    )
                }
                None => void(leg),
            };
            format!("{} {figure}", clean(&leg.name))
        })
        .collect();
    let rest = legs.len().saturating_sub(4);
    legs.truncate(4);
    if rest > 0 {
        legs.push(format!("{} more", plural(rest, "leg")));
    }
    Some(format!("{}: {}", metric.title, legs.join(" · ")))
}

fn number_of(n: usize) -> String {
    number(n as f64).trim_end_matches(".000").to_owned()
}

/// `VOID(reason)` of a leg none of whose attempts is admissible; a leg without a reason was not measured.
pub(super) fn void(leg: &Leg) -> String {
    leg.counted()
        .find_map(|a| a.speed.void_reason.as_deref())
        .map_or_else(
            || crate::format::ABSENT.to_owned(),
            |reason| format!("VOID({})", clean(reason)),
        )
}

fn gates(report: &Report) -> String {
    let with = |status: GateStatus| -> Vec<&str> {
        let gates = report
            .gates
            .iter()
            .filter(|g| g.status == status && !g.undecided);
        gates.map(|g| g.name.as_str()).collect()
    };
    let (pass, fail, open) = (
        with(GateStatus::Pass),
        with(GateStatus::Fail),
        with(GateStatus::NotMeasurable),
    );
    let mut parts = Vec::new();
    if report.gates.is_empty() {
        parts.push("none declared".to_owned());
    } else if pass.len() == report.gates.len() {
        parts.push(format!("all {} hold", pass.len()));
    } else {
        parts.push(format!("{} of {} hold", pass.len(), report.gates.len()));
    }
    if let Some(first) = fail.first() {
        parts.push(format!(
            "{} FAIL ({})",
            fail.len(),
            shorten(&clean(first), 60)
        ));
    }
    let undecided = report.gates.iter().filter(|g| g.undecided).count();
    if undecided > 0 {
        parts.push(format!("{undecided} undecided"));
    }
    if let Some(first) = open.first() {
        parts.push(format!(
            "{} not measurable ({})",
            open.len(),
            shorten(&clean(first), 60)
        ));
    }
    let owed = match report.owed.len() {
        0 => "nothing owed".to_owned(),
        n => format!("{} owed", plural(n, "leg")),
    };
    parts.push(owed);
    parts.join(" · ")
}
