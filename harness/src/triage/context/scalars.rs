//! Scalars as people write them: a number where text is meant, one value where a list is meant.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::Unkillable;

/// A scalar of any kind, as a person may write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Scalar::Bool(b) => b.to_string(),
            Scalar::Int(i) => i.to_string(),
            Scalar::Float(f) => f.to_string(),
            Scalar::Text(s) => s,
        }
    }
}

pub(super) fn text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Scalar>::deserialize(d)?.map(Scalar::into_text))
}

pub(super) fn texts<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        Many(Vec<Scalar>),
        One(Scalar),
    }
    Ok(match Option::<OneOrMany>::deserialize(d)? {
        None => Vec::new(),
        Some(OneOrMany::One(s)) => vec![s.into_text()],
        Some(OneOrMany::Many(v)) => v.into_iter().map(Scalar::into_text).collect(),
    })
}

pub(super) fn env<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::<BTreeMap<String, Option<Scalar>>>::deserialize(d)?
        .unwrap_or_default()
        .into_iter()
        .map(|(k, v)| (k, v.map(Scalar::into_text).unwrap_or_default()))
        .collect())
}

pub(super) fn unkillable<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Unkillable>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Flag(bool),
        Full(Unkillable),
    }
    Ok(match Option::<Either>::deserialize(d)? {
        None | Some(Either::Flag(false)) => None,
        Some(Either::Flag(true)) => Some(Unkillable::default()),
        Some(Either::Full(u)) => Some(u),
    })
}
