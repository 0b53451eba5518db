//! The identity block: what the run stood on, one fact per dotted name, `null` where it could not be read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{hygiene, libraries};
use crate::evidence::gpu;
use crate::os::process::free_bytes;
use crate::os::procfs::status_field;
use crate::os::root::Root;

/// The block.
pub type Identity = BTreeMap<String, Value>;

/// What the block is to cover besides the machine.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Programs whose files and libraries are hashed, by a name of their own (`legwork`, a leg's name).
    pub programs: Vec<(String, PathBuf)>,
    /// `LD_LIBRARY_PATH` that the programs will see.
    pub ld_library_path: Option<String>,
    /// Model files (all shards).
    pub models: Vec<PathBuf>,
    /// The tree whose git revision counts.
    pub tree: Option<PathBuf>,
    /// The environment that passes to legs.
    pub env: BTreeMap<String, String>,
    /// Folder whose free space counts (the run directory).
    pub disk: Option<PathBuf>,
    /// File that remembers hashes of large files by path, inode, size and time.
    pub hash_cache: Option<PathBuf>,
}

/// Collects the block.
#[must_use]
pub fn block(root: &Root, ask: &Ask) -> Identity {
    let mut id = Identity::new();
    machine(root, &mut id);
    gpus(root, &mut id);
    rocm(root, &mut id);
    if let Some(d) = &ask.disk {
        id.insert("disk.free_bytes".into(), json!(free_bytes(d)));
        id.insert("disk.filesystem".into(), json!(filesystem_of(d)));
    }
    if let Some(t) = &ask.tree {
        git(t, &mut id);
    }
    let mut cache = HashCache::open(ask.hash_cache.as_deref());
    for (name, path) in &ask.programs {
        program(
            name,
            path,
            ask.ld_library_path.as_deref(),
            &mut cache,
            &mut id,
        );
    }
    for (i, path) in ask.models.iter().enumerate() {
        let key = format!("model.{i}");
        id.insert(format!("{key}.path"), json!(path));
        id.insert(
            format!("{key}.bytes"),
            json!(fs::metadata(path).ok().map(|m| m.len())),
        );
        id.insert(format!("{key}.sha256"), json!(cache.sha256(path)));
        id.insert(format!("{key}.filesystem"), json!(filesystem_of(path)));
    }
    cache.save();
    for (k, v) in &ask.env {
        id.insert(format!("env.{k}"), json!(hygiene::masked(k, v)));
    }
    for name in ["RC_JOB_ID", "RC_DEVICE"] {
        id.insert(
            format!("lease.{}", name.to_lowercase()),
            json!(std::env::var(name).ok()),
        );
    }
    id
}

fn put(id: &mut Identity, key: &str, value: impl Into<Value>) {
    id.insert(key.to_owned(), value.into());
}

