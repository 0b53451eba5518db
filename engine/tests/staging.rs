//! Weights that go from files through pinned buffers to a device give the tokens that copies from host memory give.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use clap::Parser;
use legwork_engine::events::Events;
use legwork_engine::sampling::SamplingOptions;
use legwork_engine::session::{ModelOptions, Request, Session};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    model: ModelOptions,
}

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/models/glm-dsa-mini-UD-IQ1_S.gguf"
);

/// The session and the first token after "The capital of France is"; `None` where this build has no fibre runtime.
fn first_token(args: &[&str]) -> Option<(Session, u32)> {
    let args = ["test", "--device", "simt", "--threads", "2"]
        .iter()
        .chain(args);
    let options = Cli::try_parse_from(args).unwrap().model;
    let golden: serde_json::Value = serde_json::from_str(include_str!("data/golden.json")).unwrap();
    let prompt: Vec<u32> =
        serde_json::from_value(golden["cases"]["france"]["ids"].clone()).unwrap();
    let mut session = match Session::load(&options, 1, |_, _| Ok(8), Arc::new(Events::default())) {
        Ok(session) => session,
        Err(e) => {
            assert!(e.to_string().contains("C++ compiler"), "{e}");
            return None;
        }
    };
    let request = Request {
        prompt,
        max_tokens: 1,
        sampling: SamplingOptions::default(),
        ignore_eos: true,
        run: (1, 1),
    };
    let token = session
        .generate(&request, 1, &mut |_, _| ())
        .unwrap()
        .remove(0)
        .token_ids[0];
    Some((session, token))
}

#[test]
fn staged_weights_are_the_same_weights() {
    let Some((in_place, want)) = first_token(&["--model", "builtin:mini"]) else {
        return;
    };
    // From the executable there is nothing to overlap.
    assert_eq!(in_place.staging.unwrap().slots, 0);
    for mode in ["direct", "buffered"] {
        let (session, token) = first_token(&["--model", FILE, "--load", mode]).unwrap();
        assert_eq!(token, want, "{mode}");
        let staging = session.staging.unwrap();
        assert!(staging.slots > 0, "{mode}: {staging}");
        assert!(
            staging.read > 0.0 && staging.copy > 0.0,
            "{mode}: {staging}"
        );
    }
    let (mapped, token) = first_token(&["--model", FILE, "--load", "mmap"]).unwrap();
    assert_eq!((token, mapped.staging.unwrap().slots), (want, 0));
}

/// Experts that stay on the CPU are loaded to host memory, the rest is staged.
#[test]
fn a_model_in_two_places_is_loaded_in_two_parts() {
    let args = ["--model", FILE, "--load", "buffered"];
    let Some((all, want)) = first_token(&args) else {
        return;
    };
    let place = [&args[..], &["--place", "blk.*_exps.weight=cpu"]].concat();
    let (parts, token) = first_token(&place).unwrap();
    assert_eq!(token, want);
    assert_eq!(parts.weights_bytes, all.weights_bytes);
}
