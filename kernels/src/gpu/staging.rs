//! The pinned ring that weights pass through on their way to a device.
//!
//! A copy from a file mapping would make the runtime pin the file's pages in place: every reclaim of them then suspends all
//! queues, and on gfx1151 a large load can hang for ever. So several threads read into pinned slots, and each slot is copied
//! from while others are filled; it is used again when the mark behind its copy is over.

use super::driver::{Driver, Mark};
use super::error::GpuError;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a slot: the knee of the copy rate on this class of machine.
pub const SLOT: usize = 4 << 20;
const ALIGN: usize = 4096; // O_DIRECT reads need aligned memory

/// Where the time of all threads together went.
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

/// A ring of slots, shared by threads.
pub struct Ring {
    driver: Arc<dyn Driver>,
    // the one that was given back first comes first: its copy is over soonest
    free: Mutex<VecDeque<Slot>>,
    given_back: Condvar,
    slots: usize,
    times: Mutex<Times>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    /// `slots` slots, in pinned memory where the runtime has it.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn new(driver: Arc<dyn Driver>, slots: usize) -> Result<Self, GpuError> {
        let ring = Ring {
            driver,
            free: Mutex::default(),
            given_back: Condvar::new(),
            slots: slots.max(1),
            times: Mutex::default(),
        };
        for _ in 0..ring.slots {
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
                        address: (own.as_ptr().expose_provenance() as u64)
                            .next_multiple_of(ALIGN as u64),
                        pinned: false,
                        busy: None,
                        _own: own,
                    }
                }
            };
            lock(&ring.free).push_back(slot);
        }
        Ok(ring)
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Fills a slot with `read` and sends `len` bytes of it, from `skip` on, to device address `to`. `read` gets a
    /// 4 KiB-aligned buffer of [`SLOT`] bytes: it may read whole aligned sectors and skip what stands before the data.
    ///
    /// # Errors
    /// `read` failed, or the device did.
    pub fn send<E: From<GpuError>>(
        &self,
        to: u64,
        skip: usize,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if skip.checked_add(len).is_none_or(|end| end > SLOT) {
            return Err(GpuError::Unsupported {
                device: self.driver.kind(),
                what: "a piece longer than a staging slot",
            }
            .into());
        }
        let begun = Instant::now();
        let mut slot = self.take();
        let result = self.pass(&mut slot, to, skip, len, read, begun);
        lock(&self.free).push_back(slot);
        self.given_back.notify_one();
        result
    }

    fn take(&self) -> Slot {
        let mut free = lock(&self.free);
        loop {
            match free.pop_front() {
                Some(slot) => return slot,
                None => {
                    free = self
                        .given_back
                        .wait(free)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn pass<E: From<GpuError>>(
        &self,
        slot: &mut Slot,
        to: u64,
        skip: usize,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
        begun: Instant,
    ) -> Result<(), E> {
        if let Some(mark) = slot.busy {
            self.driver.wait(mark)?;
            slot.busy = None;
        }
        let waited = Instant::now();
        // SAFETY: the slot's SLOT bytes are ours until it is given back; the copy that used them is over.
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
        let mut times = lock(&self.times);
        times.wait += waited - begun;
        times.read += filled - waited;
        times.copy += filled.elapsed();
        times.bytes += len as u64;
        Ok(())
    }

    /// Waits for all copies and says where the time went.
    ///
    /// # Errors
    /// A copy failed.
    pub fn finish(self) -> Result<Times, GpuError> {
        let begun = Instant::now();
        self.driver.synchronize()?;
        lock(&self.free).iter_mut().for_each(|s| s.busy = None);
        let mut times = *lock(&self.times);
        times.wait += begun.elapsed();
        Ok(times)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let slots = std::mem::take(&mut *lock(&self.free));
        if slots.iter().any(|s| s.busy.is_some()) {
            let _ = self.driver.synchronize(); // the pinned memory must outlive its copies
        }
        for slot in slots.iter().filter(|s| s.pinned) {
            self.driver.free_pinned(slot.address);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} slots)", self.slots)
    }
}

#[cfg(all(test, simt))]
mod tests {
    use super::*;
    use crate::gpu::GpuMemory;
    use crate::simt;
    use crate::tensor::DeviceMemory;

    /// Threads share fewer slots than they are; every byte arrives where it belongs, what stands before it in a slot does not.
    #[test]
    fn pieces_of_many_threads_arrive_in_place() {
        let driver: Arc<dyn Driver> = simt::open().unwrap();
        let (pieces, len) = (24usize, 10_000usize);
        let memory = GpuMemory::new(driver.clone(), pieces * len, "staged").unwrap();
        let ring = Ring::new(driver, 3).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (ring, memory) = (&ring, &memory);
                scope.spawn(move || {
                    for i in (thread..pieces).step_by(6) {
                        let to = memory.address() + (i * len) as u64;
                        ring.send::<GpuError>(to, 7, len, |buffer| {
                            assert!(buffer.as_ptr().addr().is_multiple_of(ALIGN));
                            buffer[..7].fill(255);
                            buffer[7..7 + len].fill(i as u8);
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        let times = ring.finish().unwrap();
        assert_eq!(times.bytes, (pieces * len) as u64);
        let mut got = vec![0; pieces * len];
        memory.download(0, &mut got).unwrap();
        for (i, piece) in got.chunks(len).enumerate() {
            assert!(piece.iter().all(|b| *b == i as u8), "piece {i}");
        }
    }

    /// A failed read or a piece that is too long gives the slot back.
    #[test]
    fn failures_do_not_lose_slots() {
        let driver: Arc<dyn Driver> = simt::open().unwrap();
        let memory = GpuMemory::new(driver.clone(), 16, "staged").unwrap();
        let ring = Ring::new(driver, 1).unwrap();
        let failed = |_: &mut [u8]| {
            Err(GpuError::Unsupported {
                device: crate::device::DeviceKind::Simt,
                what: "this read",
            })
        };
        for _ in 0..3 {
            assert!(ring.send(memory.address(), 0, 16, failed).is_err());
            assert!(
                ring.send::<GpuError>(memory.address(), SLOT, 1, |_| Ok(()))
                    .is_err()
            );
            // Beyond the allocation: the driver refuses.
            assert!(
                ring.send::<GpuError>(memory.address(), 0, 17, |_| Ok(()))
                    .is_err()
            );
        }
        ring.send::<GpuError>(memory.address(), 0, 16, |b| {
            b[..16].fill(3);
            Ok(())
        })
        .unwrap();
        ring.finish().unwrap();
        let mut got = [0; 16];
        memory.download(0, &mut got).unwrap();
        assert_eq!(got, [3; 16]);
    }
}
