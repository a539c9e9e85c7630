//! The English of comments and pages: constructions that readers stumble over, each with its replacement, and long
//! sentences.
//!
//! `CONTRIBUTING.md` has the rules. [`ALLOWED`] bounds the constructions in the comments of each crate, so that their
//! number only falls; a crate that is not listed has none. No sentence of a page that people write has more than
//! [`MOST_WORDS`] words.

use std::fs;
use std::path::{Path, PathBuf};

/// Phrases in lower case, anywhere in a comment or in the sentence of a page, each with its replacement.
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

/// Beginnings of a comment or of a sentence, each with its replacement.
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
const ALLOWED: [(&str, usize); 1] = [("chronodisk-guest", 2)];

/// Most words of a sentence in `docs/` and in the `README.md`.
const MOST_WORDS: usize = 30;

/// Most words of a page, and of a page in the section `Concepts` of the table of contents. A longer page answers
/// several questions.
const MOST_WORDS_OF_A_PAGE: usize = 1_200;
const MOST_WORDS_OF_A_CONCEPT: usize = 2_000;

/// Pages of `docs/` with text from the sources, and the table of contents.
const GENERATED: [&str; 7] = [
    "SUMMARY.md",
    "commands.md",
    "file-limits.md",
    "fio-options.md",
    "measurements.md",
    "profile-keys.md",
    "result-fields.md",
];

#[test]
fn sentences_of_pages_are_short() {
    let complaints: Vec<String> = pages()
        .iter()
        .flat_map(|page| {
            let text = fs::read_to_string(page).unwrap();
            let long = sentences(&text).into_iter().filter(|(_, words)| words.len() > MOST_WORDS);
            long.map(|(line, words)| format!("{}:{line}: {} words: {}", page.display(), words.len(), words.join(" ")))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        complaints.is_empty(),
        "sentences of more than {MOST_WORDS} words; write one fact a sentence:\n{}",
        complaints.join("\n")
    );
}

#[test]
fn pages_answer_one_question() {
    let summary = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SUMMARY.md")).unwrap();
    let (_, concepts) = summary.split_once("# Concepts\n").expect("the section of concepts");
    let concepts = concepts.split("\n# ").next().unwrap();
    let mut checked_concepts = 0;
    let mut complaints = Vec::new();
    for page in pages().iter().filter(|page| !page.ends_with("README.md")) {
        let name = page.file_name().unwrap().to_string_lossy();
        let is_concept = concepts.contains(&format!("]({name})"));
        checked_concepts += usize::from(is_concept);
        let most = if is_concept { MOST_WORDS_OF_A_CONCEPT } else { MOST_WORDS_OF_A_PAGE };
        let text = fs::read_to_string(page).unwrap();
        let words = text.split_whitespace().count();
        if words > most {
            complaints.push(format!("{name} has {words} words; expected at most {most}"));
        }
        if is_concept && !text.contains("```text\n") {
            complaints.push(format!("{name} has no drawing (a block of `text`)"));
        }
    }
    assert!(checked_concepts > 2, "{checked_concepts} pages of concepts");
    assert!(complaints.is_empty(), "divide the pages by question:\n{}", complaints.join("\n"));
}

#[test]
fn pages_use_nouns() {
    let mut complaints = Vec::new();
    for page in pages() {
        for (line, words) in sentences(&fs::read_to_string(&page).unwrap()) {
            let sentence = format!("{} ", words.join(" "));
            let lower = sentence.to_lowercase();
            let anywhere = BANNED.iter().filter(|(phrase, _)| lower.contains(phrase));
            let begins = BANNED_BEGINNINGS.iter().filter(|(phrase, _)| sentence.starts_with(phrase));
            if let Some((phrase, instead)) = anywhere.chain(begins).next() {
                let place = format!("{}:{line}", page.display());
                complaints.push(format!("{place}: \"{}\"; write {instead}: {sentence}", phrase.trim()));
            }
        }
    }
    assert!(complaints.is_empty(), "{} hits:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn sentences_are_divided_as_readers_divide_them() {
    let counts = |text: &str| sentences(text).iter().map(|(line, words)| (*line, words.len())).collect::<Vec<_>>();
    assert_eq!(counts("# A heading\n\nOne two. Three four\nfive.\n"), [(3, 2), (3, 3)]);
    assert_eq!(counts("- one\n- two three\n  four\n1. five\n"), [(1, 1), (2, 3), (4, 1)]);
    assert_eq!(counts("| a | table |\n\n```\na block. Of code\n```\n<!-- a remark -->\n"), []);
    assert_eq!(counts("The [link of four words](page.md#the-place), `code is one`, 5 % (so).\n"), [(1, 8)]);
    assert_eq!(counts("It took 1.5 s (load 2.). *So* be it.\n"), [(1, 6), (1, 3)]);
    assert_eq!(counts("About 5 s vs. nothing \u{b7} next item\n"), [(1, 5), (1, 2)]);
}

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

/// Sentences of a page with the line where their paragraph begins: without headings, tables, blocks of code and HTML.
fn sentences(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut paragraph = String::new();
    let mut begin = 0;
    let mut is_code = false;
    for (index, line) in text.lines().chain([""]).enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_other = is_fence || is_code || line.is_empty() || line.starts_with(['#', '|', '<']);
        let item = without_item_marker(line);
        if is_other || item.is_some() {
            found.extend(divided(&paragraph).into_iter().map(|words| (begin, words)));
            paragraph.clear();
        }
        if !is_other {
            if paragraph.is_empty() {
                begin = index + 1;
            }
            paragraph.push_str(item.unwrap_or(line));
            paragraph.push(' ');
        }
    }
    found
}

fn without_item_marker(line: &str) -> Option<&str> {
    let (marker, item) = line.split_once(' ')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (["-", "*", "+"].contains(&marker) || marker.strip_suffix('.').is_some_and(is_number)).then_some(item)
}

/// The words of each sentence of a paragraph. Code counts as one word, a link's address and a sign as none.
fn divided(paragraph: &str) -> Vec<Vec<String>> {
    // Every second part of the text is code.
    let prose: String =
        paragraph.split('`').enumerate().map(|(index, part)| if index % 2 == 1 { "`code`" } else { part }).collect();
    let mut parts = prose.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push(']');
        text.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    let mut found = vec![Vec::new()];
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if word.contains(char::is_alphanumeric) {
            found.last_mut().unwrap().push(word.to_owned());
        }
        let is_end = word.trim_end_matches([')', '"', '*', '_']).ends_with(['.', '!', '?']);
        let begins = words.peek().is_some_and(|next| !next.starts_with(|first: char| first.is_ascii_lowercase()));
        if (is_end && begins) || word == "\u{b7}" {
            found.push(Vec::new());
        }
    }
    found.retain(|words| !words.is_empty());
    found
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found: Vec<PathBuf> = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".md") && !GENERATED.contains(&&*name)
    });
    found.push(root.join("README.md"));
    found.sort();
    found
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
