//! The verdicts on the states of a run with power cuts, condensed to a size that does not grow with their number.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;
use serde::Serialize;

use crate::crash::CrashResult;

/// Names of the draws, in the order of the table.
pub(crate) const DRAWS: [&str; 8] =
    ["none-lost", "all-lost", "one-lost", "one-kept", "half-lost", "torn", "model", "other"];
/// Names of the steps that can fail, in their order.
pub(crate) const STEPS: [&str; 7] = ["mount", "unmount", "file-system", "remount", "check", "panic", "other"];
/// Columns of the marks over time.
const COLUMNS: u64 = 400;

/// The verdicts on the states of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashStates {
    interval: (Nanos, Nanos),
    /// Passed states by draw.
    pub(crate) passed: [u64; DRAWS.len()],
    /// Failed states by draw and step.
    pub(crate) failed: [[u64; STEPS.len()]; DRAWS.len()],
    /// By draw and column. The first cut of a column places its mark.
    marks: BTreeMap<(usize, u64), Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: Nanos,
    passed: u64,
    failed: u64,
}

/// The marks of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CutMarks {
    /// Begin and end of the command in seconds of the guest's clock.
    pub interval_s: [f64; 2],
    /// Draws with states.
    pub draws: Vec<&'static str>,
    /// Instant in seconds, place in `draws`, passed states and failed states.
    pub marks: Vec<(f64, usize, u64, u64)>,
}

impl CrashStates {
    /// No verdict yet. The interval is the command's.
    #[must_use]
    pub fn new(interval: (Nanos, Nanos)) -> Self {
        let (passed, failed) = ([0; DRAWS.len()], [[0; STEPS.len()]; DRAWS.len()]);
        CrashStates { interval, passed, failed, marks: BTreeMap::new() }
    }

    /// The failures of a result, for runs whose passed states were not kept.
    #[must_use]
    pub fn of_failures(result: &CrashResult) -> Self {
        let mut states = CrashStates::new(result.interval_ns);
        for failure in &result.failures {
            states.add(&failure.draw, failure.cut_ns, Some(&failure.failed));
        }
        states
    }

    /// Adds the verdict on a state: its draw, its cut, and the failed step if there is one.
    pub fn add(&mut self, draw: &str, cut: Nanos, failed: Option<&str>) {
        let draw = place(&DRAWS, draw);
        match failed {
            Some(step) => self.failed[draw][place(&STEPS, step)] += 1,
            None => self.passed[draw] += 1,
        }
        let mark = self.marks.entry((draw, self.column(cut))).or_insert(Mark { at: cut, passed: 0, failed: 0 });
        match failed {
            Some(_) => mark.failed += 1,
            None => mark.passed += 1,
        }
    }

    /// Number of the states with a verdict.
    #[must_use]
    pub fn checked(&self) -> u64 {
        self.passed.iter().sum::<u64>() + self.failed()
    }

    /// Number of the failed states.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.iter().flatten().sum()
    }

    fn column(&self, cut: Nanos) -> u64 {
        let (begin, end) = self.interval;
        let width_ns = end.saturating_sub(begin).as_nanos() / COLUMNS + 1;
        (cut.saturating_sub(begin).as_nanos() / width_ns).min(COLUMNS)
    }

    /// Places of the draws with states.
    pub(crate) fn draws(&self) -> Vec<usize> {
        let has_states = |draw: &usize| self.passed[*draw] > 0 || self.failed[*draw].iter().any(|count| *count > 0);
        (0..DRAWS.len()).filter(has_states).collect()
    }

    pub(crate) fn cut_marks(&self) -> CutMarks {
        let draws = self.draws();
        let seconds = |at: Nanos| at.as_nanos() as f64 / 1e9;
        let row = |draw: usize| draws.iter().position(|with_states| *with_states == draw).unwrap_or_default();
        let mark = |(place, mark): (&(usize, u64), &Mark)| (seconds(mark.at), row(place.0), mark.passed, mark.failed);
        CutMarks {
            interval_s: [seconds(self.interval.0), seconds(self.interval.1)],
            marks: self.marks.iter().map(mark).collect(),
            draws: draws.iter().map(|draw| DRAWS[*draw]).collect(),
        }
    }
}

/// The place of a name; of an unknown one, the last.
fn place(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or(names.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_counted_by_draw_and_step_and_marked_at_their_cuts() {
        let nanos = Nanos::from_nanos;
        let mut states = CrashStates::new((nanos(1_000_000_000), nanos(2_000_000_000)));
        states.add("torn", nanos(1_500_000_000), None);
        states.add("torn", nanos(1_500_000_001), Some("check"));
        states.add("none-lost", nanos(1_000_000_000), None);
        states.add("<b>", nanos(u64::MAX), Some("<i>"));
        assert_eq!((states.checked(), states.failed()), (4, 2));
        assert_eq!((states.passed[5], states.failed[5][4], states.failed[7][6]), (1, 1, 1));
        let marks = states.cut_marks();
        assert_eq!(marks.draws, ["none-lost", "torn", "other"]);
        assert_eq!(marks.marks[..2], [(1.0, 0, 1, 0), (1.5, 1, 1, 1)]);
    }

    #[test]
    fn the_marks_do_not_grow_with_the_states() {
        for interval in [(0, 0), (5, 1), (0, 1_000_000), (0, u64::MAX)] {
            let mut states = CrashStates::new((Nanos::from_nanos(interval.0), Nanos::from_nanos(interval.1)));
            for at in 0..10_000 {
                states.add("torn", Nanos::from_nanos(at * 1_000_003), (at % 3 == 0).then_some("mount"));
            }
            assert_eq!(states.checked(), 10_000);
            assert!(states.cut_marks().marks.len() as u64 <= COLUMNS + 1);
        }
    }
}
