//! Reports for tests: one that passes, one with a kernel fault, one that does not decide.
//!
//! Identifiers, addresses and figures are invented; the kernel lines have the form that the drivers print.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use crate::compare::Pair;
use crate::gates::{Bound, Expect, Gate, Of, OneOrMany, Same};
use crate::model::{
    Attempt, Class, Confidence, Descendant, EvidenceLine, Exit, Leg, LegKind, Metrics, PhaseSource,
    Phases, ProcessEnd, Report, Role, RunInfo, StackGate, StackState, Stamps, TimedOut, Verdict,
};
use crate::{Plan, conclude};

/// Seconds after noon on a day in November.
pub(crate) fn at(seconds: i64) -> DateTime<Utc> {
    let noon: DateTime<Utc> = "2026-11-30T12:00:00Z".parse().expect("a date");
    noon + TimeDelta::seconds(seconds)
}

/// A clean engine attempt with everything measured.
pub(crate) fn clean_attempt(n: u32, round: u32, decode: f64) -> Attempt {
    let mut a = Attempt::new(n, round, at(i64::from(n) * 4));
    a.verdict = Verdict::new(Class::Clean, "none", Confidence::High, "no fault seen");
    a.exit.code = Some(0);
    a.wall_s = 1.412 + 0.01 * f64::from(n);
    a.phases = Phases {
        load_s: Some(0.412 + 0.002 * f64::from(n)),
        ttft_s: Some(0.151),
        prefill_s: Some(0.149),
        decode_s: Some(8.0 / decode),
        ..Phases::default()
    };
    a.metrics = Metrics {
        weights_gib: Some(0.01379),
        prompt_tokens: Some(5),
        completion_tokens: Some(8),
        prefill_tok_s: Some(33.6 + 0.1 * f64::from(n)),
        decode_tok_s: Some(decode),
        peak_rss_gib: Some(0.0581),
        kv_bytes: Some(4_718_592),
        load_gib_s: Some(1.31),
        ..Metrics::default()
    };
    a.text = Some(" Paris, which is the seat of".to_owned());
    a.token_ids = Some(vec![3681, 11, 902, 318, 262, 5852, 286, 13]);
    a.reference_tier_hits = Some(0);
    a.provider_lines = Some(18);
    a.output_bytes = Some(3129);
    a.stamps = Some(Stamps::Ok);
    a.phases_from = Some(PhaseSource::Events);
    a.finish_reason = Some("length".to_owned());
    a.boot_id = Some(BOOT.to_owned());
    let dir = format!("attempts/{n:03}");
    for name in ["output.raw", "output.log", "kernel.log", "events.jsonl"] {
        a.files.insert(name.to_owned(), format!("{dir}/{name}"));
    }
    a
}

pub(crate) const BOOT: &str = "5bbdc432-0f4e-4a6c-9d2e-7a1c1f6f2b90";

pub(crate) fn engine_leg(name: &str, control: bool, env: &[(&str, &str)]) -> Leg {
    let prompt = "The capital of France is";
    let command = [
        "/tmp/legwork-8f1c/legwork",
        "engine",
        "generate",
        "--model",
        "builtin:mini",
        "--prompt",
        prompt,
        "--max-tokens",
        "8",
        "--temperature",
        "0",
    ];
    let mut leg = Leg {
        control,
        kind: Some(LegKind::Engine),
        command: command.map(str::to_owned).to_vec(),
        binary_sha256: Some("9f2c".repeat(16)),
        env: env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ..Leg::new(name)
    };
    for (key, value) in [
        ("model", json!("builtin:mini")),
        ("prompt", json!(prompt)),
        ("max_tokens", json!(8)),
        ("temperature", json!(0)),
    ] {
        leg.settings.insert(key.to_owned(), value);
    }
    leg
}

