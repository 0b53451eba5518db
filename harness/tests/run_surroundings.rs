//! Surroundings that fail under a run: a share whose server dies or stops, a disk that fills up, a user without rights.

#![allow(clippy::unwrap_used)] // tests, though no test harness says so

#[path = "common/mod.rs"]
mod common;
#[path = "helpers/runner.rs"]
mod runner;
#[path = "helpers/share.rs"]
mod share;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Bench, Ran};
use legwork_reports::model::Class;
use share::Share;

fn main() {
    share::serve_if_asked();
    std::process::exit(runner::main(&[
        (
            "a_share_that_dies_under_a_leg_is_infra_and_loses_nothing_else",
            a_share_that_dies_under_a_leg_is_infra_and_loses_nothing_else,
        ),
        (
            "a_share_that_stops_answering_holds_nobody",
            a_share_that_stops_answering_holds_nobody,
        ),
        (
            "a_reader_beyond_sigkill_is_named_and_left",
            a_reader_beyond_sigkill_is_named_and_left,
        ),
        (
            "a_model_whose_share_dies_while_it_is_mapped",
            a_model_whose_share_dies_while_it_is_mapped,
        ),
        (
            "an_archive_that_dies_costs_only_the_archive",
            an_archive_that_dies_costs_only_the_archive,
        ),
        (
            "a_disk_that_fills_up_ends_the_leg_and_not_the_report",
            a_disk_that_fills_up_ends_the_leg_and_not_the_report,
        ),
        (
            "an_ordinary_user_gets_a_run_and_hears_what_is_missing",
            an_ordinary_user_gets_a_run_and_hears_what_is_missing,
        ),
    ]));
}

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

/// A share, or the reason that there is none.
fn shared(bench: &Bench) -> Option<Share> {
    match Share::mount(bench.path()) {
        Ok(s) => Some(s),
        Err(e) => {
            runner::skip(&format!("no FUSE here: {e}"));
            None
        }
    }
}

