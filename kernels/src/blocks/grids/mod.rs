//! The codebooks of the IQ types.
//!
//! A codebook is a set of vectors over a small alphabet, chosen once from weight statistics; no
//! formula makes it. Its entries are sorted as numbers whose digits are the letters, dimension 0
//! least significant, so a bitmap over all such numbers (`*.bits`, written by
//! `scripts/make-block-fixtures.py`) says everything. It is unpacked at compile time into one
//! integer per entry, dimension `i` in byte `i`.

/// Codebook of eight dimensions per entry, as signed bytes of a u64.
#[repr(align(64))]
pub struct Grid8<const N: usize>(pub [u64; N]);

/// Codebook of four dimensions per entry, as signed bytes of a u32.
#[repr(align(64))]
pub struct Grid4<const N: usize>(pub [u32; N]);

const TERNARY: [i8; 3] = [-1, 0, 1];
const TWO_BIT: [i8; 3] = [8, 25, 43];
const THREE_BIT_XXS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
const THREE_BIT_S: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// IQ1_S and IQ1_M.
pub static IQ1: Grid8<2048> = Grid8(unpack8(include_bytes!("iq1_s.bits"), &TERNARY));
/// IQ2_XXS.
pub static IQ2_XXS: Grid8<256> = Grid8(unpack8(include_bytes!("iq2_xxs.bits"), &TWO_BIT));
/// IQ2_XS.
pub static IQ2_XS: Grid8<512> = Grid8(unpack8(include_bytes!("iq2_xs.bits"), &TWO_BIT));
/// IQ2_S.
pub static IQ2_S: Grid8<1024> = Grid8(unpack8(include_bytes!("iq2_s.bits"), &TWO_BIT));
/// IQ3_XXS.
pub static IQ3_XXS: Grid4<256> = Grid4(unpack4(include_bytes!("iq3_xxs.bits"), &THREE_BIT_XXS));
/// IQ3_S.
pub static IQ3_S: Grid4<512> = Grid4(unpack4(include_bytes!("iq3_s.bits"), &THREE_BIT_S));

/// The letters of number `code` as the bytes of an integer.
const fn letters(mut code: usize, dims: usize, alphabet: &[i8]) -> u64 {
    let mut word = 0;
    let mut i = 0;
    while i < dims {
        word |= (alphabet[code % alphabet.len()] as u8 as u64) << (8 * i);
        code /= alphabet.len();
        i += 1;
    }
    word
}

const fn unpack8<const N: usize>(bitmap: &[u8; 821], alphabet: &[i8; 3]) -> [u64; N] {
    let mut grid = [0; N];
    let (mut code, mut entry) = (0, 0);
    while code < 6561 {
        if bitmap[code / 8] >> (code % 8) & 1 == 1 {
            grid[entry] = letters(code, 8, alphabet);
            entry += 1;
        }
        code += 1;
    }
    assert!(entry == N, "a bitmap must hold one bit per entry");
    grid
}

const fn unpack4<const N: usize>(bitmap: &[u8; 512], alphabet: &[i8; 8]) -> [u32; N] {
    let mut grid = [0; N];
    let (mut code, mut entry) = (0, 0);
    while code < 4096 {
        if bitmap[code / 8] >> (code % 8) & 1 == 1 {
            grid[entry] = letters(code, 4, alphabet) as u32;
            entry += 1;
        }
        code += 1;
    }
    assert!(entry == N, "a bitmap must hold one bit per entry");
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// First 16 hex digits of the sha256 over the entries as row-major signed bytes.
    fn fingerprint(bytes: impl Iterator<Item = u8>) -> String {
        let bytes: Vec<u8> = bytes.collect();
        let digest = Sha256::digest(&bytes);
        digest.iter().take(8).map(|b| format!("{b:02x}")).collect()
    }

    /// The figures are of the codebooks that PyPI `gguf` 0.19 holds.
    #[test]
    fn codebooks_are_those_of_the_format() {
        let f8 = |g: &[u64]| fingerprint(g.iter().flat_map(|w| w.to_le_bytes()));
        let f4 = |g: &[u32]| fingerprint(g.iter().flat_map(|w| w.to_le_bytes()));
        assert_eq!(f8(&IQ1.0), "07540ffc1aeaf6ad");
        assert_eq!(f8(&IQ2_XXS.0), "05826b5d3e472a3a");
        assert_eq!(f8(&IQ2_XS.0), "06e47aaca60b4dc1");
        assert_eq!(f8(&IQ2_S.0), "e1aa1473412b0552");
        assert_eq!(f4(&IQ3_XXS.0), "46e35f5a997efdee");
        assert_eq!(f4(&IQ3_S.0), "bd1af4945a1717c6");
    }
}
