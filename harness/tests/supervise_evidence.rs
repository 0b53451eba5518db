//! Evidence beside an attempt: the kernel's log inside its window, a fake board, memory and disk that run out, a process
//! that cannot be killed, a harness that is killed or stopped.

#![allow(clippy::unwrap_used)] // tests, though no test harness says so

#[path = "helpers/figures.rs"]
mod figures;
#[path = "helpers/fuse.rs"]
mod fuse;
#[path = "helpers/mod.rs"]
mod helpers;
#[path = "helpers/model.rs"]
mod model;
#[path = "helpers/runner.rs"]
mod runner;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use legwork::os::process::is_root;
use legwork::supervise::{AttemptSpec, Control, KillReason, NoControl, Progress, Stop};
use legwork_reports::model::TimedOut;
use model::{Expect, Run, attempt, helper, sh};

fn main() {
    helpers::run_if_asked();
    supervise_if_asked();
    figures::print_if_asked();
    std::process::exit(runner::main(&[
        (
            "kernel_lines_count_only_inside_the_window",
            kernel_lines_count_only_inside_the_window,
        ),
        (
            "a_fake_board_feeds_kernel_log_and_telemetry",
            a_fake_board_feeds_kernel_log_and_telemetry,
        ),
        (
            "an_unknown_access_on_a_fake_board_is_reported",
            an_unknown_access_on_a_fake_board_is_reported,
        ),
        (
            "a_gpu_reset_in_the_kernel_log_ends_a_stalled_leg",
            a_gpu_reset_in_the_kernel_log_ends_a_stalled_leg,
        ),
        (
            "somebody_elses_page_fault_does_not_end_ours",
            somebody_elses_page_fault_does_not_end_ours,
        ),
        (
            "memory_over_its_limit_is_an_oom_of_the_tree",
            memory_over_its_limit_is_an_oom_of_the_tree,
        ),
        (
            "a_full_disk_loses_bytes_but_not_the_attempt",
            a_full_disk_loses_bytes_but_not_the_attempt,
        ),
        (
            "an_unkillable_process_is_a_finding_and_not_a_hang",
            an_unkillable_process_is_a_finding_and_not_a_hang,
        ),
        (
            "a_killed_harness_takes_its_leg_along",
            a_killed_harness_takes_its_leg_along,
        ),
        (
            "what_a_killed_harness_and_guardian_left_is_ended",
            what_a_killed_harness_and_guardian_left_is_ended,
        ),
        ("stopped_time_does_not_count", stopped_time_does_not_count),
        ("suspending_stops_the_tree", suspending_stops_the_tree),
        (
            "telemetry_has_a_row_per_interval",
            telemetry_has_a_row_per_interval,
        ),
        ("a_lease_that_ends_is_named", a_lease_that_ends_is_named),
    ]));
}

/// `BINARY supervise DIR ARGV…`: a harness of its own, to be killed or stopped.
fn supervise_if_asked() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_none_or(|a| a != "supervise") {
        return;
    }
    let dir = Path::new(&args[2]);
    let mut spec = AttemptSpec::new(args[3..].to_vec(), "/".into(), dir.into());
    spec.timeouts.total = Some(Duration::from_secs_f64(4.0));
    spec.timeouts.grace = Duration::from_millis(200);
    spec.dump_on_deadline = false;
    let o = legwork::supervise::run(&spec, &mut NoControl).expect("runs");
    fs::write(
        dir.join("outcome"),
        format!("{:?} {:.3} {:?}", o.exit.code, o.wall_s, o.exit.timed_out),
    )
    .unwrap();
    std::process::exit(0);
}

fn own_harness(dir: &Path, argv: &[String]) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .arg("supervise")
        .arg(dir)
        .args(argv)
        .spawn()
        .unwrap()
}

