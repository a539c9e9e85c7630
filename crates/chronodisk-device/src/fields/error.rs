//! Errors in profiles, with their places.

use std::fmt;

use strsim::levenshtein;

/// Reason why a profile can't be used.
///
/// `Display` is one line, `FILE:LINE:COLUMN: message`, without the help; the command adds the help after a blank line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The file as the user named it, or the name of a built-in profile; empty if no file was found.
    pub file: String,
    /// Line, counted from 1; `None` if the error concerns the whole profile.
    pub line: Option<u32>,
    /// Column in characters, counted from 1.
    pub column: Option<u32>,
    /// The problem, and the value expected.
    pub message: String,
    /// Advice.
    pub help: Option<String>,
}

impl ProfileError {
    /// An error about a profile as a whole.
    #[must_use]
    pub fn whole(file: &str, message: impl Into<String>) -> Self {
        ProfileError { file: file.to_owned(), line: None, column: None, message: message.into(), help: None }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if let (Some(line), Some(column)) = (self.line, self.column) {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProfileError {}

/// At most three names most similar to `name` in any case, nearest first; empty if none is similar.
#[must_use]
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.chars().take(LONGEST_COMPARED).collect::<String>().to_lowercase();
    let mut scored: Vec<(usize, &str)> = names
        .map(|candidate| {
            let contained = name.len() >= 3 && candidate.contains(name.as_str());
            (if contained { 1 } else { levenshtein(&name, &candidate.to_lowercase()) }, candidate)
        })
        .filter(|&(distance, candidate)| distance <= candidate.len().max(name.len()).div_ceil(3))
        .collect();
    scored.sort();
    scored.into_iter().map(|entry| entry.1).take(3).collect()
}

/// Whether a name differs from another by one or two letters.
pub(crate) fn is_slip_of(name: &str, of: &str) -> bool {
    name.len().abs_diff(of.len()) <= 2 && levenshtein(name, of) <= 2
}

/// Longer names are compared by their beginning, so that a hostile one costs little.
const LONGEST_COMPARED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_typing_errors_and_parts() {
        let names = ["null", "constant-10ms", "constant-100us", "first-disk"];
        assert_eq!(nearest("frist-disk", names.into_iter()), ["first-disk"]);
        assert_eq!(nearest("constant-10us", names.into_iter())[0], "constant-100us");
        assert_eq!(nearest("disk", names.into_iter()), ["first-disk"]);
        assert!(nearest("zzzzzzzzzzzz", names.into_iter()).is_empty());
        assert!(nearest(&"a".repeat(1 << 20), names.into_iter()).is_empty());
    }
}
