//! Small fields inside blocks.

use half::f16;

/// The 16 levels of IQ4_NL and IQ4_XS.
pub const IQ4_LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Twice the value of each e2m1 number, so that all are integers.
pub const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `K` bytes from byte `at`: one check and one load, where bytes taken one by one would be checked and joined one by one.
///
/// # Panics
/// If they reach past the block; with constant offsets into an array the check disappears.
#[inline(always)]
fn bytes_at<const K: usize>(b: &[u8], at: usize) -> [u8; K] {
    match b[at..].first_chunk() {
        Some(chunk) => *chunk,
        None => panic!("a field reaches past its block"),
    }
}

/// The IEEE half at byte `at`, as f32.
#[inline(always)]
pub fn half(b: &[u8], at: usize) -> f32 {
    f16::from_bits(u16_at(b, at)).to_f32()
}

/// The little-endian u16 at byte `at`.
#[inline(always)]
pub fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(b, at))
}

/// The little-endian u32 at byte `at`.
#[inline(always)]
pub fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(b, at))
}

/// Scale and minimum `j` (0..8) of the 12 bytes that Q4_K and Q5_K share.
#[inline(always)]
pub fn scale_min_6(b: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (b[j] & 63, b[j + 4] & 63)
    } else {
        (
            (b[j + 4] & 15) | ((b[j - 4] >> 6) << 4),
            (b[j + 4] >> 4) | ((b[j] >> 6) << 4),
        )
    }
}

/// Scale `k` (0..16, -32..31) of the 12 scale bytes of Q3_K.
#[inline(always)]
pub fn scale_q3(b: &[u8], k: usize) -> i8 {
    let low = (b[k % 8] >> (4 * (k / 8))) & 15;
    let high = (b[8 + k % 4] >> (2 * (k / 4))) & 3;
    (low | (high << 4)) as i8 - 32
}

/// Eight signs from seven bits: the eighth makes the number of minus signs even.
#[inline(always)]
pub const fn signs_of(seven: u8) -> u8 {
    let seven = seven & 127;
    seven | (((seven.count_ones() & 1) as u8) << 7)
}

/// Half the value of an e8m0 exponent, 2^(e-128), without rounding subnormals away.
#[inline(always)]
pub fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 {
        0x0020_0000 << e
    } else {
        (e as u32 - 1) << 23
    })
}

/// Half the value of an unsigned e4m3 number (bias 7). 0x7F counts as zero.
#[inline(always)]
pub fn ue4m3_half(x: u8) -> f32 {
    let (exp, man) = ((x >> 3) & 15, (x & 7) as f32);
    if x == 0 || x == 0x7F {
        0.0
    } else if exp == 0 {
        man * f32::from_bits((127 - 10) << 23)
    } else {
        (1.0 + man / 8.0) * f32::from_bits((127 + exp as u32 - 8) << 23)
    }
}

/// The half-precision scale that IQ1_M spreads over the top nibbles of its four scale words.
#[inline(always)]
pub fn iq1_m_scale(words: [u16; 4]) -> f32 {
    let bits = (words[0] >> 12)
        | ((words[1] >> 8) & 0x00F0)
        | ((words[2] >> 4) & 0x0F00)
        | (words[3] & 0xF000);
    f16::from_bits(bits).to_f32()
}

/// Ternary digit `n` (0..5) of a TQ1_0 byte: 0, 1 or 2.
#[inline(always)]
pub fn ternary_digit(byte: u8, n: usize) -> u8 {
    const POW3: [u8; 5] = [1, 3, 9, 27, 81];
    ((byte.wrapping_mul(POW3[n]) as u16 * 3) >> 8) as u8
}
