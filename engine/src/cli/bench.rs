//! `legwork engine bench`.

use std::sync::Arc;

use clap::Args;
use legwork_kernels::device::DeviceKind;
use legwork_kernels::ops::OpId;
use serde_json::{Value, json};

use crate::bench::{self, Samples, Summary, Test};
use crate::events::{Events, peak_rss_bytes};
use crate::session::{EngineError, ModelOptions, Session};

const GIB: f64 = (1u64 << 30) as f64;

/// Arguments of `bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    model: ModelOptions,
    /// Prompt lengths; 0 for none
    #[arg(
        long,
        short = 'p',
        value_name = "N",
        value_delimiter = ',',
        default_value = "512"
    )]
    prompt: Vec<usize>,
    /// Numbers of generated tokens; 0 for none
    #[arg(
        long,
        short = 'n',
        value_name = "N",
        value_delimiter = ',',
        default_value = "64"
    )]
    gen_tokens: Vec<usize>,
    /// Tokens of context before the clock starts
    #[arg(
        long,
        short = 'd',
        value_name = "N",
        value_delimiter = ',',
        default_value = "0"
    )]
    depth: Vec<usize>,
    /// Timed runs of each test; one more comes first and is discarded
    #[arg(long, short = 'r', value_name = "R", default_value_t = 5)]
    repeat: usize,
    /// Sequences decoded in one forward
    #[arg(long, value_name = "B", default_value_t = 1)]
    batch: usize,
    /// Run each test once more with a clock on every operation, and print what each took (CPU only)
    #[arg(long)]
    ops: bool,
    /// Print a JSON list of tests, shaped as llama-bench's
    #[arg(long, conflicts_with = "md")]
    json: bool,
    /// Print a Markdown table (the default)
    #[arg(long)]
    md: bool,
}

struct Outcome {
    test: Test,
    secs: Vec<f64>,
    speed: Vec<f64>,
    operations: Vec<(OpId, f64)>,
}

pub(super) fn run(a: &BenchArgs, events: &Arc<Events>) -> Result<(), EngineError> {
    let tests = tests(a)?;
    let context = tests.iter().map(Test::context).max().unwrap_or(0);
    let mut session = Session::load(
        &a.model,
        a.batch,
        |_, kv| {
            if context > kv.resolved {
                return Err(EngineError::Usage(format!(
                    "the tests need a context of {context}, but it is {}",
                    kv.resolved
                )));
            }
            Ok(context)
        },
        Arc::clone(events),
    )?;
    if a.ops && session.forward.device() != DeviceKind::Cpu {
        return Err(EngineError::Usage(format!(
            "--ops: operations on {} end after they return, so a clock around them says nothing; use --device cpu",
            session.forward.device()
        )));
    }
    let mut outcomes = Vec::new();
    for test in tests {
        let Samples { secs, operations } = bench::run(&mut session, test, a.repeat, a.ops)?;
        let speed = secs.iter().map(|s| test.tokens() as f64 / s).collect();
        outcomes.push(Outcome {
            test,
            secs,
            speed,
            operations,
        });
        eprintln!("engine: bench {} done", test.name());
    }
    // Before the bandwidth is measured, which takes memory of its own.
    let peak = peak_rss_bytes();
    let threads = session.threads;
    let bandwidth = bench::read_bandwidth(threads);
    session.report_reference_hits();
    if a.json {
        let list: Vec<Value> = outcomes
            .iter()
            .map(|o| to_json(a, &session, o, peak, bandwidth))
            .collect();
        println!("{:#}", Value::Array(list));
    } else {
        table(&session, &outcomes, peak, bandwidth);
    }
    Ok(())
}

fn tests(a: &BenchArgs) -> Result<Vec<Test>, EngineError> {
    if a.repeat == 0 || a.batch == 0 {
        return Err(EngineError::Usage(
            "-r and --batch must be at least 1".to_owned(),
        ));
    }
    let mut tests = Vec::new();
    for &depth in &a.depth {
        tests.extend(a.prompt.iter().filter(|n| **n > 0).map(|&n_prompt| Test {
            n_prompt,
            n_gen: 0,
            depth,
            batch: a.batch,
        }));
        tests.extend(a.gen_tokens.iter().filter(|n| **n > 0).map(|&n_gen| Test {
            n_prompt: 0,
            n_gen,
            depth,
            batch: a.batch,
        }));
    }
    if tests.is_empty() {
        return Err(EngineError::Usage(
            "nothing to measure: -p and -n are 0".to_owned(),
        ));
    }
    Ok(tests)
}

