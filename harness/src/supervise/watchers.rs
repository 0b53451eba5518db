//! The threads around the loop and what they tell it.

use std::io::{BufRead, BufReader, PipeReader};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::stub::Word;
use super::tree::Tree;
use crate::capture::writer::CaptureNews;
use crate::os::proc_events::ProcEvents;
use crate::os::wake::{Wake, wait_readable};
use crate::os::{clock, procfs};

/// News for the loop.
#[derive(Debug)]
pub enum News {
    /// From the capture thread.
    Capture(CaptureNews),
    /// From the guardian.
    Word(Word),
    /// The guardian is gone.
    GuardianGone,
    /// The kernel's log says that the run is dead; the line.
    KernelFatal(String),
}

/// Forwards the guardian's words.
pub fn words(rx: BufReader<PipeReader>, tell: Sender<News>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in rx.lines().map_while(Result::ok) {
            if let Ok(w) = serde_json::from_str(&line)
                && tell.send(News::Word(w)).is_err()
            {
                return;
            }
        }
        let _ = tell.send(News::GuardianGone);
    })
}

/// What became of the process events.
#[derive(Debug, Default)]
pub struct EventsEnd {
    /// Times at which the kernel said that events were lost.
    pub losses: u64,
}

/// Longest time that is waited for the kernel's word on processes that are gone already.
const LATE_NS: u64 = 5_000_000_000;

/// Feeds the kernel's process events into the tree until `stop` is set, the queue is empty, and the end of every process
/// that is gone has been told.
///
/// The kernel lets a parent reap a child before it sends the child's exit event (`do_exit`: `exit_notify`, then
/// `proc_exit_connector`), so on a busy machine the last events come after the tree is empty. Fork events cannot
/// be late: they are sent before the child first runs. So once the queue is empty, everybody is known, and who is
/// known, not there and without an end has an event on its way.
pub fn process_events(
    source: ProcEvents,
    tree: Arc<Mutex<Tree>>,
    stop: Wake,
) -> JoinHandle<EventsEnd> {
    std::thread::spawn(move || {
        crate::os::process::hurry_this_thread();
        let mut end = EventsEnd::default();
        let mut batch = Vec::new();
        let mut give_up_at = None;
        loop {
            let stopping = stop.is_set();
            let more = match source.receive(&mut batch) {
                Ok(more) => more,
                Err(_) => {
                    // Forks may be among the lost ones: who is there now is found by looking.
                    end.losses += 1;
                    if let Ok(mut t) = tree.lock() {
                        t.look_around();
                    }
                    end.losses < 10_000
                }
            };
            if !batch.is_empty()
                && let Ok(mut t) = tree.lock()
            {
                batch.drain(..).for_each(|e| t.event(&e));
            }
            if more {
                continue;
            }
            if !stopping {
                let _ = wait_readable(&[source.fd(), stop.fd()], 1000);
                continue;
            }
            let now = clock::mono_ns();
            let until = *give_up_at.get_or_insert(now.saturating_add(LATE_NS));
            let Ok(mut t) = tree.lock() else { return end };
            // Held while looking, so that nobody is taken for gone between two looks.
            let due = t
                .live_pids()
                .into_iter()
                .any(|p| procfs::stat(p).is_none_or(|s| s.is_zombie()));
            if !due || now >= until || end.losses > 0 {
                t.sweep_gone(now);
                return end;
            }
            drop(t);
            let _ = wait_readable(&[source.fd()], 5);
        }
    })
}
