//! Programs that misbehave on purpose. The test binary runs itself as `BINARY helper NAME ARGS…`.

use std::io::Write;
use std::time::Duration;

/// Runs the helper named in the arguments; never returns when there is one.
pub fn run_if_asked() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == "spawn-stub") {
        std::process::exit(legwork::supervise::stub::main());
    }
    if args.get(1).is_none_or(|a| a != "helper") {
        return;
    }
    let name = args.get(2).map_or("", String::as_str);
    let arg = |i: usize| args.get(3 + i).cloned().unwrap_or_default();
    let secs = |i: usize| Duration::from_secs_f64(arg(i).parse().unwrap_or(60.0));
    match name {
        "say" => println!("{}", arg(0)),
        "sleep" => std::thread::sleep(secs(0)),
        "segv" => segv(),
        "abort" => std::process::abort(),
        "ignore-term" => ignore_term(secs(0)),
        "setsid-child" => setsid_child(secs(0)),
        "double-fork" => double_fork(secs(0)),
        "background-child" => background_child(secs(0)),
        "fork-crash" => fork_crash(),
        "spam" => spam(arg(0).parse().unwrap_or(1 << 20)),
        "close-stdout" => close_stdout(),
        "kill-parent" => kill_parent(),
        "eat-memory" => eat_memory(arg(0).parse().unwrap_or(64) << 20),
        "clock-lines" => clock_lines(arg(0).parse().unwrap_or(200)),
        "read-file" => {
            let r = std::fs::read(arg(0));
            println!("read: {:?}", r.map(|b| b.len()));
        }
        "spin" => {
            let until = std::time::Instant::now() + secs(0);
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        "fatal-then-stall" => {
            println!(
                "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f00. Reason: Unknown."
            );
            std::thread::sleep(secs(0));
        }
        "events" => events(),
        "tty" => tty(),
        "burst" => burst(),
        "stop-self" => {
            println!("stopping");
            // SAFETY: stops this process only.
            unsafe { libc::raise(libc::SIGSTOP) };
            println!("continued");
        }
        "fill-disk" => fill_disk(&arg(0)),
        "env" => {
            for (k, v) in std::env::vars() {
                println!("{k}={v}");
            }
        }
        other => {
            eprintln!("no helper {other}");
            std::process::exit(99);
        }
    }
    std::process::exit(0);
}

fn segv() -> ! {
    println!("about to crash");
    // A fault at a known address, from native code: the kernel sees SIGSEGV with si_addr 0x1234.
    // SAFETY: none; the point is the fault.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL); // Rust's own handler is for stack overflow
        std::ptr::write_volatile(std::ptr::without_provenance_mut::<u8>(0x1234), 1);
    }
    std::process::exit(98);
}

fn ignore_term(d: Duration) {
    // SAFETY: ignoring a signal installs no handler.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
    println!("ignoring SIGTERM");
    std::thread::sleep(d);
}

fn fork(child: impl FnOnce()) {
    // SAFETY: this process has one thread here.
    match unsafe { libc::fork() } {
        0 => {
            child();
            std::process::exit(0);
        }
        -1 => panic!("fork"),
        _ => {}
    }
}

/// A child in a session of its own; the leader exits at once with 0.
fn setsid_child(d: Duration) {
    fork(|| {
        // SAFETY: no memory is touched.
        unsafe { libc::setsid() };
        std::thread::sleep(d);
    });
    std::thread::sleep(Duration::from_millis(50));
    println!("leader done");
}

fn double_fork(d: Duration) {
    fork(|| {
        // SAFETY: no memory is touched.
        unsafe { libc::setsid() };
        fork(|| std::thread::sleep(d));
    });
    std::thread::sleep(Duration::from_millis(50));
    println!("leader done");
}

