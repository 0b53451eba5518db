//! Random blocks with a wanted spread.
//!
//! Block types are filled with random bytes, which are valid in every field but the scales. The scales
//! are found by measuring: blocks are made with a scale of 1, decoded, and their spread says what the
//! scale must be. Each block takes one of eight scales around that, so that a kernel that reads a
//! neighbour's scale is found out.

use half::{bf16, f16};
use legwork_kernels::blocks::{BlockType, decode};

use super::SynthError;
use super::layout::Spread;

/// Blocks decoded to measure a type.
const SAMPLE: usize = 256;
/// Relative scales of blocks; their mean square is 1.
const JITTER: [f32; 8] = [0.70, 0.79, 0.88, 0.96, 1.03, 1.11, 1.19, 1.25];

/// Fills tensors of one type and spread.
#[derive(Debug, Clone)]
pub(super) struct Filler {
    ty: BlockType,
    spread: Spread,
    scales: [Scale; 8],
}

/// The values of a block's scale fields.
#[derive(Debug, Clone, Copy, Default)]
struct Scale {
    d: f32,
    m: f32,
}

/// Where a type keeps its scales.
#[derive(Debug, Clone, Copy)]
enum Fields {
    /// No blocks at all.
    Plain,
    /// An f16 at this offset.
    Half(usize),
    /// Two f16: the scale and the minimum (or offset).
    Halves(usize, usize),
    /// An f16 spread over the top four bits of four words at this offset.
    Nibbles(usize),
    /// A power of two at this offset.
    Exponent(usize),
    /// This many small floats (4 exponent and 3 mantissa bits) from offset 0.
    Small(usize),
}

fn fields(ty: BlockType) -> Option<Fields> {
    use BlockType::*;
    Some(match ty {
        F32 | F16 | BF16 => Fields::Plain,
        Q4_0 | Q5_0 | Q8_0 | IQ2_XXS | IQ2_XS | IQ3_XXS | IQ1_S | IQ4_NL | IQ3_S | IQ2_S
        | IQ4_XS | Q1_0 | Q2_0 => Fields::Half(0),
        Q4_1 | Q5_1 | Q4_K | Q5_K => Fields::Halves(0, 2),
        Q2_K => Fields::Halves(80, 82),
        Q3_K => Fields::Half(108),
        Q6_K => Fields::Half(208),
        TQ1_0 => Fields::Half(52),
        TQ2_0 => Fields::Half(64),
        IQ1_M => Fields::Nibbles(48),
        MXFP4 => Fields::Exponent(0),
        NVFP4 => Fields::Small(4),
        _ => return None,
    })
}

impl Filler {
    /// Measures the type and chooses its scales.
    pub(super) fn new(ty: BlockType, spread: Spread) -> Result<Filler, SynthError> {
        let unknown = || SynthError::Type { name: ty.name() };
        let fields = fields(ty).ok_or_else(unknown)?;
        let measure = |scale: Scale| {
            Filler {
                ty,
                spread,
                scales: [scale; 8],
            }
            .measure()
            .ok_or_else(unknown)
        };
        let unit = match fields {
            Fields::Plain => {
                return Ok(Filler {
                    ty,
                    spread,
                    scales: [Scale::default(); 8],
                });
            }
            Fields::Halves(..) => {
                // The offset that centres the values.
                let (of_scale, _) = measure(Scale { d: 1.0, m: 0.0 })?;
                let (of_offset, _) = measure(Scale { d: 0.0, m: 1.0 })?;
                Scale {
                    d: 1.0,
                    m: -of_scale / of_offset,
                }
            }
            _ => Scale { d: 1.0, m: 0.0 },
        };
        let (_, std) = measure(unit)?;
        let scale = |jitter: f32| Scale {
            d: unit.d * spread.std / std * jitter,
            m: unit.m * spread.std / std * jitter,
        };
        Ok(Filler {
            ty,
            spread,
            scales: JITTER.map(scale),
        })
    }

    /// Mean and standard deviation of decoded random blocks.
    fn measure(&self) -> Option<(f32, f32)> {
        let mut bytes = vec![0; SAMPLE * self.ty.block_bytes()];
        let mut values = vec![0.0; SAMPLE * self.ty.block_len()];
        self.fill(&mut bytes, 1);
        decode(self.ty, &bytes, &mut values).ok()?;
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let variance = values
            .iter()
            .map(|v| (f64::from(*v) - mean).powi(2))
            .sum::<f64>()
            / n;
        Some((mean as f32, variance.sqrt() as f32))
    }

    /// Fills whole blocks. The same seed gives the same bytes.
    pub(super) fn fill(&self, out: &mut [u8], seed: u64) {
        let mut random = Random(seed);
        match self.ty {
            BlockType::F32 => self.values(out, &mut random, f32::to_le_bytes),
            BlockType::F16 => self.values(out, &mut random, |v| f16::from_f32(v).to_le_bytes()),
            BlockType::BF16 => self.values(out, &mut random, |v| bf16::from_f32(v).to_le_bytes()),
            _ => {
                for eight in out.chunks_mut(8) {
                    eight.copy_from_slice(&random.next().to_le_bytes()[..eight.len()]);
                }
                for (i, block) in out.chunks_exact_mut(self.ty.block_bytes()).enumerate() {
                    self.patch(block, self.scales[(random.hash(i as u64) >> 61) as usize]);
                }
            }
        }
    }

