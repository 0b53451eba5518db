//! Why a machine has no usable AMD GPU, in the order in which a user would mend it.

use crate::types::SUCCESS;
use crate::{Hip, LoadError, error_hint, error_name};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The reason why no device can be used.
#[derive(Debug, thiserror::Error)]
pub enum Absence {
    /// The runtime is not there.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The kernel driver's compute interface is not there.
    #[error("{} does not exist: the amdgpu kernel driver is not loaded, was built without KFD, or this container was not given the device", path.display())]
    NoKfd {
        /// The device file.
        path: PathBuf,
    },
    /// The user may not open it.
    #[error("{} may not be opened by this user ({message}): join the group that owns it (render or video), or run as root", path.display())]
    Permission {
        /// The device file.
        path: PathBuf,
        /// The system's words.
        message: String,
    },
    /// The runtime does not work with the loaded driver.
    #[error("hipInit: {name} ({code}): the kernel driver does not suit this ROCm{}", hint.map(|h| format!("; {h}")).unwrap_or_default())]
    Driver {
        /// Status.
        code: i32,
        /// Its name.
        name: &'static str,
        /// What it means.
        hint: Option<&'static str>,
    },
    /// Everything answers, and there is no GPU.
    #[error(
        "HIP works but reports no GPU ({name}, {code}): check HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, and that this ROCm knows the GPU"
    )]
    NoDevice {
        /// Status.
        code: i32,
        /// Its name.
        name: &'static str,
    },
}

/// Opens the runtime and counts devices.
///
/// # Errors
/// The most basic reason why there is none.
pub fn devices() -> Result<(Hip, PathBuf, usize), Absence> {
    let (hip, path) = crate::load()?;
    let count = count(&hip, Path::new("/dev/kfd"))?;
    Ok((hip, path, count))
}

/// Counts devices; `kfd` is asked only when HIP sees none.
///
/// # Errors
/// The most basic reason why there is none.
pub fn count(hip: &Hip, kfd: &Path) -> Result<usize, Absence> {
    // SAFETY: hipInit takes a flag word that must be 0.
    let init = unsafe { (hip.init)(0) };
    let mut n = 0;
    // SAFETY: the pointer is valid for the call.
    let status = unsafe { (hip.device_count)(&raw mut n) };
    if init == SUCCESS && status == SUCCESS && n > 0 {
        return Ok(usize::try_from(n).unwrap_or(0));
    }
    kfd_state(kfd)?;
    let code = if init == SUCCESS { status } else { init };
    if matches!(code, 0 | 100 | 101) {
        Err(Absence::NoDevice {
            code,
            name: error_name(code),
        })
    } else {
        Err(Absence::Driver {
            code,
            name: error_name(code),
            hint: error_hint(code),
        })
    }
}

/// Whether the driver's device file can be opened.
///
/// # Errors
/// It is missing, or this user may not open it.
pub fn kfd_state(kfd: &Path) -> Result<(), Absence> {
    match OpenOptions::new().read(true).write(true).open(kfd) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Absence::NoKfd {
            path: kfd.to_path_buf(),
        }),
        Err(e) => Err(Absence::Permission {
            path: kfd.to_path_buf(),
            message: e.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_file_is_told_from_a_closed_one() {
        assert!(matches!(
            kfd_state(Path::new("/nowhere/kfd")),
            Err(Absence::NoKfd { .. })
        ));
        // A folder cannot be opened for writing, not even by root.
        let closed = kfd_state(Path::new("/"));
        assert!(
            matches!(closed, Err(Absence::Permission { .. })),
            "{closed:?}"
        );
        assert!(closed.unwrap_err().to_string().contains("render"));
    }

    #[test]
    fn the_machine_is_described_without_panic() {
        match devices() {
            Ok((_, _, n)) => assert!(n > 0),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }

    /// The runtime of the machine, where it sees no GPU; says why the test was left out otherwise.
    fn runtime_without_a_gpu() -> Option<Hip> {
        let hip = match crate::load() {
            Ok((hip, _)) => hip,
            Err(e) => {
                println!("left out: {e}");
                return None;
            }
        };
        if count(&hip, Path::new("/dev/kfd")).is_ok() {
            println!("left out: this machine has a GPU");
            return None;
        }
        Some(hip)
    }

    /// hipInit without a device is a clean answer, and its cause is told in the order in which a user would mend it: no device
    /// file, one that may not be opened, and, where that is in order, no GPU behind it.
    #[test]
    fn no_device_comes_with_its_reason() {
        let Some(hip) = runtime_without_a_gpu() else {
            return;
        };
        // SAFETY: hipInit takes a flag word that must be 0.
        let init = unsafe { (hip.init)(0) };
        let mut n = 7;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (hip.device_count)(&raw mut n) };
        assert!(
            n == 0 || status != SUCCESS,
            "hipInit {init}, hipGetDeviceCount {status}, {n} devices"
        );
        let missing = count(&hip, Path::new("/nowhere/kfd")).unwrap_err();
        assert!(matches!(missing, Absence::NoKfd { .. }), "{missing}");
        assert!(
            missing.to_string().contains("/nowhere/kfd does not exist"),
            "{missing}"
        );
        let closed = count(&hip, Path::new("/")).unwrap_err();
        assert!(matches!(closed, Absence::Permission { .. }), "{closed}");
        // Any file that opens stands for a driver that is there.
        let file = std::env::temp_dir().join(format!("legwork-kfd-{}", std::process::id()));
        std::fs::write(&file, []).unwrap();
        let behind = count(&hip, &file);
        std::fs::remove_file(&file).unwrap();
        let behind = behind.unwrap_err();
        assert!(
            matches!(behind, Absence::NoDevice { .. } | Absence::Driver { .. }),
            "{behind}"
        );
        if !Path::new("/dev/kfd").exists() {
            let whole = devices().map(|(_, _, n)| n).unwrap_err().to_string();
            assert!(whole.contains("/dev/kfd does not exist"), "{whole}");
        }
    }
}
