//! Typed parameters from a parsed file: each is requested by name, and an unrequested one is refused.
//!
//! [`Definitions`] finds blocks, instances and the topology. [`Reader`] reads one block, with its inherited values.
//! Numbers are decimal text in a file and become integers of a stated power of ten, so that 0.28362 ms is exactly
//! 283,620,000 ps.

use std::cell::RefCell;
use std::collections::BTreeMap;

use chronodisk_device::ProfileError;
use chronodisk_device::nearest;

use super::lexer::{SourcePosition, shown};
use super::syntax::{Block, Component, Data, Item, Name, Parameter, ParameterFile, Value};

/// Longest chain of blocks that refine each other.
const MAX_REFINEMENTS: usize = 8;

/// A property in a file that the imported device lacks or has in another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// `file:line` of its subject.
    pub at: String,
    /// The parameter, and its treatment.
    pub message: String,
}

/// The blocks, instances and topology of a file.
pub(crate) struct Definitions<'a> {
    pub(crate) file: &'a ParameterFile,
    blocks: BTreeMap<&'a str, &'a Block>,
    instances: BTreeMap<&'a str, &'a Name>,
    topology: Option<&'a Component>,
    warnings: RefCell<Vec<Warning>>,
}

impl<'a> Definitions<'a> {
    /// Collects the definitions of `file`.
    ///
    /// # Errors
    /// A name that is defined twice, or a second topology.
    pub(crate) fn new(file: &'a ParameterFile) -> Result<Self, ProfileError> {
        let mut definitions = Definitions {
            file,
            blocks: BTreeMap::new(),
            instances: BTreeMap::new(),
            topology: None,
            warnings: RefCell::new(Vec::new()),
        };
        for item in &file.items {
            match item {
                Item::Block(block) => {
                    let name = block.name.as_ref().unwrap_or(&block.kind);
                    if let Some(first) = definitions.blocks.insert(&name.text, block) {
                        let first = file.locate(first.name.as_ref().unwrap_or(&first.kind).place);
                        return Err(file.error(name.place, twice("the block", &name.text, &first)));
                    }
                }
                Item::Instances(instances) => {
                    for name in &instances.names {
                        if let Some(first) = definitions.instances.insert(&name.text, &instances.of) {
                            let first = file.locate(first.place);
                            return Err(file.error(name.place, twice("the component", &name.text, &first)));
                        }
                    }
                }
                Item::Topology(component) => {
                    if let Some(first) = definitions.topology.replace(component) {
                        let first = file.locate(first.kind.place);
                        return Err(file.error(component.kind.place, twice("the topology", "", &first)));
                    }
                }
            }
        }
        Ok(definitions)
    }

    /// All named blocks, in order of their names.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &'a Block> {
        self.blocks.values().copied()
    }

    pub(crate) fn topology(&self) -> Option<&'a Component> {
        self.topology
    }

    /// The block from which the component `name` is made.
    pub(crate) fn block_of(&self, name: &Name) -> Result<&'a Block, ProfileError> {
        let Some(of) = self.instances.get(name.text.as_str()) else {
            let error = self.file.error(name.place, format!("no `instantiate` makes `{}`", shown(&name.text)));
            return Err(suggesting(error, &name.text, self.instances.keys().copied()));
        };
        self.blocks.get(of.text.as_str()).copied().ok_or_else(|| {
            let error = self.file.error(of.place, format!("there is no block `{}`", shown(&of.text)));
            suggesting(error, &of.text, self.blocks.keys().copied())
        })
    }

    /// `block` and the blocks that it refines, the block itself first; the last one's kind is a module's name.
    fn chain(&self, block: &'a Block) -> Result<Vec<&'a Block>, ProfileError> {
        let mut chain = vec![block];
        while let Some(&parent) = self.blocks.get(chain[chain.len() - 1].kind.text.as_str()) {
            if chain.len() >= MAX_REFINEMENTS || chain.iter().any(|known| std::ptr::eq(*known, parent)) {
                let message = format!("blocks refine each other in a circle or more than {MAX_REFINEMENTS} deep");
                return Err(self.file.error(block.kind.place, message));
            }
            chain.push(parent);
        }
        Ok(chain)
    }

    /// The module of `block`, such as `disksim_disk`.
    pub(crate) fn module_of(&self, block: &'a Block) -> Result<&'a Name, ProfileError> {
        let chain = self.chain(block)?;
        Ok(&chain[chain.len() - 1].kind)
    }

    pub(crate) fn reader(&'a self, block: &'a Block) -> Result<Reader<'a>, ProfileError> {
        let chain = self.chain(block)?;
        for block in &chain {
            let mut seen: BTreeMap<&str, SourcePosition> = BTreeMap::new();
            for parameter in &block.parameters {
                if let Some(first) = seen.insert(&parameter.name, parameter.place) {
                    let message = twice("the parameter", &parameter.name, &self.file.locate(first));
                    return Err(self.file.error(parameter.place, message));
                }
            }
        }
        Ok(Reader { definitions: self, chain, known: Vec::new() })
    }

    /// Warns about a property that the device will not have as in the file.
    pub(crate) fn warn(&self, place: SourcePosition, message: impl Into<String>) {
        self.warnings.borrow_mut().push(Warning { at: self.file.locate(place), message: message.into() });
    }

    /// The warnings, in order.
    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings.into_inner()
    }
}