fn to_json(
    a: &BenchArgs,
    session: &Session,
    o: &Outcome,
    peak: Option<u64>,
    bandwidth: f64,
) -> Value {
    let (Some(t), Some(s)) = (Summary::of(&o.secs), Summary::of(&o.speed)) else {
        return Value::Null;
    };
    let decode = (o.test.n_gen > 0).then(|| bench::bytes_per_token(session, o.test.depth));
    json!({
        "engine": "legwork",
        "engine_version": env!("CARGO_PKG_VERSION"),
        "model_filename": a.model.model,
        "model_size": session.weights_bytes,
        "n_threads": session.threads,
        "device": session.forward.device().name(),
        "tier": format!("{:?}", a.model.tier).to_lowercase(),
        "type_kv": format!("{:?}", a.model.kv_dtype).to_lowercase(),
        "n_ubatch": session.forward.max_rows(),
        "n_prompt": o.test.n_prompt,
        "n_gen": o.test.n_gen,
        "n_depth": o.test.depth,
        "n_batch_sequences": o.test.batch,
        "avg_ns": t.mean * 1e9,
        "stddev_ns": t.stddev * 1e9,
        "avg_ts": s.mean,
        "stddev_ts": s.stddev,
        "median_ts": s.median,
        "spread_pct": s.spread_pct(),
        "samples_ns": o.secs.iter().map(|s| s * 1e9).collect::<Vec<_>>(),
        "samples_ts": o.speed,
        "warmup_discarded": 1,
        "operations_ns": o
            .operations
            .iter()
            .map(|(op, s)| (op.name().to_owned(), json!(s * 1e9)))
            .collect::<serde_json::Map<_, _>>(),
        "load_secs": session.load_secs,
        "peak_rss_bytes": peak,
        "bytes_per_token": decode,
        "read_bandwidth_bytes_s": bandwidth,
        "bandwidth_fraction": decode.map(|b| b * s.median / o.test.batch as f64 / bandwidth),
        "reference_tier_hits": session.forward.registry().reference_hits(),
    })
}

fn table(session: &Session, outcomes: &[Outcome], peak: Option<u64>, bandwidth: f64) {
    println!("| test | tok/s median | mean ± sd | min | max | spread | of read bandwidth |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for o in outcomes {
        let Some(s) = Summary::of(&o.speed) else {
            continue;
        };
        let fraction = if o.test.n_gen > 0 {
            format!(
                "{:.0} %",
                bench::bytes_per_token(session, o.test.depth) * s.median
                    / o.test.batch as f64
                    / bandwidth
                    * 100.0
            )
        } else {
            "–".to_owned()
        };
        println!(
            "| {} | {:.2} | {:.2} ± {:.2} | {:.2} | {:.2} | {:.1} % | {fraction} |",
            o.test.name(),
            s.median,
            s.mean,
            s.stddev,
            s.min,
            s.max,
            s.spread_pct()
        );
    }
    for o in outcomes.iter().filter(|o| !o.operations.is_empty()) {
        println!(
            "\n| {}: operation | ms per token | share |\n|---|---:|---:|",
            o.test.name()
        );
        let all: f64 = o.operations.iter().map(|(_, s)| s).sum();
        for (op, secs) in &o.operations {
            let per_token = secs * 1e3 / o.test.tokens() as f64;
            println!(
                "| {} | {per_token:.4} | {:.1} % |",
                op.name(),
                secs / all * 100.0
            );
        }
    }
    let depth = outcomes.iter().map(|o| o.test.depth).max().unwrap_or(0);
    println!(
        "\n{}, {:.3} GiB of weights, {:.3} MiB read per decoded token, {} threads, device {}, peak RSS {}, memory reads {:.1} GB/s",
        session.gguf.name(),
        session.weights_bytes as f64 / GIB,
        bench::bytes_per_token(session, depth) / (1u64 << 20) as f64,
        session.threads,
        session.forward.device(),
        peak.map_or("–".to_owned(), |b| format!("{:.3} GiB", b as f64 / GIB)),
        bandwidth / 1e9
    );
}
