//! A GPU page fault.

use super::Proc;
use crate::triage::fault_status::{Client, FaultStatus};

/// A GPU page fault with all its lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageFault {
    /// `gfxhub`, `mmhub`, or empty for old chips.
    pub hub: String,
    /// The access flags that the first line calls `ring:`.
    pub ring: Option<u16>,
    /// VM id of the first line.
    pub vmid: Option<u8>,
    /// Address-space id.
    pub pasid: Option<u64>,
    /// The process, where one is named.
    pub process: Option<Proc>,
    /// Faulting page.
    pub address: Option<u64>,
    /// Protection status, where printed.
    pub status: Option<u32>,
    /// Client name, where printed.
    pub client_name: Option<String>,
    /// Client number printed beside the name.
    pub client_id: Option<u16>,
    /// Walker error printed by the driver.
    pub walker: Option<u8>,
    /// Permission faults printed by the driver.
    pub permission: Option<u8>,
    /// Mapping error printed by the driver.
    pub mapping: Option<bool>,
    /// Write access printed by the driver.
    pub rw: Option<bool>,
}

impl PageFault {
    /// The status word, decoded.
    #[must_use]
    pub fn decoded(&self) -> Option<FaultStatus> {
        self.status.filter(|s| *s != 0).map(FaultStatus)
    }

    /// The unit that made the access: by printed name, then number, then status word, then access flags.
    #[must_use]
    pub fn client(&self) -> Client {
        if self.status == Some(u32::MAX) || self.client_id == Some(0x1ff) {
            return Client::Gone;
        }
        // An empty status word makes the driver print client 0 (`CB`): no statement about the unit.
        if self.status == Some(0) {
            return self.client_by_flags();
        }
        if let Some(name) = &self.client_name {
            let c = Client::from_name(name);
            if c != Client::Unknown {
                return c;
            }
        }
        let by_number = self
            .client_id
            .or_else(|| self.decoded().map(FaultStatus::client))
            .map_or(Client::Unknown, Client::from_id);
        if by_number != Client::Unknown {
            return by_number;
        }
        self.client_by_flags()
    }

    fn client_by_flags(&self) -> Client {
        if self.hub.starts_with("mmhub") {
            return Client::Unknown;
        }
        let client = self.ring.map_or(Client::Unknown, Client::from_access_flags);
        // The command processor's flags were seen on gfx10 and later; gfx9 numbers its hubs.
        let gfx9 = self.hub.ends_with(|c: char| c.is_ascii_digit());
        if gfx9 && client == Client::CommandProcessor {
            Client::Unknown
        } else {
            client
        }
    }

    /// Whether the access was a write.
    #[must_use]
    pub fn write(&self) -> Option<bool> {
        self.rw
            .or_else(|| self.decoded().map(FaultStatus::write))
            .or_else(|| {
                self.ring
                    .filter(|r| *r <= 0xff && r & 0x38 != 0)
                    .map(|r| r & 0x20 != 0)
            })
    }

    /// The kernel's own address space: vmid 0, no pasid, nobody.
    #[must_use]
    pub fn is_kernel_space(&self) -> bool {
        self.vmid == Some(0)
            && self.pasid.unwrap_or(0) == 0
            && self.process.as_ref().is_none_or(Proc::is_nobody)
    }

    /// The page tables were not there at all: what command-processor faults look like.
    #[must_use]
    pub fn no_page_table(&self) -> bool {
        let walker = self
            .walker
            .or_else(|| self.decoded().map(FaultStatus::walker_error));
        let mapping = self
            .mapping
            .or_else(|| self.decoded().map(FaultStatus::mapping_error));
        walker.is_some_and(|w| w != 0) && mapping == Some(true)
    }
}