fn run(id: &str, leg_set: &str, question: &str) -> Report {
    let mut info = RunInfo::new(id, leg_set, at(0), 7);
    info.question = Some(question.to_owned());
    info.host = Some("strix-1".to_owned());
    info.boot_id = Some(BOOT.to_owned());
    info.order = Some("interleaved".to_owned());
    info.legwork = "0.1.0".to_owned();
    info.leg_file_sha256 = Some("77aa".repeat(16));
    info.finished = Some(at(412));
    info.reproduce = Some(format!("legwork run {leg_set} --seed 7"));
    let mut report = Report::new(info);
    for (name, value) in [
        ("cpu.model", json!("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S")),
        ("cpu.threads", json!(32)),
        ("gpu.0.gfx_target", json!("gfx1151")),
        ("gpu.0.pci", json!("0000:c5:00.0")),
        ("gpu.0.vram_gib", json!(96.0)),
        ("kernel.release", json!("6.18.4-61-generic")),
        ("kernel.cmdline", json!("quiet ttm.pages_limit=29360128")),
        ("memory.total_gib", json!(30.98)),
        ("rocm.version", json!("7.2.4")),
        ("firmware.mes", json!("0x80")),
        ("git.revision", serde_json::Value::Null),
    ] {
        report.identity.insert(name.to_owned(), value);
    }
    report
        .files
        .insert("leg file as run".to_owned(), "legs.yaml".to_owned());
    report
        .files
        .insert("journal".to_owned(), "journal.jsonl".to_owned());
    report
}

pub(crate) fn exit(code: i32) -> Option<OneOrMany<i32>> {
    Some(OneOrMany::One(code))
}

/// The gates of a set with a control called `default`.
pub(crate) fn gates(others: &[&str]) -> Vec<Gate> {
    let mut legs = vec!["default".to_owned()];
    legs.extend(others.iter().map(|o| (*o).to_owned()));
    vec![
        Gate {
            leg: Some("default".to_owned()),
            expect: Expect {
                exit: exit(0),
                text_starts_with: Some(" Paris".to_owned()),
                reference_tier_hits: Some(0),
                ..Expect::default()
            },
            ..Gate::default()
        },
        Gate {
            legs: Some(legs),
            expect: Expect {
                same: Some(Same::TokenIds),
                ..Expect::default()
            },
            ..Gate::default()
        },
    ]
}

/// All clean: three legs, two rounds after a warm-up.
pub(crate) fn pass() -> Report {
    let mut report = run(
        "20261130T120000Z-smoke",
        "smoke",
        "Does the engine answer, and does the split projection give the same tokens?",
    );
    let mut legs = vec![
        engine_leg("default", true, &[]),
        engine_leg(
            "split-projection",
            false,
            &[("VT_MLA_FUSED_NORM_ROPE", "0")],
        ),
        engine_leg("sparse", false, &[]),
    ];
    legs[2]
        .settings
        .insert("prompt".to_owned(), json!("(a prompt of 600 tokens)"));
    let rates = [
        [498.1, 521.4, 517.9, 520.2, 519.0],
        [481.0, 508.8, 511.2, 507.5, 509.9],
        [300.2, 318.8, 320.1, 319.4, 322.0],
    ];
    let mut n = 0;
    for round in 0..5u32 {
        for (leg, rates) in legs.iter_mut().zip(rates) {
            n += 1;
            let mut a = clean_attempt(n, round.max(1), rates[round as usize]);
            a.warmup = round == 0;
            if leg.name == "sparse" {
                a.text = Some(" The mill stands where the river bends".to_owned());
                a.token_ids = Some(vec![464, 3518, 6296, 810, 262, 7850, 33590, 13]);
                a.metrics.prompt_tokens = Some(600);
                a.metrics.prefill_tok_s = Some(1301.0 + f64::from(n));
            }
            leg.designed = 4;
            leg.attempts.push(a);
        }
    }
    report.legs = legs;
    let mut plan = Plan {
        gates: gates(&["split-projection"]),
        ..Plan::default()
    };
    plan.gates.push(Gate {
        leg: Some("sparse".to_owned()),
        expect: Expect {
            min_completion_tokens: Some(8),
            text_starts_with: Some(" The".to_owned()),
            reference_tier_hits: Some(0),
            decode_tok_s: Some(Bound {
                min: Some(50.0),
                max: None,
                of: Of::Median,
            }),
            ..Expect::default()
        },
        ..Gate::default()
    });
    conclude(&mut report, &plan);
    report
}

pub(crate) fn evidence(
    source: &str,
    line: Option<u64>,
    text: &str,
    finding: &str,
    role: Role,
    why: &str,
) -> EvidenceLine {
    EvidenceLine {
        source: source.to_owned(),
        line,
        text: text.to_owned(),
        finding: finding.to_owned(),
        role,
        why: why.to_owned(),
    }
}

