//! Supervision against helpers that misbehave on purpose: how the leader ended, what its tree did, what was captured.
//! Each case is held against an expected outcome.

#![allow(clippy::unwrap_used)] // tests, though no test harness says so

#[path = "helpers/mod.rs"]
mod helpers;
#[path = "helpers/model.rs"]
mod model;
#[path = "helpers/runner.rs"]
mod runner;

use std::time::Duration;

use legwork::os::process::is_root;
use legwork::supervise::{
    AttemptSpec, CorePolicy, EngineEvent, KillReason, Line, NoControl, PhaseRule, Progress,
    SpawnStep, Stop, SuperviseError,
};
use legwork_reports::model::{Stamps, TimedOut};
use model::{Expect, Run, attempt, helper, sh};

fn main() {
    helpers::run_if_asked();
    std::process::exit(runner::main(&[
        ("a_clean_run_is_clean", a_clean_run_is_clean),
        (
            "the_child_finds_a_terminal_and_nothing_of_ours",
            the_child_finds_a_terminal_and_nothing_of_ours,
        ),
        (
            "the_environment_is_exactly_the_specs",
            the_environment_is_exactly_the_specs,
        ),
        ("spawn_errors_are_typed", spawn_errors_are_typed),
        (
            "a_segfault_leaves_a_core_that_names_its_module",
            a_segfault_leaves_a_core_that_names_its_module,
        ),
        (
            "an_abort_is_a_signal_and_not_a_code",
            an_abort_is_a_signal_and_not_a_code,
        ),
        (
            "core_policy_off_leaves_no_core",
            core_policy_off_leaves_no_core,
        ),
        (
            "a_crash_behind_a_pipe_is_seen",
            a_crash_behind_a_pipe_is_seen,
        ),
        (
            "every_way_a_shell_swallows_a_crash_is_seen",
            every_way_a_shell_swallows_a_crash_is_seen,
        ),
        (
            "a_total_deadline_ends_who_ignores_sigterm",
            a_total_deadline_ends_who_ignores_sigterm,
        ),
        (
            "sigterm_is_enough_for_who_heeds_it",
            sigterm_is_enough_for_who_heeds_it,
        ),
        (
            "setsid_and_double_fork_do_not_escape",
            setsid_and_double_fork_do_not_escape,
        ),
        (
            "who_holds_the_terminal_does_not_hold_us",
            who_holds_the_terminal_does_not_hold_us,
        ),
        (
            "a_leg_that_kills_its_parent_is_still_supervised",
            a_leg_that_kills_its_parent_is_still_supervised,
        ),
        (
            "closing_all_streams_does_not_hide_the_end",
            closing_all_streams_does_not_hide_the_end,
        ),
        ("a_flood_is_cut_and_marked", a_flood_is_cut_and_marked),
        (
            "silence_is_idle_and_work_is_not",
            silence_is_idle_and_work_is_not,
        ),
        (
            "a_phase_deadline_names_its_phase",
            a_phase_deadline_names_its_phase,
        ),
        (
            "a_fatal_line_ends_a_stalled_leg_early",
            a_fatal_line_ends_a_stalled_leg_early,
        ),
        ("events_give_phases", events_give_phases),
        (
            "late_bursts_make_stamps_suspect",
            late_bursts_make_stamps_suspect,
        ),
        (
            "partial_lines_have_stamps_of_their_own",
            partial_lines_have_stamps_of_their_own,
        ),
        ("stderr_can_be_kept_apart", stderr_can_be_kept_apart),
        ("the_caller_can_stop_and_kill", the_caller_can_stop_and_kill),
        ("an_empty_capture_says_so", an_empty_capture_says_so),
        ("stamps_are_read_times", stamps_are_read_times),
    ]));
}

fn a_clean_run_is_clean() {
    let r = attempt(helper(&["say", "hello"]), |_| {});
    r.expect(Expect {
        code: Some(0),
        output: Some("hello\n"),
        ..Expect::default()
    });
    assert!(r.outcome.leaks.is_empty() && r.outcome.cores.is_empty());
    assert!(r.outcome.killed_by_us.is_none() && !r.outcome.truncated && !r.outcome.unkillable);
    assert_eq!(r.outcome.stamps, Some(Stamps::Ok));
    assert_eq!(r.outcome.output_bytes, Some(6));
    let log = r.read("output.log");
    let (stamp, text) = log.split_once(" | ").expect("a stamped line");
    assert_eq!(text, "hello\n");
    let (mono, wall) = stamp.split_once(' ').expect("two stamps");
    assert!(mono.parse::<f64>().unwrap() < 60.0 && mono.split_once('.').unwrap().1.len() == 9);
    assert!(chrono::DateTime::parse_from_rfc3339(wall).is_ok());
    assert!(!r.dir().join("running.json").exists());
}