fn wait_for(what: &str, mut f: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !f() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kmsg(line: &str) -> bool {
    fs::OpenOptions::new()
        .write(true)
        .open("/dev/kmsg")
        .is_ok_and(|mut f| f.write_all(line.as_bytes()).is_ok())
}

fn kernel_lines_count_only_inside_the_window() {
    let tag = format!("legwork-test-{}", std::process::id());
    if !kmsg(&format!("<6>{tag} before\n")) {
        return runner::skip("/dev/kmsg cannot be written here");
    }
    let r = attempt(
        sh(&format!(
            "sleep 0.2; echo '<6>{tag} inside' >/dev/kmsg; sleep 0.2"
        )),
        |_| {},
    );
    assert!(kmsg(&format!("<6>{tag} after\n")));
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    let log = r.read("kernel.log");
    let ours: Vec<&str> = log.lines().filter(|l| l.contains(&tag)).collect();
    assert_eq!(ours.len(), 1, "{log}");
    assert!(ours[0].ends_with(&format!(";{tag} inside")));
    let k = &r.outcome.kernel_log;
    assert!(
        k.source == "kmsg" && k.records >= 1 && k.lost == 0 && k.first_seq.is_some(),
        "{k:?}"
    );
    // The record's own stamp lies inside the attempt.
    let us: u64 = ours[0].split(',').nth(2).unwrap().parse().unwrap();
    assert!(
        us * 1000 + 5_000_000 > r.outcome.start_mono_ns
            && us * 1000 < r.outcome.end_mono_ns + 5_000_000
    );
}

/// A small gfx1151 board of our own making.
fn fake_board(dir: &Path, kernel_log: &str) {
    let put = |p: &str, t: &[u8]| {
        let p = dir.join(p);
        fs::create_dir_all(p.parent().unwrap()).unwrap();
        fs::write(p, t).unwrap();
    };
    let dev = "sys/class/drm/card1/device";
    let mut gm = vec![0xffu8; 264];
    gm[..4].copy_from_slice(&[8, 1, 3, 0]);
    gm[94..96].copy_from_slice(&43_210u16.to_le_bytes());
    gm[228..232].copy_from_slice(&17u32.to_le_bytes());
    put(&format!("{dev}/vendor"), b"0x1002\n");
    put(
        &format!("{dev}/uevent"),
        b"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c5:00.0\n",
    );
    put(&format!("{dev}/gpu_busy_percent"), b"0\n");
    put(&format!("{dev}/mem_info_vram_used"), b"1048576\n");
    put(&format!("{dev}/pp_dpm_sclk"), b"0: 600Mhz\n1: 2900Mhz *\n");
    put(&format!("{dev}/gpu_metrics"), &gm);
    put("dev/kmsg", kernel_log.as_bytes());
    put(
        "proc/meminfo",
        b"MemTotal: 131072000 kB\nMemAvailable: 32000000 kB\n",
    );
    put("proc/loadavg", b"0.10 0.10 0.10 1/300 999\n");
    put(
        "absent.list",
        b"/proc/pressure/\n/sys/class/drm/card1/device/mem_info_gtt_used\n/sys/class/drm/card1/device/pp_dpm_*\n\
          /sys/class/drm/card1/device/hwmon\n/sys/class/drm/card1/device/power_dpm_force_performance_level\n",
    );
}

fn a_fake_board_feeds_kernel_log_and_telemetry() {
    let board = tempfile::tempdir().unwrap();
    fake_board(
        board.path(),
        "6,*,*,-;old news\n@0.1\n6,*,*,-;amdgpu 0000:c5:00.0: amdgpu: hello\n!3\n6,*,*,-;after a gap\n",
    );
    let r = attempt(helper(&["sleep", "0.5"]), |s| {
        s.sysroot = Some(board.path().into());
        s.telemetry_every = Duration::from_millis(100);
    });
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    let k = &r.outcome.kernel_log;
    assert_eq!(
        (k.source.as_str(), k.records, k.lost),
        ("sysroot", 2, 3),
        "{k:?}"
    );
    assert!(!r.read("kernel.log").contains("old news"));
    assert!(
        !r.outcome
            .warnings
            .iter()
            .any(|w| w.contains("unknown access")),
        "{:?}",
        r.outcome.warnings
    );
    let csv = r.read("telemetry.csv");
    let mut rows = csv.lines();
    let head: Vec<&str> = rows.next().unwrap().split(',').collect();
    let first: Vec<&str> = rows.next().unwrap().split(',').collect();
    assert_eq!(head.len(), first.len());
    let cell = |n: &str| first[head.iter().position(|h| *h == n).unwrap()];
    assert_eq!(cell("vram_used_bytes"), "1048576");
    assert_eq!(cell("gtt_used_bytes"), "", "absent is empty, not zero");
    assert_eq!(cell("gpu_busy_pct"), "0", "zero is zero");
    assert_eq!(cell("sclk_mhz"), "2900");
    assert_eq!(cell("gm_dram_read_mb_s"), "43210");
    assert_eq!(cell("gm_dram_write_mb_s"), "");
    assert_eq!(cell("gm_throttle_prochot"), "17");
    assert_eq!(
        cell("mem_available_bytes"),
        (32_000_000u64 * 1024).to_string()
    );
}

fn an_unknown_access_on_a_fake_board_is_reported() {
    let board = tempfile::tempdir().unwrap();
    fake_board(board.path(), "");
    fs::write(board.path().join("absent.list"), "/proc/pressure/\n").unwrap();
    let r = attempt(helper(&["say", "x"]), |s| {
        s.sysroot = Some(board.path().into())
    });
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.contains("unknown access /sys/class/drm/card1/device/mem_info_gtt_used")),
        "{:?}",
        r.outcome.warnings
    );
}

