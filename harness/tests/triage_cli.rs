//! `legwork triage` and `legwork explain` as functions: arguments, formats, exit codes, errors.

#![allow(clippy::unwrap_used)] // helpers of tests fail as the tests do

use std::path::Path;

use legwork::triage::{ExplainArgs, Format, TriageArgs, TriageError, run, run_explain};
use legwork_reports::model::{ExitCode, Verdict};

const FAULT: &str = "\
[  501.250000] amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:153 vmid:8 pasid:32773)
[  501.250010] amdgpu 0000:c5:00.0: amdgpu:  Process vectoradd pid 77 thread vectoradd pid 77
[  501.250020] amdgpu 0000:c5:00.0: amdgpu:   in page starting at address 0x00007e1140c03000 from client 10
[  501.250030] amdgpu 0000:c5:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00800932
[  501.250040] amdgpu 0000:c5:00.0: amdgpu: \t Faulty UTCL2 client ID: CPF (0x4)
";

fn attempt(dir: &Path, exit: &str, kernel: &str, output: &str) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(
        dir.join("context.yaml"),
        format!("process: vectoradd\npid: 77\nexit: \"{exit}\"\n"),
    )
    .unwrap();
    std::fs::write(dir.join("kernel.log"), kernel).unwrap();
    std::fs::write(dir.join("output.log"), output).unwrap();
}

fn triage(args: &TriageArgs) -> (String, ExitCode) {
    let mut out = Vec::new();
    let code = run(args, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), code)
}

fn on(path: &Path) -> TriageArgs {
    TriageArgs {
        paths: vec![path.to_path_buf()],
        ..TriageArgs::default()
    }
}

#[test]
fn an_attempt_folder_as_text_json_and_markdown() {
    let tmp = tempfile::tempdir().unwrap();
    attempt(tmp.path(), "134", FAULT, "");
    let (text, code) = triage(&on(tmp.path()));
    assert_eq!(code, ExitCode::BoardFault);
    assert!(
        text.starts_with("board gpu-page-fault-cp (high confidence)"),
        "{text}"
    );
    assert!(text.contains("kernel.log:1"), "{text}");
    let (json, _) = triage(&TriageArgs {
        format: Format::Json,
        ..on(tmp.path())
    });
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    for key in [
        "class",
        "kind",
        "confidence",
        "title",
        "acceptable_if_wrong",
        "evidence",
        "would_settle",
        "stack_gate",
        "warnings",
    ] {
        assert!(value.get(key).is_some(), "{key} is missing in {json}");
    }
    assert!(value["acceptable_if_wrong"].is_null());
    assert_eq!(value["evidence"][0]["role"], "decides");
    // The same JSON is a verdict of the report's model.
    let verdict: Verdict = serde_json::from_value(value).unwrap();
    assert_eq!(verdict.kind, "gpu-page-fault-cp");
    let (md, _) = triage(&TriageArgs {
        format: Format::Md,
        ..on(tmp.path())
    });
    assert!(md.contains("| decides | kernel.log:1 |"), "{md}");
}

