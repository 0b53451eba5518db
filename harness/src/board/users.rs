//! Who else uses the GPU: every process with `/dev/kfd`, a render node or an NVIDIA device open.

use std::collections::BTreeSet;
use std::fs;

use crate::os::procfs;

/// A process that holds a GPU device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuUser {
    /// Its pid.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// The devices that it holds.
    pub devices: Vec<String>,
    /// `RC_JOB_ID` of its environment, where that may be read.
    pub rc_job: Option<String>,
}

/// Lists the users that are not below `ours`. Without root only our own user's processes can be looked into.
#[must_use]
pub fn foreign(ours: &[i32]) -> Vec<GpuUser> {
    let mut out = Vec::new();
    for pid in procfs::all_pids() {
        if ours.contains(&pid) {
            continue;
        }
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        let devices: BTreeSet<String> = fds
            .flatten()
            .filter_map(|e| fs::read_link(e.path()).ok())
            .filter_map(|p| p.to_str().map(str::to_owned))
            .filter(|p| is_gpu(p))
            .collect();
        if devices.is_empty() {
            continue;
        }
        let rc_job = procfs::read_capped(format!("/proc/{pid}/environ"), 1 << 20).and_then(|b| {
            b.split(|&c| c == 0)
                .find_map(|v| v.strip_prefix(b"RC_JOB_ID="))
                .map(|v| String::from_utf8_lossy(v).into_owned())
        });
        out.push(GpuUser {
            pid,
            comm: procfs::comm(pid).unwrap_or_default(),
            devices: devices.into_iter().collect(),
            rc_job,
        });
    }
    out
}

fn is_gpu(path: &str) -> bool {
    path == "/dev/kfd"
        || path.starts_with("/dev/dri/renderD")
        || path
            .strip_prefix("/dev/nvidia")
            .is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()) || r == "-uvm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_devices_are_known() {
        for d in [
            "/dev/kfd",
            "/dev/dri/renderD128",
            "/dev/nvidia0",
            "/dev/nvidia-uvm",
        ] {
            assert!(is_gpu(d), "{d}");
        }
        for d in [
            "/dev/dri/card0",
            "/dev/nvidiactl",
            "/dev/kfd2",
            "socket:[1]",
        ] {
            assert!(!is_gpu(d), "{d}");
        }
    }
}
