//! What a kernel did wrong, found by the fibre runtime.

use std::fmt;

/// Kinds of wrongdoing; numbers shared with `simt/simt.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Outside the buffer that the pointer came from.
    OutOfBounds,
    /// Through a null argument.
    NullPointer,
    /// Not at a multiple of the element's alignment.
    Misaligned,
    /// The argument points into no live allocation.
    UnknownPointer,
    /// Outside a shared array.
    SharedOutOfBounds,
    /// Not every thread came to the same barrier.
    BarrierDivergence,
    /// Not every lane came to the same wave operation.
    WaveDivergence,
    /// A shuffle from a lane that does not exist.
    ShuffleOutOfWave,
    /// Two threads met in shared memory without a barrier between.
    SharedRace,
    /// A limit of the hardware, such as 64 KiB of shared memory.
    Limit,
}

impl Fault {
    pub(super) fn from_code(code: i32) -> Self {
        match code {
            1 => Fault::OutOfBounds,
            2 => Fault::NullPointer,
            3 => Fault::Misaligned,
            4 => Fault::UnknownPointer,
            5 => Fault::SharedOutOfBounds,
            6 => Fault::BarrierDivergence,
            7 => Fault::WaveDivergence,
            8 => Fault::ShuffleOutOfWave,
            9 => Fault::SharedRace,
            _ => Fault::Limit,
        }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::OutOfBounds => "access out of bounds",
            Fault::NullPointer => "access through a null argument",
            Fault::Misaligned => "misaligned access",
            Fault::UnknownPointer => "pointer into no live allocation",
            Fault::SharedOutOfBounds => "shared memory access out of bounds",
            Fault::BarrierDivergence => "barrier not reached by all threads",
            Fault::WaveDivergence => "wave operation not reached by all lanes",
            Fault::ShuffleOutOfWave => "shuffle from outside the wave",
            Fault::SharedRace => "shared memory race",
            Fault::Limit => "hardware limit",
        }
    }
}

/// One wrongdoing with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it is.
    pub fault: Fault,
    /// Kernel name.
    pub kernel: String,
    /// Source file of `kernels/hip`.
    pub file: String,
    /// Line in it.
    pub line: u32,
    /// Block.
    pub block: [u32; 3],
    /// Thread in the block.
    pub thread: u32,
    /// Kernel argument with its allocation, or shared array.
    pub buffer: String,
    /// Index in elements from the buffer's start.
    pub index: i64,
    /// Elements of the buffer.
    pub len: u64,
    /// Bytes of an element.
    pub elem: u32,
    /// What else there is to say.
    pub detail: String,
    /// Seed of the schedule that showed it.
    pub seed: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(
            f,
            "kernel {}: {} at {}:{}, block ({x}, {y}, {z}), thread {}",
            self.kernel,
            self.fault.name(),
            self.file,
            self.line,
            self.thread
        )?;
        if !self.buffer.is_empty() {
            write!(
                f,
                ", {}[{}] of {} elements of {} bytes",
                self.buffer, self.index, self.len, self.elem
            )?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        write!(f, " (schedule seed {})", self.seed)
    }
}
