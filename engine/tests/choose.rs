//! Tokens chosen where the logits are equal tokens chosen from logits that were read back, and no NaN passes for a token.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use clap::Parser;
use legwork_engine::events::Events;
use legwork_engine::forward::{Choice, Row, Step, Wanted};
use legwork_engine::gguf::Gguf;
use legwork_engine::sampling::greedy;
use legwork_engine::session::{ModelOptions, Session};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    model: ModelOptions,
}

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/models/glm-dsa-mini-UD-IQ1_S.gguf"
);

fn open(model: &str, device: &str) -> Result<Session, String> {
    let args = ["test", "--model", model, "--device", device];
    let options = Cli::try_parse_from(args).unwrap().model;
    Session::load(&options, 1, |_, _| Ok(64), Arc::new(Events::default()))
        .map_err(|e| e.to_string())
}

fn step(rows: &[Row]) -> Step<'_> {
    Step {
        rows,
        wanted: Wanted::All,
    }
}

#[test]
fn chosen_tokens_are_those_of_the_logits() {
    for (device, n) in [("cpu", 40), ("simt", 3)] {
        let mut session = match open("builtin:mini", device) {
            Ok(session) => session,
            Err(e) if e.contains("C++ compiler") => continue,
            Err(e) => panic!("{device}: {e}"),
        };
        let ids: Vec<u32> = (0..n).map(|i| 7 + 31 * i).collect();
        let rows = Row::run(&ids, 0, 0);
        let mut want = Vec::new();
        let forward = &mut session.forward;
        forward
            .step(&step(&rows), None, &mut |_, l| {
                want.push(greedy(l).unwrap())
            })
            .unwrap();
        let mut have = Vec::new();
        forward
            .choose(&step(&rows), &mut |r, choice| {
                assert_eq!(r, have.len());
                let Choice::Token(id) = choice else {
                    panic!("{device}: {choice:?}")
                };
                have.push(id);
            })
            .unwrap();
        assert_eq!(have, want, "{device}");
        assert_eq!(want.len(), n as usize);
    }
}

/// The model with a NaN as first element of a tensor, on the CPU and in the kernels' own code.
fn with_nan_in(tensor: &str) {
    let gguf = Gguf::open(FILE.as_ref()).unwrap();
    let at = gguf.tensor(tensor).unwrap().offset as usize;
    let mut bytes = std::fs::read(FILE).unwrap();
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nan.gguf");
    std::fs::write(&path, bytes).unwrap();
    for device in ["cpu", "simt"] {
        let mut session = match open(path.to_str().unwrap(), device) {
            Ok(session) => session,
            Err(e) if e.contains("C++ compiler") => continue,
            Err(e) => panic!("{device}: {e}"),
        };
        let rows = Row::run(&[5, 6], 0, 0);
        let mut seen = 0;
        let forward = &mut session.forward;
        forward
            .choose(&step(&rows), &mut |_, choice| {
                let Choice::None(logits) = choice else {
                    panic!("{tensor} on {device}: {choice:?}")
                };
                let error = greedy(logits).unwrap_err().to_string();
                assert!(error.contains("is NaN"), "{error}");
                seen += 1;
            })
            .unwrap();
        assert_eq!(seen, 2, "{tensor} on {device}");
    }
}

/// Activations are rounded to bytes on the way, and softmax and top-k compare: none of them may lose a NaN.
#[test]
fn a_nan_anywhere_reaches_the_logits() {
    for tensor in [
        "output_norm.weight",
        "blk.0.attn_norm.weight",
        "blk.1.attn_kv_a_norm.weight",
        "blk.2.ffn_norm.weight",
    ] {
        with_nan_in(tensor);
    }
}
