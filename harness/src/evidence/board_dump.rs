//! What a board leaves after a fault: the driver's device core dumps and ROCr's GPU core files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::gpu;
use crate::os::root::Root;
use crate::supervise::spec::CollectorNote;
use crate::triage::context::DumpedFault;

/// Bytes of a dump that are searched for a fault: it stands near the beginning.
const DUMP_TEXT: u64 = 4 << 20;
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

/// The page fault that a device core dump remembers, plain or compressed; nothing when it holds none. The driver writes
/// the last fault since it was loaded, so it may be older than the attempt (amdgpu `amdgpu_dev_coredump.c`).
#[must_use]
pub fn dumped_fault(dir: &Path) -> Option<DumpedFault> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|n| n.starts_with("devcoredump"))
        .collect();
    names.sort();
    names.into_iter().find_map(|file| {
        let f = File::open(dir.join(&file)).ok()?;
        let mut bytes = Vec::new();
        if file.ends_with(".zst") {
            zstd::Decoder::new(f)
                .ok()?
                .take(DUMP_TEXT)
                .read_to_end(&mut bytes)
                .ok()?;
        } else {
            f.take(DUMP_TEXT).read_to_end(&mut bytes).ok()?;
        }
        fault_in(&String::from_utf8_lossy(&bytes), &file)
    })
}

fn fault_in(text: &str, file: &str) -> Option<DumpedFault> {
    let at = text.find("Page fault observed")?;
    let lines: Vec<&str> = text[at..].lines().take(4).collect();
    let hex = |label: &str| {
        let l = lines.iter().find(|l| l.contains(label))?;
        u64::from_str_radix(l.rsplit_once("0x")?.1.trim(), 16).ok()
    };
    let address = hex("address");
    let status = hex("status register").and_then(|s| u32::try_from(s).ok());
    // The lines are written without a fault too, all zero.
    if status.unwrap_or(0) == 0 && address.unwrap_or(0) == 0 {
        return None;
    }
    Some(DumpedFault {
        text: lines[..lines.len().min(3)].join("; "),
        address,
        status,
        file: file.to_owned(),
    })
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
        && crate::stage::answers(cwd)
        && let Ok(list) = fs::read_dir(cwd)
    {
        for e in list.flatten() {
            let name = e.file_name();
            if !name.to_str().is_some_and(is_gpu_core) {
                continue; // not asked for more: a share that is mounted here may hang
            }
            let fresh = e
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t + Duration::from_secs(1) >= since);
            if fresh {
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
    fn the_fault_in_a_dump_is_read_and_zeros_are_none() {
        let d = tempfile::tempdir().unwrap();
        let text = |addr: &str, status: &str| {
            format!(
                "**** AMDGPU Device Coredump ****\nversion: 1\n\n[gfxhub] Page fault observed\nFaulty page starting at address: {addr}\nProtection fault status register: {status}\n\n"
            )
        };
        fs::write(
            d.path().join("devcoredump.bin"),
            text("0x0000000000000000", "0x0"),
        )
        .unwrap();
        assert_eq!(dumped_fault(d.path()), None);
        let z = zstd::encode_all(text("0x00007f12345000", "0x801031").as_bytes(), 3).unwrap();
        fs::write(d.path().join("devcoredump.0.zst"), z).unwrap();
        let f = dumped_fault(d.path()).unwrap();
        assert_eq!(
            (f.address, f.status),
            (Some(0x007f_1234_5000), Some(0x0080_1031))
        );
        assert_eq!(f.file, "devcoredump.0.zst");
        assert!(
            f.text.starts_with("Page fault observed; Faulty page"),
            "{}",
            f.text
        );
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
}
