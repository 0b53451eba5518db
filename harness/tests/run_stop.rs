//! Stopping: by the user, by the job runner, and by `kill -9` with a resumption afterwards.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

mod common;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::Bench;
use legwork_reports::model::Class;

/// Waits for a condition that must come; the bound is generous, since the machine may be busy.
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "waited in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(bench: &Bench, text: &str) -> Child {
    bench.write("set.yaml", text);
    bench
        .legwork(&["run", "set.yaml", "--out", "runs"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()),
        signal,
    )
    .unwrap();
}

fn alive(pid: &str) -> bool {
    // A zombie has ended; its parent only has not looked yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z"))
}

/// Each attempt writes its pid into a file of its own; the second one of the first run waits.
fn set(dir: &Path) -> String {
    format!(
        "name: t\nrepeat: 3\nlegs:\n  - {{name: a, timeout: {{grace: 500ms}}, command: [/bin/sh, -c, 'echo begun; echo $$ >> {0}/pids; if [ $(wc -l < {0}/pids) -eq 2 ]; then exec sleep 300; fi']}}\n",
        dir.display()
    )
}

fn pids(dir: &Path) -> Vec<String> {
    std::fs::read_to_string(dir.join("pids"))
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn an_interrupt_ends_the_run_with_a_report() {
    for which in [
        nix::sys::signal::Signal::SIGINT,
        nix::sys::signal::Signal::SIGTERM,
    ] {
        let bench = Bench::new();
        let child = start(&bench, &set(bench.path()));
        wait_for("the second attempt", || pids(bench.path()).len() == 2);
        signal(child.id(), which);
        let ran = bench.ran(child.wait_with_output().unwrap());
        ran.expect_code(30);
        let report = ran.report();
        assert!(report.run.interrupted && report.run.finished.is_some());
        assert_eq!(report.legs[0].attempts.len(), 2, "the third was not begun");
        assert_eq!(report.legs[0].attempts[0].verdict.class, Class::Clean);
        assert!(!alive(&pids(bench.path())[1]), "the child lives on");
        assert!(ran.dir().join("report.md").is_file());
    }
}

#[test]
fn a_run_that_was_killed_is_resumed_and_loses_nothing() {
    let bench = Bench::new();
    let mut child = start(&bench, &set(bench.path()));
    wait_for("the second attempt", || pids(bench.path()).len() == 2);
    wait_for("its output", || {
        let run = bench.newest_run().unwrap();
        std::fs::metadata(run.join("attempts/002-a-r2/output.raw")).is_ok_and(|m| m.len() > 0)
    });
    let run = bench.newest_run().unwrap();
    let run = run.to_str().unwrap();
    // While it runs, nobody else may take it up.
    bench.call(&["resume", run]).expect_code(2);
    child.kill().unwrap();
    child.wait().unwrap();
    let dry = bench.call(&["resume", run, "--dry-run"]);
    dry.expect_code(0);
    let said = dry.stdout();
    assert!(
        said.contains("done") && said.contains("lost with evidence") && said.contains(": run"),
        "{said}"
    );
    let ran = bench.call(&["resume", run]);
    let report = ran.report();
    let attempts = &report.legs[0].attempts;
    // One done before, one lost with its evidence, two run now: the one that makes up for it, and the third.
    assert_eq!(attempts.len(), 4, "{}", ran.said());
    let lost: Vec<_> = attempts
        .iter()
        .filter(|a| a.verdict.class != Class::Clean)
        .collect();
    assert_eq!(lost.len(), 1, "{attempts:?}");
    assert_eq!((lost[0].n, lost[0].verdict.class), (2, Class::Infra));
    assert!(lost[0].output_bytes.is_some_and(|b| b > 0));
    assert_eq!(ran.code, 14, "{}", ran.said());
    assert!(
        !alive(&pids(bench.path())[1]),
        "a child of the dead run lives on"
    );
    // What has ended cannot be resumed again.
    bench.call(&["resume", run]).expect_code(2);
}

/// A journal cut off at every line, as a kill at that moment would have left it, can be resumed to the full number of attempts.
#[test]
fn a_journal_cut_anywhere_can_be_resumed() {
    let bench = Bench::new();
    let ran = bench.run(
        "name: t\nrepeat: 2\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
        &[],
    );
    ran.expect_code(0);
    let journal = std::fs::read_to_string(ran.dir().join("journal.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    for cut in 1..lines.len() {
        let copy = bench.path().join(format!("cut{cut}"));
        let status = std::process::Command::new("cp")
            .arg("-r")
            .arg(ran.dir())
            .arg(&copy)
            .status()
            .unwrap();
        assert!(status.success());
        let torn = &lines[cut][..lines[cut].len() / 2];
        std::fs::write(
            copy.join("journal.jsonl"),
            format!("{}\n{torn}", lines[..cut].join("\n")),
        )
        .unwrap();
        let resumed = bench
            .legwork(&["resume", copy.to_str().unwrap()])
            .output()
            .unwrap();
        let text = std::fs::read(copy.join("report.json")).unwrap();
        let report: legwork_reports::model::Report = serde_json::from_slice(&text).unwrap();
        let clean = report.legs[0]
            .attempts
            .iter()
            .filter(|a| a.verdict.class == Class::Clean)
            .count();
        assert_eq!(
            clean,
            2,
            "cut after line {cut}: {}\n{}",
            lines[cut],
            String::from_utf8_lossy(&resumed.stderr)
        );
    }
}
