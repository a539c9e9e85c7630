//! Reads the fields out of a profile.

use std::fmt;
use std::ops::Range;

use super::super::parameters::*;
use super::{Key, Outcome, PositionUnit, Visit, VisitZone, Visitor};
use crate::fields::{Fields, ProfileError, nearest};
use crate::quantity::{Quantity, Rate};

/// One table, and where everything that was read so far stands.
pub(super) struct Reader<'f, 'a> {
    fields: &'f mut Fields<'a>,
    /// Path of the table, with a dot behind it.
    path: String,
    spans: Vec<(String, Range<usize>)>,
}

impl<'f, 'a> Reader<'f, 'a> {
    pub(super) fn new(fields: &'f mut Fields<'a>) -> Self {
        Reader { fields, path: String::new(), spans: Vec::new() }
    }

    /// Paths such as `geometry.zones[3].slips`, and where their values stand.
    pub(super) fn into_spans(self) -> Vec<(String, Range<usize>)> {
        self.spans
    }

    /// Whether to read the key: it is there, or must be.
    fn reads(&mut self, key: Key) -> bool {
        let path = format!("{}{}", self.path, key.name);
        self.spans.push((path, self.fields.span(key.name)));
        self.fields.has(key.name) || !key.optional
    }

    fn quantity<T: Quantity>(&mut self, key: Key, default: T) -> Result<T, ProfileError> {
        self.reads(key);
        match key.optional {
            true => self.fields.quantity_or(key.name, default),
            false => self.fields.quantity(key.name),
        }
    }

    /// A table below this one.
    fn descend(&mut self, path: String, mut inner: Fields<'a>, visit: &mut Visit<'_>) -> Outcome {
        self.spans.push((path.clone(), inner.span("")));
        let spans = std::mem::take(&mut self.spans);
        let mut reader = Reader { fields: &mut inner, path: format!("{path}."), spans };
        let visited = visit(&mut reader);
        self.spans = reader.spans;
        visited?;
        inner.finish()
    }
}

/// Most entries of an array in a profile; the parameters' own limits are checked afterwards.
const MAX_ENTRIES: usize = limits::LISTED_POSITIONS;

impl Visitor for Reader<'_, '_> {
    fn time(&mut self, key: Key, value: &mut Picos) -> Outcome {
        *value = self.quantity(key, *value)?;
        Ok(())
    }

    fn signed_time(&mut self, key: Key, value: &mut Picos) -> Outcome {
        if self.reads(key) {
            let SignedPicos(picos) = self.fields.quantity(key.name)?;
            self.fields.amend(|asked| asked.is_required = !key.optional);
            *value = Picos(picos);
        } else {
            self.fields.know(key.name);
        }
        Ok(())
    }

    fn fraction(&mut self, key: Key, value: &mut Millionths) -> Outcome {
        self.reads(key);
        let found = self.fields.optional_millionths(key.name)?;
        self.fields.amend(|asked| asked.is_required = !key.optional);
        match found {
            Some(millionths) => *value = Millionths(i64::try_from(millionths).unwrap_or(i64::MAX)),
            None if key.optional => {}
            None => return Err(self.fields.error(format!("`{}` is missing; expected a number", key.name))),
        }
        Ok(())
    }

    fn count(&mut self, key: Key, value: &mut u32, least: u32, most: u32) -> Outcome {
        self.reads(key);
        *value = match key.optional {
            true => self.fields.optional_count(key.name, least..=most)?.unwrap_or(*value),
            false => self.fields.count(key.name, least..=most)?,
        };
        Ok(())
    }

    fn sectors(&mut self, key: Key, value: &mut u64, most: u64) -> Outcome {
        let Sectors(sectors) = self.quantity(key, Sectors(*value))?;
        if sectors > most {
            return Err(self.fields.error_at(key.name, format!("expected at most {most} sectors")));
        }
        *value = sectors;
        Ok(())
    }

    fn positions(&mut self, key: Key, value: &mut u64, unit: PositionUnit) -> Outcome {
        *value = match unit {
            PositionUnit::Sectors => self.quantity(key, Sectors(*value))?.0,
            PositionUnit::Tracks => self.quantity(key, Tracks(*value))?.0,
        };
        Ok(())
    }

    fn angle(&mut self, key: Key, value: &mut Millionths, unit: &mut Option<SkewUnit>) -> Outcome {
        if !self.reads(key) {
            self.fields.know(key.name);
            return Ok(());
        }
        let Angle(found, millionths) = self.fields.quantity(key.name)?;
        self.fields.amend(|asked| asked.is_required = !key.optional);
        if *unit.get_or_insert(found) != found {
            return Err(self
                .fields
                .error_at(key.name, "expected the unit of the angles before: all sectors or all turns"));
        }
        *value = Millionths(i64::try_from(millionths).unwrap_or(i64::MAX));
        Ok(())
    }

    fn rate(&mut self, key: Key, value: &mut Option<u64>) -> Outcome {
        if self.reads(key) {
            let Rate(bytes_per_second) = self.fields.positive(key.name)?;
            self.fields.amend(|asked| asked.is_required = !key.optional);
            *value = Some(bytes_per_second);
        } else {
            self.fields.know(key.name);
        }
        Ok(())
    }

