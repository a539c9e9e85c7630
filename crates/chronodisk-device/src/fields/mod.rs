//! Reads typed values out of a profile's TOML and knows where each of them stands.
//!
//! The lowest layer of profiles: it knows no kind of model.

mod error;
mod keys;

use std::fmt::Write;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::quantity::{Quantity, parse_decimal};
use error::is_slip_of;
pub use error::{ProfileError, nearest};
pub(crate) use keys::KeyLog;
pub use keys::ProfileKey;

/// Most channels that a profile may ask for.
pub(crate) const MAX_CHANNELS: u32 = 65_536;

/// A profile's text with the label under which errors mention it.
pub(crate) struct Document<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    /// Takes each key that is asked for.
    pub(crate) keys: Option<&'a KeyLog>,
}

impl Document<'_> {
    /// An error at the beginning of `span`, a range of bytes of the text.
    pub(crate) fn error(&self, span: &Range<usize>, message: impl Into<String>) -> ProfileError {
        let mut start = span.start.min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |number: usize| Some(u32::try_from(number + 1).unwrap_or(u32::MAX));
        ProfileError {
            file: self.file.to_owned(),
            line: count(before.bytes().filter(|&byte| byte == b'\n').count()),
            column: count(before[line_start..].chars().count()),
            message: message.into(),
            help: None,
        }
    }
}

