//! The command line itself: help, exit codes of usage errors, shell support, colour.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

mod common;

use common::Bench;

#[test]
fn help_teaches_and_names_every_exit_code() {
    let bench = Bench::new();
    let ran = bench.call(&["--help"]);
    ran.expect_code(0);
    let text = ran.stdout();
    for word in ["legwork run smoke", "Exit codes:", "resume", "check"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    for code in [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 30] {
        assert!(
            text.lines()
                .any(|l| l.trim_start().starts_with(&format!("{code}  "))),
            "exit code {code} is missing:\n{text}"
        );
    }
    for verb in ["run", "check", "report", "resume"] {
        let ran = bench.call(&[verb, "--help"]);
        ran.expect_code(0);
        assert!(
            ran.stdout().contains("Examples:"),
            "{verb}: {}",
            ran.stdout()
        );
    }
}

#[test]
fn the_readme_and_the_help_tell_the_same_exit_codes() {
    let readme = include_str!("../../README.md");
    let bench = Bench::new();
    for line in bench.call(&["exit-codes"]).stdout().lines() {
        let (code, words) = line.trim().split_once("  ").unwrap();
        assert!(
            readme.contains(&format!("| {code} | {words} |")),
            "README lacks: {code} {words}"
        );
    }
}

#[test]
fn wrong_usage_is_exit_2_with_a_hint() {
    let bench = Bench::new();
    for (args, hint) in [
        (vec!["rum"], "run"),
        (vec!["run"], "FILE|NAME"),
        (vec!["run", "smok"], "did you mean `smoke`?"),
        (vec!["run", "nothing.yaml"], "nothing.yaml"),
        (vec!["run", "smoke", "--timeout", "10"], "10s"),
        (vec!["run", "smoke", "--env", "X"], "NAME=VALUE"),
        (
            vec!["run", "smoke", "--leg", "defualt"],
            "did you mean `default`?",
        ),
        (vec!["run", "smoke", "--device", "rokm"], "rocm"),
        (
            vec!["run", "smoke", "--model", "missing.gguf"],
            "no such file",
        ),
        (vec!["report", "no-such-run"], "no-such-run"),
        (vec!["resume", "."], "journal.jsonl"),
        (vec!["legs", "nope"], "smoke"),
        (vec!["man", "nope"], "resume"),
    ] {
        let ran = bench.call(&args);
        assert_eq!(ran.code, 2, "{args:?}\n{}", ran.said());
        assert!(
            ran.stderr().contains(hint),
            "{args:?} lacks {hint:?}\n{}",
            ran.said()
        );
    }
}

#[test]
fn nothing_selected_is_exit_3() {
    let bench = Bench::new();
    let ran = bench.call(&["run", "smoke", "--leg", "none-*"]);
    ran.expect_code(3);
    assert!(bench.newest_run().is_none());
}

#[test]
fn check_prints_the_plan_and_names_what_is_wrong() {
    let bench = Bench::new();
    for name in ["smoke", "load-ab", "strix-glm53", "gpu-cuda"] {
        let ran = bench.call(&["check", name]);
        ran.expect_code(0);
        assert!(
            ran.stdout().contains("gate     ") && ran.stdout().contains("(control)"),
            "{}",
            ran.stdout()
        );
    }
    bench.write("bad.yaml", "name: x\nlegs:\n  - {name: a, comand: [x]}\n");
    let ran = bench.call(&["check", "smoke", "bad.yaml", "missing.yaml"]);
    ran.expect_code(2);
    let text = ran.stderr();
    assert!(
        text.contains("bad.yaml:3:15: unknown key `comand`") && text.contains("missing.yaml"),
        "{text}"
    );
    assert!(
        ran.stdout().contains("leg set  smoke"),
        "the right ones are still shown"
    );
}

#[test]
fn a_confounded_leg_is_named_with_what_is_owed() {
    let bench = Bench::new();
    bench.write("set.yaml", "name: t\nlegs:\n  - {name: c, control: true, command: [/bin/true]}\n  - {name: two, command: [/bin/true], env: {X: 1, Y: 1}}\n");
    let ran = bench.call(&["check", "set.yaml"]);
    ran.expect_code(0);
    let text = ran.stdout();
    assert!(
        text.contains("CONFOUNDED(2)") && text.matches("owed     ").count() == 2,
        "{text}"
    );
}

#[test]
fn schemas_completions_and_man_pages_are_printed() {
    let bench = Bench::new();
    for what in ["leg", "report"] {
        let ran = bench.call(&["schema", what]);
        ran.expect_code(0);
        let value: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
        assert!(value["properties"].is_object(), "{what}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            bench
                .call(&["completions", shell])
                .expect_code(0)
                .stdout()
                .contains("legwork")
        );
    }
    for args in [vec!["man"], vec!["man", "run"]] {
        assert!(bench.call(&args).expect_code(0).stdout().contains(".TH"));
    }
    assert!(
        bench
            .call(&["legs", "smoke"])
            .expect_code(0)
            .stdout()
            .starts_with("# ")
    );
}

#[test]
fn colour_is_for_terminals_and_for_those_who_ask() {
    let bench = Bench::new();
    bench.write(
        "set.yaml",
        "name: t\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
    );
    let plain = bench.call(&["run", "set.yaml"]);
    plain.expect_code(0);
    assert!(!plain.stdout().contains('\u{1b}') && !plain.stderr().contains('\u{1b}'));
    let run = plain.dir().to_str().unwrap().to_owned();
    assert!(
        bench
            .call(&["report", &run, "--color", "always"])
            .stdout()
            .contains('\u{1b}')
    );
    assert!(
        !bench
            .call(&["report", &run, "--color", "never"])
            .stdout()
            .contains('\u{1b}')
    );
}

#[test]
fn a_report_can_be_had_again_in_every_form_and_against_another_run() {
    let bench = Bench::new();
    bench.write(
        "set.yaml",
        "name: t\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
    );
    let ran = bench.call(&["run", "set.yaml"]);
    ran.expect_code(0);
    let run = ran.dir().to_str().unwrap().to_owned();
    for (form, mark) in [
        ("terminal", "t"),
        ("md", "# "),
        ("html", "<!"),
        ("json", "legwork.report"),
        ("junit", "<testsuite"),
        ("line", "t"),
    ] {
        let again = bench.call(&["report", &run, "--format", form]);
        again.expect_code(0);
        assert!(again.stdout().contains(mark), "{form}: {}", again.stdout());
    }
    bench
        .call(&["report", &run, "--format", "html", "-o", "r.html"])
        .expect_code(0);
    assert!(bench.path().join("r.html").metadata().unwrap().len() > 500);
    let against = bench.call(&["report", &run, "--against", &run]);
    assert!([0, 4].contains(&against.code), "{}", against.said());
}
