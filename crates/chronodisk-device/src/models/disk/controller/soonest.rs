//! The place at which a write would be on the medium soonest: host-directed eager writing.
//!
//! The estimate follows the drive's own steps: command overhead, data over the interface, seek and settling, rotation,
//! and the transfer over track boundaries. It is exact on an idle drive, for a write of up to 128 sectors that fits
//! the write buffer. On a busy drive, the arm leaves from the end of its present run, as if no other request waited.

use std::ops::Range;

use chronodisk_sim::{Lba, Request};

use super::super::geometry::{BlockPosition, Track};
use super::super::mechanics::Ticks;
use super::super::parameters::Scheduler;
use super::{Command, Disk, NEVER, PIECE_BLOCKS, ticks};

/// A write's way to the arm.
struct Data {
    /// When the arm can leave.
    start: Ticks,
    /// When the first block begins to cross the interface.
    since: Ticks,
    block_time: Ticks,
    blocks: u64,
    /// Blocks in the buffer before the first one passes; zero if the arm leaves when all are there.
    collected: u64,
}

impl Disk {
    pub(super) fn soonest_place(&self, request: &Request, places: &[Lba]) -> usize {
        let end = |place: &Lba| self.written_by(&Request { lba: *place, ..*request });
        let by_end = places.iter().map(end).enumerate().min_by_key(|&(index, end)| (end, index));
        by_end.map_or(0, |(index, _)| index)
    }

    /// When the last block of a write that arrives now would be on the medium.
    fn written_by(&self, write: &Request) -> Ticks {
        let data = self.data_of(write);
        let (mut track, free) = self.departure();
        let mut at = data.start.max(free);
        let (first, end) = (write.lba.0, write.end().0.min(self.drive.capacity_blocks()));
        let middle = if self.begins_inside(write, at) { self.arm.finished.0 } else { first };
        for (begin, end) in [(middle, end), (first, middle)] {
            let mut next = begin;
            while next < end {
                let place = self.drive.geometry.locate(next);
                // A run that continues the last one needs no longer settling.
                let settles = next == begin && !(self.arm.wrote && self.arm.finished.0 == next);
                let until = end.min(place.track_end);
                let blocks = next - first..until - first;
                at = self.run_written_by(&data, (at, track), &place, blocks, settles);
                (track, next) = (place.track, until);
            }
        }
        at
    }

    /// Whether the arm begins a write with the block where its last run ended, and comes back for the blocks before.
    fn begins_inside(&self, write: &Request, at: Ticks) -> bool {
        let is_inside = write.lba.0 < self.arm.finished.0 && self.arm.finished.0 < write.end().0;
        let is_long = at.saturating_sub(self.arm.pass_since) > self.control.longest_pass;
        let command = Command { request: *write, arrived: at, has_extra_disconnect: false };
        let is_waited_for = self.control.preseek || self.completes_on_medium(&command);
        is_inside && (self.arm.wrote || (is_long && is_waited_for && self.control.scheduler != Scheduler::Fcfs))
    }

    /// The end of a run of some blocks of a write, the first one at `place`, for which the arm leaves a track at an
    /// instant.
    fn run_written_by(
        &self,
        data: &Data,
        (at, track): (Ticks, Track),
        place: &BlockPosition,
        blocks: Range<u64>,
        settles: bool,
    ) -> Ticks {
        let (mechanics, control) = (&self.drive.mechanics, &self.control);
        let on_track = at + mechanics.positioning(track, place.track, settles).max(control.minimum_write_seek);
        let count = blocks.end - blocks.start;
        let is_immediate = control.immediate_write && data.collected == 0;
        if is_immediate && self.passes_last(on_track, place, count) > 0 {
            return on_track + mechanics.spindle().period();
        }
        let since = on_track + self.drive.latency(self.phase, on_track, place.angle);
        let since = self.turns_later(data, since, blocks, place);
        since + mechanics.spindle().blocks(count, place.blocks_per_track).max(1)
    }

    /// When a write's data would cross the interface if it was decoded next, and when the arm could leave for it.
    fn data_of(&self, write: &Request) -> Data {
        let now =
            self.clock.max(ticks(self.now)).max(Some(self.commands.next_event()).filter(|&at| at < NEVER).unwrap_or(0));
        let command = Command { request: *write, arrived: now, has_extra_disconnect: false };
        let extra = self.commands.extra_disconnect(&command, &self.control);
        let decoded = now + self.commands.overhead(&command, false, &self.control);
        let delay = extra.map_or(self.control.write_data_delay, |extra| extra.data_delay);
        let since = self.interface.free_from().max(decoded + delay);
        let room = self.control.write_buffer_blocks.clamp(1, PIECE_BLOCKS);
        let (blocks, block_time) = (u64::from(write.sectors).min(room), self.control.write_block);
        match self.control.preseek {
            true => Data { start: decoded, since, block_time, blocks, collected: self.collected(write.sectors) },
            false => Data { start: since + blocks * block_time, since, block_time, blocks, collected: 0 },
        }
    }

    /// The beginning of a run in which each block is in the buffer when it begins to pass.
    fn turns_later(&self, data: &Data, since: Ticks, blocks: Range<u64>, place: &BlockPosition) -> Ticks {
        if data.collected == 0 || blocks.start >= data.blocks {
            return since;
        }
        let spindle = self.drive.mechanics.spindle();
        let there = |blocks: u64| data.since + blocks * data.block_time;
        let end = blocks.end.min(data.blocks);
        let passing = spindle.blocks(end - 1 - blocks.start, place.blocks_per_track);
        let last = there(end).saturating_sub(passing).max(there(blocks.start + 1));
        let collected = if blocks.start < data.collected { there(data.collected.min(data.blocks)) } else { 0 };
        since + last.max(collected).saturating_sub(since).div_ceil(spindle.period()) * spindle.period()
    }

    /// The track that the arm leaves next, and when it is free to leave.
    fn departure(&self) -> (Track, Ticks) {
        let is_read_for = self.reads.iter().any(|read| read.attached);
        self.arm.run_end(is_read_for).unwrap_or((self.arm.track(), self.arm.free_from))
    }
}
