//! Helper threads for large launches. Block `i` runs on worker `i % workers`, so what a launch computes does not depend on
//! timing; a worker is a thread because the fibre runtime keeps its stacks per thread.

use super::ffi;
use std::ffi::c_int;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};

struct Job {
    launch: *const ffi::Launch,
    stop: *const c_int,
    first: u64,
    step: u64,
    done: Sender<(c_int, Box<ffi::RawReport>)>,
}
// SAFETY: the pointers stay valid until the job's answer has been received, and the launch is only read.
unsafe impl Send for Job {}

struct Helpers {
    // one queue per helper
    queues: Vec<Sender<Job>>,
}

fn helpers() -> &'static Mutex<Helpers> {
    static HELPERS: OnceLock<Mutex<Helpers>> = OnceLock::new();
    HELPERS.get_or_init(|| {
        let n = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(16);
        let queues = (1..n)
            .filter_map(|i| {
                let (queue, jobs) = channel();
                let thread = std::thread::Builder::new().name(format!("simt-{i}"));
                thread.spawn(move || serve(&jobs)).ok().map(|_| queue)
            })
            .collect();
        Mutex::new(Helpers { queues })
    })
}

fn serve(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        let mut report = Box::new(ffi::RawReport::zeroed());
        // SAFETY: the sender waits for the answer, so the launch and the flag live on.
        let status = unsafe {
            ffi::simt_run_blocks(job.launch, job.first, job.step, &raw mut *report, job.stop)
        };
        if job.done.send((status, report)).is_err() {
            return;
        }
    }
}

struct ReleaseOnExit;
impl Drop for ReleaseOnExit {
    fn drop(&mut self) {
        // SAFETY: the thread runs no fibre any more.
        unsafe { ffi::simt_release_thread() }
    }
}
thread_local! {
    static RELEASE: ReleaseOnExit = const { ReleaseOnExit };
}

/// Runs all blocks. The status and the report of the lowest-numbered worker that failed.
pub fn run(launch: &ffi::Launch, blocks: u64) -> (c_int, Box<ffi::RawReport>) {
    RELEASE.with(|_| ());
    let mut report = Box::new(ffi::RawReport::zeroed());
    let stop: c_int = 0;
    // Few blocks are not worth waking anybody; a busy pool is left to its user.
    let pool = if blocks >= 8 {
        helpers().try_lock().ok()
    } else {
        None
    };
    let Some(pool) = pool.filter(|p| !p.queues.is_empty()) else {
        // SAFETY: `launch` is complete and outlives the call.
        let status =
            unsafe { ffi::simt_run_blocks(launch, 0, 1, &raw mut *report, &raw const stop) };
        return (status, report);
    };
    let step = pool.queues.len() as u64 + 1;
    let (done, answers) = channel();
    let mut sent = 0;
    for (i, queue) in pool.queues.iter().enumerate() {
        let job = Job {
            launch,
            stop: &raw const stop,
            first: i as u64 + 1,
            step,
            done: done.clone(),
        };
        sent += usize::from(queue.send(job).is_ok());
    }
    // SAFETY: as above.
    let mut status =
        unsafe { ffi::simt_run_blocks(launch, 0, step, &raw mut *report, &raw const stop) };
    // Every job must have answered before `launch` may go.
    for _ in 0..sent {
        if let Ok((s, r)) = answers.recv()
            && status == 0
        {
            status = s;
            report = r;
        }
    }
    if sent as u64 + 1 < step && status == 0 {
        status = 2;
    }
    (status, report)
}
