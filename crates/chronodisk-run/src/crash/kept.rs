//! The checks of a kept run, for reports.

use chronodisk_report::{CrashReport, CrashResult, CrashStates};

use super::setup::Setup;
use super::verdicts::VerdictReader;
use crate::failure::Failure;
use crate::folder::RunDirectory;

/// Reads the checks of a run with power cuts; `None` of another run. Memory does not grow with the number of states.
///
/// # Errors
/// Files that can't be read, or that contradict each other.
pub fn read_crash(directory: &RunDirectory) -> Result<Option<CrashReport>, Failure> {
    if !directory.crash_setup().exists() {
        return Ok(None);
    }
    let path = directory.crash_result();
    let result = match path.exists() {
        true => Some(CrashResult::read(&path).map_err(Failure::usage)?),
        false => None,
    };
    let reader = VerdictReader::open(directory)?;
    let has_passed = reader.is_some();
    let states = match (reader, &result) {
        (Some(reader), _) => condensed(reader, Setup::read(directory)?)?,
        (None, Some(result)) => CrashStates::of_failures(result),
        (None, None) => CrashStates::new(Setup::read(directory)?.interval_ns),
    };
    if let Some(result) = result.as_ref().filter(|_| has_passed) {
        let (checked, failed) = (result.states_checked as u64, result.states_failed as u64);
        if (checked, failed) != (states.checked(), states.failed()) {
            let (kept, kept_failed) = (states.checked(), states.failed());
            let what = format!("{checked} states are checked and {failed} failed, but the kept verdicts are {kept}");
            return Err(Failure::usage(format!("{}: {what} and {kept_failed}", path.display()))
                .help("`chronodisk crash --from` checks all states again"));
        }
    }
    Ok(Some(CrashReport { result, states, has_passed, directory: directory.path().display().to_string() }))
}

fn condensed(mut reader: VerdictReader, setup: Setup) -> Result<CrashStates, Failure> {
    let mut states = CrashStates::new(setup.interval_ns);
    while let Some(verdict) = reader.next()? {
        states.add(&verdict.draw, verdict.cut_ns, verdict.failed.map(chronodisk_guest::StateStep::name));
    }
    Ok(states)
}
