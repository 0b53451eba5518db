//! Properties of triage over the golden cases: truncation, noise, prefix styles, and bytes of any kind.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use legwork::triage::{Case, Context, Ident, Lexer, Source, judge};
use legwork_reports::model::{Class, Role, Verdict};
use proptest::prelude::*;

/// One golden case, its logs as lines.
struct Golden {
    name: String,
    context: Context,
    kernel: Vec<String>,
    output: Option<String>,
    verdict: Verdict,
}

fn golden() -> &'static [Golden] {
    static ALL: LazyLock<Vec<Golden>> = LazyLock::new(|| {
        let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/triage");
        let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "txt"))
            .collect();
        files.sort();
        files
            .into_iter()
            .filter_map(|path| {
                let text = std::fs::read_to_string(&path).unwrap();
                let section = |name: &str| -> Option<String> {
                    let mark = format!("\n--- {name}\n");
                    let at = text.find(&mark)? + mark.len();
                    let end = text[at..].find("\n--- ").map_or(text.len(), |e| at + e + 1);
                    Some(text[at..end].to_owned())
                };
                let kernel = section("kernel").filter(|k| !k.trim().is_empty())?;
                let mut g = Golden {
                    name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                    context: Context::from_yaml(&section("context").unwrap_or_default()).unwrap(),
                    kernel: kernel.split_inclusive('\n').map(str::to_owned).collect(),
                    output: section("output"),
                    verdict: Verdict::new(
                        Class::Clean,
                        "",
                        legwork_reports::model::Confidence::Low,
                        "",
                    ),
                };
                g.verdict = g.judge(&g.kernel);
                Some(g)
            })
            .collect()
    });
    &ALL
}

impl Golden {
    fn judge(&self, kernel: &[String]) -> Verdict {
        judge(&Case {
            kernel: Some(Source::Text(kernel.concat())),
            output: self.output.clone().map(Source::Text),
            context: self.context.clone(),
        })
        .verdict
    }

    /// The last kernel line that decides or supports.
    fn last_needed(&self) -> u64 {
        self.verdict
            .evidence
            .iter()
            .filter(|e| {
                e.source == "kernel.log" && matches!(e.role, Role::Decides | Role::Supports)
            })
            .filter_map(|e| e.line)
            .max()
            .unwrap_or(0)
    }
}

/// Lines that have nothing to do with any leg, some of them frightening.
const NOISE: &[&str] = &[
    "usb 3-1: new full-speed USB device number 9 using xhci_hcd",
    "[UFW BLOCK] IN=enp1s0 OUT= MAC= SRC=192.0.2.1 DST=224.0.0.1 LEN=36",
    "audit: type=1400 audit(1776016193.288:126): apparmor=\"STATUS\" operation=\"profile_load\" comm=\"apparmor_parser\"",
    "input: NVRM: Xid (PCI:0000:01:00): 79 as /devices/virtual/input/input42",
    "hid-generic 0005:046D:B023.0007: input,hidraw6: BLUETOOTH HID v0.01 Keyboard [amdgpu 0000:0f:00.0: GPU reset begin!]",
    "tracker-miner[4001]: segfault at 0 ip 00007f1 sp 00007f2 error 4 in libglib-2.0.so.0[7f0+1000]",
    "Out of memory: Killed process 60001 (chrome) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:300",
    "[Hardware Error]: Corrected error, no action required.",
    "pcieport 0000:00:01.1: AER: Corrected error message received from 0000:02:00.0",
    "amdgpu 0000:c5:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
    "amdgpu: Runlist is getting oversubscribed due to too many queues. Expect reduced ROCm performance.",
    "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
    "xhci_hcd 0000:02:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 address=0xfff8 flags=0x0a00]",
    "systemd-journald[445]: Under memory pressure, flushing caches.",
    "Lockdown: systemd-logind: hibernation is restricted; see man kernel_lockdown.7",
    "",
];

