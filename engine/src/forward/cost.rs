//! Which form of attention a step takes.
//!
//! Both forms compute the same. Per head, with `P` query-key pairs, `T` rows and `K` keys of the cache in reach:
//! absorbed costs `P (2 lora + rope) + T lora (nope + v)` multiply-adds, un-absorbed `P (nope + rope + v) + K lora (nope + v)`,
//! since it makes keys and values of every cache row first. A decode step has `T` = 1 and takes the absorbed form; a long
//! dense prefill has many pairs per key and takes the other one.

/// The two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionForm {
    /// Scores against the latent.
    Absorbed,
    /// Scores against keys made from the latent.
    Unabsorbed,
}

/// What a step's attention is made of.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Query-key pairs of the step.
    pub pairs: usize,
    /// Rows of the step.
    pub rows: usize,
    /// Cache rows in reach.
    pub keys: usize,
    /// Latent.
    pub lora: usize,
    /// Un-roped part of a head.
    pub nope: usize,
    /// Roped part.
    pub rope: usize,
    /// Value head.
    pub v_dim: usize,
}

impl Cost {
    /// Multiply-adds per head of the absorbed form.
    #[must_use]
    pub fn absorbed(&self) -> u128 {
        self.pairs as u128 * (2 * self.lora + self.rope) as u128
            + self.rows as u128 * (self.lora * (self.nope + self.v_dim)) as u128
    }

    /// Multiply-adds per head of the un-absorbed form.
    #[must_use]
    pub fn unabsorbed(&self) -> u128 {
        self.pairs as u128 * (self.nope + self.rope + self.v_dim) as u128
            + self.keys as u128 * (self.lora * (self.nope + self.v_dim)) as u128
    }

    /// The cheaper form.
    #[must_use]
    pub fn form(&self) -> AttentionForm {
        if self.unabsorbed() < self.absorbed() {
            AttentionForm::Unabsorbed
        } else {
            AttentionForm::Absorbed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glm(pairs: usize, rows: usize, keys: usize) -> AttentionForm {
        Cost {
            pairs,
            rows,
            keys,
            lora: 512,
            nope: 192,
            rope: 64,
            v_dim: 256,
        }
        .form()
    }

    #[test]
    fn decode_is_absorbed_and_long_prefill_is_not() {
        assert_eq!(glm(2048, 1, 2048), AttentionForm::Absorbed);
        assert_eq!(glm(512 * 513 / 2, 512, 512), AttentionForm::Unabsorbed);
        // 64 new rows on 32k of context, sparse: making keys of the whole context does not pay
        assert_eq!(glm(64 * 2048, 64, 32768), AttentionForm::Absorbed);
    }
}