fn gpu_fault(a: &mut Attempt) {
    let mut v = Verdict::new(
        Class::Kernel,
        "gpu-page-fault-shader",
        Confidence::High,
        "amdgpu page fault (client TCP, read, page not present) by legwork",
    );
    v.evidence = vec![
        evidence(
            "kernel.log",
            Some(3),
            "[ 4411.020117] workqueue: output_poll_execute hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
            "kernel-noise",
            Role::Ignored,
            "concerns another device and no process of the leg",
        ),
        evidence(
            "kernel.log",
            Some(7),
            "[ 4419.118402] amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32781)",
            "gpu-page-fault",
            Role::Decides,
            "the first GPU event in the window; its pasid belongs to the leg's process (pid 51822), client TCP is a shader's own memory access",
        ),
        evidence(
            "kernel.log",
            Some(8),
            "[ 4419.118410] amdgpu 0000:c5:00.0: amdgpu:  in process legwork pid 51822 thread legwork pid 51822)",
            "gpu-fault-process",
            Role::Supports,
            "names the leg's process",
        ),
        evidence(
            "output.log",
            Some(41),
            "Memory access fault by GPU node-1 (Agent handle: 0x5581) on address 0x7f3a00000000. Reason: Page not present or supervisor privilege.",
            "rocr-memory-fault",
            Role::Supports,
            "the runtime reports the same address 3 ms later",
        ),
        evidence(
            "kernel.log",
            Some(12),
            "[ 4421.500231] amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE",
            "mes-timeout",
            Role::Consequence,
            "follows the fault by 2.4 s: the queue of a faulted process cannot be removed",
        ),
        evidence(
            "exit",
            None,
            "SIGABRT, core dumped",
            "abort",
            Role::Consequence,
            "the runtime aborts the process after a memory access fault",
        ),
    ];
    v.stack_gate = Some(StackGate {
        state: StackState::Good,
        reasons: vec![
            "kernel 6.18.4 holds the fix of the save area".into(),
            "MES 0x80".into(),
        ],
    });
    a.verdict = v;
    a.exit = Exit {
        code: None,
        signal: Some(6),
        core_dumped: true,
        timed_out: None,
    };
    a.wall_s = 9.8;
    a.phases.decode_s = None;
    a.metrics.decode_tok_s = None;
    a.metrics.completion_tokens = None;
    a.text = None;
    a.token_ids = None;
    a.finish_reason = None;
    a.reference_tier_hits = None;
    a.files.insert(
        "core".into(),
        format!("attempts/{:03}/cores/core.51822.zst", a.n),
    );
    a.files.insert(
        "backtrace".into(),
        format!("attempts/{:03}/backtrace.txt", a.n),
    );
}

/// A kernel fault in one arm, and a diagnostic leg whose speed is void.
pub(crate) fn kernel_fault() -> Report {
    let mut report = run(
        "20261130T120000Z-glm53-allocator-ab",
        "glm53-allocator-ab",
        "Does the managed allocator cause the forward crash?",
    );
    let mut legs = vec![
        engine_leg("default", true, &[]),
        engine_leg("managed", false, &[("VT_ROCM_MANAGED_ALLOC", "1")]),
        engine_leg("serialised", false, &[("AMD_SERIALIZE_KERNEL", "3")]),
    ];
    legs[2].diagnostic = true;
    let rates = [
        [8.129, 8.244, 8.181],
        [8.05, 8.07, 8.11],
        [0.98, 0.97, 0.99],
    ];
    let mut n = 0;
    for round in 1..=3u32 {
        for (leg, rates) in legs.iter_mut().zip(rates) {
            n += 1;
            let mut a = clean_attempt(n, round, rates[round as usize - 1]);
            a.wall_s = 38.2 + f64::from(n);
            a.phases.load_s = Some(35.9);
            a.metrics.weights_gib = Some(65.488);
            a.metrics.peak_rss_gib = Some(18.936);
            a.metrics.load_gib_s = Some(1.824);
            a.metrics.prefill_tok_s = Some(1.644);
            a.metrics.other.insert("vram_peak_gib".into(), 71.2);
            a.metrics.other.insert("sclk_median_mhz".into(), 2840.0);
            if leg.name == "managed" && round != 2 {
                gpu_fault(&mut a);
            }
            leg.designed = 3;
            leg.attempts.push(a);
        }
    }
    report.legs = legs;
    report
        .warnings
        .push("MemAvailable fell to 11.9 GiB during attempt #2".to_owned());
    let plan = Plan {
        gates: gates(&["managed"]),
        compare: vec![
            Pair::new("default", "managed"),
            Pair::new("default", "serialised"),
        ],
        ..Plan::default()
    };
    conclude(&mut report, &plan);
    report
}

