//! `legwork engine synth`: random models of any size.

use std::path::PathBuf;

use clap::Args;

use crate::session::EngineError;
use crate::synth::{self, Mix, Preset, SynthOptions};

const GIB: f64 = (1u64 << 30) as f64;

/// Arguments of `synth`.
#[derive(Debug, Clone, Args)]
pub struct SynthArgs {
    /// File to write; with --split its stem becomes the shards' prefix
    #[arg(value_name = "OUT.gguf")]
    out: PathBuf,
    /// Dimensions to start from: mini, small, medium, full
    #[arg(long, default_value = "small")]
    preset: String,
    /// Size to reach within 5 %, e.g. 2GiB [default: the preset's own]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// Types: ud-iq1_s, or one type for all matrices such as q8_0 or q4_k
    #[arg(long, default_value = "ud-iq1_s")]
    mix: String,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 1)]
    split: u32,
    /// Seed of the weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(a: &SynthArgs) -> Result<(), EngineError> {
    let usage = |e: synth::SynthError| EngineError::Usage(e.to_string());
    let bytes = match &a.bytes {
        None => None,
        Some(text) => Some(synth::parse_bytes(text).ok_or_else(|| {
            EngineError::Usage(format!(
                "--bytes {text}: not a size; write e.g. 2GiB or 500MB"
            ))
        })?),
    };
    let options = SynthOptions {
        out: a.out.clone(),
        preset: a.preset.parse::<Preset>().map_err(usage)?,
        bytes,
        mix: a.mix.parse::<Mix>().map_err(usage)?,
        split: a.split,
        seed: a.seed,
    };
    let mut tenth = 0;
    let report = synth::write(&options, &mut |done, all| {
        let now = done * 10 / all.max(1);
        if now > tenth && now < 10 {
            tenth = now;
            eprintln!("engine: synth {}0 %", now);
        }
    })
    .map_err(usage)?;
    for (path, bytes) in &report.files {
        println!("{} {bytes}", path.display());
    }
    eprintln!(
        "engine: synth wrote {:.3} GiB, {:.2} G parameters, {} layers",
        report.bytes as f64 / GIB,
        report.parameters as f64 / 1e9,
        report.shape.layers
    );
    for (ty, bytes) in &report.types {
        eprintln!("engine: synth   {ty:<8} {:>8.3} GiB", *bytes as f64 / GIB);
    }
    Ok(())
}
