//! Loads, sums, halves and products of bytes.

use std::arch::aarch64::*;
use std::arch::asm;

/// 32 signed bytes.
pub(crate) type Bytes32 = [int8x16_t; 2];

/// `K` bytes of a block from byte `at`.
///
/// # Panics
/// If they reach past the block; with constant offsets the check disappears.
#[inline(always)]
pub(crate) fn bytes<const K: usize>(b: &[u8], at: usize) -> &[u8; K] {
    match b[at..].first_chunk() {
        Some(chunk) => chunk,
        None => panic!("a field reaches past its block"),
    }
}

/// 16 bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load(b: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_u8(b.as_ptr()) }
}

/// 16 signed bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_i8(b: &[i8; 16]) -> int8x16_t {
    // SAFETY: 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_s8(b.as_ptr()) }
}

/// 32 signed bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_32(b: &[i8; 32]) -> Bytes32 {
    let (halves, _) = b.as_chunks::<16>();
    [load_i8(&halves[0]), load_i8(&halves[1])]
}

/// Four floats.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_f32(b: &[f32; 4]) -> float32x4_t {
    // SAFETY: 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_f32(b.as_ptr()) }
}

/// Write four floats.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_f32(b: &mut [f32; 4], v: float32x4_t) {
    // SAFETY: 16 writable bytes; the store needs no alignment.
    unsafe { vst1q_f32(b.as_mut_ptr(), v) }
}

/// Write 16 signed bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_i8(b: &mut [i8; 16], v: int8x16_t) {
    // SAFETY: 16 writable bytes; the store needs no alignment.
    unsafe { vst1q_s8(b.as_mut_ptr(), v) }
}

/// Four IEEE halves, given by their bits, as floats.
///
/// The intrinsic takes a type that stable Rust does not have yet; the instruction is part of every aarch64.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn halves(bits: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: reads one register and writes another.
    unsafe {
        asm!("fcvtl {out:v}.4s, {bits:v}.4h", out = lateout(vreg) wide, bits = in(vreg) bits,
             options(pure, nomem, nostack, preserves_flags));
    }
    wide
}

/// The IEEE half at byte `at`.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn half(b: &[u8], at: usize) -> f32 {
    half_bits(u16::from_le_bytes(*bytes(b, at)))
}

/// An IEEE half from its bits.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn half_bits(bits: u16) -> f32 {
    vgetq_lane_f32::<0>(halves(vdup_n_u16(bits)))
}

/// Sums of products of signed bytes.
pub(crate) trait Dot {
    /// `acc` with the products of 16 pairs of bytes added, four to a lane. No byte pair may be (-128, -128).
    ///
    /// # Safety
    /// The processor has NEON, and what the implementation says.
    unsafe fn dot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;
}

/// With widening multiplications, which every aarch64 has.
pub(crate) enum Widening {}
impl Dot for Widening {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn dot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // Two products of at most 128 * 127 fit 16 bits.
        let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
        vpadalq_s16(acc, vmlal_high_s8(low, a, b))
    }
}

/// With `sdot`; the processor must have it.
pub(crate) enum Sdot {}
impl Dot for Sdot {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn dot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let mut acc = acc;
        // The intrinsic is not stable. SAFETY: reads three registers and writes one; the caller says that the
        // instruction exists.
        unsafe {
            asm!(".arch_extension dotprod",
                 "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
                 acc = inlateout(vreg) acc, a = in(vreg) a, b = in(vreg) b,
                 options(pure, nomem, nostack, preserves_flags));
        }
        acc
    }
}
