//! What people see while an attempt runs: one progress line on a terminal, plain heartbeat lines elsewhere. A heartbeat
//! tells of progress (leg, phase, bytes, CPU time, memory), and it stops with the attempt.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::stop::StopFlags;
use super::{Options, Verbosity};
use crate::legfile::format_size;
use crate::supervise::{Control, EngineEvent, Line, Progress, Stop};

/// The eyes and hands of the user on a running attempt.
pub(super) struct Live {
    bar: Option<ProgressBar>,
    head: String,
    heartbeat: Duration,
    last: Instant,
    verbosity: Verbosity,
    stop: StopFlags,
    tokens: u64,
}

impl Live {
    /// For a whole run of `attempts` attempts.
    pub(super) fn new(options: &Options, attempts: usize, stop: StopFlags) -> Live {
        let bar = (options.bar && options.verbosity == Verbosity::Normal).then(|| {
            let bar = ProgressBar::new(attempts as u64);
            if let Ok(style) = ProgressStyle::with_template("{spinner} [{pos}/{len}] {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Live {
            bar,
            head: String::new(),
            heartbeat: options.heartbeat,
            last: Instant::now(),
            verbosity: options.verbosity,
            stop,
            tokens: 0,
        }
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, head: String) {
        self.head = head;
        self.tokens = 0;
        self.last = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_message(self.head.clone());
        }
    }

    /// An attempt ended; `line` is what is said of it.
    pub(super) fn end(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        self.say(line);
    }

    /// A line for people, beside the progress line.
    pub(super) fn say(&self, line: &str) {
        match (&self.bar, self.verbosity) {
            (_, Verbosity::Quiet) => {}
            (Some(bar), _) => bar.println(line),
            (None, _) => {
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }
        }
    }

    /// The run is over.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn words(&self, progress: &Progress) -> String {
        let mut words = format!("{} · {:.0} s", self.head, progress.elapsed_s);
        if let Some(phase) = &progress.phase {
            words.push_str(&format!(" · {phase}"));
        }
        if self.tokens > 0 {
            words.push_str(&format!(" · {} tokens", self.tokens));
        }
        words.push_str(&format!(" · {} out", format_size(progress.output_bytes)));
        if let Some(cpu) = progress.cpu_s {
            words.push_str(&format!(" · {cpu:.0} s cpu"));
        }
        if let Some(rss) = progress.rss_bytes {
            words.push_str(&format!(" · {} rss", format_size(rss >> 20 << 20)));
        }
        if let Some(busy) = progress.gpu_busy_pct {
            words.push_str(&format!(" · gpu {busy:.0} %"));
        }
        if progress.idle_s >= 5.0 {
            words.push_str(&format!(" · idle {:.0} s", progress.idle_s));
        }
        words
    }
}

impl Control for Live {
    fn on_line(&mut self, line: &Line) {
        if self.verbosity == Verbosity::Verbose && !line.partial {
            let text: String = super::lines::plain(&line.text)
                .chars()
                .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
                .collect();
            self.say(&format!("  | {text}"));
        }
    }

    fn on_event(&mut self, event: &EngineEvent) {
        if event.event == "token" {
            self.tokens += 1;
        }
    }

    fn tick(&mut self, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.words(progress));
        } else if self.last.elapsed() >= self.heartbeat {
            self.last = Instant::now();
            self.say(&format!(
                "[{}] {}",
                chrono::Utc::now().format("%H:%M:%S"),
                self.words(progress)
            ));
        }
    }

    fn stop_requested(&self) -> Stop {
        self.stop.for_supervisor()
    }
}
