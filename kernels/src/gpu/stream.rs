//! One driver for runtimes of CUDA's shape: HIP and CUDA differ in names and numbers, not in what is done with them.

use super::driver::{DeviceFacts, Driver, GraphId, Launch, Mark};
use super::error::GpuError;
use super::pack::Pack;
use crate::device::DeviceKind;
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

type R<T> = Result<T, GpuError>;

/// The calls of a runtime. Handles and addresses are numbers; there is one stream.
pub(super) trait Api: Send + Sync {
    /// Which device kind it serves.
    const KIND: DeviceKind;
    /// Makes the device current on the calling thread.
    fn bind(&self) -> R<()>;
    fn malloc(&self, bytes: usize) -> R<u64>;
    fn free(&self, address: u64) -> R<()>;
    fn host_alloc(&self, bytes: usize) -> R<u64>;
    fn host_free(&self, address: u64) -> R<()>;
    /// `from` is pinned memory.
    fn h2d(&self, to: u64, from: u64, bytes: usize) -> R<()>;
    /// `to` is pinned memory.
    fn d2h(&self, to: u64, from: u64, bytes: usize) -> R<()>;
    fn d2d(&self, to: u64, from: u64, bytes: usize) -> R<()>;
    fn zero(&self, to: u64, bytes: usize) -> R<()>;
    fn stream_sync(&self) -> R<()>;
    fn event_create(&self) -> R<u64>;
    fn event_record(&self, event: u64) -> R<()>;
    fn event_done(&self, event: u64) -> R<bool>;
    fn event_sync(&self, event: u64) -> R<()>;
    fn event_ms(&self, from: u64, to: u64) -> R<f32>;
    fn module_load(&self, image: &[u8]) -> R<u64>;
    /// `None` where the module has no such kernel.
    fn module_function(&self, module: u64, name: &CString) -> R<Option<u64>>;
    fn launch(&self, function: u64, launch: &Launch<'_>) -> R<()>;
    fn capture_begin(&self) -> R<()>;
    /// The recorded graph, ready to run.
    fn capture_end(&self) -> R<u64>;
    fn graph_launch(&self, graph: u64) -> R<()>;
    fn graph_free(&self, graph: u64) -> R<()>;
}

/// Events in use at a time; an older mark counts as over once its event is taken again.
const EVENTS: u64 = 4096;
/// Bytes of a bounce slot, and their number.
const BOUNCE: usize = 4 << 20;
const BOUNCES: usize = 2;

struct State {
    functions: HashMap<&'static str, u64>,
    events: Vec<u64>,
    marks: u64,
    // pinned slots that pageable memory passes through, with the mark of their last use
    bounce: Vec<(u64, Option<Mark>)>,
    next_bounce: usize,
}

/// A device behind an [`Api`].
pub(super) struct StreamDriver<A: Api> {
    api: A,
    facts: DeviceFacts,
    modules: Vec<u64>,
    target: String,
    state: Mutex<State>,
}

impl<A: Api> fmt::Debug for StreamDriver<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", A::KIND, self.facts.name)
    }
}