/// Prefix styles: every function writes the message of line `i`.
const STYLES: &[fn(usize, &str) -> String] = &[
    |_, m| format!("{m}\n"),
    |i, m| format!("[{:5}.{:06}] {m}\n", 4000 + i / 100, i * 10_000 % 1_000_000),
    |i, m| {
        format!(
            "<4>[{:5}.{:06}] {m}\n",
            4000 + i / 100,
            i * 10_000 % 1_000_000
        )
    },
    |i, m| {
        format!(
            "[{:5}.{:06}][ T{}] {m}\n",
            4000 + i / 100,
            i * 10_000 % 1_000_000,
            100 + i % 7
        )
    },
    |i, m| format!("[Sat Feb 21 18:30:{:02} 2026] {m}\n", i / 60 % 60),
    |i, m| format!("[Sa, 21. Feb 2026, 18:30:{:02}] {m}\n", i / 60 % 60),
    |i, m| format!("[суб фев 21 18:30:{:02} 2026] {m}\n", i / 60 % 60),
    |_, m| format!("[  +0.000844] {m}\n"),
    |i, m| format!("Feb 21 18:30:{:02} strix kernel: {m}\n", i / 60 % 60),
    |i, m| format!("févr. 21 18:30:{:02} strix kernel: {m}\n", i / 60 % 60),
    |i, m| {
        format!(
            "Feb 21 18:30:{:02} strix kernel: [{:5}.{:06}] {m}\n",
            i / 60 % 60,
            4000 + i / 100,
            i * 10_000 % 1_000_000
        )
    },
    |i, m| {
        format!(
            "2026-02-21T18:30:{:02}.{:06}+01:00 strix kernel: {m}\n",
            i / 60 % 60,
            i
        )
    },
    |i, m| format!("2026-02-21T18:30:{:02},{:06}+01:00 {m}\n", i / 60 % 60, i),
    |i, m| {
        format!(
            "kernel: [{:5}.{:06}] {m}\n",
            4000 + i / 100,
            i * 10_000 % 1_000_000
        )
    },
    |i, m| {
        format!(
            "[{:5}.{:06}] strix kernel: {m}\n",
            4000 + i / 100,
            i * 10_000 % 1_000_000
        )
    },
    |i, m| {
        format!(
            "kern  :warn  : [{:5}.{:06}] {m}\n",
            4000 + i / 100,
            i * 10_000 % 1_000_000
        )
    },
    |i, m| {
        format!(
            "4,{},{},-;{m}\n",
            700 + i,
            4_000_000_000u64 + 10_000 * i as u64
        )
    },
    |i, m| {
        format!(
            "4,{},{},-,caller=T{};{m}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c5:00.0\n",
            700 + i,
            4_000_000_000u64 + 10_000 * i as u64,
            i
        )
    },
    |i, m| {
        format!(
            "\x1b[32m[{:5}.{:06}] \x1b[0m{m}\r\n",
            4000 + i / 100,
            i * 10_000 % 1_000_000
        )
    },
];

