//! The threads around the loop and what they tell it.

use std::io::{BufRead, BufReader, PipeReader};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::stub::Word;
use super::tree::Tree;
use crate::capture::reader::CaptureNews;
use crate::os::proc_events::ProcEvents;
use crate::os::wake::{Wake, wait_readable};

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

/// Feeds the kernel's process events into the tree until `stop` is set and the queue is empty.
pub fn process_events(
    source: ProcEvents,
    tree: Arc<Mutex<Tree>>,
    stop: Wake,
) -> JoinHandle<EventsEnd> {
    std::thread::spawn(move || {
        crate::os::process::hurry_this_thread();
        let mut end = EventsEnd::default();
        let mut batch = Vec::new();
        loop {
            let stopping = stop.is_set();
            let more = match source.receive(&mut batch) {
                Ok(more) => more,
                Err(_) => {
                    end.losses += 1;
                    end.losses < 10_000
                }
            };
            if !batch.is_empty()
                && let Ok(mut t) = tree.lock()
            {
                batch.drain(..).for_each(|e| t.event(&e));
            }
            if !more {
                if stopping {
                    return end;
                }
                let _ = wait_readable(&[source.fd(), stop.fd()], 1000);
            }
        }
    })
}
