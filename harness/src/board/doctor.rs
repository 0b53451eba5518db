//! What this machine can and cannot collect, and the command that mends it.

use std::fs::OpenOptions;
use std::path::Path;

use serde::Serialize;

use super::{lock, quarantine, users};
use crate::evidence::cores::{self, CorePattern};
use crate::evidence::gpu;
use crate::os::cgroup::Cgroup;
use crate::os::proc_events::ProcEvents;
use crate::os::root::Root;
use crate::os::{helper, process};

/// How one check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// It works less well than it could.
    Less,
    /// It does not work.
    Missing,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What is checked.
    pub name: String,
    /// How it came out.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// What goes without it; empty when nothing does.
    pub without: String,
    /// The command, or step, that mends it.
    pub mend: Option<String>,
}

fn row(
    name: &str,
    state: State,
    seen: impl Into<String>,
    without: &str,
    mend: Option<&str>,
) -> Row {
    let bad = state != State::Ok;
    Row {
        name: name.into(),
        state,
        seen: seen.into(),
        without: if bad { without.into() } else { String::new() },
        mend: mend.filter(|_| bad).map(str::to_owned),
    }
}

/// All rows. `runs` is the folder that runs are written to.
#[must_use]
pub fn rows(root: &Root, runs: &Path) -> Vec<Row> {
    let mut out = vec![
        kernel_log(root),
        process_events(),
        control_group(),
        core_pattern(root),
        debugger(),
        free_space(runs),
        file_system(runs),
    ];
    out.extend(board(root));
    out.push(state(root));
    out
}

/// The rows as text for a terminal.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    use std::fmt::Write as _;
    let width = rows.iter().map(|r| r.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for r in rows {
        let mark = match r.state {
            State::Ok => "ok     ",
            State::Less => "less   ",
            State::Missing => "missing",
        };
        let _ = writeln!(out, "{mark}  {:width$}  {}", r.name, r.seen);
        if !r.without.is_empty() {
            let _ = writeln!(out, "         {:width$}  without it: {}", "", r.without);
        }
        if let Some(m) = &r.mend {
            let _ = writeln!(out, "         {:width$}  mend: {m}", "");
        }
    }
    out
}

/// The rows as JSON.
#[must_use]
pub fn json(rows: &[Row]) -> serde_json::Value {
    serde_json::json!({ "schema": "legwork.doctor", "version": "1.0", "rows": rows })
}

fn kernel_log(root: &Root) -> Row {
    let without = "a GPU reset or page fault is seen through the program's own words only";
    match OpenOptions::new()
        .read(true)
        .open(root.resolve("/dev/kmsg"))
    {
        Ok(_) => row("kernel log", State::Ok, "/dev/kmsg is readable", "", None),
        Err(e) => {
            let journal = helper::find("journalctl").is_some();
            row(
                "kernel log",
                if journal { State::Less } else { State::Missing },
                format!(
                    "/dev/kmsg: {e}{}",
                    if journal {
                        "; journalctl is asked instead, without sequence numbers"
                    } else {
                        ""
                    }
                ),
                without,
                Some(
                    "run as root, or: sudo sysctl kernel.dmesg_restrict=0; in a container: --device /dev/kmsg --cap-add SYSLOG",
                ),
            )
        }
    }
}

fn process_events() -> Row {
    match ProcEvents::open() {
        Ok(_) => row(
            "process events",
            State::Ok,
            "every fork and exit is told by the kernel",
            "",
            None,
        ),
        Err(e) => row(
            "process events",
            State::Less,
            e.to_string(),
            "a crash that a shell waits for (`crash | cat`) is known from core files and the kernel log only",
            Some(
                "run as root in the initial network namespace (container: --network host --cap-add NET_ADMIN)",
            ),
        ),
    }
}

fn control_group() -> Row {
    let g = Cgroup::create(&format!("legwork-doctor-{}", std::process::id()), None);
    let (some, notes) = (g.is_some(), g.notes.join("; "));
    let memory = g.memory_peak().is_some();
    if some && memory {
        row(
            "control group",
            State::Ok,
            "own group with a memory account",
            "",
            None,
        )
    } else if some {
        row(
            "control group",
            State::Less,
            "own group, no memory controller",
            "memory limits are not in force; peak memory is sampled",
            Some(
                "enable the memory controller (cgroup v2: echo +memory > cgroup.subtree_control of the parent)",
            ),
        )
    } else {
        row(
            "control group",
            State::Less,
            notes,
            "a tree is ended process by process, by parent, session and process events",
            Some("run as root, or: systemd-run --user --scope -p Delegate=yes legwork …"),
        )
    }
}

fn core_pattern(root: &Root) -> Row {
    let seen = root
        .text("/proc/sys/kernel/core_pattern")
        .unwrap_or_default();
    let mend = Some("sudo sysctl -w kernel.core_pattern=core.%p");
    match cores::pattern(root) {
        Some(CorePattern::File(p)) if p.contains("%p") => {
            row("core files", State::Ok, seen, "", None)
        }
        Some(CorePattern::File(_)) => row(
            "core files",
            State::Ok,
            format!(
                "{seen} (one name for all: each core is taken away as soon as its crash is known)"
            ),
            "",
            None,
        ),
        Some(CorePattern::Pipe(p)) if p.contains("systemd-coredump") => row(
            "core files",
            State::Less,
            seen,
            "cores are copied from systemd's store, which has limits of its own",
            mend,
        ),
        Some(_) => row(
            "core files",
            State::Missing,
            seen,
            "no core and no faulting module of a crash",
            mend,
        ),
        None => row(
            "core files",
            State::Missing,
            "core_pattern cannot be read",
            "no core of a crash",
            None,
        ),
    }
}

