//! Makes the states of a recorded run.

use chronodisk_crash::{ModelError, State, any, cuts, distinct, of_model};
use chronodisk_sim::Nanos;

use super::acknowledged::count_by;
use super::arguments::{CutCount, StateChoice};
use super::load::Loaded;
use super::record::unknown;
use super::setup::Setup;
use crate::device;
use crate::failure::Failure;
use crate::folder::RunDirectory;

/// The states of a run.
pub(super) struct Made {
    /// Number of the cuts.
    pub cuts: usize,
    /// Number of the states before equal ones were dropped.
    pub drawn: usize,
    /// The states, with different contents or acknowledged lines.
    pub states: Vec<State>,
    /// Position of the contents that all states share: the begin of the command.
    pub base: usize,
}

/// Makes the states. Equal recordings and seeds give equal ones.
pub(super) fn make(setup: &Setup, loaded: &Loaded, directory: &RunDirectory) -> Result<Made, Failure> {
    let history = &loaded.history;
    let acknowledged: Vec<Nanos> = setup.acknowledged.iter().map(|line| line.at_ns).collect();
    let count = match setup.cuts {
        CutCount::All => None,
        CutCount::Drawn(count) => Some(count as usize),
    };
    let cuts = cuts(history, setup.interval_ns, &acknowledged, count, setup.seed);
    let drawn = match setup.states {
        StateChoice::Any => any(history, &cuts, setup.seed),
        StateChoice::Model => {
            let run = directory.read_run()?;
            let device = device::of_run(&run.device, directory)?;
            of_model(history, &mut *device.model()?, &cuts).map_err(|error| match error {
                ModelError::Unknown => unknown(device.name()),
                error => Failure::usage(error),
            })?
        }
    };
    let base = history.position(setup.interval_ns.0);
    let mark = |state: &State| count_by(&setup.acknowledged, state.cut.at) as u64;
    let (cuts, count) = (cuts.len(), drawn.len());
    Ok(Made { cuts, drawn: count, states: distinct(history, base, drawn, mark), base })
}