/// Cases whose verdict rests on stamps: windows, gaps between events, minutes after boot.
fn rests_on_stamps(g: &Golden) -> bool {
    g.context.window.is_some()
        || g.name.starts_with("own-fault-")
        || g.name == "twin-reset-reason-before"
        || g.name == "mce-next-boot"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_after_the_deciding_one_can_go(pick in any::<prop::sample::Index>(), keep in prop::collection::vec(any::<bool>(), 64)) {
        let all = golden();
        let g = &all[pick.index(all.len())];
        let last = g.last_needed();
        prop_assume!(last > 0 && g.verdict.class != Class::Clean);
        let kept: Vec<String> = g.kernel.iter().enumerate()
            .filter(|(i, _)| (*i as u64) < last || keep[i % keep.len()])
            .map(|(_, l)| l.clone())
            .collect();
        let v = g.judge(&kept);
        prop_assert_eq!(v.class, g.verdict.class, "{}: {} became {}", g.name, g.verdict.kind, v.kind);
        let cut = g.judge(&g.kernel[..(last as usize).min(g.kernel.len())]);
        prop_assert_eq!(cut.class, g.verdict.class, "{}: cut after line {}", g.name, last);
    }

    #[test]
    fn unrelated_lines_change_nothing(pick in any::<prop::sample::Index>(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..12)) {
        let all = golden();
        let g = &all[pick.index(all.len())];
        // Without a process to compare with, every line may be the leg's.
        prop_assume!(g.context.process.is_some());
        let mut lines = g.kernel.clone();
        for (what, at) in noise {
            let at = at.index(lines.len() + 1);
            // A record's own dictionary lines stay behind it.
            let at = (at..=lines.len()).find(|&k| lines.get(k).is_none_or(|l| !l.starts_with(' '))).unwrap_or(lines.len());
            // The stamp of its neighbour, so that windows see it as they see the neighbour.
            let like = lines.get(at).or_else(|| lines.last()).cloned().unwrap_or_default();
            let head = prefix_of(&like);
            lines.insert(at, format!("{head}{}\n", NOISE[what.index(NOISE.len())]));
        }
        let v = g.judge(&lines);
        prop_assert_eq!((v.class, v.kind.as_str()), (g.verdict.class, g.verdict.kind.as_str()), "{}\n{}", g.name, lines.concat());
    }

    #[test]
    fn prefix_styles_change_nothing(pick in any::<prop::sample::Index>(), style in any::<prop::sample::Index>()) {
        let all = golden();
        let g = &all[pick.index(all.len())];
        prop_assume!(!rests_on_stamps(g));
        let style = STYLES[style.index(STYLES.len())];
        let mut lexer = Lexer::new();
        let mut lines = Vec::new();
        for line in &g.kernel {
            let line = line.trim_end_matches('\n');
            lexer.feed(line.as_bytes(), &mut |r| {
                let text = String::from_utf8_lossy(r.text);
                lines.push(match r.ident {
                    Ident::Kernel => style(lines.len(), &text),
                    Ident::Program(_) => format!("{line}\n"),
                });
            });
        }
        let v = g.judge(&lines);
        prop_assert_eq!((v.class, v.kind.as_str()), (g.verdict.class, g.verdict.kind.as_str()), "{}\n{}", g.name, lines.concat());
        prop_assert_eq!(&v.title, &g.verdict.title, "{}", g.name);
    }

    #[test]
    fn no_bytes_panic(kernel in prop::collection::vec(any::<u8>(), 0..600), output in prop::collection::vec(any::<u8>(), 0..300), yaml in "[ -~\n]{0,200}") {
        let context = Context::from_yaml(&yaml).unwrap_or_default();
        let _ = judge(&Case { kernel: Some(Source::Bytes(kernel)), output: Some(Source::Bytes(output)), context });
    }

    #[test]
    fn no_damaged_log_panics(pick in any::<prop::sample::Index>(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..40), exit in "[a-z0-9: ]{0,16}", hw in "[ -~]{0,60}") {
        let all = golden();
        let g = &all[pick.index(all.len())];
        let mut bytes = g.kernel.concat().into_bytes();
        for (at, byte, how) in damage {
            if bytes.is_empty() { break; }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let context = Context { exit: Some(exit), hardware: Some(hw), ..g.context.clone() };
        let v = judge(&Case { kernel: Some(Source::Bytes(bytes.clone())), output: Some(Source::Bytes(bytes)), context }).verdict;
        prop_assert!(!v.title.is_empty());
    }
}

/// The prefix of a line: what stands before its message.
fn prefix_of(line: &str) -> String {
    let line = line.trim_end_matches(['\n', '\r']);
    let mut head = String::new();
    Lexer::new().feed(line.as_bytes(), &mut |r| {
        let text = String::from_utf8_lossy(r.text);
        if r.ident == Ident::Kernel
            && let Some(h) = line.strip_suffix(text.as_ref())
        {
            head = h.to_owned();
        }
    });
    // The same sequence number twice is no gap.
    head
}

#[test]
fn the_properties_have_cases_to_work_on() {
    assert!(golden().len() > 90, "{}", golden().len());
    assert!(golden().iter().filter(|g| !rests_on_stamps(g)).count() > 80);
}
