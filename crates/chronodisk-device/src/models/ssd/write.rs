//! Writes: into the buffer when there is room, and out of it a superpage at a time; flushes and discards.

use chronodisk_sim::{Nanos, Request};

use super::admission::Admitted;
use super::destager::Leaving;
use super::device::Ssd;
use super::events::Event;
use super::flash::Class;
use super::ftl::{Stream, Unit};
use super::luck::mix;
use super::parameters::UnwrittenRead;
use super::records::{Owner, RowRead, UnitLocation};
use super::units::WHOLE_UNIT;

impl Ssd {
    /// Begins a write with known mapping: its partially covered units must be read first.
    pub(super) fn write(&mut self, number: u32) {
        let request = self.commands[number].request;
        let (whole, whole_end) = self.units.whole(&request);
        let (first, end) = self.units.of(&request);
        let command = &mut self.commands[number];
        (command.pending, command.latest) = (1, self.now);
        let ends = [Some(first), (end - 1 > first).then_some(end - 1)];
        for unit in ends.into_iter().flatten().filter(|unit| !(whole..whole_end).contains(unit)) {
            if let UnitLocation::Flash(slot) = self.place_of(unit)
                && (self.parameters.unwritten != UnwrittenRead::MappedByRead || self.ftl.lookup(unit).is_some())
            {
                self.commands[number].pending += 1;
                self.statistics.units_modified += 1;
                let read = RowRead::of(slot, self.parameters.geometry(), self.parameters.geometry().unit_bytes);
                let transaction = self.transactions.read(&read, Class::HostRead, Owner::Modify(number));
                self.flash.submit(self.now, transaction, &mut self.events);
            }
        }
        self.modify_done(number, self.now);
    }

    /// A unit that a write changes in part is in the controller.
    pub(super) fn modify_done(&mut self, number: u32, at: Nanos) {
        let command = &mut self.commands[number];
        command.pending -= 1;
        command.latest = command.latest.max(at);
        if command.pending == 0 && self.admission.enter(self.now, &mut self.commands, number) {
            self.admit();
        }
    }

    /// Accepts data of waiting writes, as far as the buffer has room.
    pub(super) fn admit(&mut self) {
        let (now, commands, front) = (self.now, &mut self.commands, &mut self.front);
        while let Some(admitted) = self.admission.admit(now, commands, (&mut self.buffer, &self.units), front) {
            let Admitted { command, units, at } = admitted;
            self.events.push(at, Event::Arrived { command, units });
        }
    }

    /// Units of a write have crossed the link.
    pub(super) fn arrived(&mut self, number: u32, units: u32) {
        let command = &mut self.commands[number];
        let first = command.next_arrival;
        command.next_arrival += units;
        let all = command.next_arrival == command.end_unit;
        let request = command.request;
        self.put(&request, first, first + units - 1);
        if self.ftl.has_zones() {
            self.ftl.zones_mut().arrived(first, units);
        }
        self.statistics.units_written += u64::from(units);
        if all {
            if request.fua && !self.parameters.buffer.protected {
                self.flush(number);
            } else {
                let (begin, end) = self.units.of(&request);
                let into_buffer = self.parameters.buffer.write_unit.as_nanos() * u64::from(end - begin);
                let jitter = self.write_jitter();
                self.answer(number, self.now + Nanos::from_nanos(into_buffer) + jitter);
            }
        }
        self.destage();
        self.admit();
    }

    /// Puts units of a request into the buffer, whose sectors matter only where a loss of power would lose them.
    fn put(&mut self, request: &Request, first: Unit, last: Unit) {
        let ends = match self.parameters.buffer.protected {
            true => [WHOLE_UNIT; 2],
            false => [first, last].map(|unit| self.units.changed_in(request, unit)),
        };
        let buffer = self.buffer_mut();
        buffer.put_sectors(first, ends[0]);
        (first + 1..last).for_each(|unit| buffer.put(unit));
        if last > first {
            buffer.put_sectors(last, ends[1]);
        }
    }

    /// A write's random latency, drawn by the number of the write.
    fn write_jitter(&self) -> Nanos {
        let mean = self.parameters.front.write_jitter.as_nanos();
        if mean == 0 {
            return Nanos::ZERO;
        }
        let luck = mix(self.seed ^ self.statistics.units_written << 8 ^ 0x77);
        // The middle of one of 2^32 equally likely intervals, so that the logarithm's argument is positive.
        let uniform = ((luck >> 32) as f64 + 0.5) / f64::from(u32::MAX);
        Nanos::from_nanos((mean as f64 * -uniform.min(1.0).ln()) as u64)
    }

    /// A flush: done when all that the buffer holds is in flash.
    pub(super) fn flush(&mut self, number: u32) {
        let held = self.buffer.held();
        if self.parameters.buffer.protected || held == 0 {
            self.answer(number, self.now);
            return;
        }
        let order = self.buffer.order();
        self.flushes.enter(&mut self.commands, number, held, order);
        self.destage();
    }

    /// Handles an entry of the buffer that needs no program any more: its place is free, and flushes wait for one less.
    pub(super) fn settle(&mut self, entry: u32) {
        let order = self.buffer.entry(entry).order;
        self.buffer_mut().release(entry);
        self.flushes.settle(&mut self.commands, order);
        while let Some(number) = self.flushes.take_done(&self.commands) {
            self.answer(number, self.now);
        }
    }

    /// Programs units from the buffer, as far as there are superpages and dies for them.
    pub(super) fn destage(&mut self) {
        if self.ftl.has_zones() {
            return self.destage_zones();
        }
        let mut freed = false;
        loop {
            let awaited_below = self.flushes.awaited_below(&self.commands);
            match self.destager.next(&mut self.buffer, &mut self.ftl, awaited_below) {
                None => break,
                Some(Leaving::Settled(entry)) => {
                    self.settle(entry);
                    freed = true;
                }
                Some(Leaving::Program { die, superpage, first }) => {
                    self.program(die, superpage, Stream::Host, first);
                    self.collect(die);
                }
            }
        }
        if freed {
            self.admit();
        }
    }

    /// The host discards a request's range.
    pub(super) fn discard(&mut self, number: u32) {
        let request = self.commands[number].request;
        let (begin, end) = self.units.whole(&request);
        self.trim(begin, end);
        self.answer(number, self.now);
    }

    fn trim(&mut self, begin: Unit, end: Unit) {
        if begin < end {
            self.buffer_mut().trim(begin..end);
            self.ftl.trim(begin..end);
        }
    }

    /// Begins a write of zeros. Whole units are discarded. Other zeros are written, but need not cross the link.
    pub(super) fn write_zeroes(&mut self, number: u32) {
        let request = self.commands[number].request;
        if self.units.of(&request) == self.units.whole(&request) {
            self.discard(number);
        } else {
            self.look_up(number, true);
        }
    }
}
