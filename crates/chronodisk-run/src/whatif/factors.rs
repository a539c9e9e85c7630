//! Factors of a faster device.

use std::fmt;
use std::str::FromStr;

use chronodisk_engine::dilation::Speedup;

/// A factor of at least 1, or infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor(f64);

impl Factor {
    pub(super) const ONE: Factor = Factor(1.0);

    pub(super) fn value(self) -> f64 {
        self.0
    }

    pub(super) fn is_infinite(self) -> bool {
        self.0.is_infinite()
    }

    pub(super) fn speedup(self) -> Speedup {
        Speedup::from_factor(self.0).expect("it was checked")
    }
}

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "inf" => f64::INFINITY,
            _ => text.parse().ok().filter(|number: &f64| number.is_finite()).unwrap_or(f64::NAN),
        };
        match Speedup::from_factor(number) {
            Some(_) => Ok(Factor(number)),
            None => Err("expected a number of at least 1, such as 2, or inf".to_owned()),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_infinite() { f.write_str("inf") } else { write!(f, "{}", self.0) }
    }
}

/// Factors of both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    pub reads: Factor,
    pub writes: Factor,
}

impl fmt::Display for Factors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reads == self.writes {
            true => write!(f, "R = {}", self.reads),
            false => write!(f, "R = {} for reads, {} for writes", self.reads, self.writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_below_one_are_refused() {
        for text in ["0.5", "0", "-2", "NaN", "infinity", "2x", "", "1e999"] {
            assert!(text.parse::<Factor>().unwrap_err().contains("at least 1"), "{text}");
        }
        assert_eq!("1.98".parse(), Ok(Factor(1.98)));
        assert!("inf".parse::<Factor>().unwrap().is_infinite());
    }

    #[test]
    fn directions_are_named_if_they_differ() {
        let factors =
            |reads: &str, writes: &str| Factors { reads: reads.parse().unwrap(), writes: writes.parse().unwrap() };
        assert_eq!(factors("2", "2").to_string(), "R = 2");
        assert_eq!(factors("inf", "1").to_string(), "R = inf for reads, 1 for writes");
    }
}
