//! The result of checks after power cuts: its JSON, and its text for people.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use chronodisk_sim::{Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::error::ReportError;
use crate::files::write_atomically;
use crate::schema::{read_json, to_json};
use crate::table::counted;

/// Schema of the result.
pub const CRASH_SCHEMA: &str = "chronodisk-crash/1";
/// Failures that the text describes.
const DESCRIBED_MAX: usize = 10;

/// The result of the checks of a recorded run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashResult {
    /// Name and version of this form.
    pub schema: String,
    /// Id of the run.
    pub run_id: String,
    /// File system of the device.
    pub file_system: String,
    /// The check.
    pub check: String,
    /// Rule of the states.
    pub states: String,
    /// Seed of cuts and states.
    pub seed: u64,
    /// Begin and end of the command in the guest's clock.
    pub interval_ns: (Nanos, Nanos),
    /// Unit of torn writes in bytes.
    pub torn_bytes: u64,
    /// Requests in the recording.
    pub requests: usize,
    /// Lines that the command acknowledged.
    pub acknowledged_lines: usize,
    /// Number of cuts.
    pub cuts: usize,
    /// States before equal ones were dropped.
    pub states_drawn: usize,
    /// States with different contents or acknowledged lines.
    pub states_distinct: usize,
    /// States with a verdict.
    pub states_checked: usize,
    /// States that failed.
    pub states_failed: usize,
    /// Name of the signal that ended the checks.
    pub ended_by_signal: Option<String>,
    /// The failures, in the order of the states.
    pub failures: Vec<CrashFailure>,
}

/// A state that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashFailure {
    /// Number of the state, counted from 1.
    pub state: usize,
    /// Instant of the cut in the guest's clock.
    pub cut_ns: Nanos,
    /// Rule by which the lost writes were drawn.
    pub draw: String,
    /// The failed step.
    pub failed: String,
    /// Output of the failed step.
    pub output: String,
    /// Lines acknowledged before the cut.
    pub acknowledged_lines: usize,
    /// Number of requests with lost blocks.
    pub lost_requests: usize,
    /// The first 50 of these requests.
    pub lost: Vec<CrashRequest>,
    /// The fewest lost requests with which the state fails; absent if the state was not shrunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewest: Option<FewestLost>,
    /// Requests around the cut, in order of arrival.
    pub around: Vec<CrashRequest>,
    /// Command that checks this state again.
    pub repeat: String,
}

/// The fewest lost requests of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FewestLost {
    /// Number of the requests.
    pub requests: usize,
    /// The first 50 of them.
    pub lost: Vec<CrashRequest>,
}

/// A request of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashRequest {
    /// Its place in order of arrival, counted from 0.
    pub request: usize,
    /// Operation.
    pub op: Op,
    /// First sector of 512 bytes.
    pub lba: u64,
    /// Length in sectors of 512 bytes.
    pub sectors: u32,
    /// Force unit access.
    pub fua: bool,
    /// Instant of the arrival in the guest's clock.
    pub arrival_ns: Nanos,
    /// Instant of the completion; null if there was none.
    pub completed_ns: Option<Nanos>,
    /// Files that the range belongs to at the end of the run, of the fewest lost requests on ext2 to ext4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Lost blocks, of a lost request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_blocks: Option<usize>,
}

impl CrashResult {
    /// Reads a result.
    ///
    /// # Errors
    /// If the file can't be read, is not JSON (with line and column), has another schema, or lacks a field.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        read_json(path, CRASH_SCHEMA)
    }

    /// Writes the result to a file that appears complete or not at all.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let failed = |source| ReportError::Io { path: path.to_owned(), action: "write", source };
        write_atomically(path, |file| file.write_all(self.to_json().as_bytes()).map_err(failed))
    }

    /// Whether no signal ended the checks.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended_by_signal.is_none()
    }

    /// The result as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!(
            "{} at {}, {} checked, {} failed\n",
            counted(self.states_distinct as u64, "state"),
            counted(self.cuts as u64, "cut"),
            self.states_checked,
            self.states_failed
        );
        for failure in self.failures.iter().take(DESCRIBED_MAX) {
            failure.render(&mut text);
        }
        if self.failures.len() > DESCRIBED_MAX {
            let _ = writeln!(text, "and {} more in the JSON", self.failures.len() - DESCRIBED_MAX);
        }
        text
    }
}

impl CrashFailure {
    fn render(&self, text: &mut String) {
        let at_s = self.cut_ns.as_nanos() as f64 / 1e9;
        let _ = writeln!(text, "\nstate {}: the step {} failed, cut at {at_s:.6} s", self.state, self.failed);
        for line in self.output.lines().take(8) {
            let _ = writeln!(text, "    {line}");
        }
        let (count, lost) = match &self.fewest {
            Some(fewest) => (fewest.requests, &fewest.lost),
            None => (self.lost_requests, &self.lost),
        };
        let words = if self.fewest.is_some() { "fewest lost requests" } else { "lost requests" };
        let _ =
            writeln!(text, "  acknowledged lines: {}; {words}: {count}{}", self.acknowledged_lines, none_lost(count));
        for request in lost.iter().take(4) {
            let _ = writeln!(text, "    request {}: {}", request.request, request.words());
        }
        let _ = writeln!(text, "  {}", self.repeat);
    }
}

/// The explanation of a failure without a lost request.
fn none_lost(lost_requests: usize) -> &'static str {
    if lost_requests == 0 { " (the state fails without one)" } else { "" }
}

impl CrashRequest {
    fn words(&self) -> String {
        let at_s = self.arrival_ns.as_nanos() as f64 / 1e9;
        let files = if self.files.is_empty() { String::new() } else { format!(", of {}", self.files.join(", ")) };
        format!("{} of {} sectors from {} on, at {at_s:.6} s{files}", self.op, self.sectors, self.lba)
    }
}
