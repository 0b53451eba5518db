//! Every block type against the values that PyPI `gguf` 0.19 decodes, bit for bit.
//!
//! Fixtures and their four hand-derived exceptions: `scripts/make-block-fixtures.py`.

use legwork_kernels::blocks::{BlockError, BlockType, decode};
use std::path::Path;

/// A fixture's blocks and the values they decode to.
fn fixture(ty: BlockType) -> (Vec<u8>, Vec<f32>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/blocks")
        .join(format!("{}.bin", ty.name()));
    let raw = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (count, rest) = raw.split_first_chunk::<4>().expect("a count");
    let count = u32::from_le_bytes(*count) as usize;
    let (blocks, values) = rest.split_at(count * ty.block_bytes());
    let values: Vec<f32> = values
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    assert_eq!(values.len(), count * ty.block_len(), "{ty}: fixture length");
    (blocks.to_vec(), values)
}

/// Types without a fixture: their decoding is a cast.
fn is_cast(ty: BlockType) -> bool {
    use BlockType::{F32, F64, I8, I16, I32, I64};
    matches!(ty, F32 | F64 | I8 | I16 | I32 | I64)
}

#[test]
fn every_type_decodes_bit_for_bit() {
    let mut tried = 0;
    for &ty in BlockType::ALL.iter().filter(|ty| !is_cast(**ty)) {
        let (blocks, expected) = fixture(ty);
        let mut found = vec![0.0; expected.len()];
        decode(ty, &blocks, &mut found).expect("whole blocks");
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(
                f.to_bits(),
                e.to_bits(),
                "{ty} element {i}: {f:e} instead of {e:e}"
            );
        }
        tried += 1;
    }
    assert_eq!(tried, 29);
}

#[test]
fn casts() {
    let mut y = [0.0; 2];
    decode(BlockType::F32, &[0, 0, 128, 63, 0, 0, 0, 192], &mut y).expect("two");
    assert_eq!(y, [1.0, -2.0]);
    decode(BlockType::I8, &[255, 5], &mut y).expect("two");
    assert_eq!(y, [-1.0, 5.0]);
    decode(BlockType::I16, &[254, 255, 0, 1], &mut y).expect("two");
    assert_eq!(y, [-2.0, 256.0]);
    decode(BlockType::I32, &[1, 0, 0, 0, 255, 255, 255, 255], &mut y).expect("two");
    assert_eq!(y, [1.0, -1.0]);
    let longs: Vec<u8> = [7i64, -9].iter().flat_map(|v| v.to_le_bytes()).collect();
    decode(BlockType::I64, &longs, &mut y).expect("two");
    assert_eq!(y, [7.0, -9.0]);
    let doubles: Vec<u8> = [0.1f64, -3.5]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    decode(BlockType::F64, &doubles, &mut y).expect("two");
    assert_eq!(y, [0.1, -3.5]);
}

#[test]
fn wrong_lengths_are_refused() {
    let mut y = [0.0; 256];
    assert_eq!(
        decode(BlockType::IQ1_S, &[0; 49], &mut y),
        Err(BlockError::ByteLength {
            ty: BlockType::IQ1_S,
            n: 256,
            expected: 50,
            found: 49
        })
    );
    assert_eq!(
        decode(BlockType::Q4_K, &[0; 144], &mut y[..255]),
        Err(BlockError::RowLength {
            ty: BlockType::Q4_K,
            n: 255
        })
    );
}
