//! `legwork explain KIND`.

use super::data::kinds::{KINDS, kind_row};
use super::data::nvidia::{XIDS, XidClass, xid_row};
use super::data::sources::XID;

/// What a kind means.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// The slug.
    pub kind: String,
    /// Classes under which it appears.
    pub classes: String,
    /// What it means.
    pub means: String,
    /// What causes it.
    pub causes: String,
    /// What to do.
    pub act: String,
    /// Who says so.
    pub sources: Vec<String>,
}

/// The explanation of a kind; `xid-N` for every number of the table, any other for none.
#[must_use]
pub fn explain(kind: &str) -> Option<Explanation> {
    if let Some(k) = kind_row(kind) {
        return Some(Explanation {
            kind: k.slug.to_owned(),
            classes: k.classes.to_owned(),
            means: k.means.to_owned(),
            causes: k.causes.to_owned(),
            act: k.act.to_owned(),
            sources: k.sources.iter().map(|s| (*s).to_owned()).collect(),
        });
    }
    let code: u16 = kind.strip_prefix("xid-")?.parse().ok()?;
    let row = xid_row(code);
    let (classes, causes, act) = match super::data::nvidia::xid_class(code) {
        XidClass::Application => (
            "kernel",
            "The application's GPU work; a bus error before it makes it an echo.",
            "compute-sanitizer; smaller size; another board.",
        ),
        XidClass::Hardware => (
            "board",
            "Hardware or firmware.",
            "NVIDIA's catalogue names the action; drain the board.",
        ),
        XidClass::Undecided => (
            "inconclusive",
            "A kernel that runs too long, or the board.",
            "Smaller size; another board.",
        ),
        XidClass::Echo => (
            "kernel, board, inconclusive",
            "Another Xid before it, or a kill.",
            "Look at the Xid before it.",
        ),
    };
    Some(Explanation {
        kind: kind.to_owned(),
        classes: classes.to_owned(),
        means: format!(
            "NVIDIA Xid {code}: {}.",
            row.map_or("not in the table", |r| r.name)
        ),
        causes: causes.to_owned(),
        act: act.to_owned(),
        sources: vec![XID.to_owned()],
    })
}

/// Every kind that can be explained, Xid numbers included.
#[must_use]
pub fn kinds() -> Vec<String> {
    KINDS
        .iter()
        .map(|k| k.slug.to_owned())
        .chain(XIDS.iter().map(|x| format!("xid-{}", x.code)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_explanation_with_sources() {
        for k in kinds() {
            let e = explain(&k).unwrap_or_else(|| panic!("{k}"));
            assert!(
                !e.means.is_empty() && !e.causes.is_empty() && !e.act.is_empty(),
                "{k}"
            );
            assert!(!e.sources.is_empty(), "{k}");
        }
        assert!(explain("no-such-kind").is_none());
    }

    #[test]
    fn slugs_are_sorted_and_unique() {
        assert!(KINDS.windows(2).all(|w| w[0].slug < w[1].slug));
    }

    /// The kinds in the sources of the verdict are exactly those that the table explains.
    #[test]
    fn every_emitted_kind_is_in_the_table() {
        let sources = [
            include_str!("verdict/hardware.rs"),
            include_str!("verdict/host.rs"),
            include_str!("verdict/gpu.rs"),
            include_str!("verdict/program.rs"),
            include_str!("verdict/ending.rs"),
            include_str!("verdict/reset.rs"),
        ]
        .concat();
        for k in KINDS {
            assert!(
                sources.contains(&format!("\"{}\"", k.slug)),
                "{} is explained but never emitted",
                k.slug
            );
        }
        // Slugs stand behind a class in every constructor: `Board, "slug"`, `Class::Host, "slug"`, `by("slug"`.
        let mut seen = 0;
        for class in [
            "Board, ",
            "Host, ",
            "Infra, ",
            "Kernel, ",
            "Inconclusive, ",
            "Clean, ",
            "by(",
        ] {
            for (p, _) in sources.match_indices(&format!("{class}\"")) {
                let rest = &sources[p + class.len() + 1..];
                let slug = &rest[..rest.find('"').unwrap_or(0)];
                assert!(
                    explain(slug).is_some(),
                    "{slug} is emitted but not explained"
                );
                seen += 1;
            }
        }
        assert!(seen > 60, "{seen}");
    }
}
