//! `legwork engine generate`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::read_file;
use crate::events::Events;
use crate::sampling::SamplingOptions;
use crate::session::{EngineError, ModelOptions, Request, Session};
use crate::tokenizer::{Tokenizer, message};

/// Arguments of `generate`.
#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    #[command(flatten)]
    model: ModelOptions,
    /// Prompt text
    #[arg(long, short, value_name = "P", required_unless_present_any = ["prompt_file", "tokens"], conflicts_with_all = ["prompt_file", "tokens"])]
    prompt: Option<String>,
    /// File with the prompt text
    #[arg(long, value_name = "F", conflicts_with = "tokens")]
    prompt_file: Option<PathBuf>,
    /// Prompt as token ids
    #[arg(long, value_name = "1,2,3", value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// Put the prompt into the model's chat template as a user's turn
    #[arg(long, conflicts_with = "tokens")]
    chat: bool,
    /// Most tokens to generate
    #[arg(long, short = 'n', value_name = "N", default_value_t = 64)]
    max_tokens: usize,
    /// 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Keep the most probable tokens that make up this probability
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Drop tokens less probable than this fraction of the best one
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Seed of the sampling
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Run the same request R times
    #[arg(long, value_name = "R", default_value_t = 1)]
    repeat: usize,
    /// Decode B sequences of the same prompt in one forward
    #[arg(long, value_name = "B", default_value_t = 1)]
    batch: usize,
    /// Go on past the model's own end
    #[arg(long)]
    ignore_eos: bool,
    /// Print one JSON object instead of the text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(a: &GenerateArgs, events: &Arc<Events>) -> Result<(), EngineError> {
    if a.max_tokens == 0 || a.repeat == 0 || a.batch == 0 {
        return Err(EngineError::Usage(
            "--max-tokens, --repeat and --batch must be at least 1".to_owned(),
        ));
    }
    let sampling = SamplingOptions {
        temperature: a.temperature,
        top_k: a.top_k,
        top_p: a.top_p,
        min_p: a.min_p,
        seed: a.seed,
    };
    crate::sampling::Sampler::new(sampling)?;
    let text = match (&a.prompt, &a.prompt_file) {
        (Some(p), _) => Some(p.clone()),
        (None, Some(f)) => Some(read_file(f)?),
        (None, None) => None,
    };
    let mut prompt = Vec::new();
    let mut session = Session::load(
        &a.model,
        a.batch,
        |tokenizer, kv| {
            prompt = prompt_ids(a, text.as_deref(), tokenizer)?;
            let need = prompt.len() + a.max_tokens;
            if need > kv.resolved {
                return Err(EngineError::Usage(format!(
                    "{} prompt tokens and {} new ones need a context of {need}, but it is {} (the model claims {})",
                    prompt.len(),
                    a.max_tokens,
                    kv.resolved,
                    kv.requested
                )));
            }
            Ok(need)
        },
        Arc::clone(events),
    )?;
    let mut out = std::io::stdout().lock();
    let mut records = Vec::new();
    for run in 1..=a.repeat {
        let request = Request {
            prompt: prompt.clone(),
            max_tokens: a.max_tokens,
            sampling,
            ignore_eos: a.ignore_eos,
            run: (run, a.repeat),
        };
        // The text of the first run's first sequence is the answer; later runs are for measuring.
        let show = run == 1 && !a.json;
        let mut closed = false;
        let completions = session.generate(&request, a.batch, &mut |s, text| {
            if show && s == 0 && !closed {
                // A reader that went away must not end a measurement.
                closed = out
                    .write_all(text.as_bytes())
                    .and_then(|()| out.flush())
                    .is_err();
            }
        })?;
        if show {
            let _ = writeln!(out);
        }
        for (s, c) in completions.iter().enumerate() {
            eprintln!(
                "run={run}/{} finish_reason={} prompt_tokens={} completion_tokens={} secs={:.3} tok_s={:.3}",
                a.repeat,
                c.finish.name(),
                prompt.len(),
                c.token_ids.len(),
                c.secs,
                c.token_ids.len() as f64 / c.secs
            );
            records.push(serde_json::json!({
                "run": run, "sequence": s, "finish_reason": c.finish.name(), "prompt_tokens": prompt.len(),
                "completion_tokens": c.token_ids.len(), "secs": c.secs, "ttft_secs": c.ttft_secs,
                "prefill_secs": c.prefill_secs, "prefill_tok_s": c.prefill_tok_s(prompt.len() * a.batch),
                "decode_secs": c.decode_secs, "decode_tok_s": c.decode_tok_s(),
                "text": c.text, "token_ids": c.token_ids, "sparse": c.sparse,
            }));
        }
    }
    session.report_reference_hits();
    if a.json {
        let document = serde_json::json!({
            "model": a.model.model, "weights_bytes": session.weights_bytes, "load_secs": session.load_secs,
            "reference_tier_hits": session.forward.registry().reference_hits(), "runs": records,
        });
        let _ = writeln!(out, "{document}");
    }
    Ok(())
}

fn prompt_ids(
    a: &GenerateArgs,
    text: Option<&str>,
    tokenizer: Option<&Tokenizer>,
) -> Result<Vec<u32>, EngineError> {
    if let Some(ids) = &a.tokens {
        return Ok(ids.clone());
    }
    let tokenizer = tokenizer.ok_or_else(|| {
        EngineError::Usage("this model file has no tokenizer that the engine knows; give the prompt as --tokens 1,2,3".to_owned())
    })?;
    let text = text.unwrap_or_default();
    if a.chat {
        let rendered =
            tokenizer.apply_chat(&[message("user", text)], true, &serde_json::Map::new())?;
        return Ok(tokenizer.encode(&rendered, true)?);
    }
    Ok(tokenizer.encode_prompt(text, true)?)
}
