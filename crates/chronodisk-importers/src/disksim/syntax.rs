//! The syntax of DiskSim 4.0 parameter files: text to a tree with the place of every node.
//!
//! ```text
//! type name { parameter = value, .. }      a block; the type may be another block's name, whose values it inherits
//! instantiate [ name, name .. name ] as block
//! topology type name [ type name [ .. ], .. ]
//! value: word | number | [ value, .. ] | type { .. } | type name { .. } | type name [ .. ]
//! ```
//!
//! A comma may follow the last entry. [`parse`] does not interpret parameters; see the module `reader`.

use chronodisk_device::ProfileError;

use super::lexer::{self, Kind, Lexed, Resolver, SourceFile, SourcePosition, Token, shown};

/// Deepest nesting of blocks and lists.
const MAX_NESTING: usize = 32;
/// Most members of a range such as `disk0 .. disk9`.
const MAX_RANGE: u64 = 4_096;

/// A parsed file with all that it sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterFile {
    /// The files that were read: the first is the top one.
    pub labels: Vec<String>,
    /// In the order of the text.
    pub items: Vec<Item>,
}

/// An item at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The definition of a block.
    Block(Block),
    /// `instantiate [ .. ] as ..`.
    Instances(Instances),
    /// `topology ..`.
    Topology(Component),
}

/// A word and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Spelling in the file.
    pub text: String,
    /// Place of its beginning.
    pub place: SourcePosition,
}

/// A typed group of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The module's name, or the name of the block that this one refines.
    pub kind: Name,
    /// Missing in a block that is a value.
    pub name: Option<Name>,
    /// In the order of the text.
    pub parameters: Vec<Parameter>,
}

/// `name = value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The words of the name, separated by single blanks.
    pub name: String,
    /// Place of the name.
    pub place: SourcePosition,
    /// The value after the equals sign.
    pub value: Value,
}

/// Value of a parameter or an entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Place of its beginning.
    pub place: SourcePosition,
    /// The data.
    pub data: Data,
}

/// The kinds of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A word or a number.
    Word(String),
    /// Values in square brackets.
    List(Vec<Value>),
    /// A block in place.
    Block(Block),
    /// A component with the components below it.
    Component(Component),
}

/// Components, and the block from which they are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instances {
    /// The components.
    pub names: Vec<Name>,
    /// The block.
    pub of: Name,
}

/// A component of the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The module's name.
    pub kind: Name,
    /// The instance's name.
    pub name: Name,
    /// Components attached to it.
    pub below: Vec<Component>,
}

impl ParameterFile {
    /// An error at a place of one of the files.
    pub fn error(&self, place: SourcePosition, message: impl Into<String>) -> ProfileError {
        lexer::error(&self.labels, place, message)
    }

    /// `file:line` of a place.
    pub fn locate(&self, place: SourcePosition) -> String {
        format!("{}:{}", self.labels[usize::from(place.file)], place.line)
    }
}

/// Parses `top` and the files that it sources.
///
/// # Errors
/// The first error, with its place and the token expected there.
pub fn parse(top: SourceFile, resolve: &mut Resolver<'_>) -> Result<ParameterFile, ProfileError> {
    let Lexed { labels, tokens, end } = lexer::tokens(top, resolve)?;
    let mut parser = Parser { labels: &labels, tokens: &tokens, next: 0, end };
    let mut items = Vec::new();
    while parser.peek().is_some() {
        items.push(parser.item()?);
    }
    Ok(ParameterFile { labels, items })
}