fn the_child_finds_a_terminal_and_nothing_of_ours() {
    let r = attempt(helper(&["tty"]), |s| s.size = (101, 33));
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    let t = r.read("output.raw");
    assert!(
        t.contains("isatty=1 size=101x33 ctty=true session_leader=true stdin_eof=true"),
        "{t}"
    );
    assert!(t.contains("open=[0, 1, 2] blocked=0 raw=\ttab"), "{t}");
    assert!(!t.contains('\r'), "bytes are kept as they are");
}

fn the_environment_is_exactly_the_specs() {
    let r = attempt(helper(&["env"]), |s| {
        s.env = vec![("VT_X".into(), "1".into())]
    });
    r.expect(Expect {
        code: Some(0),
        output: Some("VT_X=1\n"),
        ..Expect::default()
    });
}

fn spawn_errors_are_typed() {
    let d = tempfile::tempdir().unwrap();
    let try_run = |argv: &str, cwd: &std::path::Path| {
        let out = d
            .path()
            .join(format!("a{}", std::fs::read_dir(d.path()).unwrap().count()));
        std::fs::create_dir(&out).unwrap();
        let spec = AttemptSpec::new(vec![argv.into()], cwd.into(), out);
        match legwork::supervise::run(&spec, &mut NoControl) {
            Err(SuperviseError::Spawn { step, errno, .. }) => (step, errno),
            Err(e) => panic!("{e}"),
            Ok(o) => panic!("it ran: {:?}", o.exit),
        }
    };
    let noexec = d.path().join("plain");
    std::fs::write(&noexec, "no program").unwrap();
    assert_eq!(
        try_run("/no/such/program", d.path()),
        (SpawnStep::Exec, libc::ENOENT)
    );
    assert_eq!(
        try_run(noexec.to_str().unwrap(), d.path()),
        (SpawnStep::Exec, libc::EACCES)
    );
    assert_eq!(
        try_run("/bin/true", &d.path().join("nowhere")),
        (SpawnStep::Chdir, libc::ENOENT)
    );
    let spec = AttemptSpec::new(vec!["true".into()], d.path().into(), d.path().into());
    let e = legwork::supervise::run(&spec, &mut NoControl).expect_err("relative");
    assert!(e.to_string().contains("absolute"), "{e}");
}

fn a_segfault_leaves_a_core_that_names_its_module() {
    let r = attempt(helper(&["segv"]), |_| {});
    r.expect(Expect {
        signal: Some(libc::SIGSEGV),
        ..Expect::default()
    });
    if !r.cores_are_files() {
        return runner::skip("core_pattern does not name a plain file here");
    }
    assert!(r.outcome.exit.core_dumped);
    let c = &r.outcome.cores[0];
    assert_eq!(
        (c.pid, c.signal, c.address),
        (r.outcome.leader_pid, Some(libc::SIGSEGV), Some(0x1234)),
        "{c:?}"
    );
    let exe = std::env::current_exe().unwrap();
    assert_eq!(c.module.as_deref(), exe.to_str());
    assert!(c.threads[0].module.as_deref() == exe.to_str() && c.module_offset.is_some());
    assert!(
        c.modules
            .iter()
            .any(|m| m.path.contains("libc.so") && m.build_id.is_some()),
        "{:?}",
        c.modules
    );
    assert!(!c.truncated && c.sha256.as_ref().unwrap().len() == 64);
    assert!(r.dir().join(c.path.as_ref().unwrap()).is_file());
    let left: Vec<_> = std::fs::read_dir(r.cwd())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert!(
        left.is_empty(),
        "nothing stays in the working directory: {left:?}"
    );
    if legwork::os::helper::find("gdb").is_some() {
        let bt = r.read("backtrace.txt");
        assert!(bt.contains("SIGSEGV") && bt.contains("#0"), "{bt}");
    }
}

fn an_abort_is_a_signal_and_not_a_code() {
    let r = attempt(helper(&["abort"]), |_| {});
    r.expect(Expect {
        signal: Some(libc::SIGABRT),
        ..Expect::default()
    });
}

