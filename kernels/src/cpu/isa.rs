//! Which instructions the kernels may use.

use std::sync::OnceLock;

/// An instruction set that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same with AVX-512 F, BW, VL and VNNI.
    Avx512,
    /// aarch64 with NEON.
    Neon,
    /// The same with dot products of bytes (`sdot`).
    NeonDot,
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
            Isa::Avx512 => vec![Isa::Portable, Isa::Avx2, Isa::Avx512],
            Isa::NeonDot => vec![Isa::Portable, Isa::Neon, Isa::NeonDot],
            best => vec![Isa::Portable, best],
        }
    }

    /// Whether kernels for AVX2 may be called.
    pub fn has_avx2(self) -> bool {
        matches!(self, Isa::Avx2 | Isa::Avx512)
    }

    /// Whether kernels for NEON may be called.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn has_neon(self) -> bool {
        matches!(self, Isa::Neon | Isa::NeonDot)
    }

    /// The name that traces print.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
            Isa::NeonDot => "neon+dotprod",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma") && has!("f16c")) {
        return Isa::Portable;
    }
    let wide = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vnni");
    if wide { Isa::Avx512 } else { Isa::Avx2 }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Isa {
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        Isa::NeonDot
    } else {
        Isa::Neon
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Isa {
    Isa::Portable
}
