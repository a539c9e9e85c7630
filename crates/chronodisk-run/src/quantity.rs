//! Values of flags that are more than a word: sizes and durations carry a unit, as in profiles.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use chronodisk_device::{Speed, parse_capacity, parse_duration};
use chronodisk_guest::PROCESSORS_MAX;
use chronodisk_sim::{Nanos, SECTOR_BYTES};

/// A size in bytes above zero.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_capacity(text)
}

/// A size in bytes above zero that is a whole number of sectors.
pub fn sector_bytes(text: &str) -> Result<u64, String> {
    let size = parse_capacity(text)?;
    if size.is_multiple_of(SECTOR_BYTES) {
        Ok(size)
    } else {
        Err(format!("{size} bytes are not a multiple of {SECTOR_BYTES} bytes, the size of a sector"))
    }
}

/// A file for a plot, which is always SVG.
pub fn svg_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("expected a name that ends in .svg, the only format of plots".into()),
    }
}

/// A guest's number of processors.
pub fn processors(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PROCESSORS_MAX).contains(number));
    number.ok_or_else(|| format!("expected 1 to {PROCESSORS_MAX} processors"))
}

/// Reads a duration; zero is one.
pub fn duration(text: &str) -> Result<Nanos, String> {
    parse_duration(text)
}

/// Reads a duration that is not zero.
pub fn timeout(text: &str) -> Result<Nanos, String> {
    match parse_duration(text)? {
        Nanos::ZERO => Err("expected more than zero, such as 30s".into()),
        timeout => Ok(timeout),
    }
}

/// An age in days or a unit like them, such as `30d`.
pub fn age(text: &str) -> Result<Duration, String> {
    let expected = || "expected a whole number of s, min, h, d or w, such as 30d".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(expected)?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(expected()),
    };
    let number: u64 = number.parse().map_err(|_| expected())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(expected)
}

/// A range of durations, both bounds included, such as `0us..2ms`; a single duration is both bounds.
pub fn duration_range(text: &str) -> Result<RangeInclusive<Nanos>, String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (parse_duration(min)?, parse_duration(max)?);
    if min <= max { Ok(min..=max) } else { Err(format!("the range from {min} to {max} ends before it begins")) }
}

/// A share between 0 and 1, both included.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1, such as 0.7".into()),
    }
}

/// A factor above zero.
pub fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor.is_finite() => Ok(factor),
        _ => Err("expected a number above 0, such as 0.05".into()),
    }
}

/// A factor on the CPU time of the guest's kernel.
///
/// It counts in millionths. At 1,000 the kernel's work of one tick takes longer than the tick, and the guest gets
/// nowhere.
pub fn kernel_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (KERNEL_SCALE_MIN..=KERNEL_SCALE_MAX).contains(&factor) => Ok(factor),
        _ => Err(format!("expected a number from {KERNEL_SCALE_MIN} to {KERNEL_SCALE_MAX}, such as 0.05")),
    }
}

const KERNEL_SCALE_MIN: f64 = 0.000_001;
const KERNEL_SCALE_MAX: f64 = 10.0;

/// A factor on the speed of a processor, such as `2x`.
pub fn cpu_speed(text: &str) -> Result<f64, String> {
    factor_of_speed(text, |factor| (Speed::MIN..=Speed::MAX).contains(&factor).then_some(factor))
}

/// A factor on the speed of a device, such as `2x`.
pub fn device_speed(text: &str) -> Result<Speed, String> {
    factor_of_speed(text, Speed::from_factor)
}

fn factor_of_speed<T>(text: &str, accept: impl Fn(f64) -> Option<T>) -> Result<T, String> {
    let factor = text.strip_suffix('x').and_then(|number| number.parse().ok());
    factor.and_then(accept).ok_or_else(|| format!("expected {}x to {}x, such as 2x", Speed::MIN, Speed::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_of_the_range_are_refused() {
        assert_eq!(sector_bytes("16KiB"), Ok(16_384));
        assert!(sector_bytes("1000 B").unwrap_err().contains("multiple of 512"));
        let micros = Nanos::from_micros;
        assert_eq!(duration_range("0us..2ms"), Ok(micros(0)..=micros(2_000)));
        assert_eq!(duration_range("300 us"), Ok(micros(300)..=micros(300)));
        assert!(duration_range("2ms..1ms").unwrap_err().contains("ends before it begins"));
        assert!(["..1ms", "1ms..", "1..2", "1ms..2ms..3ms"].into_iter().all(|text| duration_range(text).is_err()));
        assert_eq!((cpu_speed("2x"), cpu_speed("0.5x")), (Ok(2.0), Ok(0.5)));
        assert_eq!(device_speed("1.98x").map(Speed::factor), Ok(1.98));
        for text in ["2", "0x", "-1x", "1001x", "NaNx", "x"] {
            assert_eq!(cpu_speed(text).unwrap_err(), device_speed(text).unwrap_err());
        }
        assert_eq!((age("30d"), age("2w")), (age("720h"), age("14d")));
        assert!(["30", "d", "-1d", "1.5d", "1m", "99999999999999999999d"].into_iter().all(|text| age(text).is_err()));
        assert_eq!(share("0.7"), Ok(0.7));
        assert!(["1.1", "-0.1", "NaN", "seven"].into_iter().all(|text| share(text).is_err()));
        assert!(["0", "-1", "inf", "NaN"].into_iter().all(|text| factor(text).is_err()));
        assert_eq!((kernel_scale("0.1"), kernel_scale("10")), (Ok(0.1), Ok(10.0)));
        assert!(["0", "1e-7", "10.1", "1e12", "inf", "NaN"].into_iter().all(|text| kernel_scale(text).is_err()));
    }
}
