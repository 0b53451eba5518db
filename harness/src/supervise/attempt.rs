//! The loop of one attempt.

use std::io::PipeWriter;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use chrono::{DateTime, Utc};
use legwork_reports::model::{Leak, ProcessEnd};

use super::account;
use super::deadlines::{self, Look};
use super::ending::{self, Stage};
use super::spec::{
    AttemptOutcome, AttemptSpec, CollectorNote, Control, CoreFile, KernelLogInfo, KillReason,
    Progress, Stop, Stuck, SuperviseError,
};
use super::start::{self, Started};
use super::stub::Word;
use super::tree::Tree;
use super::watchers::{self, EventsEnd, News};
use crate::capture::phases::PhaseTracker;
use crate::capture::writer::{self, CaptureNews, CaptureSetup, CaptureState, Captured};
use crate::evidence::board_dump;
use crate::evidence::cores::{self, CoreSetup};
use crate::evidence::kmsg::{Window, WindowEnd};
use crate::evidence::snapshot::{self, Snapshot};
use crate::evidence::telemetry::{Sampler, SamplerSetup};
use crate::os::cgroup::Cgroup;
use crate::os::proc_events::ProcEvents;
use crate::os::procfs::{self, Stat};
use crate::os::root::Root;
use crate::os::wake::Wake;
use crate::os::{clock, process};

/// Longest sleep of the loop.
const TICK: Duration = Duration::from_millis(50);
/// A gap between two looks at the clock above this was spent stopped.
const LONGEST_GAP_NS: u64 = 2_000_000_000;
/// The caller's tick and the stop question: this often.
const TELL_EVERY_NS: u64 = 200_000_000;
/// Less CPU time than this share of one core is no sign of life.
const IDLE_CPU_SHARE: f64 = 0.01;

/// Runs one attempt from spawn to the last byte of evidence. See [`AttemptOutcome`] for what comes back; an error
/// means that there was no attempt.
pub fn run(
    spec: &AttemptSpec,
    control: &mut dyn Control,
) -> Result<AttemptOutcome, SuperviseError> {
    let mut a = Attempt::begin(spec)?;
    a.watch_until_over(control);
    Ok(account::settle(a))
}

/// Everything that belongs to a running attempt.
pub(super) struct Attempt<'a> {
    pub spec: &'a AttemptSpec,
    pub root: Root,
    pub cgroup: Arc<Cgroup>,
    pub tree: Arc<Mutex<Tree>>,
    pub guardian: Child,
    pub guardian_pid: i32,
    pub guardian_alive: bool,
    pub control_pipe: Option<PipeWriter>,
    /// Held to the end: closing the terminal would send SIGHUP into the leg.
    _terminal: std::fs::File,
    news: Receiver<News>,
    pub state: Arc<CaptureState>,
    pub capture: JoinHandle<Captured>,
    pub capture_stop: Wake,
    pub kernel: JoinHandle<KernelLogInfo>,
    pub kernel_end: Arc<WindowEnd>,
    pub events: Option<JoinHandle<EventsEnd>>,
    pub events_stop: Wake,
    pub sampler: Sampler,
    pub core_setup: CoreSetup,
    pub core_jobs: Vec<JoinHandle<CoreFile>>,
    pub device_dumps_before: Vec<std::path::PathBuf>,
    pub leader: i32,
    pub leader_end: Option<(ProcessEnd, u64)>,
    pub leader_max_rss: Option<u64>,
    pub started: DateTime<Utc>,
    pub start_ns: u64,
    pub boot_offset_ns: i64,
    pub watch: clock::Stopwatch,
    stage: Stage,
    tree_is_empty: bool,
    dumping: Option<JoinHandle<Snapshot>>,
    pub killed_by: Option<KillReason>,
    fatal_line: Option<String>,
    pub leaks: Vec<Leak>,
    pub survivors: Vec<i32>,
    pub unkillable: bool,
    pub stuck: Option<Stuck>,
    pub oom_kills: Option<u64>,
    pub snapshots: Vec<Snapshot>,
    pub warnings: Vec<String>,
    pub collectors: Vec<CollectorNote>,
    last_life_ns: u64,
    last_output_seen: u64,
    last_cpu: Option<(u64, u64)>,
    last_sample_ns: u64,
    last_told_ns: u64,
    last_kill_ns: u64,
    fatal_seen: bool,
}

