//! The states of a device model at the cuts.

use std::collections::BTreeMap;
use std::ops::Range;

use chronodisk_device::{DeviceModel, advance};
use chronodisk_sim::{Completion, Nanos, Request, RequestId, Status};

use crate::history::{Effect, Event, History};
use crate::states::{Cut, Draw, Lost, State};

/// Reason why a model has no states.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The model does not implement [`DeviceModel::volatile`].
    #[error("the device's model does not know which sectors a loss of power would lose")]
    Unknown,
    /// The recording is of another device.
    #[error(
        "the recording is of another device: request {request} ({op} of {sectors} sectors from {lba} on) completed at \
         {found}; expected {expected} by this device's model"
    )]
    OtherDevice {
        /// Number of the request, counted from 0.
        request: usize,
        /// Its operation.
        op: chronodisk_sim::Op,
        /// Its length.
        sectors: u32,
        /// Its first sector.
        lba: u64,
        /// The recorded completion.
        found: String,
        /// The model's completion.
        expected: String,
    },
}

/// The state of a new model at each cut, after a replay of the history. Cuts are in ascending order.
///
/// A block whose newest change the model would lose has its newest change that is not volatile when the next one
/// arrives.
///
/// # Errors
/// If the model does not know its volatile sectors, or a completion differs from the recorded one.
pub fn of_model(history: &History, model: &mut dyn DeviceModel, cuts: &[Cut]) -> Result<Vec<State>, ModelError> {
    let mut replay = Replay { history, model, held: BTreeMap::new(), completed: Vec::new() };
    let mut states = Vec::new();
    let mut next = 0;
    for cut in cuts {
        while next < cut.position {
            replay.see(history.events[next].1)?;
            next += 1;
        }
        replay.advance(cut.at)?;
        let lost = replay.lost(cut.position)?;
        states.push(State { cut: *cut, draw: Draw::Model, lost });
    }
    Ok(states)
}

struct Replay<'a> {
    history: &'a History,
    model: &'a mut dyn DeviceModel,
    /// For each block with changes: how many of them the medium had when the last one arrived.
    held: BTreeMap<u64, usize>,
    completed: Vec<Completion>,
}

impl Replay<'_> {
    fn see(&mut self, event: Event) -> Result<(), ModelError> {
        let Event::Arrival(index) = event else { return Ok(()) };
        let recorded = &self.history.requests[index];
        self.advance(recorded.arrival)?;
        if recorded.effect != Effect::Nothing {
            self.hold(index)?;
        }
        self.model.submit(Request { id: RequestId(index as u64), ..recorded.request });
        Ok(())
    }

    /// Brings the model to an instant, and compares its completions.
    fn advance(&mut self, at: Nanos) -> Result<(), ModelError> {
        let at = at.max(self.model.now());
        advance(self.model, at, &mut self.completed);
        for completion in self.completed.drain(..) {
            let index = completion.id.0 as usize;
            let recorded = &self.history.requests[index];
            let Some((found, status)) = recorded.completion else { continue };
            if (found, status) != (completion.at, completion.status) {
                let shown = |at: Nanos, status: Status| format!("{} ns with status {}", at.as_nanos(), status.name());
                return Err(ModelError::OtherDevice {
                    request: index,
                    op: recorded.request.op,
                    sectors: recorded.request.sectors,
                    lba: recorded.request.lba.0,
                    found: shown(found, status),
                    expected: shown(completion.at, completion.status),
                });
            }
        }
        Ok(())
    }

    /// Notes the durable changes of the blocks that a request is about to change.
    fn hold(&mut self, index: usize) -> Result<(), ModelError> {
        let volatile = self.volatile()?;
        for block in self.history.blocks(index) {
            if !is_in(&volatile, block) {
                let before = self.history.arrived_versions(block, self.history.arrived[index]).len();
                self.held.insert(block, before);
            }
        }
        Ok(())
    }

    fn lost(&self, position: usize) -> Result<Lost, ModelError> {
        let mut lost = Lost::default();
        for block in self.volatile()?.into_iter().flatten() {
            let versions = self.history.arrived_versions(block, position);
            let held = self.held.get(&block).copied().unwrap_or(0);
            versions.iter().skip(held).for_each(|version| lost.insert(version.request, block));
        }
        Ok(lost)
    }

    /// The blocks with volatile sectors.
    fn volatile(&self) -> Result<Vec<Range<u64>>, ModelError> {
        let unit = u64::from(self.history.facts.block_sectors);
        let sectors = self.model.volatile().ok_or(ModelError::Unknown)?;
        Ok(sectors.into_iter().map(|range| range.start / unit..range.end.div_ceil(unit)).collect())
    }
}

/// Whether ascending ranges contain a block.
fn is_in(ranges: &[Range<u64>], block: u64) -> bool {
    let index = ranges.partition_point(|range| range.end <= block);
    ranges.get(index).is_some_and(|range| range.contains(&block))
}
