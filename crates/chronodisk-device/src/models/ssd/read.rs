//! Reads: units from the controller's memory, units from flash, and their way to the host.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Priority, SECTOR_BYTES};

use super::device::{Owner, Ssd};
use super::flash::{Class, Done, Transaction, Work};
use super::front::Direction;
use super::ftl::Unit;
use super::geometry::Slot;
use super::parameters::UnwrittenRead;
use super::read_ahead::Ahead;

/// Units of one read command of a die: the pages of one number in its planes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRead {
    /// The row, a superblock's page of all planes.
    row: u32,
    /// A bit for each plane.
    planes: u32,
    bytes: u32,
}

/// Source of a unit's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitLocation {
    /// The controller's memory, or no read is needed.
    Memory,
    Flash(Slot),
}

/// Source of a part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The controller's memory: the write buffer, or read-ahead data.
    Memory,
    /// The flash, for this command.
    Flash,
}

impl RowRead {
    /// A read of the unit in a slot.
    pub(super) fn of(slot: Slot, drive: &Ssd, bytes: u32) -> RowRead {
        let geometry = drive.parameters.geometry();
        let page = slot / geometry.units_per_page();
        RowRead { row: page / geometry.planes_per_die, planes: 1 << (page % geometry.planes_per_die), bytes }
    }

    /// Adds another read, if it is of the same row. Returns whether it was added.
    pub(super) fn join(&mut self, other: &RowRead) -> bool {
        let same = self.row == other.row;
        if same {
            self.planes |= other.planes;
            self.bytes += other.bytes;
        }
        same
    }
}

impl Ssd {
    /// Source of a unit's data.
    pub(super) fn place_of(&self, unit: Unit) -> UnitLocation {
        if self.buffer.holds(unit) {
            return UnitLocation::Memory;
        }
        match self.ftl.lookup(unit) {
            Some(slot) if self.is_being_moved(slot) => UnitLocation::Memory,
            Some(slot) => UnitLocation::Flash(slot),
            None if self.parameters.unwritten == UnwrittenRead::Zeros => UnitLocation::Memory,
            None if self.ftl.has_zones() => {
                self.ftl.slot_in_zone_as_written(unit).map_or(UnitLocation::Memory, UnitLocation::Flash)
            }
            None => UnitLocation::Flash(self.slot_as_written(unit)),
        }
    }

    /// The slot that a unit would have if the drive had been written from beginning to end.
    pub(super) fn slot_as_written(&self, unit: Unit) -> Slot {
        let geometry = self.parameters.geometry();
        let dies = geometry.dies();
        let per_superpage = geometry.units_per_superpage();
        let per_superblock = geometry.units_per_superblock();
        let (die, unit_of_die) = match self.ftl.bound_die(unit) {
            Some(die) if self.parameters.ftl.logical_blocks().is_some() => {
                (die, unit / per_superblock / dies * per_superblock + unit % per_superblock)
            }
            Some(die) => {
                let page = unit / geometry.units_per_page();
                (die, page / dies * geometry.units_per_page() + unit % geometry.units_per_page())
            }
            None => {
                let (die, stripe) = self.place_as_written(unit / per_superpage);
                (die, stripe * per_superpage + unit % per_superpage)
            }
        };
        let units_of_die = geometry.blocks_per_plane * geometry.units_per_superblock();
        let slc = self.parameters.ftl.slc_superblocks() * geometry.units_per_superblock();
        die * units_of_die + slc + unit_of_die % (units_of_die - slc)
    }

    /// The die and its superpage for a superpage of the host. Within `stripes_mixed` stripes of one superpage per die,
    /// each die gets as many superpages as there are stripes, in the random order in which dies were free.
    fn place_as_written(&self, superpage: u32) -> (u32, u32) {
        let dies = self.parameters.geometry().dies();
        let in_group = dies * self.parameters.stripes_mixed;
        let group = superpage / in_group;
        let place = shuffled(superpage % in_group, in_group, self.seed ^ u64::from(group) << 8);
        (place % dies, group * self.parameters.stripes_mixed + place / dies)
    }

