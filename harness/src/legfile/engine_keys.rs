//! The `engine:` mapping: the flags of `legwork engine generate`, with underscores.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

/// How one engine key becomes a flag.
trait Flag {
    /// Pushes `--flag value`; a switch pushes the flag alone when it is true.
    fn push(&self, flag: &str, argv: &mut Vec<String>);
    /// The value as shown to people.
    fn show(&self) -> String;
}

impl Flag for String {
    fn push(&self, flag: &str, argv: &mut Vec<String>) {
        argv.extend([flag.to_owned(), self.clone()]);
    }
    fn show(&self) -> String {
        self.clone()
    }
}
impl Flag for u64 {
    fn push(&self, flag: &str, argv: &mut Vec<String>) {
        argv.extend([flag.to_owned(), self.to_string()]);
    }
    fn show(&self) -> String {
        self.to_string()
    }
}
impl Flag for f64 {
    fn push(&self, flag: &str, argv: &mut Vec<String>) {
        argv.extend([flag.to_owned(), self.to_string()]);
    }
    fn show(&self) -> String {
        self.to_string()
    }
}
impl Flag for bool {
    fn push(&self, flag: &str, argv: &mut Vec<String>) {
        if *self {
            argv.push(flag.to_owned());
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! engine_keys {
    ($($(#[$doc:meta])* $key:ident: $ty:ty => $flag:literal),* $(,)?) => {
        /// Flags of `legwork engine generate`, with underscores for dashes.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct EngineKeys {
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $key: Option<$ty>,)*
        }

        impl EngineKeys {
            /// Every key with its flag, in the order in which they are handed over.
            pub const FLAGS: &'static [(&'static str, &'static str)] = &[$((stringify!($key), $flag)),*];

            /// `self` over `under`: a value of its own wins.
            #[must_use]
            pub fn over(&self, under: &EngineKeys) -> EngineKeys {
                let mut under = under.clone();
                // Two ways to give one thing: the leg's own way replaces the other one.
                if self.prompt.is_some() || self.prompt_file.is_some() {
                    under.prompt = None;
                    under.prompt_file = None;
                }
                EngineKeys { $($key: self.$key.clone().or_else(|| under.$key.clone()),)* }
            }

            /// The arguments after `engine generate`.
            #[must_use]
            pub fn argv(&self) -> Vec<String> {
                let mut argv = Vec::new();
                $(if let Some(value) = &self.$key { value.push($flag, &mut argv); })*
                argv
            }

            /// Key and value of everything that is set, as shown to people.
            #[must_use]
            pub fn settings(&self) -> Vec<(&'static str, String)> {
                let mut out = Vec::new();
                $(if let Some(value) = &self.$key { out.push((stringify!($key), value.show())); })*
                out
            }
        }
    };
}

engine_keys! {
    /// Model file, or `builtin:mini`.
    model: String => "--model",
    /// Prompt text.
    prompt: String => "--prompt",
    /// File that holds the prompt; copied before the run.
    prompt_file: String => "--prompt-file",
    /// Wrap the prompt in the model's chat template.
    chat: bool => "--chat",
    /// Tokens to generate.
    max_tokens: u64 => "--max-tokens",
    /// Sampling temperature; 0 is greedy.
    temperature: f64 => "--temperature",
    /// Keep only the k likeliest tokens.
    top_k: u64 => "--top-k",
    /// Keep the likeliest tokens up to this probability mass.
    top_p: f64 => "--top-p",
    /// Drop tokens below this share of the likeliest one.
    min_p: f64 => "--min-p",
    /// Seed of the sampler.
    seed: u64 => "--seed",
    /// Where to run: auto, cpu, rocm, cuda or simt.
    device: String => "--device",
    /// CPU threads.
    threads: u64 => "--threads",
    /// Runs of the same prompt in one process.
    repeat: u64 => "--repeat",
    /// Type of the KV cache: f32, f16 or bf16.
    kv_dtype: String => "--kv-dtype",
    /// Upper bound of the context in tokens.
    max_model_len: u64 => "--max-model-len",
    /// Most prompt tokens that go through the model at once.
    ubatch: u64 => "--ubatch",
    /// How weights are loaded: auto, direct, buffered or mmap.
    load: String => "--load",
    /// The same as `load: mmap`.
    mmap: bool => "--mmap",
    /// Go on past the model's own end.
    ignore_eos: bool => "--ignore-eos",
    /// Sequences decoded together.
    batch: u64 => "--batch",
    /// Which tier computes: auto, native or reference.
    tier: String => "--tier",
}

impl EngineKeys {
    /// Whether the model is one that is compiled in.
    #[must_use]
    pub fn builtin_model(&self) -> bool {
        self.model
            .as_deref()
            .is_some_and(|m| m.starts_with("builtin:"))
    }

    /// Makes relative paths absolute from `base`, so that a child's working directory does not matter.
    pub fn anchor(&mut self, base: &Path) {
        let anchor = |p: &mut String| {
            if !p.starts_with("builtin:") && Path::new(p.as_str()).is_relative() {
                *p = base.join(p.as_str()).to_string_lossy().into_owned();
            }
        };
        if let Some(p) = &mut self.model {
            anchor(p);
        }
        if let Some(p) = &mut self.prompt_file {
            anchor(p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_flags_and_a_false_switch_none() {
        let keys = EngineKeys {
            model: Some("builtin:mini".into()),
            mmap: Some(false),
            chat: Some(true),
            max_tokens: Some(8),
            temperature: Some(0.0),
            ..EngineKeys::default()
        };
        assert_eq!(
            keys.argv(),
            [
                "--model",
                "builtin:mini",
                "--chat",
                "--max-tokens",
                "8",
                "--temperature",
                "0"
            ]
        );
    }

    #[test]
    fn a_legs_own_value_wins_over_the_default() {
        let under = EngineKeys {
            model: Some("a".into()),
            threads: Some(2),
            ..EngineKeys::default()
        };
        let own = EngineKeys {
            model: Some("b".into()),
            ..EngineKeys::default()
        };
        let merged = own.over(&under);
        assert_eq!(
            (merged.model.as_deref(), merged.threads),
            (Some("b"), Some(2))
        );
    }
}
