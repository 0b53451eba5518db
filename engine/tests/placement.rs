//! Experts paged from disk, or run on the CPU beside a device, give the tokens that experts in memory give.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use clap::Parser;
use legwork_engine::events::Events;
use legwork_engine::forward::StreamStats;
use legwork_engine::sampling::SamplingOptions;
use legwork_engine::session::{EngineError, ModelOptions, Request, Session};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    model: ModelOptions,
}

/// Greedy tokens after a prompt, and the stream's counters.
fn tokens(
    prompt: &[u32],
    n: usize,
    args: &[&str],
) -> Result<(Vec<u32>, Option<StreamStats>), EngineError> {
    let args = ["test", "--model", "builtin:mini", "--threads", "2"]
        .iter()
        .chain(args);
    let options = Cli::try_parse_from(args).unwrap().model;
    let need = prompt.len() + n;
    let mut session = Session::load(&options, 1, |_, _| Ok(need), Arc::new(Events::default()))?;
    let request = Request {
        prompt: prompt.to_vec(),
        max_tokens: n,
        sampling: SamplingOptions::default(),
        ignore_eos: true,
        run: (1, 1),
    };
    let completion = session.generate(&request, 1, &mut |_, _| ())?.remove(0);
    Ok((completion.token_ids, session.forward.stream_stats()))
}

/// "The capital of France is" in the built-in vocabulary (the golden file's `france`).
fn france() -> Vec<u32> {
    let golden: serde_json::Value = serde_json::from_str(include_str!("data/golden.json")).unwrap();
    serde_json::from_value(golden["cases"]["france"]["ids"].clone()).unwrap()
}

/// One expert of the mini: IQ1_S gate and up, IQ3_XXS down, 256 by 256; the other layers' are a little larger.
const EXPERT: usize = 2 * 256 * 50 + 256 * 98;

#[test]
fn streamed_experts_give_the_same_tokens() {
    let (want, none) = tokens(&france(), 8, &["--device", "cpu"]).unwrap();
    assert_eq!(none, None);
    // 80 experts in all, room for about half
    let cache = (40 * EXPERT).to_string();
    let args = ["--device", "cpu", "--expert-cache", &cache];
    let (got, stats) = tokens(&france(), 8, &args).unwrap();
    assert_eq!(got, want);
    let stats = stats.unwrap();
    assert!(
        stats.hits > 0 && stats.misses > 0 && stats.evictions > 0,
        "{stats}"
    );
    assert!(stats.bytes >= stats.misses * EXPERT as u64, "{stats}");
}

#[test]
fn a_cache_of_a_few_experts_splits_the_rows() {
    let (want, _) = tokens(&france(), 4, &["--device", "cpu"]).unwrap();
    let cache = (24 * EXPERT).to_string();
    let args = ["--device", "cpu", "--expert-cache", &cache];
    let (got, stats) = tokens(&france(), 4, &args).unwrap();
    assert_eq!(got, want);
    assert!(stats.unwrap().exhausted > 0);
}

#[test]
fn a_cache_below_one_token_is_refused_with_the_size_that_would_do() {
    let error = tokens(
        &france(),
        1,
        &["--device", "cpu", "--expert-cache", "100KB"],
    )
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("a token uses 4") && text.contains("at least"),
        "{text}"
    );
}

#[test]
fn experts_on_the_cpu_beside_a_device_give_the_same_tokens() {
    // The two best logits after this prompt are 7.8 apart: rounding of activations, which devices do differently, cannot
    // change the choice.
    let prompt = &france();
    let (want, _) = tokens(prompt, 1, &["--device", "cpu"]).unwrap();
    let place = ["--device", "simt", "--place", "blk.*_exps.weight=cpu"];
    match tokens(prompt, 1, &place) {
        Ok((got, _)) => assert_eq!(got, want),
        // No C++ compiler when this was built: the refusal names it.
        Err(e) => assert!(e.to_string().contains("simt"), "{e}"),
    }
}
