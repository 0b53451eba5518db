//! Threads that wait for small pieces of work without going to sleep at once.
//!
//! A decoded token is some hundreds of small operations; waking threads for each would cost more
//! than the work. After a piece of work a thread spins for a few tens of microseconds, then parks.
//! The thread that calls [`Pool::run`] is worker 0 and works too.
//!
//! Work is split into tasks by the caller, never by the number of threads, and a task writes only
//! its own outputs: so results do not depend on the number of threads.

use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread without work spins before it parks.
const SPIN: Duration = Duration::from_micros(40);

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// A set of persistent threads.
pub struct Pool {
    shared: Arc<Shared>,
    /// Held during a run: one piece of work at a time.
    turn: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
    wakers: Vec<Thread>,
}

struct Shared {
    /// Counts pieces of work; a change is the signal to start.
    epoch: AtomicU32,
    /// Workers that have not finished the present piece.
    pending: AtomicUsize,
    /// The present piece. Written before `epoch` changes, read after.
    job: UnsafeCell<Option<&'static Task<'static>>>,
    stop: AtomicBool,
    panicked: AtomicBool,
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is written only by the thread that holds `turn` while no worker runs
// (`pending` == 0), and read by workers only between the `epoch` change and their decrement of
// `pending`; both are release/acquire pairs.
unsafe impl Sync for Shared {}
// SAFETY: the task reference inside is `Sync`, so it may be reached from any thread.
unsafe impl Send for Shared {}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// A pool of `threads` workers (at least 1), the caller of [`Pool::run`] being one of them.
    ///
    /// Where the system refuses a thread the pool is smaller; [`Pool::threads`] tells.
    #[must_use]
    pub fn new(threads: usize) -> Pool {
        Pool::build(threads, &[])
    }

    /// As [`Pool::new`], with worker `i` bound to `cores[i]`. Worker 0 is the caller, which is not
    /// moved. A core that does not exist is left out.
    #[must_use]
    pub fn pinned(threads: usize, cores: &[usize]) -> Pool {
        Pool::build(threads, cores)
    }

    fn build(threads: usize, cores: &[usize]) -> Pool {
        let extra = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: AtomicU32::new(0),
            pending: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            asleep: (0..extra).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut pool = Pool {
            shared: Arc::clone(&shared),
            turn: Mutex::new(()),
            workers: Vec::with_capacity(extra),
            wakers: Vec::with_capacity(extra),
        };
        for index in 0..extra {
            let shared = Arc::clone(&shared);
            let core = cores.get(index + 1).copied();
            let spawned = std::thread::Builder::new()
                .name(format!("legwork-cpu-{}", index + 1))
                .spawn(move || {
                    if let Some(core) = core {
                        pin(core);
                    }
                    INSIDE.set(true);
                    shared.work(index);
                });
            let Ok(handle) = spawned else { break };
            pool.wakers.push(handle.thread().clone());
            pool.workers.push(handle);
        }
        pool
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Call `f` once on every worker, with its number; return when all have returned.
    ///
    /// Inside a task of a pool this calls `f` for every number on the present thread.
    ///
    /// # Panics
    /// If `f` panicked on any worker.
    pub fn run(&self, f: impl Fn(usize) + Sync) {
        if self.workers.is_empty() || INSIDE.get() {
            (0..self.threads()).for_each(f);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let task: &Task<'_> = &f;
        // SAFETY: only the lifetime changes. Workers use the reference until they decrement
        // `pending`, and `wait` (in the guard's drop, so also when `f` panics here) returns only
        // once all have, before `f` goes out of scope.
        let task = unsafe { std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task) };
        // SAFETY: we hold `turn` and `pending` is 0, so no worker reads the cell.
        unsafe { *self.shared.job.get() = Some(task) };
        self.shared
            .pending
            .store(self.workers.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (asleep, waker) in self.shared.asleep.iter().zip(&self.wakers) {
            if asleep.load(Ordering::SeqCst) {
                waker.unpark();
            }
        }
        let guard = Waiting(&self.shared);
        INSIDE.set(true);
        let mine = catch_unwind(AssertUnwindSafe(|| f(0)));
        INSIDE.set(false);
        drop(guard);
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        if self.shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a task panicked on a thread of the CPU pool");
        }
    }

    /// Call `f(range, worker)` for consecutive ranges of `chunk` items that cover `0..n`, handed
    /// out to whichever worker is free.
    pub fn ranges(&self, n: usize, chunk: usize, f: impl Fn(Range<usize>, usize) + Sync) {
        let chunk = chunk.max(1);
        if n <= chunk {
            if n > 0 {
                f(0..n, 0);
            }
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(|worker| {
            loop {
                let start = next.fetch_add(chunk, Ordering::Relaxed);
                if start >= n {
                    break;
                }
                f(start..(start + chunk).min(n), worker);
            }
        });
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.unpark();
        }
        for worker in self.workers.drain(..) {
            // A worker catches its tasks' panics, so there is nothing to learn from the result.
            let _ = worker.join();
        }
    }
}

/// Waits until all workers are done, however the scope is left.
struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut spins = 0_u32;
        while self.0.pending.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins > 10_000 {
                // More threads than cores: let the others have this one.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Shared {
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_epoch(index, seen);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the epoch changed, so the cell was written before and is not written again
            // until this worker decrements `pending` below.
            if let Some(task) = unsafe { *self.job.get() }
                && catch_unwind(AssertUnwindSafe(|| task(index + 1))).is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Wait for an epoch other than `seen`: spin, then park.
    fn next_epoch(&self, index: usize, seen: u32) -> u32 {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                let epoch = self.epoch.load(Ordering::Acquire);
                if epoch != seen {
                    return epoch;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                break;
            }
        }
        // Announce first, look again, then park: whoever changes the epoch after the look sees
        // the announcement.
        self.asleep[index].store(true, Ordering::SeqCst);
        let mut epoch = self.epoch.load(Ordering::SeqCst);
        while epoch == seen {
            std::thread::park();
            epoch = self.epoch.load(Ordering::SeqCst);
        }
        self.asleep[index].store(false, Ordering::SeqCst);
        epoch
    }
}

/// Bind the present thread to a core, if the system lets us.
#[cfg(target_os = "linux")]
fn pin(core: usize) {
    // SAFETY: `set` is a plain bit set that CPU_SET bounds-checks through its size; the call reads
    // it and nothing else.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if core < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(core, &mut set);
            libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn pin(_core: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_worker_runs_once_per_call() {
        let pool = Pool::new(4);
        for _ in 0..2000 {
            let calls: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
            pool.run(|w| {
                calls[w].fetch_add(1, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn ranges_cover_everything_once_after_a_sleep() {
        let pool = Pool::new(3);
        for n in [0, 1, 7, 100] {
            std::thread::sleep(Duration::from_millis(1)); // longer than SPIN: workers are parked
            let hits: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
            pool.ranges(n, 7, |range, worker| {
                assert!(worker < 3);
                for i in range {
                    hits[i].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{n}");
        }
    }

    #[test]
    fn nested_runs_stay_on_their_thread() {
        let pool = Pool::new(2);
        let calls = AtomicU64::new(0);
        pool.run(|_| {
            pool.run(|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(calls.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        for bad in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(|w| assert!(w != bad, "on purpose"));
            }));
            assert!(caught.is_err());
        }
        let calls = AtomicU64::new(0);
        pool.run(|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
