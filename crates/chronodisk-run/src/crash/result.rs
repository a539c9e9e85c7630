//! The result of the checks, from the states and their verdicts.

use chronodisk_crash::{History, Lost, State};
use chronodisk_engine::ending::{signal_name, status_of};
use chronodisk_report::{CRASH_SCHEMA, CrashFailure, CrashRequest, CrashResult, FewestLost};
use chronodisk_sim::{Nanos, SECTOR_BYTES};

use super::acknowledged::count_by;
use super::files::Owners;
use super::load::Loaded;
use super::make::Made;
use super::pool::Verdict;
use super::setup::Setup;
use crate::failure::status;
use crate::folder::RunDirectory;

/// Requests before and after the cut that a failure has.
const AROUND: usize = 6;
/// Lost requests that a failure lists.
const LISTED_MAX: usize = 50;

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

/// A result, and the signal that ended the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashChecked {
    /// The result.
    pub result: CrashResult,
    /// Number of the signal.
    pub signal: Option<i32>,
}

impl CrashChecked {
    /// The exit status: 1 if a state failed, else 128+n if signal n ended the checks.
    pub fn status(&self) -> u8 {
        match (self.result.failures.is_empty(), self.signal) {
            (false, _) => status::CHECK_FAILED,
            (true, Some(signal)) => status_of(signal),
            (true, None) => status::FINE,
        }
    }
}

pub(super) fn result_of(
    setup: &Setup,
    loaded: &Loaded,
    made: &Made,
    findings: &Findings<'_>,
    directory: &RunDirectory,
    signal: Option<i32>,
) -> CrashResult {
    let failure = |place: usize| {
        let verdict = findings.verdicts[place].as_ref()?;
        let index = findings.chosen[place];
        Some(CrashFailure {
            state: index + 1,
            failed: verdict.failed?.name().to_owned(),
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
        schema: CRASH_SCHEMA.to_owned(),
        run_id: directory.id(),
        file_system: setup.file_system.name().to_owned(),
        check: setup.check.clone(),
        states: setup.states.name().to_owned(),
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
        ended_by_signal: signal.map(|signal| signal_name(signal).to_owned()),
        failures,
    }
}

/// The facts of a state before its verdict.
fn unjudged(setup: &Setup, history: &History, state: &State) -> CrashFailure {
    CrashFailure {
        state: 0,
        cut_ns: state.cut.at,
        draw: state.draw.name().to_owned(),
        failed: String::new(),
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
