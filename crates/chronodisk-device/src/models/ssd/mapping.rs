//! The mapping table in flash, in time: look-ups that have to be read, and pages that are written back.

use chronodisk_sim::{Nanos, Op};

use super::device::Ssd;
use super::events::Event;
use super::flash::Class;
use super::ftl::{Mapping, Stream, Unit};
use super::pool::{NONE, Pool};
use super::records::{Owner, RowRead};

/// Reads of parts of the mapping table, with their waiting requests.
#[derive(Clone, Debug)]
pub(super) struct MappingReads {
    reads: Pool<Reading>,
    waiters: Pool<Waiter>,
    /// Indices of the current reads.
    active: Vec<u32>,
    /// Parts that are to be written when a die has room for them.
    unwritten: Vec<Unit>,
    next_die: u32,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    unit: Unit,
    /// Last command in the list of waiters.
    waiters: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    command: u32,
    next: u32,
}

impl Default for MappingReads {
    fn default() -> Self {
        MappingReads {
            reads: Pool::new(),
            waiters: Pool::new(),
            active: Vec::new(),
            unwritten: Vec::new(),
            next_die: 0,
        }
    }
}

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
                self.statistics.mapping_written_back += 1;
                self.read_mapping(number, part.unit);
                self.mapping_reads.unwritten.push(part.unit);
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
        let reads = &self.mapping_reads;
        let place = reads.active.iter().copied().find(|&place| reads.reads[place].unit == unit);
        let place = match place {
            Some(place) => place,
            None => {
                let slot = self.ftl.lookup(unit).unwrap_or_else(|| self.as_written.slot(unit));
                let place = self.mapping_reads.reads.insert(Reading { unit, waiters: NONE });
                self.mapping_reads.active.push(place);
                let read = RowRead::of(slot, self.parameters.geometry(), self.parameters.buffer.mapping_read_bytes);
                let transaction = self.transactions.read(&read, Class::MappingRead, Owner::Mapping(place));
                self.statistics.mapping_reads += 1;
                self.flash.submit(self.now, transaction, &mut self.events);
                place
            }
        };
        let last = self.mapping_reads.reads[place].waiters;
        if last != NONE && self.mapping_reads.waiters[last].command == number {
            return;
        }
        let waiter = self.mapping_reads.waiters.insert(Waiter { command: number, next: last });
        self.mapping_reads.reads[place].waiters = waiter;
        self.commands[number].pending += 1;
    }

    /// Handles a part of the table that is in the controller at `at`.
    pub(super) fn mapping_done(&mut self, place: u32, at: Nanos) {
        let reading = self.mapping_reads.reads.remove(place);
        self.mapping_reads.active.retain(|&other| other != place);
        let mut waiter = reading.waiters;
        while waiter != NONE {
            let Waiter { command, next } = self.mapping_reads.waiters.remove(waiter);
            self.statistics.mapping_wait += (at - self.commands[command].latest.min(at)).as_nanos();
            self.mapping_part_known(command, at);
            waiter = next;
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
        while let Some(&unit) = self.mapping_reads.unwritten.last() {
            let Some(die) = self.ftl.die_with_room(Stream::Mapping, self.mapping_reads.next_die) else { return };
            self.mapping_reads.unwritten.pop();
            let appended = self.ftl.append(Stream::Mapping, die, unit).expect("the die has room");
            if let Some(superpage) = appended.completed {
                self.mapping_reads.next_die = (die + 1) % self.parameters.geometry().dies();
                self.program(die, superpage, Stream::Mapping, NONE);
                self.collect(die);
            } else {
                self.mapping_reads.next_die = die;
            }
        }
    }
}