impl<'a> Attempt<'a> {
    fn begin(spec: &'a AttemptSpec) -> Result<Self, SuperviseError> {
        let io = SuperviseError::io;
        check(spec)?;
        let mut warnings = Vec::new();
        let mut collectors = Vec::new();
        if let Err(e) = process::become_subreaper() {
            warnings.push(format!(
                "orphans of a killed guardian will not be seen: {e}"
            ));
        }
        let root = Root::new(spec.sysroot.as_deref());
        let cgroup = Arc::new(Cgroup::create(&group_name(), spec.memory_max));
        warnings.extend(cgroup.notes.iter().filter(|n| n.contains("limit")).cloned());
        collectors.push(CollectorNote {
            name: "cgroup".into(),
            ok: cgroup.is_some(),
            note: if cgroup.notes.is_empty() {
                "own group".into()
            } else {
                cgroup.notes.join("; ")
            },
        });
        let device_dumps_before = board_dump::device_dumps(&root);
        let events = ProcEvents::open();
        collectors.push(CollectorNote {
            name: "process-events".into(),
            ok: events.is_ok(),
            note: match &events {
                Ok(_) => "every fork and exit".into(),
                Err(e) => format!(
                    "{e}: only the leader's and orphans' ends are known, not those of children that others wait for \
                     (run as root)"
                ),
            },
        });
        let (tell, news) = channel();
        let core_setup = CoreSetup {
            dir: spec.dir.clone(),
            cwd: spec.cwd.clone(),
            policy: spec.core,
            pattern: cores::pattern(&Root::default()),
            started: std::time::SystemTime::now(),
            store: cores::SYSTEMD_STORE.into(),
        };
        let mut s = start::start(spec, &cgroup)?;
        let guardian_pid = i32::try_from(s.guardian.id()).unwrap_or(0);
        let tree = Arc::new(Mutex::new(Tree::new(guardian_pid)));
        let events_stop = Wake::new().map_err(io("make an event descriptor"))?;
        let complete = events.is_ok();
        let events = events
            .ok()
            .map(|e| watchers::process_events(e, Arc::clone(&tree), events_stop.clone()));

        let (started, start_ns) = (clock::wall(), clock::mono_ns());
        let kernel_end = Arc::new(WindowEnd::new().map_err(io("make an event descriptor"))?);
        let kernel = kernel_thread(spec, &root, &tree, &kernel_end, start_ns, &tell);
        let state = Arc::new(CaptureState::default());
        if let Ok(mut p) = state.phases.lock() {
            *p = PhaseTracker::new(spec.phase_rules.clone());
        }
        let capture_stop = Wake::new().map_err(io("make an event descriptor"))?;
        let t = tell.clone();
        let setup = CaptureSetup {
            pty: s.pty.try_clone().map_err(io("duplicate the terminal"))?,
            stderr: s.stderr.take(),
            events: s.events.take(),
            stop: capture_stop.clone(),
            dir: spec.dir.clone(),
            start_ns,
            cap: spec.output_cap,
            flood_at: spec.output_cap.saturating_mul(64).max(64 << 20),
            fatal: spec.fatal_patterns,
            state: Arc::clone(&state),
            tell: Arc::new(move |n| {
                let _ = t.send(News::Capture(n));
            }),
        };
        let body = writer::prepare(setup).map_err(SuperviseError::io(format!(
            "make the capture files in {}",
            spec.dir.display()
        )));
        let body = match body {
            Ok(b) => b,
            Err(e) => return Err(abandon(e, s, &events_stop, &kernel_end)),
        };
        let capture = std::thread::spawn(body);
        let leader = match s.go(&spec.argv[0]) {
            Ok((pid, notes)) => {
                warnings.extend(notes);
                pid
            }
            Err(e) => {
                capture_stop.set();
                let _ = capture.join();
                let e = abandon(e, s, &events_stop, &kernel_end);
                remove_empty_files(spec);
                return Err(e);
            }
        };
        if let Ok(mut t) = tree.lock() {
            t.set_leader(leader);
        }
        let sampler = {
            let (tree, group, g2) = (Arc::clone(&tree), Arc::clone(&cgroup), Arc::clone(&cgroup));
            let idle = spec.timeouts.idle.map_or(Duration::from_secs(1), |d| d / 4);
            let every = if spec.telemetry_every.is_zero() {
                Duration::from_secs(1)
            } else {
                spec.telemetry_every
            };
            Sampler::start(SamplerSetup {
                root: root.clone(),
                dir: spec.dir.clone(),
                write: !spec.telemetry_every.is_zero(),
                every: every.min(idle).max(Duration::from_millis(50)),
                start_ns,
                alive: Box::new(move || match tree.lock() {
                    Ok(t) => ending::alive(&t, &group, guardian_pid, leader, complete),
                    Err(_) => Vec::new(),
                }),
                group_cpu_usec: Box::new(move || g2.cpu_usec()),
                disks: spec.disks.clone(),
                disk_floor: spec.disk_floor,
            })
            .map_err(io("start the sampler"))?
        };
        let Started {
            guardian,
            control,
            words,
            pty,
            ..
        } = s;
        watchers::words(words, tell);
        let a = Attempt {
            spec,
            root,
            cgroup,
            tree,
            guardian,
            guardian_pid,
            guardian_alive: true,
            control_pipe: Some(control),
            _terminal: pty,
            news,
            state,
            capture,
            capture_stop,
            kernel,
            kernel_end,
            events,
            events_stop,
            sampler,
            core_setup,
            core_jobs: Vec::new(),
            device_dumps_before,
            leader,
            leader_end: None,
            leader_max_rss: None,
            started,
            start_ns,
            boot_offset_ns: clock::boot_offset_ns(),
            watch: clock::Stopwatch::start(start_ns, LONGEST_GAP_NS),
            stage: Stage::Running,
            tree_is_empty: false,
            dumping: None,
            killed_by: None,
            fatal_line: None,
            leaks: Vec::new(),
            survivors: Vec::new(),
            unkillable: false,
            stuck: None,
            oom_kills: None,
            snapshots: Vec::new(),
            warnings,
            collectors,
            last_life_ns: 0,
            last_output_seen: 0,
            last_cpu: None,
            last_sample_ns: 0,
            last_told_ns: 0,
            last_kill_ns: 0,
            fatal_seen: false,
        };
        super::leftovers::note(&a);
        Ok(a)
    }