    /// Uniform values around the mean.
    fn values<const N: usize>(
        &self,
        out: &mut [u8],
        random: &mut Random,
        to: impl Fn(f32) -> [u8; N],
    ) {
        let width = self.spread.std * 3f32.sqrt();
        for value in out.chunks_exact_mut(N) {
            // 24 random bits: a number in [-1, 1) that f32 holds exactly.
            let unit = (random.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            value.copy_from_slice(&to(self.spread.mean + width * unit));
        }
    }

    fn patch(&self, block: &mut [u8], scale: Scale) {
        let half = |value: f32| f16::from_f32(value).to_bits();
        match fields(self.ty) {
            Some(Fields::Half(at)) => {
                block[at..at + 2].copy_from_slice(&half(scale.d).to_le_bytes())
            }
            Some(Fields::Halves(d, m)) => {
                block[d..d + 2].copy_from_slice(&half(scale.d).to_le_bytes());
                block[m..m + 2].copy_from_slice(&half(scale.m).to_le_bytes());
            }
            Some(Fields::Nibbles(at)) => {
                for (i, word) in block[at..at + 8].chunks_exact_mut(2).enumerate() {
                    word[1] = word[1] & 0x0f | ((half(scale.d) >> (4 * i)) as u8) << 4;
                }
            }
            Some(Fields::Exponent(at)) => {
                block[at] = (127.0 + scale.d.log2().round()).clamp(1.0, 254.0) as u8
            }
            Some(Fields::Small(count)) => block[..count].fill(nearest_small(scale.d)),
            Some(Fields::Plain) | None => {}
        }
        if self.ty == BlockType::TQ2_0 {
            // Two bits hold -1, 0, 1; the fourth value never occurs in a real file.
            block[..64]
                .iter_mut()
                .for_each(|b| *b &= !(*b & (*b >> 1) & 0x55));
        }
    }
}

/// The positive 8-bit float (4 exponent bits with bias 7, 3 mantissa bits) nearest to `value`.
fn nearest_small(value: f32) -> u8 {
    let of = |byte: u8| {
        let (exponent, mantissa) = (i32::from(byte >> 3), f32::from(byte & 7));
        if exponent == 0 {
            mantissa / 512.0
        } else {
            (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7)
        }
    };
    (1..0x7f)
        .min_by(|&a, &b| (of(a) - value).abs().total_cmp(&(of(b) - value).abs()))
        .unwrap_or(0x38)
}

/// A seed for one part of one tensor: independent of the order and number of parts written before.
pub(super) fn seed_of(seed: u64, name: &str, part: u64) -> u64 {
    // FNV-1a.
    let name = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    let mut random = Random(seed ^ name.rotate_left(17));
    random.next() ^ Random(part).next()
}

/// SplitMix64: fast, and good enough for weights.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.hash(0)
    }

    fn hash(&self, salt: u64) -> u64 {
        let mut z = self
            .0
            .wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockType, Filler, Spread, fields, nearest_small, seed_of};

    #[test]
    fn every_type_decodes_to_the_wanted_spread() {
        for &ty in BlockType::ALL.iter().filter(|ty| fields(**ty).is_some()) {
            for std in [0.013f32, 0.0625] {
                let filler = Filler::new(ty, Spread { mean: 0.0, std }).unwrap();
                let (mean, got) = filler.measure().unwrap();
                // Powers of two and 8-bit floats are as near as they can be.
                let slack = if matches!(ty, BlockType::MXFP4 | BlockType::NVFP4) {
                    0.45
                } else {
                    0.08
                };
                assert!((got / std - 1.0).abs() < slack, "{ty:?} {std}: {got}");
                assert!(mean.abs() < 0.5 * std, "{ty:?} {std}: mean {mean}");
            }
        }
        let norm = Filler::new(
            BlockType::F32,
            Spread {
                mean: 1.0,
                std: 0.1,
            },
        )
        .unwrap();
        let (mean, std) = norm.measure().unwrap();
        assert!(
            (mean - 1.0).abs() < 0.02 && (std - 0.1).abs() < 0.01,
            "{mean} {std}"
        );
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let filler = Filler::new(
            BlockType::IQ1_S,
            Spread {
                mean: 0.0,
                std: 0.02,
            },
        )
        .unwrap();
        let bytes = |seed| {
            let mut out = vec![0; 500];
            filler.fill(&mut out, seed);
            out
        };
        assert_eq!(bytes(seed_of(1, "a", 0)), bytes(seed_of(1, "a", 0)));
        for other in [seed_of(2, "a", 0), seed_of(1, "b", 0), seed_of(1, "a", 1)] {
            assert_ne!(bytes(seed_of(1, "a", 0)), bytes(other));
        }
        assert_eq!(nearest_small(1.0), 0x38);
        assert_eq!(nearest_small(0.001), 1);
    }
}
