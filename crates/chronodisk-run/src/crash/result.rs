//! The result of the checks, as JSON and as text.

use std::fmt::Write as _;
use std::io::Write as _;

use chronodisk_crash::{History, Lost, State};
use chronodisk_engine::ending::{signal_name, status_of};
use chronodisk_guest::{FileSystem, StateStep};
use chronodisk_report::{AtomicFile, counted};
use chronodisk_sim::{Nanos, Op, SECTOR_BYTES};
use serde::Serialize;

use super::acknowledged::count_by;
use super::arguments::StateChoice;
use super::files::Owners;
use super::load::Loaded;
use super::make::Made;
use super::pool::Verdict;
use super::setup::Setup;
use crate::failure::{Failure, status};
use crate::folder::RunDirectory;

/// Schema of the result.
const SCHEMA: &str = "chronodisk-crash/1";
/// Requests before and after the cut that a failure has.
const AROUND: usize = 6;
/// Lost requests that a failure lists.
const LISTED_MAX: usize = 50;
/// Failures that the text describes.
const DESCRIBED_MAX: usize = 10;

/// The result of the checks of a recorded run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrashResult {
    /// Name and version of this form.
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// File system of the device.
    pub file_system: FileSystem,
    /// The check.
    pub check: String,
    /// Rule of the states.
    pub states: StateChoice,
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
    pub ended_by_signal: Option<&'static str>,
    /// Number of that signal.
    #[serde(skip)]
    signal: Option<i32>,
    /// The failures, in the order of the states.
    pub failures: Vec<CrashFailure>,
}

/// A state that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrashFailure {
    /// Number of the state, counted from 1.
    pub state: usize,
    /// Instant of the cut in the guest's clock.
    pub cut_ns: Nanos,
    /// Rule by which the lost writes were drawn.
    pub draw: &'static str,
    /// The failed step.
    pub failed: StateStep,
    /// Output of the failed step.
    pub output: String,
    /// Lines acknowledged before the cut.
    pub acknowledged_lines: usize,
    /// Number of requests with lost blocks.
    pub lost_requests: usize,
    /// The first 50 of these requests.
    pub lost: Vec<CrashRequest>,
    /// The fewest lost requests with which the state fails; absent if the state was not shrunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fewest: Option<FewestLost>,
    /// Requests around the cut, in order of arrival.
    pub around: Vec<CrashRequest>,
    /// Command that checks this state again.
    pub repeat: String,
}

/// The fewest lost requests of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FewestLost {
    /// Number of the requests.
    pub requests: usize,
    /// The first 50 of them.
    pub lost: Vec<CrashRequest>,
}

/// A request of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Lost blocks, of a lost request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_blocks: Option<usize>,
}

/// The outcome of the checks.
pub(super) struct Findings<'a> {
    /// Indices of the checked states.
    pub chosen: &'a [usize],
    /// Their verdicts.
    pub verdicts: &'a [Option<Verdict>],
    /// Their fewest lost writes.
    pub shrunk: &'a [Option<Lost>],
    /// Files of these writes.
    pub owners: &'a Owners,
}

impl CrashResult {
    pub(super) fn of(
        setup: &Setup,
        loaded: &Loaded,
        made: &Made,
        findings: &Findings<'_>,
        directory: &RunDirectory,
        signal: Option<i32>,
    ) -> Self {
        let run_id = directory.id();
        let failure = |place: usize| {
            let verdict = findings.verdicts[place].as_ref()?;
            let index = findings.chosen[place];
            Some(CrashFailure {
                state: index + 1,
                failed: verdict.failed?,
                output: verdict.output.clone(),
                fewest: findings.shrunk[place].as_ref().map(|lost| FewestLost {
                    requests: lost.requests().count(),
                    lost: with_files(lost_requests(&loaded.history, lost), findings.owners),
                }),
                repeat: format!("chronodisk crash --from {} --only {}", directory.path().display(), index + 1),
                ..unjudged(setup, &loaded.history, &made.states[index])
            })
        };
        let failures: Vec<CrashFailure> = (0..findings.chosen.len()).filter_map(failure).collect();
        CrashResult {
            schema: SCHEMA,
            run_id,
            file_system: setup.file_system,
            check: setup.check.clone(),
            states: setup.states,
            seed: setup.seed,
            interval_ns: setup.interval_ns,
            torn_bytes: u64::from(loaded.history.facts().torn_sectors) * SECTOR_BYTES,
            requests: loaded.history.requests().len(),
            acknowledged_lines: setup.acknowledged.len(),
            cuts: made.cuts,
            states_drawn: made.drawn,
            states_distinct: made.states.len(),
            states_checked: findings.verdicts.iter().flatten().count(),
            states_failed: failures.len(),
            ended_by_signal: signal.map(signal_name),
            signal,
            failures,
        }
    }

