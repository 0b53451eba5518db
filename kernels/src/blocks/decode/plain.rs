//! Types without scales: one element per "block".

use half::f16 as Half;

macro_rules! plain {
    ($($name:ident, $bytes:literal, |$b:ident| $value:expr;)*) => {
        $(pub(super) fn $name($b: &[u8; $bytes], y: &mut [f32; 1]) { y[0] = $value; })*
    };
}

plain! {
    f32, 4, |b| f32::from_le_bytes(*b);
    f16, 2, |b| Half::from_le_bytes(*b).to_f32();
    bf16, 2, |b| f32::from_bits((u16::from_le_bytes(*b) as u32) << 16);
    i8, 1, |b| b[0] as i8 as f32;
    i16, 2, |b| i16::from_le_bytes(*b) as f32;
    i32, 4, |b| i32::from_le_bytes(*b) as f32;
    i64, 8, |b| i64::from_le_bytes(*b) as f32;
    f64, 8, |b| f64::from_le_bytes(*b) as f32;
}
