//! The byte-level alphabet: every byte has a printable character, so that a vocabulary can be text.
//!
//! Printable Latin-1 bytes stand for themselves; the other 68 are numbered from U+0100 upwards
//! (GPT-2's table, which every `gpt2` vocabulary uses).

const fn printable(byte: u8) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// `CHARS[byte]` is the character's code point.
const CHARS: [u16; 256] = {
    let mut table = [0u16; 256];
    let (mut byte, mut next) = (0usize, 256u16);
    while byte < 256 {
        if printable(byte as u8) {
            table[byte] = byte as u16;
        } else {
            table[byte] = next;
            next += 1;
        }
        byte += 1;
    }
    table
};

/// `BYTES[code point]` is the byte, or -1 where the character stands for none.
const BYTES: [i16; 324] = {
    let mut table = [-1i16; 324];
    let mut byte = 0usize;
    while byte < 256 {
        table[CHARS[byte] as usize] = byte as i16;
        byte += 1;
    }
    table
};

/// The character that stands for a byte.
pub(super) fn to_char(byte: u8) -> char {
    // Every entry is below U+0144, so the fallback is never taken.
    char::from_u32(u32::from(CHARS[usize::from(byte)])).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for.
pub(super) fn from_char(c: char) -> Option<u8> {
    BYTES
        .get(c as usize)
        .and_then(|&byte| u8::try_from(byte).ok())
}

#[cfg(test)]
mod tests {
    use super::{from_char, to_char};

    #[test]
    fn is_a_bijection_with_the_known_corners() {
        for byte in 0..=255 {
            assert_eq!(from_char(to_char(byte)), Some(byte));
        }
        // GPT-2's table: space is Ġ, newline Ċ, tab ĉ, 0xAD is the last one.
        assert_eq!(
            [b' ', b'\n', b'\t', 0xad].map(to_char),
            ['Ġ', 'Ċ', 'ĉ', 'Ń']
        );
        assert_eq!(from_char(' '), None);
        assert_eq!(from_char('世'), None);
    }
}
