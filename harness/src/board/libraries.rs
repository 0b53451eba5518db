//! The shared libraries that a program would load, found by reading ELF files: nothing is run.
//!
//! Follows `DT_NEEDED` breadth first as the loader does: `DT_RPATH` (unless there is a `DT_RUNPATH`), then
//! `LD_LIBRARY_PATH` of the leg, `DT_RUNPATH`, the directories of `/etc/ld.so.conf`, the default directories.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, elf};

const MOST: usize = 1024;
const LARGEST: u64 = 4 << 30;

/// A library that a program needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Name as needed (`libamdhip64.so.7`).
    pub name: String,
    /// Where it is, links resolved; `None` when it was not found: the program would not start (127).
    pub path: Option<PathBuf>,
}

/// What the dynamic section of an ELF file says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dynamic {
    needed: Vec<String>,
    rpath: Vec<String>,
    runpath: Vec<String>,
    machine: u16,
}

/// The libraries of a program, in the order in which the loader meets them. Empty for a static program or a script.
#[must_use]
pub fn of(program: &Path, ld_library_path: Option<&str>) -> Vec<Library> {
    let system = system_dirs(Path::new("/etc/ld.so.conf"), 0);
    let mut out: Vec<Library> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut queue = VecDeque::from([program.to_owned()]);
    let mut rpaths_above: Vec<PathBuf> = Vec::new();
    while let Some(file) = queue.pop_front() {
        let Some(d) = dynamic(&file) else { continue };
        let origin = file.parent().unwrap_or(Path::new("/")).to_owned();
        let dirs = |list: &[String]| -> Vec<PathBuf> {
            list.iter()
                .flat_map(|l| l.split(':'))
                .filter(|s| !s.is_empty())
                .map(|s| {
                    let o = origin.to_string_lossy();
                    PathBuf::from(s.replace("${ORIGIN}", &o).replace("$ORIGIN", &o))
                })
                .collect()
        };
        if d.runpath.is_empty() {
            rpaths_above.extend(dirs(&d.rpath));
        }
        let mut path = if d.runpath.is_empty() {
            rpaths_above.clone()
        } else {
            Vec::new()
        };
        path.extend(
            ld_library_path
                .unwrap_or("")
                .split(':')
                .filter(|s| !s.is_empty())
                .map(PathBuf::from),
        );
        path.extend(dirs(&d.runpath));
        path.extend(system.iter().cloned());
        for name in d.needed {
            if out.len() >= MOST || !seen.insert(name.clone()) {
                continue;
            }
            let found = if name.contains('/') {
                Some(PathBuf::from(&name)).filter(|p| p.is_file())
            } else {
                path.iter()
                    .map(|p| p.join(&name))
                    .find(|p| dynamic(p).is_some_and(|x| x.machine == d.machine))
            };
            let found = found.map(|p| fs::canonicalize(&p).unwrap_or(p));
            queue.extend(found.iter().cloned());
            out.push(Library { name, path: found });
        }
    }
    out
}

/// `/etc/ld.so.conf` with its includes, then the default directories.
fn system_dirs(conf: &Path, depth: u32) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for l in fs::read_to_string(conf).unwrap_or_default().lines() {
        let l = l.split('#').next().unwrap_or("").trim();
        if let Some(pattern) = l.strip_prefix("include ").map(str::trim) {
            let p = conf.parent().unwrap_or(Path::new("/etc")).join(pattern);
            if let (Some(dir), Some(name), true) = (
                p.parent(),
                p.file_name().and_then(|n| n.to_str()),
                depth < 4,
            ) {
                let suffix = name.strip_prefix('*');
                let mut files: Vec<PathBuf> = fs::read_dir(dir)
                    .map(|d| {
                        d.flatten()
                            .map(|e| e.path())
                            .filter(|f| {
                                let n = f.file_name().and_then(|n| n.to_str()).unwrap_or("");
                                suffix.map_or(n == name, |s| n.ends_with(s))
                            })
                            .collect()
                    })
                    .unwrap_or_default();
                files.sort();
                files
                    .iter()
                    .for_each(|f| out.extend(system_dirs(f, depth + 1)));
            }
        } else if l.starts_with('/') {
            out.push(PathBuf::from(l));
        }
    }
    if depth == 0 {
        let arch = std::env::consts::ARCH;
        for d in [
            format!("/lib/{arch}-linux-gnu"),
            format!("/usr/lib/{arch}-linux-gnu"),
            "/lib64".into(),
            "/usr/lib64".into(),
            "/lib".into(),
            "/usr/lib".into(),
        ] {
            out.push(PathBuf::from(d));
        }
    }
    out
}

