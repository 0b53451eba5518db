//! `legwork engine inspect`: what a model file holds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use legwork_kernels::blocks::decode;
use legwork_kernels::tensor::DType;

use crate::builtin::resolve_model;
use crate::gguf::{Gguf, Value};
use crate::model::{Config, OUTPUT, Weights, is_routed_expert};
use crate::session::EngineError;

const MIB: f64 = (1u64 << 20) as f64;

/// Arguments of `inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// Model file (first shard of a split set), or builtin:mini
    #[arg(value_name = "M")]
    model: String,
    /// Print one tensor's facts, or write it with --dump
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    /// Write the tensor as little-endian f32
    #[arg(long, value_name = "F.f32", requires = "tensor")]
    dump: Option<PathBuf>,
    /// List all tensors
    #[arg(long)]
    tensors: bool,
}

pub(super) fn run(a: &InspectArgs) -> Result<(), EngineError> {
    let gguf = resolve_model(&a.model)?.open()?;
    if let Some(name) = &a.tensor {
        return tensor(&gguf, name, a.dump.as_deref());
    }
    println!(
        "{}: GGUF v{}, {} shards, {:.1} MiB",
        gguf.name(),
        gguf.version(),
        gguf.shards().len(),
        gguf.total_size() as f64 / MIB
    );
    println!("\nmetadata");
    for (key, value) in gguf.metadata() {
        println!("  {key} = {}", short(value));
    }
    if a.tensors {
        println!("\ntensors");
        for t in gguf.tensors() {
            println!(
                "  {:<44} {:>8} {:?} {} bytes",
                t.name,
                t.ty.name(),
                t.dims(),
                t.bytes
            );
        }
    }
    mix(&gguf);
    let config = Config::read(&gguf)?;
    groups(&gguf, &config);
    Ok(())
}

fn short(value: &Value) -> String {
    let text = match value {
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F32(v) => v.to_string(),
        Value::F64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::String(v) => format!("{v:?}"),
        // Vocabularies and merges are long; flags per layer are what one wants to see.
        Value::Array(a) if a.len() <= 128 && a.integer(0).is_some() => {
            let items: Vec<String> = (0..a.len())
                .filter_map(|i| a.integer(i))
                .map(|v| v.to_string())
                .collect();
            format!("[{}]", items.join(" "))
        }
        Value::Array(_) => value.kind(),
    };
    match text.char_indices().nth(120) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text,
    }
}

fn mix(gguf: &Gguf) {
    let mut types: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    for t in gguf.tensors() {
        let entry = types.entry(t.ty.name()).or_default();
        entry.0 += 1;
        entry.1 += t.elements();
        entry.2 += t.bytes;
    }
    let total: u64 = types.values().map(|t| t.2).sum();
    let elements: u64 = types.values().map(|t| t.1).sum();
    println!(
        "\ntype mix: {elements} elements, {:.2} bits each",
        total as f64 * 8.0 / elements.max(1) as f64
    );
    let mut rows: Vec<_> = types.into_iter().collect();
    rows.sort_by_key(|(_, (_, _, bytes))| std::cmp::Reverse(*bytes));
    for (name, (n, elements, bytes)) in rows {
        println!(
            "  {name:<8} {n:>5} tensors {elements:>14} elements {:>12.1} MiB {:>5.1} %",
            bytes as f64 / MIB,
            bytes as f64 * 100.0 / total.max(1) as f64
        );
    }
}

/// Which part of a model a tensor belongs to.
fn group(name: &str, config: &Config) -> &'static str {
    if !Weights::used(config, name) {
        return "not used (MTP blocks, copies in shared-indexer layers)";
    }
    if name == "token_embd.weight" {
        return "token embedding";
    }
    if name.starts_with("output") {
        return "head";
    }
    if is_routed_expert(name) {
        return "routed experts";
    }
    if name.contains("_shexp.") {
        return "shared experts";
    }
    if name.contains("indexer.") {
        return "indexer";
    }
    if name.contains("ffn_gate_inp") || name.contains("exp_probs_b") {
        return "router";
    }
    if name.contains("attn_") {
        "attention"
    } else {
        "dense FFN and norms"
    }
}

fn groups(gguf: &Gguf, config: &Config) {
    let mut groups: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    let tied = gguf.tensor(OUTPUT).is_none();
    for t in gguf.tensors() {
        let entry = groups.entry(group(&t.name, config)).or_default();
        entry.0 += t.bytes;
        entry.1 += t.bytes as f64 * config.read_per_token(&t.name, tied, true);
    }
    println!("\ngroups {:>49} {:>22}", "size", "read per sparse token");
    for (name, (bytes, read)) in &groups {
        println!(
            "  {name:<36} {:>12.2} MiB {:>18.3} MiB",
            *bytes as f64 / MIB,
            read / MIB
        );
    }
    let read: f64 = groups.values().map(|g| g.1).sum();
    println!(
        "  {:<36} {:>12.2} MiB {:>18.3} MiB ({read:.0} bytes)",
        "all",
        groups.values().map(|g| g.0).sum::<u64>() as f64 / MIB,
        read / MIB
    );
    let kv = config.cache_elements_per_token();
    println!(
        "\nKV cache per token: {} bytes f16, {} bytes f32; sparse from {} tokens",
        kv * DType::F16.bytes(),
        kv * DType::F32.bytes(),
        config
            .indexer
            .as_ref()
            .map_or("never (no indexer)".to_owned(), |x| (x.top_k + 1)
                .to_string())
    );
}

fn tensor(gguf: &Gguf, name: &str, dump: Option<&std::path::Path>) -> Result<(), EngineError> {
    let info = gguf.require_tensor(name)?;
    println!(
        "{name}: {} {:?}, {} bytes at {} of {}",
        info.ty.name(),
        info.dims(),
        info.bytes,
        info.offset,
        gguf.shards()[info.shard].name()
    );
    let Some(path) = dump else { return Ok(()) };
    let io = |source| EngineError::Io {
        path: path.display().to_string(),
        source,
    };
    let mut bytes = vec![0u8; usize::try_from(info.bytes).unwrap_or(usize::MAX)];
    gguf.read_tensor(info, &mut bytes)?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).map_err(io)?);
    let row = usize::try_from(info.ne[0]).unwrap_or(usize::MAX);
    let mut values = vec![0.0f32; row];
    let row_bytes = usize::try_from(info.row_bytes()).unwrap_or(usize::MAX);
    for blocks in bytes.chunks_exact(row_bytes.max(1)) {
        decode(info.ty, blocks, &mut values)
            .map_err(|e| EngineError::Usage(format!("{name}: {e}")))?;
        for v in &values {
            std::io::Write::write_all(&mut out, &v.to_le_bytes()).map_err(io)?;
        }
    }
    std::io::Write::flush(&mut out).map_err(io)?;
    println!("wrote {} f32 to {}", info.elements(), path.display());
    Ok(())
}
