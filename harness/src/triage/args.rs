//! The arguments of `legwork triage` and `legwork explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Output formats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// Markdown, for an issue.
    Md,
}

/// Judge attempts: whose fault was it, and which lines say so.
///
/// Works on an attempt folder, a whole run, or the bare logs of a bug report.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  legwork triage runs/20261201T0448Z-smoke            every attempt of a run
  legwork triage runs/20261201T0448Z-smoke --group    the same, grouped by trouble
  dmesg | legwork triage - --process vllm-cli --exit 134
  legwork triage --kernel-log dmesg.txt --output out.txt --pid 4711 --exit signal:6 --gpu 0000:c5:00.0")]
pub struct TriageArgs {
    /// Attempt folders, run folders, or log files; `-` is standard input.
    #[arg(value_name = "DIR|FILE")]
    pub paths: Vec<PathBuf>,
    /// A kernel log (dmesg, journalctl -k, /dev/kmsg), in any style.
    #[arg(long, value_name = "FILE")]
    pub kernel_log: Option<PathBuf>,
    /// What the program printed.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// A context.yaml; the options below win over it.
    #[arg(long, value_name = "FILE")]
    pub context: Option<PathBuf>,
    /// Process id of the leg; may be given several times.
    #[arg(long, value_name = "N")]
    pub pid: Vec<u64>,
    /// Name of the leg's process.
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,
    /// How it ended: 0, 134, signal:6, timeout, "host reset", "lost connection".
    #[arg(long, value_name = "HOW")]
    pub exit: Option<String>,
    /// PCI address of the leg's GPU, e.g. 0000:c5:00.0; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub gpu: Vec<String>,
    /// The leg's span of the kernel log: FROM..TO, as stamps of the log or seconds since boot; either may be empty.
    #[arg(long, value_name = "FROM..TO")]
    pub window: Option<String>,
    /// The board and its software in words, e.g. "Radeon 8060S (gfx1151), kernel 6.18.7, ROCm 7.2.1, MES 0x80".
    #[arg(long, value_name = "TEXT")]
    pub hardware: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Group attempts by title.
    #[arg(long)]
    pub group: bool,
    /// List the lines that were set aside, too.
    #[arg(long)]
    pub all_lines: bool,
}

/// Explain a kind of verdict: what it means, what causes it, what to do, who says so.
#[derive(Debug, Clone, Default, Args)]
pub struct ExplainArgs {
    /// The kind, e.g. gpu-page-fault-cp or xid-31; without one, all kinds are listed.
    #[arg(value_name = "KIND")]
    pub kind: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
