//! Text to a checked leg set.

use std::path::{Path, PathBuf};

use serde_yaml::MessageFormatter as _;
use sha2::{Digest, Sha256};

use super::doc::LegFile;
use super::error::{LegFileError, Problem};
use super::resolve::resolve;
use super::set::{LegSet, Source};

/// A leg file is text that people write: more than this is a mistake.
const LARGEST: u64 = 4 << 20;

/// Reads and checks a leg file.
///
/// # Errors
/// Everything that is wrong with the file, each with its place.
pub fn load(path: &Path) -> Result<LegSet, LegFileError> {
    let fail = |message: String| LegFileError::new(path, "", vec![Problem::whole(message)]);
    let size = std::fs::metadata(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
    if size.is_dir() {
        return Err(fail("is a folder, not a leg file".to_owned()));
    }
    if size.len() > LARGEST {
        return Err(fail(format!(
            "has {} bytes; a leg file has at most {LARGEST}",
            size.len()
        )));
    }
    let bytes = std::fs::read(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        fail(format!(
            "is not UTF-8: the first bad byte is in line {line}"
        ))
    })?;
    let base = std::path::absolute(path)
        .ok()
        .and_then(|p| p.parent().map(Path::to_owned))
        .unwrap_or_else(|| PathBuf::from("/"));
    parse(path, &base, &text)
}

/// Checks the text of a leg file. `name` is what messages call it; relative paths start from `base`.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(name: &Path, base: &Path, text: &str) -> Result<LegSet, LegFileError> {
    let document: LegFile = serde_yaml::from_str(text)
        .map_err(|e| LegFileError::new(name, text, vec![problem_of(&e, text)]))?;
    let source = Source {
        name: name.to_string_lossy().into_owned(),
        base: base.to_owned(),
        text: text.to_owned(),
        sha256: hex(&Sha256::digest(text.as_bytes())),
    };
    resolve(document, source).map_err(|problems| LegFileError::new(name, text, problems))
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The YAML reader's error in our words, with the nearest right name.
fn problem_of(error: &serde_yaml::Error, text: &str) -> Problem {
    let error = error.without_snippet();
    let (line, column) = error.location().map_or((0, 0), |l| {
        (
            usize::try_from(l.line()).unwrap_or(0),
            usize::try_from(l.column()).unwrap_or(0),
        )
    });
    let place = super::At {
        value: (),
        line,
        column,
    };
    match error {
        serde_yaml::Error::SerdeUnknownField {
            field, expected, ..
        } => {
            let place = find_key(text, field, &place);
            Problem::at(&place, format!("unknown key `{field}`"))
                .nearest(field, expected.iter().copied())
        }
        serde_yaml::Error::SerdeUnknownVariant {
            variant, expected, ..
        } => {
            let help = super::error::suggestion(variant, expected.iter().copied());
            let right = format!("one of {}", expected.join(", "));
            Problem::at(&place, format!("unknown value `{variant}`")).help(help.map_or(
                right.clone(),
                |h| {
                    if h.starts_with("right") {
                        right.clone()
                    } else {
                        format!("{h} ({right})")
                    }
                },
            ))
        }
        serde_yaml::Error::SerdeMissingField { field, .. } => {
            Problem::at(&place, format!("the key `{field}` is missing here"))
        }
        other => Problem::at(
            &place,
            serde_yaml::UserMessageFormatter
                .format_message(other)
                .into_owned(),
        ),
    }
}

/// The reader places an unknown key at its mapping in some cases: look for the key itself from there on.
fn find_key(text: &str, key: &str, place: &super::At<()>) -> super::At<()> {
    for (index, line) in text.lines().enumerate().skip(place.line.saturating_sub(1)) {
        let from = if index + 1 == place.line {
            place.column.saturating_sub(1)
        } else {
            0
        };
        let mut offset = line.char_indices().nth(from).map_or(line.len(), |(i, _)| i);
        while let Some(found) = line[offset..].find(key) {
            let start = offset + found;
            let after = line[start + key.len()..].trim_start();
            let before = line[..start].chars().next_back();
            if after.starts_with(':')
                && before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '-'))
            {
                return super::At {
                    value: (),
                    line: index + 1,
                    column: line[..start].chars().count() + 1,
                };
            }
            offset = start + key.len();
        }
    }
    place.clone()
}
