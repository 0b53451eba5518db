//! Legs that run scripts and commands, from the leg file to the report.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

mod common;

use common::Bench;
use legwork_reports::model::{Class, GateStatus, RunVerdict, TimedOut};

fn script_leg(bench: &Bench, script: &str, rest: &str) -> String {
    bench.write("job.sh", &format!("#!/bin/sh\n{script}\n"));
    format!(
        "name: t\nlegs:\n  - {{name: a, script: job.sh, timeout: {{total: 60s, grace: 1s}}}}\n{rest}"
    )
}

#[test]
fn a_clean_run_passes_and_leaves_everything_in_its_place() {
    let bench = Bench::new();
    let text = script_leg(
        &bench,
        "echo hello; exit 0",
        "repeat: 2\nwarmup: 1\ngates:\n  - {leg: a, expect: {exit: 0, verdict: clean}}\n",
    );
    let ran = bench.run(&text, &[]);
    ran.expect_code(0);
    let report = ran.report();
    assert_eq!(report.verdict, RunVerdict::Pass);
    assert_eq!(report.legs[0].attempts.len(), 3);
    assert_eq!(
        report.legs[0].attempts.iter().filter(|a| a.warmup).count(),
        1
    );
    assert!(report.gates.iter().all(|g| g.status == GateStatus::Pass));
    for name in [
        "report.json",
        "report.md",
        "report.html",
        "junit.xml",
        "journal.jsonl",
        "legs.yaml",
        "SHA256SUMS",
    ] {
        assert!(ran.dir().join(name).is_file(), "{name} is missing");
    }
    for attempt in &report.legs[0].attempts {
        assert!(attempt.files.contains_key("context"), "{:?}", attempt.files);
        for path in attempt.files.values() {
            assert!(ran.dir().join(path).exists(), "{path} is missing");
        }
        let raw = std::fs::read_to_string(ran.dir().join(format!(
            "attempts/{:03}-a-{}{}/output.raw",
            attempt.n,
            if attempt.warmup { "w" } else { "r" },
            attempt.round
        )))
        .unwrap();
        assert!(raw.contains("hello"), "{raw:?}");
    }
    // Every sum is right: checked by the tool that people will use.
    let check = std::process::Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(ran.dir())
        .output()
        .unwrap();
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
    assert!(ran.stdout().contains("report: "), "{}", ran.said());
}

#[test]
fn a_crash_behind_a_pipe_is_a_crash() {
    let bench = Bench::new();
    let ran = bench.run(
        &script_leg(&bench, "sh -c 'kill -SEGV $$' | cat\nexit 0", ""),
        &[],
    );
    ran.expect_code(13);
    let attempt = &ran.report().legs[0].attempts[0];
    assert_eq!(attempt.exit.code, Some(0), "the shell itself ended well");
    assert_eq!(attempt.verdict.class, Class::Host, "{:?}", attempt.verdict);
    assert!(
        attempt
            .descendants
            .iter()
            .any(|d| d.end.is_some_and(|e| e.signal == Some(11))),
        "{:?}",
        attempt.descendants
    );
}

#[test]
fn a_leader_killed_by_sigsegv_is_a_host_fault_with_three_facts() {
    let bench = Bench::new();
    let ran = bench.run(&script_leg(&bench, "kill -SEGV $$", ""), &[]);
    ran.expect_code(13);
    let attempt = &ran.report().legs[0].attempts[0];
    assert_eq!((attempt.exit.code, attempt.exit.signal), (None, Some(11)));
    assert_eq!(attempt.verdict.class, Class::Host);
}

#[test]
fn a_deadline_ends_a_leg_and_is_named() {
    let bench = Bench::new();
    bench.write("job.sh", "#!/bin/sh\necho begun\nexec sleep 300\n");
    let ran = bench.run(
        "name: t\nlegs: [{name: a, script: job.sh, timeout: {total: 1s, grace: 500ms}}]\n",
        &[],
    );
    assert_ne!(ran.code, 0, "{}", ran.said());
    let attempt = &ran.report().legs[0].attempts[0];
    assert_eq!(
        attempt.exit.timed_out,
        Some(TimedOut::Total),
        "{:?}",
        attempt.exit
    );
    assert_ne!(attempt.verdict.class, Class::Clean);
}

