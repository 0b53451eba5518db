//! Which variables steer a GPU runtime, which of them an entry of the leg set covers, and what may be written down.
//! `run::env` builds a leg's environment from this and refuses what nobody declared: it would be a second, unnamed
//! difference between legs.

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

/// Whether a name is covered by an entry: the name itself, or a prefix that ends in `_`.
#[must_use]
pub fn covers(entry: &str, name: &str) -> bool {
    entry == name || entry.ends_with('_') && name.starts_with(entry)
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

    #[test]
    fn a_prefix_ends_in_an_underscore() {
        assert!(covers("HSA_", "HSA_X") && covers("VT_X", "VT_X"));
        assert!(!covers("HSA", "HSA_X") && !covers("VT_X", "VT_X2"));
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
