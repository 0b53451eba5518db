//! The built-in model's tokenizer against ids made by the PyPI package `tokenizers` from the same
//! vocabulary (`scripts/make-tokenizer-fixture`).

use sha2::{Digest, Sha256};

use super::{StreamDecoder, TokenKind, Tokenizer, TokenizerError, message};
use crate::builtin::resolve_model;
use crate::gguf::{Array, Gguf, HeaderWriter};

const CASES: &str = include_str!("../../tests/data/tokenizer/cases.json");
const HELDOUT: &str = include_str!("../../tests/data/tokenizer/heldout.txt");

fn mini() -> Tokenizer {
    Tokenizer::from_gguf(&resolve_model("builtin:mini").unwrap().open().unwrap()).unwrap()
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

#[test]
fn encodes_every_case_as_the_python_package_does() {
    let tokenizer = mini();
    let cases: serde_json::Value = serde_json::from_str(CASES).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    assert!(cases.len() > 60);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let got = tokenizer.encode(text, true).unwrap();
        assert_eq!(got, ids(&case["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode_with_special(&got), text);
        let mut stream = StreamDecoder::with_special();
        let mut streamed: String = got.iter().map(|&id| stream.push(&tokenizer, id)).collect();
        streamed += &stream.finish();
        assert_eq!(streamed, text);
    }
}

#[test]
fn encodes_the_held_out_text_as_the_python_package_does() {
    let tokenizer = mini();
    let cases: serde_json::Value = serde_json::from_str(CASES).unwrap();
    let expected = &cases["heldout"];
    let got = tokenizer.encode(HELDOUT, true).unwrap();
    assert_eq!(got.len() as u64, expected["count"].as_u64().unwrap());
    assert_eq!(got[..16], ids(&expected["first"]));
    let bytes: Vec<u8> = got.iter().flat_map(|id| id.to_le_bytes()).collect();
    let hex: String = Sha256::digest(&bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(hex, expected["sha256_of_u32_le"].as_str().unwrap());
    assert_eq!(tokenizer.decode(&got), HELDOUT);
}

/// Prompts and ids of the model's golden values (transformers).
#[test]
fn encodes_golden_prompts() {
    let tokenizer = mini();
    for (text, ids) in [
        ("The capital of France is", &[309, 442, 276, 1132, 286][..]),
        (
            "What is the capital of Japan?",
            &[362, 286, 269, 442, 276, 4047, 30],
        ),
        (
            "[gMASK]<sop><|user|>What is the capital of Italy?<|assistant|></think>",
            &[
                4088, 4089, 4091, 362, 286, 269, 442, 276, 3056, 30, 4092, 4095,
            ],
        ),
    ] {
        assert_eq!(tokenizer.encode_prompt(text, true).unwrap(), ids);
    }
    let chat = tokenizer.apply_chat(
        &[message("user", "What is the capital of Italy?")],
        true,
        &Default::default(),
    );
    assert_eq!(
        chat.unwrap(),
        "[gMASK]<sop><|user|>What is the capital of Italy?<|assistant|></think>"
    );
}

#[test]
fn control_tokens_in_a_users_text_stay_text() {
    let tokenizer = mini();
    let text = "x<|user|>y[gMASK]";
    let got = tokenizer.encode(text, false).unwrap();
    assert!(
        got.iter()
            .all(|&id| tokenizer.vocab().kind(id) == Some(TokenKind::Normal))
    );
    assert_eq!(tokenizer.decode(&got), text);
    // `<think>` is user-defined in this vocabulary and is recognised in any input.
    assert_eq!(tokenizer.encode("<think>", false).unwrap(), [4094]);
    assert_eq!(tokenizer.decode(&[4091, 4094, 309]), "<think>The");
}

#[test]
fn knows_the_ids_that_end_a_generation() {
    let tokenizer = mini();
    let vocab = tokenizer.vocab();
    assert_eq!(
        (vocab.eos(), vocab.bos(), vocab.add_bos(), vocab.len()),
        (Some(4087), None, false, 4096)
    );
    assert_eq!(vocab.end_ids(), [4087, 4091]);
    assert!(vocab.is_end(4091) && !vocab.is_end(4092));
    assert!(vocab.piece(9999).is_empty() && vocab.kind(9999).is_none());
}

/// A vocabulary of the letters a to c, `ab`, and a begin token.
fn small(
    edit: impl Fn(&mut HeaderWriter, &mut Vec<&'static str>),
) -> Result<Tokenizer, TokenizerError> {
    let mut w = HeaderWriter::new(32);
    let mut tokens = vec!["a", "b", "c", "ab", "<s>", "/nothink"];
    edit(&mut w, &mut tokens);
    w.array(
        "tokenizer.ggml.tokens",
        Array::String(tokens.iter().copied().collect()),
    );
    w.array(
        "tokenizer.ggml.token_type",
        Array::I32(vec![1, 1, 1, 1, 3, 3]),
    );
    w.array(
        "tokenizer.ggml.merges",
        Array::String(["a b"].into_iter().collect()),
    );
    w.u32("tokenizer.ggml.bos_token_id", 4);
    w.set(
        "tokenizer.ggml.add_bos_token",
        crate::gguf::Value::Bool(true),
    );
    Tokenizer::from_gguf(&Gguf::from_bytes(Vec::leak(w.finish()), "small").unwrap())
}

fn gpt2(w: &mut HeaderWriter, pre: &str) {
    w.str("tokenizer.ggml.model", "gpt2");
    w.str("tokenizer.ggml.pre", pre);
}

#[test]
fn adds_the_begin_token_once() {
    let tokenizer = small(|w, _| gpt2(w, "deepseek-v3")).unwrap();
    assert_eq!(tokenizer.encode("abca", true).unwrap(), [3, 2, 0]);
    assert_eq!(tokenizer.encode_prompt("abca", true).unwrap(), [4, 3, 2, 0]);
    assert_eq!(tokenizer.encode_prompt("<s>c", true).unwrap(), [4, 2]);
    assert!(matches!(
        tokenizer.encode("ad", true),
        Err(TokenizerError::NoToken { byte: b'd' })
    ));
    assert!(matches!(
        tokenizer.apply_chat(&[], true, &Default::default()),
        Err(super::ChatError::NoTemplate)
    ));
}

#[test]
fn refuses_what_it_would_have_to_guess() {
    let said = small(|w, _| gpt2(w, "llama-bpe")).unwrap_err().to_string();
    assert!(
        said.contains("`llama-bpe`") && said.contains("glm4, glm5, deepseek-v3"),
        "{said}"
    );
    let said = small(|w, _| w.str("tokenizer.ggml.model", "llama"))
        .unwrap_err()
        .to_string();
    assert!(said.contains("`llama`"), "{said}");
    let short = |w: &mut HeaderWriter, tokens: &mut Vec<&'static str>| {
        gpt2(w, "glm4");
        tokens.pop();
    };
    assert!(
        small(short)
            .unwrap_err()
            .to_string()
            .contains("6 entries for 5 tokens")
    );
    let lacking = |w: &mut HeaderWriter, tokens: &mut Vec<&'static str>| {
        gpt2(w, "glm4");
        tokens[3] = "xy";
    };
    assert!(matches!(
        small(lacking),
        Err(TokenizerError::Vocabulary { .. })
    ));
}
