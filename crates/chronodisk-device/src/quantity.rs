//! Quantities with units: a profile's `"3.9 ms"` and the command line's `4GiB`.
//!
//! A quantity is a decimal number and a unit, with or without a space between them. Conversion is exact: a value that
//! is no whole number of the internal unit (nanoseconds, bytes, bytes per second, thousandths of a turn per minute) is
//! refused, never rounded.

use std::fmt;

use chronodisk_sim::Nanos;

/// A quantity, written as a number with a unit.
pub trait Quantity: Sized + Copy + PartialOrd + fmt::Display {
    /// Example of a value, for error messages: `a duration such as "3.9 ms"`.
    const EXPECTED: &'static str;
    /// The units, each with its value in the internal unit.
    const UNITS: &'static [(&'static str, u64)];
    /// The largest value that is accepted, in the internal unit; it keeps later arithmetic far from overflow.
    const LARGEST: u64;

    /// Makes the quantity from a count of the internal unit.
    fn from_count(count: u64) -> Self;

    /// Parses text such as `"3.9 ms"`.
    ///
    /// # Errors
    /// A sentence with the problem and the value expected.
    fn parse(text: &str) -> Result<Self, String> {
        parse_quantity(text)
    }
}

impl Quantity for Nanos {
    const EXPECTED: &'static str = "a duration such as \"3.9 ms\"";
    const UNITS: &'static [(&'static str, u64)] =
        &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];
    const LARGEST: u64 = 3_600_000_000_000;

    fn from_count(count: u64) -> Self {
        Nanos::from_nanos(count)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Quantity for Bytes {
    const EXPECTED: &'static str = "a size such as \"512 KiB\"";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("B", 1),
        ("kB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
        ("PiB", 1 << 50),
    ];
    const LARGEST: u64 = 1 << 60;

    fn from_count(count: u64) -> Self {
        Bytes(count)
    }
}

impl fmt::Display for Bytes {
    /// With the largest unit in which the number is whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |&(_, size): &(&str, u64)| self.0 >= size && self.0.is_multiple_of(size);
        let &(name, size) =
            Self::UNITS.iter().filter(|entry| unit(entry)).max_by_key(|entry| entry.1).unwrap_or(&("B", 1));
        f.pad(&format!("{} {name}", self.0 / size))
    }
}

/// A transfer rate in bytes per second; never zero when it was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// Time in which `bytes` pass, rounded up to a nanosecond.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Nanos {
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0.max(1)));
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Quantity for Rate {
    const EXPECTED: &'static str = "a rate such as \"100 MB/s\"";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("B/s", 1),
        ("kB/s", 1_000),
        ("KiB/s", 1 << 10),
        ("MB/s", 1_000_000),
        ("MiB/s", 1 << 20),
        ("GB/s", 1_000_000_000),
        ("GiB/s", 1 << 30),
    ];
    const LARGEST: u64 = 1 << 50;

    fn from_count(count: u64) -> Self {
        Rate(count)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/s", Bytes(self.0)))
    }
}

/// A speed of rotation in thousandths of a turn per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rotation(pub u64);

impl Quantity for Rotation {
    const EXPECTED: &'static str = "a speed of rotation such as \"7200 rpm\"";
    const UNITS: &'static [(&'static str, u64)] = &[("rpm", 1_000)];
    const LARGEST: u64 = 1_000_000_000;

    fn from_count(count: u64) -> Self {
        Rotation(count)
    }
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0 / 1_000, self.0 % 1_000);
        match thousandths {
            0 => f.pad(&format!("{whole} rpm")),
            _ => f.pad(format!("{whole}.{thousandths:03}").trim_end_matches('0')).and_then(|()| f.write_str(" rpm")),
        }
    }
}

/// Parses a size in bytes from the command line: `4GiB`, `400 MB`; the bare letters `K`, `M`, `G` and `T` are binary
/// units, as in `qemu-img` and `mkfs`.
///
/// # Errors
/// A sentence with the problem and the value expected; zero is no capacity.
pub fn parse_capacity(text: &str) -> Result<u64, String> {
    const LETTERS: [(char, &str); 4] = [('K', "KiB"), ('M', "MiB"), ('G', "GiB"), ('T', "TiB")];
    let text = text.trim();
    let spelled = LETTERS.iter().find_map(|&(letter, unit)| {
        let number = text.strip_suffix(letter).or_else(|| text.strip_suffix(letter.to_ascii_lowercase()))?;
        Some(format!("{number} {unit}"))
    });
    match Bytes::parse(spelled.as_deref().unwrap_or(text))? {
        Bytes(0) => Err("a size of zero bytes; expected at least one sector of 512 B".to_owned()),
        Bytes(bytes) => Ok(bytes),
    }
}

/// Parses a duration from the command line: `100us`, `3.9 ms`, `2 s`.
///
/// # Errors
/// A sentence with the problem and the value expected.
pub fn parse_duration(text: &str) -> Result<Nanos, String> {
    Nanos::parse(text)
}

/// Parses a transfer rate from the command line: `100MB/s`.
///
/// # Errors
/// A sentence with the problem and the value expected; zero is no rate.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    match Rate::parse(text)? {
        Rate(0) => Err(format!("a rate of zero; expected {}", Rate::EXPECTED)),
        rate => Ok(rate),
    }
}

/// A plain decimal number as an exact count of `1/scale`; `scale` is a power of ten.
pub(crate) fn parse_decimal(text: &str, scale: u64) -> Result<u64, String> {
    scaled(text, scale).map_err(|problem| match problem {
        Scaled::NotANumber => format!("\"{}\" is not a number", shown(text)),
        Scaled::TooFine => format!("\"{text}\" has more decimals than the model can tell apart"),
        Scaled::TooLarge => format!("\"{}\" is too large", shown(text)),
    })
}

