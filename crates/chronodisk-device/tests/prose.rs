//! The English of comments: constructions that readers stumble over, each with its replacement.
//!
//! `CONTRIBUTING.md` has the rules. [`ALLOWED`] bounds the number in each crate, so that it only falls; a crate that
//! is not listed has none.

use std::fs;
use std::path::{Path, PathBuf};

/// Phrases in lower case, anywhere in a comment, each with its replacement.
const BANNED: [(&str, &str); 24] = [
    ("what is ", "a noun: \"the queued requests\", not \"what is queued\""),
    ("what was ", "a noun: \"the error\", not \"what was wrong\""),
    ("what has ", "a noun: \"received bytes\", not \"what has come\""),
    ("what had ", "a noun"),
    ("what it ", "a noun: \"its cost\", not \"what it costs\""),
    ("what the ", "a noun: \"the host's error\", not \"what the host says\""),
    ("what a ", "a noun: \"a model's events\", not \"what a model does\""),
    ("what an ", "a noun"),
    ("what they ", "a noun"),
    ("what that ", "a noun"),
    ("what this ", "a noun"),
    ("what there is", "a noun"),
    ("what one ", "a noun"),
    ("what each ", "a noun"),
    ("what can", "a noun: \"impossible values\", not \"what can't be\""),
    ("what comes", "a noun: \"the next request\", not \"what comes next\""),
    ("what follows", "a noun: \"the consequences\", \"the body\""),
    ("whoever ", "the role: \"the caller\", \"the owner of the socket\""),
    ("whomever ", "the role"),
    ("whatever ", "\"any\", \"each\", \"regardless of\""),
    ("of which", "a relative clause with \"whose\" or \"with\", or a second sentence"),
    ("in hand ", "\"holds the lock\", \"holds the session\""),
    ("somebody", "the role: \"a client\", \"another process\", \"a waiting request\""),
    ("nobody", "\"no client\", \"no caller\", or the passive voice"),
];

/// Beginnings of a comment, each with its replacement.
const BANNED_BEGINNINGS: [(&str, &str); 7] = [
    ("What ", "the noun: \"The problem.\", not \"What is wrong.\""),
    ("Who ", "the role: \"The owner\", \"Its issuer\""),
    ("Whom ", "the role: \"The job being served\""),
    ("Whose ", "the owner as a noun"),
    ("That of ", "the noun"),
    ("Those of ", "the noun"),
    ("Those that ", "the noun"),
];

/// Most hits of each crate.
const ALLOWED: [(&str, usize); 2] = [("chronodisk-device", 54), ("chronodisk-guest", 2)];

#[test]
fn comments_use_nouns() {
    let mut complaints = Vec::new();
    for path in folders() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let hits: Vec<String> = sources(&path).iter().flat_map(|file| hits_in(file)).collect();
        let allowed = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name).map_or(0, |(_, most)| *most);
        if hits.len() > allowed {
            complaints.push(format!("{name}: {} hits, {allowed} allowed", hits.len()));
            complaints.extend(hits);
        } else if hits.len() < allowed {
            complaints.push(format!("{name}: {} hits, {allowed} allowed; lower the bound", hits.len()));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_check_sees_what_it_looks_for() {
    let hits = |text: &str| odd(text).iter().map(|(line, phrase, _)| (*line, *phrase)).collect::<Vec<_>>();
    assert_eq!(hits("/// What is wrong.\n"), [(1, "what is ")]);
    assert_eq!(hits("let x = 1; // whoever asks\n"), [(1, "whoever ")]);
    assert_eq!(hits("/// Keeps whatever\n/// came.\n"), [(1, "whatever ")]);
    assert_eq!(hits("//! Rows,\n//! the last of which counts.\n"), [(2, "of which")]);
    assert_eq!(hits("/// Those of a write.\n"), [(1, "Those of ")]);
    assert_eq!(hits("/// Says so.\n/// Those of a write.\n"), []);
    assert_eq!(hits("let text = \"what is it\";\n/// The bytes of a request.\n"), []);
}

fn hits_in(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    odd(&text)
        .into_iter()
        .map(|(line, phrase, instead)| format!("{}:{line}: \"{}\"; write {instead}", file.display(), phrase.trim()))
        .collect()
}

/// Line, construction and replacement of each hit.
fn odd(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = comment_of(line) else {
            continues = false;
            continue;
        };
        // The space lets a phrase match at the end of a line.
        let lower = format!("{} ", comment.to_lowercase());
        let anywhere = BANNED.iter().filter(|(phrase, _)| lower.contains(phrase));
        let begins = BANNED_BEGINNINGS.iter().filter(|(phrase, _)| !continues && comment.starts_with(phrase));
        if let Some((phrase, instead)) = anywhere.chain(begins).next() {
            found.push((index + 1, *phrase, *instead));
        }
        continues = line.trim_start().starts_with("//") && !comment.is_empty();
    }
    found
}

/// Text of a line's comment, if it has one. A `//` inside a string literal counts only behind a space, which URLs lack.
fn comment_of(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    for marker in ["//! ", "/// ", "// ", "//!", "///"] {
        if let Some(comment) = trimmed.strip_prefix(marker) {
            return Some(comment);
        }
    }
    line.split_once(" // ").map(|(_, comment)| comment)
}

fn folders() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<PathBuf> = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.join("Cargo.toml").exists());
    found.sort();
    found
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests/prose.rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}
