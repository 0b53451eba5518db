//! The words of a GPU page fault: protection status, faulting client, access flags.
//!
//! Bit positions: `GCVM_L2_PROTECTION_FAULT_STATUS` of gfx10, gfx11 and gfx12, as the driver's own printout decodes them
//! (amdgpu `gfxhub_v*_print_l2_protection_fault_status`, <https://github.com/torvalds/linux>).

/// `GCVM_L2_PROTECTION_FAULT_STATUS`, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultStatus(pub u32);

impl FaultStatus {
    /// More faults followed while this one was latched.
    #[must_use]
    pub fn more_faults(self) -> bool {
        self.0 & 1 != 0
    }
    /// Level at which the page-table walk failed; 0 for a fault in a leaf.
    #[must_use]
    pub fn walker_error(self) -> u8 {
        ((self.0 >> 1) & 0x7) as u8
    }
    /// Permission bits that were missing.
    #[must_use]
    pub fn permission_faults(self) -> u8 {
        ((self.0 >> 4) & 0xf) as u8
    }
    /// No mapping at all.
    #[must_use]
    pub fn mapping_error(self) -> bool {
        (self.0 >> 8) & 1 != 0
    }
    /// Number of the UTCL2 client that made the access.
    #[must_use]
    pub fn client(self) -> u16 {
        ((self.0 >> 9) & 0x1ff) as u16
    }
    /// The access was a write.
    #[must_use]
    pub fn write(self) -> bool {
        (self.0 >> 18) & 1 != 0
    }
    /// VM id of the access.
    #[must_use]
    pub fn vmid(self) -> u8 {
        ((self.0 >> 20) & 0xf) as u8
    }
    /// All bits set: the register read found no device.
    #[must_use]
    pub fn all_ones(self) -> bool {
        self.0 == u32::MAX
    }
}

/// Which unit of the GPU touched the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// Vector memory of a shader (TCP).
    ShaderVector,
    /// Instruction fetch of a shader (SQC inst).
    ShaderFetch,
    /// Scalar memory of a shader (SQC data).
    ShaderScalar,
    /// Command processor (CPF, CPC, CPG).
    CommandProcessor,
    /// Copy engine.
    Sdma,
    /// A microcontroller's own access (RLC, MP0, MP1, …).
    Firmware,
    /// Graphics back end (CB, DB, …), geometry and the like.
    Graphics,
    /// The register read failed: no device there.
    Gone,
    /// Not printed, or a name that is not known here.
    Unknown,
}

impl Client {
    /// From the name that the driver prints, e.g. `CPF`, `SQC (inst)`, `TCP`.
    #[must_use]
    pub fn from_name(name: &str) -> Client {
        let upper = name.trim().to_ascii_uppercase();
        let n = upper.as_str();
        if n.starts_with("TCP") || n.starts_with("TCL1") || n == "TA" || n.starts_with("TCC") {
            Client::ShaderVector
        } else if n.starts_with("SQC (INST)")
            || n.starts_with("SQC(INST)")
            || n.starts_with("SQC0 (INST)")
        {
            Client::ShaderFetch
        } else if n.starts_with("SQC") || n.starts_with("SQG") {
            Client::ShaderScalar
        } else if n.starts_with("CPF") || n.starts_with("CPC") || n.starts_with("CPG") {
            Client::CommandProcessor
        } else if n.starts_with("SDMA") {
            Client::Sdma
        } else if n.starts_with("RLC")
            || n.starts_with("MP0")
            || n.starts_with("MP1")
            || n.starts_with("MES")
            || n.starts_with("LSDMA")
            || n.starts_with("VMC")
        {
            Client::Firmware
        } else if n.starts_with("CB")
            || n.starts_with("DB")
            || n.starts_with("GE")
            || n.starts_with("PA")
            || n.starts_with("WD")
            || n.starts_with("EA")
            || n.starts_with("IA")
            || n.starts_with("VGT")
        {
            Client::Graphics
        } else {
            Client::Unknown
        }
    }