struct Parser<'a> {
    labels: &'a [String],
    tokens: &'a [Token],
    next: usize,
    end: SourcePosition,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Kind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    fn place(&self) -> SourcePosition {
        self.tokens.get(self.next).map_or(self.end, |token| token.place)
    }

    fn unexpected(&self, expected: &str) -> ProfileError {
        let found = match self.peek() {
            Some(Kind::Word(word)) => format!("`{}`", shown(word)),
            Some(Kind::Mark(mark)) => format!("`{mark}`"),
            None => "the end of the file".to_owned(),
        };
        lexer::error(self.labels, self.place(), format!("{found}; expected {expected}"))
    }

    fn takes(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(&Kind::Mark(mark));
        self.next += usize::from(found);
        found
    }

    fn takes_word(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Word(word)) if word == wanted);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char, expected: &str) -> Result<(), ProfileError> {
        if self.takes(mark) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn word(&mut self, expected: &str) -> Result<Name, ProfileError> {
        let Some(Kind::Word(word)) = self.peek() else { return Err(self.unexpected(expected)) };
        let place = self.place();
        self.next += 1;
        Ok(Name { text: word.clone(), place })
    }

    fn item(&mut self) -> Result<Item, ProfileError> {
        if self.takes_word("instantiate") {
            self.expect('[', "`[` and the names of components")?;
            let names = self.names()?;
            if !self.takes_word("as") {
                return Err(self.unexpected("`as` and the name of a block"));
            }
            return Ok(Item::Instances(Instances { names, of: self.word("the name of a block")? }));
        }
        if self.takes_word("topology") {
            let kind = self.word("the type of a component")?;
            let name = self.word("the name of a component")?;
            return Ok(Item::Topology(self.component(kind, name, 0)?));
        }
        let kind = self.word("a block, `instantiate` or `topology`")?;
        let name = self.word("the block's name")?;
        self.expect('{', "`{` and the block's parameters")?;
        Ok(Item::Block(Block { kind, name: Some(name), parameters: self.parameters(0)? }))
    }

    /// The rest of `[ name, name .. name ]`.
    fn names(&mut self) -> Result<Vec<Name>, ProfileError> {
        let mut names = Vec::new();
        loop {
            if self.takes(']') {
                return Ok(names);
            }
            let first = self.word("the name of a component, or `]`")?;
            if self.takes_word("..") {
                let last = self.word("the last name of the range")?;
                names.extend(self.range(&first, &last)?);
            } else {
                names.push(first);
            }
            if names.len() as u64 > MAX_RANGE {
                return Err(lexer::error(self.labels, self.place(), format!("more than {MAX_RANGE} names")));
            }
            if !self.takes(',') && self.peek() != Some(&Kind::Mark(']')) {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    /// `disk0 .. disk3` is disk0, disk1, disk2, disk3.
    fn range(&self, first: &Name, last: &Name) -> Result<Vec<Name>, ProfileError> {
        let split = |name: &Name| {
            let stem = name.text.trim_end_matches(|character: char| character.is_ascii_digit()).to_owned();
            name.text[stem.len()..].parse::<u64>().ok().map(|number| (stem, number))
        };
        match (split(first), split(last)) {
            (Some((stem, from)), Some((other, to))) if stem == other && from <= to && to - from < MAX_RANGE => {
                Ok((from..=to).map(|number| Name { text: format!("{stem}{number}"), place: first.place }).collect())
            }
            _ => Err(lexer::error(
                self.labels,
                first.place,
                format!("`{} .. {}`; expected a range such as `disk0 .. disk3`", shown(&first.text), shown(&last.text)),
            )),
        }
    }

    fn check_nesting(&self, nesting: usize) -> Result<(), ProfileError> {
        if nesting > MAX_NESTING {
            return Err(lexer::error(self.labels, self.place(), format!("nested more than {MAX_NESTING} deep")));
        }
        Ok(())
    }

    /// The rest of a component, from its opening bracket.
    fn component(&mut self, kind: Name, name: Name, nesting: usize) -> Result<Component, ProfileError> {
        self.check_nesting(nesting)?;
        self.expect('[', "`[` and the component's attachments")?;
        let mut below = Vec::new();
        loop {
            if self.takes(']') {
                return Ok(Component { kind, name, below });
            }
            let kind = self.word("the type of a component, or `]`")?;
            let name = self.word("the name of a component")?;
            below.push(self.component(kind, name, nesting + 1)?);
            if !self.takes(',') && self.peek() != Some(&Kind::Mark(']')) {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    /// The rest of a block, after its opening brace.
    fn parameters(&mut self, nesting: usize) -> Result<Vec<Parameter>, ProfileError> {
        self.check_nesting(nesting)?;
        let mut parameters = Vec::new();
        loop {
            if self.takes('}') {
                return Ok(parameters);
            }
            let Name { text: mut name, place } = self.word("the name of a parameter, or `}`")?;
            while let Some(Kind::Word(word)) = self.peek() {
                self.next += 1;
                name.push(' ');
                name.push_str(word);
            }
            self.expect('=', &format!("`=` after the parameter `{}`", shown(&name)))?;
            parameters.push(Parameter { name, place, value: self.value(nesting)? });
            if !self.takes(',') && self.peek() != Some(&Kind::Mark('}')) {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn value(&mut self, nesting: usize) -> Result<Value, ProfileError> {
        self.check_nesting(nesting)?;
        let place = self.place();
        let data = if self.takes('[') {
            let mut list = Vec::new();
            while !self.takes(']') {
                list.push(self.value(nesting + 1)?);
                if self.takes_word("..") {
                    let last = self.word("the last name of the range")?;
                    let Some(Value { data: Data::Word(text), place }) = list.pop() else {
                        return Err(self.unexpected("a range of names"));
                    };
                    let entries = self.range(&Name { text, place }, &last)?;
                    list.extend(entries.into_iter().map(|name| Value { place, data: Data::Word(name.text) }));
                }
                if !self.takes(',') && self.peek() != Some(&Kind::Mark(']')) {
                    return Err(self.unexpected("`,` or `]`"));
                }
            }
            Data::List(list)
        } else {
            let word = self.word("a value")?;
            if self.takes('{') {
                Data::Block(Block { kind: word, name: None, parameters: self.parameters(nesting + 1)? })
            } else if let Some(Kind::Word(second)) = self.peek().filter(|_| self.is_compound()) {
                let name = Name { text: second.clone(), place: self.place() };
                self.next += 1;
                if self.takes('{') {
                    Data::Block(Block { kind: word, name: Some(name), parameters: self.parameters(nesting + 1)? })
                } else {
                    Data::Component(self.component(word, name, nesting + 1)?)
                }
            } else {
                Data::Word(word.text)
            }
        };
        Ok(Value { place, data })
    }

    /// Whether a second word, followed by a bracket, belongs to the value that began with the first.
    fn is_compound(&self) -> bool {
        let after = self.tokens.get(self.next + 1).map(|token| &token.kind);
        matches!(after, Some(Kind::Mark('{' | '[')))
    }
}

#[cfg(test)]
#[path = "syntax_tests.rs"]
mod tests;