/// A child that holds the terminal and ignores SIGTERM and SIGHUP (for 63 seconds: heeds them).
fn background_child(d: Duration) {
    fork(|| {
        if d.as_secs() == 63 {
            std::thread::sleep(d)
        } else {
            ignore_term(d)
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    println!("leader done");
}

/// A grandchild crashes, everybody above exits with 0.
fn fork_crash() {
    fork(|| {
        fork(|| segv());
        wait_for_children();
    });
    wait_for_children();
    println!("all is well");
}

fn wait_for_children() {
    // SAFETY: no status is asked for.
    while unsafe { libc::wait(std::ptr::null_mut()) } > 0 {}
}

fn spam(bytes: u64) {
    let line = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-spam-spam-spam\n";
    let block = line.repeat(800);
    let mut left = bytes;
    let mut out = std::io::stdout().lock();
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        if out.write_all(&block.as_bytes()[..n]).is_err() {
            return;
        }
        left -= n as u64;
    }
    let _ = out.flush();
}

fn close_stdout() {
    println!("closing");
    let _ = std::io::stdout().flush();
    for fd in 0..3 {
        // SAFETY: closes our own standard streams; nothing uses them afterwards.
        unsafe { libc::close(fd) };
    }
    std::thread::sleep(Duration::from_millis(300));
    std::process::exit(7);
}

fn kill_parent() {
    println!("killing parent");
    // SAFETY: signals one process.
    unsafe { libc::kill(libc::getppid(), libc::SIGKILL) };
    std::thread::sleep(Duration::from_millis(300));
    println!("still here");
    std::process::exit(5);
}

fn eat_memory(bytes: usize) {
    println!("eating");
    let mut v = vec![0u8; bytes];
    for i in (0..bytes).step_by(4096) {
        v[i] = 1;
    }
    println!(
        "ate {}",
        v.iter().step_by(4096).map(|&b| u64::from(b)).sum::<u64>()
    );
}

/// Lines that hold the moment at which they were written.
fn clock_lines(n: u32) {
    let mut out = std::io::stdout().lock();
    for _ in 0..n {
        let _ = writeln!(out, "{}", legwork::os::clock::mono_ns());
        let _ = out.flush();
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn events() {
    use std::os::fd::FromRawFd;
    let fd: i32 = std::env::var("LEGWORK_EVENTS_FD")
        .ok()
        .and_then(|v| v.parse().ok())
        .expect("events fd");
    // SAFETY: the descriptor was opened for us.
    let mut f = unsafe { std::fs::File::from_raw_fd(fd) };
    let t = legwork::os::clock::mono_ns;
    let mut say = |s: String| f.write_all(format!("{s}\n").as_bytes()).unwrap();
    say(format!(
        r#"{{"event":"start","mono_ns":{},"version":"0"}}"#,
        t()
    ));
    say(format!(
        r#"{{"event":"load_begin","mono_ns":{},"path":"x"}}"#,
        t()
    ));
    std::thread::sleep(Duration::from_millis(60));
    say(format!(
        r#"{{"event":"load_end","mono_ns":{},"secs":0.06,"weights_bytes":12}}"#,
        t()
    ));
    say("this is no event".into());
    say(format!(
        r#"{{"event":"run_begin","mono_ns":{},"run":1}}"#,
        t()
    ));
    println!("generated text");
    say(format!(
        r#"{{"event":"first_token","mono_ns":{},"secs":0.5}}"#,
        t()
    ));
    say(format!(r#"{{"event":"end","mono_ns":{}}}"#, t()));
}

fn tty() {
    // SAFETY: questions about descriptors and this process; the winsize is filled by the call.
    unsafe {
        let mut ws: libc::winsize = std::mem::zeroed();
        libc::ioctl(1, libc::TIOCGWINSZ, &mut ws);
        let tty = libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR);
        println!(
            "isatty={} size={}x{} ctty={} session_leader={} stdin_eof={}",
            libc::isatty(1),
            ws.ws_col,
            ws.ws_row,
            tty >= 0,
            libc::getsid(0) == libc::getpid(),
            libc::read(0, [0u8; 1].as_mut_ptr().cast(), 1) == 0,
        );
        let mut open = Vec::new();
        for fd in 0..256 {
            if fd != tty && libc::fcntl(fd, libc::F_GETFD) >= 0 {
                open.push(fd);
            }
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &mut set);
        let blocked = (1..32).filter(|&s| libc::sigismember(&set, s) == 1).count();
        println!("open={open:?} blocked={blocked} raw=\ttab");
    }
}

fn burst() {
    std::thread::sleep(Duration::from_millis(2300));
    let mut out = String::new();
    for i in 0..40 {
        out.push_str(&format!("[  4118s] line {i}\n"));
    }
    std::io::stdout().lock().write_all(out.as_bytes()).unwrap();
}

fn fill_disk(dir: &str) {
    let block = vec![7u8; 64 << 10];
    let mut f = std::fs::File::create(format!("{dir}/filler")).unwrap();
    while f.write_all(&block).is_ok() {}
    println!("disk is full");
    for i in 0..2000 {
        println!(
            "line {i} after the disk was full, which has to be counted although it cannot be kept"
        );
    }
}
