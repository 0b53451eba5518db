//! How long the KV cache can be.

use legwork_kernels::tensor::DType;

use crate::model::Config;

use super::EngineError;

/// Tokens are granted in blocks of this many.
pub const BLOCK: usize = 32;
/// Memory left to everything else.
const RESERVE: u64 = 1 << 30;

/// A context length that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvFit {
    /// What the model or the user asked for.
    pub requested: usize,
    /// What is granted.
    pub resolved: usize,
}

impl KvFit {
    /// Fits `requested` tokens of `sequences` sequences into `available` bytes (`None`: not known, taken as enough).
    ///
    /// # Errors
    /// The user named a length that does not fit, or not even one block fits: with the numbers.
    pub fn resolve(
        config: &Config,
        dtype: DType,
        sequences: usize,
        asked: Option<usize>,
        available: Option<u64>,
    ) -> Result<Self, EngineError> {
        let requested = asked.unwrap_or(config.context).max(1);
        let per_token = (config.cache_elements_per_token() * dtype.bytes() * sequences) as u64;
        let Some(available) = available else {
            return Ok(KvFit {
                requested,
                resolved: requested,
            });
        };
        let fits = usize::try_from(available.saturating_sub(RESERVE) / per_token.max(1))
            .unwrap_or(usize::MAX)
            / BLOCK
            * BLOCK;
        if fits >= requested {
            return Ok(KvFit {
                requested,
                resolved: requested,
            });
        }
        if asked.is_some() || fits == 0 {
            return Err(EngineError::Usage(format!(
                "a KV cache of {requested} tokens needs {:.3} GiB ({per_token} bytes per token, {}), but {:.3} GiB are available \
                 and {:.0} GiB stay reserved: {fits} tokens fit; ask for fewer with --max-model-len, or take --kv-dtype f16",
                gib(per_token * requested as u64),
                dtype.name(),
                gib(available),
                gib(RESERVE),
            )));
        }
        Ok(KvFit {
            requested,
            resolved: fits,
        })
    }

    /// The line that users know, when the length was reduced.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        (self.resolved < self.requested).then(|| {
            format!(
                "INFO auto-fit max_model_len: reduced from {} to {} to fit the KV cache ({} blocks x {BLOCK} tokens). \
                 Ask for a length with --max-model-len to have it refused instead of reduced.",
                self.requested,
                self.resolved,
                self.resolved / BLOCK
            )
        })
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Memory that can be had without swapping, in bytes: `MemAvailable`.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resolve_model;

    fn mini() -> Config {
        Config::read(&resolve_model("builtin:mini").unwrap().open().unwrap()).unwrap()
    }

    #[test]
    fn what_fits_is_granted_and_what_does_not_is_reduced_to_blocks() {
        let c = mini();
        // 6 layers of 320 and 4 indexers of 64, f16
        assert_eq!(c.cache_elements_per_token() * 2, 4352);
        let fit = |asked, available| KvFit::resolve(&c, DType::F16, 1, asked, available);
        assert_eq!(fit(None, None).unwrap().resolved, 4096);
        assert_eq!(fit(None, Some(RESERVE + 4352 * 4096)).unwrap().line(), None);
        let reduced = fit(None, Some(RESERVE + 4352 * 100)).unwrap();
        assert_eq!(reduced.resolved, 96);
        assert!(reduced.line().unwrap().starts_with(
            "INFO auto-fit max_model_len: reduced from 4096 to 96 to fit the KV cache (3 blocks x 32 tokens)."
        ));
    }

    #[test]
    fn a_length_that_was_named_is_refused_with_numbers() {
        let text = KvFit::resolve(
            &mini(),
            DType::F16,
            1,
            Some(200),
            Some(RESERVE + 4352 * 100),
        )
        .unwrap_err()
        .to_string();
        assert!(
            text.contains("200 tokens")
                && text.contains("4352 bytes per token")
                && text.contains("96 tokens fit"),
            "{text}"
        );
        assert!(KvFit::resolve(&mini(), DType::F16, 1, None, Some(0)).is_err());
    }
}
