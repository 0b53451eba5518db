//! Which variables of the environment may reach a leg, and what of them may be written down.
//!
//! A leg gets its own environment: what it declares, a short list of harmless names, and what the leg set allows. A
//! variable of the harness's own environment that steers a GPU runtime and was not declared is refused, because it
//! would be a second, unnamed difference between legs.

use std::collections::BTreeMap;

/// Prefixes of variables that steer a GPU runtime, an engine or the loader.
pub const STEERING: &[&str] = &[
    "HSA_",
    "ROCR_",
    "HIP_",
    "AMD_",
    "GPU_",
    "GGML_",
    "VT_",
    "CUDA_",
    "PYTORCH_",
    "LD_",
    "ROCPROF_",
    "HSAKMT_",
    "NCCL_",
    "RCCL_",
    "MIOPEN_",
    "ROCBLAS_",
    "HIPBLASLT_",
    "TRITON_",
    "VLLM_",
];

/// Names that every leg inherits.
pub const HARMLESS: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TERM",
    "XDG_RUNTIME_DIR",
    "RC_JOB_ID",
    "RC_DEVICE",
];

/// What became of the inherited environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// What passes to every leg.
    pub passed: BTreeMap<String, String>,
    /// Steering variables that were neither declared nor allowed: the run must be refused.
    pub refused: Vec<String>,
}

/// Whether a name is covered by an entry: the name itself, or a prefix that ends in `_`.
#[must_use]
pub fn covers(entry: &str, name: &str) -> bool {
    entry == name || entry.ends_with('_') && name.starts_with(entry)
}

/// Sorts the inherited variables. `allow` are names or prefixes of the leg set, `declared` the names that some leg
/// sets itself (an inherited value of such a name never passes: the leg's own does).
#[must_use]
pub fn clean<'a>(
    inherited: impl IntoIterator<Item = (String, String)>,
    allow: &[String],
    declared: impl IntoIterator<Item = &'a str>,
) -> Cleaned {
    let declared: Vec<&str> = declared.into_iter().collect();
    let mut c = Cleaned::default();
    for (name, value) in inherited {
        if declared.contains(&name.as_str()) {
            continue;
        }
        if allow.iter().any(|a| covers(a, &name)) || HARMLESS.contains(&name.as_str()) {
            c.passed.insert(name, value);
        } else if STEERING.iter().any(|p| name.starts_with(p)) {
            c.refused.push(name);
        }
    }
    c.refused.sort();
    c
}

/// The sentence that refuses a run.
#[must_use]
pub fn refusal(refused: &[String]) -> Option<String> {
    (!refused.is_empty()).then(|| {
        format!(
            "the environment holds {}, which no leg declares: unset {}, or name {} under `env` of a leg or `env_allow` of \
             the set",
            refused.join(", "),
            if refused.len() == 1 { "it" } else { "them" },
            if refused.len() == 1 { "it" } else { "them" },
        )
    })
}

/// Whether a name looks like that of a secret.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let n = name.to_ascii_uppercase();
    n.split('_').any(|w| {
        matches!(
            w,
            "TOKEN"
                | "SECRET"
                | "PASSWORD"
                | "PASSWD"
                | "PASS"
                | "APIKEY"
                | "CREDENTIAL"
                | "CREDENTIALS"
                | "AUTH"
                | "COOKIE"
        )
    }) || n.ends_with("_KEY")
        || n == "KEY"
        || n.contains("PRIVATE_KEY")
        || n.contains("ACCESS_KEY")
}

/// A value fit to be written down: secrets, and passwords inside URLs, are masked.
#[must_use]
pub fn masked(name: &str, value: &str) -> String {
    if is_secret(name) {
        return format!("<masked, {} bytes>", value.len());
    }
    if let Some((scheme, rest)) = value.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && !user.contains('/')
        && user.contains(':')
    {
        return format!("{scheme}://<masked>@{host}");
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(v: &[(&str, &str)]) -> Vec<(String, String)> {
        v.iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    #[test]
    fn undeclared_steering_is_refused_and_the_rest_is_dropped() {
        let inherited = env(&[
            ("PATH", "/bin"),
            ("HSA_OVERRIDE_GFX_VERSION", "11.0.0"),
            ("HSA_VISIBLE_DEVICES", "0"),
            ("VT_CPU_MOE", "1"),
            ("LD_PRELOAD", "/x.so"),
            ("EDITOR", "vi"),
            ("MY_X", "1"),
        ]);
        let c = clean(
            inherited,
            &["HSA_VISIBLE_DEVICES".into(), "MY_".into()],
            ["VT_CPU_MOE"],
        );
        assert_eq!(c.refused, ["HSA_OVERRIDE_GFX_VERSION", "LD_PRELOAD"]);
        assert_eq!(
            c.passed.keys().collect::<Vec<_>>(),
            ["HSA_VISIBLE_DEVICES", "MY_X", "PATH"]
        );
        let r = refusal(&c.refused).unwrap();
        assert!(r.contains("HSA_OVERRIDE_GFX_VERSION, LD_PRELOAD") && r.contains("env_allow"));
        assert_eq!(refusal(&[]), None);
        assert!(!covers("HSA", "HSA_X"), "a prefix ends in _");
    }

    #[test]
    fn secrets_are_masked() {
        assert_eq!(masked("HF_TOKEN", "hf_abc"), "<masked, 6 bytes>");
        assert_eq!(masked("AWS_SECRET_ACCESS_KEY", "x"), "<masked, 1 bytes>");
        assert_eq!(masked("KEYBOARD", "de"), "de");
        assert_eq!(masked("TOKENIZERS_PARALLELISM", "false"), "false");
        assert_eq!(
            masked("http_proxy", "http://u:p@h:80"),
            "http://<masked>@h:80"
        );
        assert_eq!(masked("URL", "http://h/@x"), "http://h/@x");
    }
}