fn a_gpu_reset_in_the_kernel_log_ends_a_stalled_leg() {
    let board = tempfile::tempdir().unwrap();
    fake_board(
        board.path(),
        "@0.3\n3,*,*,-;amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3\n",
    );
    let r = attempt(helper(&["sleep", "120"]), |s| {
        s.sysroot = Some(board.path().into());
        s.timeouts.total = Some(Duration::from_secs(100));
        s.dump_on_deadline = false;
    });
    assert!(
        matches!(&r.outcome.killed_by_us, Some(KillReason::FatalPattern(l)) if l.contains("GPU reset begin")),
        "{:?}",
        r.outcome.killed_by_us
    );
    assert!(r.read("kernel.log").contains("GPU reset begin"));
}

fn somebody_elses_page_fault_does_not_end_ours() {
    let board = tempfile::tempdir().unwrap();
    fake_board(
        board.path(),
        "@0.1\n3,*,*,-;amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)\n\
         3,*,*,-;amdgpu 0000:c5:00.0: amdgpu:  in process other pid 1 thread other pid 1\n",
    );
    let r = attempt(helper(&["sleep", "0.6"]), |s| {
        s.sysroot = Some(board.path().into())
    });
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
    assert_eq!(r.outcome.killed_by_us, None);
    assert_eq!(r.outcome.kernel_log.records, 2);
}

fn memory_over_its_limit_is_an_oom_of_the_tree() {
    let r = attempt(helper(&["eat-memory", "400"]), |s| {
        s.memory_max = Some(100 << 20);
        s.core = legwork::supervise::CorePolicy::Off;
    });
    if r.outcome
        .warnings
        .iter()
        .any(|w| w.contains("not in force"))
    {
        return runner::skip("no memory controller can be used here");
    }
    r.expect(Expect {
        signal: Some(libc::SIGKILL),
        ..Expect::default()
    });
    assert_eq!(r.outcome.killed_by_us, None, "it was not us");
    assert!(
        r.outcome
            .warnings
            .iter()
            .any(|w| w.contains("for lack of memory")),
        "{:?}",
        r.outcome.warnings
    );
    let log = r.read("kernel.log");
    assert!(
        r.outcome.kernel_log.source != "kmsg" || log.contains("Memory cgroup out of memory"),
        "{log}"
    );
    assert!(r.outcome.peak_rss_bytes.is_some_and(|b| b < 300 << 20));
}