fn machine(root: &Root, id: &mut Identity) {
    let file = |p: &str| root.text(p).filter(|t| !t.is_empty());
    put(id, "kernel.release", file("/proc/sys/kernel/osrelease"));
    put(id, "kernel.version", file("/proc/sys/kernel/version"));
    put(id, "kernel.cmdline", file("/proc/cmdline"));
    put(id, "host.name", file("/proc/sys/kernel/hostname"));
    put(id, "host.boot_id", file("/proc/sys/kernel/random/boot_id"));
    put(
        id,
        "host.core_pattern",
        file("/proc/sys/kernel/core_pattern"),
    );
    put(
        id,
        "host.uptime_s",
        file("/proc/uptime").and_then(|t| t.split(' ').next().and_then(|s| s.parse::<f64>().ok())),
    );
    put(id, "host.loadavg", file("/proc/loadavg"));
    let os = file("/etc/os-release").unwrap_or_default();
    let os_field = |k: &str| {
        os.lines()
            .find_map(|l| l.strip_prefix(k)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_owned())
    };
    put(id, "os.name", os_field("PRETTY_NAME"));
    put(id, "os.id", os_field("ID"));
    put(id, "os.version", os_field("VERSION_ID"));
    let cpu = root
        .read("/proc/cpuinfo", 4 << 20)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default();
    let cpu_field = |k: &str| {
        cpu.lines().find_map(|l| {
            let (a, b) = l.split_once(':')?;
            (a.trim() == k).then(|| b.trim().to_owned())
        })
    };
    put(id, "cpu.model", cpu_field("model name"));
    let threads = cpu.lines().filter(|l| l.starts_with("processor")).count();
    put(id, "cpu.threads", (threads > 0).then_some(threads));
    put(id, "cpu.microcode", cpu_field("microcode"));
    let flags = cpu_field("flags").or_else(|| cpu_field("Features"));
    let wanted = [
        "avx2",
        "fma",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx_vnni",
        "amx_int8",
        "asimddp",
        "sve",
    ];
    put(
        id,
        "cpu.features",
        flags.map(|f| {
            let have: Vec<&str> = wanted
                .into_iter()
                .filter(|w| f.split(' ').any(|x| x == *w))
                .collect();
            json!(have)
        }),
    );
    put(
        id,
        "cpu.governor",
        root.exists("/sys/devices/system/cpu/cpu0/cpufreq")
            .then(|| file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
            .flatten(),
    );
    let mem = file("/proc/meminfo").unwrap_or_default();
    for (key, field) in [
        ("memory.total_bytes", "MemTotal"),
        ("memory.available_bytes", "MemAvailable"),
        ("memory.swap_total_bytes", "SwapTotal"),
    ] {
        let kb = status_field(&mem, field).and_then(|v| v.split(' ').next()?.parse::<u64>().ok());
        put(id, key, kb.map(|k| k * 1024));
    }
    let limit = |res| {
        // SAFETY: getrlimit fills a struct that lives through the call.
        unsafe {
            let mut r: libc::rlimit = std::mem::zeroed();
            (libc::getrlimit(res, &raw mut r) == 0).then_some(r.rlim_cur)
        }
    };
    for (key, res) in [
        ("limits.memlock_bytes", libc::RLIMIT_MEMLOCK),
        ("limits.core_bytes", libc::RLIMIT_CORE),
        ("limits.open_files", libc::RLIMIT_NOFILE),
    ] {
        let v = limit(res).map(|v| {
            if v == libc::RLIM_INFINITY {
                json!("unlimited")
            } else {
                json!(v)
            }
        });
        put(id, key, v);
    }
    put(id, "limits.shm_bytes", free_bytes(Path::new("/dev/shm")));
}

fn gpus(root: &Root, id: &mut Identity) {
    let cards = gpu::cards(root);
    put(id, "gpu.count", cards.len());
    for (i, c) in cards.iter().enumerate() {
        let key = |k: &str| format!("gpu.{i}.{k}");
        let text = |f: &str| root.text(c.device.join(f)).filter(|t| !t.is_empty());
        let int = |f: &str| root.int(c.device.join(f));
        id.insert(key("pci"), json!(c.pci));
        id.insert(key("device_id"), json!(text("device")));
        id.insert(key("revision"), json!(text("revision")));
        id.insert(key("vbios"), json!(text("vbios_version")));
        for f in [
            "mem_info_vram_total",
            "mem_info_vis_vram_total",
            "mem_info_gtt_total",
        ] {
            id.insert(
                key(&format!("{}_bytes", f.trim_start_matches("mem_info_"))),
                json!(int(f)),
            );
        }
        id.insert(
            key("perf_level"),
            json!(text("power_dpm_force_performance_level")),
        );
        let fw = firmware(root, c);
        for (name, version) in fw {
            id.insert(key(&format!("fw.{name}")), json!(version));
        }
    }
    put(
        id,
        "ttm.pages_limit",
        optional_int(root, "/sys/module/ttm/parameters/pages_limit"),
    );
    put(
        id,
        "ttm.page_pool_size",
        optional_int(root, "/sys/module/ttm/parameters/page_pool_size"),
    );
    for p in [
        "cwsr_enable",
        "gttsize",
        "gpu_recovery",
        "mes",
        "vm_fragment_size",
        "no_system_mem_limit",
    ] {
        let path = format!("/sys/module/amdgpu/parameters/{p}");
        let v = root.exists(&path).then(|| root.text(&path)).flatten();
        put(id, &format!("amdgpu.{p}"), v);
    }
    kfd(root, id);
    put(
        id,
        "nvidia.driver",
        root.exists("/proc/driver/nvidia/version")
            .then(|| {
                root.text("/proc/driver/nvidia/version")
                    .and_then(|t| t.lines().next().map(str::to_owned))
            })
            .flatten(),
    );
}

fn optional_int(root: &Root, path: &str) -> Option<i64> {
    root.exists(path).then(|| root.int(path)).flatten()
}

/// Firmware versions from debugfs (root only): lines like `MES feature version: 1, firmware version: 0x00000080`.
fn firmware(root: &Root, card: &gpu::Card) -> BTreeMap<String, String> {
    let base = "/sys/kernel/debug/dri";
    if !root.exists(base) {
        return BTreeMap::new();
    }
    let n = card.name.trim_start_matches("card").to_owned();
    // The folder is named by the minor number or by the PCI address.
    for dir in root.list(base) {
        if dir != n && Some(&dir) != card.pci.as_ref() {
            continue;
        }
        let file = format!("{base}/{dir}/amdgpu_firmware_info");
        if !root.exists(&file) {
            continue;
        }
        if let Some(t) = root.text(&file) {
            return parse_firmware(&t);
        }
    }
    BTreeMap::new()
}

fn parse_firmware(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|l| {
            let (name, rest) = l.split_once(" feature version:")?;
            let version = rest.split("version:").nth(1)?.trim();
            let version = version.split([',', ' ']).next()?;
            let name: String = name
                .trim()
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() {
                        c.to_ascii_lowercase()
                    } else {
                        '_'
                    }
                })
                .collect();
            Some((name, version.to_owned()))
        })
        .collect()
}

