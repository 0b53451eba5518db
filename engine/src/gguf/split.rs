//! Split sets: `PREFIX-00001-of-00006.gguf` and its siblings.

use std::path::{Path, PathBuf};

/// A shard's place in its set, from its file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SplitName {
    dir: PathBuf,
    prefix: String,
    /// 1-based.
    pub(super) number: u32,
    pub(super) count: u32,
}

impl SplitName {
    /// Takes `PREFIX-%05d-of-%05d.gguf` apart; `None` when the name has another form.
    pub(super) fn parse(path: &Path) -> Option<SplitName> {
        let name = path.file_name()?.to_str()?;
        let stem = name.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let digits = |s: &str| {
            (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
        };
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        Some(SplitName {
            dir,
            prefix: prefix.to_owned(),
            number: digits(number)?,
            count: digits(count)?,
        })
    }

    /// The path of shard `number` (1-based) of a set of `count`.
    pub(super) fn sibling(&self, number: u32, count: u32) -> PathBuf {
        self.dir
            .join(format!("{}-{number:05}-of-{count:05}.gguf", self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::SplitName;
    use std::path::Path;

    #[test]
    fn takes_names_apart_and_builds_siblings() {
        let name = SplitName::parse(Path::new("/m/GLM-5.3-UD-IQ1_S-00001-of-00006.gguf")).unwrap();
        assert_eq!((name.number, name.count), (1, 6));
        assert_eq!(
            name.sibling(4, 6),
            Path::new("/m/GLM-5.3-UD-IQ1_S-00004-of-00006.gguf")
        );
        for other in [
            "a.gguf",
            "a-1-of-2.gguf",
            "a-00001-of-00002.bin",
            "a-0000x-of-00002.gguf",
            "-of-.gguf",
        ] {
            assert_eq!(SplitName::parse(Path::new(other)), None, "{other}");
        }
    }
}
