//! A line of a text format: its fields, and their errors.

use chronodisk_sim::Op;

/// A line's request, in the units of its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said<'a> {
    pub(super) at: At,
    pub(super) op: Op,
    pub(super) fua: bool,
    pub(super) offset_bytes: u64,
    /// Zero for a flush only.
    pub(super) len_bytes: u64,
    pub(super) volume: &'a str,
    /// Process, or 0.
    pub(super) issuer: u32,
    /// Time from its issue to its completion.
    pub(super) response_ns: Option<u64>,
}

/// Issue time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// After the beginning of the trace.
    Relative { ns: u64 },
    /// After 1970.
    Unix { ns: u64 },
}

/// An invalid field, and the value expected.
pub(super) type Problem = String;

/// The fields of a line, in order.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: std::str::Split<'a, char>,
    number: usize,
}

impl<'a> Fields<'a> {
    /// Fields with commas between them.
    pub(super) fn of_commas(line: &'a str) -> Self {
        Fields { rest: line.split(','), number: 0 }
    }

    /// The next field without blanks around it.
    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, Problem> {
        self.number += 1;
        match self.rest.next() {
            Some(text) => Ok(text.trim()),
            None => Err(format!("the line ends before field {}, {name}", self.number)),
        }
    }

    pub(super) fn number(&mut self, name: &str, most: u64) -> Result<u64, Problem> {
        let text = self.text(name)?;
        number(text, most).ok_or_else(|| self.wrong(name, text, &format!("a whole number from 0 to {most}")))
    }

    /// Seconds with decimals, in nanoseconds.
    pub(super) fn seconds(&mut self, name: &str) -> Result<u64, Problem> {
        let text = self.text(name)?;
        decimal(text, 9).ok_or_else(|| self.wrong(name, text, "seconds, such as 12.000345"))
    }

    /// A field with one of these texts.
    pub(super) fn one_of<T: Copy>(&mut self, name: &str, texts: &[(&str, T)]) -> Result<T, Problem> {
        let text = self.text(name)?;
        let found = texts.iter().find(|(expected, _)| expected.eq_ignore_ascii_case(text));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = texts.iter().map(|(text, _)| *text).collect();
            self.wrong(name, text, &names.join(" or "))
        })
    }

    /// Fails if a field follows.
    pub(super) fn end(mut self) -> Result<(), Problem> {
        match self.rest.next() {
            None => Ok(()),
            Some(_) => Err(format!("more than {} fields", self.number)),
        }
    }

    fn wrong(&self, name: &str, found: &str, expected: &str) -> Problem {
        wrong(self.number, name, found, expected)
    }
}

/// A message that names a field.
pub(super) fn wrong(number: usize, name: &str, found: &str, expected: &str) -> Problem {
    format!("field {number}, {name}: \"{}\"; expected {expected}", shown(found))
}

/// A whole number without a sign.
pub(super) fn number(text: &str, most: u64) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| digits && number <= most)
}

/// A decimal number in units of 10 to the minus `digits`; further digits are cut off.
pub(super) fn decimal(text: &str, digits: u32) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let only_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && decimals.is_empty() || !only_digits(whole) || !only_digits(decimals) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let kept = decimals.bytes().chain(std::iter::repeat(b'0')).take(digits as usize);
    let fraction = kept.fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
    whole.checked_mul(10_u64.pow(digits))?.checked_add(fraction)
}

/// The beginning of a file's text, short enough for a message.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_cut_and_filled() {
        assert_eq!(decimal("12.5", 9), Some(12_500_000_000));
        assert_eq!(decimal("0.0000000019", 9), Some(1));
        assert_eq!(decimal(".25", 3), Some(250));
        assert_eq!(decimal("7", 3), Some(7_000));
        for wrong in ["", ".", "-1", "1e3", "1.2.3", "99999999999999999999"] {
            assert_eq!(decimal(wrong, 9), None, "{wrong}");
        }
    }
}
