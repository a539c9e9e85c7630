//! Time as the models know it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// An instant or a duration in integer nanoseconds; the name of the value tells which.
///
/// 64 bits hold 584 years. Arithmetic that leaves this range panics, because no validated input
/// can reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// The origin of a run's time, and the empty duration.
    pub const ZERO: Nanos = Nanos(0);
    /// The last representable instant; used as "never" where an `Option` would not fit.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// Makes a duration from a count of nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Nanos(nanos)
    }

    /// Makes a duration from a count of microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Nanos(micros * 1_000)
    }

    /// Makes a duration from a count of milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Nanos(millis * 1_000_000)
    }

    /// Makes a duration from a count of seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Nanos(secs * 1_000_000_000)
    }

    /// The count of nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In seconds, for people and for JSON.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// In milliseconds, for people and for JSON.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In microseconds, for people and for JSON.
    #[must_use]
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The duration since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The sum, or [`Nanos::MAX`] where it does not fit.
    #[must_use]
    pub const fn saturating_add(self, duration: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(duration.0))
    }

    /// The sum, or `None` on an overflow.
    #[must_use]
    pub const fn checked_add(self, duration: Nanos) -> Option<Nanos> {
        match self.0.checked_add(duration.0) {
            Some(nanos) => Some(Nanos(nanos)),
            None => None,
        }
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, duration: Nanos) -> Nanos {
        Nanos(self.0.checked_add(duration.0).expect("time beyond 584 years"))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, duration: Nanos) {
        *self = *self + duration;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.checked_sub(earlier.0).expect("a duration can't be negative"))
    }
}

impl fmt::Display for Nanos {
    /// With a unit that leaves one to three digits before the point, and three digits after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let text = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => format!("{:.3} µs", nanos / 1e3),
            1_000_000..1_000_000_000 => format!("{:.3} ms", nanos / 1e6),
            _ => format!("{:.3} s", nanos / 1e9),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_picks_the_unit() {
        for (nanos, text) in [(7, "7 ns"), (50_000, "50.000 µs"), (10_000_000, "10.000 ms"), (2_500_000_000, "2.500 s")]
        {
            assert_eq!(Nanos::from_nanos(nanos).to_string(), text);
        }
    }

    #[test]
    fn constructors_agree() {
        assert_eq!(Nanos::from_secs(1), Nanos::from_millis(1_000));
        assert_eq!(Nanos::from_millis(1), Nanos::from_micros(1_000));
        assert_eq!(Nanos::from_micros(1).as_nanos(), 1_000);
    }

    #[test]
    #[should_panic(expected = "negative")]
    fn a_negative_duration_panics() {
        let _ = Nanos::ZERO - Nanos::from_nanos(1);
    }
}
