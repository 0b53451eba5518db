//! Which instructions the kernels may use.

use std::sync::OnceLock;

/// An instruction set that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// aarch64 with NEON.
    Neon,
}

impl Isa {
    /// The fastest set that this processor has.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(detect)
    }

    /// Every set that this processor has, fastest last.
    pub fn available() -> Vec<Isa> {
        match Isa::best() {
            Isa::Portable => vec![Isa::Portable],
            best => vec![Isa::Portable, best],
        }
    }

    /// The name that traces print.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let all = std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c");
    if all { Isa::Avx2 } else { Isa::Portable }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Isa {
    Isa::Neon
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Isa {
    Isa::Portable
}
