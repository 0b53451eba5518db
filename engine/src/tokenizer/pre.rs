//! How text is cut into words before merging, by `tokenizer.ggml.pre`.

use tokenizers::utils::SysRegex;

use super::TokenizerError;

/// The names that [`PreTokenizer::named`] knows.
pub(super) const KNOWN: [&str; 3] = ["glm4", "glm5", "deepseek-v3"];

/// GLM-4 and GLM-5 (the pattern of their published tokenizer.json).
const GLM: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// DeepSeek-V3 (three patterns applied one after the other, as in its tokenizer.json).
const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// Patterns applied in order; each isolates its matches and leaves what lies between whole.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    patterns: Vec<SysRegex>,
    /// The only pattern matches everything: a gap means that the pattern gave up.
    total: bool,
    /// A word that is itself a token is taken whole, without merging.
    pub(super) ignore_merges: bool,
}

impl PreTokenizer {
    /// The way of cutting that a file names; `None` for an unknown name.
    pub(super) fn named(name: &str) -> Option<Result<PreTokenizer, TokenizerError>> {
        let (patterns, ignore_merges) = match name {
            "glm4" | "glm5" => (&[GLM][..], true),
            "deepseek-v3" => (&DEEPSEEK[..], false),
            _ => return None,
        };
        let compiled: Result<Vec<SysRegex>, _> = patterns
            .iter()
            .map(|pattern| SysRegex::new(pattern))
            .collect();
        Some(match compiled {
            Ok(compiled) => Ok(PreTokenizer {
                total: compiled.len() == 1,
                patterns: compiled,
                ignore_merges,
            }),
            Err(error) => Err(TokenizerError::Merge(error.to_string())),
        })
    }

    /// Hands out the words of `text` in order. `at` is where `text` begins in the user's text.
    pub(super) fn cut(
        &self,
        text: &str,
        at: usize,
        word: &mut dyn FnMut(&str) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        self.cut_by(&self.patterns, text, at, word)
    }

    fn cut_by(
        &self,
        patterns: &[SysRegex],
        text: &str,
        at: usize,
        word: &mut dyn FnMut(&str) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        let Some((first, rest)) = patterns.split_first() else {
            return if text.is_empty() { Ok(()) } else { word(text) };
        };
        let mut done = 0;
        for (begin, end) in first.find_iter(text) {
            if begin > done {
                self.gap(done + at)?;
                self.cut_by(rest, &text[done..begin], at + done, word)?;
            }
            self.cut_by(rest, &text[begin..end], at + begin, word)?;
            done = end;
        }
        if done < text.len() {
            self.gap(done + at)?;
            self.cut_by(rest, &text[done..], at + done, word)?;
        }
        Ok(())
    }

    /// The iterator ends silently when the regex engine reaches its backtracking limit.
    fn gap(&self, at: usize) -> Result<(), TokenizerError> {
        if self.total {
            Err(TokenizerError::Cut { at })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PreTokenizer;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let pre = PreTokenizer::named(name).unwrap().unwrap();
        pre.cut(text, 0, &mut |word| {
            out.push(word.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(out.concat(), text);
        out
    }

    #[test]
    fn cuts_as_the_patterns_say() {
        assert_eq!(
            words("glm4", "I'M at 12345  x\r\n"),
            ["I", "'M", " at", " ", "123", "45", " ", " x", "\r\n"]
        );
        assert_eq!(
            words("deepseek-v3", "12345日本x y!\n"),
            ["123", "45", "日本", "x", " y", "!\n"]
        );
        assert!(words("glm5", "").is_empty());
        assert!(PreTokenizer::named("llama-bpe").is_none());
    }

    #[test]
    fn long_runs_do_not_exhaust_the_pattern() {
        for text in [
            " ".repeat(200_000),
            "a".repeat(200_000),
            "\n".repeat(200_000),
            format!("{}x", " \t".repeat(100_000)),
        ] {
            words("glm4", &text);
        }
    }
}
