//! Splits DiskSim parameter files into tokens, with `source`d files spliced in.
//!
//! A word ends at blanks and the characters `; { } , [ ] : ? =`. Numbers are words too, because a parameter's reader
//! knows its type (and reads decimals exactly). `#` at the beginning of a word starts a comment. `source NAME` is
//! replaced by the tokens of that file, at any place.
//!
//! Bounds: the length of each file and of all files, the depth of sourcing, and the number of files.

use chronodisk_device::ProfileError;
use chronodisk_sim::TextFile;

/// Longest text of a single file, in bytes.
pub const MAX_FILE_BYTES: usize = TextFile::DeviceDescription.limit_bytes() as usize;
/// Longest text of all files together, in bytes.
const MAX_TOTAL_BYTES: usize = 16 << 20;
/// Deepest nesting of files that source each other.
const MAX_DEPTH: usize = 16;
/// Most sourced files, repetitions counted.
const MAX_FILES: usize = 64;

/// Place of a token or node: file and line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// Index into the list of files that were read.
    pub file: u16,
    /// Counted from 1.
    pub line: u32,
    /// In characters, counted from 1.
    pub column: u32,
}

/// A file's text with the label under which errors mention it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path of the file, as the user would write it; unique for each file.
    pub label: String,
    /// Content of the file.
    pub text: String,
}

/// Provides a file, by its name in the parameters and the label of the file that names it.
///
/// The error is a sentence without the file's name: `there is no such file`.
pub type Resolver<'a> = dyn FnMut(&str, &str) -> Result<SourceFile, String> + 'a;

/// A token and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) place: SourcePosition,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    /// One of `; { } , [ ] : ? =`.
    Mark(char),
}

/// The files that were read, in the order of opening, and their tokens.
pub(super) struct Lexed {
    pub(super) labels: Vec<String>,
    pub(super) tokens: Vec<Token>,
    /// Just after the last token, for errors about missing tokens.
    pub(super) end: SourcePosition,
}

/// The rest of a file being read.
struct Open {
    file: u16,
    text: String,
    offset: usize,
    line: u32,
    column: u32,
}

/// Tokens of `top` and of everything that it sources.
///
/// # Errors
/// A file that the resolver does not bring, that sources itself, or that exceeds a bound.
pub(super) fn tokens(top: SourceFile, resolve: &mut Resolver<'_>) -> Result<Lexed, ProfileError> {
    let mut lexer = Lexer { labels: Vec::new(), stack: Vec::new(), total_bytes: 0 };
    lexer.open(top, None)?;
    let mut tokens = Vec::new();
    let mut end = SourcePosition { file: 0, line: 1, column: 1 };
    while let Some(open) = lexer.stack.last_mut() {
        let Some(token) = open.next() else {
            end = open.place();
            lexer.stack.pop();
            continue;
        };
        if token.kind != Kind::Word("source".to_owned()) {
            tokens.push(token);
            continue;
        }
        let named = open.next();
        let Some(Token { place, kind: Kind::Word(name) }) = named else {
            return Err(error(&lexer.labels, token.place, "`source` without the name of a file"));
        };
        let from = lexer.labels[usize::from(place.file)].clone();
        let file = resolve(&name, &from)
            .map_err(|problem| error(&lexer.labels, place, format!("can't read `{}`: {problem}", shown(&name))))?;
        lexer.open(file, Some(place))?;
    }
    Ok(Lexed { labels: lexer.labels, tokens, end })
}

struct Lexer {
    labels: Vec<String>,
    stack: Vec<Open>,
    total_bytes: usize,
}

impl Lexer {
    fn open(&mut self, file: SourceFile, named_at: Option<SourcePosition>) -> Result<(), ProfileError> {
        let refuse = |message: String| match named_at {
            Some(place) => error(&self.labels, place, message),
            None => ProfileError::whole(&file.label, message),
        };
        self.total_bytes = self.total_bytes.saturating_add(file.text.len());
        if file.text.len() > MAX_FILE_BYTES || self.total_bytes > MAX_TOTAL_BYTES {
            let (one, all) = (MAX_FILE_BYTES >> 20, MAX_TOTAL_BYTES >> 20);
            return Err(refuse(format!("too long; expected at most {one} MiB a file and {all} MiB in all")));
        }
        if self.stack.iter().any(|open| self.labels[usize::from(open.file)] == file.label) {
            return Err(refuse(format!("{} sources itself", file.label)));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(refuse(format!("files source each other more than {MAX_DEPTH} deep")));
        }
        if self.labels.len() >= MAX_FILES {
            return Err(refuse(format!("more than {MAX_FILES} files are sourced")));
        }
        let index = self.labels.len() as u16;
        self.labels.push(file.label);
        self.stack.push(Open { file: index, text: file.text, offset: 0, line: 1, column: 1 });
        Ok(())
    }
}

impl Open {
    fn place(&self) -> SourcePosition {
        SourcePosition { file: self.file, line: self.line, column: self.column }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.offset..].chars().next()
    }

    fn advance(&mut self, character: char) {
        self.offset += character.len_utf8();
        if character == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
    }

    fn skip_while(&mut self, keep: impl Fn(char) -> bool) {
        while let Some(character) = self.peek().filter(|&character| keep(character)) {
            self.advance(character);
        }
    }

    /// The next token of this file.
    fn next(&mut self) -> Option<Token> {
        loop {
            self.skip_while(char::is_whitespace);
            if self.peek()? != '#' {
                break;
            }
            self.skip_while(|character| character != '\n');
        }
        let place = self.place();
        let first = self.peek()?;
        if is_mark(first) {
            self.advance(first);
            return Some(Token { place, kind: Kind::Mark(first) });
        }
        let start = self.offset;
        self.skip_while(|character| !is_mark(character) && !character.is_whitespace());
        Some(Token { place, kind: Kind::Word(self.text[start..self.offset].to_owned()) })
    }
}

fn is_mark(character: char) -> bool {
    matches!(character, ';' | '{' | '}' | ',' | '[' | ']' | ':' | '?' | '=')
}

/// An error at a place.
pub(super) fn error(labels: &[String], place: SourcePosition, message: impl Into<String>) -> ProfileError {
    ProfileError {
        file: labels[usize::from(place.file)].clone(),
        line: Some(place.line),
        column: Some(place.column),
        message: message.into(),
        help: None,
    }
}

/// The beginning of a text, short enough for a message.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 64;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
