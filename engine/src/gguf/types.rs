//! The storage type of a tensor, and the words for ids that are not one.

/// Block geometry of a GGUF tensor type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockType {
    id: u32,
    name: &'static str,
    elements: usize,
    bytes: usize,
}

const TABLE: &[(u32, &str, usize, usize)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (30, "BF16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
];

impl BlockType {
    /// The type that a GGUF file means by `id`, if it is one that weights are stored in.
    pub fn from_id(id: u32) -> Option<BlockType> {
        TABLE
            .iter()
            .find(|row| row.0 == id)
            .map(|&(id, name, elements, bytes)| BlockType {
                id,
                name,
                elements,
                bytes,
            })
    }

    /// The GGUF id.
    pub fn id(self) -> u32 {
        self.id
    }

    /// The name in the users' spelling, e.g. `IQ1_S`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Elements in one block.
    pub fn block_elements(self) -> usize {
        self.elements
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.bytes
    }
}

/// Says what an id that [`BlockType::from_id`] does not know is, as far as that is known.
pub(super) fn describe_unknown(id: u32) -> String {
    match id {
        4 | 5 | 31..=33 | 36..=38 => "a type that GGUF has removed; convert the model again with a current converter".into(),
        9 | 15 => "a type for activations only, never for stored weights; the file is damaged".into(),
        24..=28 => "an integer or f64 type, which no weight of this engine may have".into(),
        133.. => "a type of the ik_llama.cpp fork (IQ*_K, *_KT, *_R4 …), which upstream GGUF does not have; quantise the model with llama.cpp's own llama-quantize".into(),
        _ => "not a known type; the file is damaged or newer than this program".into(),
    }
}
