//! Writes on their way to the medium, and the flushes that wait for these.

use std::collections::VecDeque;

use chronodisk_sim::RequestId;

use super::super::mechanics::Ticks;
use super::dirty::Dirty;
use super::{Command, NEVER};

/// Writes and flushes, each in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// Writes with blocks that have not crossed the interface; the first one crosses.
    arriving: VecDeque<Writing>,
    /// Writes that crossed and complete on the medium.
    uncommitted: Vec<Command>,
    flushes: VecDeque<Flush>,
    /// Flushes so far, and with `fcfs` writes that continue no other: blocks of an earlier epoch are written first.
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    pub(super) command: Command,
    /// The next block to cross.
    pub(super) next: u64,
    pub(super) epoch: u64,
}

/// A flush in the drive.
#[derive(Clone, Copy, Debug)]
struct Flush {
    id: RequestId,
    arrived: Ticks,
    /// It waits for writes of this epoch and of earlier ones.
    epoch: u64,
}

impl Writes {
    pub(super) fn arrive(&mut self, command: Command) {
        self.arriving.push_back(Writing { command, next: command.first(), epoch: self.epoch });
    }

    /// Later writes are of another epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.epoch += 1;
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The write that crosses, or waits to cross.
    pub(super) fn first_arriving(&self) -> Option<&Writing> {
        self.arriving.front()
    }

    /// Blocks of the first write have crossed. Returns it as it was before, and whether all of its blocks have crossed.
    pub(super) fn crossed(&mut self, blocks: u64) -> Option<(Writing, bool)> {
        let writing = self.arriving.front_mut()?;
        let before = *writing;
        writing.next += blocks;
        let done = writing.next == writing.command.end();
        if done {
            self.arriving.pop_front();
        }
        Some((before, done))
    }

    /// Ranges of blocks that have not crossed.
    pub(super) fn arriving_blocks(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.arriving.iter().map(|writing| writing.next..writing.command.end())
    }

    /// A write that has crossed completes when its blocks are on the medium.
    pub(super) fn commit(&mut self, command: Command) {
        self.uncommitted.push(command);
    }

    pub(super) fn uncommitted(&self) -> &[Command] {
        &self.uncommitted
    }

    /// The next write from an index on whose blocks are on the medium. The write `rewritten` stays: its blocks were
    /// not among those that passed.
    pub(super) fn take_committed(
        &mut self,
        from: &mut usize,
        dirty: &Dirty,
        rewritten: Option<RequestId>,
    ) -> Option<Command> {
        while let Some(&command) = self.uncommitted.get(*from) {
            if rewritten == Some(command.request.id) || dirty.overlaps(command.first(), command.end()) {
                *from += 1;
            } else {
                self.uncommitted.remove(*from);
                return Some(command);
            }
        }
        None
    }

    pub(super) fn flush(&mut self, id: RequestId, arrived: Ticks) {
        self.flushes.push_back(Flush { id, arrived, epoch: self.epoch });
        self.epoch += 1;
    }

    /// The next flush that waits for no block.
    pub(super) fn take_flushed(&mut self, dirty: &Dirty) -> Option<RequestId> {
        let &Flush { id, epoch, .. } = self.flushes.front()?;
        if dirty.oldest_epoch() <= epoch || self.arriving.front().is_some_and(|front| front.epoch <= epoch) {
            return None;
        }
        self.flushes.pop_front();
        Some(id)
    }

    /// The last epoch of blocks that may be written now. Blocks that arrived after a flush wait for the flush.
    pub(super) fn last_epoch(&self) -> u64 {
        self.flushes.front().map_or(u64::MAX, |flush| flush.epoch)
    }

    /// Whether a write or a flush waits for blocks to come to the medium.
    pub(super) fn wait_for_medium(&self) -> bool {
        !self.uncommitted.is_empty() || !self.flushes.is_empty()
    }

    /// When the oldest write and the oldest flush arrived; [`NEVER`] without one.
    pub(super) fn oldest(&self) -> (Ticks, Ticks) {
        let arrived = |command: Option<&Command>| command.map_or(NEVER, |command| command.arrived);
        let crossing = arrived(self.arriving.front().map(|front| &front.command));
        let flush = self.flushes.front().map_or(NEVER, |flush| flush.arrived);
        (crossing.min(arrived(self.uncommitted.first())), flush)
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Op, Request};

    use super::*;

    fn write(id: u64, lba: u64, sectors: u32) -> Command {
        Command { request: Request::new(id, Op::Write, lba, sectors), arrived: id, has_extra_disconnect: false }
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it_and_not_for_those_behind() {
        let (mut writes, mut dirty) = (Writes::default(), Dirty::new(8));
        writes.arrive(write(0, 0, 8));
        writes.flush(RequestId(1), 1);
        writes.arrive(write(2, 100, 8));
        assert_eq!(writes.oldest(), (0, 1));
        assert_eq!(writes.take_flushed(&dirty), None);
        let (first, done) = writes.crossed(8).unwrap();
        assert!(done);
        dirty.insert(0, 8, first.epoch);
        assert_eq!(writes.take_flushed(&dirty), None);
        assert_eq!(writes.last_epoch(), first.epoch);
        dirty.remove(0, 8);
        assert_eq!(writes.take_flushed(&dirty), Some(RequestId(1)));
        assert_eq!((writes.take_flushed(&dirty), writes.last_epoch()), (None, u64::MAX));
        assert!(writes.arriving_blocks().eq(std::iter::once(100..108)));
    }

    #[test]
    fn a_write_stays_while_its_blocks_are_in_the_buffer_or_are_newer_than_those_written() {
        let (mut writes, mut dirty) = (Writes::default(), Dirty::new(8));
        (0..3).for_each(|id| writes.commit(write(id, id * 8, 8)));
        dirty.insert(8, 10, 0);
        let mut from = 0;
        let mut take =
            |rewritten| writes.take_committed(&mut from, &dirty, rewritten).map(|command| command.request.id);
        assert_eq!(take(Some(RequestId(0))), Some(RequestId(2)));
        assert_eq!(take(Some(RequestId(0))), None);
        assert_eq!(writes.uncommitted().len(), 2);
    }
}
