//! Text to token ids and back, from what a GGUF file says about its vocabulary.
//!
//! - `bytes`: the byte-level alphabet of GPT-2 vocabularies.
//! - `pre`: the patterns that cut text before merging, by `tokenizer.ggml.pre`.
//! - `special`: control and user-defined tokens found in text.
//! - `vocab`: the vocabulary: pieces, kinds, special ids.
//! - `stream`: decoding token by token without ever emitting half a character.
//! - `chat`: the model's own chat template.
//!
//! Merging itself is the `tokenizers` crate's BPE.

mod bytes;
mod chat;
mod pre;
mod special;
mod stream;
mod vocab;

#[cfg(test)]
mod tests;

use tokenizers::models::bpe::BPE;
use tokenizers::{Model, Token};

pub use chat::{ChatError, ChatTemplate, message};
pub use stream::StreamDecoder;
pub use vocab::{TokenKind, Vocab};

use crate::gguf::{Gguf, GgufError};
use pre::PreTokenizer;

/// Why a tokenizer could not be built or a text not encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The model file lacks something or holds it in another type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// `tokenizer.ggml.model` is another algorithm.
    #[error(
        "{file}: tokenizer model `{found}` is not supported; GLM and DeepSeek files have `gpt2` (byte-level BPE)"
    )]
    Model {
        /// The model file.
        file: String,
        /// What it says.
        found: String,
    },
    /// `tokenizer.ggml.pre` names an unknown way of cutting text.
    #[error(
        "{file}: pre-tokenizer `{found}` is not supported (known: {known}); cutting text by a wrong pattern would change every prompt silently, so it is not guessed"
    )]
    Pre {
        /// The model file.
        file: String,
        /// What it says.
        found: String,
        /// What would be understood.
        known: String,
    },
    /// The vocabulary contradicts itself.
    #[error("{file}: tokenizer vocabulary: {what}; convert the model again")]
    Vocabulary {
        /// The model file.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A byte of the text has no token.
    #[error(
        "the vocabulary has no token for byte {byte:#04x}, which is in the text; this model cannot read it"
    )]
    NoToken {
        /// The byte.
        byte: u8,
    },
    /// The text defeats the cutting pattern.
    #[error(
        "the text could not be cut into words at byte {at} (a pathological run of characters); split the prompt there"
    )]
    Cut {
        /// Offset in the text.
        at: usize,
    },
    /// The BPE crate's own error.
    #[error("merging failed: {0}")]
    Merge(String),
}

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    bpe: BPE,
    pre: PreTokenizer,
    chat: Option<String>,
}

impl Tokenizer {
    /// Builds the tokenizer from `tokenizer.*` metadata.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, TokenizerError> {
        let file = || gguf.name().to_owned();
        let model = gguf.str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::Model {
                file: file(),
                found: model.to_owned(),
            });
        }
        let pre_name = gguf.opt_str("tokenizer.ggml.pre")?.unwrap_or("(absent)");
        let pre = PreTokenizer::named(pre_name).ok_or_else(|| TokenizerError::Pre {
            file: file(),
            found: pre_name.to_owned(),
            known: pre::KNOWN.join(", "),
        })??;
        let vocab = Vocab::from_gguf(gguf)?;
        let bpe = vocab::merger(gguf, &vocab, pre.ignore_merges)?;
        let chat = gguf.opt_str("tokenizer.chat_template")?.map(str::to_owned);
        Ok(Tokenizer {
            vocab,
            bpe,
            pre,
            chat,
        })
    }

    /// The vocabulary.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The ids of a text, nothing added.
    ///
    /// Control tokens written in the text (`<|user|>`) become themselves only with `parse_special`;
    /// user-defined tokens (`<think>`) always do, as in llama.cpp.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        let mut at = 0;
        for part in self.vocab.specials().split(text, parse_special) {
            match part {
                special::Part::Text(text) => {
                    self.encode_plain(text, at, &mut ids)?;
                    at += text.len();
                }
                special::Part::Token(id, len) => {
                    ids.push(id);
                    at += len;
                }
            }
        }
        Ok(ids)
    }

    /// The ids of a prompt: as [`Tokenizer::encode`], with the begin-of-sequence token before it if the
    /// model asks for one and the text does not begin with it already.
    pub fn encode_prompt(
        &self,
        text: &str,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text, parse_special)?;
        if let Some(bos) = self.vocab.bos().filter(|_| self.vocab.add_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn encode_plain(
        &self,
        text: &str,
        at: usize,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut alphabet = String::new();
        self.pre.cut(text, at, &mut |word| {
            alphabet.clear();
            for byte in word.bytes() {
                if !self.vocab.has_byte(byte) {
                    return Err(TokenizerError::NoToken { byte });
                }
                alphabet.push(bytes::to_char(byte));
            }
            let tokens: Vec<Token> = self
                .bpe
                .tokenize(&alphabet)
                .map_err(|e| TokenizerError::Merge(e.to_string()))?;
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }

    /// The text of ids; control tokens are left out, invalid bytes become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_if(ids, |kind| kind != TokenKind::Control)
    }

    /// The text of ids with control tokens written out.
    pub fn decode_with_special(&self, ids: &[u32]) -> String {
        self.decode_if(ids, |_| true)
    }

    fn decode_if(&self, ids: &[u32], keep: impl Fn(TokenKind) -> bool) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|&&id| self.vocab.kind(id).is_some_and(&keep))
            .flat_map(|&id| self.vocab.piece(id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The model's chat template as written in its file.
    pub fn chat_source(&self) -> Option<&str> {
        self.chat.as_deref()
    }

    /// Compiles the model's chat template; `None` if it has none.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, ChatError> {
        let text = |id: Option<u32>| id.map(|id| self.decode_with_special(&[id]));
        self.chat
            .as_deref()
            .map(|source| ChatTemplate::new(source, text(self.vocab.bos()), text(self.vocab.eos())))
            .transpose()
    }

    /// Renders messages by the model's chat template; see [`ChatTemplate::apply`].
    pub fn apply_chat(
        &self,
        messages: &[serde_json::Value],
        add_generation_prompt: bool,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, ChatError> {
        self.chat_template()?.ok_or(ChatError::NoTemplate)?.apply(
            messages,
            add_generation_prompt,
            extra,
        )
    }
}
