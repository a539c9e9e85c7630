//! Checks the states of a recorded run.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

use chronodisk_crash::Lost;
use chronodisk_report::CrashResult;
use chronodisk_sim::Nanos;

use super::arguments::CrashArguments;
use super::files::Owners;
use super::images::{Scratch, write_base};
use super::load::{Loaded, load};
use super::make::{Made, make};
use super::pool::{Pool, Verdict};
use super::result::{CrashChecked, Findings, result_of};
use super::setup::Setup;
use super::shrinking::fewest;
use super::verdicts::{VerdictKeeper, VerdictReader};
use crate::failure::Failure;
use crate::folder::RunDirectory;
use crate::signals::{EndSignals, Keyboard};

/// Failing states that are shrunk; further ones mostly have the same cause.
const SHRUNK_MAX: usize = 3;

/// Progress of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashProgress {
    /// The states are made; their number.
    Made(usize),
    /// A state was checked.
    Checked,
    /// The states are checked, and failing ones are shrunk.
    Shrinks,
}

/// Makes the states of a recorded run, checks them in guests, and keeps the result unless only some were asked for.
/// A signal ends the checks, and the result has those so far.
///
/// # Errors
/// A recording that can't be read or is of another device, an unknown state, and a host without guests. Kept verdicts
/// that can't be resumed.
pub fn check_states(
    arguments: &CrashArguments,
    directory: &RunDirectory,
    executable: PathBuf,
    watch: &mut (dyn FnMut(CrashProgress) + Send),
) -> Result<CrashChecked, Failure> {
    let Begun { setup, loaded, made, chosen, mut verdicts, mut keeper } = begin(arguments, directory)?;
    let unchecked: Vec<usize> = (0..chosen.len()).filter(|place| verdicts[*place].is_none()).collect();
    watch(CrashProgress::Made(unchecked.len()));
    let signals = EndSignals::catch(Keyboard::AsksToEnd)?;
    let jobs = arguments.jobs.map_or_else(|| available_parallelism().map_or(1, NonZero::get), usize::from);
    let scratch = Scratch::make(directory.path())?;
    let pool = Pool::new(&setup, &loaded, made.base, (executable, jobs), scratch, &signals)?;
    let states: Vec<_> = unchecked.iter().map(|place| made.states[chosen[*place]].clone()).collect();
    let judged = pool.check(&states, &mut |index, verdict| {
        watch(CrashProgress::Checked);
        let keep = |keeper: &mut VerdictKeeper| keeper.keep(chosen[unchecked[index]], &states[index], verdict);
        keeper.as_mut().map_or(Ok(()), keep)
    })?;
    for (place, verdict) in unchecked.iter().zip(judged) {
        verdicts[*place] = verdict;
    }
    let failing: Vec<_> =
        (0..chosen.len()).filter_map(|place| Some((place, verdicts[place].as_ref()?.failed?))).collect();
    let failing = &failing[..failing.len().min(SHRUNK_MAX)];
    let mut shrunk = vec![None; chosen.len()];
    if !failing.is_empty() {
        watch(CrashProgress::Shrinks);
        let begins: Vec<_> = failing.iter().map(|(place, step)| (&made.states[chosen[*place]], *step)).collect();
        for ((place, _), lost) in failing.iter().zip(fewest(&pool, &begins)?.into_iter().flatten()) {
            shrunk[*place] = Some(lost);
        }
    }
    let owners = owners(&pool, shrunk.iter().flatten())?;
    let signal = signals.signal();
    let findings = Findings { chosen: &chosen, verdicts: &verdicts, shrunk: &shrunk, owners: &owners };
    let result = result_of(&setup, &loaded, &made, &findings, directory, signal);
    if let Some(keeper) = &mut keeper {
        keeper.begin()?;
        result.write(&directory.crash_result()).map_err(Failure::host)?;
    }
    Ok(CrashChecked { result, signal })
}