fn core_policy_off_leaves_no_core() {
    let r = attempt(helper(&["segv"]), |s| s.core = CorePolicy::Off);
    r.expect(Expect {
        signal: Some(libc::SIGSEGV),
        ..Expect::default()
    });
    assert!(!r.outcome.exit.core_dumped && r.outcome.cores.is_empty());
}

fn a_crash_behind_a_pipe_is_seen() {
    let r = attempt(sh("\"$EXE\" helper segv | cat"), |_| {});
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    if !is_root() {
        return runner::skip("process events need root");
    }
    let crash = r.crashed_descendant().expect("the crash is seen");
    assert_eq!(crash.end.unwrap().signal, Some(libc::SIGSEGV));
    assert!(
        crash
            .comm
            .as_deref()
            .is_some_and(|c| c.starts_with("supervise_tree")),
        "{crash:?}"
    );
    if r.cores_are_files() {
        assert_eq!(r.outcome.cores[0].pid, crash.pid);
    }
}

fn every_way_a_shell_swallows_a_crash_is_seen() {
    if !is_root() {
        return runner::skip("process events need root");
    }
    for script in [
        "\"$EXE\" helper segv | awk '{print}' >/dev/null",
        "\"$EXE\" helper segv; true",
        "( \"$EXE\" helper segv ) || :",
        "\"$EXE\" helper segv & wait; exit 0",
        "\"$EXE\" helper fork-crash",
        "x=$(\"$EXE\" helper segv); exit 0",
        "setsid \"$EXE\" helper segv; exit 0",
    ] {
        // Without cores: the kernel's word alone must do, and no debugger takes its time.
        let r = attempt(sh(script), |s| s.core = CorePolicy::Off);
        r.expect(Expect {
            code: Some(0),
            ..Expect::default()
        });
        assert!(
            r.crashed_descendant().is_some(),
            "{script}: {:?}",
            r.outcome.descendants
        );
    }
}

fn a_total_deadline_ends_who_ignores_sigterm() {
    let r = attempt(helper(&["ignore-term", "60"]), |s| {
        s.timeouts.total = Some(Duration::from_millis(400));
        s.timeouts.grace = Duration::from_millis(300);
    });
    r.expect(Expect {
        signal: Some(libc::SIGKILL),
        timed_out: Some(TimedOut::Total),
        ..Expect::default()
    });
    assert_eq!(r.outcome.killed_by_us, Some(KillReason::Total));
    assert!(r.outcome.wall_s < 40.0);
    let stacks = r.read("stacks.txt");
    assert!(
        stacks.contains(&format!("== pid {}", r.outcome.leader_pid)),
        "dumped before it was ended"
    );
}

fn sigterm_is_enough_for_who_heeds_it() {
    let r = attempt(helper(&["sleep", "60"]), |s| {
        s.timeouts.total = Some(Duration::from_millis(300));
        s.dump_on_deadline = false;
    });
    r.expect(Expect {
        signal: Some(libc::SIGTERM),
        timed_out: Some(TimedOut::Total),
        ..Expect::default()
    });
}

fn setsid_and_double_fork_do_not_escape() {
    for h in ["setsid-child", "double-fork"] {
        let r = attempt(helper(&[h, "61"]), |_| {});
        r.expect(Expect {
            code: Some(0),
            leaks: 1,
            ..Expect::default()
        });
        let l = &r.outcome.leaks[0];
        assert!(
            l.comm.starts_with("supervise_tree") && l.age_s.is_some_and(|a| a < 30.0),
            "{l:?}"
        );
        assert!(
            legwork::os::procfs::stat(l.pid).is_none_or(|s| s.is_zombie()),
            "{h}: it was killed"
        );
    }
}

fn who_holds_the_terminal_does_not_hold_us() {
    let r = attempt(helper(&["background-child", "62"]), |_| {});
    r.expect(Expect {
        code: Some(0),
        leaks: 1,
        ..Expect::default()
    });
    assert!(r.outcome.wall_s < 30.0);
    assert!(r.read("output.raw").contains("leader done"));
    let r = attempt(helper(&["background-child", "63"]), |_| {});
    if is_root() {
        r.expect(Expect {
            code: Some(0),
            leaks: 1,
            ..Expect::default()
        }); // it went with the terminal, and is counted
    }
}