#[test]
fn a_run_is_judged_attempt_by_attempt_and_grouped() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, exit, kernel, output) in [
        ("default/1", "0", "", "ok\n"),
        ("default/2", "134", FAULT, ""),
        (
            "managed/1",
            "134",
            &FAULT.replace("77", "91").replace("7e1140", "7f2250"),
            "",
        ),
        ("managed/2", "1", "", "cp: No space left on device\n"),
    ] {
        attempt(
            &tmp.path().join("attempts").join(name),
            exit,
            kernel,
            output,
        );
    }
    // The second fault is by another pid of the same name: one trouble, one title.
    let (json, code) = triage(&TriageArgs {
        format: Format::Json,
        ..on(tmp.path())
    });
    assert_eq!(code, ExitCode::BoardFault);
    let all: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(
        all.iter()
            .map(|v| v["class"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["clean", "board", "board", "infra"]
    );
    assert!(all[1]["path"].as_str().unwrap().ends_with("default/2"));
    let (json, _) = triage(&TriageArgs {
        format: Format::Json,
        group: true,
        ..on(tmp.path())
    });
    let groups: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(groups.len(), 3, "{json}");
    assert_eq!(
        (groups[0]["count"].as_u64(), groups[0]["kind"].as_str()),
        (Some(2), Some("gpu-page-fault-cp"))
    );
    let (text, _) = triage(&TriageArgs {
        group: true,
        ..on(tmp.path())
    });
    assert!(text.trim_start().starts_with("2 × board"), "{text}");
}

#[test]
fn bare_files_are_told_apart_by_name_and_by_content() {
    let tmp = tempfile::tempdir().unwrap();
    let (a, b) = (tmp.path().join("a.txt"), tmp.path().join("b.txt"));
    std::fs::write(&a, "loading\nMemory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7e1140c03000. Reason: Unknown.\n").unwrap();
    std::fs::write(&b, FAULT).unwrap();
    let args = TriageArgs {
        paths: vec![a.clone(), b.clone()],
        pid: vec![77],
        exit: Some("signal:6".into()),
        ..TriageArgs::default()
    };
    let (text, code) = triage(&args);
    assert_eq!(code, ExitCode::BoardFault, "{text}");
    assert!(
        text.contains("kernel.log:1") && text.contains("output.log:2"),
        "{text}"
    );
    // Named explicitly, with the other options.
    let args = TriageArgs {
        kernel_log: Some(b),
        output: Some(a),
        process: Some("vectoradd".into()),
        exit: Some("134".into()),
        gpu: vec!["0000:03:00.0".into()],
        hardware: Some("AMD Radeon PRO W7900 (gfx1100)".into()),
        ..TriageArgs::default()
    };
    // The GPU given is another one than the log's, and no pid ties the line to the leg: only the address does.
    assert_eq!(triage(&args).1, ExitCode::BoardFault);
    let args = TriageArgs {
        window: Some("600..".into()),
        output: None,
        ..args
    };
    assert_eq!(triage(&args).1, ExitCode::HostFault);
}

#[test]
fn the_exit_alone_can_be_judged() {
    for (exit, code) in [
        ("0", ExitCode::Pass),
        ("139", ExitCode::HostFault),
        ("timeout", ExitCode::Inconclusive),
        ("127", ExitCode::Infra),
    ] {
        let args = TriageArgs {
            exit: Some(exit.into()),
            ..TriageArgs::default()
        };
        assert_eq!(triage(&args).1, code, "{exit}");
    }
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    let tmp = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let mut err = |args: TriageArgs| run(&args, &mut out).unwrap_err().to_string();
    assert!(err(TriageArgs::default()).contains("nothing to judge"));
    assert!(err(on(&tmp.path().join("gone"))).contains("no such file"));
    assert!(err(on(tmp.path())).contains("no attempt in it"));
    assert!(
        err(TriageArgs {
            exit: Some("0".into()),
            window: Some("soon".into()),
            ..TriageArgs::default()
        })
        .contains("FROM..TO")
    );
    assert!(
        err(TriageArgs {
            exit: Some("0".into()),
            gpu: vec!["card0".into()],
            ..TriageArgs::default()
        })
        .contains("PCI address")
    );
    assert!(
        err(TriageArgs {
            exit: Some("badly".into()),
            ..TriageArgs::default()
        })
        .contains("signal:6")
    );
    std::fs::write(tmp.path().join("context.yaml"), "pid: [not a number\n").unwrap();
    assert!(matches!(
        run(&on(tmp.path()), &mut Vec::new()),
        Err(TriageError::Context(_))
    ));
}

#[test]
fn kinds_are_explained_or_the_nearest_is_named() {
    let mut out = Vec::new();
    run_explain(
        &ExplainArgs {
            kind: Some("mes-hang".into()),
            format: Format::Text,
        },
        &mut out,
    )
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("Means") && text.contains("Sources"), "{text}");
    let mut out = Vec::new();
    run_explain(&ExplainArgs::default(), &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().lines().count() > 60);
    let e = run_explain(
        &ExplainArgs {
            kind: Some("mes-hung".into()),
            format: Format::Text,
        },
        &mut Vec::new(),
    )
    .unwrap_err();
    assert!(e.to_string().contains("did you mean mes-hang?"), "{e}");
}
