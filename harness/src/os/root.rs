//! The tree of `/sys`-like files that the board is read from: the machine's own, or a fake board.
//!
//! A fake board is a directory that holds `sys/…`, `proc/…`, `etc/…`, `dev/kmsg` (a script) as files. There an
//! access to a path that it does not hold is an **error**, unless `absent.list` in its top folder names the path
//! (one per line, `*` matches within one path part, a trailing `/` everything below), so that a collector which
//! starts to read another file cannot pass unnoticed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where board files are read.
#[derive(Debug, Clone, Default)]
pub struct Root {
    fake: Option<Arc<Fake>>,
}

#[derive(Debug)]
struct Fake {
    dir: PathBuf,
    absent: Vec<String>,
    unknown: Mutex<Vec<String>>,
}

impl Root {
    /// The machine's own files, or those under `sysroot`.
    #[must_use]
    pub fn new(sysroot: Option<&Path>) -> Self {
        let Some(dir) = sysroot else {
            return Root::default();
        };
        let absent = std::fs::read_to_string(dir.join("absent.list"))
            .unwrap_or_default()
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .map(str::to_owned)
            .collect();
        Root {
            fake: Some(Arc::new(Fake {
                dir: dir.to_owned(),
                absent,
                unknown: Mutex::new(Vec::new()),
            })),
        }
    }

    /// Whether this is a fake board.
    #[must_use]
    pub fn is_fake(&self) -> bool {
        self.fake.is_some()
    }

    /// Where an absolute path lies in this tree.
    #[must_use]
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match &self.fake {
            Some(f) => f.dir.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    fn missed(&self, path: &Path) {
        let Some(f) = &self.fake else { return };
        let p = path.to_string_lossy();
        if f.absent.iter().any(|pat| matches(pat, &p)) {
            return;
        }
        if let Ok(mut u) = f.unknown.lock()
            && !u.iter().any(|x| *x == p)
        {
            u.push(p.into_owned());
        }
    }

    /// Paths of a fake board that were asked for, are not there, and are not declared absent: an error of the test.
    #[must_use]
    pub fn unknown_accesses(&self) -> Vec<String> {
        self.fake
            .as_ref()
            .and_then(|f| f.unknown.lock().ok().map(|u| u.clone()))
            .unwrap_or_default()
    }

    /// At most `cap` bytes; `None` when the file is not there or cannot be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>, cap: u64) -> Option<Vec<u8>> {
        let path = path.as_ref();
        let open = |p: PathBuf| -> io::Result<Vec<u8>> {
            let mut out = Vec::new();
            File::open(p)?.take(cap).read_to_end(&mut out)?;
            Ok(out)
        };
        match open(self.resolve(path)) {
            Ok(b) => Some(b),
            Err(_) => {
                self.missed(path);
                None
            }
        }
    }

    /// At most 64 KiB of text, trimmed at its end.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.read(path, 64 << 10)
            .map(|b| String::from_utf8_lossy(&b).trim_end().to_owned())
    }

    /// A file that holds one integer.
    #[must_use]
    pub fn int(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.trim().parse().ok()
    }

    /// Names in a directory, sorted; empty when it is not there.
    #[must_use]
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let path = path.as_ref();
        match std::fs::read_dir(self.resolve(path)) {
            Ok(d) => {
                let mut v: Vec<String> = d
                    .flatten()
                    .filter_map(|e| e.file_name().into_string().ok())
                    .collect();
                v.sort();
                v
            }
            Err(_) => {
                self.missed(path);
                Vec::new()
            }
        }
    }

    /// Whether a path is there; asking is no access.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).exists()
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    if let Some(dir) = pattern.strip_suffix('/') {
        let depth = dir.split('/').count();
        let head: Vec<&str> = path.split('/').take(depth).collect();
        return path.split('/').count() >= depth && matches(dir, &head.join("/"));
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    a.len() == b.len() && a.iter().zip(&b).all(|(p, s)| part_matches(p, s))
}

fn part_matches(p: &str, s: &str) -> bool {
    let mut pieces = p.split('*');
    let Some(first) = pieces.next() else {
        return s.is_empty();
    };
    let Some(mut rest) = s.strip_prefix(first) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else {
        return rest.is_empty();
    };
    for m in middle {
        match rest.find(m) {
            Some(i) => rest = &rest[i + m.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_within_one_part() {
        assert!(matches(
            "/sys/class/drm/card*/device/x",
            "/sys/class/drm/card0/device/x"
        ));
        assert!(!matches("/sys/*/x", "/sys/a/b/x"));
        assert!(matches("/sys/kernel/debug/", "/sys/kernel/debug/dri/0/a"));
        assert!(!matches("/sys/kernel/debug/", "/sys/kernel"));
        assert!(matches("/a/b*c*d", "/a/bXcYd"));
        assert!(!matches("/a/b*c", "/a/bXcY"));
    }

    #[test]
    fn an_unknown_access_on_a_fake_board_is_remembered() {
        let d = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(d.path().join("sys/a")).unwrap();
        std::fs::write(d.path().join("sys/a/n"), "42\n").unwrap();
        std::fs::write(
            d.path().join("absent.list"),
            "# not on this board\n/sys/a/opt*\n",
        )
        .unwrap();
        let r = Root::new(Some(d.path()));
        assert_eq!(r.int("/sys/a/n"), Some(42));
        assert_eq!(r.list("/sys/a"), ["n"]);
        assert_eq!(r.text("/sys/a/optional"), None);
        assert!(r.unknown_accesses().is_empty());
        assert_eq!(r.text("/sys/a/typo"), None);
        assert_eq!(r.unknown_accesses(), ["/sys/a/typo"]);
    }
}
