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

/// Two runs that begin in one second below different folders have one name; resuming one leaves the other alone.
#[test]
fn a_resumption_spares_the_processes_of_a_run_of_the_same_name() {
    let (bench, other) = (Bench::new(), Bench::new());
    let running = start(&bench, &set(bench.path()));
    wait_for("the second attempt", || pids(bench.path()).len() == 2);
    other.write(
        "set.yaml",
        "name: t\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
    );
    let killed = other
        .legwork(&["run", "set.yaml", "--out", "runs"])
        .env("LEGWORK_KILL_AT", "3-")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let name = bench.newest_run().unwrap();
    let namesake = other.path().join("runs").join(name.file_name().unwrap());
    std::fs::rename(other.newest_run().unwrap(), &namesake).unwrap();
    other
        .call(&["resume", namesake.to_str().unwrap()])
        .expect_code(0);
    assert!(alive(&pids(bench.path())[1]), "the other run lost its leg");
    signal(running.id(), nix::sys::signal::Signal::SIGTERM);
    running.wait_with_output().unwrap();
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

/// A terminal with a shell that has job control, as a user has it.
struct Terminal {
    shell: Child,
    master: std::fs::File,
    said: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Terminal {
    fn start(bench: &Bench, script: &str) -> Terminal {
        use std::os::unix::process::CommandExt;
        let ends = nix::pty::openpty(None, None).unwrap();
        let mut shell = bench.legwork(&[]);
        let program = shell.get_program().to_owned();
        let env: Vec<_> = shell
            .get_envs()
            .filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())))
            .collect();
        shell = std::process::Command::new("/bin/sh");
        shell
            .args(["-c", script])
            .current_dir(bench.path())
            .env_clear()
            .envs(env)
            .env("LEGWORK", program)
            .stdin(ends.slave.try_clone().unwrap())
            .stdout(ends.slave.try_clone().unwrap())
            .stderr(ends.slave.try_clone().unwrap());
        // SAFETY: two system calls between fork and exec.
        unsafe {
            shell.pre_exec(|| {
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let shell = shell.spawn().unwrap();
        drop(ends.slave);
        let master = std::fs::File::from(ends.master);
        let said = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let (mut from, into) = (master.try_clone().unwrap(), said.clone());
        std::thread::spawn(move || {
            use std::io::Read;
            let mut buf = [0u8; 4096];
            while let Ok(n) = from.read(&mut buf) {
                if n == 0 {
                    break;
                }
                into.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&buf[..n]));
            }
        });
        Terminal {
            shell,
            master,
            said,
        }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// ^Z at the terminal stops the leg and legwork; stopped time counts for no deadline; `fg` goes on.
#[test]
fn suspending_at_the_terminal_stops_leg_and_clocks() {
    use std::io::Write;
    let bench = Bench::new();
    let d = bench.path().display();
    bench.write(
        "set.yaml",
        &format!(
            "name: t\nlegs:\n  - {{name: a, timeout: {{total: 10s, grace: 500ms}}, command: [/bin/sh, -c, 'echo $$ > {d}/pids; until [ -e {d}/go ]; do sleep 0.1; done; echo went on']}}\n"
        ),
    );
    let script = format!(
        "set -m; \"$LEGWORK\" run set.yaml --out runs; echo \"stopped=$?\"; until [ -e {d}/fg ]; do sleep 0.1; done; fg; echo \"ended=$?\""
    );
    let mut t = Terminal::start(&bench, &script);
    wait_for("the leg", || !pids(bench.path()).is_empty());
    t.master.write_all(b"\x1a").unwrap();
    wait_for("the shell to have it back", || {
        t.said().contains("stopped=")
    });
    let leg = &pids(bench.path())[0];
    assert_eq!(state(leg), Some('T'), "{}", t.said());
    std::thread::sleep(Duration::from_secs(11)); // longer than the deadline
    assert_eq!(state(leg), Some('T'));
    bench.write("fg", "");
    bench.write("go", "");
    wait_for("the end", || t.said().contains("ended="));
    t.shell.wait().unwrap();
    assert!(t.said().contains("ended=0"), "{}", t.said());
    let run = bench.newest_run().unwrap();
    let text = std::fs::read(run.join("report.json")).unwrap();
    let report: legwork_reports::model::Report = serde_json::from_slice(&text).unwrap();
    let a = &report.legs[0].attempts[0];
    assert_eq!(a.verdict.class, Class::Clean, "{:?}", a.verdict);
    assert!(a.exit.timed_out.is_none() && a.wall_s < 10.0, "{a:?}");
    let raw = std::fs::read_to_string(run.join("attempts/001-a-r1/output.raw")).unwrap();
    assert_eq!(raw, "went on\n");
}

/// The harness is killed with SIGKILL just before and just after each record of its journal, and resumed.
#[test]
fn killed_at_every_step_of_the_journal_it_is_resumed_to_the_full_number() {
    let cases: Vec<String> = (1..=10)
        .flat_map(|n| [format!("{n}-"), format!("{n}+")])
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let fell = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(at) =
                    cases.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
                {
                    let killed = killed_and_resumed(at);
                    fell.fetch_add(usize::from(killed), std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    // Begin, staged, two attempts of three records each, end: before and after each of them.
    assert_eq!(fell.into_inner(), 18);
}

fn killed_and_resumed(at: &str) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let bench = Bench::new();
    bench.write(
        "set.yaml",
        "name: t\nrepeat: 2\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
    );
    let first = bench
        .legwork(&["run", "set.yaml", "--out", "runs", "--archive", "archive"])
        .env("LEGWORK_KILL_AT", at)
        .output()
        .unwrap();
    if first.status.signal() != Some(9) {
        assert_eq!(first.status.code(), Some(0), "{at}: {first:?}");
        return false;
    }
    let run = bench.newest_run().unwrap();
    let resumed = bench.call(&["resume", run.to_str().unwrap(), "--archive", "archive"]);
    if at == "1-" {
        resumed.expect_code(2); // nothing was written: there is nothing to go on with
        return true;
    }
    if at == "9+" {
        resumed.expect_code(2); // it had ended
    } else {
        assert!([0, 14].contains(&resumed.code), "{at}: {}", resumed.said());
    }
    let report = resumed.report();
    let clean = report.legs[0]
        .attempts
        .iter()
        .filter(|a| a.verdict.class == Class::Clean)
        .count();
    assert_eq!(clean, 2, "{at}: {}", resumed.said());
    assert!(!run.join(".reserve").exists(), "{at}");
    if at != "9+" {
        // Every file has its right sum, and the archive holds the same.
        let sums = std::fs::read_to_string(run.join("SHA256SUMS")).unwrap();
        let kept = bench.path().join("archive").join(run.file_name().unwrap());
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let (got, _) = legwork::stage::sha256_file(&run.join(name)).unwrap();
            assert!(got == sum || name == "journal.jsonl", "{at}: {name}");
            if name.ends_with("output.raw") && !name.contains("-r1-") {
                assert!(kept.join(name).is_file(), "{at}: {name} is not archived");
            }
        }
    }
    true
}

/// A reboot in the middle: the boot id in the journal is another one than now.
#[test]
fn an_attempt_that_a_reboot_cut_is_judged_by_what_the_next_boot_found() {
    let bench = Bench::new();
    let mut child = start(&bench, &set(bench.path()));
    wait_for("the second attempt", || pids(bench.path()).len() == 2);
    wait_for("its output", || {
        let run = bench.newest_run().unwrap();
        std::fs::metadata(run.join("attempts/002-a-r2/output.raw")).is_ok_and(|m| m.len() > 0)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let run = bench.newest_run().unwrap();
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let now = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let before = journal.replace(now.trim(), "00000000-0000-4000-8000-000000000001");
    assert_ne!(journal, before);
    std::fs::write(run.join("journal.jsonl"), before).unwrap();
    let panic = "Panic#1 Part1\n<1>[ 9999999.1] BUG: unable to handle page fault for address: ffff8000\n<0>[ 9999999.2] Kernel panic - not syncing: Fatal exception\n";
    let flood = "[    0.404120] x86/amd: Previous system reset reason [0x08000800]: an uncorrected error caused a data fabric sync flood event\n";
    let running = "[ 9999998.0] host systemd[1]: Started something\n";
    let stopped = "[ 9999998.0] host systemd-journald[3]: Journal stopped\n";
    for (name, files, class, kind) in [
        (
            "panic",
            vec![
                ("sys/fs/pstore/dmesg-efi-1", panic),
                ("journal.previous.log", running),
            ],
            Class::Board,
            "host-reset",
        ),
        (
            "flood",
            vec![("kernel.boot.log", flood)],
            Class::Board,
            "mce",
        ),
        (
            "orderly",
            vec![("journal.previous.log", stopped)],
            Class::Infra,
            "external-reset",
        ),
        (
            "unknown",
            vec![("journal.previous.log", running)],
            Class::Inconclusive,
            "host-reset",
        ),
    ] {
        let board = bench.path().join(format!("board-{name}"));
        for (path, text) in files {
            let path = board.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let copy = bench.path().join(format!("run-{name}"));
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .arg(&run)
            .arg(&copy)
            .status();
        assert!(copied.unwrap().success());
        let args = [
            "resume",
            copy.to_str().unwrap(),
            "--sysroot",
            board.to_str().unwrap(),
        ];
        let out = bench.legwork(&args).output().unwrap();
        let text = std::fs::read(copy.join("report.json")).unwrap();
        let report: legwork_reports::model::Report = serde_json::from_slice(&text).unwrap();
        let lost = report.legs[0].attempts.iter().find(|a| a.n == 2).unwrap();
        assert_eq!(
            (lost.verdict.class, lost.verdict.kind.as_str()),
            (class, kind),
            "{name}: {:?}\n{}",
            lost.verdict,
            String::from_utf8_lossy(&out.stderr)
        );
        let folder = copy.join("attempts/002-a-r2");
        assert!(folder.join("kernel.reset.log").is_file(), "{name}");
        if name == "panic" {
            assert!(folder.join("pstore/dmesg-efi-1").is_file());
            let decides = lost.verdict.evidence.iter().any(|e| {
                e.source == "kernel.reset.log" && e.role == legwork_reports::model::Role::Decides
            });
            assert!(decides, "{:?}", lost.verdict.evidence);
        }
        assert!(
            lost.output_bytes.is_some_and(|b| b > 0),
            "{name}: its output is kept"
        );
    }
}
