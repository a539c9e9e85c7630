//! Reads: units from the controller's memory, units from flash, and their way to the host.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Priority};

use super::device::Ssd;
use super::flash::{Class, Done};
use super::ftl::Unit;
use super::parameters::UnwrittenRead;
use super::read_ahead::{Ahead, AheadChunk};
use super::records::{Owner, RowRead, Rows, Source, UnitLocation};

impl Ssd {
    /// Source of a unit's data.
    pub(super) fn place_of(&self, unit: Unit) -> UnitLocation {
        if self.buffer.holds(unit) {
            return UnitLocation::Memory;
        }
        match self.ftl.lookup(unit) {
            Some(slot) if self.collector.is_moving(slot) => UnitLocation::Memory,
            Some(slot) => UnitLocation::Flash(slot),
            None if self.parameters.unwritten == UnwrittenRead::Zeros => UnitLocation::Memory,
            None if self.ftl.has_zones() => {
                self.ftl.slot_in_zone_as_written(unit).map_or(UnitLocation::Memory, UnitLocation::Flash)
            }
            None => UnitLocation::Flash(self.as_written.slot(unit)),
        }
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
        let class = Ssd::read_class(request.priority);
        self.commands[number].pending = 1;
        self.commands[number].latest = self.now;
        let (mut in_memory, mut in_memory_at) = (0, self.now);
        let mut rows = Rows::default();
        let ahead = self.read_ahead.follow(command.next_unit, command.end_unit);
        for unit in command.next_unit..command.end_unit {
            let bytes = self.units.bytes_in(&request, unit, unit + 1) as u32;
            match ahead.map_or(Ahead::Not, |stream| self.read_ahead.look(stream, number, unit, bytes)) {
                Ahead::Not => {}
                Ahead::Coming { joins, first } => {
                    self.commands[number].pending += u32::from(joins);
                    if first && let Some(stream) = ahead {
                        let chunk = self.read_ahead.chunk_of(stream, unit);
                        self.hurry(stream, &chunk);
                    }
                    continue;
                }
                Ahead::There(at) => {
                    in_memory += bytes;
                    in_memory_at = in_memory_at.max(at);
                    continue;
                }
            }
            match self.place_of(unit) {
                UnitLocation::Memory => in_memory += bytes,
                UnitLocation::Flash(slot) => {
                    let read = RowRead::of(slot, self.parameters.geometry(), bytes);
                    if let Some(row) = rows.add(read) {
                        self.read_row(number, &row, class);
                    }
                }
            }
        }
        if let Some(row) = rows.take() {
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
        let transaction = self.transactions.read(row, class, Owner::Read(number));
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
        self.front.send(self.now, &mut self.commands[number], ready, (bytes, units), source);
    }

    /// Handles a finished part of a read; the last one completes the read.
    pub(super) fn part_read(&mut self, number: u32) {
        let command = &mut self.commands[number];
        command.pending -= 1;
        if command.pending > 0 {
            return;
        }
        let latest = self.front.end_of_read(self.now, &self.commands[number]);
        self.answer(number, latest);
    }

    /// Gives the waiting transactions of a chunk being read ahead the priority of the request for it.
    fn hurry(&mut self, stream: u32, chunk: &AheadChunk) {
        let owner = Owner::Ahead { stream, place: chunk.place };
        let mut last = None;
        for unit in chunk.units() {
            // A unit that was written meanwhile is elsewhere, and is not read ahead.
            let UnitLocation::Flash(slot) = self.place_of(unit) else { continue };
            let geometry = self.parameters.geometry();
            let die = geometry.die_of_superblock(geometry.superblock_of(slot));
            if last.replace(die) != Some(die) {
                self.flash.promote(self.now, die, owner, &mut self.events);
            }
        }
    }

    /// Reads ahead of a stream as far as permitted.
    fn read_on(&mut self, stream: u32) {
        while let Some(chunk) = self.read_ahead.next_chunk(stream, self.now) {
            let geometry = *self.parameters.geometry();
            let owner = Owner::Ahead { stream, place: chunk.place };
            let (mut rows, mut reads) = (Rows::default(), 0);
            for unit in chunk.units() {
                let UnitLocation::Flash(slot) = self.place_of(unit) else { continue };
                if let Some(row) = rows.add(RowRead::of(slot, &geometry, geometry.unit_bytes)) {
                    self.read_row_ahead(&row, owner);
                    reads += 1;
                }
            }
            if let Some(row) = rows.take() {
                self.read_row_ahead(&row, owner);
                reads += 1;
            }
            self.read_ahead.reads_begun(stream, chunk.place, reads);
        }
    }

    fn read_row_ahead(&mut self, row: &RowRead, owner: Owner) {
        let transaction = self.transactions.read(row, Class::ReadAhead, owner);
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    /// Handles a part of a chunk that has left the flash. Once the whole chunk has, its waiting commands continue.
    pub(super) fn ahead_done(&mut self, stream: u32, place: u32, done: &Done<Owner>) {
        let Some((there, mut waiting)) = self.read_ahead.done(stream, place, done.at, done.last) else { return };
        while let Some((command, bytes)) = self.read_ahead.next_waiter(&mut waiting) {
            self.send(command, there, bytes, Source::Memory);
            self.part_read(command);
        }
    }

    /// The write buffer, to change it.
    pub(super) fn buffer_mut(&mut self) -> &mut super::buffer::Buffer {
        Arc::make_mut(&mut self.buffer)
    }
}