    /// Keeps the result in the directory of the run.
    pub(super) fn write(&self, directory: &RunDirectory) -> Result<(), Failure> {
        let path = directory.crash_result();
        let mut file = AtomicFile::create(&path).map_err(Failure::host)?;
        file.write_all(self.to_json().as_bytes())
            .map_err(|error| Failure::host(format!("{}: can't write: {error}", path.display())))?;
        file.keep().map_err(Failure::host)
    }

    /// The result as JSON.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data");
        text.push('\n');
        text
    }

    /// The exit status: 1 if a state failed, else 128+n if signal n ended the checks.
    pub fn status(&self) -> u8 {
        match (self.failures.is_empty(), self.signal) {
            (false, _) => status::CHECK_FAILED,
            (true, Some(signal)) => status_of(signal),
            (true, None) => status::FINE,
        }
    }

    /// The result for people.
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
        let _ =
            writeln!(text, "\nstate {}: the step {} failed, cut at {at_s:.6} s", self.state, step_name(self.failed));
        for line in self.output.lines().take(8) {
            let _ = writeln!(text, "    {line}");
        }
        let (count, lost) = match &self.fewest {
            Some(fewest) => (fewest.requests, &fewest.lost),
            None => (self.lost_requests, &self.lost),
        };
        let words = if self.fewest.is_some() { "fewest lost requests" } else { "lost requests" };
        let _ = writeln!(text, "  acknowledged lines: {}; {words}: {count}", self.acknowledged_lines);
        for request in lost.iter().take(4) {
            let _ = writeln!(text, "    request {}: {}", request.request, request.words());
        }
        let _ = writeln!(text, "  {}", self.repeat);
    }
}

impl CrashRequest {
    fn words(&self) -> String {
        let at_s = self.arrival_ns.as_nanos() as f64 / 1e9;
        let files = if self.files.is_empty() { String::new() } else { format!(", of {}", self.files.join(", ")) };
        format!("{} of {} sectors from {} on, at {at_s:.6} s{files}", self.op, self.sectors, self.lba)
    }
}

/// The name of a step in results.
fn step_name(step: StateStep) -> &'static str {
    match step {
        StateStep::Mount => "mount",
        StateStep::Unmount => "unmount",
        StateStep::FileSystem => "file-system",
        StateStep::Remount => "remount",
        StateStep::Check => "check",
        StateStep::Panic => "panic",
    }
}

/// The facts of a state before its verdict.
fn unjudged(setup: &Setup, history: &History, state: &State) -> CrashFailure {
    CrashFailure {
        state: 0,
        cut_ns: state.cut.at,
        draw: state.draw.name(),
        failed: StateStep::Check,
        output: String::new(),
        acknowledged_lines: count_by(&setup.acknowledged, state.cut.at),
        lost_requests: state.lost.requests().count(),
        lost: lost_requests(history, &state.lost),
        fewest: None,
        around: around(history, state.cut.at),
        repeat: String::new(),
    }
}

fn lost_requests(history: &History, lost: &Lost) -> Vec<CrashRequest> {
    let shown = |(index, blocks)| CrashRequest { lost_blocks: Some(blocks), ..request(history, index) };
    lost.requests().take(LISTED_MAX).map(shown).collect()
}

fn with_files(mut requests: Vec<CrashRequest>, owners: &Owners) -> Vec<CrashRequest> {
    for request in &mut requests {
        request.files = owners.of(request.lba..request.lba + u64::from(request.sectors));
    }
    requests
}

fn around(history: &History, at: Nanos) -> Vec<CrashRequest> {
    let next = history.requests().partition_point(|recorded| recorded.arrival <= at);
    let end = (next + AROUND).min(history.requests().len());
    (next.saturating_sub(AROUND)..end).map(|index| request(history, index)).collect()
}

fn request(history: &History, index: usize) -> CrashRequest {
    let recorded = &history.requests()[index];
    CrashRequest {
        request: index,
        op: recorded.request.op,
        lba: recorded.request.lba.0,
        sectors: recorded.request.sectors,
        fua: recorded.request.fua,
        arrival_ns: recorded.arrival,
        completed_ns: recorded.completion.map(|(at, _)| at),
        files: Vec::new(),
        lost_blocks: None,
    }
}
