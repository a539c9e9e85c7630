//! Reading and writing the fields of a message's body.

use std::ops::RangeInclusive;

use super::ProtocolError;

/// Appends fields, little endian.
pub(super) struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Length in four bytes, then the text, cut at `most_bytes`.
    pub fn text(&mut self, text: &str, most_bytes: usize) {
        let cut = cut(text, most_bytes);
        self.u32(cut.len() as u32);
        self.0.extend_from_slice(cut.as_bytes());
    }
}

/// The beginning of a text that fits, in whole characters.
fn cut(text: &str, most_bytes: usize) -> &str {
    let mut end = text.len().min(most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Takes fields from the front of a body.
pub(super) struct Reader<'a> {
    message: &'static str,
    whole_bytes: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(message: &'static str, body: &'a [u8]) -> Self {
        Reader { message, whole_bytes: body.len(), rest: body }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or_else(|| self.length("few"))?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn u8(&mut self) -> Result<u8, ProtocolError> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, ProtocolError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, ProtocolError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, ProtocolError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self, field: &'static str, most_bytes: usize) -> Result<String, ProtocolError> {
        let len = self.u32()? as usize;
        if len > most_bytes {
            return Err(self.wrong(field, len as u64, "a shorter text"));
        }
        let (text, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.length("few"))?;
        self.rest = rest;
        let text = std::str::from_utf8(text).map_err(|_| ProtocolError::Text { message: self.message, field })?;
        Ok(text.to_owned())
    }

    /// Reads a value of a list, by its index.
    pub fn one_of<T: Copy>(
        &mut self,
        field: &'static str,
        list: &[T],
        expected: &'static str,
    ) -> Result<T, ProtocolError> {
        let code = self.u8()?;
        list.get(usize::from(code)).copied().ok_or_else(|| self.wrong(field, u64::from(code), expected))
    }

    pub fn flag(&mut self, field: &'static str) -> Result<bool, ProtocolError> {
        self.one_of(field, &[false, true], "0 or 1")
    }

    /// All remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// All remaining bytes as groups of `N` numbers, as many as `count` allows.
    pub fn numbers<const N: usize>(self, count: RangeInclusive<usize>) -> Result<Vec<[u64; N]>, ProtocolError> {
        let (numbers, odd) = self.rest.as_chunks::<8>();
        let (groups, left) = numbers.as_chunks::<N>();
        if groups.len() > *count.end() {
            return Err(self.length("many"));
        }
        if groups.len() < *count.start() || !left.is_empty() || !odd.is_empty() {
            return Err(self.length("few"));
        }
        Ok(groups.iter().map(|group| group.map(u64::from_le_bytes)).collect())
    }

    /// Fails if bytes remain.
    pub fn end(self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.length("many")) }
    }

    pub fn wrong(&self, field: &'static str, value: u64, expected: &'static str) -> ProtocolError {
        ProtocolError::Field { message: self.message, field, value, expected }
    }

    fn length(&self, too: &'static str) -> ProtocolError {
        ProtocolError::Length { message: self.message, actual_bytes: self.whole_bytes, too }
    }
}
