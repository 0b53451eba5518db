//! What can go wrong on a device.

use crate::device::DeviceKind;
use crate::simt::Report;

/// A device operation failed.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// There is no such device here.
    #[error("no {device} device: {reason}")]
    Absent {
        /// Which kind.
        device: DeviceKind,
        /// Why, and how to mend it.
        reason: String,
    },
    /// A call of the vendor's runtime failed.
    #[error("{call}: {name} ({code}){}", hint.as_ref().map(|h| format!(": {h}")).unwrap_or_default())]
    Call {
        /// The function.
        call: &'static str,
        /// Its status.
        code: i32,
        /// The status's name.
        name: String,
        /// What it means.
        hint: Option<String>,
    },
    /// No code object holds the kernel.
    #[error("no kernel {kernel} for {target}: {reason}")]
    NoKernel {
        /// Its name.
        kernel: String,
        /// The device's instruction set.
        target: String,
        /// Why.
        reason: String,
    },
    /// A kernel did something it must not; only `simt` sees this.
    #[error("{0}")]
    Kernel(Box<Report>),
    /// Memory is exhausted.
    #[error("cannot allocate {bytes} bytes on {device}: {what}")]
    OutOfMemory {
        /// Where.
        device: DeviceKind,
        /// How much was asked for.
        bytes: usize,
        /// The runtime's words.
        what: String,
    },
    /// The driver has no such feature.
    #[error("{what} is not supported on {device}")]
    Unsupported {
        /// Where.
        device: DeviceKind,
        /// What.
        what: &'static str,
    },
    /// A file of a kernel pack or of the launch recording.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
}