    /// Whether the kernel tells of every fork and exit.
    pub fn events_are_complete(&self) -> bool {
        self.events.is_some()
    }

    /// Whether something happened after which the kernel may still have something to say.
    pub fn was_rough(&self) -> bool {
        self.fatal_seen
            || self.killed_by.is_some()
            || self
                .leader_end
                .is_none_or(|(e, _)| e.crashed() || e.signal.is_some())
            || !self.core_jobs.is_empty()
    }

    fn alive(&self) -> Vec<Stat> {
        match self.tree.lock() {
            Ok(t) => ending::alive(
                &t,
                &self.cgroup,
                self.guardian_pid,
                self.leader,
                self.events_are_complete(),
            ),
            Err(_) => Vec::new(),
        }
    }

    fn watch_until_over(&mut self, control: &mut dyn Control) {
        while self.stage != Stage::Over {
            match self.news.recv_timeout(self.pause()) {
                Ok(n) => {
                    self.hear(n, control);
                    // A flood of news must not keep the clock from being looked at.
                    for _ in 0..256 {
                        match self.news.try_recv() {
                            Ok(n) => self.hear(n, control),
                            Err(_) => break,
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            self.watch.look(clock::mono_ns());
            if !self.guardian_alive {
                self.reap_adopted();
            }
            self.take_cores();
            self.look_for_life();
            self.ask(control);
            self.advance();
        }
        // The last bytes are read, and what was said before the end is heard.
        self.capture_stop.set();
        let until = std::time::Instant::now() + Duration::from_secs(2);
        while !self.capture.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        while let Ok(n) = self.news.try_recv() {
            self.hear(n, control);
        }
    }

    fn pause(&self) -> Duration {
        match self.stage {
            Stage::Killing(_) | Stage::Settling(_) => Duration::from_millis(10),
            _ => TICK,
        }
    }

    fn hear(&mut self, n: News, control: &mut dyn Control) {
        match n {
            News::Capture(CaptureNews::Lines(lines)) => {
                self.state.backlog.fetch_sub(lines.len(), Ordering::Relaxed);
                lines.iter().for_each(|l| control.on_line(l));
            }
            News::Capture(CaptureNews::Events(events)) => {
                self.state
                    .backlog
                    .fetch_sub(events.len(), Ordering::Relaxed);
                events.iter().for_each(|e| control.on_event(e));
            }
            News::Capture(CaptureNews::Fatal(line)) => self.fatal(line),
            News::KernelFatal(line) => self.fatal(format!("kernel: {line}")),
            News::Capture(CaptureNews::Flood) => self.end(KillReason::LogFlood),
            News::Capture(CaptureNews::Done) => {}
            News::Word(Word::End {
                pid,
                comm,
                end,
                mono_ns,
                max_rss,
            }) => {
                self.ended(pid, comm, end, mono_ns, max_rss);
            }
            News::Word(Word::Empty) => self.tree_is_empty = true,
            News::Word(_) => {}
            News::GuardianGone => {
                if self.control_pipe.is_some() && self.guardian_alive {
                    self.warnings.push(
                        "the leg killed its parent process: supervision went on without the guardian".into(),
                    );
                }
                self.guardian_alive = false;
                self.tree_is_empty = false;
            }
        }
    }

    fn ended(
        &mut self,
        pid: i32,
        comm: Option<String>,
        end: ProcessEnd,
        mono_ns: u64,
        max_rss: u64,
    ) {
        if let Ok(mut t) = self.tree.lock() {
            t.reaped(pid, comm, end, mono_ns);
        }
        if pid == self.leader {
            self.leader_end = Some((end, mono_ns));
            self.leader_max_rss = Some(max_rss).filter(|&r| r > 0);
        }
    }

    /// Without the guardian its children are ours.
    fn reap_adopted(&mut self) {
        let mut pids = self.tree.lock().map(|t| t.live_pids()).unwrap_or_default();
        if self.leader_end.is_none() && !pids.contains(&self.leader) {
            pids.push(self.leader); // the kernel told of its end, but we have not reaped it
        }
        for pid in pids {
            if let Ok(Some(_)) = process::wait(process::Which::Pid(pid), false) {
                let comm = procfs::comm(pid);
                if let Ok(Some(e)) = process::wait(process::Which::Pid(pid), true) {
                    self.ended(pid, comm, e.end, clock::mono_ns(), e.max_rss);
                }
            }
        }
        if self.leader_end.is_none() && procfs::stat(self.leader).is_none() {
            // Reaped by somebody else: the kernel's word is all there is.
            let end = self.tree.lock().ok().and_then(|t| t.end_of(self.leader));
            self.leader_end = Some((end.unwrap_or_default(), clock::mono_ns()));
        }
    }

    pub fn take_cores(&mut self) {
        let crashes = self
            .tree
            .lock()
            .map(|mut t| t.take_crashes())
            .unwrap_or_default();
        for gone in crashes {
            if !gone.end.is_some_and(|e| e.core_dumped) {
                continue;
            }
            let set = self.core_setup.clone();
            let n = self.core_jobs.len();
            self.core_jobs.push(std::thread::spawn(move || {
                let taken = cores::take(&set, gone);
                cores::keep(&set, taken, n)
            }));
        }
    }

    fn look_for_life(&mut self) {
        let now = self.watch.counted_ns();
        let out = self.state.last_ns.load(Ordering::Relaxed);
        if out != self.last_output_seen {
            self.last_output_seen = out;
            self.last_life_ns = now;
        }
        let s = self.sampler.latest();
        if s.at_ns == self.last_sample_ns {
            return;
        }
        self.last_sample_ns = s.at_ns;
        if let Some(low) = &s.disk_low
            && matches!(self.stage, Stage::Running | Stage::Draining(_))
        {
            self.warnings.push(format!("DISK_FULL: {low}"));
            self.end(KillReason::DiskFull);
        }
        if s.gpu_busy_pct.is_some_and(|b| b >= 1.0) {
            self.last_life_ns = now;
        }
        if let Some(cpu) = s.cpu_ns {
            if let Some((at, before)) = self.last_cpu {
                #[allow(clippy::cast_precision_loss)]
                let share =
                    cpu.saturating_sub(before) as f64 / s.at_ns.saturating_sub(at).max(1) as f64;
                if share >= IDLE_CPU_SHARE {
                    self.last_life_ns = now;
                }
            }
            self.last_cpu = Some((s.at_ns, cpu));
        }
        if !self.events_are_complete()
            && let Ok(mut t) = self.tree.lock()
        {
            // No word of the kernel: /proc is the only witness of who came and went.
            let stats = procfs::all_stats();
            for d in procfs::descendants_in(&stats, self.guardian_pid) {
                t.add(d.pid, Some(d.ppid));
            }
            t.sweep(&stats.iter().map(|s| s.pid).collect(), clock::mono_ns());
        }
    }

    fn ask(&mut self, control: &mut dyn Control) {
        let now = self.watch.counted_ns();
        match control.stop_requested() {
            Stop::No => {}
            Stop::Suspend => self.suspend(),
            Stop::Graceful if self.killed_by.is_none() => self.end(KillReason::Stopped),
            Stop::Kill if !matches!(self.stage, Stage::Killing(_) | Stage::Over) => {
                self.killed_by = Some(KillReason::Killed);
                self.begin_killing();
            }
            Stop::Graceful | Stop::Kill => {}
        }
        if now >= self.last_told_ns + TELL_EVERY_NS {
            self.last_told_ns = now;
            control.tick(&self.progress(now));
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn progress(&self, now: u64) -> Progress {
        let s = self.sampler.latest();
        Progress {
            elapsed_s: now as f64 / 1e9,
            output_bytes: self.state.bytes.load(Ordering::Relaxed),
            lines: self.state.lines.load(Ordering::Relaxed),
            phase: self
                .state
                .phases
                .lock()
                .ok()
                .and_then(|p| p.open().last().map(|(n, _)| n.clone())),
            rss_bytes: s.rss_bytes,
            cpu_s: s.cpu_ns.map(|c| c as f64 / 1e9),
            gpu_busy_pct: s.gpu_busy_pct,
            processes: s.processes,
            idle_s: now.saturating_sub(self.last_life_ns) as f64 / 1e9,
        }
    }

    /// Stops the tree, then this process; goes on when somebody continues it. The clocks stand still meanwhile.
    fn suspend(&mut self) {
        self.watch.look(clock::mono_ns());
        let mut stopped: Vec<Stat> = Vec::new();
        // A process may fork while its neighbours are being stopped: until nobody new is seen.
        for _ in 0..8 {
            let fresh: Vec<Stat> = self
                .alive()
                .into_iter()
                .filter(|s| !stopped.iter().any(|t| t.pid == s.pid))
                .filter(|s| !matches!(s.state, 'T' | 't'))
                .collect();
            if fresh.is_empty() {
                break;
            }
            ending::signal_all(&fresh, libc::SIGSTOP);
            stopped.extend(fresh);
        }
        // SAFETY: stops this process until somebody continues it; no memory is touched.
        unsafe { libc::raise(libc::SIGSTOP) };
        let now = clock::mono_ns();
        self.state.resumed_ns.store(now, Ordering::Relaxed);
        // Those that stopped themselves before stay stopped.
        ending::signal_all(&stopped, libc::SIGCONT);
        self.watch.skip_to(now);
    }

    fn fatal(&mut self, line: String) {
        self.fatal_seen = true;
        if self.spec.fatal_patterns && self.stage == Stage::Running {
            self.fatal_line = Some(line);
            self.stage = Stage::Draining(self.watch.counted_ns() + ending::FATAL_DRAIN_NS);
        }
    }

    /// Begins to end the attempt.
    fn end(&mut self, reason: KillReason) {
        if !matches!(self.stage, Stage::Running | Stage::Draining(_)) {
            return;
        }
        let dump = self.spec.dump_on_deadline
            && (reason.timed_out().is_some() || matches!(reason, KillReason::FatalPattern(_)));
        self.killed_by = Some(reason);
        if dump {
            let (dir, alive) = (self.spec.dir.clone(), self.alive());
            self.dumping = Some(std::thread::spawn(move || {
                snapshot::take(&dir, "deadline", &alive)
            }));
            let most = u64::try_from(snapshot::GDB_TIME.as_nanos()).unwrap_or(u64::MAX);
            self.stage = Stage::Dumping(self.watch.counted_ns() + most + 2_000_000_000);
        } else {
            self.begin_terminating();
        }
    }

    fn begin_terminating(&mut self) {
        let alive = self.alive();
        if self.spec.abort_on_deadline
            && self
                .killed_by
                .as_ref()
                .is_some_and(|r| r.timed_out().is_some())
        {
            let _ = process::kill(self.leader, libc::SIGABRT);
            ending::signal_all(
                &alive
                    .into_iter()
                    .filter(|s| s.pid != self.leader)
                    .collect::<Vec<_>>(),
                libc::SIGTERM,
            );
        } else {
            ending::signal_all(&alive, libc::SIGTERM);
        }
        let grace = u64::try_from(self.spec.timeouts.grace.as_nanos()).unwrap_or(u64::MAX);
        self.stage = Stage::Terminating(self.watch.counted_ns().saturating_add(grace));
    }

    fn begin_killing(&mut self) {
        self.stage = Stage::Killing(self.watch.counted_ns());
        self.last_kill_ns = 0;
    }

    fn nothing_left(&self) -> bool {
        if self.guardian_alive {
            self.tree_is_empty
        } else {
            self.leader_end.is_some() && self.alive().is_empty()
        }
    }

    fn advance(&mut self) {
        let now = self.watch.counted_ns();
        let over = self.leader_end.is_some() && self.nothing_left();
        match self.stage {
            Stage::Running | Stage::Draining(_) if self.leader_end.is_some() => {
                self.stage = Stage::Settling(now + ending::SETTLE_NS);
                if over {
                    self.stage = Stage::Over;
                }
            }
            Stage::Running => {
                if let Some(reason) = self.deadline(now) {
                    self.end(reason);
                }
            }
            Stage::Draining(until) => {
                let dumping = self.tree.lock().is_ok_and(|t| t.somebody_dumps());
                let limit = if dumping {
                    until + ending::CORE_NS
                } else {
                    until
                };
                if now >= limit {
                    let line = self.fatal_line.clone().unwrap_or_default();
                    self.end(KillReason::FatalPattern(line));
                } else if let Some(reason) = self.deadline(now) {
                    self.end(reason);
                }
            }
            Stage::Dumping(until) => {
                if self.dumping.as_ref().is_none_or(JoinHandle::is_finished) || now >= until {
                    self.take_snapshot();
                    self.begin_terminating();
                }
            }
            Stage::Terminating(until) => {
                if over {
                    self.stage = Stage::Over;
                } else {
                    let dumping = self.tree.lock().is_ok_and(|t| t.somebody_dumps());
                    if now
                        >= if dumping {
                            until.saturating_add(ending::CORE_NS)
                        } else {
                            until
                        }
                    {
                        if self.leader_end.is_some() {
                            self.list_leaks();
                        }
                        self.begin_killing();
                    }
                }
            }
            Stage::Settling(until) => {
                if over {
                    self.stage = Stage::Over;
                } else if now >= until {
                    self.list_leaks();
                    self.begin_killing();
                }
            }
            Stage::Killing(since) => self.keep_killing(since, now, over),
            Stage::Over => {}
        }
    }

    fn keep_killing(&mut self, since: u64, now: u64, over: bool) {
        if over {
            self.stage = Stage::Over;
            return;
        }
        if now < self.last_kill_ns + 50_000_000 && self.last_kill_ns != 0 {
            return;
        }
        self.last_kill_ns = now.max(1);
        let alive = self.alive();
        ending::kill_all(&alive, &self.cgroup);
        if alive.is_empty()
            && self.leader_end.is_some()
            && now.saturating_sub(since) > 1_000_000_000
        {
            self.stage = Stage::Over; // the guardian did not say so, but nobody is there
            return;
        }
        let d_limit =
            u64::try_from(self.spec.timeouts.unkillable_after.as_nanos()).unwrap_or(u64::MAX);
        if ending::is_unkillable(&alive, now.saturating_sub(since), d_limit) {
            self.unkillable = true;
            self.survivors = alive.iter().map(|s| s.pid).collect();
            let snap = snapshot::take_within(
                &self.spec.dir,
                "after SIGKILL",
                &stuck(&alive),
                Duration::from_secs(10),
            );
            for s in &snap.sleepers {
                self.warnings.push(format!("unkillable: pid {s}"));
            }
            self.stuck = Some(Stuck {
                pids: self.survivors.clone(),
                wchan: snap.wchans.clone(),
                stack: snap.stack.clone(),
            });
            self.snapshots.push(snap);
            self.stage = Stage::Over;
        }
    }

    fn take_snapshot(&mut self) {
        if let Some(d) = self.dumping.take() {
            if d.is_finished() {
                self.snapshots.extend(d.join());
            } else {
                self.warnings.push("stacks were not taken in time".into());
            }
        }
    }

    fn deadline(&self, now: u64) -> Option<KillReason> {
        let open = self
            .state
            .phases
            .lock()
            .map(|p| p.open())
            .unwrap_or_default();
        deadlines::over(
            &self.spec.timeouts,
            Look {
                elapsed_ns: now,
                idle_ns: now.saturating_sub(self.last_life_ns),
                now_ns: clock::mono_ns(),
                open_phases: &open,
                stopped_ns: self.watch.stopped_ns(),
            },
        )
    }

    fn list_leaks(&mut self) {
        for s in self.alive() {
            self.leaks.push(Leak {
                pid: s.pid,
                comm: s.comm.clone(),
                age_s: procfs::age_s(&s),
            });
        }
    }
}

/// gdb must not be tried on what cannot be stopped.
fn stuck(alive: &[Stat]) -> Vec<Stat> {
    alive.iter().filter(|s| s.state == 'D').cloned().collect()
}

fn check(spec: &AttemptSpec) -> Result<(), SuperviseError> {
    let bad = |m: String| Err(SuperviseError::Spec(m));
    match spec.argv.first() {
        None => return bad("no program".into()),
        Some(p) if !p.starts_with('/') => {
            return bad(format!(
                "the program `{p}` is not an absolute path: resolve it first"
            ));
        }
        Some(_) => {}
    }
    if !spec.dir.is_dir() {
        return bad(format!("the folder {} does not exist", spec.dir.display()));
    }
    if spec
        .argv
        .iter()
        .chain(spec.env.iter().flat_map(|(k, v)| [k, v]))
        .any(|s| s.contains('\0'))
    {
        return bad("an argument or a variable holds a NUL byte".into());
    }
    Ok(())
}

fn group_name() -> String {
    use std::sync::atomic::AtomicU32;
    static N: AtomicU32 = AtomicU32::new(0);
    format!(
        "legwork-{}-{}",
        std::process::id(),
        N.fetch_add(1, Ordering::Relaxed)
    )
}

fn kernel_thread(
    spec: &AttemptSpec,
    root: &Root,
    tree: &Arc<Mutex<Tree>>,
    end: &Arc<WindowEnd>,
    start_ns: u64,
    tell: &std::sync::mpsc::Sender<News>,
) -> JoinHandle<KernelLogInfo> {
    let window = Window::open(root, &spec.dir, start_ns);
    let (end, tree, tell, watch) = (
        Arc::clone(end),
        Arc::clone(tree),
        tell.clone(),
        spec.fatal_patterns,
    );
    std::thread::spawn(move || {
        window.follow(&end, |text| {
            let ours = |pid| tree.lock().is_ok_and(|t| t.knows(pid));
            if watch && crate::capture::fatal::in_kernel_log(text, ours) {
                let _ = tell.send(News::KernelFatal(text.to_owned()));
            }
        })
    })
}

/// Ends what was begun before the child ran.
fn abandon(e: SuperviseError, mut s: Started, events: &Wake, kernel: &WindowEnd) -> SuperviseError {
    drop(s.control);
    let _ = s.guardian.wait();
    events.set();
    kernel.close_at(clock::mono_ns());
    e
}

/// A child that never ran leaves no capture files, so that nobody takes them for an empty capture.
fn remove_empty_files(spec: &AttemptSpec) {
    for f in ["output.raw", "output.log", "stderr.raw", "events.jsonl"] {
        let p = spec.dir.join(f);
        if std::fs::metadata(&p).is_ok_and(|m| m.len() == 0) {
            let _ = std::fs::remove_file(p);
        }
    }
}