fn debugger() -> Row {
    match helper::find("gdb") {
        Some(p) => row("gdb", State::Ok, p.display().to_string(), "", None),
        None => row(
            "gdb",
            State::Less,
            "not found",
            "no backtraces; the faulting module is still read from the core",
            Some("sudo apt-get install gdb"),
        ),
    }
}

fn free_space(runs: &Path) -> Row {
    let at = runs
        .ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"));
    match process::free_bytes(at) {
        Some(b) if b >= 20 << 30 => row(
            "disk",
            State::Ok,
            format!("{} GiB free at {}", b >> 30, at.display()),
            "",
            None,
        ),
        Some(b) => row(
            "disk",
            if b < 1 << 30 {
                State::Missing
            } else {
                State::Less
            },
            format!("{} MiB free at {}", b >> 20, at.display()),
            "cores are bounded to a quarter of the free space; captures may be lost",
            Some("free space, or choose another folder with --out"),
        ),
        None => row(
            "disk",
            State::Missing,
            format!("{} cannot be asked", at.display()),
            "nothing can be written",
            None,
        ),
    }
}

fn file_system(runs: &Path) -> Row {
    let at = runs
        .ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"));
    let fs = super::identity::filesystem_of(at).unwrap_or_default();
    if super::identity::is_network(&fs) {
        row(
            "run folder",
            State::Less,
            format!("{} is on {fs}", at.display()),
            "captures stall when the share does; they belong on a local disk and are archived from there",
            Some("choose a local folder with --out"),
        )
    } else {
        row(
            "run folder",
            State::Ok,
            format!("{} is on {fs}", at.display()),
            "",
            None,
        )
    }
}

fn board(root: &Root) -> Vec<Row> {
    let cards = gpu::cards(root);
    let mut out = Vec::new();
    if !root.exists("/dev/kfd") && cards.is_empty() {
        out.push(row(
            "AMD GPU",
            State::Less,
            "no /dev/kfd and no card",
            "legs run on the CPU; triage has no GPU events to expect",
            Some("container: --device /dev/kfd --device /dev/dri; otherwise: modprobe amdgpu"),
        ));
        return out;
    }
    let kfd = OpenOptions::new()
        .read(true)
        .write(true)
        .open(root.resolve("/dev/kfd"));
    out.push(match kfd {
        Ok(_) => row(
            "AMD GPU",
            State::Ok,
            format!("/dev/kfd can be opened, {} card(s)", cards.len()),
            "",
            None,
        ),
        Err(e) => row(
            "AMD GPU",
            State::Missing,
            format!("/dev/kfd: {e}"),
            "no HIP program can run",
            Some("sudo usermod -aG render,video $USER, then log in again"),
        ),
    });
    let debugfs = "/sys/kernel/debug/dri";
    out.push(if root.exists(debugfs) && !root.list(debugfs).is_empty() {
        row(
            "firmware versions",
            State::Ok,
            "debugfs is readable",
            "",
            None,
        )
    } else {
        row(
            "firmware versions",
            State::Less,
            "debugfs is not readable",
            "the MES version is unknown, so triage cannot rule out a known-bad stack",
            Some("run as root with: mount -t debugfs none /sys/kernel/debug"),
        )
    });
    let metrics = cards
        .first()
        .is_some_and(|c| root.exists(c.device.join("gpu_metrics")));
    out.push(if metrics {
        row("GPU telemetry", State::Ok, "gpu_metrics is there", "", None)
    } else {
        row(
            "GPU telemetry",
            State::Less,
            "no gpu_metrics file",
            "no DRAM traffic and no throttle residencies",
            None,
        )
    });
    let cwsr = "/sys/module/amdgpu/parameters/cwsr_enable";
    if root.exists(cwsr) && root.text(cwsr).is_some_and(|t| t == "0") {
        out.push(row(
            "GPU core dumps",
            State::Missing,
            "amdgpu.cwsr_enable=0",
            "no GPU core dump and no queue preemption",
            Some("boot without amdgpu.cwsr_enable=0 (kernel 6.18.4 or newer, ROCr 7.2.1 or newer)"),
        ));
    }
    out
}

fn state(root: &Root) -> Row {
    let dir = lock::state_dir();
    if let Some(q) = quarantine::active(&dir, "gpu0") {
        return row(
            "board state",
            State::Missing,
            format!(
                "quarantined since {}: {}",
                q.since.format("%F %H:%M UTC"),
                q.reason
            ),
            "no leg may run on this board",
            Some("reboot, or: legwork doctor --clear-quarantine"),
        );
    }
    let others = if root.is_fake() {
        Vec::new()
    } else {
        users::foreign(&[])
    };
    if others.is_empty() {
        return row("board state", State::Ok, "free", "", None);
    }
    let who: Vec<String> = others
        .iter()
        .map(|u| format!("{} ({})", u.pid, u.comm))
        .collect();
    row(
        "board state",
        State::Less,
        format!("in use by {}", who.join(", ")),
        "speed figures are void while others use the GPU",
        Some("end them, or wait"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_that_is_not_ok_says_what_goes_without() {
        let d = tempfile::tempdir().unwrap();
        let rows = rows(&Root::default(), d.path());
        assert!(rows.len() >= 9);
        for r in &rows {
            assert_eq!(r.state == State::Ok, r.without.is_empty(), "{r:?}");
            assert!(r.state != State::Ok || r.mend.is_none());
        }
        let t = text(&rows);
        assert!(t.lines().count() >= rows.len() && t.contains("kernel log"));
        assert_eq!(json(&rows)["rows"].as_array().unwrap().len(), rows.len());
    }
}
