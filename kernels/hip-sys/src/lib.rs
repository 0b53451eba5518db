//! The HIP runtime's C API as a table loaded at run time, so that one binary runs with and without ROCm.
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | [`Hip`]: one field per call; calls that only newer releases have are `Option` |
//! | [`types`] | handles, constants, [`types::Attribute`] |
//! | [`errors`] | names and meanings of status codes |
//! | [`mod@probe`] | why there is no device: no library, no `/dev/kfd`, no permission, old driver |

pub mod errors;
pub mod probe;
pub mod table;
pub mod types;

pub use errors::{error_hint, error_name, is_sticky};
pub use probe::{Absence, devices};
pub use table::Hip;

use std::path::{Path, PathBuf};

/// Why the runtime could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No library of any tried name opened.
    #[error("no HIP runtime: tried {}; install ROCm or set ROCM_PATH", tried.iter().map(|(p, e)| format!("{} ({e})", p.display())).collect::<Vec<_>>().join(", "))]
    NotFound {
        /// Every name and what the loader said.
        tried: Vec<(PathBuf, String)>,
    },
    /// A library opened but is not a HIP runtime that we can use.
    #[error("{} lacks {}: HIP 5.2 or newer is needed", library.display(), missing.join(", "))]
    MissingSymbols {
        /// The library.
        library: PathBuf,
        /// The absent functions.
        missing: Vec<&'static str>,
    },
}

const SONAMES: [&str; 4] = [
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "libamdhip64.so",
];

/// The names that [`load`] tries, in order: `$LEGWORK_HIP_LIB` alone if set, else the folders `$ROCM_PATH/lib`,
/// `$HIP_PATH/lib` and `/opt/rocm/lib`, then the loader's own search.
#[must_use]
pub fn candidates(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    if let Some(path) = env("LEGWORK_HIP_LIB").filter(|p| !p.is_empty()) {
        return vec![PathBuf::from(path)];
    }
    let mut folders: Vec<PathBuf> = ["ROCM_PATH", "HIP_PATH"]
        .iter()
        .filter_map(|k| env(k).filter(|v| !v.is_empty()))
        .map(|v| Path::new(&v).join("lib"))
        .collect();
    folders.push(PathBuf::from("/opt/rocm/lib"));
    folders.dedup();
    let mut out: Vec<PathBuf> = Vec::new();
    for folder in folders {
        out.extend(SONAMES.iter().map(|s| folder.join(s)));
    }
    out.extend(SONAMES.iter().map(PathBuf::from));
    out
}

/// Opens the runtime. Nothing of HIP runs yet: the first call that touches the driver is `hipInit`.
///
/// # Errors
/// No library, or one without the required calls.
pub fn load() -> Result<(Hip, PathBuf), LoadError> {
    load_from(&candidates(&|k| std::env::var(k).ok()))
}

/// Opens the first library of `names` that exists.
///
/// # Errors
/// As [`load`].
pub fn load_from(names: &[PathBuf]) -> Result<(Hip, PathBuf), LoadError> {
    let mut tried = Vec::new();
    for name in names {
        // An absolute path that is not there is the common case: say so shortly instead of quoting the loader.
        if name.is_absolute() && !name.exists() {
            tried.push((name.clone(), "no such file".to_owned()));
            continue;
        }
        // SAFETY: opening a library runs its initialisers; a file of this name is the vendor's runtime.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Hip::fill(library, name).map(|hip| (hip, name.clone())),
            Err(e) => {
                let cause = std::error::Error::source(&e)
                    .map_or_else(|| e.to_string(), ToString::to_string);
                tried.push((name.clone(), short(&cause)));
            }
        }
    }
    Err(LoadError::NotFound { tried })
}

fn short(message: &str) -> String {
    if message.contains("cannot open shared object file") {
        "not found by the loader".to_owned()
    } else {
        message.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_follow_the_environment() {
        let none = candidates(&|_| None);
        assert_eq!(none[0], PathBuf::from("/opt/rocm/lib/libamdhip64.so.7"));
        assert_eq!(none.len(), 8);
        let rocm = candidates(&|k| (k == "ROCM_PATH").then(|| "/r".to_owned()));
        assert_eq!(rocm[0], PathBuf::from("/r/lib/libamdhip64.so.7"));
        let own = candidates(&|k| (k == "LEGWORK_HIP_LIB").then(|| "/x/y.so".to_owned()));
        assert_eq!(own, [PathBuf::from("/x/y.so")]);
    }

    #[test]
    fn absence_names_everything_tried() {
        let error = load_from(&[
            PathBuf::from("/nowhere/libamdhip64.so.7"),
            PathBuf::from("liblegwork-absent.so"),
        ])
        .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("/nowhere/libamdhip64.so.7 (no such file)"),
            "{text}"
        );
        assert!(
            text.contains("liblegwork-absent.so (not found by the loader)"),
            "{text}"
        );
        assert!(text.contains("ROCM_PATH"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_hip_is_named_with_what_it_lacks() {
        let error = load_from(&[PathBuf::from("libc.so.6")]);
        let Err(LoadError::MissingSymbols { missing, .. }) = error else {
            panic!("{error:?}")
        };
        assert_eq!(missing, Hip::REQUIRED);
    }

    /// With Debian's libamdhip64-5 or any ROCm installed this calls into it; without, the refusal is checked.
    /// `LEGWORK_TEST_HIP=1` makes its absence a failure.
    #[test]
    fn the_installed_runtime_answers_or_is_refused() {
        match load() {
            Err(e) if std::env::var("LEGWORK_TEST_HIP").is_ok_and(|v| v == "1") => {
                panic!("LEGWORK_TEST_HIP=1, but {e}")
            }
            Ok((hip, _)) => {
                let mut version = 0;
                // SAFETY: the pointer is valid for the call.
                let status = unsafe { (hip.runtime_version)(&raw mut version) };
                assert!(
                    status != types::SUCCESS || version >= 50_000_000,
                    "{status} {version}"
                );
            }
            Err(LoadError::NotFound { tried }) => {
                assert_eq!(tried.len(), candidates(&|k| std::env::var(k).ok()).len())
            }
            Err(e) => panic!("{e}"),
        }
    }
}
