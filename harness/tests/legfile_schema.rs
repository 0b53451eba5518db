//! The JSON Schema of leg files: committed, up to date, and met by every leg file that we ship.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

use std::path::Path;

use legwork::legfile::{BUILTINS, leg_schema, parse};

const COMMITTED: &str = include_str!("../schema/leg.schema.json");

fn validator() -> jsonschema::Validator {
    let schema: serde_json::Value = serde_json::from_str(&leg_schema()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn as_json(text: &str) -> serde_json::Value {
    serde_yaml::from_str(text).unwrap()
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    assert!(
        COMMITTED == leg_schema(),
        "harness/schema/leg.schema.json is out of date: legwork schema leg > harness/schema/leg.schema.json"
    );
}

#[test]
fn every_shipped_leg_file_meets_the_schema_and_the_checks() {
    let validator = validator();
    for builtin in BUILTINS {
        let value = as_json(builtin.text);
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", builtin.name);
        if let Err(e) = parse(Path::new(builtin.name), Path::new("/"), builtin.text) {
            panic!("{e}");
        }
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../legs");
    let files = std::fs::read_dir(shipped)
        .unwrap()
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|x| x == "yaml"))
        .count();
    assert_eq!(
        files,
        BUILTINS.len(),
        "a leg file in legs/ is not compiled in"
    );
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let validator = validator();
    for text in [
        "name: x\nlegs: [{name: a, comand: [x]}]\n",
        "name: x\nlegs: [{name: a, command: x}]\n",
        "name: x\norder: random\nlegs: [{name: a, command: [x]}]\n",
        "name: x\nlegs: [{name: a, command: [x], timeout: {total: 30}}]\n",
        "legs: [{name: a, command: [x]}]\n",
        "name: x\nlegs: [{name: a, command: [x]}]\ngates: [{leg: a, expect: {exist: 0}}]\n",
    ] {
        assert!(
            !validator.is_valid(&as_json(text)),
            "schema accepts:\n{text}"
        );
        assert!(
            parse(Path::new("a"), Path::new("/"), text).is_err(),
            "reader accepts:\n{text}"
        );
    }
}