fn a_leg_that_kills_its_parent_is_still_supervised() {
    let r = attempt(helper(&["kill-parent"]), |_| {});
    r.expect(Expect {
        code: Some(5),
        ..Expect::default()
    });
    assert!(r.read("output.raw").contains("still here"));
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.contains("killed its parent")),
        "{:?}",
        r.outcome.warnings
    );
}

fn closing_all_streams_does_not_hide_the_end() {
    let r = attempt(helper(&["close-stdout"]), |_| {});
    r.expect(Expect {
        code: Some(7),
        output: Some("closing\n"),
        ..Expect::default()
    });
}

fn a_flood_is_cut_and_marked() {
    let r = attempt(helper(&["spam", "8000000"]), |s| s.output_cap = 1 << 20);
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    assert!(r.outcome.truncated);
    assert_eq!(
        r.outcome.output_bytes,
        Some(8_000_000),
        "all bytes are counted"
    );
    let raw = r.read("output.raw");
    assert!(
        raw.len() <= (1 << 20) + 200 && raw.len() >= 700_000,
        "{}",
        raw.len()
    );
    assert!(raw.contains("bytes cut here"));
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.starts_with("LOG_FLOOD"))
    );
    // Far past the cap the leg itself is ended.
    let r = attempt(helper(&["spam", "100000000000"]), |s| {
        s.output_cap = 1 << 20;
        s.timeouts.grace = Duration::from_millis(500);
    });
    assert_eq!(r.outcome.killed_by_us, Some(KillReason::LogFlood));
    assert!(r.outcome.truncated);
}

fn silence_is_idle_and_work_is_not() {
    let r = attempt(helper(&["sleep", "60"]), |s| {
        s.timeouts.idle = Some(Duration::from_millis(800));
        s.dump_on_deadline = false;
    });
    r.expect(Expect {
        signal: Some(libc::SIGTERM),
        timed_out: Some(TimedOut::Idle),
        ..Expect::default()
    });
    let r = attempt(helper(&["spin", "2.5"]), |s| {
        s.timeouts.idle = Some(Duration::from_millis(800));
        s.dump_on_deadline = false;
    });
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
}

fn rule(name: &str, from: &str, to: &str) -> PhaseRule {
    PhaseRule {
        name: name.into(),
        from: regex::Regex::new(from).unwrap(),
        to: regex::Regex::new(to).unwrap(),
    }
}

fn a_phase_deadline_names_its_phase() {
    let script = "echo loading model; sleep 0.3; echo weights 1.0 s; echo forward; sleep 60";
    let r = attempt(sh(script), |s| {
        s.phase_rules = vec![
            rule("load", "loading model", r"weights\s"),
            rule("forward", "^forward", "^done"),
        ];
        s.timeouts
            .phases
            .insert("load".into(), Duration::from_secs(50));
        s.timeouts
            .phases
            .insert("forward".into(), Duration::from_millis(500));
        s.dump_on_deadline = false;
    });
    r.expect(Expect {
        signal: Some(libc::SIGTERM),
        timed_out: Some(TimedOut::Phase("forward".into())),
        ..Expect::default()
    });
    let load = r.outcome.phases["load"];
    assert!((0.2..20.0).contains(&load), "{load}");
    assert!(
        !r.outcome.phases.contains_key("forward"),
        "an unfinished phase has no length"
    );
}

fn a_fatal_line_ends_a_stalled_leg_early() {
    let r = attempt(helper(&["fatal-then-stall", "120"]), |s| {
        s.timeouts.total = Some(Duration::from_secs(100));
        s.dump_on_deadline = false;
    });
    assert!(
        matches!(&r.outcome.killed_by_us, Some(KillReason::FatalPattern(l)) if l.contains("Memory access fault"))
    );
    assert_eq!(r.outcome.exit.timed_out, None);
    assert!(r.outcome.wall_s < 60.0, "long before its deadline");
    let r = attempt(helper(&["fatal-then-stall", "0.2"]), |_| {});
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    assert_eq!(
        r.outcome.killed_by_us, None,
        "it ended by itself while it was given time"
    );
}

