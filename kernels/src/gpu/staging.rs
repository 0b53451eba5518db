//! The pinned ring that weights pass through on their way to a discrete or carved-out device.
//!
//! A copy from a file mapping would make the runtime pin the file's pages in place: every reclaim of them then suspends all
//! queues, and on gfx1151 a large load can hang for ever. So bytes are read into pinned slots and copied from there; a slot is
//! reused when the mark behind its copy is over.

use super::driver::{Driver, Mark};
use super::error::GpuError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a slot: the knee of the copy rate on this class of machine.
pub const SLOT: usize = 4 << 20;
/// Slots of a ring.
pub const SLOTS: usize = 4;
const ALIGN: usize = 4096; // O_DIRECT reads need aligned memory

/// Where the time of a load went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// In the caller's reads.
    pub read: Duration,
    /// Starting copies.
    pub copy: Duration,
    /// Waiting for a slot or for the end.
    pub wait: Duration,
    /// Bytes that went through.
    pub bytes: u64,
}

struct Slot {
    address: u64,
    pinned: bool,
    busy: Option<Mark>,
    // backs `address` where the runtime has no pinned memory
    _own: Vec<u8>,
}

/// A ring of slots.
pub struct Ring {
    driver: Arc<dyn Driver>,
    slots: Vec<Slot>,
    next: usize,
    times: Times,
}

impl Ring {
    /// Slots in pinned memory where the runtime has it.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Self, GpuError> {
        let mut ring = Ring {
            driver,
            slots: Vec::new(),
            next: 0,
            times: Times::default(),
        };
        for _ in 0..SLOTS {
            let slot = match ring.driver.pinned(SLOT)? {
                Some(address) => Slot {
                    address,
                    pinned: true,
                    busy: None,
                    _own: Vec::new(),
                },
                None => {
                    let own = vec![0u8; SLOT + ALIGN];
                    Slot {
                        address: (own.as_ptr().addr() as u64).next_multiple_of(ALIGN as u64),
                        pinned: false,
                        busy: None,
                        _own: own,
                    }
                }
            };
            ring.slots.push(slot);
        }
        Ok(ring)
    }

    /// Fills the next slot with `read` and sends `len` bytes of it, from `skip` on, to device address `to`. `read` gets a
    /// 4 KiB-aligned buffer of [`SLOT`] bytes: it may read whole aligned sectors and skip what stands before the data.
    ///
    /// # Errors
    /// `read` failed, or the device did.
    pub fn send<E: From<GpuError>>(
        &mut self,
        to: u64,
        skip: usize,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let n = self.slots.len();
        let Some(slot) = self.slots.get_mut(self.next) else {
            return Ok(());
        };
        self.next = (self.next + 1) % n;
        if skip.checked_add(len).is_none_or(|end| end > SLOT) {
            return Err(GpuError::Unsupported {
                device: self.driver.kind(),
                what: "a piece longer than a staging slot",
            }
            .into());
        }
        let t = Instant::now();
        if let Some(mark) = slot.busy.take() {
            self.driver.wait(mark)?;
        }
        let waited = Instant::now();
        // SAFETY: the slot's SLOT bytes are ours; the copy that used them is over, and `&mut self` excludes another user.
        let buffer = unsafe { std::slice::from_raw_parts_mut(slot.address as *mut u8, SLOT) };
        read(buffer)?;
        let filled = Instant::now();
        if slot.pinned {
            self.driver
                .upload_pinned(to, slot.address + skip as u64, len)?;
            slot.busy = Some(self.driver.mark()?);
        } else {
            self.driver.upload(to, &buffer[skip..skip + len])?;
        }
        self.times.wait += waited - t;
        self.times.read += filled - waited;
        self.times.copy += filled.elapsed();
        self.times.bytes += len as u64;
        Ok(())
    }

    /// Waits for all copies and says where the time went.
    ///
    /// # Errors
    /// A copy failed.
    pub fn finish(mut self) -> Result<Times, GpuError> {
        let t = Instant::now();
        self.driver.synchronize()?;
        self.slots.iter_mut().for_each(|s| s.busy = None);
        self.times.wait += t.elapsed();
        Ok(self.times)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.slots.iter().any(|s| s.busy.is_some()) {
            let _ = self.driver.synchronize(); // the pinned memory must outlive its copies
        }
        for slot in self.slots.iter().filter(|s| s.pinned) {
            self.driver.free_pinned(slot.address);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} slots)", self.slots.len())
    }
}