    /// A read command for the flash.
    pub(super) fn read_transaction(&self, read: &RowRead, class: Class, owner: Owner) -> Transaction<Owner> {
        let geometry = self.parameters.geometry();
        let (superblock, page) = (read.row / geometry.pages_per_block, read.row % geometry.pages_per_block);
        let pages = read.planes.count_ones();
        Transaction {
            work: Work::Read,
            class,
            die: geometry.die_of_superblock(superblock),
            pages,
            bytes: if self.parameters.arrays.whole_pages { pages * geometry.page_bytes } else { read.bytes },
            array: self.read_time(superblock, page, read.bytes / pages),
            row: read.row,
            planes: read.planes,
            owner,
        }
    }

    /// Time of the array to read a page, by its place in the word line, the length read, and the word line's fixed
    /// variation.
    fn read_time(&self, superblock: u32, page: u32, bytes: u32) -> Nanos {
        let arrays = &self.parameters.arrays;
        let bits = self.parameters.geometry().cells.pages_per_word_line();
        let place = (page % bits) as usize;
        let times = if bytes <= arrays.small_bytes { &arrays.read_small } else { &arrays.read };
        let mut time = match self.ftl.is_slc(superblock) {
            true => arrays.slc.read.as_nanos(),
            false => times[place].as_nanos(),
        };
        if arrays.read_variation > Nanos::ZERO || arrays.retries_per_million > 0 {
            let luck = mix(self.seed ^ u64::from(superblock) << 20 ^ u64::from(page / bits));
            time = vary(time, arrays.read_variation.as_nanos(), luck);
            if (luck >> 32) % 1_000_000 < u64::from(arrays.retries_per_million) {
                time += arrays.retry.as_nanos();
            }
        }
        Nanos::from_nanos(time.max(1))
    }

    /// The class of a host's read.
    pub(super) fn read_class(priority: Priority) -> Class {
        match priority {
            Priority::High => Class::HostReadFirst,
            Priority::Normal => Class::HostRead,
            Priority::Idle => Class::ReadAhead,
        }
    }

    /// Requests the data of a read whose mapping is known.
    pub(super) fn read(&mut self, number: u32) {
        let command = self.commands[number];
        let request = command.request;
        let unit_bytes = self.parameters.geometry().unit_bytes;
        let sectors = u64::from(unit_bytes) / SECTOR_BYTES;
        let class = Ssd::read_class(request.priority);
        self.commands[number].pending = 1;
        self.commands[number].latest = self.now;
        let (mut in_memory, mut in_memory_at) = (0, self.now);
        let mut row: Option<RowRead> = None;
        let ahead = self.follow_stream(number);
        for unit in command.next_unit..command.end_unit {
            let begin = (u64::from(unit) * sectors).max(request.lba.0);
            let end = (u64::from(unit + 1) * sectors).min(request.end().0);
            let bytes = ((end - begin) * SECTOR_BYTES) as u32;
            match ahead.map_or(Ahead::Not, |stream| self.look_ahead(stream, number, unit, bytes)) {
                Ahead::Not => {}
                Ahead::Coming => continue,
                Ahead::There(at) => {
                    in_memory += bytes;
                    in_memory_at = in_memory_at.max(at);
                    continue;
                }
            }
            match self.place_of(unit) {
                UnitLocation::Memory => in_memory += bytes,
                UnitLocation::Flash(slot) => {
                    let read = RowRead::of(slot, self, bytes);
                    if row.as_mut().is_some_and(|row| row.join(&read)) {
                        continue;
                    }
                    if let Some(row) = row.replace(read) {
                        self.read_row(number, &row, class);
                    }
                }
            }
        }
        if let Some(row) = row {
            self.read_row(number, &row, class);
        }
        if let Some(stream) = ahead {
            self.read_on(stream);
        }
        if in_memory > 0 {
            let ready = in_memory_at + self.parameters.buffer.read_hit;
            self.statistics.bytes_from_memory += u64::from(in_memory);
            self.send(number, ready, in_memory, Source::Memory);
        }
        self.part_read(number);
    }

