//! Which load of the GPU's driver is in the kernel: a module that was taken out and put in again has lost its state and
//! its memory, so figures from before and after are not of one board.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::os::root::Root;

/// The modules that drive GPUs.
const MODULES: [&str; 2] = ["amdgpu", "nvidia"];

/// A word that stays the same as long as the driver is not loaded anew; nothing without a driver. The kernel numbers the
/// folder of a module when it is loaded.
#[must_use]
pub fn generation(root: &Root) -> Option<String> {
    let words: Vec<String> = MODULES
        .iter()
        .filter_map(|m| {
            let at = Path::new("/sys/module").join(m);
            let number = std::fs::metadata(root.resolve(&at)).ok()?.ino();
            let source = if root.exists(at.join("srcversion")) {
                root.text(at.join("srcversion")).unwrap_or_default()
            } else {
                String::new()
            };
            Some(format!("{m} {number} {source}").trim_end().to_owned())
        })
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_load_is_another_word() {
        let d = tempfile::tempdir().unwrap();
        let root = Root::new(Some(d.path()));
        assert_eq!(generation(&root), None);
        let at = d.path().join("sys/module/amdgpu");
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("srcversion"), "ABC\n").unwrap();
        let first = generation(&root);
        assert!(
            first
                .as_deref()
                .is_some_and(|w| w.starts_with("amdgpu ") && w.ends_with(" ABC"))
        );
        assert_eq!(generation(&root), first);
        // Beside the old one, so that its number is not given out again.
        std::fs::rename(&at, d.path().join("old")).unwrap();
        std::fs::create_dir_all(&at).unwrap();
        assert_ne!(generation(&root), first);
        assert!(root.unknown_accesses().is_empty());
    }
}