fn a_full_disk_loses_bytes_but_not_the_attempt() {
    let d = tempfile::tempdir().unwrap();
    let c = |s: &str| std::ffi::CString::new(s).unwrap();
    let (src, tgt, fs_, opt) = (
        c("legwork"),
        c(d.path().to_str().unwrap()),
        c("tmpfs"),
        c("size=1m"),
    );
    // SAFETY: four C strings that live through the call.
    if unsafe {
        libc::mount(
            src.as_ptr(),
            tgt.as_ptr(),
            fs_.as_ptr(),
            0,
            opt.as_ptr().cast(),
        )
    } != 0
    {
        return runner::skip("a small file system cannot be mounted here");
    }
    let dir = d.path().join("attempt");
    fs::create_dir(&dir).unwrap();
    let spec = AttemptSpec::new(
        helper(&["fill-disk", d.path().to_str().unwrap()]),
        "/".into(),
        dir.clone(),
    );
    let o = legwork::supervise::run(&spec, &mut NoControl);
    let kept = fs::read(dir.join("output.raw")).unwrap_or_default();
    // SAFETY: a C string that lives through the call.
    unsafe { libc::umount2(tgt.as_ptr(), libc::MNT_DETACH) };
    let o = o.expect("the attempt runs");
    assert_eq!(o.exit.code, Some(0));
    assert!(
        o.warnings
            .iter()
            .any(|w| w.contains("output.raw") && w.contains("not on disk")),
        "{:?}",
        o.warnings
    );
    assert!(
        o.output_bytes
            .is_none_or(|b| b > 100_000 && (kept.len() as u64) < b),
        "{:?}",
        o.output_bytes
    );
}

fn an_unkillable_process_is_a_finding_and_not_a_hang() {
    let d = tempfile::tempdir().unwrap();
    let hang = match fuse::Hang::mount(d.path()) {
        Ok(h) => h,
        Err(e) => return runner::skip(&format!("no FUSE here: {e}")),
    };
    let file = d.path().join("weights.gguf");
    let r = attempt(helper(&["read-file", file.to_str().unwrap()]), |s| {
        s.timeouts.total = Some(Duration::from_millis(700));
        s.timeouts.grace = Duration::from_millis(300);
        s.timeouts.unkillable_after = Duration::from_millis(1500);
        s.dump_on_deadline = false;
    });
    let o = &r.outcome;
    assert!(o.unkillable, "{:?} {:?}", o.exit, o.warnings);
    assert_eq!(o.exit.timed_out, Some(TimedOut::Total));
    assert_eq!(
        (o.exit.code, o.exit.signal),
        (None, None),
        "how it will end is not known"
    );
    assert!(
        o.warnings
            .iter()
            .any(|w| w.starts_with("unkillable: pid") && w.contains(" D ")),
        "{:?}",
        o.warnings
    );
    let stacks = r.read("stacks.txt");
    assert!(
        stacks.contains("state D") && stacks.contains("fuse"),
        "{stacks}"
    );
    let pid = o.leader_pid;
    drop(hang); // frees it
    wait_for("the process is gone", || {
        legwork::os::procfs::stat(pid).is_none_or(|s| s.is_zombie())
    });
}

fn leader_of(dir: &Path) -> Option<(i32, i32)> {
    let r: legwork::supervise::leftovers::Running =
        serde_json::from_slice(&fs::read(dir.join("running.json")).ok()?).ok()?;
    Some((r.guardian.0, r.leader.0))
}

fn gone(pid: i32) -> bool {
    legwork::os::procfs::stat(pid).is_none_or(|s| s.is_zombie())
}

fn a_killed_harness_takes_its_leg_along() {
    let d = tempfile::tempdir().unwrap();
    let mut h = own_harness(d.path(), &helper(&["setsid-child", "64"]));
    wait_for("it runs", || leader_of(d.path()).is_some());
    let (guardian, leader) = leader_of(d.path()).unwrap();
    h.kill().unwrap();
    h.wait().unwrap();
    wait_for("the guardian ended the tree", || {
        gone(leader) && gone(guardian)
    });
    assert!(
        d.path().join("output.raw").is_file(),
        "what was captured stays"
    );
    assert!(
        legwork::supervise::leftovers::end(d.path()).is_empty(),
        "nothing was left to kill"
    );
}