/// GPU nodes of KFD's topology: target, SIMDs, memory, CWSR.
fn kfd(root: &Root, id: &mut Identity) {
    let base = "/sys/class/kfd/kfd/topology/nodes";
    if !root.exists(base) {
        put(id, "kfd.nodes", Value::Null);
        return;
    }
    let mut n = 0;
    for node in root.list(base) {
        let Some(t) = root.text(format!("{base}/{node}/properties")) else {
            continue;
        };
        let field = |k: &str| -> Option<u64> {
            t.lines()
                .find_map(|l| l.strip_prefix(k)?.strip_prefix(' ')?.trim().parse().ok())
        };
        let Some(target) = field("gfx_target_version").filter(|&v| v > 0) else {
            continue;
        };
        id.insert(format!("kfd.{n}.node"), json!(node));
        id.insert(format!("kfd.{n}.gfx"), json!(gfx_name(target)));
        for k in [
            "simd_count",
            "wave_front_size",
            "lds_size_in_kb",
            "cwsr_size",
            "device_id",
            "local_mem_size",
        ] {
            id.insert(format!("kfd.{n}.{k}"), json!(field(k)));
        }
        n += 1;
    }
    put(id, "kfd.nodes", n);
}

/// `110501` is gfx1151: major, minor and stepping in pairs of digits, the last two in hex.
fn gfx_name(version: u64) -> String {
    format!(
        "gfx{}{:x}{:x}",
        version / 10_000,
        version / 100 % 100,
        version % 100
    )
}

fn rocm(root: &Root, id: &mut Identity) {
    let dir = std::env::var("ROCM_PATH").unwrap_or_else(|_| "/opt/rocm".into());
    let here = root.exists(&dir);
    let first_line = |f: &str| {
        let p = format!("{dir}/.info/{f}");
        root.exists(&p)
            .then(|| {
                root.text(&p)
                    .and_then(|t| t.lines().next().map(str::to_owned))
            })
            .flatten()
    };
    put(id, "rocm.path", here.then(|| dir.clone()));
    put(id, "rocm.version", first_line("version"));
    put(
        id,
        "rocm.version_rocm_libs",
        first_line("version-rocm-libs"),
    );
    put(
        id,
        "hip.version",
        first_line("version-hip-libraries").or_else(|| hip_version(root, &dir)),
    );
}

