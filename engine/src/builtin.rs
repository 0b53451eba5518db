//! Names of models: paths, and `builtin:NAME` for those compiled into the executable.

use std::path::PathBuf;

use crate::gguf::{Gguf, GgufError};

/// The prefix that tells a built-in model from a path.
pub const PREFIX: &str = "builtin:";

/// Bytes at an address aligned as tensor data in a file is, so that they can be used in place.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static MINI: &Aligned<[u8]> = &Aligned(*include_bytes!("../models/glm-dsa-mini-UD-IQ1_S.gguf"));

/// Every built-in model: name, one line about it, its GGUF.
static MODELS: [(&str, &str, &Aligned<[u8]>); 1] = [(
    "mini",
    "27.5 M parameter GLM-DSA, 6 layers, 16 experts, index_topk 128, type mix of UD-IQ1_S",
    MINI,
)];

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A file, or the first shard of a split set.
    Path(PathBuf),
    /// A model in the executable.
    Builtin {
        /// Its name, without the prefix.
        name: &'static str,
    },
}

/// No such built-in model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no built-in model `{PREFIX}{name}`{nearest}; there are: {known}")]
pub struct UnknownModel {
    name: String,
    nearest: String,
    known: String,
}

/// Built-in models: name with prefix and a description.
pub fn builtin_models() -> impl Iterator<Item = (String, &'static str)> {
    MODELS
        .iter()
        .map(|(name, about, _)| (format!("{PREFIX}{name}"), *about))
}

/// Takes what a user wrote where a model is expected. Looks at names only, not at the disk.
pub fn resolve_model(text: &str) -> Result<ModelSource, UnknownModel> {
    let Some(name) = text.strip_prefix(PREFIX) else {
        return Ok(ModelSource::Path(PathBuf::from(text)));
    };
    if let Some((name, ..)) = MODELS.iter().find(|(known, ..)| *known == name) {
        return Ok(ModelSource::Builtin { name });
    }
    let nearest = MODELS
        .iter()
        .map(|(known, ..)| (strsim::damerau_levenshtein(known, name), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len() / 2)
        .map(|(_, known)| format!(" (did you mean `{PREFIX}{known}`?)"))
        .unwrap_or_default();
    let known: Vec<String> = builtin_models().map(|(name, _)| name).collect();
    Err(UnknownModel {
        name: name.to_owned(),
        nearest,
        known: known.join(", "),
    })
}

impl ModelSource {
    /// Opens the model and checks its header.
    pub fn open(&self) -> Result<Gguf, GgufError> {
        match self {
            ModelSource::Path(path) => Gguf::open(path),
            ModelSource::Builtin { name } => Gguf::from_bytes(
                self.builtin_bytes().unwrap_or(&[]),
                &format!("{PREFIX}{name}"),
            ),
        }
    }

    /// The bytes of a built-in model, e.g. to write them to a file for another program.
    pub fn builtin_bytes(&self) -> Option<&'static [u8]> {
        let ModelSource::Builtin { name } = self else {
            return None;
        };
        MODELS
            .iter()
            .find(|(known, ..)| known == name)
            .map(|(_, _, bytes)| &bytes.0)
    }
}

impl std::fmt::Display for ModelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ModelSource::Path(path) => path.display().fmt(f),
            ModelSource::Builtin { name } => write!(f, "{PREFIX}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ModelSource, resolve_model};

    #[test]
    fn tells_built_in_names_from_paths() {
        assert_eq!(
            resolve_model("builtin:mini"),
            Ok(ModelSource::Builtin { name: "mini" })
        );
        assert_eq!(
            resolve_model("dir/mini"),
            Ok(ModelSource::Path("dir/mini".into()))
        );
        assert_eq!(
            resolve_model("builtin:mini").unwrap().to_string(),
            "builtin:mini"
        );
        let said = resolve_model("builtin:mnii").unwrap_err().to_string();
        assert!(said.contains("did you mean `builtin:mini`?"), "{said}");
        let said = resolve_model("builtin:glm-5.3-full")
            .unwrap_err()
            .to_string();
        assert!(
            !said.contains("did you mean") && said.contains("there are: builtin:mini"),
            "{said}"
        );
    }
}
