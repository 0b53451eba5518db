//! Every kind of mistake in a leg file: where it is said to be, what is said, what help is given.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

use std::path::Path;

use legwork::legfile::parse;

fn message(text: &str) -> String {
    match parse(Path::new("a.yaml"), Path::new("/base"), text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(e) => e.to_string(),
    }
}

/// (what, leg file, parts that the message must hold)
const CASES: &[(&str, &str, &[&str])] = &[
    (
        "unknown key at the top",
        "name: x\nrepeet: 3\nlegs: [{name: a, command: [/bin/true]}]\n",
        &[
            "a.yaml:2:1: unknown key `repeet`",
            "  2 | repeet: 3",
            "did you mean `repeat`?",
        ],
    ),
    (
        "unknown key in a leg",
        "name: x\nlegs:\n  - {name: a, comand: [/bin/true]}\n",
        &[
            "a.yaml:3:15: unknown key `comand`",
            "did you mean `command`?",
        ],
    ),
    (
        "unknown key in the engine",
        "name: x\nlegs:\n  - name: a\n    engine:\n      model: builtin:mini\n      prompt: p\n      max_token: 8\n",
        &[
            "a.yaml:7:7: unknown key `max_token`",
            "did you mean `max_tokens`?",
        ],
    ),
    (
        "unknown key in an expectation",
        "name: x\nlegs: [{name: a, command: [/bin/true]}]\ngates:\n  - {leg: a, expect: {exist: 0}}\n",
        &["a.yaml:4:23: unknown key `exist`", "did you mean `exit`?"],
    ),
    (
        "unknown key in timeouts",
        "name: x\nlegs:\n  - name: a\n    command: [/bin/true]\n    timeout: {totl: 3h}\n",
        &["a.yaml:5:15: unknown key `totl`", "did you mean `total`?"],
    ),
    (
        "unknown order",
        "name: x\norder: interleavd\nlegs: [{name: a, command: [/bin/true]}]\n",
        &[
            "a.yaml:2:8: unknown value `interleavd`",
            "did you mean `interleaved`?",
        ],
    ),
    (
        "no name",
        "legs: [{name: a, command: [/bin/true]}]\n",
        &["a.yaml:1:1: the key `name` is missing"],
    ),
    ("no legs key", "name: x\n", &["the key `legs` is missing"]),
    ("empty legs", "name: x\nlegs: []\n", &["`legs` is empty"]),
    (
        "duplicate legs",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true]}\n  - {name: a, command: [/bin/true]}\n",
        &["a.yaml:4:12: a second leg `a`: the first is in line 3"],
    ),
    (
        "two controls",
        "name: x\nlegs:\n  - {name: a, control: true, command: [/bin/true]}\n  - {name: b, control: true, command: [/bin/true]}\n",
        &["a.yaml:4:12: `b` is a second control"],
    ),
    (
        "duplicate key",
        "name: x\nname: y\nlegs: [{name: a, command: [/bin/true]}]\n",
        &["a.yaml:2:1"],
    ),
    (
        "engine and command",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], script: j.sh}\n",
        &["a.yaml:3:45: `script` and `command` exclude each other in leg `a`"],
    ),
    (
        "nothing to run",
        "name: x\nlegs:\n  - {name: a}\n",
        &["a.yaml:3:12: leg `a` has nothing to run"],
    ),
    (
        "unknown built-in model",
        "name: x\nlegs:\n  - {name: a, engine: {model: builtin:mny, prompt: p}}\n",
        &[
            "no model `builtin:mny` is compiled in",
            "did you mean `builtin:mini`?",
        ],
    ),
    (
        "unknown device",
        "name: x\nlegs:\n  - {name: a, engine: {model: builtin:mini, prompt: p, device: rokm}}\n",
        &["no device `rokm`", "did you mean `rocm`?"],
    ),
    (
        "no prompt",
        "name: x\nlegs:\n  - {name: a, engine: {model: builtin:mini}}\n",
        &["a.yaml:3:23: the engine has no `prompt`"],
    ),
    (
        "duration without unit",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], timeout: {total: 30}}\n",
        &["a.yaml:3:54: ", "`30` has no unit: write 30s"],
    ),
    (
        "duration with a wrong unit",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], timeout: {total: 3 hours}}\n",
        &["a.yaml:3:54: "],
    ),
    (
        "size",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], output_cap: 64mb}\n",
        &["a.yaml:3:49: ", "`mb` in `64mb` is no unit of size"],
    ),
    (
        "repeat of zero",
        "name: x\nrepeat: 0\nlegs: [{name: a, command: [/bin/true]}]\n",
        &["a.yaml:2:9: repeat is 0"],
    ),
    (
        "repeat of the wrong type",
        "name: x\nrepeat: often\nlegs: [{name: a, command: [/bin/true]}]\n",
        &["a.yaml:2:9: "],
    ),
    (
        "gate on an unknown leg",
        "name: x\nlegs: [{name: default, command: [/bin/true]}]\ngates:\n  - {leg: defualt, expect: {exit: 0}}\n",
        &["a.yaml:4:5: ", "`defualt`", "did you mean `default`?"],
    ),
    (
        "gate with both leg and legs",
        "name: x\nlegs: [{name: a, command: [/bin/true]}]\ngates:\n  - {leg: a, legs: [a], expect: {exit: 0}}\n",
        &["both `leg` and `legs`"],
    ),
    (
        "gate that expects nothing",
        "name: x\nlegs: [{name: a, command: [/bin/true]}]\ngates:\n  - {leg: a, expect: {}}\n",
        &["expects nothing"],
    ),
    (
        "comparison with an unknown leg",
        "name: x\nlegs: [{name: a, command: [/bin/true]}]\ncompare:\n  - {a: a, b: bb}\n",
        &["a.yaml:4:5: ", "`bb`"],
    ),
    (
        "comparison with itself",
        "name: x\nlegs: [{name: a, command: [/bin/true]}]\ncompare:\n  - {a: a, b: a}\n",
        &["against itself"],
    ),
    (
        "regular expression",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], phases: {load: {from: '(', to: x}}}\n",
        &["a.yaml:3:59: `(` is no regular expression"],
    ),
    (
        "phase that does not exist",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], timeout: {phases: {load: 1h}}}\n",
        &["bounds a phase `load` that it does not have"],
    ),
    (
        "a name that cannot be a folder",
        "name: x\nlegs:\n  - {name: a/b, command: [/bin/true]}\n",
        &["a.yaml:3:12: `a/b` cannot name a leg"],
    ),
    (
        "a reserved variable",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], env: {LEGWORK_RUN: x}}\n",
        &["`LEGWORK_RUN` is set by legwork itself"],
    ),
    (
        "working directory",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], cwd: somewhere}\n",
        &[
            "a.yaml:3:42: `somewhere` is no working directory",
            "start, attempt, stage",
        ],
    ),
    (
        "args of a command",
        "name: x\nlegs:\n  - {name: a, command: [/bin/true], args: [x]}\n",
        &["`args` belong to a `script`"],
    ),
    (
        "lease shorter than the reserve",
        "name: x\nmax_runtime: 30s\nlegs: [{name: a, command: [/bin/true]}]\n",
        &["a.yaml:2:14: max_runtime leaves no time"],
    ),
    ("not YAML", "name: x\nlegs: }\n", &["a.yaml:2:"]),
    ("a list, not a mapping", "- a\n- b\n", &["a.yaml:1:1: "]),
    ("nothing at all", "", &["a.yaml"]),
    (
        "a tab as indentation",
        "name: x\nlegs:\n\t- {name: a}\n",
        &["a.yaml:3:"],
    ),
];

