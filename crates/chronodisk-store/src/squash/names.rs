//! Files that are treated by their names.

use std::fmt;
use std::str::FromStr;

use super::file_content::FileKind;

/// A pattern of names, as shells have them.
///
/// `?` is any byte but a slash, `*` any number of them, `[a-z]` and `[!a-z]` a byte of a set, `**` anything with
/// slashes, `**/` any folders or none, and a backslash takes the next byte as it is. A pattern without a slash is of a
/// file's own name, wherever the file lies; one with a slash is of its path from the root of its file system on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    tokens: Vec<Token>,
    by_path: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// One byte that is no slash.
    Any,
    /// One byte in, or if negated not in, ranges with both ends; never a slash.
    Set {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
    /// Bytes without a slash.
    Star,
    /// Any bytes.
    Everything,
    /// Nothing, or anything that ends with a slash.
    Folders,
}

/// What is wrong with a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no pattern of names: {reason}")]
pub struct GlobError {
    text: String,
    reason: &'static str,
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let wrong = |reason| GlobError { text: text.to_owned(), reason };
        if text.is_empty() || text == "/" {
            return Err(wrong("it names no file"));
        }
        if text.len() > PATTERN_MAX_BYTES {
            return Err(wrong("it is longer than 4096 bytes"));
        }
        let by_path = text.contains('/');
        let tokens = tokens(text.strip_prefix('/').unwrap_or(text).as_bytes()).map_err(wrong)?;
        Ok(Glob { text: text.to_owned(), tokens, by_path })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// The longest path that Linux takes in a system call.
const PATTERN_MAX_BYTES: usize = 4096;

fn tokens(text: &[u8]) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let token;
        (token, rest) = match byte {
            b'*' if after.starts_with(b"*/") => (Token::Folders, &after[2..]),
            b'*' if after.starts_with(b"*") => (Token::Everything, &after[1..]),
            b'*' => (Token::Star, after),
            b'?' => (Token::Any, after),
            b'[' => set(after)?,
            b'\\' => match after.split_first() {
                Some((&byte, after)) => (Token::Byte(byte), after),
                None => return Err("there is nothing behind the backslash"),
            },
            byte => (Token::Byte(byte), after),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

/// The set whose opening bracket came before `text`, and what comes behind it.
fn set(text: &[u8]) -> Result<(Token, &[u8]), &'static str> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let members = &text[usize::from(negated)..];
    // A closing bracket that comes first is a member.
    let end = members.iter().skip(1).position(|&byte| byte == b']').map(|at| at + 1);
    let end = end.ok_or("a bracket is not closed")?;
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < end {
        let is_range = at + 2 < end && members[at + 1] == b'-';
        let last = if is_range { members[at + 2] } else { members[at] };
        if members[at] > last {
            return Err("a range in brackets ends before it begins");
        }
        ranges.push((members[at], last));
        at += if is_range { 3 } else { 1 };
    }
    Ok((Token::Set { negated, ranges }, &members[end + 1..]))
}

impl Glob {
    /// Whether it is of paths, not just of names.
    pub(crate) fn is_by_path(&self) -> bool {
        self.by_path
    }

    /// Whether a file matches that has this path from the root of its file system on, without a slash before it. Of a
    /// pattern without slashes it is the path's last part that counts.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let name_at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let text = if self.by_path { path } else { &path[name_at..] };
        // Which prefixes of the text the tokens up to here match: work is bounded by the product of both lengths.
        let mut matched = vec![false; text.len() + 1];
        matched[0] = true;
        for token in &self.tokens {
            matched = advance(&matched, token, text);
        }
        matched[text.len()]
    }
}

/// The prefixes of `text` that match with one more token.
fn advance(before: &[bool], token: &Token, text: &[u8]) -> Vec<bool> {
    let mut after = vec![false; before.len()];
    // Whether some shorter prefix matched, as far as the token may reach from there.
    let mut open = false;
    for at in 0..before.len() {
        let last = at.checked_sub(1).map(|at| text[at]);
        after[at] = match token {
            Token::Star => {
                open = before[at] || open && last != Some(b'/');
                open
            }
            Token::Everything => {
                open |= before[at];
                open
            }
            Token::Folders => {
                let reached = before[at] || open && last == Some(b'/');
                open |= before[at];
                reached
            }
            one => last.is_some_and(|byte| before[at - 1] && one.is(byte)),
        };
    }
    after
}

impl Token {
    fn is(&self, byte: u8) -> bool {
        match self {
            Token::Byte(own) => *own == byte,
            Token::Any => byte != b'/',
            Token::Set { negated, ranges } => {
                byte != b'/' && ranges.iter().any(|&(from, to)| (from..=to).contains(&byte)) != *negated
            }
            Token::Star | Token::Everything | Token::Folders => false,
        }
    }
}

/// What becomes of the contents of files whose names match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Treatment {
    /// They are kept exactly.
    Keep,
    /// They read as a file of this kind.
    MakeUp(FileKind),
}

/// Files by their names, and what becomes of their contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRule {
    /// Which files.
    pub names: Glob,
    /// What becomes of them.
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

/// As `GLOB=TREATMENT`.
impl fmt::Display for NameRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.names, self.treatment.name())
    }
}

/// Reads `GLOB=TREATMENT`; the pattern itself may have equals signs.
impl FromStr for NameRule {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let wrong = |reason| GlobError { text: text.to_owned(), reason };
        let (names, name) = text.rsplit_once('=').ok_or(wrong("there is no = and what becomes of the files"))?;
        let treatment = Treatment::all().find(|treatment| treatment.name() == name);
        Ok(NameRule {
            names: names.parse()?,
            treatment: treatment.ok_or(wrong("what is behind the last = is not known"))?,
        })
    }
}

/// The treatment that the first rule gives which matches a path.
pub(crate) fn treatment_of(rules: &[NameRule], path: &[u8]) -> Option<Treatment> {
    rules.iter().find(|rule| rule.names.matches(path)).map(|rule| rule.treatment)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.db", "data.db/file"),
            ("*.db", "data.dbx"),
            ("/*.db", "a/data.db"),
            ("a/*", "a/b/c"),
            ("a?b/", "a/b/"),
            ("a[!x]b/", "a/b/"),
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
            ("[a", "not closed"),
            ("[]", "not closed"),
            ("[z-a]", "before it begins"),
            ("a\\", "backslash"),
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

    proptest! {
        #[test]
        fn stars_match_as_a_simple_search_does(pattern in "[ab*?]{1,8}", name in "[ab]{0,8}") {
            fn search(pattern: &[u8], name: &[u8]) -> bool {
                match pattern.split_first() {
                    None => name.is_empty(),
                    Some((b'*', rest)) => (0..=name.len()).any(|at| search(rest, &name[at..])),
                    Some((b'?', rest)) => !name.is_empty() && search(rest, &name[1..]),
                    Some((byte, rest)) => name.first() == Some(byte) && search(rest, &name[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &name), search(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
