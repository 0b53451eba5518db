//! A control group per attempt: v2 where its tree is writable, v1's memory controller beside it, or none.
//!
//! The group answers three questions that process ids cannot: who is in the tree (whatever it did to its parent
//! and its session), how much CPU time and memory the whole tree used, and it ends everyone at one write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The control groups of one attempt. Dropping removes them if they are empty.
#[derive(Debug, Default)]
pub struct Cgroup {
    /// The v2 group.
    v2: Option<PathBuf>,
    /// The v1 memory group, where v2 has no memory controller and a limit or a peak was asked for.
    v1_memory: Option<PathBuf>,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// Where a hierarchy is mounted and which group of it we are in.
fn place(mountinfo: &str, own: &str, fstype: &str, controller: Option<&str>) -> Option<PathBuf> {
    let mount = mountinfo.lines().find_map(|l| {
        let (left, right) = l.split_once(" - ")?;
        let mut r = right.split(' ');
        if r.next()? != fstype {
            return None;
        }
        if let Some(c) = controller {
            let super_options = r.nth(1)?;
            if !super_options.split(',').any(|o| o == c) {
                return None;
            }
        }
        let f: Vec<&str> = left.split(' ').collect();
        Some((f.get(3)?.to_string(), f.get(4)?.to_string()))
    })?;
    let rel = own.lines().find_map(|l| {
        let mut p = l.splitn(3, ':');
        let (_, names, path) = (p.next()?, p.next()?, p.next()?);
        match controller {
            None => names.is_empty().then_some(path),
            Some(c) => names.split(',').any(|n| n == c).then_some(path),
        }
    })?;
    let (root, at) = mount;
    // In a container the mount shows a part of the hierarchy only; our path counts from the hierarchy's root.
    let rel = rel.strip_prefix(root.trim_end_matches('/')).unwrap_or(rel);
    let full = PathBuf::from(at).join(rel.trim_start_matches('/'));
    full.is_dir().then_some(full)
}

impl Cgroup {
    /// Makes the groups for an attempt, as far as this machine lets us; never fails, says what is missing.
    #[must_use]
    pub fn create(name: &str, memory_max: Option<u64>) -> Self {
        let mut g = Cgroup::default();
        let (Ok(mountinfo), Ok(own)) = (
            fs::read_to_string("/proc/self/mountinfo"),
            fs::read_to_string("/proc/self/cgroup"),
        ) else {
            g.notes
                .push("no control groups: /proc/self/cgroup cannot be read".into());
            return g;
        };
        match place(&mountinfo, &own, "cgroup2", None) {
            Some(at) => {
                let _ = fs::write(at.join("cgroup.subtree_control"), "+memory");
                let dir = at.join(name);
                match fs::create_dir(&dir) {
                    Ok(()) => g.v2 = Some(dir),
                    Err(e) => g.notes.push(format!(
                        "no control group of its own: {}: {e} (run as root, or in a delegated scope: \
                         systemd-run --user --scope -p Delegate=yes)",
                        at.display()
                    )),
                }
            }
            None => g.notes.push("no control group v2 is mounted here".into()),
        }
        let v2_memory = g.v2.as_ref().is_some_and(|d| d.join("memory.max").exists());
        if !v2_memory && let Some(at) = place(&mountinfo, &own, "cgroup", Some("memory")) {
            let dir = at.join(name);
            match fs::create_dir(&dir) {
                Ok(()) => g.v1_memory = Some(dir),
                Err(e) => g
                    .notes
                    .push(format!("no memory control group: {}: {e}", at.display())),
            }
        }
        if let Some(limit) = memory_max
            && let Err(e) = g.limit_memory(limit)
        {
            g.notes.push(format!(
                "the memory limit of {limit} bytes is not in force: {e}"
            ));
        }
        g
    }

    fn limit_memory(&self, limit: u64) -> io::Result<()> {
        let text = limit.to_string();
        if let Some(d) = self.v2.as_ref().filter(|d| d.join("memory.max").exists()) {
            fs::write(d.join("memory.max"), &text)?;
            let _ = fs::write(d.join("memory.swap.max"), "0");
            return Ok(());
        }
        match &self.v1_memory {
            Some(d) => fs::write(d.join("memory.limit_in_bytes"), &text),
            None => Err(io::Error::other("no memory controller can be used")),
        }
    }