/// A wedge that the evidence does not decide, a crash behind a pipe's status 0, and arms that differ in three variables.
pub(crate) fn inconclusive() -> Report {
    let mut report = run(
        "20261130T120000Z-glm53-wedge",
        "glm53-wedge",
        "Wedged or slow: what does the default allocator's forward wait for?",
    );
    let mut legs = vec![
        engine_leg("default", true, &[]),
        engine_leg(
            "managed-serialised",
            false,
            &[
                ("VT_ROCM_MANAGED_ALLOC", "1"),
                ("AMD_SERIALIZE_KERNEL", "3"),
                ("HSA_ENABLE_SDMA", "0"),
            ],
        ),
    ];
    for round in 1..=2u32 {
        let mut a = clean_attempt(2 * round - 1, round, 1.0);
        a.verdict = Verdict::new(
            Class::Inconclusive,
            "no-progress",
            Confidence::Low,
            "no output, no CPU time for 20 minutes in the forward",
        );
        a.verdict.evidence = vec![
            evidence(
                "output.log",
                Some(88),
                "[vt load] weights        1372.153 s",
                "load-end",
                Role::Supports,
                "the load was over 22 minutes in: what waits is the forward",
            ),
            evidence(
                "telemetry",
                None,
                "state D, wchan svm_range_set_attr, 1180 of 1200 s",
                "d-state",
                Role::Decides,
                "blocked in the driver's memory management: the driver, or a range that our code asked for",
            ),
        ];
        a.verdict.would_settle = vec![
            "legwork run glm53-wedge --leg default --env HSA_XNACK=0".to_owned(),
            "the same leg on another board".to_owned(),
        ];
        a.verdict.stack_gate = Some(StackGate {
            state: StackState::Unknown,
            reasons: vec!["MES version was not recorded".into()],
        });
        a.verdict.warnings = vec!["3 kernel records lost (sequence gap)".into()];
        a.exit = Exit {
            code: None,
            signal: Some(9),
            core_dumped: false,
            timed_out: Some(TimedOut::Idle),
        };
        a.descendants = vec![Descendant {
            pid: 4120,
            ppid: Some(4118),
            comm: Some("legwork".into()),
            end: Some(ProcessEnd {
                code: None,
                signal: Some(9),
                core_dumped: false,
            }),
            ended_s: Some(2572.0),
        }];
        a.wall_s = 2572.4;
        a.text = None;
        a.token_ids = None;
        a.finish_reason = None;
        a.reference_tier_hits = None;
        a.provider_lines = None;
        a.phases = Phases {
            load_s: Some(1372.153),
            ..Phases::default()
        };
        a.phases_from = Some(PhaseSource::Stamps);
        a.stamps = Some(Stamps::Suspect);
        a.metrics = Metrics {
            peak_rss_gib: Some(31.16),
            ..Metrics::default()
        };
        legs[0].attempts.push(a);
        if round == 1 {
            let mut b = clean_attempt(2, 1, 0.001);
            b.wall_s = 3949.0;
            b.phases.load_s = Some(2460.0);
            b.phases.decode_s = Some(1388.0);
            legs[1].attempts.push(b);
        }
    }
    for leg in &mut legs {
        leg.designed = 2;
    }
    report.legs = legs;
    report.run.finished = None;
    report.warnings.push(
        "the share /workspace went away during attempt #3; nothing depended on it".to_owned(),
    );
    let plan = Plan {
        gates: gates(&["managed-serialised"]),
        compare: vec![Pair::new("default", "managed-serialised")],
        ..Plan::default()
    };
    conclude(&mut report, &plan);
    report
}