fn twice(what: &str, name: &str, first: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!(" `{}`", shown(name)) };
    format!("{what}{name} is given twice; the first is at {first}")
}

/// Adds the nearest known name to an error.
pub(super) fn suggesting<'n>(error: ProfileError, name: &str, known: impl Iterator<Item = &'n str>) -> ProfileError {
    match nearest(name, known).first() {
        Some(near) => error.with_help(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// Type of a parameter that is checked but not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A whole number.
    Whole,
    /// Any number.
    Number,
    /// A word.
    Word,
    /// A list.
    List,
    /// A block.
    Block,
}

/// Parameters of one block, with a list of the requested ones.
pub(crate) struct Reader<'a> {
    definitions: &'a Definitions<'a>,
    chain: Vec<&'a Block>,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(crate) fn definitions(&self) -> &'a Definitions<'a> {
        self.definitions
    }

    /// Place of the block.
    pub(crate) fn place(&self) -> SourcePosition {
        self.chain[0].kind.place
    }

    /// Place of the parameter, or of the block if it is absent.
    pub(crate) fn place_of(&self, name: &str) -> SourcePosition {
        self.find(name).map_or(self.place(), |parameter| parameter.value.place)
    }

    fn find(&self, name: &str) -> Option<&'a Parameter> {
        self.chain.iter().find_map(|block| block.parameters.iter().find(|parameter| parameter.name == name))
    }

    /// The parameter's value; `None` if it is absent.
    pub(crate) fn optional(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.find(name).map(|parameter| &parameter.value)
    }

    fn required(&mut self, name: &'static str, expected: &str) -> Result<&'a Value, ProfileError> {
        self.optional(name).ok_or_else(|| {
            let block = self.chain[0];
            let called = block.name.as_ref().unwrap_or(&block.kind);
            let message = format!("`{name}` is missing in `{}`; expected {expected}", shown(&called.text));
            let near: Vec<&str> = block.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
            let near: Vec<&str> = near.into_iter().filter(|near| !self.known.contains(near)).collect();
            match nearest(name, near.into_iter()).first() {
                Some(near) => self
                    .definitions
                    .file
                    .error(self.place_of_spelled(near), message)
                    .with_help(format!("is it `{near}`?")),
                None => self.definitions.file.error(block.kind.place, message),
            }
        })
    }

    fn place_of_spelled(&self, name: &str) -> SourcePosition {
        self.find(name).map_or(self.place(), |parameter| parameter.place)
    }

    /// An error at the value of `name`.
    pub(crate) fn error_at(&self, name: &str, problem: impl Into<String>) -> ProfileError {
        self.definitions.file.error(self.place_of(name), format!("`{name}`: {}", problem.into()))
    }

    /// Warns at the value of `name`.
    pub(crate) fn warn_at(&self, name: &str, message: impl Into<String>) {
        self.definitions.warn(self.place_of(name), format!("`{name}`: {}", message.into()));
    }

    /// A word or number as it is spelled.
    pub(crate) fn word(&mut self, name: &'static str, expected: &str) -> Result<&'a str, ProfileError> {
        let value = self.required(name, expected)?;
        self.as_word(name, value, expected)
    }

    pub(crate) fn as_word(&self, name: &str, value: &'a Value, expected: &str) -> Result<&'a str, ProfileError> {
        match &value.data {
            Data::Word(word) => Ok(word),
            other => Err(self.mismatch(name, value.place, describe(other), expected)),
        }
    }

    fn mismatch(
        &self,
        name: &str,
        place: SourcePosition,
        found: impl std::fmt::Display,
        expected: &str,
    ) -> ProfileError {
        self.definitions.file.error(place, format!("`{name}`: {found}; expected {expected}"))
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn whole(&mut self, name: &'static str, least: i64, most: i64) -> Result<i64, ProfileError> {
        let expected = format!("a whole number from {least} to {most}");
        let value = self.required(name, &expected)?;
        self.as_whole(name, value, least, most)
    }

    pub(crate) fn as_whole(&self, name: &str, value: &'a Value, least: i64, most: i64) -> Result<i64, ProfileError> {
        let expected = format!("a whole number from {least} to {most}");
        let word = self.as_word(name, value, &expected)?;
        let number = whole_number(word).filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.mismatch(name, value.place, format!("`{}`", shown(word)), &expected))
    }

    /// A number as a count of 10^-`decimals`, rounded to the nearest.
    pub(crate) fn number(&mut self, name: &'static str, decimals: u32) -> Result<i64, ProfileError> {
        let value = self.required(name, "a number")?;
        self.as_number(name, value, decimals)
    }

    /// The number; `None` if it is absent.
    pub(crate) fn optional_number(&mut self, name: &'static str, decimals: u32) -> Result<Option<i64>, ProfileError> {
        self.optional(name).map(|value| self.as_number(name, value, decimals)).transpose()
    }

    pub(crate) fn as_number(&self, name: &str, value: &'a Value, decimals: u32) -> Result<i64, ProfileError> {
        let word = self.as_word(name, value, "a number")?;
        decimal(word, decimals)
            .ok_or_else(|| self.mismatch(name, value.place, format!("`{}`", shown(word)), "a number"))
    }

    /// Zero or one.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, ProfileError> {
        Ok(self.whole(name, 0, 1)? == 1)
    }

    /// The entries of a list.
    pub(crate) fn list(&mut self, name: &'static str) -> Result<&'a [Value], ProfileError> {
        let value = self.required(name, "a list in brackets")?;
        match &value.data {
            Data::List(list) => Ok(list),
            other => Err(self.mismatch(name, value.place, describe(other), "a list in brackets")),
        }
    }

    /// Numbers of a list as counts of 10^-`decimals`, with their places.
    pub(crate) fn numbers(
        &mut self,
        name: &'static str,
        decimals: u32,
    ) -> Result<Vec<(i64, SourcePosition)>, ProfileError> {
        let list = self.list(name)?;
        list.iter().map(|entry| Ok((self.as_number(name, entry, decimals)?, entry.place))).collect()
    }

    /// Whole numbers of a list from `least` to `most`, with their places.
    pub(crate) fn wholes(
        &mut self,
        name: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Vec<(i64, SourcePosition)>, ProfileError> {
        let list = self.list(name)?;
        list.iter().map(|entry| Ok((self.as_whole(name, entry, least, most)?, entry.place))).collect()
    }

    /// A block of one of `modules`, with the name of its module.
    pub(crate) fn block(
        &mut self,
        name: &'static str,
        modules: &[&'static str],
    ) -> Result<(&'static str, Reader<'a>), ProfileError> {
        let expected = format!("a block {}", modules.join(" or "));
        let value = self.required(name, &expected)?;
        self.as_block(name, value, modules)
    }

    /// An entry of the list `name` as a block of one of `modules`.
    pub(crate) fn as_block(
        &self,
        name: &str,
        value: &'a Value,
        modules: &[&'static str],
    ) -> Result<(&'static str, Reader<'a>), ProfileError> {
        let expected = format!("a block {}", modules.join(" or "));
        let block = match &value.data {
            Data::Block(block) => block,
            Data::Word(word) => match self.definitions.blocks.get(word.as_str()) {
                Some(block) => block,
                None => return Err(self.mismatch(name, value.place, format!("`{}`", shown(word)), &expected)),
            },
            other => return Err(self.mismatch(name, value.place, describe(other), &expected)),
        };
        let module = self.definitions.module_of(block)?;
        let Some(&known) = modules.iter().find(|&&known| known == module.text) else {
            let error = self.mismatch(name, value.place, format!("a block `{}`", shown(&module.text)), &expected);
            return Err(suggesting(error, &module.text, modules.iter().copied()));
        };
        Ok((known, self.definitions.reader(block)?))
    }

    /// Checks the shape of a parameter without effect on the device; it may be absent.
    pub(crate) fn without_effect(&mut self, name: &'static str, shape: Shape) -> Result<(), ProfileError> {
        let Some(value) = self.optional(name) else { return Ok(()) };
        match (shape, &value.data) {
            (Shape::List, Data::List(_)) | (Shape::Block, Data::Block(_)) | (Shape::Word, Data::Word(_)) => Ok(()),
            (Shape::Whole, Data::Word(_)) => self.as_whole(name, value, i64::MIN, i64::MAX).map(drop),
            (Shape::Number, Data::Word(_)) => self.as_number(name, value, 0).map(drop),
            (shape, other) => {
                let expected = match shape {
                    Shape::Whole => "a whole number",
                    Shape::Number => "a number",
                    Shape::Word => "a word",
                    Shape::List => "a list in brackets",
                    Shape::Block => "a block in braces",
                };
                Err(self.mismatch(name, value.place, describe(other), expected))
            }
        }
    }

    /// Refuses parameters that were not requested.
    pub(crate) fn finish(self) -> Result<(), ProfileError> {
        let unknown = |block: &&'a Block| {
            block.parameters.iter().find(|parameter| !self.known.contains(&parameter.name.as_str()))
        };
        let Some(parameter) = self.chain.iter().find_map(unknown) else { return Ok(()) };
        let module = &self.chain[self.chain.len() - 1].kind.text;
        let message = format!("unknown parameter `{}` of {}", shown(&parameter.name), shown(module));
        let error = self.definitions.file.error(parameter.place, message);
        Err(suggesting(error, &parameter.name, self.known.iter().copied()))
    }
}

fn describe(data: &Data) -> &'static str {
    match data {
        Data::Word(_) => "a word",
        Data::List(_) => "a list",
        Data::Block(_) => "a block",
        Data::Component(_) => "a component",
    }
}

/// A whole number, decimal or `0x..`; `58.0` is one too.
fn whole_number(word: &str) -> Option<i64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        let number = u32::from_str_radix(hexadecimal, 16).ok().filter(|_| !hexadecimal.starts_with('+'))?;
        return Some(sign * i64::from(number));
    }
    // Beyond the range of `decimal` with nine digits after the point.
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.parse().ok();
    }
    let number = decimal(word, 0)?;
    (decimal(word, 9)? == number.checked_mul(1_000_000_000)?).then_some(number)
}

