//! The CPU's worker threads.

/// Threads that share the work of an operation.
#[derive(Debug)]
pub struct Pool {
    threads: usize,
}

impl Pool {
    /// A pool of `threads` workers, the caller counted.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Pool {
            threads: threads.max(1),
        }
    }

    /// Number of workers.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }
}
