//! Numbers, sizes and times of job files.

use chronodisk_sim::Nanos;

use super::section::Setting;
use super::{Amount, FioJobError, shown};

/// fio's units of time.
const TIME_UNITS: [(&str, u64); 12] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", SECOND_NS),
    ("sec", SECOND_NS),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("us", MICROSECOND_NS),
    ("usec", MICROSECOND_NS),
    ("u", MICROSECOND_NS),
    ("ns", 1),
    ("nsec", 1),
];

pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const MICROSECOND_NS: u64 = 1_000;

/// The longest time: 18 years, the latest arrival of a simulation.
const TIME_MAX_NS: u64 = 1 << 59;

impl Setting<'_> {
    /// The value, which may not be missing.
    pub(super) fn text(&self) -> &str {
        self.value.unwrap_or_default()
    }

    pub(super) fn wrong(&self, expected: impl std::fmt::Display) -> FioJobError {
        let found = match self.value {
            None | Some("") => "no value".to_owned(),
            Some(value) => shown(value),
        };
        FioJobError::new(self.line, self.written, found, expected).in_file(self.file)
    }

    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, FioJobError> {
        let found = self.text().parse().ok().or_else(|| self.bytes_of(self.text()));
        found
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.wrong(format_args!("a whole number from {least} to {most}")))
    }

    /// A key that stands alone is on.
    pub(super) fn flag(&self) -> Result<bool, FioJobError> {
        match self.value {
            None | Some("" | "1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => Err(self.wrong("0 or 1")),
        }
    }

    pub(super) fn bytes(&self, expected: &str) -> Result<u64, FioJobError> {
        self.bytes_of(self.text()).ok_or_else(|| self.wrong(expected))
    }

    pub(super) fn amount(&self) -> Result<Amount, FioJobError> {
        self.amount_of(self.text()).ok_or_else(|| self.wrong("a size such as 1g, or a share of the device such as 50%"))
    }

    /// A size, or a share of the device.
    pub(super) fn amount_of(&self, text: &str) -> Option<Amount> {
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 0..=100) => Some(Amount::Percent(percent)),
                _ => None,
            },
            None => self.bytes_of(text).map(Amount::Bytes),
        }
    }

    /// A size with fio's units. One of `k` and `ki` (and so on) is a power of 1000, depending on `kb_base`.
    pub(super) fn bytes_of(&self, text: &str) -> Option<u64> {
        let (number, unit) = parts(text)?;
        let (kilo, kibi) = if self.kilo == 1_000 { (1_000, 1_024) } else { (1_024, 1_000) };
        let unit = unit.strip_suffix('b').unwrap_or(&unit);
        let (prefix, base) = match unit.strip_suffix('i') {
            Some(prefix) => (prefix, kibi),
            None => (unit, kilo),
        };
        let power = match prefix {
            "" if unit.is_empty() => 0,
            "k" => 1,
            "m" => 2,
            "g" => 3,
            "t" => 4,
            "p" => 5,
            _ => return None,
        };
        let scaled = number.times(u64::pow(base, power))?;
        // Sectors of a device have numbers of 64 bits, bytes are kept well below.
        Some(scaled).filter(|bytes| *bytes <= 1 << 60)
    }

    /// A time; a number without a unit is in units of `default_ns`.
    pub(super) fn time(&self, default_ns: u64) -> Result<Nanos, FioJobError> {
        let unit_ns = |unit: &str| match unit {
            "" => Some(default_ns),
            _ => TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns),
        };
        let found = parts(self.text()).and_then(|(number, unit)| number.times(unit_ns(&unit)?));
        found
            .filter(|ns| *ns <= TIME_MAX_NS)
            .map(Nanos::from_nanos)
            .ok_or_else(|| self.wrong("a number with a unit such as s, ms or us, up to 18 years"))
    }

    /// Values for reads, writes and trims, separated by commas. fio uses the last given value for those missing after
    /// it, unless a comma leaves them unchanged.
    pub(super) fn triplet<T: Clone>(
        &self,
        into: &mut [T; 3],
        mut read: impl FnMut(&str) -> Result<T, FioJobError>,
    ) -> Result<(), FioJobError> {
        let parts: Vec<&str> = self.text().split(',').map(str::trim).collect();
        if parts.len() > 3 {
            return Err(self.wrong("at most three values, of reads, writes and trims"));
        }
        let mut last = None;
        for (index, part) in parts.iter().enumerate() {
            if !part.is_empty() {
                into[index] = read(part)?;
                last = Some(into[index].clone());
            } else if index + 1 == parts.len() {
                last = None;
            }
        }
        if let Some(last) = last {
            into[parts.len()..].fill(last);
        }
        Ok(())
    }
}

/// A number as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(u64),
    Decimal(f64),
}

impl Number {
    fn times(self, factor: u64) -> Option<u64> {
        match self {
            Number::Whole(number) => number.checked_mul(factor),
            Number::Decimal(number) => Some((number * factor as f64) as u64),
        }
    }
}

/// A number and its unit in lower case.
fn parts(text: &str) -> Option<(Number, String)> {
    let text = text.to_ascii_lowercase();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(|number| (Number::Whole(number), String::new()));
    }
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = match number.parse() {
        Ok(whole) => Number::Whole(whole),
        Err(_) if number.contains('.') && number.starts_with(|first: char| first.is_ascii_digit()) => {
            Number::Decimal(number.parse().ok().filter(|decimal: &f64| decimal.is_finite())?)
        }
        Err(_) => return None,
    };
    Some((number, unit.to_owned()))
}
