//! Number of repetitions of a run.

use std::fmt;
use std::str::FromStr;

use chronodisk_report::{Estimate, PilotResult, RunResult, student_t_975};

/// A fixed number, or until the mean is known well enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reps {
    /// A fixed number.
    Fixed(u32),
    /// The number that a pilot of 5 repetitions calls for: the 95 % confidence interval of the run time must reach 5 %
    /// of the mean to either side, the width of Memulator (FAST 2002, section 6) and David (TOS 2012, section 6). The
    /// pilot does not count: stopping when the interval is narrow enough would select samples that happen to agree.
    Auto,
}

/// Repetitions of the pilot.
const AUTO_PILOT: u32 = 5;

/// Repetitions that [`Reps::Auto`] makes at least.
const AUTO_MIN: u32 = 10;
/// Repetitions that it makes at most.
const AUTO_MAX: u32 = 100;
/// Half the width of the confidence interval that it aims at, as a share of the mean.
const AUTO_HALF_WIDTH: f64 = 0.05;
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
    /// Whether a further repetition follows those in `result`.
    pub fn wants_more(self, result: &RunResult) -> bool {
        self.left(result) > 0
    }

    /// The next repetition, counted from 0, and the offset of its seed from the first one.
    pub fn next(self, result: &RunResult) -> (u32, u64) {
        let index = result.reps.len() as u32;
        let of_pilot = result.pilot.as_ref().map_or(0, |pilot| pilot.run_times_s.len());
        (index, of_pilot as u64 + u64::from(index))
    }

    /// After the last repetition of a pilot, decides how many follow, and takes the pilot's out of the result. Returns
    /// how many these were.
    pub fn end_pilot(self, result: &mut RunResult) -> Option<u32> {
        if self != Reps::Auto || result.pilot.is_some() || result.reps.len() < AUTO_PILOT as usize {
            return None;
        }
        let run_times_s: Vec<f64> = result.reps.drain(..).map(|rep| rep.run_time_ns.as_secs_f64()).collect();
        result.warnings.clear();
        result.pilot = Some(PilotResult { repetitions: repetitions_needed(&run_times_s), run_times_s });
        Some(AUTO_PILOT)
    }

    /// A warning about the way it ended.
    pub fn warning(self, result: &RunResult) -> Option<String> {
        let share = half_width(result)?;
        let is_last = self == Reps::Auto && result.pilot.is_some() && !self.wants_more(result);
        (is_last && share >= AUTO_HALF_WIDTH).then(|| {
            format!(
                "the 95 % interval of the run time reaches {:.1} % to either side, more than the {:.0} % that the \
                 pilot promised for {} repetitions",
                share * 100.0,
                AUTO_HALF_WIDTH * 100.0,
                result.reps.len()
            )
        })
    }

    /// The next repetition, in words.
    pub fn of(self, result: &RunResult) -> String {
        let (next, count) = (result.reps.len() + 1, self.planned(result));
        match (self, &result.pilot) {
            (Reps::Auto, None) => format!("pilot, repetition {next} of {count}"),
            _ => format!("repetition {next} of {count}"),
        }
    }

    /// Number of repetitions that follow those in `result`, as far as it is decided.
    pub fn left(self, result: &RunResult) -> u32 {
        self.planned(result).saturating_sub(result.reps.len() as u32)
    }

    /// Total number of repetitions, as far as it is decided.
    fn planned(self, result: &RunResult) -> u32 {
        match (self, &result.pilot) {
            (Reps::Fixed(count), _) => count,
            (Reps::Auto, None) => AUTO_PILOT,
            (Reps::Auto, Some(pilot)) => pilot.repetitions,
        }
    }
}

/// The smallest number of repetitions with a sufficiently narrow interval, if they vary like the pilot's.
fn repetitions_needed(run_times_s: &[f64]) -> u32 {
    let count = run_times_s.len() as f64;
    let mean = run_times_s.iter().sum::<f64>() / count;
    let deviation = (run_times_s.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
    let half_width =
        |repetitions: u32| student_t_975(repetitions as usize - 1) * deviation / f64::from(repetitions).sqrt();
    (AUTO_MIN..AUTO_MAX).find(|&repetitions| half_width(repetitions) <= AUTO_HALF_WIDTH * mean).unwrap_or(AUTO_MAX)
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
    fn a_pilot_that_varies_asks_for_more_repetitions() {
        assert_eq!(repetitions_needed(&[2.0; 5]), AUTO_MIN);
        // A deviation of 0.158 of a mean of 1: t × 0.158 / √n is 0.05 at 41 (2.021), and not yet at 40 (2.023).
        assert_eq!(repetitions_needed(&[0.8, 0.9, 1.0, 1.1, 1.2]), 41);
        assert_eq!(repetitions_needed(&[0.1, 5.0, 0.2, 9.0, 0.1]), AUTO_MAX);
    }

    #[test]
    fn only_sensible_counts_are_taken() {
        assert_eq!("auto".parse(), Ok(Reps::Auto));
        assert_eq!("3".parse(), Ok(Reps::Fixed(3)));
        for text in ["0", "10001", "-1", "many", ""] {
            assert!(text.parse::<Reps>().unwrap_err().contains("or auto"), "{text}");
        }
    }
}
