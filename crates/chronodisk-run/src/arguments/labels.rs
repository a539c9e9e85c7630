//! Flags for a run's name, tags and note.

use chronodisk_report::Labels;
use clap::Args;

use crate::folder::LAST;

/// Flags of every command that keeps a run.
#[derive(Clone, Debug, Args)]
pub struct LabelArguments {
    /// Names the run, for `show`, `compare` and `report`
    #[arg(long, value_name = "NAME", value_parser = word)]
    name: Option<String>,

    /// Tags the run, for `runs --tag` and `compare --tag`; may be repeated
    #[arg(long = "tag", value_name = "TAG", value_parser = word)]
    tags: Vec<String>,

    /// Keeps this remark with the run
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl LabelArguments {
    /// The labels that were given.
    pub fn labels(&self) -> Labels {
        let mut tags = self.tags.clone();
        tags.sort();
        tags.dedup();
        Labels { name: self.name.clone(), tags, note: self.note.clone() }
    }
}

/// Longest name or tag in characters.
const WORD_MAX: usize = 80;

/// A name or a tag: one word, which can't be confused with a path, an option or the newest run.
fn word(text: &str) -> Result<String, String> {
    let permitted = |character: char| character.is_alphanumeric() || "-_.+:@=".contains(character);
    let is_word = text.chars().all(permitted) && text.starts_with(char::is_alphanumeric);
    match text {
        LAST => Err("'last' stands for the newest run".into()),
        _ if !is_word => Err("expected letters, digits and -_.+:@=, beginning with a letter or digit".into()),
        _ if text.chars().count() > WORD_MAX => Err(format!("expected at most {WORD_MAX} characters")),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_taken_for_anything_else() {
        for text in ["nightly", "v1.2+rc", "commit=abc", "größe", "2025-01-01T10:00"] {
            assert_eq!(word(text), Ok(text.to_owned()));
        }
        for text in ["", "last", "-x", "a/b", "a b", "..", "a,b", &"x".repeat(81)] {
            assert!(word(text).is_err(), "{text}");
        }
    }
}