/// `share/hip/version` holds `HIP_VERSION_MAJOR=7` and so on.
fn hip_version(root: &Root, dir: &str) -> Option<String> {
    let p = format!("{dir}/share/hip/version");
    let t = root.exists(&p).then(|| root.text(&p)).flatten()?;
    let f = |k: &str| {
        t.lines()
            .find_map(|l| l.strip_prefix(k)?.strip_prefix('='))
            .map(str::trim)
    };
    Some(format!(
        "{}.{}.{}",
        f("HIP_VERSION_MAJOR")?,
        f("HIP_VERSION_MINOR")?,
        f("HIP_VERSION_PATCH")?
    ))
}

fn program(
    name: &str,
    path: &Path,
    ldpath: Option<&str>,
    cache: &mut HashCache,
    id: &mut Identity,
) {
    let key = format!("program.{name}");
    id.insert(format!("{key}.path"), json!(path));
    id.insert(format!("{key}.sha256"), json!(cache.sha256(path)));
    id.insert(
        format!("{key}.mtime"),
        json!(
            fs::metadata(path)
                .ok()
                .and_then(|m| chrono::DateTime::from_timestamp(m.mtime(), 0))
                .map(|t| t.to_rfc3339())
        ),
    );
    let mut missing = Vec::new();
    for l in libraries::of(path, ldpath) {
        match l.path {
            Some(p) => {
                let sha = cache.sha256(&p);
                id.insert(
                    format!("{key}.lib.{}", l.name),
                    json!({"path": p, "sha256": sha}),
                );
            }
            None => missing.push(l.name),
        }
    }
    id.insert(format!("{key}.missing_libs"), json!(missing));
}

/// The revision that a tree stands on, read from `.git` without running git.
fn git(tree: &Path, id: &mut Identity) {
    let revision = || -> Option<String> {
        let dot = tree.join(".git");
        let dir = if dot.is_file() {
            let t = fs::read_to_string(&dot).ok()?;
            tree.join(t.strip_prefix("gitdir:")?.trim())
        } else {
            dot
        };
        let head = fs::read_to_string(dir.join("HEAD")).ok()?;
        let Some(name) = head.trim().strip_prefix("ref: ") else {
            return Some(head.trim().to_owned());
        };
        let common =
            fs::read_to_string(dir.join("commondir")).map_or(dir.clone(), |c| dir.join(c.trim()));
        fs::read_to_string(common.join(name))
            .ok()
            .map(|t| t.trim().to_owned())
            .or_else(|| {
                let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
                packed
                    .lines()
                    .find_map(|l| l.strip_suffix(name).map(|r| r.trim().to_owned()))
            })
    };
    id.insert("git.revision".into(), json!(revision()));
}

/// Type of the file system that holds a path, by the longest mount point.
#[must_use]
pub fn filesystem_of(path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts
        .lines()
        .filter_map(|l| {
            let (left, right) = l.split_once(" - ")?;
            let point = left.split(' ').nth(4)?.replace("\\040", " ");
            real.starts_with(&point).then(|| {
                (
                    point.len(),
                    right.split(' ').next().unwrap_or("").to_owned(),
                )
            })
        })
        .max_by_key(|(n, _)| *n)
        .map(|(_, t)| t)
}

/// Whether a file system lives on another machine: speed measured from it is the network's.
#[must_use]
pub fn is_network(fstype: &str) -> bool {
    matches!(
        fstype,
        "cifs"
            | "smb3"
            | "smbfs"
            | "nfs"
            | "nfs4"
            | "9p"
            | "afs"
            | "ceph"
            | "glusterfs"
            | "lustre"
            | "beegfs"
            | "virtiofs"
    ) || fstype.starts_with("fuse.") && !fstype.ends_with("overlayfs")
}

/// Remembers hashes of files that did not change since.
#[derive(Debug, Default)]
pub struct HashCache {
    file: Option<PathBuf>,
    known: BTreeMap<String, String>,
    changed: bool,
}

