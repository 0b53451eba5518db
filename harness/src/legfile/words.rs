//! A gate in words, for plans and reports.

use super::gate::Same;
use super::set::GateSpec;

impl GateSpec {
    /// The conditions, each in a few words.
    #[must_use]
    pub fn conditions(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(code) = self.exit {
            out.push(format!("exit = {code}"));
        }
        if let Some(class) = self.verdict {
            out.push(format!("verdict = {class}"));
        }
        for (text, words) in [
            (&self.text_starts_with, "text starts with"),
            (&self.text_contains, "text contains"),
            (&self.text, "text ="),
            (&self.text_matches, "text matches"),
        ] {
            if let Some(text) = text {
                out.push(format!("{words} {text:?}"));
            }
        }
        if let Some(ids) = &self.token_ids {
            out.push(format!("token_ids = {ids:?}"));
        }
        if let Some(hits) = self.reference_tier_hits {
            out.push(format!("reference_tier_hits = {hits}"));
        }
        if let Some(tokens) = self.completion_tokens {
            out.push(format!("completion_tokens = {tokens}"));
        }
        out.extend(
            self.min
                .iter()
                .map(|(metric, bound)| format!("{metric} >= {bound}")),
        );
        out.extend(
            self.max
                .iter()
                .map(|(metric, bound)| format!("{metric} <= {bound}")),
        );
        if let Some(same) = self.same {
            let what = match same {
                Same::TokenIds => "token_ids",
                Same::Text => "text",
                Same::Exit => "exit",
            };
            out.push(format!("same {what}"));
        }
        out
    }

    /// `default, managed: same token_ids`.
    #[must_use]
    pub fn words(&self) -> String {
        let what = format!("{}: {}", self.legs.join(", "), self.conditions().join(", "));
        match &self.name {
            Some(name) => format!("{name} ({what})"),
            None => what,
        }
    }
}
