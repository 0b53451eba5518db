//! Random blocks and activations.
#![allow(dead_code, reason = "each test crate uses its part")]

use half::f16;
use legwork_kernels::blocks::BlockType;

/// A small generator of uniform bits.
pub struct Bits(u64);

impl Bits {
    pub fn new(seed: u64) -> Bits {
        Bits(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in -1..1.
    pub fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Values of different sizes and signs.
pub fn wave(n: usize, seed: f32) -> Vec<f32> {
    let mut bits = Bits::new((seed * 1000.0) as u64);
    (0..n)
        .map(|i| bits.signed() * (1.0 + (i as f32 * 0.01).sin()) + 0.05)
        .collect()
}

/// `rows` rows of `n` elements in random blocks with moderate float scales.
pub fn random_rows(ty: BlockType, rows: usize, n: usize, seed: u64) -> Vec<u8> {
    let mut bits = Bits::new(seed + u64::from(ty.id()) * 977);
    let size = ty.block_bytes();
    let mut out = vec![0_u8; rows * n / ty.block_len() * size];
    for block in out.chunks_exact_mut(size) {
        block.iter_mut().for_each(|b| *b = bits.next() as u8);
        let mut half = |block: &mut [u8], at: usize| {
            let v = f16::from_f32(0.02 * bits.signed());
            block[at..at + 2].copy_from_slice(&v.to_le_bytes());
        };
        use BlockType::*;
        match ty {
            F32 => {
                let v = bits.signed();
                block.copy_from_slice(&v.to_le_bytes());
            }
            F64 => {
                let v = f64::from(bits.signed());
                block.copy_from_slice(&v.to_le_bytes());
            }
            BF16 => {
                let v = half::bf16::from_f32(bits.signed());
                block.copy_from_slice(&v.to_le_bytes());
            }
            I32 | I64 | I8 | I16 => {}
            F16 | Q4_0 | Q5_0 | Q8_0 | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ1_S
            | IQ4_NL | IQ4_XS | Q1_0 | Q2_0 => half(block, 0),
            Q4_1 | Q5_1 | Q8_1 | Q4_K | Q5_K => {
                half(block, 0);
                half(block, 2);
            }
            Q2_K => {
                half(block, 80);
                half(block, 82);
            }
            Q3_K => half(block, 108),
            Q6_K => half(block, 208),
            TQ1_0 => half(block, 52),
            TQ2_0 => half(block, 64),
            Q8_K => {
                let v = 0.02 * bits.signed();
                block[..4].copy_from_slice(&v.to_le_bytes());
            }
            // exponent and scale bytes near one
            MXFP4 => block[0] = 120 + (block[0] & 7),
            NVFP4 => block[..4].iter_mut().for_each(|b| *b = 0x30 + (*b & 7)),
            IQ1_M => {
                let v = f16::from_f32(0.02 * bits.signed()).to_bits();
                for k in 0..4 {
                    let b = &mut block[49 + 2 * k];
                    *b = (*b & 0x0F) | ((v >> (4 * k)) as u8 & 15) << 4;
                }
            }
        }
    }
    out
}

/// Copy the float scales of a block of type `ty`, so that they stay finite.
pub fn copy_scales(ty: BlockType, to: &mut [u8], from: &[u8]) {
    use BlockType::*;
    let mut copy = |at: usize, n: usize| to[at..at + n].copy_from_slice(&from[at..at + n]);
    match ty {
        Q4_1 | Q5_1 | Q4_K | Q5_K => copy(0, 4),
        Q2_K => copy(80, 4),
        Q3_K => copy(108, 2),
        Q6_K => copy(208, 2),
        TQ1_0 => copy(52, 2),
        TQ2_0 => copy(64, 2),
        MXFP4 => copy(0, 1),
        IQ1_M => (0..4).for_each(|k| copy(49 + 2 * k, 1)),
        _ => copy(0, 2),
    }
}