/// The digits at the beginning of a text such as `3.9 ms`, and the unit after them; either may be empty.
#[must_use]
pub fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Parses a number without sign and a unit: the default of [`Quantity::parse`].
pub(crate) fn parse_quantity<T: Quantity>(text: &str) -> Result<T, String> {
    parse_count(text, T::EXPECTED, T::UNITS, T::LARGEST).map(T::from_count)
}

fn parse_count(text: &str, expected: &str, units: &[(&str, u64)], largest: u64) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = number_and_unit(text);
    if number.is_empty() {
        return Err(format!("\"{}\" does not begin with a number; expected {expected}", shown(text)));
    }
    let names = || units.iter().map(|entry| entry.0).collect::<Vec<_>>().join(", ");
    if unit.is_empty() {
        return Err(format!("\"{}\" has no unit; expected {expected} (units: {})", shown(text), names()));
    }
    let Some(&(_, size)) = units.iter().find(|entry| entry.0 == unit) else {
        return Err(format!("unknown unit \"{}\"; expected {expected} (units: {})", shown(unit), names()));
    };
    let count = scaled(number, size).map_err(|problem| match problem {
        Scaled::NotANumber => format!("\"{}\" is not a number; expected {expected}", shown(number)),
        Scaled::TooFine => format!("\"{}\" is finer than the model's smallest step", shown(text)),
        Scaled::TooLarge => format!("\"{}\" is too large", shown(text)),
    })?;
    if count > largest {
        return Err(format!("\"{}\" is too large", shown(text)));
    }
    Ok(count)
}

enum Scaled {
    NotANumber,
    TooFine,
    TooLarge,
}

/// `number` times `size`, if that is a whole number of 64 bits.
fn scaled(number: &str, size: u64) -> Result<u64, Scaled> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) {
        return Err(Scaled::NotANumber);
    }
    let decimals = decimals.trim_end_matches('0');
    let power =
        u32::try_from(decimals.len()).ok().and_then(|places| 10u128.checked_pow(places)).ok_or(Scaled::TooFine)?;
    let mantissa: u128 = format!("{whole}{decimals}").parse().map_err(|_| Scaled::TooLarge)?;
    let product = mantissa.checked_mul(u128::from(size)).ok_or(Scaled::TooLarge)?;
    if !product.is_multiple_of(power) {
        return Err(Scaled::TooFine);
    }
    u64::try_from(product / power).map_err(|_| Scaled::TooLarge)
}

/// The beginning of a user's text, short enough for a message.
fn shown(text: &str) -> String {
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
    fn values_convert_exactly() {
        assert_eq!(Nanos::parse("3.9 ms"), Ok(Nanos::from_nanos(3_900_000)));
        assert_eq!(Nanos::parse("0.0051ms"), Ok(Nanos::from_nanos(5_100)));
        assert_eq!(Nanos::parse("1 µs"), Ok(Nanos::from_micros(1)));
        assert_eq!(Bytes::parse("512 KiB"), Ok(Bytes(524_288)));
        assert_eq!(Bytes::parse("1.5 GiB"), Ok(Bytes(1_610_612_736)));
        assert_eq!(Rate::parse("100 MB/s"), Ok(Rate(100_000_000)));
        assert_eq!(Rotation::parse("10045 rpm"), Ok(Rotation(10_045_000)));
        assert_eq!(Rotation::parse("5405.25 rpm"), Ok(Rotation(5_405_250)));
    }

    #[test]
    fn wrong_values_are_refused_with_what_was_expected() {
        for (text, part) in [
            ("8.5", "no unit"),
            ("ms", "does not begin with a number"),
            ("8,5 ms", "unknown unit"),
            ("8.5.1 ms", "not a number"),
            ("1. ms", "not a number"),
            ("3 fortnights", "unknown unit"),
            ("0.1 ns", "finer"),
            ("99999999999999999999999999999999999999999999 s", "too large"),
            ("2 h", "unknown unit"),
            ("61 min", "too large"),
        ] {
            let error = Nanos::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Nanos::parse("8.5").unwrap_err().contains("\"3.9 ms\""));
    }

    #[test]
    fn command_line_sizes() {
        assert_eq!(parse_capacity("4GiB"), Ok(4 << 30));
        assert_eq!(parse_capacity("4G"), Ok(4 << 30));
        assert_eq!(parse_capacity("16k"), Ok(16 << 10));
        assert_eq!(parse_capacity("400 MB"), Ok(400_000_000));
        assert!(parse_capacity("0 GiB").is_err());
        assert!(parse_capacity("1048576").unwrap_err().contains("no unit"));
        assert!(parse_rate("0 MB/s").is_err());
    }

    #[test]
    fn display_reads_back() {
        for bytes in [1, 512, 4096, 1000, 400_000_000, 8 << 30, 3 << 20, 12_345] {
            assert_eq!(Bytes::parse(&Bytes(bytes).to_string()), Ok(Bytes(bytes)));
        }
        for rotation in [7_200_000, 10_045_500] {
            assert_eq!(Rotation::parse(&Rotation(rotation).to_string()), Ok(Rotation(rotation)));
        }
    }

    #[test]
    fn transfer_times_round_up() {
        assert_eq!(Rate(3).time_for(1), Nanos::from_nanos(333_333_334));
        assert_eq!(Rate(1_000_000_000).time_for(512), Nanos::from_nanos(512));
        assert_eq!(Rate(1).time_for(u64::MAX), Nanos::MAX);
    }
}
