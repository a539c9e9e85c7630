//! Files that are treated by their names.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};

use super::file_content::FileKind;

/// A pattern of names, as in shells.
///
/// `?` is any byte but a slash, `*` any number of such bytes, `[a-z]` a byte of a set and `[!a-z]` any other byte (a
/// slash, too), `{a,b}` one of several strings, `**` any bytes with slashes, `**/` any folders or none, and a backslash
/// quotes the next byte. A pattern without a slash applies to a file's own name in any folder. A pattern with a slash
/// applies to the path from the root of the file system.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    matcher: GlobMatcher,
    by_path: bool,
}

/// An error in a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no pattern of names: {reason}")]
pub struct GlobError {
    text: String,
    reason: String,
}

impl GlobError {
    fn new(text: &str, reason: impl Into<String>) -> Self {
        GlobError { text: text.to_owned(), reason: reason.into() }
    }
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() || text == "/" {
            return Err(GlobError::new(text, "it names no file"));
        }
        if text.len() > PATTERN_MAX_BYTES {
            return Err(GlobError::new(text, "it is longer than 4096 bytes"));
        }
        let within = text.strip_prefix('/').unwrap_or(text);
        let built = GlobBuilder::new(within).literal_separator(true).backslash_escape(true).build();
        let glob = built.map_err(|error| GlobError::new(text, error.kind().to_string()))?;
        Ok(Glob { text: text.to_owned(), matcher: glob.compile_matcher(), by_path: text.contains('/') })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// The longest path that Linux takes in a system call.
const PATTERN_MAX_BYTES: usize = 4096;

impl Glob {
    /// Whether it contains a path, not just a name.
    pub(crate) fn is_by_path(&self) -> bool {
        self.by_path
    }

    /// Whether it matches a file with this path from the root of the file system, without a leading slash. A pattern
    /// without slashes is matched against the last component only.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let name_at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        self.matcher.is_match(OsStr::from_bytes(if self.by_path { path } else { &path[name_at..] }))
    }
}

/// Treatment of the contents of files with matching names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Treatment {
    /// Their contents are kept.
    Keep,
    /// Their contents are generated as a file of this kind.
    MakeUp(FileKind),
}

/// Files by their names, with a treatment of their contents.
#[derive(Clone, Debug)]
pub struct NameRule {
    /// Pattern of the files' names.
    pub names: Glob,
    /// Their treatment.
    pub treatment: Treatment,
}

impl Treatment {
    /// Every treatment.
    pub fn all() -> impl Iterator<Item = Treatment> {
        FileKind::ALL.into_iter().map(Treatment::MakeUp).chain([Treatment::Keep])
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Treatment::Keep => "keep",
            Treatment::MakeUp(kind) => kind.name(),
        }
    }
}

/// In the form `GLOB=TREATMENT`.
impl fmt::Display for NameRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.names, self.treatment.name())
    }
}

/// Reads `GLOB=TREATMENT`; the pattern itself may have equals signs.
impl FromStr for NameRule {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let wrong = |reason| GlobError::new(text, reason);
        let (names, name) = text.rsplit_once('=').ok_or(wrong("there is no = and what becomes of the files"))?;
        let treatment = Treatment::all().find(|treatment| treatment.name() == name);
        Ok(NameRule {
            names: names.parse()?,
            treatment: treatment.ok_or(wrong("what is behind the last = is not known"))?,
        })
    }
}

/// Longest path on Linux.
pub(super) const PATH_MAX_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        pattern.parse::<Glob>().unwrap().matches(path.as_bytes())
    }

    #[test]
    fn names_match_wherever_they_lie_and_paths_from_the_root_on() {
        for (pattern, path) in [
            ("*.db", "data.db"),
            ("*.db", "a/b/data.db"),
            ("data.d?", "data.db"),
            ("data.[a-d][!x-z]", "data.db"),
            ("[]]", "]"),
            (r"\*", "*"),
            ("/a/*.db", "a/data.db"),
            ("a/*/c", "a/b/c"),
            ("/a/**", "a/b/c"),
            ("/**/c", "c"),
            ("/**/c", "a/b/c"),
            ("a/**/c", "a/c"),
            ("**", "a/b"),
            ("*", "a/b"),
            ("*.{db,log}", "a/b.log"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.db", "data.db/file"),
            ("*.db", "data.dbx"),
            ("/*.db", "a/data.db"),
            ("a/*", "a/b/c"),
            ("a?b/", "a/b/"),
            ("/**/c", "a/bc"),
            ("data.[a-d]", "data.e"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_told() {
        for (pattern, reason) in [
            ("", "no file"),
            ("/", "no file"),
            ("[a", "unclosed character class"),
            ("[]", "unclosed character class"),
            ("[z-a]", "invalid range"),
            ("a\\", "dangling"),
            ("{a", "unclosed alternate group"),
        ] {
            let error = pattern.parse::<Glob>().unwrap_err().to_string();
            assert!(error.contains(reason), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_rule_reads_as_it_is_written() {
        for text in ["*.db=keep", "/a=b/*=keep", "*.pdf=pdf"] {
            assert_eq!(text.parse::<NameRule>().unwrap().to_string(), text);
        }
        assert!("*.db=lose".parse::<NameRule>().unwrap_err().to_string().contains("not known"));
        assert!("*.db".parse::<NameRule>().unwrap_err().to_string().contains("no ="));
    }
}
