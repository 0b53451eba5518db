//! Attempts with the same title are the same trouble.

use legwork_reports::model::{Class, Verdict};
use serde::Serialize;

/// One attempt of a group.
#[derive(Debug, Clone, Serialize)]
pub struct Member {
    /// Where its evidence lies.
    pub path: String,
    /// Its kind.
    pub kind: String,
}

/// Attempts that share a title.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// The title.
    pub title: String,
    /// The class of its attempts.
    pub class: Class,
    /// The kind of the first.
    pub kind: String,
    /// How many.
    pub count: usize,
    /// The attempts.
    pub members: Vec<Member>,
}

/// Groups verdicts by class and title, largest group first, ties by title.
#[must_use]
pub fn group<'a>(verdicts: impl IntoIterator<Item = (&'a str, &'a Verdict)>) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    for (path, v) in verdicts {
        let member = Member {
            path: path.to_owned(),
            kind: v.kind.clone(),
        };
        match out
            .iter_mut()
            .find(|g| g.title == v.title && g.class == v.class)
        {
            Some(g) => {
                g.count += 1;
                g.members.push(member);
            }
            None => out.push(Group {
                title: v.title.clone(),
                class: v.class,
                kind: v.kind.clone(),
                count: 1,
                members: vec![member],
            }),
        }
    }
    out.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.title.cmp(&b.title)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_reports::model::Confidence;

    #[test]
    fn equal_titles_are_one_group() {
        let v = |t: &str| Verdict::new(Class::Board, "mes-hang", Confidence::Medium, t);
        let (a, b, c) = (v("x"), v("y"), v("x"));
        let g = group([("1", &a), ("2", &b), ("3", &c)]);
        assert_eq!(
            g.iter()
                .map(|g| (g.title.as_str(), g.count))
                .collect::<Vec<_>>(),
            [("x", 2), ("y", 1)]
        );
    }
}
