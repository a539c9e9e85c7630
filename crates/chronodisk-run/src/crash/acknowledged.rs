//! Lines that the command acknowledged outside the device.

use chronodisk_sim::Nanos;
use serde::{Deserialize, Serialize};

/// A line, without its line break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Instant at which its end was written.
    pub at_ns: Nanos,
    /// Its text; bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Collects the lines of a run.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    lines: Vec<Line>,
    rest: Vec<u8>,
}

impl Acknowledged {
    /// Adds bytes that the command wrote. A line counts when it has ended.
    pub fn add(&mut self, at: Nanos, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
            self.rest.drain(..=end);
            self.lines.push(Line { at_ns: at, text });
        }
    }

    pub fn into_lines(self) -> Vec<Line> {
        self.lines
    }
}

/// The number of lines acknowledged by an instant.
pub(super) fn count_by(lines: &[Line], at: Nanos) -> usize {
    lines.partition_point(|line| line.at_ns <= at)
}

/// The text of these lines, for the check.
pub(super) fn text_of(lines: &[Line]) -> String {
    lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_at_the_instant_of_its_end() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.add(Nanos::from_nanos(1), b"on");
        acknowledged.add(Nanos::from_nanos(5), b"e\ntwo\nthr");
        let lines = acknowledged.into_lines();
        assert_eq!(count_by(&lines, Nanos::from_nanos(4)), 0);
        assert_eq!(count_by(&lines, Nanos::from_nanos(5)), 2);
        assert_eq!(text_of(&lines), "one\ntwo\n");
    }
}