/// Checks that can begin.
struct Begun {
    setup: Setup,
    loaded: Loaded,
    made: Made,
    /// Indices of the states to check.
    chosen: Vec<usize>,
    /// For each of them, the verdict that was kept.
    verdicts: Vec<Option<Verdict>>,
    /// Absent if only some states were asked for.
    keeper: Option<VerdictKeeper>,
}

/// Makes the states, and reads the verdicts to resume. Changes nothing.
fn begin(arguments: &CrashArguments, directory: &RunDirectory) -> Result<Begun, Failure> {
    let keeps = arguments.only.is_empty();
    if keeps && (arguments.from.is_some() || arguments.resume.is_some()) {
        claim(directory)?;
    }
    let kept = match arguments.resume {
        Some(_) => {
            expect_ended(directory)?;
            VerdictReader::open(directory)?
        }
        None => None,
    };
    let mut setup = Setup::read(directory)?;
    setup.check_timeout = arguments.check_timeout.unwrap_or(setup.check_timeout);
    if arguments.resume.is_some() {
        setup.check = resumed_check(arguments, kept.as_ref().map_or(&setup.check, VerdictReader::check))?;
    } else if arguments.from.is_some() {
        setup.check = arguments.check.clone().unwrap_or(setup.check);
    }
    let loaded = load(&directory.crash_recording(), setup.physical_block_bytes, setup.write_back)?;
    let made = make(&setup, &loaded, directory)?;
    let chosen = chosen(&made, &arguments.only)?;
    let (verdicts, kept_bytes) = match kept {
        Some(kept) => kept.verdicts(&made.states)?,
        None => (vec![None; chosen.len()], 0),
    };
    let keeper = keeps.then(|| VerdictKeeper::new(directory, &setup.check, made.states.len(), kept_bytes));
    Ok(Begun { setup, loaded, made, chosen, verdicts, keeper })
}

/// Keeps other processes from the files of the run.
fn claim(directory: &RunDirectory) -> Result<(), Failure> {
    match directory.is_being_written() {
        true => Err(Failure::usage(format!("{}: another process is checking this run", directory.path().display()))
            .help("wait for its end, or end it")),
        false => directory.make(),
    }
}

/// Refuses a run whose checks are complete.
fn expect_ended(directory: &RunDirectory) -> Result<(), Failure> {
    let path = directory.crash_result();
    if !path.exists() || !CrashResult::read(&path).map_err(Failure::usage)?.is_complete() {
        return Ok(());
    }
    Err(Failure::usage(format!("{}: the checks of this run are complete", path.display()))
        .help("`chronodisk crash --from` checks all states again"))
}

/// The check of the kept verdicts, which another one must not contradict.
fn resumed_check(arguments: &CrashArguments, kept: &str) -> Result<String, Failure> {
    match &arguments.check {
        Some(check) if check != kept => Err(Failure::usage("--check differs from the check of the kept verdicts")
            .help("leave --check out, or check all states again with --from")),
        _ => Ok(kept.to_owned()),
    }
}

/// The files of lost writes, in the contents at the end of the recording.
fn owners<'a>(pool: &Pool<'_>, lost: impl Iterator<Item = &'a Lost>) -> Result<Owners, Failure> {
    let history = &pool.loaded().history;
    let range = |index: usize| history.requests()[index].request.lba.0..history.requests()[index].request.end().0;
    let ranges: Vec<_> = lost.flat_map(|lost| lost.requests().map(|(index, _)| range(index))).collect();
    if ranges.is_empty() {
        return Ok(Owners::default());
    }
    let image = pool.file("end");
    write_base(&image, history, &history.newest(history.position(Nanos::MAX)))?;
    Ok(Owners::find(pool.file_system(), &image, &ranges))
}

/// The indices of the states to check.
fn chosen(made: &Made, only: &[u32]) -> Result<Vec<usize>, Failure> {
    let count = made.states.len();
    if only.is_empty() {
        return Ok((0..count).collect());
    }
    let index = |number: &u32| match *number as usize {
        number @ 1.. if number <= count => Ok(number - 1),
        number => Err(Failure::usage(format!("--only {number}: expected a state from 1 to {count}"))),
    };
    only.iter().map(index).collect()
}