impl HashCache {
    /// Opens the cache; a file that cannot be read is an empty cache.
    #[must_use]
    pub fn open(file: Option<&Path>) -> Self {
        let known = file
            .and_then(|f| fs::read(f).ok())
            .and_then(|b| serde_json::from_slice(&b).ok())
            .unwrap_or_default();
        HashCache {
            file: file.map(Path::to_owned),
            known,
            changed: false,
        }
    }

    /// The hash of a file; `None` when it cannot be read.
    pub fn sha256(&mut self, path: &Path) -> Option<String> {
        let m = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let key = format!(
            "{}:{}:{}:{}.{}:{}.{}",
            m.dev(),
            m.ino(),
            m.len(),
            m.mtime(),
            m.mtime_nsec(),
            m.ctime(),
            m.ctime_nsec()
        );
        if let Some(h) = self.known.get(&key) {
            return Some(h.clone());
        }
        let h = crate::stage::sha256_patiently(path).ok()?.0;
        self.known.insert(key, h.clone());
        self.changed = true;
        Some(h)
    }

    /// Writes it back; a cache that cannot be written is no error.
    pub fn save(&self) {
        if let (true, Some(f), Ok(t)) = (self.changed, &self.file, serde_json::to_vec(&self.known))
        {
            let part = f.with_extension("part");
            if fs::write(&part, t).is_ok() {
                let _ = fs::rename(&part, f);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_their_names() {
        assert_eq!(gfx_name(110_501), "gfx1151");
        assert_eq!(gfx_name(90_010), "gfx90a");
        assert_eq!(gfx_name(120_001), "gfx1201");
    }

    #[test]
    fn firmware_lines_are_read() {
        let f = parse_firmware(
            "VCE feature version: 0, firmware version: 0x00000000\nMES feature version: 1, firmware version: 0x00000080\n\
             SMC feature version: 0, program: 0, firmware version: 0x005d2000 (93.32.0)\nnoise\n",
        );
        assert_eq!(f["mes"], "0x00000080");
        assert_eq!(f["smc"], "0x005d2000");
        assert_eq!(f.len(), 3);
    }

    #[test]
    fn this_machine_has_an_identity_and_what_is_absent_is_null() {
        let exe = std::env::current_exe().unwrap();
        let ask = Ask {
            programs: vec![("self".into(), exe.clone())],
            env: [("HF_TOKEN".to_owned(), "x".to_owned())].into(),
            disk: Some(std::env::temp_dir()),
            ..Ask::default()
        };
        let id = block(&Root::default(), &ask);
        assert!(id["kernel.release"].is_string() && id["cpu.threads"].as_u64().unwrap() > 0);
        assert!(id["memory.total_bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(
            id["program.self.sha256"],
            json!(crate::stage::sha256_file(&exe).unwrap().0)
        );
        assert_eq!(id["env.HF_TOKEN"], "<masked, 1 bytes>");
        assert!(id.contains_key("gpu.count") && id.contains_key("amdgpu.cwsr_enable"));
    }

    #[test]
    fn the_hash_cache_forgets_a_changed_file() {
        let d = tempfile::tempdir().unwrap();
        let (f, c) = (d.path().join("f"), d.path().join("cache.json"));
        fs::write(&f, "abc").unwrap();
        let mut cache = HashCache::open(Some(&c));
        let a = cache.sha256(&f).unwrap();
        cache.save();
        let mut cache = HashCache::open(Some(&c));
        assert_eq!(cache.sha256(&f), Some(a.clone()));
        assert!(!cache.changed, "it was remembered");
        fs::write(&f, "abcd").unwrap();
        assert_ne!(cache.sha256(&f), Some(a));
        assert_eq!(cache.sha256(&d.path().join("absent")), None);
    }

    #[test]
    fn network_file_systems_are_known() {
        assert!(is_network("cifs") && is_network("nfs4") && is_network("fuse.sshfs"));
        assert!(!is_network("ext4") && !is_network("overlay") && !is_network("tmpfs"));
        assert!(filesystem_of(Path::new("/proc")).is_some_and(|t| t == "proc"));
    }
}
