//! The quantities that only a MEMS device's profile has: lengths, accelerations, tip rates, frequencies, shares.

use std::fmt;

use crate::quantity::Quantity;

/// Declares a quantity that counts an internal unit and prints itself with the unit of that name.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $largest:expr, $shown:literal / $scale:literal, $units:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u64);

        impl Quantity for $name {
            const EXPECTED: &'static str = $expected;
            const UNITS: &'static [(&'static str, u64)] = $units;
            const LARGEST: u64 = $largest;

            fn from_count(count: u64) -> Self {
                $name(count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&decimal(self.0, $scale, $shown))
            }
        }
    };
}

/// Formats `count` times `1/scale`, a power of ten, with its unit.
fn decimal(count: u64, scale: u64, unit: &str) -> String {
    let digits = (count % scale + scale).to_string();
    let decimals = digits[1..].trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{}{point}{decimals} {unit}", count / scale)
}

quantity!(
    /// A length in nanometres.
    Length,
    "a length such as \"100 um\"",
    10_000_000_000,
    "nm" / 1,
    &[("nm", 1), ("um", 1_000), ("µm", 1_000), ("mm", 1_000_000)]
);

quantity!(
    /// An acceleration in micrometres per second squared.
    Acceleration,
    "an acceleration such as \"688.8 m/s2\"",
    1_000_000_000_000,
    "m/s2" / 1_000_000,
    &[("m/s2", 1_000_000), ("m/s²", 1_000_000)]
);

quantity!(
    /// Bits per second that one tip reads or writes.
    BitRate,
    "a rate per tip such as \"400 kbit/s\"",
    1_000_000_000,
    "bit/s" / 1,
    &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000)]
);

quantity!(
    /// A frequency in thousandths of a hertz.
    Frequency,
    "a frequency such as \"739 Hz\"",
    1_000_000_000,
    "Hz" / 1_000,
    &[("Hz", 1_000), ("kHz", 1_000_000)]
);

quantity!(
    /// A share in millionths.
    Share,
    "a share such as \"75 %\"",
    1_000_000,
    "%" / 10_000,
    &[("%", 10_000)]
);

quantity!(
    /// Thousandths of the time in which a settling oscillation decays to 1/e.
    TimeConstants,
    "a number of time constants such as \"2 time constants\"",
    1_000_000,
    "time constants" / 1_000,
    &[("time constants", 1_000), ("time constant", 1_000)]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        assert_eq!(Acceleration::parse("688.8 m/s2"), Ok(Acceleration(688_800_000)));
        assert_eq!(Acceleration(688_800_000).to_string(), "688.8 m/s2");
        assert_eq!(Length::parse("100 um"), Ok(Length(100_000)));
        assert_eq!(Length(100_000).to_string(), "100000 nm");
        assert_eq!(Share::parse("75 %"), Ok(Share(750_000)));
        assert_eq!(Share(755_000).to_string(), "75.5 %");
        assert_eq!(TimeConstants::parse("1.5 time constants"), Ok(TimeConstants(1_500)));
        assert_eq!(TimeConstants(1_000).to_string(), "1 time constants");
        assert_eq!(Frequency(739_000).to_string(), "739 Hz");
        assert_eq!(BitRate::parse("700 kbit/s"), Ok(BitRate(700_000)));
        assert!(Share::parse("101 %").is_err());
    }
}
