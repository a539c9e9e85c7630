//! Commands and the mapping table in flash: look-ups that have to be read first, and pages that are written back.

use chronodisk_sim::{Nanos, Op};

use super::device::Ssd;
use super::events::Event;
use super::flash::Class;
use super::ftl::{Mapping, Stream, Unit};
use super::pool::NONE;
use super::records::{Owner, RowRead};

impl Ssd {
    /// Looks up the places of a command's units, and continues with the command afterwards.
    pub(super) fn look_up(&mut self, number: u32, change: bool) {
        if self.parameters.ftl.mapping == Mapping::Ideal {
            self.known(number);
            return;
        }
        let (first, end) = (self.commands[number].next_unit, self.commands[number].end_unit);
        let command = &mut self.commands[number];
        (command.pending, command.latest) = (1, self.now);
        for unit in first..end {
            let access = self.ftl.access_mapping(unit, change);
            if let Some(part) = access.write_back {
                self.read_mapping(number, part.unit);
                self.mapping_reads.write_back(part.unit);
            }
            if let Some(part) = access.read {
                self.read_mapping(number, part.unit);
            }
        }
        self.append_waiting_mapping();
        self.mapping_part_known(number, self.now);
    }

    /// A command waits for a part of the table, which is read once however many wait for it.
    fn read_mapping(&mut self, number: u32, unit: Unit) {
        let wait = self.mapping_reads.wait(number, unit);
        if wait.begins {
            let slot = self.ftl.lookup(unit).unwrap_or_else(|| self.as_written.slot(unit));
            let bytes = self.parameters.buffer.mapping_read_bytes;
            let read = RowRead::of(slot, self.parameters.geometry(), bytes);
            let transaction = self.transactions.read(&read, Class::MappingRead, Owner::Mapping(wait.place));
            self.flash.submit(self.now, transaction, &mut self.events);
        }
        self.commands[number].pending += u32::from(wait.joins);
    }

    /// Handles a part of the table that is in the controller at `at`.
    pub(super) fn mapping_done(&mut self, place: u32, at: Nanos) {
        let mut waiting = self.mapping_reads.done(place);
        while let Some(command) = self.mapping_reads.next_waiter(&mut waiting) {
            self.statistics.mapping_wait += (at - self.commands[command].latest.min(at)).as_nanos();
            self.mapping_part_known(command, at);
        }
    }

    fn mapping_part_known(&mut self, number: u32, at: Nanos) {
        let command = &mut self.commands[number];
        command.pending -= 1;
        command.latest = command.latest.max(at);
        if command.pending > 0 {
            return;
        }
        if command.latest > self.now {
            self.events.push(command.latest, Event::Known(number));
        } else {
            self.known(number);
        }
    }

    /// Continues a command whose mapping lookups are complete.
    pub(super) fn known(&mut self, number: u32) {
        match self.commands[number].request.op {
            Op::Read => self.read(number),
            _ => self.write(number),
        }
    }

    /// Appends the waiting translation units, as far as there is room.
    pub(super) fn append_waiting_mapping(&mut self) {
        while let Some((die, superpage)) = self.mapping_reads.append(&mut self.ftl) {
            self.program(die, superpage, Stream::Mapping, NONE);
            self.collect(die);
        }
    }
}
