//! The vocabulary: every token's bytes and kind, and the ids with a meaning.

use tokenizers::models::bpe::{BPE, BpeBuilder};

use super::special::Specials;
use super::{TokenizerError, bytes};
use crate::gguf::{Array, Gguf, Strings};

/// What a token is, from `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenKind {
    /// Text.
    Normal = 1,
    /// Stands for what the vocabulary lacks.
    Unknown = 2,
    /// Structure, e.g. `<|user|>`; not shown to users.
    Control = 3,
    /// Added text, e.g. `<think>`; recognised in any input.
    UserDefined = 4,
    /// Padding of the vocabulary.
    Unused = 5,
    /// A raw byte.
    Byte = 6,
}

/// A vocabulary.
#[derive(Debug)]
pub struct Vocab {
    pieces: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    has_byte: [bool; 256],
    specials: Specials,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    end_ids: Vec<u32>,
}

impl Vocab {
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Vocab, TokenizerError> {
        let tokens = strings(gguf, "tokenizer.ggml.tokens")?;
        let bad = |what: String| TokenizerError::Vocabulary {
            file: gguf.name().to_owned(),
            what,
        };
        let kinds = kinds(gguf, tokens.len()).map_err(bad)?;
        let mut vocab = Vocab {
            pieces: Vec::new(),
            ends: Vec::with_capacity(tokens.len()),
            has_byte: [false; 256],
            specials: Specials::new(tokens.iter().zip(&kinds).zip(0..).filter_map(
                |((text, kind), id)| match kind {
                    TokenKind::Control | TokenKind::Unknown => Some((text, id, true)),
                    TokenKind::UserDefined => Some((text, id, false)),
                    _ => None,
                },
            )),
            bos: None,
            eos: None,
            add_bos: gguf
                .opt_bool("tokenizer.ggml.add_bos_token")?
                .unwrap_or(false),
            end_ids: Vec::new(),
            kinds,
        };
        for (id, text) in tokens.iter().enumerate() {
            vocab.add_piece(id, text);
        }
        let id = |key: &str| -> Result<Option<u32>, TokenizerError> {
            let key = format!("tokenizer.ggml.{key}_token_id");
            match gguf.opt_u32(&key)? {
                Some(id) if id as usize >= tokens.len() => Err(bad(format!(
                    "`{key}` is {id} and there are {} tokens",
                    tokens.len()
                ))),
                id => Ok(id),
            }
        };
        vocab.bos = id("bos")?;
        vocab.eos = id("eos")?;
        vocab.end_ids = [vocab.eos, id("eot")?, id("eom")?]
            .into_iter()
            .flatten()
            .collect();
        vocab.end_ids.sort_unstable();
        vocab.end_ids.dedup();
        Ok(vocab)
    }

    fn add_piece(&mut self, id: usize, text: &str) {
        let begin = self.pieces.len();
        let plain = matches!(
            self.kinds[id],
            TokenKind::Normal | TokenKind::Unused | TokenKind::Byte
        );
        let spelled = plain && text.chars().all(|c| bytes::from_char(c).is_some());
        if spelled {
            self.pieces
                .extend(text.chars().filter_map(bytes::from_char));
        } else {
            self.pieces.extend(text.as_bytes());
        }
        if let (true, TokenKind::Normal, [byte]) = (spelled, self.kinds[id], &self.pieces[begin..])
        {
            self.has_byte[usize::from(*byte)] = true;
        }
        self.ends.push(self.pieces.len() as u32);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A token's bytes (not always whole characters); empty for an id outside the vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return &[];
        };
        let begin = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.pieces[begin as usize..end as usize]
    }

    /// A token's kind.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether prompts begin with [`Vocab::bos`].
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// The tokens that end a generation: end of sequence, of turn, of message; ascending.
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// Whether `id` ends a generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.end_ids.binary_search(&id).is_ok()
    }

    pub(super) fn has_byte(&self, byte: u8) -> bool {
        self.has_byte[usize::from(byte)]
    }

    pub(super) fn specials(&self) -> &Specials {
        &self.specials
    }
}

fn strings<'g>(gguf: &'g Gguf, key: &str) -> Result<&'g Strings, TokenizerError> {
    match gguf.array(key)? {
        Array::String(strings) => Ok(strings),
        other => Err(TokenizerError::Vocabulary {
            file: gguf.name().to_owned(),
            what: format!(
                "`{key}` is an array of {}, expected strings",
                other.element_kind()
            ),
        }),
    }
}

fn kinds(gguf: &Gguf, tokens: usize) -> Result<Vec<TokenKind>, String> {
    let key = "tokenizer.ggml.token_type";
    let Some(array) = gguf.opt_array(key).map_err(|e| e.problem.to_string())? else {
        return Ok(vec![TokenKind::Normal; tokens]);
    };
    if array.len() != tokens {
        return Err(format!(
            "`{key}` has {} entries for {tokens} tokens",
            array.len()
        ));
    }
    (0..tokens)
        .map(|i| match array.integer(i) {
            Some(1) => Ok(TokenKind::Normal),
            Some(2) => Ok(TokenKind::Unknown),
            Some(3) => Ok(TokenKind::Control),
            Some(4) => Ok(TokenKind::UserDefined),
            Some(5) => Ok(TokenKind::Unused),
            Some(6) => Ok(TokenKind::Byte),
            other => Err(format!(
                "`{key}` of token {i} is {other:?}, expected 1 to 6"
            )),
        })
        .collect()
}

/// Builds the BPE model from the merges. Control tokens stay outside it: text never becomes one by merging.
pub(super) fn merger(
    gguf: &Gguf,
    vocab: &Vocab,
    ignore_merges: bool,
) -> Result<BPE, TokenizerError> {
    let bad = |what: String| TokenizerError::Vocabulary {
        file: gguf.name().to_owned(),
        what,
    };
    let tokens = strings(gguf, "tokenizer.ggml.tokens")?;
    let merges = strings(gguf, "tokenizer.ggml.merges")?;
    let table: tokenizers::models::bpe::Vocab = tokens
        .iter()
        .zip(0u32..)
        .filter(|&(_, id)| {
            !matches!(
                vocab.kind(id),
                Some(TokenKind::Control | TokenKind::Unknown)
            )
        })
        .map(|(text, id)| (text.to_owned(), id))
        .collect();
    let merges = merges
        .iter()
        .enumerate()
        .map(|(i, merge)| {
            // A space inside a token is spelled Ġ, so that the first one separates; the left side is never empty.
            let (left, right) = merge
                .split_once(' ')
                .filter(|(left, right)| !left.is_empty() && !right.is_empty())
                .ok_or_else(|| bad(format!("merge {i} is {merge:?}, expected two tokens")))?;
            Ok((left.to_owned(), right.to_owned()))
        })
        .collect::<Result<Vec<_>, TokenizerError>>()?;
    BpeBuilder::new()
        .vocab_and_merges(table, merges)
        .ignore_merges(ignore_merges)
        .build()
        .map_err(|error| bad(error.to_string()))
}
