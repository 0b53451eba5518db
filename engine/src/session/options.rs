//! What a user can ask of a model, as command-line arguments.

use clap::{Args, ValueEnum};
use legwork_kernels::registry::TierChoice;
use legwork_kernels::tensor::DType;

use crate::gguf::load::LoadMode;

/// Which device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// The first of rocm, cuda and cpu that works; which one, and why, is printed.
    Auto,
    /// The host processor.
    Cpu,
    /// AMD through HIP.
    Rocm,
    /// NVIDIA through the CUDA driver.
    Cuda,
    /// The GPU kernels compiled for the host, bounds-checked: slow, for finding kernel bugs.
    Simt,
}

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KvDtype {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
}

impl From<KvDtype> for DType {
    fn from(d: KvDtype) -> DType {
        match d {
            KvDtype::F32 => DType::F32,
            KvDtype::F16 => DType::F16,
            KvDtype::Bf16 => DType::BF16,
        }
    }
}

/// Which implementations may serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TierArg {
    /// Native code, then the reference tier.
    Auto,
    /// Native code or a refusal.
    Native,
    /// The portable code that defines each operation.
    Reference,
}

impl From<TierArg> for TierChoice {
    fn from(t: TierArg) -> TierChoice {
        match t {
            TierArg::Auto => TierChoice::Auto,
            TierArg::Native => TierChoice::NativeOnly,
            TierArg::Reference => TierChoice::ReferenceOnly,
        }
    }
}

/// How weights get from the file into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoadModeChoice {
    /// Direct when the page cache holds less than half of the file, buffered otherwise.
    Auto,
    /// O_DIRECT reads by several threads, past the page cache.
    Direct,
    /// Reads through the page cache.
    Buffered,
    /// The file mapped; pages come when they are touched.
    Mmap,
}

impl From<LoadModeChoice> for LoadMode {
    fn from(m: LoadModeChoice) -> LoadMode {
        match m {
            LoadModeChoice::Auto => LoadMode::Auto,
            LoadModeChoice::Direct => LoadMode::Direct,
            LoadModeChoice::Buffered => LoadMode::Buffered,
            LoadModeChoice::Mmap => LoadMode::Mmap,
        }
    }
}

/// The model and what it runs on.
#[derive(Debug, Clone, Args)]
pub struct ModelOptions {
    /// Model file (first shard of a split set), or builtin:mini
    #[arg(long, short, value_name = "M")]
    pub model: String,
    /// Device to run on
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Folder of GPU code objects that replaces the built-in ones
    #[arg(long, value_name = "DIR")]
    pub kernels: Option<std::path::PathBuf>,
    /// Run tensors on another device than the rest: PATTERN=DEVICE with * for anything, e.g. 'blk.7.ffn_*_exps.weight=cpu';
    /// only routed experts can be placed (VT_CPU_MOE=1 places them all on the CPU)
    #[arg(long, value_name = "PATTERN=DEVICE")]
    pub place: Vec<String>,
    /// Page routed experts from disk through a cache of this size, e.g. 24GiB, instead of loading them all
    #[arg(long, value_name = "SIZE")]
    pub expert_cache: Option<String>,
    /// CPU threads [default: all cores that this process may use]
    #[arg(long, short, value_name = "N")]
    pub threads: Option<usize>,
    /// Which implementations may serve an operation
    #[arg(long, value_enum, default_value_t = TierArg::Auto)]
    pub tier: TierArg,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value_t = KvDtype::F32)]
    pub kv_dtype: KvDtype,
    /// Longest context to serve [default: the model's, reduced to what memory holds]
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<usize>,
    /// Most prompt tokens that go through the model at once [default: 512, fewer where they would outweigh a small model]
    #[arg(long, value_name = "TOKENS")]
    pub ubatch: Option<usize>,
    /// How weights are loaded
    #[arg(long, value_enum, default_value_t = LoadModeChoice::Auto)]
    pub load: LoadModeChoice,
    /// The same as --load mmap
    #[arg(long, conflicts_with = "load")]
    pub mmap: bool,
}

impl ModelOptions {
    /// How weights are loaded, `--mmap` considered.
    #[must_use]
    pub fn load_mode(&self) -> LoadModeChoice {
        if self.mmap {
            LoadModeChoice::Mmap
        } else {
            self.load
        }
    }
}