    fn rotation(&mut self, key: Key, value: &mut Rpm) -> Outcome {
        const EXPECTED: &str = "turns a minute such as \"10045 rpm\", \"7200.5 rpm\" or \"60000/7 rpm\"";
        self.reads(key);
        let text = self.fields.text(key.name)?;
        self.fields.amend(|asked| asked.expected = Some(EXPECTED.to_owned()));
        *value = parse_rpm(&text).ok_or_else(|| self.fields.error_at(key.name, format!("expected {EXPECTED}")))?;
        Ok(())
    }

    fn flag(&mut self, key: Key, value: &mut bool) -> Outcome {
        self.reads(key);
        *value = self.fields.flag_or(key.name, *value)?;
        Ok(())
    }

    fn choice(&mut self, key: Key, names: &[&str], index: &mut usize) -> Outcome {
        if !self.reads(key) {
            self.fields.know(key.name);
            return Ok(());
        }
        let text = self.fields.text(key.name)?;
        self.fields.amend(|asked| {
            asked.expected = Some(format!("one of {}", names.join(", ")));
            asked.is_required = !key.optional;
        });
        let Some(found) = names.iter().position(|&name| name == text) else {
            let error = self.fields.error_at(key.name, format!("no such choice; expected {}", names.join(", ")));
            return Err(match nearest(&text, names.iter().copied()).first() {
                Some(near) => error.with_help(format!("did you mean `{near}`?")),
                None => error,
            });
        };
        *index = found;
        Ok(())
    }

    fn wholes(&mut self, key: Key, values: &mut Vec<u64>) -> Outcome {
        self.reads(key);
        *values = self.fields.wholes(key.name, MAX_ENTRIES)?;
        Ok(())
    }

    fn defects(&mut self, key: Key, values: &mut Vec<Defect>) -> Outcome {
        self.reads(key);
        let pairs = self.fields.whole_pairs(key.name, MAX_ENTRIES)?;
        *values = pairs.into_iter().map(|(original, replacement)| Defect { original, replacement }).collect();
        Ok(())
    }

    fn seek_points(&mut self, key: Key, values: &mut Vec<SeekPoint>) -> Outcome {
        self.reads(key);
        let pairs = self.fields.quantity_pairs::<Picos>(key.name, limits::SEEK_POINTS)?;
        let point = |(cylinders, time): (u64, Picos)| SeekPoint {
            cylinders: u32::try_from(cylinders).unwrap_or(u32::MAX),
            time,
        };
        *values = pairs.into_iter().map(point).collect();
        Ok(())
    }

    fn times(&mut self, key: Key, values: &mut [Picos]) -> Outcome {
        self.reads(key);
        let times = self.fields.quantities::<Picos>(key.name, values.len())?;
        if times.len() != values.len() {
            return Err(self.fields.error_at(key.name, format!("{} entries; expected {}", times.len(), values.len())));
        }
        values.copy_from_slice(&times);
        Ok(())
    }

    fn table(&mut self, key: Key, present: &mut bool, visit: &mut Visit<'_>) -> Outcome {
        let inner = match key.optional {
            true => self.fields.optional_table(key.name)?,
            false => Some(self.fields.table(key.name)?),
        };
        *present = inner.is_some();
        match inner {
            Some(inner) => self.descend(format!("{}{}", self.path, key.name), inner, visit),
            None => Ok(()),
        }
    }

    fn zones(&mut self, key: Key, zones: &mut Vec<ZoneParameters>, visit: &mut VisitZone<'_>) -> Outcome {
        for (index, inner) in self.fields.tables(key.name, limits::ZONES)?.into_iter().enumerate() {
            let mut zone = ZoneParameters::default();
            let path = format!("{}{}[{index}]", self.path, key.name);
            self.descend(path, inner, &mut |visitor| visit(visitor, &mut zone))?;
            zones.push(zone);
        }
        Ok(())
    }

    fn is_reading(&self) -> bool {
        true
    }
}

