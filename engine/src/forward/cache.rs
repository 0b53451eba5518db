//! Latent and indexer caches.

use legwork_kernels::tensor::{DType, MemoryDomain, Tensor, TensorError};

use crate::model::Config;

/// How large a cache is and of what type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSpec {
    /// Sequences.
    pub sequences: usize,
    /// Tokens of each sequence.
    pub tokens: usize,
    /// Element type: f32, f16 or bf16.
    pub dtype: DType,
}

impl CacheSpec {
    /// Cache slots in all.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.sequences * self.tokens
    }

    /// Bytes of the whole cache.
    #[must_use]
    pub fn bytes(&self, config: &Config) -> usize {
        self.slots() * config.cache_elements_per_token() * self.dtype.bytes()
    }
}

/// The caches of all layers. Sequence `i` owns the slots from `i * tokens`.
#[derive(Debug)]
pub struct KvCache {
    /// Per layer `[slots, kv_lora + rope]`.
    pub(super) latent: Vec<Tensor>,
    /// Per layer with an indexer `[slots, dim]`.
    pub(super) index: Vec<Option<Tensor>>,
    spec: CacheSpec,
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Errors
    /// Not enough memory in `domain`.
    pub fn new(
        config: &Config,
        spec: CacheSpec,
        domain: &dyn MemoryDomain,
    ) -> Result<Self, TensorError> {
        let tensor = |width| Tensor::zeros(domain, spec.dtype, spec.slots() * width);
        let latent = (0..config.layers)
            .map(|_| tensor(config.cache_width()))
            .collect::<Result<_, _>>()?;
        let index = (0..config.layers)
            .map(|i| match &config.indexer {
                Some(x) if x.full[i] => tensor(x.dim).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        Ok(KvCache {
            latent,
            index,
            spec,
        })
    }

    /// Size and type.
    #[must_use]
    pub fn spec(&self) -> CacheSpec {
        self.spec
    }
}