/// One table of a profile; only requested keys count as known.
///
/// A value is written plainly, or as `{ value = .., source = ".." }` with its source.
pub(crate) struct Fields<'a> {
    document: &'a Document<'a>,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    /// Keys of the tables that lead to this one, joined by dots.
    path: String,
    known: Vec<&'static str>,
    appended: String,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(document: &'a Document<'a>, table: &'a DeTable<'a>, span: Range<usize>) -> Self {
        Fields { document, table, span, path: String::new(), known: Vec::new(), appended: String::new() }
    }

    /// A table that is the value of `key` in this one.
    fn inner(&self, key: &str, table: &'a DeTable<'a>, span: Range<usize>) -> Self {
        let path = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        Fields { path, ..Fields::new(self.document, table, span) }
    }

    /// An error about the table as a whole.
    pub(crate) fn error(&self, message: impl Into<String>) -> ProfileError {
        self.document.error(&self.span, message)
    }

    /// An error at the value of `key`.
    pub(crate) fn error_at(&self, key: &str, message: impl Into<String>) -> ProfileError {
        let span = self.table.get(key).map_or(self.span.clone(), Spanned::span);
        self.document.error(&span, format!("`{key}`: {}", message.into()))
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &'static str) -> Result<String, ProfileError> {
        match self.required(key, "a text in quotes")?.get_ref() {
            DeValue::String(text) => Ok(text.clone().into_owned()),
            other => Err(self.mismatch(key, other, "a text in quotes")),
        }
    }

    /// A number with a unit.
    pub(crate) fn quantity<T: Quantity>(&mut self, key: &'static str) -> Result<T, ProfileError> {
        let value = self.required(key, T::EXPECTED)?;
        self.read_quantity(key, value)
    }

    /// A positive number with a unit.
    pub(crate) fn positive<T: Quantity>(&mut self, key: &'static str) -> Result<T, ProfileError> {
        let value: T = self.quantity(key)?;
        if value <= T::from_count(0) {
            return Err(self.error_at(key, format!("zero; expected {}", T::EXPECTED)));
        }
        Ok(value)
    }

    /// A number with a unit, or `default` if the key is missing.
    pub(crate) fn quantity_or<T: Quantity>(&mut self, key: &'static str, default: T) -> Result<T, ProfileError> {
        match self.optional(key, T::EXPECTED)? {
            Some(value) => self.read_quantity(key, value),
            None => Ok(default),
        }
    }

    /// A plain whole number in `range`.
    pub(crate) fn count(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Result<u32, ProfileError> {
        let value = self.required(key, &format!("a whole number from {} to {}", range.start(), range.end()))?;
        self.read_count(key, value, range)
    }

    /// A plain whole number in `range`, if the key is there.
    pub(crate) fn optional_count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ProfileError> {
        let value = self.optional(key, &format!("a whole number from {} to {}", range.start(), range.end()))?;
        value.map(|value| self.read_count(key, value, range)).transpose()
    }

    /// A plain factor from 0.001 to 1,000,000 in thousandths, or one if the key is missing.
    pub(crate) fn factor_thousandths(&mut self, key: &'static str) -> Result<u64, ProfileError> {
        const EXPECTED: &str = "a factor from 0.001 to 1000000";
        let Some(value) = self.optional(key, EXPECTED)? else { return Ok(1_000) };
        let digits = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            other => return Err(self.mismatch(key, other, EXPECTED)),
        };
        match parse_decimal(digits, 1_000) {
            Ok(thousandths @ 1..=1_000_000_000) => Ok(thousandths),
            Ok(_) => Err(self.error_at(key, format!("out of range; expected {EXPECTED}"))),
            Err(problem) => Err(self.error_at(key, format!("{problem}; expected {EXPECTED} in steps of 0.001"))),
        }
    }

    /// The tables of an array `[[key]]`, from one to `most`.
    pub(crate) fn tables(&mut self, key: &'static str, most: usize) -> Result<Vec<Fields<'a>>, ProfileError> {
        let expected = format!("one to {most} tables [[{key}]]");
        let value = self.required(key, &expected)?;
        let DeValue::Array(entries) = value.get_ref() else {
            return Err(self.mismatch(key, value.get_ref(), &expected));
        };
        if entries.is_empty() || entries.len() > most {
            return Err(self.error_at(key, format!("{} entries; expected {expected}", entries.len())));
        }
        let table = |entry: &'a Spanned<DeValue<'a>>| match entry.get_ref() {
            DeValue::Table(table) => Ok(self.inner(key, table, entry.span())),
            other => Err(self.document.error(&entry.span(), format!("{}; expected a table", describe(other)))),
        };
        entries.iter().map(table).collect()
    }

    /// Makes a key known without reading it.
    pub(crate) fn know(&mut self, key: &'static str) {
        self.asked(key, None, false);
    }

    /// Amends the reference's entry of the last requested key.
    pub(crate) fn amend(&self, amend: impl FnOnce(&mut ProfileKey)) {
        if let Some(keys) = self.document.keys {
            keys.amend(amend);
        }
    }

    /// Whether the table has the key; asking does not make it known.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Place of the value of `key`, or of the table without it; for errors found later.
    pub(crate) fn span(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or(self.span.clone(), Spanned::span)
    }

    /// An error at a place that [`Fields::span`] gave.
    pub(crate) fn error_in(&self, span: &Range<usize>, message: impl Into<String>) -> ProfileError {
        self.document.error(span, message)
    }

    /// True or false, or `default` if the key is missing.
    pub(crate) fn flag_or(&mut self, key: &'static str, default: bool) -> Result<bool, ProfileError> {
        const EXPECTED: &str = "true or false";
        match self.optional(key, EXPECTED)?.map(Spanned::get_ref) {
            None => Ok(default),
            Some(DeValue::Boolean(flag)) => Ok(*flag),
            Some(other) => Err(self.mismatch(key, other, EXPECTED)),
        }
    }

    /// A plain number from zero on in millionths, if the key is there.
    pub(crate) fn optional_millionths(&mut self, key: &'static str) -> Result<Option<u64>, ProfileError> {
        const EXPECTED: &str = "a number such as 0.75";
        let Some(value) = self.optional(key, EXPECTED)? else { return Ok(None) };
        let digits = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            other => return Err(self.mismatch(key, other, EXPECTED)),
        };
        parse_decimal(digits, 1_000_000)
            .map(Some)
            .map_err(|problem| self.error_at(key, format!("{problem}; expected {EXPECTED}, not below zero")))
    }

    /// The table `[key]`; `None` if it is absent.
    pub(crate) fn optional_table(&mut self, key: &'static str) -> Result<Option<Fields<'a>>, ProfileError> {
        self.asked(key, Some("a table"), false);
        let Some(value) = self.table.get(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(self.inner(key, table, value.span()))),
            other => Err(self.mismatch(key, other, &format!("a table [{key}]"))),
        }
    }

    /// The table `[key]`.
    pub(crate) fn table(&mut self, key: &'static str) -> Result<Fields<'a>, ProfileError> {
        let table = self.optional_table(key)?;
        self.amend(|asked| asked.is_required = true);
        table.ok_or_else(|| self.error(format!("the table [{key}] is missing")))
    }

    /// The entries of an array of at most `most`; empty if the key is missing.
    fn array(
        &mut self,
        key: &'static str,
        most: usize,
        expected: &str,
    ) -> Result<&'a [Spanned<DeValue<'a>>], ProfileError> {
        let Some(value) = self.optional(key, expected)? else { return Ok(&[]) };
        match value.get_ref() {
            DeValue::Array(entries) if entries.len() <= most => Ok(entries),
            DeValue::Array(entries) => {
                let message = format!("{} entries; expected at most {most}", entries.len());
                Err(self.error_at(key, message))
            }
            other => Err(self.mismatch(key, other, expected)),
        }
    }

    /// The entries of an array of whole numbers; empty if the key is missing.
    pub(crate) fn wholes(&mut self, key: &'static str, most: usize) -> Result<Vec<u64>, ProfileError> {
        const EXPECTED: &str = "an array of whole numbers such as [17, 99]";
        let entries = self.array(key, most, EXPECTED)?;
        entries.iter().map(|entry| self.entry_whole(key, entry, EXPECTED)).collect()
    }

    /// The entries of an array of pairs of whole numbers; empty if the key is missing.
    pub(crate) fn whole_pairs(&mut self, key: &'static str, most: usize) -> Result<Vec<(u64, u64)>, ProfileError> {
        const EXPECTED: &str = "an array of pairs of whole numbers such as [[7, 4000]]";
        let entries = self.array(key, most, EXPECTED)?;
        let pair = |entry: &'a Spanned<DeValue<'a>>| {
            let [first, second] = self.entry_pair(key, entry, EXPECTED)?;
            Ok((self.entry_whole(key, first, EXPECTED)?, self.entry_whole(key, second, EXPECTED)?))
        };
        entries.iter().map(pair).collect()
    }

    /// The entries of an array of pairs of a whole number and a quantity; empty if the key is missing.
    pub(crate) fn quantity_pairs<T: Quantity>(
        &mut self,
        key: &'static str,
        most: usize,
    ) -> Result<Vec<(u64, T)>, ProfileError> {
        let expected = format!("an array of pairs of a whole number and {}", T::EXPECTED);
        let entries = self.array(key, most, &expected)?;
        let pair = |entry: &'a Spanned<DeValue<'a>>| {
            let [first, second] = self.entry_pair(key, entry, &expected)?;
            Ok((self.entry_whole(key, first, &expected)?, self.entry_quantity(key, second, &expected)?))
        };
        entries.iter().map(pair).collect()
    }

    /// The entries of an array of quantities; empty if the key is missing.
    pub(crate) fn quantities<T: Quantity>(&mut self, key: &'static str, most: usize) -> Result<Vec<T>, ProfileError> {
        let expected = format!("an array of texts, each {}", T::EXPECTED);
        let entries = self.array(key, most, &expected)?;
        entries.iter().map(|entry| self.entry_quantity(key, entry, &expected)).collect()
    }

    fn entry_pair(
        &self,
        key: &str,
        entry: &'a Spanned<DeValue<'a>>,
        expected: &str,
    ) -> Result<[&'a Spanned<DeValue<'a>>; 2], ProfileError> {
        match entry.get_ref() {
            DeValue::Array(pair) if pair.len() == 2 => Ok([&pair[0], &pair[1]]),
            _ => Err(self.entry_error(key, entry, format!("expected {expected}"))),
        }
    }

    fn entry_whole(&self, key: &str, entry: &Spanned<DeValue<'_>>, expected: &str) -> Result<u64, ProfileError> {
        let whole = match entry.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        whole.ok_or_else(|| self.entry_error(key, entry, format!("expected {expected}")))
    }

    fn entry_quantity<T: Quantity>(
        &self,
        key: &str,
        entry: &Spanned<DeValue<'_>>,
        expected: &str,
    ) -> Result<T, ProfileError> {
        match entry.get_ref() {
            DeValue::String(text) => T::parse(text).map_err(|problem| self.entry_error(key, entry, problem)),
            _ => Err(self.entry_error(key, entry, format!("expected {expected}"))),
        }
    }

    fn entry_error(&self, key: &str, entry: &Spanned<DeValue<'_>>, problem: String) -> ProfileError {
        self.document.error(&entry.span(), format!("`{key}`: {problem}"))
    }

    /// Like [`tables`](Self::tables), but empty if the key is missing.
    pub(crate) fn tables_or_none(&mut self, key: &'static str, most: usize) -> Result<Vec<Fields<'a>>, ProfileError> {
        if !self.has(key) {
            self.asked(key, Some(&format!("tables [[{key}]]")), false);
            return Ok(Vec::new());
        }
        let tables = self.tables(key, most);
        self.amend(|asked| asked.is_required = false);
        tables
    }

    /// A value from a list of names.
    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Result<T, ProfileError> {
        let value = self.required(key, &one_of(choices))?;
        self.read_choice(key, value, choices)
    }

    /// A value from a list of names, or `default` if the key is missing.
    pub(crate) fn choice_or<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T, ProfileError> {
        let value = self.optional(key, &one_of(choices))?;
        value.map_or(Ok(default), |value| self.read_choice(key, value, choices))
    }

    fn read_choice<T: Copy>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        choices: &[(&str, T)],
    ) -> Result<T, ProfileError> {
        let DeValue::String(text) = value.get_ref() else {
            return Err(self.mismatch(key, value.get_ref(), &one_of(choices)));
        };
        let chosen = choices.iter().find(|choice| choice.0 == text.as_ref());
        chosen.map(|choice| choice.1).ok_or_else(|| self.error_at(key, format!("expected {}", one_of(choices))))
    }

    /// The entries of an array of texts; empty if the key is missing.
    pub(crate) fn texts(&mut self, key: &'static str, most: usize) -> Result<Vec<String>, ProfileError> {
        const EXPECTED: &str = "an array of texts in quotes";
        let entries = self.array(key, most, EXPECTED)?;
        let text = |entry: &Spanned<DeValue<'_>>| match entry.get_ref() {
            DeValue::String(text) => Ok(text.clone().into_owned()),
            _ => Err(self.entry_error(key, entry, format!("expected {EXPECTED}"))),
        };
        entries.iter().map(text).collect()
    }

    /// The label under which errors mention the profile.
    pub(crate) fn file(&self) -> &'a str {
        self.document.file
    }

    /// Length of the profile's text in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.document.text.len()
    }

    /// Appends to the additions that make the profile's text complete.
    pub(crate) fn append_to_text(&mut self, text: &str) {
        self.appended.push_str(text);
    }

    /// The profile's text with the additions that make it complete.
    pub(crate) fn complete_text(&self) -> String {
        let text = self.document.text;
        match text.is_empty() || text.ends_with('\n') || self.appended.is_empty() {
            true => format!("{text}{}", self.appended),
            false => format!("{text}\n{}", self.appended),
        }
    }

    /// Refuses unrequested keys.
    pub(crate) fn finish(self) -> Result<(), ProfileError> {
        let unknown = self.table.iter().find(|(key, _)| !self.known.contains(&key.get_ref().as_ref()));
        let Some((key, _)) = unknown else { return Ok(()) };
        let name: String = key.get_ref().chars().take(64).collect();
        let error = self.document.error(&key.span(), format!("unknown key `{name}`"));
        Err(match nearest(&name, self.known.iter().copied()).first() {
            Some(near) => error.with_help(format!("did you mean `{near}`?")),
            None => error.with_help(format!("the keys here are {}", self.known.join(", "))),
        })
    }

    /// The value of `key`, without the table that may carry its source.
    fn optional(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Result<Option<&'a Spanned<DeValue<'a>>>, ProfileError> {
        self.asked(key, Some(expected), false);
        self.value(key)
    }

    fn required(&mut self, key: &'static str, expected: &str) -> Result<&'a Spanned<DeValue<'a>>, ProfileError> {
        self.asked(key, Some(expected), true);
        self.value(key)?.ok_or_else(|| self.missing(key, expected))
    }

    /// Makes a key known.
    fn asked(&mut self, key: &'static str, expected: Option<&str>, is_required: bool) {
        self.known.push(key);
        let Some(keys) = self.document.keys else { return };
        // The value itself, even if it is written with its source.
        let plain = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::Table(table) => table.get("value").map_or(value.span(), Spanned::span),
            _ => value.span(),
        };
        let written = |value| self.document.text.get(plain(value)).map(str::to_owned);
        keys.note(ProfileKey {
            table: self.path.clone(),
            name: key,
            expected: expected.map(str::to_owned),
            is_required,
            value: self.table.get(key).and_then(written),
        });
    }

    fn value(&self, key: &str) -> Result<Option<&'a Spanned<DeValue<'a>>>, ProfileError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let DeValue::Table(table) = value.get_ref() else { return Ok(Some(value)) };
        let plain = Document { keys: None, ..*self.document };
        let mut sourced = Fields::new(&plain, table, value.span());
        sourced.text("source")?;
        sourced.known.push("value");
        let inner = table.get("value").ok_or_else(|| sourced.error("`value` is missing beside `source`"))?;
        sourced.finish()?;
        Ok(Some(inner))
    }

    /// Error for a missing key, with a similar one that is present. Candidates are keys not requested so far, so only
    /// typing errors count.
    fn missing(&self, key: &str, expected: &str) -> ProfileError {
        let error = self.error(format!("`{key}` is missing; expected {expected}"));
        let names = self.table.keys().map(|name| name.get_ref().as_ref());
        let mut misspelt = names.filter(|name| !self.known.contains(name) && is_slip_of(name, key));
        match misspelt.next() {
            Some(name) => error.with_help(format!("is `{name}` a misspelt `{key}`?")),
            None => error,
        }
    }

    fn read_quantity<T: Quantity>(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<T, ProfileError> {
        match value.get_ref() {
            DeValue::String(text) => T::parse(text).map_err(|problem| self.error_at(key, problem)),
            DeValue::Integer(_) | DeValue::Float(_) => Err(self
                .error_at(key, format!("a number without a unit; expected {} in quotes", T::EXPECTED))
                .with_help(format!("units: {}", T::UNITS.iter().map(|unit| unit.0).collect::<Vec<_>>().join(", ")))),
            other => Err(self.mismatch(key, other, T::EXPECTED)),
        }
    }

    fn read_count(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        range: RangeInclusive<u32>,
    ) -> Result<u32, ProfileError> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let DeValue::Integer(number) = value.get_ref() else {
            return Err(self.mismatch(key, value.get_ref(), &expected));
        };
        match u32::from_str_radix(number.as_str(), number.radix()) {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => Err(self.error_at(key, format!("out of range; expected {expected}"))),
        }
    }

    fn mismatch(&self, key: &str, value: &DeValue<'_>, expected: &str) -> ProfileError {
        self.error_at(key, format!("{}; expected {expected}", describe(value)))
    }
}

