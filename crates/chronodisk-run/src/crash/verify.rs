//! Checks the states of a recorded run.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

use chronodisk_crash::Lost;
use chronodisk_guest::StateStep;
use chronodisk_sim::Nanos;

use super::arguments::CrashArguments;
use super::files::Owners;
use super::images::{Scratch, write_base};
use super::load::load;
use super::make::{Made, make};
use super::pool::{Pool, Verdict};
use super::result::{CrashResult, Findings};
use super::setup::Setup;
use super::shrinking::fewest;
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
/// A recording that can't be read or is of another device, an unknown state, and a host without guests.
pub fn check_states(
    arguments: &CrashArguments,
    directory: &RunDirectory,
    executable: PathBuf,
    watch: &mut (dyn FnMut(CrashProgress) + Send),
) -> Result<CrashResult, Failure> {
    let mut setup = Setup::read(directory)?;
    if arguments.from.is_some() {
        setup.check = arguments.check.clone().unwrap_or(setup.check);
    }
    let loaded = load(&directory.crash_recording(), setup.physical_block_bytes, setup.write_back)?;
    let made = make(&setup, &loaded, directory)?;
    let chosen = chosen(&made, &arguments.only)?;
    watch(CrashProgress::Made(chosen.len()));
    let signals = EndSignals::catch(Keyboard::AsksToEnd)?;
    let jobs = arguments.jobs.map_or_else(|| available_parallelism().map_or(1, NonZero::get), usize::from);
    let scratch = Scratch::make(directory.path())?;
    let pool = Pool::new(&setup, &loaded, made.base, (executable, jobs), scratch, &signals)?;
    let states: Vec<_> = chosen.iter().map(|index| made.states[*index].clone()).collect();
    let verdicts = pool.check(&states, &mut || watch(CrashProgress::Checked))?;
    let failing: Vec<_> =
        (0..states.len()).filter_map(|index| Some((index, step(verdicts[index].as_ref())?))).collect();
    let failing = &failing[..failing.len().min(SHRUNK_MAX)];
    let mut shrunk = vec![None; states.len()];
    if !failing.is_empty() {
        watch(CrashProgress::Shrinks);
        let begins: Vec<_> = failing.iter().map(|(index, step)| (&states[*index], *step)).collect();
        for ((index, _), lost) in failing.iter().zip(fewest(&pool, &begins)?.into_iter().flatten()) {
            shrunk[*index] = Some(lost);
        }
    }
    let owners = owners(&pool, shrunk.iter().flatten())?;
    let findings = Findings { chosen: &chosen, verdicts: &verdicts, shrunk: &shrunk, owners: &owners };
    let result = CrashResult::of(&setup, &loaded, &made, &findings, directory, signals.signal());
    if arguments.only.is_empty() {
        result.write(directory)?;
    }
    Ok(result)
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

/// The failed step.
fn step(verdict: Option<&Verdict>) -> Option<StateStep> {
    verdict?.failed
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