#[test]
fn every_mistake_is_said_with_its_place_and_its_remedy() {
    let mut failed = Vec::new();
    for (what, text, parts) in CASES {
        let got = message(text);
        for part in *parts {
            if !got.contains(part) {
                failed.push(format!("--- {what}: lacks {part:?}\n{got}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn all_mistakes_of_one_file_are_said_at_once() {
    let got = message(
        "name: x/y\nrepeat: 0\nlegs:\n  - {name: a, command: [/bin/true], cwd: no}\n  - {name: a}\n",
    );
    assert_eq!(got.matches("a.yaml:").count(), 5, "{got}");
    assert!(
        got.find("a.yaml:1:").unwrap() < got.find("a.yaml:5:").unwrap(),
        "in the order of the file:\n{got}"
    );
}

/// The example of the documentation, key for key.
#[test]
fn defaults_lie_under_the_legs() {
    let text = r#"
name: glm53-allocator-ab
question: Does the managed allocator cause the forward crash?
order: interleaved
seed: 7
repeat: 3
warmup: 1
env_allow: [HSA_VISIBLE_DEVICES]
defaults:
  engine: {model: builtin:mini, prompt: The capital of France is, max_tokens: 8, temperature: 0}
  timeout: {total: 3h, idle: 20m, grace: 10s, phases: {load: 1h}}
  core: bounded
  output_cap: 64MiB
  env: {VT_LOAD_STATS: 1, A: "under"}
legs:
  - {name: default, control: true}
  - {name: managed, env: {VT_ROCM_MANAGED_ALLOC: "1", A: own}, diagnostic: true, timeout: {idle: 500ms}, engine: {max_tokens: 2}}
  - {name: foreign, command: [./vllm-cli, --model, m.gguf], phases: {load: {from: loading model, to: 'weights\s'}}}
  - {name: scripted, script: job.sh, args: [a], cwd: attempt}
gates:
  - {leg: default, expect: {exit: 0, text_starts_with: " Paris", reference_tier_hits: 0}}
  - {legs: [default, managed], expect: {same: token_ids}}
compare:
  - {a: default, b: managed}
"#;
    let set = parse(Path::new("a.yaml"), Path::new("/base"), text).unwrap();
    assert_eq!((set.seed, set.warmup, set.legs.len()), (Some(7), 1, 4));
    let managed = &set.legs[1];
    assert_eq!(managed.env["A"], "own");
    assert_eq!(managed.env["VT_LOAD_STATS"], "1");
    assert_eq!(managed.timeout.idle.unwrap().as_millis(), 500);
    assert_eq!(managed.timeout.total.unwrap().as_secs(), 3 * 3600);
    assert_eq!(managed.output_cap, 64 << 20);
    let line = managed.command_line().join(" ");
    assert!(
        line.contains("--max-tokens 2") && line.contains("--temperature 0"),
        "{line}"
    );
    // A leg's own program replaces the default one; the bound of a phase that it lacks does not concern it.
    assert_eq!(set.legs[2].command_line()[0], "./vllm-cli");
    assert_eq!(set.legs[2].phases[0].name, "load");
    assert_eq!(set.legs[2].timeout.phases.len(), 1);
    assert_eq!(set.legs[3].timeout.phases.len(), 0);
    assert_eq!(set.gates.len() + set.compare.len(), 3);
}

/// Values keep the characters that stand in the file, whatever YAML takes them for.
#[test]
fn a_variable_is_the_characters_that_stand_there() {
    let text = "name: x\nlegs:\n  - {name: a, command: [/bin/true], env: {A: 007, B: 1.50, C: true, D: 0x1F, E: \"\", F: no}}\n";
    let set = parse(Path::new("a.yaml"), Path::new("/"), text).unwrap();
    let env = &set.legs[0].env;
    let got: Vec<&str> = ["A", "B", "C", "D", "E", "F"]
        .iter()
        .map(|k| env[*k].as_str())
        .collect();
    assert_eq!(got, ["007", "1.50", "true", "0x1F", "", "no"]);
}