/// A run with little patience, in the background.
fn start(bench: &Bench, text: &str, extra: &[&str]) -> Child {
    bench.write("set.yaml", text);
    let args: Vec<&str> = ["run", "set.yaml", "--out", "runs"]
        .into_iter()
        .chain(extra.iter().copied())
        .collect();
    bench
        .legwork(&args)
        .env("LEGWORK_PATIENCE_S", "3")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn run(bench: &Bench, text: &str, extra: &[&str]) -> Ran {
    let child = start(bench, text, extra);
    bench.ran(child.wait_with_output().unwrap())
}

fn output_of(bench: &Bench, attempt: &str) -> String {
    bench
        .newest_run()
        .and_then(|r| {
            std::fs::read_to_string(r.join("attempts").join(attempt).join("output.raw")).ok()
        })
        .unwrap_or_default()
}

fn a_share_that_dies_under_a_leg_is_infra_and_loses_nothing_else() {
    let bench = Bench::new();
    let Some(mut share) = shared(&bench) else {
        return;
    };
    let at = share.point.display().to_string();
    std::fs::write(share.behind.join("data"), "x".repeat(10_000)).unwrap();
    // The script itself lies on the share, too.
    std::fs::write(
        share.behind.join("job.sh"),
        format!(
            "#!/bin/sh\nwhile cat {at}/data >/dev/null; do echo read; sleep 0.05; done\nexit 3\n"
        ),
    )
    .unwrap();
    let text = format!(
        "name: t\norder: sequential\nlegs:\n  - {{name: a, script: {at}/job.sh, args: [{at}/data], timeout: {{total: 60s, grace: 1s}}}}\n  - {{name: b, command: [/bin/echo, unharmed]}}\n"
    );
    let child = start(&bench, &text, &["--archive", &format!("{at}/archive")]);
    wait_for("the leg reads", || {
        output_of(&bench, "001-a-r1").contains("read\nread")
    });
    share.kill();
    let ran = bench.ran(child.wait_with_output().unwrap());
    ran.expect_code(14);
    let report = ran.report();
    let a = &report.legs[0].attempts[0];
    assert_eq!(
        (a.exit.code, a.verdict.class, a.verdict.kind.as_str()),
        (Some(3), Class::Infra, "share-lost"),
        "{:?}",
        a.verdict
    );
    assert!(
        a.verdict
            .evidence
            .iter()
            .any(|e| e.source == "share" && e.text.contains("not connected")),
        "{:?}",
        a.verdict.evidence
    );
    assert_eq!(report.legs[1].attempts[0].verdict.class, Class::Clean);
    assert!(
        report.warnings.iter().any(|w| w.contains("not archived")),
        "{:?}",
        report.warnings
    );
    assert!(ran.dir().join("report.md").is_file() && ran.dir().join("SHA256SUMS").is_file());
}

fn a_share_that_stops_answering_holds_nobody() {
    let bench = Bench::new();
    let Some(share) = shared(&bench) else {
        return;
    };
    let at = share.point.display().to_string();
    std::fs::write(share.behind.join("data"), "x".repeat(10_000)).unwrap();
    let text = format!(
        "name: t\norder: sequential\nlegs:\n  - {{name: a, timeout: {{total: 3s, grace: 500ms}}, command: [/bin/sh, -c, 'while cat {at}/data >/dev/null; do echo read; sleep 0.05; done']}}\n  - {{name: b, command: [/bin/echo, unharmed]}}\n"
    );
    let begun = Instant::now();
    let child = start(&bench, &text, &["--archive", &format!("{at}/archive")]);
    wait_for("the leg reads", || {
        output_of(&bench, "001-a-r1").contains("read\nread")
    });
    share.stop();
    let ran = bench.ran(child.wait_with_output().unwrap());
    ran.expect_code(14);
    let report = ran.report();
    let a = &report.legs[0].attempts[0];
    assert_eq!(
        (a.verdict.class, a.verdict.kind.as_str()),
        (Class::Infra, "share-lost"),
        "{:?}",
        a.verdict
    );
    assert!(a.exit.timed_out.is_some());
    assert_eq!(report.legs[1].attempts[0].verdict.class, Class::Clean);
    let lost = report.warnings.iter().find(|w| w.contains("not archived"));
    assert!(
        lost.is_some_and(|w| w.contains("no answer within")),
        "{:?}",
        report.warnings
    );
    assert!(
        begun.elapsed() < Duration::from_secs(90),
        "it waited for the share"
    );
}

fn a_reader_beyond_sigkill_is_named_and_left() {
    let bench = Bench::new();
    let Some(mut share) = shared(&bench) else {
        return;
    };
    let at = share.point.display().to_string();
    std::fs::write(share.behind.join("weights"), "x".repeat(1 << 20)).unwrap();
    share.order("wedge weights");
    let text = format!(
        "name: t\norder: sequential\nlegs:\n  - {{name: a, timeout: {{total: 1s, grace: 500ms}}, command: [/bin/cat, {at}/weights]}}\n  - {{name: b, command: [/bin/echo, unharmed]}}\n"
    );
    let ran = run(&bench, &text, &[]);
    ran.expect_code(14);
    let report = ran.report();
    let a = &report.legs[0].attempts[0];
    assert_eq!(
        (a.verdict.class, a.verdict.kind.as_str()),
        (Class::Infra, "share-lost"),
        "{:?}",
        a.verdict
    );
    assert_eq!(
        (a.exit.code, a.exit.signal),
        (None, None),
        "its end was not seen"
    );
    let said = format!("{:?} {:?}", a.verdict.evidence, a.verdict.warnings);
    assert!(said.contains("alive after SIGKILL"), "{said}");
    assert_eq!(report.legs[1].attempts[0].verdict.class, Class::Clean);
    let stacks = ran.dir().join("attempts/001-a-r1/stacks.txt");
    assert!(std::fs::read_to_string(stacks).unwrap().contains("state D"));
    share.kill(); // frees it
}

fn a_model_whose_share_dies_while_it_is_mapped() {
    let bench = Bench::new();
    let Some(share) = shared(&bench) else {
        return;
    };
    let at = share.point.display().to_string();
    let model = share.behind.join("m.gguf");
    let made = bench
        .legwork(&[
            "engine",
            "synth",
            model.to_str().unwrap(),
            "--preset",
            "mini",
            "-q",
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    // Armed by the first leg: until then the model is staged and hashed.
    let text = format!(
        "name: t\norder: sequential\nlegs:\n  - {{name: arm, command: [/bin/sh, -c, 'echo armed; echo die m.gguf 2000000 > {}/.mode']}}\n  - {{name: engine, timeout: {{total: 60s, grace: 1s}}, engine: {{model: {at}/m.gguf, prompt: x, max_tokens: 2, device: cpu}}}}\n  - {{name: again, engine: {{model: {at}/m.gguf, prompt: x, max_tokens: 2, device: cpu}}}}\n",
        share.behind.display()
    );
    let ran = run(&bench, &text, &[]);
    ran.expect_code(14);
    let report = ran.report();
    for leg in &report.legs[1..] {
        let v = &leg.attempts[0].verdict;
        assert_eq!(
            (v.class, v.kind.as_str()),
            (Class::Infra, "share-lost"),
            "{}: {v:?} {:?}",
            leg.name,
            leg.attempts[0].exit
        );
    }
    let fell = &report.legs[1].attempts[0];
    assert!(
        fell.output_bytes.is_some() && fell.exit.code != Some(0),
        "it ran and fell: {fell:?}"
    );
    let again = &report.legs[2].attempts[0];
    assert_eq!(again.output_bytes, None, "it was not begun: {again:?}");
}

fn an_archive_that_dies_costs_only_the_archive() {
    let bench = Bench::new();
    let Some(share) = shared(&bench) else {
        return;
    };
    let archive = share.point.join("archive").display().to_string();
    let text = format!(
        "name: t\norder: sequential\nlegs:\n  - {{name: a, command: [/bin/echo, one]}}\n  - {{name: b, command: [/bin/sh, -c, 'echo two; kill -9 {}']}}\n  - {{name: c, command: [/bin/echo, three]}}\n",
        share.pid()
    );
    let ran = run(&bench, &text, &["--archive", &archive]);
    ran.expect_code(0);
    let report = ran.report();
    let not: Vec<&String> = report
        .warnings
        .iter()
        .filter(|w| w.contains("is not archived"))
        .collect();
    assert!(
        not.iter().any(|w| w.starts_with("attempt 2 "))
            && !not.iter().any(|w| w.starts_with("attempt 1 ")),
        "{not:?}"
    );
    let kept = share
        .behind
        .join("archive")
        .join(ran.dir().file_name().unwrap());
    assert_eq!(
        std::fs::read_to_string(kept.join("attempts/001-a-r1/output.raw")).unwrap(),
        "one\n"
    );
    assert!(ran.dir().join("attempts/003-c-r1/output.raw").is_file());
}

/// A small file system of its own; `None` where that is not permitted.
fn small_disk(at: &Path, options: &str) -> Option<Unmount> {
    std::fs::create_dir_all(at).unwrap();
    let c = |s: &str| std::ffi::CString::new(s).unwrap();
    let (src, tgt, fs, opt) = (
        c("legwork"),
        c(at.to_str().unwrap()),
        c("tmpfs"),
        c(options),
    );
    // SAFETY: four C strings that live through the call.
    let rc = unsafe {
        libc::mount(
            src.as_ptr(),
            tgt.as_ptr(),
            fs.as_ptr(),
            0,
            opt.as_ptr().cast(),
        )
    };
    (rc == 0).then(|| Unmount(tgt))
}

struct Unmount(std::ffi::CString);
impl Drop for Unmount {
    fn drop(&mut self) {
        // SAFETY: a C string that lives through the call.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

fn a_disk_that_fills_up_ends_the_leg_and_not_the_report() {
    let bench = Bench::new();
    let disk = bench.path().join("runs");
    let Some(_mounted) = small_disk(&disk, "size=64m") else {
        return runner::skip("a small file system cannot be mounted here");
    };
    // Fills at some 20 MB/s and would go on for long when full.
    let text = format!(
        "name: t\norder: sequential\nlegs:\n  - {{name: a, timeout: {{total: 60s, grace: 1s}}, command: [/bin/sh, -c, 'echo filling; i=0; while :; do head -c 1000000 /dev/zero >> {0}/0filler; sleep 0.05; done']}}\n  - {{name: b, command: [/bin/echo, x]}}\n",
        disk.display()
    );
    let ran = run(&bench, &text, &[]);
    ran.expect_code(14);
    let report = ran.report();
    let a = &report.legs[0].attempts[0];
    assert_eq!(
        (a.verdict.class, a.verdict.kind.as_str()),
        (Class::Infra, "disk-full"),
        "{:?}",
        a.verdict
    );
    assert!(a.wall_s < 50.0, "long before its deadline");
    // The disk is still low: the next one is not begun, and that is no fault of its own.
    let b = &report.legs[1].attempts[0];
    assert_eq!(
        (b.verdict.class, b.verdict.kind.as_str(), b.exit.code),
        (Class::Infra, "disk-full", None),
        "{:?}",
        b.verdict
    );
    for f in ["report.md", "report.html", "junit.xml", "SHA256SUMS"] {
        assert!(ran.dir().join(f).is_file(), "{f}");
    }
    assert!(!ran.dir().join(".reserve").exists());
}

fn an_ordinary_user_gets_a_run_and_hears_what_is_missing() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::geteuid().is_root() {
        return runner::skip("needs root to become somebody else");
    }
    let bench = Bench::new();
    let open =
        |p: &Path| std::fs::set_permissions(p, std::fs::Permissions::from_mode(0o777)).unwrap();
    open(bench.path());
    let exe = bench.path().join("legwork");
    std::fs::copy(env!("CARGO_BIN_EXE_legwork"), &exe).unwrap();
    let nobody = |args: &[&str]| {
        let mut c = std::process::Command::new("setpriv");
        c.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
        ])
        .arg(&exe)
        .args(args)
        .current_dir(bench.path())
        .env_clear()
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", bench.path().join("bin").display()),
        )
        .env("HOME", bench.path())
        .env("LEGWORK_STATE_DIR", bench.path().join("state"));
        match c.output() {
            Ok(o) => Some(o),
            Err(e) => {
                runner::skip(&format!("setpriv: {e}"));
                None
            }
        }
    };
    let Some(out) = nobody(&["run", "smoke", "--out", "runs"]) else {
        return;
    };
    let ran = bench.ran(out);
    ran.expect_code(0);
    let report = ran.report();
    let said: String = report
        .legs
        .iter()
        .flat_map(|l| &l.attempts)
        .flat_map(|a| a.verdict.warnings.iter().cloned())
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        !said.contains("could not be removed") && !said.contains("did not end"),
        "{said}"
    );
    let run = ran.dir().join("attempts");
    let first = std::fs::read_dir(run)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    let context = std::fs::read_to_string(first.join("context.yaml")).unwrap();
    assert!(context.contains("kernel_log"), "{context}");
    // The kernel's log is asked from whoever may read it: here a journalctl of our own that knows one line of now.
    let tool = |name: &str, script: &str| {
        let p = bench.path().join("bin").join(name);
        std::fs::create_dir_all(p.parent().unwrap()).unwrap();
        std::fs::write(&p, format!("#!/bin/sh\n{script}\n")).unwrap();
        open(&p);
    };
    let now = "echo \"[$(cut -d' ' -f1 /proc/uptime)] host kernel: amdgpu said something\"";
    if std::fs::read_to_string("/proc/sys/kernel/dmesg_restrict").is_ok_and(|t| t.trim() == "1") {
        for (journalctl, dmesg, source) in [
            (now, "exit 1", "journalctl"),
            ("exit 1", now, "dmesg"),
            ("exit 1", "exit 1", "none"),
        ] {
            tool("journalctl", journalctl);
            tool("dmesg", dmesg);
            bench.write(
                "one.yaml",
                "name: t\nlegs: [{name: a, command: [/bin/echo, x]}]\n",
            );
            let ran = bench.ran(nobody(&["run", "one.yaml", "--out", "runs"]).unwrap());
            ran.expect_code(0);
            let a = ran.dir().join("attempts/001-a-r1");
            let context = std::fs::read_to_string(a.join("context.yaml")).unwrap();
            assert!(context.contains(&format!("source: {source}")), "{context}");
            let log = std::fs::read_to_string(a.join("kernel.log")).unwrap();
            assert_eq!(
                log.contains("amdgpu said something"),
                source != "none",
                "{log}"
            );
            let warned = &ran.report().legs[0].attempts[0].verdict.warnings;
            assert!(
                warned.iter().any(|w| w.contains("/dev/kmsg")),
                "it says what it had to do without: {warned:?}"
            );
        }
    } else {
        runner::skip("everybody may read the kernel's log here");
    }
    // A crash of the leader is seen all the same, a leak is ended, and the doctor names what is missing.
    bench.write(
        "crash.yaml",
        "name: t\nlegs:\n  - {name: a, command: [/bin/sh, -c, 'echo x; kill -SEGV $$']}\n  - {name: b, command: [/bin/sh, -c, 'echo y; (trap \"\" HUP; sleep 300) & exit 0']}\n",
    );
    let Some(out) = nobody(&["run", "crash.yaml", "--out", "runs"]) else {
        return;
    };
    let ran = bench.ran(out);
    let report = ran.report();
    assert_eq!(
        report.legs[0].attempts[0].exit.signal,
        Some(11),
        "{}",
        ran.said()
    );
    assert_eq!(report.legs[1].attempts[0].leaks.len(), 1, "{}", ran.said());
    let doctor = nobody(&["doctor", "--out", "runs"]).unwrap();
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        text.contains("process events") && text.contains("mend:"),
        "{text} {}",
        String::from_utf8_lossy(&doctor.stderr)
    );
}
