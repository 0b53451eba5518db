//! Kinds of device and what matters of their memory.

use std::fmt;

/// A kind of device. The numbers appear in log lines (`device=5`) and are stable; users know 1 and 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceKind {
    /// The host processor.
    Cpu = 0,
    /// NVIDIA through the CUDA driver.
    Cuda = 1,
    /// AMD through HIP.
    Rocm = 5,
    /// The GPU sources compiled for the host, one fibre per GPU thread.
    Simt = 7,
}

impl DeviceKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [DeviceKind; 4] = [
        DeviceKind::Cpu,
        DeviceKind::Cuda,
        DeviceKind::Rocm,
        DeviceKind::Simt,
    ];

    /// The number printed in `device=N`.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name used by `--device`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Rocm => "rocm",
            DeviceKind::Simt => "simt",
        }
    }

    pub(crate) fn index(self) -> usize {
        match self {
            DeviceKind::Cpu => 0,
            DeviceKind::Cuda => 1,
            DeviceKind::Rocm => 2,
            DeviceKind::Simt => 3,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Facts of a device's memory that decide whether CPU code may serve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Whether the CPU may read and write the device's buffers through the same address.
    pub host_addressable: bool,
    /// Why, in words that a user can check (`PageableMemoryAccess=0`, `allocator=hipMalloc`, …).
    pub reason: String,
}

impl MemoryFacts {
    /// Ordinary process memory.
    #[must_use]
    pub fn host() -> Self {
        MemoryFacts {
            host_addressable: true,
            reason: "ordinary process memory".to_owned(),
        }
    }
}