#[test]
fn a_gate_that_does_not_hold_is_exit_10() {
    let bench = Bench::new();
    let ran = bench.run(
        &script_leg(
            &bench,
            "echo x",
            "gates:\n  - {leg: a, expect: {wall_s: {max: 0.000001}}}\n",
        ),
        &[],
    );
    ran.expect_code(10);
    assert_eq!(ran.report().gates[0].status, GateStatus::Fail);
    assert_eq!(ran.report().verdict, RunVerdict::Fail);
}

#[test]
fn a_gate_on_what_was_not_observed_is_not_measurable_and_never_a_pass() {
    let bench = Bench::new();
    let ran = bench.run(
        &script_leg(
            &bench,
            "exit 0",
            "gates:\n  - {leg: a, expect: {reference_tier_hits: 0}}\n",
        ),
        &[],
    );
    assert_ne!(ran.code, 0, "{}", ran.said());
    assert_eq!(ran.report().gates[0].status, GateStatus::NotMeasurable);
}

#[test]
fn a_program_that_cannot_be_found_is_infra_and_the_other_leg_runs() {
    let bench = Bench::new();
    let text = "name: t\nlegs:\n  - {name: bad, command: [no-such-program-here]}\n  - {name: good, command: [/bin/echo, fine]}\n";
    let ran = bench.run(text, &[]);
    ran.expect_code(14);
    let report = ran.report();
    assert_eq!(report.legs[0].attempts[0].verdict.class, Class::Infra);
    assert!(
        report.legs[0].attempts[0]
            .verdict
            .title
            .contains("no-such-program-here")
            || format!("{:?}", report.legs[0].attempts[0].verdict).contains("no-such-program-here")
    );
    assert_eq!(report.legs[1].attempts[0].verdict.class, Class::Clean);
}

#[test]
fn an_executable_that_the_kernel_refuses_is_infra() {
    let bench = Bench::new();
    bench.write("tool", "\u{1}\u{2}not a program\n");
    let ran = bench.run("name: t\nlegs: [{name: a, command: [./tool]}]\n", &[]);
    ran.expect_code(14);
}

#[test]
fn a_script_that_vanishes_after_staging_does_not_matter() {
    let bench = Bench::new();
    let source = bench.path().join("job.sh");
    let ran = bench.run(
        &script_leg(
            &bench,
            &format!("rm -f {}\necho ran", source.display()),
            "repeat: 3\n",
        ),
        &[],
    );
    ran.expect_code(0);
    assert!(!source.exists());
    assert_eq!(ran.report().legs[0].attempts.len(), 3);
}

#[test]
fn a_script_that_is_edited_meanwhile_runs_as_it_was() {
    let bench = Bench::new();
    let source = bench.path().join("job.sh");
    let ran = bench.run(
        &script_leg(
            &bench,
            &format!("printf 'exit 7\\n' > {}\necho x", source.display()),
            "repeat: 2\n",
        ),
        &[],
    );
    ran.expect_code(0);
}

#[test]
fn the_stage_is_gone_afterwards_unless_it_is_kept() {
    let bench = Bench::new();
    let stages = bench.path().join("stages");
    std::fs::create_dir(&stages).unwrap();
    bench.write("set.yaml", &script_leg(&bench, "echo x; exit 0", ""));
    let run = |extra: &[&str]| {
        let args: Vec<&str> = ["run", "set.yaml"]
            .into_iter()
            .chain(extra.iter().copied())
            .collect();
        let output = bench
            .legwork(&args)
            .env("LEGWORK_STAGE_DIR", &stages)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::read_dir(&stages).unwrap().count()
    };
    assert_eq!(run(&[]), 0);
    assert_eq!(run(&["--keep-stage"]), 1);
}

