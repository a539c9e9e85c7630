//! The interface to the host: the data of one request cross at a time.

use super::super::drive::Control;
use super::super::mechanics::Ticks;
use super::NEVER;

/// The interface, and the blocks of a write that cross it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interface {
    free_from: Ticks,
    crossing: Option<Crossing>,
}

/// Blocks of the first write on the interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub(super) blocks: u64,
    pub(super) since: Ticks,
    /// When the last one is in the buffer.
    pub(super) at: Ticks,
}

impl Interface {
    /// When the blocks that cross are in the buffer; [`NEVER`] without any.
    pub(super) fn next_event(&self) -> Ticks {
        self.crossing.as_ref().map_or(NEVER, |crossing| crossing.at)
    }

    /// When it is free for other data.
    pub(super) fn free_from(&self) -> Ticks {
        self.free_from
    }

    pub(super) fn crossing(&self) -> Option<Crossing> {
        self.crossing
    }

    /// It moves nothing until an instant.
    pub(super) fn hold_until(&mut self, at: Ticks) {
        self.free_from = self.free_from.max(at);
    }

    /// Blocks of a write begin to cross.
    pub(super) fn begin(&mut self, now: Ticks, blocks: u64, block_time: Ticks) {
        let since = self.free_from.max(now);
        self.free_from = since + blocks * block_time;
        self.crossing = Some(Crossing { blocks, since, at: self.free_from });
    }

    /// The blocks that cross are in the buffer.
    pub(super) fn end(&mut self) -> Option<Crossing> {
        self.crossing.take()
    }

    /// A read's data, which are in the buffer, cross; they may have begun at `begin`, before now, while they came.
    /// Returns when the host has them.
    pub(super) fn deliver(&mut self, now: Ticks, blocks: u64, begin: Ticks, control: &Control) -> Ticks {
        let block = control.read_block;
        let time = blocks * block;
        // Data beyond a segment's size have crossed before.
        let held = blocks.min(control.segment_blocks) * block;
        let most = if control.store_and_forward { time - held } else { time };
        let begin = self.free_from.max(begin).max(now.saturating_sub(most));
        self.free_from = (begin + time).max(now + block);
        self.free_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::disk::Drive;
    use crate::models::disk::tests::small;

    fn control(store_and_forward: bool) -> Control {
        let control = Drive::new(&small()).expect("a drive").control;
        Control { read_block: 10, segment_blocks: 8, store_and_forward, ..control }
    }

    #[test]
    fn writes_cross_one_after_the_other() {
        let mut interface = Interface::default();
        assert_eq!(interface.next_event(), NEVER);
        interface.hold_until(100);
        interface.begin(50, 4, 10);
        assert_eq!((interface.next_event(), interface.free_from()), (140, 140));
        assert_eq!(interface.end().map(|crossing| crossing.since), Some(100));
        assert_eq!(interface.next_event(), NEVER);
    }

    #[test]
    fn a_read_crosses_while_it_comes_unless_it_is_stored_first() {
        let deliver = |store_and_forward, begin, free_from| {
            let mut interface = Interface { free_from, crossing: None };
            interface.deliver(1_000, 4, begin, &control(store_and_forward))
        };
        // The last block has come at this instant.
        assert_eq!(deliver(false, 900, 0), 1_010);
        assert_eq!(deliver(false, 980, 0), 1_020);
        assert_eq!(deliver(false, 900, 1_005), 1_045);
        assert_eq!(deliver(true, 900, 0), 1_040);
    }
}