    fn read_row(&mut self, number: u32, row: &RowRead, class: Class) {
        self.commands[number].pending += 1;
        let transaction = self.read_transaction(row, class, Owner::Read(number));
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    /// Handles data of a read that have left the flash.
    pub(super) fn read_done(&mut self, number: u32, done: &Done<Owner>) {
        self.send(number, done.at, done.bytes, Source::Flash);
        if done.last {
            self.part_read(number);
        }
    }

    /// Sends data of a read to the host, which are in the controller at `ready`.
    pub(super) fn send(&mut self, number: u32, ready: Nanos, bytes: u32, source: Source) {
        let units = bytes.div_ceil(self.parameters.geometry().unit_bytes);
        let (ready, last_ready) = match source {
            Source::Memory if !self.parameters.front.output_memory => (ready, ready),
            Source::Memory | Source::Flash => {
                let first = !std::mem::replace(&mut self.commands[number].in_output, true);
                self.front.output(self.now, ready, units, first)
            }
        };
        let over = match self.parameters.front.whole_reads {
            true => last_ready,
            // Units cross the link while later ones are being read; the last one crosses it by itself.
            false => {
                let over = self.front.transfer(self.now, ready, u64::from(bytes), Direction::ToHost);
                let last_bytes = u64::from(bytes / units.max(1));
                over.max(last_ready + self.front.length_on_link(last_bytes))
            }
        };
        let command = &mut self.commands[number];
        command.latest = command.latest.max(over);
    }

    /// Handles a finished part of a read; the last one completes the read.
    pub(super) fn part_read(&mut self, number: u32) {
        let command = &mut self.commands[number];
        command.pending -= 1;
        if command.pending > 0 {
            return;
        }
        let (mut latest, bytes) = (command.latest, command.request.len_bytes());
        if self.parameters.front.whole_reads {
            latest = self.front.transfer(self.now, latest, bytes, Direction::ToHost);
        }
        self.answer(number, latest);
    }

    /// The write buffer, to change it.
    pub(super) fn buffer_mut(&mut self) -> &mut super::buffer::Buffer {
        Arc::make_mut(&mut self.buffer)
    }
}

/// Rounds after which some hundred numbers are in any order.
const SHUFFLE_ROUNDS: u32 = 12;

/// Position of a number below `count` in an order drawn by `luck`: the swap-or-not shuffle (Hoang, Morris, Rogaway,
/// CRYPTO 2012).
fn shuffled(mut place: u32, count: u32, luck: u64) -> u32 {
    for round in 0..SHUFFLE_ROUNDS {
        let luck = mix(luck ^ u64::from(round));
        let key = (((luck & 0xffff_ffff) * u64::from(count)) >> 32) as u32;
        let partner = if key >= place { key - place } else { key + count - place };
        if mix(luck ^ u64::from(place.max(partner))) >> 63 == 1 {
            place = partner;
        }
    }
    place
}

/// A time off its mean by at most an amplitude, by the sum of two uniform numbers that luck has.
pub(super) fn vary(time: u64, amplitude: u64, luck: u64) -> u64 {
    let sum = (luck & 0xffff) + (luck >> 16 & 0xffff);
    (time + amplitude * sum / 0xffff).saturating_sub(amplitude)
}

/// Spreads a number over all 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(super) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::shuffled;

    #[test]
    fn each_place_is_taken_once_and_few_stay() {
        for (count, luck) in [(1, 7), (5, 1), (32, 3), (96, 0), (32 * 1_024, 9)] {
            let mut seen = vec![false; count as usize];
            let mut stay = 0;
            for place in 0..count {
                let other = shuffled(place, count, luck);
                assert!(!std::mem::replace(&mut seen[other as usize], true), "{other} of {count} twice");
                stay += u32::from(other == place);
            }
            // One is expected by chance.
            assert!(count < 32 || stay <= 8, "{stay} of {count}");
        }
    }
}
