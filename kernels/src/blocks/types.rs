//! The tensor types of a GGUF file: ids, names, block lengths and sizes.

use super::error::{BlockError, TypeIdError};

/// How activations are rounded before an integer dot product with weights of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Not rounded.
    F32,
    /// Rounded to IEEE half.
    F16,
    /// Rounded to bfloat16.
    Bf16,
    /// 32 signed bytes and a scale rounded to half.
    Q8_0,
    /// As `Q8_0`, plus the scaled sum of the bytes, rounded to half.
    Q8_1,
    /// 256 signed bytes, an f32 scale, and sums of 16.
    Q8K,
}

macro_rules! block_types {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $n:literal, $bytes:literal, $act:ident;)*) => {
        /// A tensor type as GGUF names it. A tensor's rows are whole numbers of blocks.
        #[allow(non_camel_case_types, reason = "the names that GGUF and its users write")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum BlockType { $($(#[$doc])* $variant = $id,)* }

        impl BlockType {
            /// Every type, in the order of their ids.
            pub const ALL: &[BlockType] = &[$(BlockType::$variant,)*];

            /// The name that GGUF tools print, such as `IQ1_S`.
            pub const fn name(self) -> &'static str {
                match self { $(BlockType::$variant => $name,)* }
            }

            /// Elements in a block (1 for the plain types).
            pub const fn block_len(self) -> usize {
                match self { $(BlockType::$variant => $n,)* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(BlockType::$variant => $bytes,)* }
            }

            /// How ggml rounds activations that meet this type in a dot product.
            pub const fn activation(self) -> Activation {
                match self { $(BlockType::$variant => Activation::$act,)* }
            }

            const fn known(id: u32) -> Option<BlockType> {
                match id { $($id => Some(BlockType::$variant),)* _ => None }
            }
        }
    };
}

block_types! {
    /// IEEE single.
    F32 = 0, "F32", 1, 4, F32;
    /// IEEE half.
    F16 = 1, "F16", 1, 2, F16;
    /// 4 bits and a scale.
    Q4_0 = 2, "Q4_0", 32, 18, Q8_0;
    /// 4 bits, a scale and a minimum.
    Q4_1 = 3, "Q4_1", 32, 20, Q8_1;
    /// 5 bits and a scale.
    Q5_0 = 6, "Q5_0", 32, 22, Q8_0;
    /// 5 bits, a scale and a minimum.
    Q5_1 = 7, "Q5_1", 32, 24, Q8_1;
    /// 8 bits and a scale.
    Q8_0 = 8, "Q8_0", 32, 34, Q8_0;
    /// 8 bits, a scale and a scaled sum: an activation format.
    Q8_1 = 9, "Q8_1", 32, 36, Q8_1;
    /// 2 bits, 4-bit scales and minima.
    Q2_K = 10, "Q2_K", 256, 84, Q8K;
    /// 3 bits, 6-bit scales.
    Q3_K = 11, "Q3_K", 256, 110, Q8K;
    /// 4 bits, 6-bit scales and minima.
    Q4_K = 12, "Q4_K", 256, 144, Q8K;
    /// 5 bits, 6-bit scales and minima.
    Q5_K = 13, "Q5_K", 256, 176, Q8K;
    /// 6 bits, 8-bit scales.
    Q6_K = 14, "Q6_K", 256, 210, Q8K;
    /// 8 bits, an f32 scale and sums of 16: an activation format.
    Q8_K = 15, "Q8_K", 256, 292, Q8K;
    /// Codebook of 256 x 8, 2.06 bits.
    IQ2_XXS = 16, "IQ2_XXS", 256, 66, Q8K;
    /// Codebook of 512 x 8, 2.31 bits.
    IQ2_XS = 17, "IQ2_XS", 256, 74, Q8K;
    /// Codebook of 256 x 4, 3.06 bits.
    IQ3_XXS = 18, "IQ3_XXS", 256, 98, Q8K;
    /// Ternary codebook of 2048 x 8, 1.56 bits.
    IQ1_S = 19, "IQ1_S", 256, 50, Q8K;
    /// 16 uneven levels and a scale.
    IQ4_NL = 20, "IQ4_NL", 32, 18, Q8_0;
    /// Codebook of 512 x 4, 3.44 bits.
    IQ3_S = 21, "IQ3_S", 256, 110, Q8K;
    /// Codebook of 1024 x 8, 2.56 bits.
    IQ2_S = 22, "IQ2_S", 256, 82, Q8K;
    /// 16 uneven levels, 6-bit scales.
    IQ4_XS = 23, "IQ4_XS", 256, 136, Q8K;
    /// Signed byte.
    I8 = 24, "I8", 1, 1, F32;
    /// Signed 16-bit integer.
    I16 = 25, "I16", 1, 2, F32;
    /// Signed 32-bit integer.
    I32 = 26, "I32", 1, 4, F32;
    /// Signed 64-bit integer.
    I64 = 27, "I64", 1, 8, F32;
    /// IEEE double.
    F64 = 28, "F64", 1, 8, F32;
    /// Ternary codebook of 2048 x 8, 1.75 bits.
    IQ1_M = 29, "IQ1_M", 256, 56, Q8K;
    /// bfloat16.
    BF16 = 30, "BF16", 1, 2, Bf16;
    /// Ternary, 1.69 bits.
    TQ1_0 = 34, "TQ1_0", 256, 54, Q8K;
    /// Ternary, 2.06 bits.
    TQ2_0 = 35, "TQ2_0", 256, 66, Q8K;
    /// OCP microscaling fp4 with an exponent per 32.
    MXFP4 = 39, "MXFP4", 32, 17, Q8_0;
    /// fp4 with a ue4m3 scale per 16.
    NVFP4 = 40, "NVFP4", 64, 36, Q8_0;
    /// Signs and a scale.
    Q1_0 = 41, "Q1_0", 128, 18, Q8_0;
    /// Four levels and a scale.
    Q2_0 = 42, "Q2_0", 64, 18, Q8_0;
}

