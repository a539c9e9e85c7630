//! Numbers, sizes and times of job files.

use chronodisk_sim::Nanos;

use super::section::Setting;
use super::{Amount, FioJobError, shown};

/// fio's units of size at its default `kb_base=1024`: those with an i are powers of 1000.
const SIZE_UNITS: [(&str, u64); 15] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1 << 40),
    ("kib", 1_000),
    ("mib", 1_000_000),
    ("gib", 1_000_000_000),
    ("tib", 1_000_000_000_000),
    ("pib", 1_000_000_000_000_000),
];

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
        match self.value {
            None | Some("") => FioJobError::new(self.line, self.key, "no value", expected),
            Some(value) => FioJobError::new(self.line, self.key, shown(value), expected),
        }
    }

    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, FioJobError> {
        let found = parts(self.text()).filter(|(_, unit)| unit.is_empty()).map(|(number, _)| number);
        found
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.wrong(format_args!("a whole number from {least} to {most}")))
    }

    /// A key that stands alone is on.
    pub(super) fn flag(&self) -> Result<bool, FioJobError> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => Err(self.wrong("0 or 1")),
        }
    }

    pub(super) fn bytes(&self, expected: &str) -> Result<u64, FioJobError> {
        bytes(self.text()).ok_or_else(|| self.wrong(expected))
    }

    pub(super) fn amount(&self) -> Result<Amount, FioJobError> {
        const EXPECTED: &str = "a size such as 1g, or a share of the device such as 50%";
        match self.text().strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Amount::Percent(percent)),
                _ => Err(self.wrong(EXPECTED)),
            },
            None => self.bytes(EXPECTED).map(Amount::Bytes),
        }
    }

    /// A time; a number without a unit is in units of `default_ns`.
    pub(super) fn time(&self, default_ns: u64) -> Result<Nanos, FioJobError> {
        let unit_ns = |unit: &str| match unit {
            "" => Some(default_ns),
            _ => TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns),
        };
        let found = parts(self.text()).and_then(|(number, unit)| number.checked_mul(unit_ns(&unit)?));
        found
            .filter(|ns| *ns <= TIME_MAX_NS)
            .map(Nanos::from_nanos)
            .ok_or_else(|| self.wrong("a whole number with a unit such as s, ms or us, up to 18 years"))
    }
}

/// A number and the lower-case unit behind it.
fn parts(text: &str) -> Option<(u64, String)> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].to_ascii_lowercase()))
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = parts(text)?;
    let (_, unit_bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    // Sectors of a device have numbers of 64 bits, bytes are kept well below.
    number.checked_mul(*unit_bytes).filter(|bytes| *bytes <= 1 << 60)
}
