//! What a board leaves after a fault: the driver's device core dumps, ROCr's GPU core files, what pstore kept of a
//! kernel that died, and the previous boot's kernel log after a reboot.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::gpu;
use crate::os::helper;
use crate::os::root::Root;
use crate::supervise::spec::CollectorNote;

/// Largest device core dump that is kept.
const DUMP_CAP: u64 = 256 << 20;

/// The variable that sends ROCr's GPU core dumps into the attempt's folder; added to the leg's environment unless it
/// sets its own. ROCr writes one only with CWSR on and a core limit above zero.
#[must_use]
pub fn gpu_core_env(dir: &Path) -> (String, String) {
    (
        "HSA_COREDUMP_PATTERN".into(),
        dir.join("gpucore.%p").to_string_lossy().into_owned(),
    )
}

/// Device core dumps that are there now: they are listed before an attempt, so that an old one is not taken for new.
#[must_use]
pub fn device_dumps(root: &Root) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = gpu::cards(root)
        .into_iter()
        .map(|c| c.device.join("devcoredump/data"))
        .filter(|p| root.exists(p))
        .collect();
    if out.is_empty() && root.exists("/sys/class/devcoredump") {
        out.extend(
            root.list("/sys/class/devcoredump")
                .into_iter()
                .filter(|n| n.starts_with("devcd"))
                .map(|n| PathBuf::from("/sys/class/devcoredump").join(n).join("data"))
                .filter(|p| root.exists(p)),
        );
    }
    out
}

/// Keeps new device core dumps: they expire five minutes after the fault, so they are read at once.
pub fn keep_device_dumps(
    root: &Root,
    dir: &Path,
    before: &[PathBuf],
    notes: &mut Vec<CollectorNote>,
) {
    for (i, p) in device_dumps(root)
        .iter()
        .filter(|p| !before.contains(p))
        .enumerate()
    {
        let name = format!("devcoredump.{i}.zst");
        let kept = compress(&root.resolve(p), &dir.join(&name));
        notes.push(CollectorNote {
            name: "devcoredump".into(),
            ok: kept.is_ok(),
            note: match kept {
                Ok(n) => format!("{}: {n} bytes in {name}", p.display()),
                Err(e) => format!("{}: {e}", p.display()),
            },
        });
    }
}

fn compress(from: &Path, to: &Path) -> io::Result<u64> {
    let mut z = zstd::Encoder::new(File::create_new(to)?, 3)?;
    let n = io::copy(&mut File::open(from)?.take(DUMP_CAP), &mut z)?;
    z.finish()?.flush()?;
    Ok(n)
}

/// Moves GPU core files that a leg left in its working directory beside those in the attempt's folder.
pub fn keep_gpu_cores(dir: &Path, cwd: &Path, since: SystemTime, notes: &mut Vec<CollectorNote>) {
    let is_gpu_core =
        |n: &str| n.starts_with("gpucore.") || n.starts_with("core") && n.ends_with(".gpu");
    if cwd != dir
        && let Ok(list) = fs::read_dir(cwd)
    {
        for e in list.flatten() {
            let name = e.file_name();
            let fresh = e
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t + Duration::from_secs(1) >= since);
            if name.to_str().is_some_and(is_gpu_core) && fresh {
                let to = dir.join(&name);
                if fs::rename(e.path(), &to).is_err() && fs::copy(e.path(), &to).is_ok() {
                    let _ = fs::remove_file(e.path());
                }
            }
        }
    }
    for e in fs::read_dir(dir).into_iter().flatten().flatten() {
        if e.file_name().to_str().is_some_and(is_gpu_core) {
            let n = e.metadata().map_or(0, |m| m.len());
            notes.push(CollectorNote {
                name: "gpu-core".into(),
                ok: n > 0,
                note: format!(
                    "{}: {n} bytes (open with rocgdb)",
                    e.file_name().to_string_lossy()
                ),
            });
        }
    }
}

