//! Tensors in device memory.

use super::driver::Driver;
use super::error::GpuError;
use crate::device::DeviceKind;
use crate::tensor::{DeviceMemory, MemoryDomain, TensorError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often the host wrote to device memory, or got some anew, in this process.
static HOST_WRITES: AtomicU64 = AtomicU64::new(0);

pub(super) fn host_writes() -> u64 {
    HOST_WRITES.load(Ordering::Relaxed)
}

/// A block of device memory, freed on drop.
#[derive(Debug)]
pub struct GpuMemory {
    driver: Arc<dyn Driver>,
    address: u64,
    bytes: usize,
}

impl GpuMemory {
    /// Zeroed memory; `label` names it in reports.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn new(driver: Arc<dyn Driver>, bytes: usize, label: &str) -> Result<Self, GpuError> {
        HOST_WRITES.fetch_add(1, Ordering::Relaxed);
        let address = driver.allocate(bytes, label)?;
        Ok(GpuMemory {
            driver,
            address,
            bytes,
        })
    }

    /// The driver it came from.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    fn inside(&self, offset: usize, len: usize) -> Result<u64, TensorError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(self.address + offset as u64),
            _ => Err(TensorError::Device(format!(
                "{len} bytes at {offset} do not fit an allocation of {} bytes",
                self.bytes
            ))),
        }
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

fn say(e: &GpuError) -> TensorError {
    TensorError::Device(e.to_string())
}

impl DeviceMemory for GpuMemory {
    fn address(&self) -> u64 {
        self.address
    }
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn device(&self) -> DeviceKind {
        self.driver.kind()
    }
    fn upload(&mut self, offset: usize, from: &[u8]) -> Result<(), TensorError> {
        let to = self.inside(offset, from.len())?;
        HOST_WRITES.fetch_add(1, Ordering::Relaxed);
        self.driver.upload(to, from).map_err(|e| say(&e))
    }
    fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), TensorError> {
        let from = self.inside(offset, to.len())?;
        self.driver.download(to, from).map_err(|e| say(&e))
    }
}

/// Hands out memory of one device.
#[derive(Debug, Clone)]
pub struct GpuDomain {
    driver: Arc<dyn Driver>,
    next: Arc<AtomicU64>,
}

impl GpuDomain {
    /// Memory of `driver`.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        GpuDomain {
            driver,
            next: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// A named block.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn named(&self, bytes: usize, label: &str) -> Result<GpuMemory, TensorError> {
        GpuMemory::new(self.driver.clone(), bytes, label).map_err(|e| say(&e))
    }

    /// A weight's blocks, copied in.
    ///
    /// # Errors
    /// Memory is exhausted, or the copy failed.
    pub fn weight(&self, blocks: &[u8], name: &str) -> Result<Arc<dyn DeviceMemory>, TensorError> {
        let mut memory = self.named(blocks.len(), name)?;
        memory.upload(0, blocks)?;
        Ok(Arc::new(memory))
    }
}

impl MemoryDomain for GpuDomain {
    fn device(&self) -> DeviceKind {
        self.driver.kind()
    }
    fn allocate(&self, bytes: usize) -> Result<Option<Box<dyn DeviceMemory>>, TensorError> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Box::new(self.named(bytes, &format!("tensor {n}"))?)))
    }
}