/// The expected values in a choice's error.
fn one_of<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<String> = choices.iter().map(|choice| format!("\"{}\"", choice.0)).collect();
    format!("one of {}", names.join(", "))
}

fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a plain number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// A text as a TOML string: on one line, or on several if it has several.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let several = text.contains('\n');
    let mut quoted = String::from(if several { "\"\"\"\n" } else { "\"" });
    for c in text.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            '\n' | '\t' => quoted.push(c),
            c if c.is_control() => write!(quoted, "\\u{:04X}", u32::from(c)).expect("a String takes everything"),
            c => quoted.push(c),
        }
    }
    quoted.push_str(if several { "\"\"\"" } else { "\"" });
    quoted
}

/// Reads the fields of a text and refuses unrequested ones; for tests of a kind's reader.
#[cfg(any(test, feature = "test-utils"))]
pub(crate) fn with_fields<R>(
    text: &str,
    read: impl FnOnce(&mut Fields<'_>) -> Result<R, ProfileError>,
) -> Result<R, ProfileError> {
    let document = Document { file: "test.toml", text, keys: None };
    let table = DeTable::parse(text).expect("it is TOML");
    let mut fields = Fields::new(&document, table.get_ref(), 0..0);
    let value = read(&mut fields)?;
    fields.finish()?;
    Ok(value)
}