    /// The `cgroup.procs` files that the child writes itself into.
    #[must_use]
    pub fn procs_files(&self) -> Vec<PathBuf> {
        [&self.v2, &self.v1_memory]
            .into_iter()
            .flatten()
            .map(|d| d.join("cgroup.procs"))
            .collect()
    }

    /// The group's folder, v2 first; recorded so that a later run can clean up after a harness that was killed.
    #[must_use]
    pub fn dirs(&self) -> Vec<PathBuf> {
        [&self.v2, &self.v1_memory]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether there is a group that knows its members.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.v2.is_some() || self.v1_memory.is_some()
    }

    /// Members now.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut out: Vec<i32> = self.dirs().iter().flat_map(|d| members(d)).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Ends every member at once (v2, Linux 5.14); false where that is not possible.
    #[must_use]
    pub fn kill_all(&self) -> bool {
        self.v2
            .as_ref()
            .is_some_and(|d| fs::write(d.join("cgroup.kill"), "1").is_ok())
    }

    /// CPU time of the whole tree, the ended included, in microseconds.
    #[must_use]
    pub fn cpu_usec(&self) -> Option<u64> {
        let text = fs::read_to_string(self.v2.as_ref()?.join("cpu.stat")).ok()?;
        field(&text, "usage_usec")
    }

    /// Highest memory use of the tree as the kernel counted it, page cache included.
    #[must_use]
    pub fn memory_peak(&self) -> Option<u64> {
        let v2 = self
            .v2
            .as_ref()
            .and_then(|d| read_u64(&d.join("memory.peak")));
        v2.or_else(|| read_u64(&self.v1_memory.as_ref()?.join("memory.max_usage_in_bytes")))
    }

    /// How often the kernel killed a member for lack of memory in this group.
    #[must_use]
    pub fn oom_kills(&self) -> Option<u64> {
        let read = |d: &Path, f: &str| field(&fs::read_to_string(d.join(f)).ok()?, "oom_kill");
        self.v2
            .as_ref()
            .and_then(|d| read(d, "memory.events"))
            .or_else(|| read(self.v1_memory.as_ref()?, "memory.oom_control"))
    }

    /// Removes the groups; false while one still has members.
    pub fn remove(&self) -> bool {
        self.dirs()
            .iter()
            .all(|d| fs::remove_dir(d).is_ok() || !d.exists())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The pids in a group's folder.
#[must_use]
pub fn members(dir: &Path) -> Vec<i32> {
    fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|l| l.trim().parse().ok())
        .filter(|&p| p > 0)
        .collect()
}

fn field(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn read_u64(p: &Path) -> Option<u64> {
    fs::read_to_string(p).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_place_is_found_in_hybrid_and_unified_layouts() {
        let d = tempfile::tempdir().unwrap();
        let at = d.path().to_str().unwrap().to_owned();
        std::fs::create_dir_all(d.path().join("user/me")).unwrap();
        let unified =
            format!("30 23 0:26 / {at} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
        assert_eq!(
            place(&unified, "0::/user/me\n", "cgroup2", None),
            Some(d.path().join("user/me"))
        );
        let hybrid = format!("30 23 0:26 / {at} rw - cgroup cgroup rw,memory\n");
        assert_eq!(
            place(
                &hybrid,
                "4:memory:/user/me\n0::/\n",
                "cgroup",
                Some("memory")
            ),
            Some(d.path().join("user/me"))
        );
        assert_eq!(place(&hybrid, "0::/\n", "cgroup2", None), None);
        // A container that sees a part of the tree only.
        let part = format!("30 23 0:26 /pod/x {at} rw - cgroup2 cgroup2 rw\n");
        assert_eq!(
            place(&part, "0::/pod/x/user/me\n", "cgroup2", None),
            Some(d.path().join("user/me"))
        );
    }

    #[test]
    fn fields_are_whole_words() {
        assert_eq!(
            field("oom 3\noom_kill 2\noom_group_kill 1\n", "oom_kill"),
            Some(2)
        );
        assert_eq!(field("usage_usec 12\n", "usage"), None);
    }
}