    /// From the client number of gfx10 and gfx11 (fault rules, section 1.2).
    #[must_use]
    pub fn from_id(id: u16) -> Client {
        match id {
            0x1ff => Client::Gone,
            0x8 => Client::ShaderVector,
            0x9 => Client::ShaderFetch,
            0xa => Client::ShaderScalar,
            0x4..=0x6 => Client::CommandProcessor,
            0xd | 0xe => Client::Sdma,
            _ => Client::Unknown,
        }
    }

    /// From the access flags that the first line calls `ring:` (KFD: 0x08 valid, 0x10 read, 0x20 write;
    /// seen besides: 0x40 on instruction fetches, 0x80 with 0x01 on command-processor accesses).
    #[must_use]
    pub fn from_access_flags(flags: u16) -> Client {
        if flags > 0xff || flags & 0x80 != 0 && flags & 0x01 == 0 || flags & 0x88 == 0 {
            Client::Unknown
        } else if flags & 0x80 != 0 {
            Client::CommandProcessor
        } else if flags & 0x40 != 0 {
            Client::ShaderFetch
        } else if flags & 0x30 != 0 {
            Client::ShaderVector
        } else {
            Client::Unknown
        }
    }

    /// A unit that runs shader code.
    #[must_use]
    pub fn is_shader(self) -> bool {
        matches!(
            self,
            Client::ShaderVector | Client::ShaderFetch | Client::ShaderScalar
        )
    }

    /// The unit in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Client::ShaderVector => "shader vector memory (TCP)",
            Client::ShaderFetch => "shader instruction fetch (SQC inst)",
            Client::ShaderScalar => "shader scalar memory (SQC data)",
            Client::CommandProcessor => "command processor (CPF/CPC/CPG)",
            Client::Sdma => "copy engine (SDMA)",
            Client::Firmware => "firmware",
            Client::Graphics => "graphics back end",
            Client::Gone => "no device (all-ones read)",
            Client::Unknown => "unknown unit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The driver printed these words together with their fields (fault rules, section 1.1).
    #[test]
    fn status_words_decode_as_the_driver_prints_them() {
        let s = FaultStatus(0x0080_1031);
        assert!(s.more_faults());
        assert_eq!((s.walker_error(), s.permission_faults()), (0, 3));
        assert!(!s.mapping_error() && !s.write());
        assert_eq!((s.client(), s.vmid()), (8, 8));
        let s = FaultStatus(0x0080_0932);
        assert_eq!(
            (s.client(), s.walker_error(), s.mapping_error()),
            (4, 1, true)
        );
        let s = FaultStatus(0x0084_1051);
        assert!(s.write());
        assert_eq!((s.client(), s.permission_faults()), (8, 5));
        let s = FaultStatus(u32::MAX);
        assert!(s.all_ones());
        assert_eq!(Client::from_id(s.client()), Client::Gone);
    }

    #[test]
    fn clients_by_name_number_and_flags_agree() {
        assert_eq!(Client::from_name("CPF"), Client::CommandProcessor);
        assert_eq!(Client::from_name("SQC (inst)"), Client::ShaderFetch);
        assert_eq!(Client::from_name("SQC (data)"), Client::ShaderScalar);
        assert_eq!(Client::from_access_flags(24), Client::ShaderVector);
        assert_eq!(Client::from_access_flags(40), Client::ShaderVector);
        assert_eq!(Client::from_access_flags(88), Client::ShaderFetch);
        assert_eq!(Client::from_access_flags(153), Client::CommandProcessor);
        assert_eq!(Client::from_access_flags(169), Client::CommandProcessor);
        // 0x80 without 0x01 is seen too, and its unit is not known.
        assert_eq!(Client::from_access_flags(144), Client::Unknown);
    }
}