/// After a reboot in the middle of an attempt: keeps what pstore and the journal hold of the kernel that died.
/// Writes `pstore/` and `kernel.previous.log` into the attempt's folder.
pub fn keep_previous_boot(root: &Root, dir: &Path) -> Vec<CollectorNote> {
    let mut notes = Vec::new();
    let mut files = Vec::new();
    for place in ["/sys/fs/pstore", "/var/lib/systemd/pstore"] {
        if root.exists(place) {
            files.extend(
                root.list(place)
                    .into_iter()
                    .map(|n| PathBuf::from(place).join(n)),
            );
        }
    }
    let mut kept = 0;
    for f in &files {
        if let (Some(b), Some(name)) = (root.read(f, 16 << 20), f.file_name()) {
            let ok = fs::create_dir_all(dir.join("pstore"))
                .and_then(|()| fs::write(dir.join("pstore").join(name), b));
            kept += usize::from(ok.is_ok());
        }
    }
    notes.push(CollectorNote {
        name: "pstore".into(),
        ok: kept > 0,
        note: if kept > 0 {
            format!("{kept} file(s)")
        } else {
            "pstore holds nothing".into()
        },
    });
    if root.is_fake() {
        return notes;
    }
    let log = helper::find("journalctl").and_then(|j| {
        let mut c = Command::new(j);
        c.args([
            "-k",
            "-b",
            "-1",
            "-o",
            "short-monotonic",
            "--no-pager",
            "-q",
            "-n",
            "5000",
        ]);
        helper::run_bounded(c, Duration::from_secs(20), 16 << 20)
            .ok()
            .filter(|o| o.success && !o.output.is_empty())
    });
    let (ok, note) = match log {
        Some(o) => (
            fs::write(dir.join("kernel.previous.log"), &o.output).is_ok(),
            format!("{} bytes in kernel.previous.log", o.output.len()),
        ),
        None => (false, "no journal of the previous boot (mend: mkdir -p /var/log/journal, then restart journald)".into()),
    };
    notes.push(CollectorNote {
        name: "previous-kernel-log".into(),
        ok,
        note,
    });
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(p: &Path, t: &str) {
        fs::create_dir_all(p.parent().unwrap()).unwrap();
        fs::write(p, t).unwrap();
    }

    #[test]
    fn a_new_device_dump_is_kept_and_an_old_one_is_not() {
        let d = tempfile::tempdir().unwrap();
        let dev = d.path().join("sys/class/drm/card0/device");
        write(&dev.join("vendor"), "0x1002\n");
        write(&dev.join("uevent"), "PCI_SLOT_NAME=0000:c5:00.0\n");
        let root = Root::new(Some(d.path()));
        let before = device_dumps(&root);
        assert!(before.is_empty());
        write(&dev.join("devcoredump/data"), "ring timeout state");
        let out = tempfile::tempdir().unwrap();
        let mut notes = Vec::new();
        keep_device_dumps(&root, out.path(), &before, &mut notes);
        assert!(
            notes[0].ok && notes[0].note.contains("18 bytes"),
            "{notes:?}"
        );
        let back =
            zstd::decode_all(File::open(out.path().join("devcoredump.0.zst")).unwrap()).unwrap();
        assert_eq!(back, b"ring timeout state");
        notes.clear();
        keep_device_dumps(&root, out.path(), &device_dumps(&root), &mut notes);
        assert!(notes.is_empty());
    }

    #[test]
    fn gpu_cores_are_taken_out_of_the_working_directory() {
        let (dir, cwd) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let since = SystemTime::now();
        for n in ["gpucore.12", "core.12.gpu", "corelation.txt"] {
            fs::write(cwd.path().join(n), "x").unwrap();
        }
        let mut notes = Vec::new();
        keep_gpu_cores(dir.path(), cwd.path(), since, &mut notes);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(fs::read_dir(cwd.path()).unwrap().count(), 1);
    }

    #[test]
    fn pstore_is_copied() {
        let (d, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(&d.path().join("sys/fs/pstore/dmesg-efi-1"), "Panic#1");
        let notes = keep_previous_boot(&Root::new(Some(d.path())), out.path());
        assert!(notes[0].ok);
        assert_eq!(
            fs::read_to_string(out.path().join("pstore/dmesg-efi-1")).unwrap(),
            "Panic#1"
        );
    }
}