#[test]
fn a_leg_that_fails_stops_the_rest_only_where_that_was_asked_for() {
    let bench = Bench::new();
    let text = |on_fail: &str| {
        format!(
            "name: t\norder: sequential\non_fail: {on_fail}\nlegs:\n  - {{name: bad, command: [/bin/sh, -c, exit 3]}}\n  - {{name: good, command: [/bin/echo, x]}}\n"
        )
    };
    let ran = bench.run(&text("continue"), &[]);
    assert_eq!(ran.report().legs[1].attempts.len(), 1, "{}", ran.said());
    assert_eq!(ran.report().legs[0].attempts[0].exit.code, Some(3));
    let bench = Bench::new();
    let ran = bench.run(&text("stop"), &[]);
    assert_ne!(ran.code, 0);
    let report = ran.report();
    assert_eq!(report.legs[1].attempts.len(), 0);
    assert!(
        report.owed.iter().any(|o| o.leg.contains("good")),
        "{:?}",
        report.owed
    );
    assert!(
        report.warnings.iter().any(|w| w.contains("on_fail: stop")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn undeclared_knobs_are_refused_and_declared_ones_reach_the_leg() {
    let bench = Bench::new();
    let text = "name: t\nlegs:\n  - {name: a, command: [/bin/sh, -c, 'echo knob=$VT_CPU_MOE run=$LEGWORK_RUN; env'], env: {VT_CPU_MOE: 1}}\n";
    bench.write("set.yaml", text);
    let output = bench
        .legwork(&["run", "set.yaml"])
        .env("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("HSA_OVERRIDE_GFX_VERSION") && said.contains("env_allow"),
        "{said}"
    );
    assert!(bench.newest_run().is_none(), "nothing is begun");
    let output = bench
        .legwork(&["run", "set.yaml"])
        .env("SECRET_OF_THE_SHELL", "x")
        .output()
        .unwrap();
    let ran = bench.ran(output);
    ran.expect_code(0);
    let raw = std::fs::read_to_string(ran.dir().join("attempts/001-a-r1/output.raw")).unwrap();
    assert!(
        raw.contains("knob=1 run=") && !raw.contains("SECRET_OF_THE_SHELL"),
        "{raw}"
    );
}

#[test]
fn pins_and_arms_that_do_not_hold_stop_everything_before_it_begins() {
    let bench = Bench::new();
    let ran = bench.run(
        "name: t\npins: {kernel.release: '~^never$'}\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
        &[],
    );
    ran.expect_code(14);
    assert!(
        ran.stderr().contains("kernel.release must be"),
        "{}",
        ran.said()
    );
    let ran = bench.run(
        "name: t\npins: {kernel.release: '~.'}\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
        &[],
    );
    ran.expect_code(0);
    let arms = |rule: &str| {
        format!(
            "name: t\narms: {rule}\nlegs:\n  - {{name: a, command: [/bin/echo, x]}}\n  - {{name: b, command: [/bin/echo, x]}}\n  - {{name: c, command: [/bin/printf, x]}}\n"
        )
    };
    for rule in ["must_match", "must_differ"] {
        let ran = bench.run(&arms(rule), &[]);
        ran.expect_code(14);
        assert!(ran.stderr().contains(rule), "{}", ran.said());
    }
}

#[test]
fn every_attempt_is_archived_as_it_ends() {
    let bench = Bench::new();
    let ran = bench.run(
        &script_leg(&bench, "echo x", "repeat: 2\n"),
        &["--archive", "share"],
    );
    ran.expect_code(0);
    let archived = bench
        .path()
        .join("share")
        .join(ran.dir().file_name().unwrap());
    for name in [
        "attempts/001-a-r1/output.raw",
        "attempts/002-a-r2/output.raw",
        "report.json",
        "SHA256SUMS",
        "journal.jsonl",
    ] {
        assert!(archived.join(name).is_file(), "{name}");
    }
    // A share that is not there is a warning, never the end.
    bench.write("blocked", "a file where a folder is wanted");
    let ran = bench.run(&script_leg(&bench, "echo x", ""), &["--archive", "blocked"]);
    ran.expect_code(0);
    assert!(
        ran.report()
            .warnings
            .iter()
            .any(|w| w.contains("not archived")),
        "{:?}",
        ran.report().warnings
    );
}

#[test]
fn attempts_that_no_longer_fit_into_the_lease_are_owed() {
    let bench = Bench::new();
    let text = "name: t\nmax_runtime: 3s\nreserve: 1s\nlegs: [{name: a, command: [/bin/sleep, '0.9'], repeat: 20, timeout: {grace: 100ms}}]\n";
    let ran = bench.run(text, &[]);
    assert_ne!(ran.code, 0, "{}", ran.said());
    let report = ran.report();
    assert!(
        report.legs[0].attempts.len() < 5,
        "{}",
        report.legs[0].attempts.len()
    );
    assert!(
        report.owed.iter().any(|o| o.leg.starts_with('a')),
        "{:?}",
        report.owed
    );
}

#[test]
fn a_shuffled_order_is_recorded_and_can_be_had_again() {
    let bench = Bench::new();
    let text = "name: t\norder: shuffled\nrepeat: 4\nlegs:\n  - {name: a, command: [/bin/echo, x]}\n  - {name: b, command: [/bin/echo, x]}\n  - {name: c, command: [/bin/echo, x]}\n";
    let order = |ran: &common::Ran| {
        let mut all: Vec<(u32, String)> = ran
            .report()
            .legs
            .iter()
            .flat_map(|l| {
                l.attempts
                    .iter()
                    .map(|a| (a.n, l.name.clone()))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort();
        all.into_iter().map(|(_, name)| name).collect::<String>()
    };
    let first = bench.run(text, &[]);
    first.expect_code(0);
    let seed = first.report().run.seed.to_string();
    let second = bench.run(text, &["--seed", &seed]);
    assert_eq!(order(&first), order(&second));
}

#[test]
fn a_failed_attempt_is_run_again_as_it_was() {
    let bench = Bench::new();
    let ran = bench.run(
        &script_leg(&bench, "echo x; kill -SEGV $$", "repeat: 2\n"),
        &[],
    );
    ran.expect_code(13);
    let run = ran.dir().to_str().unwrap().to_owned();
    let again = bench.call(&["repro", &run, "--repeat", "2"]);
    again.expect_code(13);
    assert!(
        again.stdout().contains("reproduced in 2 of 2 attempts"),
        "{}",
        again.said()
    );
    // The leg file as it was run is used; the script is the user's, and it has been mended.
    bench.write("job.sh", "#!/bin/sh\necho x\n");
    let mended = bench.call(&["repro", &run, "--attempt", "2"]);
    mended.expect_code(0);
    assert!(
        mended.stdout().contains("not reproduced: 1 of 1"),
        "{}",
        mended.said()
    );
}

/// Whether this machine writes cores into a file or hands them to a program decides where the core comes from; where it can be
/// had, it is kept, and where gdb is, there is a backtrace.
#[test]
fn the_core_of_a_crash_is_kept_with_a_backtrace() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.starts_with('@') || pattern.trim().is_empty() {
        eprintln!("left out: cores go to {pattern:?} here");
        return;
    }
    let bench = Bench::new();
    let ran = bench.run(
        "name: t\nlegs: [{name: a, command: [/bin/sh, -c, 'echo x; kill -SEGV $$'], core: full}]\n",
        &[],
    );
    ran.expect_code(13);
    let attempt = &ran.report().legs[0].attempts[0];
    let folder = ran.dir().join("attempts/001-a-r1");
    let cores = std::fs::read_dir(folder.join("cores"))
        .map(|d| d.flatten().count())
        .unwrap_or(0);
    assert!(
        cores > 0,
        "no core kept\n{:?}\n{}",
        attempt.verdict.warnings,
        ran.said()
    );
    if std::process::Command::new("gdb")
        .arg("--version")
        .output()
        .is_ok()
    {
        let backtrace = std::fs::read_to_string(folder.join("backtrace.txt")).unwrap();
        assert!(backtrace.contains("#0"), "{backtrace}");
    }
}