fn events_give_phases() {
    #[derive(Default)]
    struct Ear(Vec<String>, Vec<String>);
    impl legwork::supervise::Control for Ear {
        fn on_event(&mut self, e: &EngineEvent) {
            self.0.push(e.event.clone());
        }
        fn on_line(&mut self, l: &Line) {
            self.1.push(l.text.clone());
        }
    }
    let mut ear = Ear::default();
    let r = Run::new(helper(&["events"]), |s| s.events = true).go(&mut ear);
    r.expect(Expect {
        code: Some(0),
        output: Some("generated text\n"),
        ..Expect::default()
    });
    assert_eq!(r.outcome.phases["load"], 0.06);
    assert_eq!(r.outcome.phases["ttft"], 0.5);
    let names: Vec<&str> = r.outcome.events.iter().map(|e| e.event.as_str()).collect();
    assert_eq!(
        names,
        [
            "start",
            "load_begin",
            "load_end",
            "run_begin",
            "first_token",
            "end"
        ]
    );
    assert_eq!(ear.0, names);
    assert_eq!(ear.1, ["generated text"]);
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.contains("1 line(s) of the event pipe"))
    );
    assert_eq!(r.read("events.jsonl").lines().count(), 7);
    let begun = r.outcome.events[1].mono_ns;
    assert!(
        begun >= r.outcome.start_mono_ns && begun <= r.outcome.end_mono_ns,
        "one clock for both"
    );
}

fn late_bursts_make_stamps_suspect() {
    let r = attempt(helper(&["burst"]), |_| {});
    assert_eq!(r.outcome.stamps, Some(Stamps::Suspect));
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.contains("TIMESTAMPS=SUSPECT"))
    );
}

fn partial_lines_have_stamps_of_their_own() {
    let r = attempt(sh("printf 'loading... '; sleep 0.6; echo done"), |_| {});
    let log = r.read("output.log");
    let rows: Vec<(f64, &str)> = log
        .lines()
        .map(|l| {
            let (stamp, rest) = l.split_once(" |").unwrap();
            (stamp.split(' ').next().unwrap().parse().unwrap(), rest)
        })
        .collect();
    assert_eq!(
        rows.iter().map(|r| r.1).collect::<Vec<_>>(),
        ["+ loading... ", " done"]
    );
    assert!(rows[1].0 - rows[0].0 > 0.3, "{rows:?}");
}

fn stderr_can_be_kept_apart() {
    let r = attempt(sh("echo out; echo err >&2"), |s| s.separate_stderr = true);
    r.expect(Expect {
        code: Some(0),
        output: Some("out\n"),
        ..Expect::default()
    });
    assert_eq!(r.read("stderr.raw"), "err\n");
    assert!(r.read("output.log").contains(" |! err\n"));
    assert_eq!(r.outcome.output_bytes, Some(8));
}

fn the_caller_can_stop_and_kill() {
    struct Hand(Stop, u32);
    impl legwork::supervise::Control for Hand {
        fn tick(&mut self, _p: &Progress) {
            self.1 += 1;
        }
        fn stop_requested(&self) -> Stop {
            if self.1 >= 2 { self.0 } else { Stop::No }
        }
    }
    let r = Run::new(helper(&["sleep", "60"]), |_| {}).go(&mut Hand(Stop::Graceful, 0));
    r.expect(Expect {
        signal: Some(libc::SIGTERM),
        ..Expect::default()
    });
    assert_eq!(r.outcome.killed_by_us, Some(KillReason::Stopped));
    let r = Run::new(helper(&["ignore-term", "60"]), |_| {}).go(&mut Hand(Stop::Kill, 0));
    r.expect(Expect {
        signal: Some(libc::SIGKILL),
        ..Expect::default()
    });
    assert_eq!(r.outcome.killed_by_us, Some(KillReason::Killed));
}

fn an_empty_capture_says_so() {
    let r = attempt(vec!["/bin/true".into()], |_| {});
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    assert_eq!(r.outcome.output_bytes, Some(0));
    assert_eq!(r.outcome.stamps, None);
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.starts_with("CAPTURE_FAILED"))
    );
    assert!(
        r.outcome
            .collectors
            .iter()
            .any(|c| c.name == "capture" && !c.ok)
    );
}

fn stamps_are_read_times() {
    let r = attempt(helper(&["clock-lines", "100"]), |_| {});
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    let log = r.read("output.log");
    let mut n = 0;
    for l in log.lines() {
        let (stamp, text) = l.split_once(" | ").unwrap();
        let (s, ns) = stamp.split(' ').next().unwrap().split_once('.').unwrap();
        let read = r.outcome.start_mono_ns
            + s.parse::<u64>().unwrap() * 1_000_000_000
            + ns.parse::<u64>().unwrap();
        let written: u64 = text.parse().unwrap();
        assert!(read > written, "a line is read after it was written");
        n += 1;
    }
    assert_eq!(n, 100);
}
