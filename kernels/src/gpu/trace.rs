//! The ring of the last launches, in a file that survives the process (`VT_KERNEL_TRACE=1`).
//!
//! A GPU fault kills the process from inside the runtime; what was in flight is then read from the file. Layout, little
//! endian: a header of 64 bytes (`magic`, version, slots, slot bytes, next sequence number), then the slots. A slot is
//! overwritten when the ring comes around; its state says how far the launch got.

use super::driver::{Driver, Launch, Mark};
use super::error::GpuError;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"LWKTRACE";
const SLOTS: usize = 1024;
const SLOT: usize = 256;
const HEADER: usize = 64;
const NAME: usize = 48;
const WORDS: usize = 20;

/// How far a launch got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The call that starts it has not returned.
    Starting,
    /// Handed to the device.
    Issued,
    /// Known to be over.
    Done,
    /// The call that starts it failed.
    Failed,
}

impl State {
    fn code(self) -> u32 {
        self as u32 + 1
    }
    fn from_code(code: u32) -> Option<Self> {
        [State::Starting, State::Issued, State::Done, State::Failed]
            .into_iter()
            .find(|s| s.code() == code)
    }
}

/// One recorded launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence number from 1.
    pub seq: u64,
    /// Kernel name.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// How far it got.
    pub state: State,
    /// CLOCK_MONOTONIC nanoseconds when it was started.
    pub started_ns: u64,
    /// CLOCK_MONOTONIC nanoseconds when it was seen to be over, 0 before.
    pub done_ns: u64,
    /// The first words of the argument struct: addresses, then sizes.
    pub args: Vec<u64>,
}

/// Where the recording goes: `$LEGWORK_KERNEL_TRACE`, else `kernel-trace.bin` in the working folder.
#[must_use]
pub fn path() -> PathBuf {
    std::env::var_os("LEGWORK_KERNEL_TRACE")
        .filter(|p| !p.is_empty())
        .map_or_else(|| PathBuf::from("kernel-trace.bin"), PathBuf::from)
}

/// A recording being written.
pub struct Trace {
    map: *mut u8,
    len: usize,
    seq: u64,
    // marks of launches not yet seen to be over
    pending: VecDeque<(usize, Mark)>,
}
// SAFETY: the mapping is owned by this value alone.
unsafe impl Send for Trace {}
// SAFETY: shared references do not write.
unsafe impl Sync for Trace {}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trace({})", self.seq)
    }
}

impl Trace {
    /// Creates the file, over an older one.
    ///
    /// # Errors
    /// The file cannot be created or mapped.
    pub fn create(path: &Path) -> Result<Self, GpuError> {
        let failed = |source| GpuError::File {
            path: path.to_path_buf(),
            source,
        };
        let len = HEADER + SLOTS * SLOT;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(failed)?;
        file.set_len(len as u64).map_err(failed)?;
        // SAFETY: a fresh shared mapping of a file of this length.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        let mut trace = Trace {
            map: map.cast(),
            len,
            seq: 0,
            pending: VecDeque::new(),
        };
        trace.put(0, &MAGIC);
        trace.put(8, &1u32.to_le_bytes());
        trace.put(12, &(SLOTS as u32).to_le_bytes());
        trace.put(16, &(SLOT as u32).to_le_bytes());
        Ok(trace)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.len);
        // SAFETY: callers stay inside the mapping: offsets are slot numbers below SLOTS and constants.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.add(at), bytes.len()) }
    }

    /// Records that a launch is about to start.
    pub fn begin(&mut self, launch: &Launch<'_>) -> usize {
        self.seq += 1;
        let slot = (self.seq as usize - 1) % SLOTS;
        let at = HEADER + slot * SLOT;
        self.put(at + 8, &0u32.to_le_bytes()); // no state while the slot is being written
        let mut name = [0u8; NAME];
        let n = launch.kernel.len().min(NAME - 1);
        name[..n].copy_from_slice(&launch.kernel.as_bytes()[..n]);
        let mut words = [0u8; WORDS * 8];
        let n = launch.args.len().min(words.len());
        words[..n].copy_from_slice(&launch.args[..n]);
        self.put(at, &self.seq.to_le_bytes());
        self.put(at + 12, &launch.threads.to_le_bytes());
        for (i, g) in launch.grid.iter().enumerate() {
            self.put(at + 16 + 4 * i, &g.to_le_bytes());
        }
        self.put(at + 28, &u32::try_from(n / 8).unwrap_or(0).to_le_bytes());
        self.put(at + 32, &now_ns().to_le_bytes()[..8]);
        self.put(at + 40, &0u64.to_le_bytes());
        self.put(at + 48, &name);
        self.put(at + 48 + NAME, &words);
        self.put(at + 8, &State::Starting.code().to_le_bytes());
        self.put(24, &self.seq.to_le_bytes());
        slot
    }

    /// Records that the call returned.
    pub fn issued(&mut self, slot: usize, ok: bool) {
        let state = if ok { State::Issued } else { State::Failed };
        self.put(HEADER + slot * SLOT + 8, &state.code().to_le_bytes());
    }

    /// Remembers the point after a launch, and notes which earlier ones are over by now.
    pub fn follow(&mut self, driver: &dyn Driver, slot: usize, mark: Mark) {
        self.pending.push_back((slot, mark));
        while let Some((slot, mark)) = self.pending.front().copied() {
            if !driver.is_done(mark) {
                break;
            }
            self.done(slot);
            self.pending.pop_front();
        }
    }

    /// Everything issued so far is over.
    pub fn all_done(&mut self) {
        while let Some((slot, _)) = self.pending.pop_front() {
            self.done(slot);
        }
    }

    fn done(&mut self, slot: usize) {
        let at = HEADER + slot * SLOT;
        self.put(at + 40, &now_ns().to_le_bytes());
        self.put(at + 8, &State::Done.code().to_le_bytes());
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // SAFETY: mapped in `create` with this length.
        unsafe { libc::munmap(self.map.cast(), self.len) };
    }
}

fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// A recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Not a recording, or of another version.
    #[error("{path}: not a launch recording of version 1", path = path.display())]
    Format {
        /// Its path.
        path: PathBuf,
    },
}

/// Reads a recording, oldest launch first. Those in [`State::Starting`] or [`State::Issued`] were in flight, or were never
/// asked about; the first of them in order is the suspect.
///
/// # Errors
/// The file cannot be read or is no recording.
pub fn read(path: &Path) -> Result<Vec<Record>, ReadError> {
    let bytes = std::fs::read(path).map_err(|source| ReadError::File {
        path: path.to_path_buf(),
        source,
    })?;
    if bytes.len() != HEADER + SLOTS * SLOT
        || bytes[..8] != MAGIC
        || bytes[8..12] != 1u32.to_le_bytes()
    {
        return Err(ReadError::Format {
            path: path.to_path_buf(),
        });
    }
    let mut records: Vec<Record> = bytes[HEADER..]
        .chunks_exact(SLOT)
        .filter_map(record)
        .collect();
    records.sort_by_key(|r| r.seq);
    Ok(records)
}

fn record(slot: &[u8]) -> Option<Record> {
    let u32_at = |at: usize| {
        slot.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    };
    let u64_at = |at: usize| {
        slot.get(at..at + 8)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    };
    let state = State::from_code(u32_at(8))?;
    let name = slot.get(48..48 + NAME)?;
    let end = name.iter().position(|b| *b == 0).unwrap_or(NAME);
    Some(Record {
        seq: u64_at(0),
        kernel: String::from_utf8_lossy(&name[..end]).into_owned(),
        grid: [u32_at(16), u32_at(20), u32_at(24)],
        threads: u32_at(12),
        state,
        started_ns: u64_at(32),
        done_ns: u64_at(40),
        args: (0..(u32_at(28) as usize).min(WORDS))
            .map(|i| u64_at(48 + NAME + 8 * i))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("legwork-trace-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_launch_in_flight_is_found_in_the_file() {
        let path = file("flight");
        let mut trace = Trace::create(&path).unwrap();
        let args: Vec<u8> = [0x1000u64, 77]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let launch = |kernel| Launch {
            kernel,
            grid: [3, 2, 1],
            threads: 128,
            args: &args,
        };
        let a = trace.begin(&launch("rms_norm"));
        trace.issued(a, true);
        trace.pending.push_back((a, Mark(0)));
        trace.all_done();
        let b = trace.begin(&launch("topk_select"));
        trace.issued(b, true);
        trace.begin(&launch("mla_attention"));
        // Not dropped: the file is read as after a crash.
        let records = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let states: Vec<_> = records
            .iter()
            .map(|r| (r.kernel.as_str(), r.state))
            .collect();
        assert_eq!(
            states,
            [
                ("rms_norm", State::Done),
                ("topk_select", State::Issued),
                ("mla_attention", State::Starting)
            ]
        );
        assert_eq!(records[1].args, [0x1000, 77]);
        assert_eq!(
            (records[1].grid, records[1].threads, records[1].done_ns),
            ([3, 2, 1], 128, 0)
        );
        assert!(records[0].done_ns >= records[0].started_ns && records[0].started_ns > 0);
    }

    #[test]
    fn the_ring_keeps_the_last_launches() {
        let path = file("ring");
        let mut trace = Trace::create(&path).unwrap();
        for _ in 0..SLOTS + 10 {
            let slot = trace.begin(&Launch {
                kernel: "add",
                grid: [1, 1, 1],
                threads: 256,
                args: &[],
            });
            trace.issued(slot, true);
        }
        let records = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(records.len(), SLOTS);
        assert_eq!(records[0].seq, 11);
    }

    #[test]
    fn other_files_are_refused() {
        let path = file("other");
        std::fs::write(&path, b"LWKTRACE").unwrap();
        assert!(matches!(read(&path), Err(ReadError::Format { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path), Err(ReadError::File { .. })));
    }
}
