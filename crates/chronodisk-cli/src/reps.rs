//! How often a run is repeated.

use std::fmt;
use std::str::FromStr;

use chronodisk_report::{Estimate, RunResult};

/// So often, or until the mean is known well enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reps {
    /// So often.
    Fixed(u32),
    /// At least [`AUTO_MIN`] times, and until the 95 % confidence interval of the run time reaches less than
    /// [`AUTO_HALF_WIDTH`] of the mean to either side: the rule of Memulator (FAST 2002, section 6) and of David (TOS
    /// 2012, section 6).
    Auto,
}

/// Repetitions that [`Reps::Auto`] makes at least.
pub const AUTO_MIN: u32 = 10;
/// Repetitions after which it gives up.
pub const AUTO_MAX: u32 = 100;
/// Half the width of the confidence interval below which it stops, as a share of the mean.
pub const AUTO_HALF_WIDTH: f64 = 0.05;
const FIXED_MAX: u32 = 10_000;

impl FromStr for Reps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Reps::Auto),
            (_, Ok(count @ 1..=FIXED_MAX)) => Ok(Reps::Fixed(count)),
            _ => Err(format!("expected a number from 1 to {FIXED_MAX}, or auto")),
        }
    }
}

impl fmt::Display for Reps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reps::Fixed(count) => count.fmt(f),
            Reps::Auto => f.write_str("auto"),
        }
    }
}

impl Reps {
    /// Whether another repetition is due after those of `result`.
    pub fn wants_more(self, result: &RunResult) -> bool {
        let done = result.reps.len();
        match self {
            Reps::Fixed(count) => done < count as usize,
            Reps::Auto => {
                done < AUTO_MIN as usize
                    || (done < AUTO_MAX as usize && half_width(result).is_none_or(|share| share >= AUTO_HALF_WIDTH))
            }
        }
    }

    /// What a reader should know of how it ended.
    pub fn warning(self, result: &RunResult) -> Option<String> {
        let share = half_width(result)?;
        let gave_up = self == Reps::Auto && result.reps.len() >= AUTO_MAX as usize && share >= AUTO_HALF_WIDTH;
        gave_up.then(|| {
            format!(
                "after {AUTO_MAX} repetitions the 95 % interval of the run time still reaches {:.1} % to either side",
                share * 100.0
            )
        })
    }

    /// Which repetition comes next, in words.
    pub fn of(self, index: u32) -> String {
        match self {
            Reps::Fixed(count) => format!("repetition {} of {count}", index + 1),
            Reps::Auto => format!("repetition {}", index + 1),
        }
    }
}

/// Half the width of the 95 % confidence interval of the run time, as a share of its mean.
fn half_width(result: &RunResult) -> Option<f64> {
    let times: Vec<f64> = result.reps.iter().map(|rep| rep.run_time_ns.as_secs_f64()).collect();
    let estimate = Estimate::of(&times)?;
    let half_width = estimate.half_width_95?;
    Some(if estimate.mean > 0.0 { half_width / estimate.mean } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sensible_counts_are_taken() {
        assert_eq!("auto".parse(), Ok(Reps::Auto));
        assert_eq!("3".parse(), Ok(Reps::Fixed(3)));
        for text in ["0", "10001", "-1", "many", ""] {
            assert!(text.parse::<Reps>().unwrap_err().contains("or auto"), "{text}");
        }
    }
}
