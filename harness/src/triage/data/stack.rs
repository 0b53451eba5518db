//! Software stacks under gfx1151 that are known to fault by themselves, and those that are known not to.

use super::sources::{GFX1151_CWSR, GFX1151_MES83, GFX1151_TABLE};

/// A version of up to four numbers, compared left to right.
pub type Version = [u32; 4];

/// What a kernel release says about the VGPR-size fix.
pub struct KernelRow {
    /// Lowest release that the row covers.
    pub from: Version,
    /// First release that it does not cover any more.
    pub below: Version,
    /// Substring of the release that the row needs (`-oem`, `-generic`), or empty.
    pub flavour: &'static str,
    /// Lowest package number (`6.17.0-1018-oem` has 1018); 0 for any.
    pub abi: u32,
    /// Whether such a kernel has the fix; `None` where the sources disagree.
    pub fixed: Option<bool>,
    /// What is known of it.
    pub note: &'static str,
    /// Who says so.
    pub source: &'static str,
}

/// Kernels, first match wins.
pub const KERNELS: &[KernelRow] = &[
    KernelRow {
        from: [7, 0, 0, 0],
        below: [99, 0, 0, 0],
        flavour: "",
        abi: 0,
        fixed: Some(true),
        note: "7.0 and later carry the VGPR-size fix and export cwsr_size",
        source: GFX1151_CWSR,
    },
    KernelRow {
        from: [6, 18, 4, 0],
        below: [7, 0, 0, 0],
        flavour: "",
        abi: 0,
        fixed: Some(true),
        note: "6.18.4 and later carry the VGPR-size fix",
        source: GFX1151_TABLE,
    },
    KernelRow {
        from: [6, 18, 0, 0],
        below: [6, 18, 4, 0],
        flavour: "",
        abi: 0,
        fixed: None,
        note: "AMD names 6.18-rc6 for the fix and 6.18.4 for support",
        source: GFX1151_TABLE,
    },
    KernelRow {
        from: [6, 17, 0, 0],
        below: [6, 18, 0, 0],
        flavour: "-oem",
        abi: 1018,
        fixed: Some(true),
        note: "Ubuntu OEM 6.17.0-1018 and later carry the fix",
        source: GFX1151_CWSR,
    },
    KernelRow {
        from: [6, 17, 0, 0],
        below: [6, 18, 0, 0],
        flavour: "-generic",
        abi: 19,
        fixed: Some(true),
        note: "Ubuntu HWE 6.17.0-19 and later carry the fix",
        source: GFX1151_TABLE,
    },
    KernelRow {
        from: [6, 14, 0, 0],
        below: [6, 15, 0, 0],
        flavour: "-oem",
        abi: 1018,
        fixed: Some(true),
        note: "Ubuntu OEM 6.14.0-1018 and later carry the fix",
        source: GFX1151_TABLE,
    },
    KernelRow {
        from: [0, 0, 0, 0],
        below: [6, 18, 0, 0],
        flavour: "",
        abi: 0,
        fixed: Some(false),
        note: "kernels before 6.18 save too few VGPRs on gfx1151",
        source: GFX1151_CWSR,
    },
];

/// What a ROCm release says about its half of the fix.
pub struct RocmRow {
    /// Lowest release.
    pub from: Version,
    /// First release beyond.
    pub below: Version,
    /// Whether it has the fix; `None` where the sources disagree.
    pub fixed: Option<bool>,
    /// What is known.
    pub note: &'static str,
    /// Who says so.
    pub source: &'static str,
}

/// ROCm releases, first match wins.
pub const ROCMS: &[RocmRow] = &[
    RocmRow {
        from: [7, 2, 1, 0],
        below: [99, 0, 0, 0],
        fixed: Some(true),
        note: "ROCm 7.2.1, 7.11 and later know the VGPR count of gfx1151",
        source: GFX1151_TABLE,
    },
    RocmRow {
        from: [7, 2, 0, 0],
        below: [7, 2, 1, 0],
        fixed: None,
        note: "7.2.0: one source says fixed, another asks for 7.2.1",
        source: GFX1151_CWSR,
    },
    RocmRow {
        from: [0, 0, 0, 0],
        below: [7, 2, 0, 0],
        fixed: Some(false),
        note: "ROCm before 7.2 has the wrong VGPR count for gfx1151",
        source: GFX1151_CWSR,
    },
];

/// MES firmware versions that are broken.
pub const BAD_MES: &[(u32, &str, &str)] = &[(
    0x83,
    "MES firmware 0x83 is broken (AMD: roll back to 0x80); cwsr_enable=0 does not help",
    GFX1151_MES83,
)];
