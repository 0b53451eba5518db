//! Decoding one token at a time.

use super::{TokenKind, Tokenizer};

/// Turns tokens into text as they come. Bytes of a character that is not whole yet are held back, so
/// every piece that comes out is valid text, and the pieces together are the whole text.
#[derive(Debug, Clone, Default)]
pub struct StreamDecoder {
    held: Vec<u8>,
    special: bool,
}

impl StreamDecoder {
    /// A decoder that leaves control tokens out.
    pub fn new() -> StreamDecoder {
        StreamDecoder::default()
    }

    /// A decoder that writes control tokens out.
    pub fn with_special() -> StreamDecoder {
        StreamDecoder {
            held: Vec::new(),
            special: true,
        }
    }

    /// Takes a token and returns the text that is certain now, possibly none.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let control = tokenizer.vocab().kind(id) == Some(TokenKind::Control);
        if !control || self.special {
            self.held.extend(tokenizer.vocab().piece(id));
        }
        self.take_certain()
    }

    /// Takes raw bytes; see [`StreamDecoder::push`].
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.held.extend(bytes);
        self.take_certain()
    }

    /// What was held back at the end: an unfinished character, shown as U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }

    fn take_certain(&mut self) -> String {
        let mut out = String::new();
        loop {
            match std::str::from_utf8(&self.held) {
                Ok(text) => {
                    out.push_str(text);
                    self.held.clear();
                    return out;
                }
                Err(error) => {
                    let (valid, bad) = (error.valid_up_to(), error.error_len());
                    out.push_str(&String::from_utf8_lossy(&self.held[..valid]));
                    let Some(bad) = bad else {
                        self.held.drain(..valid);
                        return out;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    self.held.drain(..valid + bad);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StreamDecoder;
    use proptest::prelude::*;

    #[test]
    fn holds_back_half_a_character() {
        let mut stream = StreamDecoder::new();
        assert_eq!(stream.push_bytes("a".as_bytes()), "a");
        assert_eq!(stream.push_bytes(&[0xf0, 0x9f]), "");
        assert_eq!(stream.push_bytes(&[0x98]), "");
        assert_eq!(stream.push_bytes(&[0x80, b'b']), "😀b");
        assert_eq!(stream.push_bytes(&[0xff, 0xe4]), "\u{fffd}");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    proptest! {
        #[test]
        fn any_cut_of_any_bytes_gives_the_lossy_text(bytes in prop::collection::vec(any::<u8>(), 0..64), step in 1usize..5) {
            let mut stream = StreamDecoder::new();
            let mut out: String = bytes.chunks(step).map(|part| stream.push_bytes(part)).collect();
            out += &stream.finish();
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_cut_of_text_gives_the_text(text in "\\PC{0,24}", step in 1usize..5) {
            let mut stream = StreamDecoder::new();
            let mut out: String = text.as_bytes().chunks(step).map(|part| stream.push_bytes(part)).collect();
            out += &stream.finish();
            prop_assert_eq!(out, text);
        }
    }
}