impl BlockType {
    /// The type of a GGUF id.
    ///
    /// # Errors
    /// A number that GGUF has retired, that only a fork uses, or that nobody has defined.
    pub const fn from_id(id: u32) -> Result<BlockType, TypeIdError> {
        match BlockType::known(id) {
            Some(ty) => Ok(ty),
            None => Err(match id {
                4 | 5 | 31..=33 | 36..=38 => TypeIdError::Removed { id },
                133.. => TypeIdError::Fork { id },
                _ => TypeIdError::Unknown { id },
            }),
        }
    }

    /// The id that a GGUF file stores.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Whether elements share scales, so that a row is more than a list of numbers.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `n` elements.
    ///
    /// # Errors
    /// `n` is no whole number of blocks, or the size does not fit a `usize`.
    pub const fn row_bytes(self, n: usize) -> Result<usize, BlockError> {
        if !n.is_multiple_of(self.block_len()) {
            return Err(BlockError::RowLength { ty: self, n });
        }
        match (n / self.block_len()).checked_mul(self.block_bytes()) {
            Some(bytes) => Ok(bytes),
            None => Err(BlockError::TooLarge { ty: self, n }),
        }
    }

    /// Bits per element, scales included.
    pub fn bits_per_element(self) -> f64 {
        self.block_bytes() as f64 * 8.0 / self.block_len() as f64
    }
}

impl std::fmt::Display for BlockType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_both_ways() {
        for &ty in BlockType::ALL {
            assert_eq!(BlockType::from_id(ty.id()), Ok(ty));
        }
    }

    #[test]
    fn every_other_id_is_refused_with_its_reason() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38] {
            assert_eq!(BlockType::from_id(id), Err(TypeIdError::Removed { id }));
        }
        for id in [133, 152, 337, u32::MAX] {
            assert_eq!(BlockType::from_id(id), Err(TypeIdError::Fork { id }));
        }
        for id in [43, 60, 132] {
            assert_eq!(BlockType::from_id(id), Err(TypeIdError::Unknown { id }));
        }
    }

    #[test]
    fn row_sizes() {
        assert_eq!(BlockType::IQ1_S.row_bytes(6144), Ok(1200));
        assert_eq!(BlockType::Q8_0.row_bytes(192), Ok(204));
        assert_eq!(
            BlockType::IQ1_S.row_bytes(192),
            Err(BlockError::RowLength {
                ty: BlockType::IQ1_S,
                n: 192
            })
        );
        assert!(BlockType::F64.row_bytes(usize::MAX).is_err());
    }
}
