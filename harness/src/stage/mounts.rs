//! What file system lies under a path.

use std::path::{Path, PathBuf};

/// A mount as `/proc/self/mountinfo` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system.
    pub fs_type: String,
    /// Mount options and super block options.
    pub options: String,
}

/// File systems whose files are on another machine or served by a process.
const NETWORK: [&str; 14] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
];

impl Mount {
    /// Nothing may be executed from it.
    #[must_use]
    pub fn noexec(&self) -> bool {
        self.options.split(',').any(|o| o == "noexec")
    }

    /// Its files may vanish with a network or a server.
    #[must_use]
    pub fn network(&self) -> bool {
        NETWORK.contains(&self.fs_type.as_str()) || self.fs_type.starts_with("fuse.")
    }
}

/// The mount that holds `path`; `None` when `/proc` tells nothing. Links are followed as long as they lie on local
/// file systems: no share is asked for anything, so one that hangs cannot hold us.
#[must_use]
pub fn mount_of(path: &Path) -> Option<Mount> {
    let path = std::path::absolute(path).ok()?;
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    find(&text, &resolve(&text, &path))
}

/// Follows links up to the first share.
fn resolve(mountinfo: &str, path: &Path) -> PathBuf {
    let mut todo: Vec<std::ffi::OsString> = parts(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(&part);
        if find(mountinfo, &at).is_some_and(|m| m.network()) {
            at.extend(todo.into_iter().rev());
            return at;
        }
        if links < 40
            && let Ok(to) = std::fs::read_link(&at)
        {
            links += 1;
            if to.is_absolute() {
                at = PathBuf::from("/");
            } else {
                at.pop();
            }
            todo.extend(parts(&to));
        }
    }
    at
}

/// The parts of a path, last one first.
fn parts(path: &Path) -> Vec<std::ffi::OsString> {
    use std::path::Component;
    let mut v: Vec<std::ffi::OsString> = path
        .components()
        .filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
        .map(|c| c.as_os_str().to_owned())
        .collect();
    v.reverse();
    v
}

/// The longest mount point above `path`; of two with the same point the later one hides the earlier.
fn find(mountinfo: &str, path: &Path) -> Option<Mount> {
    mountinfo
        .lines()
        .filter_map(parse)
        .filter(|m| path.starts_with(&m.point))
        .fold(None, |best: Option<Mount>, m| match &best {
            Some(b) if b.point.components().count() > m.point.components().count() => best,
            _ => Some(m),
        })
}

/// `36 35 98:0 /root /point opts optional… - type source superopts` (proc(5)).
fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let point = unescape(left.nth(4)?);
    let own = left.next()?;
    let mut right = right.split(' ');
    let fs_type = right.next()?.to_owned();
    let superblock = right.nth(1).unwrap_or_default();
    Some(Mount {
        point: PathBuf::from(point),
        fs_type,
        options: format!("{own},{superblock}"),
    })
}

/// Spaces and the like are written as `\040`.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let octal = (bytes[i] == b'\\')
            .then(|| text.get(i + 1..i + 4))
            .flatten()
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /workspace rw,nosuid,noexec,relatime shared:5 - cifs //nas/rc rw,vers=3.1.1,file_mode=0664
31 22 0:41 / /mnt/my\\040disk rw,noexec - xfs /dev/sdb rw
32 30 0:42 / /workspace/local rw - tmpfs tmpfs rw
";

    #[test]
    fn the_longest_mount_point_wins() {
        let at = |p: &str| find(TABLE, Path::new(p)).unwrap();
        assert_eq!(at("/tmp/x").fs_type, "ext4");
        let share = at("/workspace/row/job.sh");
        assert!(share.network() && share.noexec());
        assert_eq!(at("/workspace/local/x").fs_type, "tmpfs");
        assert_eq!(at("/workspaces").fs_type, "ext4");
        assert!(at("/mnt/my disk/f").noexec());
    }

    #[test]
    fn links_are_followed_up_to_a_share() {
        let d = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(d.path()).unwrap();
        std::fs::create_dir_all(base.join("real/share")).unwrap();
        std::os::unix::fs::symlink("real/../real/share", base.join("way")).unwrap();
        std::os::unix::fs::symlink(base.join("way"), base.join("far")).unwrap();
        let local = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n".to_owned();
        let with = format!(
            "{local}30 22 0:40 / {}/real/share rw - fuse srv rw\n",
            base.display()
        );
        let file = base.join("far/x/y");
        assert_eq!(resolve(&with, &file), base.join("real/share/x/y"));
        assert!(find(&with, &resolve(&with, &file)).unwrap().network());
        assert_eq!(resolve(&local, &file), base.join("real/share/x/y"));
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        assert_eq!(find("garbage\n\n1 2 3 - \n", Path::new("/")), None);
    }
}