fn dynamic(file: &Path) -> Option<Dynamic> {
    let f = fs::File::open(file).ok()?;
    let m = f.metadata().ok()?;
    if !m.is_file() || m.len() > LARGEST {
        return None;
    }
    let cache = object::ReadCache::new(f);
    let data = &cache;
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let e = header.endian().ok()?;
    let headers = header.program_headers(e, data).ok()?;
    let mut d = Dynamic {
        machine: header.e_machine(e).0,
        ..Dynamic::default()
    };
    // Strings are addressed by virtual address: find the segment that holds it.
    let at = |addr: u64, len: u64| -> Option<&[u8]> {
        headers.iter().find_map(|p| {
            let (v, size) = (p.p_vaddr(e), p.p_filesz(e));
            let end = addr.checked_add(len)?;
            (p.p_type(e) == elf::PT_LOAD && addr >= v && end <= v.checked_add(size)?)
                .then(|| {
                    object::ReadRef::read_bytes_at(data, p.p_offset(e).checked_add(addr - v)?, len)
                        .ok()
                })
                .flatten()
        })
    };
    let Some(entries) = headers
        .iter()
        .find_map(|p| p.dynamic(e, data).ok().flatten())
    else {
        return Some(d); // a static program
    };
    let value = |tag: elf::DynamicTag| entries.iter().find(|x| x.tag(e) == tag).map(|x| x.d_val(e));
    let (addr, size) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
    if size > 64 << 20 {
        return None;
    }
    let strings = at(addr, size)?;
    let text = |off: u64| -> Option<String> {
        let s = strings.get(usize::try_from(off).ok()?..)?;
        let end = s.iter().position(|&b| b == 0)?;
        Some(String::from_utf8_lossy(&s[..end]).into_owned())
    };
    for x in entries {
        let Some(s) = text(x.d_val(e)) else { continue };
        match x.tag(e) {
            elf::DT_NEEDED => d.needed.push(s),
            elf::DT_RPATH => d.rpath.push(s),
            elf::DT_RUNPATH => d.runpath.push(s),
            _ => {}
        }
    }
    Some(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_libraries_are_those_that_are_mapped() {
        // The independent source is the loader itself: what it mapped into this process.
        let exe = std::env::current_exe().unwrap();
        let libs = of(&exe, None);
        assert!(libs.iter().all(|l| l.path.is_some()), "{libs:?}");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mapped: BTreeSet<PathBuf> = maps
            .lines()
            .filter_map(|l| l.split_whitespace().nth(5))
            .filter(|p| p.contains(".so"))
            .filter_map(|p| fs::canonicalize(p).ok())
            .collect();
        let found: BTreeSet<PathBuf> = libs.into_iter().filter_map(|l| l.path).collect();
        assert_eq!(found, mapped);
    }

    #[test]
    fn what_is_no_program_has_no_libraries() {
        let d = tempfile::tempdir().unwrap();
        fs::write(d.path().join("s.sh"), "#!/bin/sh\n").unwrap();
        assert!(of(&d.path().join("s.sh"), None).is_empty());
        assert!(of(&d.path().join("absent"), None).is_empty());
        let exe = fs::read(std::env::current_exe().unwrap()).unwrap();
        for n in (0..4096).step_by(61) {
            fs::write(d.path().join("cut"), &exe[..n]).unwrap();
            let _ = of(&d.path().join("cut"), None); // never panics
        }
    }
}
