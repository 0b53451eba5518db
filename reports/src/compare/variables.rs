//! The variables in which two legs differ.
//!
//! Environment variables are called by their name, the engine's settings `engine.<key>`, options of a command by
//! their option (`--threads`). Legs that run different programs differ in `command`, which counts once, whatever
//! their options: two programs' options cannot be held against each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::format::ABSENT;
use crate::model::{Leg, LegKind};

/// One variable and its two values; `None` is unset.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value in arm a.
    pub a: Option<String>,
    /// Its value in arm b.
    pub b: Option<String>,
}

impl Variable {
    /// `NAME: 0 → 1`; unset is `–`.
    #[must_use]
    pub fn words(&self) -> String {
        let or = |v: &Option<String>| v.clone().unwrap_or_else(|| ABSENT.to_owned());
        format!("{}: {} → {}", self.name, or(&self.a), or(&self.b))
    }
}

/// The variables in which `b` differs from `a`, by kind and name.
#[must_use]
pub fn variables(a: &Leg, b: &Leg) -> Vec<Variable> {
    let mut out = differences("", &a.env, &b.env, Clone::clone);
    if kind(a) != kind(b) || program(a) != program(b) {
        out.push(Variable {
            name: "command".to_owned(),
            a: program(a).map(str::to_owned),
            b: program(b).map(str::to_owned),
        });
    } else if !a.settings.is_empty() || !b.settings.is_empty() {
        out.extend(differences(
            "engine.",
            &a.settings,
            &b.settings,
            value_words,
        ));
    } else {
        out.extend(differences("", &options(a), &options(b), Clone::clone));
    }
    out
}

fn kind(leg: &Leg) -> Option<LegKind> {
    leg.kind
}

/// The program of a leg; the built-in engine is one program, wherever its executable lies.
fn program(leg: &Leg) -> Option<&str> {
    if leg.kind == Some(LegKind::Engine) || !leg.settings.is_empty() {
        return Some("engine");
    }
    leg.command.first().map(String::as_str)
}

fn differences<V: PartialEq>(
    prefix: &str,
    a: &BTreeMap<String, V>,
    b: &BTreeMap<String, V>,
    words: impl Fn(&V) -> String,
) -> Vec<Variable> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names
        .into_iter()
        .filter(|name| a.get(*name) != b.get(*name))
        .map(|name| Variable {
            name: format!("{prefix}{name}"),
            a: a.get(name).map(&words),
            b: b.get(name).map(&words),
        })
        .collect()
}

fn value_words(v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

/// A command's options with their values, its other arguments by position (`argument 1`, …). An option's value is
/// what follows `=`, or the next argument unless that is an option itself.
fn options(leg: &Leg) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut position = 0;
    let mut rest = leg.command.iter().skip(1).peekable();
    while let Some(argument) = rest.next() {
        if is_option(argument) {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => {
                    let value = rest.next_if(|next| !is_option(next));
                    (argument.clone(), value.cloned().unwrap_or_default())
                }
            };
            let unique = if out.contains_key(&name) {
                format!("{name} ({})", out.len())
            } else {
                name
            };
            out.insert(unique, value);
        } else {
            position += 1;
            out.insert(format!("argument {position}"), argument.clone());
        }
    }
    out
}

/// Starts with a dash and is no negative number.
fn is_option(argument: &str) -> bool {
    argument.len() > 1 && argument.starts_with('-') && argument.parse::<f64>().is_err()
}