/// `word` as a count of 10^-`decimals`, rounded half away from zero: `-2.5e-3`.
pub(crate) fn decimal(word: &str, decimals: u32) -> Option<i64> {
    const MAX_DIGITS: usize = 40;
    let (mantissa, exponent) = match word.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok().filter(|e| (-99..=99).contains(e))?),
        None => (word, 0),
    };
    let negative = mantissa.starts_with('-');
    let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) || digits.len() > MAX_DIGITS {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let mut count: i128 = significant.parse().ok()?;
    let power = exponent + decimals as i32 - (digits.len() - whole.len()) as i32;
    match u32::try_from(power) {
        Ok(power) => count = count.checked_mul(10i128.checked_pow(power)?)?,
        Err(_) => {
            // With more digits than that, only zero is left.
            let Some(divisor) = 10i128.checked_pow(power.unsigned_abs()) else { return Some(0) };
            count = count.checked_add(divisor / 2)? / divisor;
        }
    }
    let count = i64::try_from(count).ok()?;
    Some(if negative { -count } else { count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(decimal("0.283620", 9), Some(283_620_000));
        assert_eq!(decimal("-0.483000", 9), Some(-483_000_000));
        assert_eq!(decimal("1.014396800", 9), Some(1_014_396_800));
        assert_eq!(decimal("6.25e-2", 9), Some(62_500_000));
        assert_eq!(decimal("1e+3", 2), Some(100_000));
        assert_eq!(decimal("0.0000000005", 9), Some(1));
        assert_eq!(decimal("0.00000000049", 9), Some(0));
        assert_eq!(decimal(".5", 1), Some(5));
        assert_eq!(decimal("7.", 1), Some(70));
        assert_eq!(decimal("00.000", 9), Some(0));
        assert_eq!(decimal("1e-99", 9), Some(0));
        for wrong in ["", ".", "-", "1.2.3", "0x10", "1e", "1e999", "five", "--1", "99999999999999999999", "1 "] {
            assert_eq!(decimal(wrong, 9), None, "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        assert_eq!(whole_number("58"), Some(58));
        assert_eq!(whole_number("58.0"), Some(58));
        assert_eq!(whole_number("-1"), Some(-1));
        assert_eq!(whole_number("0xff"), Some(255));
        assert_eq!(whole_number("281474976710656"), Some(1 << 48));
        for wrong in ["58.5", "0x", "0x+1", "1e-1", "x", "", "-", "99999999999999999999"] {
            assert_eq!(whole_number(wrong), None, "{wrong}");
        }
    }
}