fn what_a_killed_harness_and_guardian_left_is_ended() {
    let d = tempfile::tempdir().unwrap();
    let mut h = own_harness(d.path(), &helper(&["ignore-term", "65"]));
    wait_for("it runs", || leader_of(d.path()).is_some());
    let (guardian, leader) = leader_of(d.path()).unwrap();
    // SAFETY: stops, then kills, processes that we started; the guardian must not get to act in between.
    unsafe {
        libc::kill(guardian, libc::SIGKILL);
        libc::kill(i32::try_from(h.id()).unwrap(), libc::SIGKILL);
    }
    h.wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    if !gone(leader) {
        assert!(legwork::supervise::leftovers::end(d.path()).contains(&leader));
    }
    assert!(gone(leader));
    assert!(
        !d.path().join("running.json").exists()
            || legwork::supervise::leftovers::end(d.path()).is_empty()
    );
}

fn stopped_time_does_not_count() {
    let d = tempfile::tempdir().unwrap();
    let mut h = own_harness(d.path(), &helper(&["spin", "6"])); // total deadline 4 s
    wait_for("it runs", || leader_of(d.path()).is_some());
    let pid = i32::try_from(h.id()).unwrap();
    // SAFETY: stops and continues the process that we started.
    unsafe {
        libc::kill(pid, libc::SIGSTOP);
        std::thread::sleep(Duration::from_secs(5));
        libc::kill(pid, libc::SIGCONT);
    }
    h.wait().unwrap();
    let o = fs::read_to_string(d.path().join("outcome")).unwrap();
    assert!(
        o.starts_with("Some(0)"),
        "5 of 6 seconds were stopped, so the 4 s deadline did not strike: {o}"
    );
}

fn suspending_stops_the_tree() {
    struct Once(bool, u32);
    impl Control for Once {
        fn tick(&mut self, _p: &Progress) {
            self.1 += 1;
        }
        fn stop_requested(&self) -> Stop {
            if self.0 && self.1 == 1 {
                Stop::Suspend
            } else {
                Stop::No
            }
        }
    }
    // Somebody has to continue us.
    let me = std::process::id();
    let mut waker = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            &format!("for i in 1 2 3 4 5 6 7 8; do sleep 0.4; kill -CONT {me}; done"),
        ])
        .spawn()
        .unwrap();
    let r = Run::new(helper(&["spin", "1"]), |_| {}).go(&mut Once(true, 0));
    let _ = waker.kill();
    let _ = waker.wait();
    r.expect(Expect {
        code: Some(0),
        ..Expect::default()
    });
}

fn telemetry_has_a_row_per_interval() {
    let r = attempt(helper(&["spin", "0.7"]), |s| {
        s.telemetry_every = Duration::from_millis(100)
    });
    let csv = r.read("telemetry.csv");
    let n = csv.lines().count() - 1;
    assert!((3..=10).contains(&n), "{csv}");
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let last: Vec<&str> = csv.lines().nth(n - 1).unwrap().split(',').collect();
    let cell = |name: &str| last[head.iter().position(|h| *h == name).unwrap()];
    assert!(cell("cpu_s").parse::<f64>().unwrap() > 0.05, "{csv}");
    assert!(cell("rss_bytes").parse::<u64>().unwrap() > 500_000);
    assert!(r.outcome.peak_rss_bytes.is_some_and(|b| b > 500_000));
}

fn a_lease_that_ends_is_named() {
    if !is_root() {
        runner::skip("runs all the same: only process events need root");
    }
    let r = attempt(helper(&["sleep", "60"]), |s| {
        s.timeouts.lease_end_mono_ns = Some(legwork::os::clock::mono_ns() + 400_000_000);
        s.dump_on_deadline = false;
    });
    r.expect(Expect {
        signal: Some(libc::SIGTERM),
        timed_out: Some(TimedOut::Lease),
        ..Expect::default()
    });
}