/// `10045 rpm`, `7200.5 rpm`, `60000/7 rpm` as a fraction in lowest terms.
fn parse_rpm(text: &str) -> Option<Rpm> {
    let number = text.trim().strip_suffix("rpm")?.trim_end();
    let (numerator, denominator) = match number.split_once('/') {
        Some((numerator, denominator)) => (digits(numerator)?, digits(denominator)?),
        None => {
            let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
            let power = u32::try_from(decimals.len()).ok().filter(|&power| power <= 9)?;
            (digits(&format!("{whole}{decimals}"))?, 10u64.pow(power))
        }
    };
    Rpm::fraction(numerator, denominator)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl Quantity for Picos {
    const EXPECTED: &'static str = "a duration such as \"0.28362 ms\"";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("ps", 1),
        ("ns", 1_000),
        ("us", 1_000_000),
        ("µs", 1_000_000),
        ("ms", 1_000_000_000),
        ("s", 1_000_000_000_000),
    ];
    const LARGEST: u64 = limits::TIME_PICOS as u64;

    fn from_count(count: u64) -> Self {
        Picos(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Picos {
    /// In milliseconds, with as many decimals as there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.unsigned_abs() / 1_000_000_000, self.0.unsigned_abs() % 1_000_000_000);
        let decimals = format!("{whole}.{rest:09}");
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{} ms", decimals.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A time or a difference of times.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct SignedPicos(i64);

impl Quantity for SignedPicos {
    const EXPECTED: &'static str = "a duration such as \"0.461 ms\" or \"-0.483 ms\"";
    const UNITS: &'static [(&'static str, u64)] = Picos::UNITS;
    const LARGEST: u64 = Picos::LARGEST;

    fn from_count(count: u64) -> Self {
        SignedPicos(Picos::from_count(count).0)
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.trim_start().strip_prefix('-') {
            Some(positive) => Picos::parse(positive).map(|picos| SignedPicos(-picos.0)),
            None => Picos::parse(text).map(|picos| SignedPicos(picos.0)),
        }
    }
}

impl fmt::Display for SignedPicos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Picos(self.0).fmt(f)
    }
}

/// A number of sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Sectors(u64);

impl Quantity for Sectors {
    const EXPECTED: &'static str = "a number of sectors such as \"561 sectors\"";
    const UNITS: &'static [(&'static str, u64)] =
        &[("sectors", 1), ("sector", 1), ("KiB", 2), ("MiB", 2 << 10), ("GiB", 2 << 20), ("TiB", 2 << 30)];
    const LARGEST: u64 = 1 << 51;

    fn from_count(count: u64) -> Self {
        Sectors(count)
    }
}

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sectors", self.0)
    }
}

/// A number of tracks.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Tracks(u64);

impl Quantity for Tracks {
    const EXPECTED: &'static str = "a number of tracks such as \"325 tracks\", as this sparing counts";
    const UNITS: &'static [(&'static str, u64)] = &[("tracks", 1), ("track", 1)];
    const LARGEST: u64 = 1 << 32;

    fn from_count(count: u64) -> Self {
        Tracks(count)
    }
}

impl fmt::Display for Tracks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tracks", self.0)
    }
}

/// An angle in millionths of its unit.
#[derive(Clone, Copy, PartialEq)]
struct Angle(SkewUnit, u64);

impl PartialOrd for Angle {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.1.partial_cmp(&other.1)
    }
}

impl Quantity for Angle {
    const EXPECTED: &'static str = "an angle such as \"97 sectors\" or \"0.25 turns\"";
    const UNITS: &'static [(&'static str, u64)] = &[("sectors", 1_000_000), ("turns", 1_000_000)];
    const LARGEST: u64 = 1 << 40;

    fn from_count(count: u64) -> Self {
        Angle(SkewUnit::Blocks, count)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Angle(_, millionths) = crate::quantity::parse_quantity::<Self>(text)?;
        let unit = if text.trim_end().ends_with("turns") { SkewUnit::Revolutions } else { SkewUnit::Blocks };
        Ok(Angle(unit, millionths))
    }
}

impl fmt::Display for Angle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.0 == SkewUnit::Blocks { "sectors" } else { "turns" };
        let (whole, rest) = (self.1 / 1_000_000, self.1 % 1_000_000);
        write!(f, "{} {unit}", format!("{whole}.{rest:06}").trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_exact_fractions() {
        let rpm = |numerator, denominator| Some(Rpm { numerator, denominator });
        assert_eq!(parse_rpm("10045 rpm"), rpm(10_045, 1));
        assert_eq!(parse_rpm("7200.5rpm"), rpm(14_401, 2));
        assert_eq!(parse_rpm("60000/7 rpm"), rpm(60_000, 7));
        for wrong in ["", "rpm", "7200", "x rpm", "1/0 rpm", "0/0 rpm", "1/2/3 rpm", "-1 rpm", "99999999999 rpm"] {
            assert_eq!(parse_rpm(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_exact_and_may_be_differences() {
        assert_eq!(Picos::parse("0.28362 ms"), Ok(Picos(283_620_000)));
        assert_eq!(SignedPicos::parse("-0.483 ms").unwrap().0, -483_000_000);
        assert_eq!(Picos(-483_000_000).to_string(), "-0.483 ms");
        assert_eq!((Picos(0).to_string(), Picos(1).to_string()), ("0 ms".to_owned(), "0.000000001 ms".to_owned()));
        assert!(Picos::parse("-1 ms").is_err() && Picos::parse("0.1 ps").is_err() && Picos::parse("11 s").is_err());
    }

    #[test]
    fn angles_have_units() {
        let angle = Angle::parse("0.25 turns").unwrap();
        assert_eq!((angle.0, angle.1), (SkewUnit::Revolutions, 250_000));
        assert_eq!(angle.to_string(), "0.25 turns");
        assert_eq!(Angle::parse("97 sectors").unwrap().to_string(), "97 sectors");
        assert!(Angle::parse("97 blocks").is_err() && Angle::parse("97").is_err());
    }
}
