//! Verdicts with their evidence.

use crate::format::{clean, exit_words, seconds, shorten, signal_name};
use crate::model::{Attempt, Class, Leg, Report, StackState, Verdict};

use super::super::document::{Block, Chain, Section, Step};
use super::class_tone;

/// The longest piece of a line that is quoted.
const LINE: usize = 400;

pub(super) fn section(report: &Report) -> Option<Section> {
    // Attempts of a leg with the same trouble share a chain: the first one's.
    let mut groups: Vec<(&Leg, Vec<&Attempt>)> = Vec::new();
    for leg in &report.legs {
        for attempt in leg
            .attempts
            .iter()
            .filter(|a| a.verdict.class != Class::Clean)
        {
            let v = &attempt.verdict;
            let known = groups.iter_mut().find(|(l, of)| {
                let first = &of[0].verdict;
                l.name == leg.name
                    && (first.class, &first.kind, &first.title) == (v.class, &v.kind, &v.title)
            });
            match known {
                Some((_, of)) => of.push(attempt),
                None => groups.push((leg, vec![attempt])),
            }
        }
    }
    if groups.is_empty() {
        return None;
    }
    let blocks = groups
        .iter()
        .map(|(leg, of)| {
            let numbers: Vec<String> = of
                .iter()
                .map(|a| format!("#{}{}", a.n, if a.warmup { " (warm-up)" } else { "" }))
                .collect();
            let mut chain = chain(
                &of[0].verdict,
                &format!("{} {}", clean(&leg.name), numbers.join(", ")),
            );
            let mut facts = attempt_facts(of[0]);
            if of.len() > 1 {
                facts.insert(
                    0,
                    (
                        "evidence of".to_owned(),
                        format!("#{}; the others show the same", of[0].n),
                    ),
                );
            }
            facts.append(&mut chain.facts);
            chain.facts = facts;
            Block::Chain(chain)
        })
        .collect();
    Some(Section::new("verdicts", "Why", blocks).essential())
}

/// The evidence of one verdict; `of` says whose it is.
pub fn chain(v: &Verdict, of: &str) -> Chain {
    let mut facts = Vec::new();
    if let Some(gate) = &v.stack_gate {
        let state = match gate.state {
            StackState::NotApplicable => "does not apply",
            StackState::Good => "good: no known defect of it makes these lines",
            StackState::Bad => "BAD: it has a known defect that makes the same lines",
            StackState::Unknown => "UNKNOWN: not enough was recorded to rule it out",
        };
        let reasons: Vec<String> = gate.reasons.iter().map(|r| clean(r)).collect();
        let words = if reasons.is_empty() {
            state.to_owned()
        } else {
            format!("{state} ({})", reasons.join("; "))
        };
        facts.push(("software stack".to_owned(), words));
    }
    facts.extend(v.warnings.iter().map(|w| ("warning".to_owned(), clean(w))));
    Chain {
        of: of.to_owned(),
        class: v.class.to_string(),
        tone: class_tone(v.class),
        kind: clean(&v.kind),
        confidence: v.confidence,
        title: clean(&v.title),
        steps: v
            .evidence
            .iter()
            .map(|e| Step {
                role: e.role,
                place: match e.line {
                    Some(line) => format!("{}:{line}", clean(&e.source)),
                    None => clean(&e.source),
                },
                finding: clean(&e.finding),
                text: shorten(&clean(&e.text), LINE),
                why: clean(&e.why),
            })
            .collect(),
        facts,
        would_settle: v.would_settle.iter().map(|w| clean(w)).collect(),
    }
}

fn attempt_facts(a: &Attempt) -> Vec<(String, String)> {
    let mut out = vec![(
        "ended".to_owned(),
        format!("{} after {}", exit_words(&a.exit), seconds(a.wall_s)),
    )];
    for d in a.descendants.iter().take(8) {
        let end = match d.end {
            None => "still alive at the end".to_owned(),
            Some(e) => match (e.signal, e.code) {
                (Some(s), _) if e.core_dumped => format!("{}, core", signal_name(s)),
                (Some(s), _) => signal_name(s),
                (None, Some(code)) => format!("exit {code}"),
                (None, None) => "status lost".to_owned(),
            },
        };
        let who = d.comm.as_deref().map_or("a process".to_owned(), clean);
        let when = d
            .ended_s
            .map_or_else(String::new, |s| format!(" at {}", seconds(s)));
        out.push((
            "below it".to_owned(),
            format!("{who} (pid {}): {end}{when}", d.pid),
        ));
    }
    for leak in a.leaks.iter().take(8) {
        out.push((
            "leaked".to_owned(),
            format!("{} (pid {})", clean(&leak.comm), leak.pid),
        ));
    }
    out
}
