//! Tokens that are found in text as written, before any cutting.

/// The special tokens, by first byte, longest first.
#[derive(Debug, Default)]
pub(super) struct Specials {
    tokens: Vec<Special>,
    /// `tokens[starts[b]..starts[b + 1]]` begin with byte `b`.
    starts: Vec<u32>,
}

#[derive(Debug)]
struct Special {
    text: Box<str>,
    id: u32,
    control: bool,
}

/// A stretch of text: plain, or one special token and its length in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    Token(u32, usize),
}

impl Specials {
    /// `tokens`: text, id, and whether it is a control token. Empty texts are ignored.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (&'a str, u32, bool)>) -> Specials {
        let mut tokens: Vec<Special> = tokens
            .filter(|(text, ..)| !text.is_empty())
            .map(|(text, id, control)| Special {
                text: text.into(),
                id,
                control,
            })
            .collect();
        tokens.sort_by(|a, b| {
            let first = |s: &Special| s.text.as_bytes()[0];
            first(a)
                .cmp(&first(b))
                .then(b.text.len().cmp(&a.text.len()))
                .then(a.id.cmp(&b.id))
        });
        let starts = (0..=256)
            .map(|b| tokens.partition_point(|s| usize::from(s.text.as_bytes()[0]) < b) as u32)
            .collect();
        Specials { tokens, starts }
    }

    /// Cuts text at special tokens: leftmost first, longest of those that begin at the same place.
    pub(super) fn split<'t>(&self, text: &'t str, control: bool) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut done, mut at) = (0, 0);
        while at < text.len() {
            let Some((id, len)) = self.at(&text.as_bytes()[at..], control) else {
                at += 1;
                continue;
            };
            if done < at {
                parts.push(Part::Text(&text[done..at]));
            }
            parts.push(Part::Token(id, len));
            at += len;
            done = at;
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }

    fn at(&self, rest: &[u8], control: bool) -> Option<(u32, usize)> {
        let first = usize::from(*rest.first()?);
        let (begin, end) = (*self.starts.get(first)?, *self.starts.get(first + 1)?);
        self.tokens[begin as usize..end as usize]
            .iter()
            .find(|s| (control || !s.control) && rest.starts_with(s.text.as_bytes()))
            .map(|s| (s.id, s.text.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, Specials};

    #[test]
    fn takes_the_leftmost_and_longest() {
        let specials = Specials::new(
            [
                ("<a>", 1, true),
                ("<a>b", 2, true),
                ("é", 3, false),
                ("", 4, true),
            ]
            .into_iter(),
        );
        assert_eq!(
            specials.split("x<a>b<a>é<a", true),
            [
                Part::Text("x"),
                Part::Token(2, 4),
                Part::Token(1, 3),
                Part::Token(3, 2),
                Part::Text("<a")
            ]
        );
        assert_eq!(
            specials.split("<a>é", false),
            [Part::Text("<a>"), Part::Token(3, 2)]
        );
        assert!(specials.split("", true).is_empty());
    }
}