impl<A: Api> StreamDriver<A> {
    /// Loads the code objects.
    pub fn new(api: A, facts: DeviceFacts, pack: &Pack) -> R<Self> {
        api.bind()?;
        let modules = pack
            .parts
            .iter()
            .map(|(_, image)| api.module_load(image))
            .collect::<R<Vec<_>>>()?;
        let bounce = (0..BOUNCES)
            .map(|_| api.host_alloc(BOUNCE).map(|a| (a, None)))
            .collect::<R<Vec<_>>>()?;
        let state = Mutex::new(State {
            functions: HashMap::new(),
            events: Vec::new(),
            marks: 0,
            bounce,
            next_bounce: 0,
        });
        Ok(StreamDriver {
            api,
            target: facts.target.clone(),
            facts,
            modules,
            state,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn function(&self, name: &'static str) -> R<u64> {
        if let Some(f) = self.state().functions.get(name) {
            return Ok(*f);
        }
        let missing = |reason: &str| GpuError::NoKernel {
            kernel: name.to_owned(),
            target: self.target.clone(),
            reason: reason.to_owned(),
        };
        let c = CString::new(name).map_err(|_| missing("its name has a zero byte"))?;
        for module in &self.modules {
            if let Some(f) = self.api.module_function(*module, &c)? {
                self.state().functions.insert(name, f);
                return Ok(f);
            }
        }
        Err(missing(
            "no loaded code object has it; the kernel pack is older than this binary",
        ))
    }

    fn mark_in(&self, state: &mut State) -> R<Mark> {
        let i = state.marks % EVENTS;
        let event = match state.events.get(usize::try_from(i).unwrap_or(0)) {
            Some(e) => *e,
            None => {
                let e = self.api.event_create()?;
                state.events.push(e);
                e
            }
        };
        self.api.event_record(event)?;
        state.marks += 1;
        Ok(Mark(state.marks - 1))
    }

    /// The event of a mark, unless it has been taken again.
    fn event(state: &State, mark: Mark) -> Option<u64> {
        if mark.0 + EVENTS < state.marks {
            return None;
        }
        state
            .events
            .get(usize::try_from(mark.0 % EVENTS).unwrap_or(0))
            .copied()
    }

    /// The next bounce slot, free to use.
    fn slot(&self, state: &mut State) -> R<(usize, u64)> {
        let i = state.next_bounce;
        state.next_bounce = (i + 1) % BOUNCES;
        let (address, busy) = state.bounce.get(i).copied().unwrap_or((0, None));
        if let Some(event) = busy.and_then(|m| Self::event(state, m)) {
            self.api.event_sync(event)?;
        }
        Ok((i, address))
    }
}

impl<A: Api> Drop for StreamDriver<A> {
    fn drop(&mut self) {
        // The process usually ends with its device; only pinned memory is given back, after the work that may use it.
        let _ = self.api.bind().and_then(|()| self.api.stream_sync());
        for (address, _) in &self.state().bounce {
            let _ = self.api.host_free(*address);
        }
    }
}

impl<A: Api> Driver for StreamDriver<A> {
    fn kind(&self) -> DeviceKind {
        A::KIND
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn allocate(&self, bytes: usize, _label: &str) -> R<u64> {
        self.api.bind()?;
        let address = self
            .api
            .malloc(bytes.max(1))
            .map_err(|e| GpuError::OutOfMemory {
                device: A::KIND,
                bytes,
                what: e.to_string(),
            })?;
        self.api.zero(address, bytes)?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        // After a sticky error these fail too; the process is lost then and says so elsewhere.
        let _ = self
            .api
            .bind()
            .and_then(|()| self.api.stream_sync())
            .and_then(|()| self.api.free(address));
    }

    fn upload(&self, to: u64, from: &[u8]) -> R<()> {
        self.api.bind()?;
        let mut state = self.state();
        let mut done = 0u64;
        for piece in from.chunks(BOUNCE) {
            let (i, slot) = self.slot(&mut state)?;
            // SAFETY: the slot has BOUNCE bytes of pinned memory, and no copy uses it any more.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), slot as *mut u8, piece.len()) };
            self.api.h2d(to + done, slot, piece.len())?;
            let mark = self.mark_in(&mut state)?;
            if let Some(b) = state.bounce.get_mut(i) {
                b.1 = Some(mark);
            }
            done += piece.len() as u64;
        }
        Ok(())
    }

    fn download(&self, to: &mut [u8], from: u64) -> R<()> {
        self.api.bind()?;
        let mut state = self.state();
        let mut done = 0u64;
        for piece in to.chunks_mut(BOUNCE) {
            let (_, slot) = self.slot(&mut state)?;
            self.api.d2h(slot, from + done, piece.len())?;
            self.api.stream_sync()?;
            // SAFETY: the copy into the slot is over, and the slot is at least as long.
            unsafe {
                std::ptr::copy_nonoverlapping(slot as *const u8, piece.as_mut_ptr(), piece.len())
            };
            done += piece.len() as u64;
        }
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        self.api.bind()?;
        self.api.d2d(to, from, bytes)
    }

    fn launch(&self, launch: &Launch<'_>) -> R<()> {
        self.api.bind()?;
        self.api.launch(self.function(launch.kernel)?, launch)
    }

    fn synchronize(&self) -> R<()> {
        self.api.bind()?;
        self.api.stream_sync()
    }

    fn mark(&self) -> R<Mark> {
        self.api.bind()?;
        let mut state = self.state();
        self.mark_in(&mut state)
    }

    fn elapsed_ms(&self, from: Mark, to: Mark) -> R<f32> {
        self.api.bind()?;
        let state = self.state();
        match (Self::event(&state, from), Self::event(&state, to)) {
            (Some(a), Some(b)) => {
                self.api.event_sync(b)?;
                self.api.event_ms(a, b)
            }
            _ => Err(GpuError::Unsupported {
                device: A::KIND,
                what: "a time stamp older than 4096 others",
            }),
        }
    }

    fn is_done(&self, mark: Mark) -> bool {
        let event = Self::event(&self.state(), mark);
        event.is_none_or(|e| {
            self.api
                .bind()
                .and_then(|()| self.api.event_done(e))
                .unwrap_or(false)
        })
    }

    fn wait(&self, mark: Mark) -> R<()> {
        self.api.bind()?;
        let event = Self::event(&self.state(), mark);
        event.map_or(Ok(()), |e| self.api.event_sync(e))
    }

    fn capture_begin(&self) -> R<()> {
        self.api.bind()?;
        self.api.capture_begin()
    }

    fn capture_end(&self) -> R<GraphId> {
        self.api.bind()?;
        self.api.capture_end().map(GraphId)
    }

    fn graph_launch(&self, graph: GraphId) -> R<()> {
        self.api.bind()?;
        self.api.graph_launch(graph.0)
    }

    fn graph_free(&self, graph: GraphId) {
        let _ = self
            .api
            .bind()
            .and_then(|()| self.api.stream_sync())
            .and_then(|()| self.api.graph_free(graph.0));
    }

    fn pinned(&self, bytes: usize) -> R<Option<u64>> {
        self.api.bind()?;
        self.api.host_alloc(bytes).map(Some)
    }

    fn free_pinned(&self, address: u64) {
        let _ = self.api.bind().and_then(|()| self.api.host_free(address));
    }

    fn upload_pinned(&self, to: u64, from: u64, bytes: usize) -> R<()> {
        self.api.bind()?;
        self.api.h2d(to, from, bytes)
    }
}
