//! Writes: into the buffer when there is room, and out of it a superpage at a time; flushes and discards.

use chronodisk_sim::{Nanos, Request};

use super::admission::Admitted;
use super::device::Ssd;
use super::events::Event;
use super::flash::Class;
use super::ftl::{Stream, Superpage, Unit};
use super::geometry::DieIndex;
use super::luck::mix;
use super::parameters::UnwrittenRead;
use super::pool::NONE;
use super::records::{Owner, RowRead, UnitLocation};
use super::units::WHOLE_UNIT;

/// A superpage being programmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) superpage: Superpage,
    pub(super) die: DieIndex,
    pub(super) stream: Stream,
    /// Entries of the buffer that are in it, linked.
    pub(super) first: u32,
}

/// The host's partly filled superpage on a die, as a list of its entries in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSuperpage {
    first: u32,
}

impl OpenSuperpage {
    pub(super) const EMPTY: OpenSuperpage = OpenSuperpage { first: NONE };
}

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
            self.ftl.arrived_in_zone(first, units);
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

    /// Whether something that waits for a program must not wait for a whole superpage.
    fn must_empty(&self) -> bool {
        let below = self.flushes.awaited_below(&self.commands);
        self.buffer.first_order().is_some_and(|order| order < below)
    }

    /// Programs units from the buffer, as far as there are superpages and dies for them.
    pub(super) fn destage(&mut self) {
        if self.ftl.has_zones() {
            return self.destage_zones();
        }
        loop {
            let die = match self.buffer.first_unit() {
                Some(unit) => match self.ftl.bound_die(unit) {
                    Some(die) => self.ftl.host_stream_for(die, unit).map(|_| die),
                    None => self.choose_die(),
                },
                None => None,
            };
            let Some(die) = die else { break };
            if !self.fill(die) {
                break;
            }
        }
        self.pad_what_must_leave();
    }

    /// A die for the next superpage, if enough units wait for one: the next in turn without a program, otherwise the
    /// next that may queue another.
    fn choose_die(&mut self) -> Option<DieIndex> {
        let dies = self.programs_of.len() as u32;
        let needed = self.parameters.geometry().units_per_superpage();
        let cached = self.parameters.ftl.slc_cache.is_some();
        let enough = self.must_empty() || self.buffer.dirty() >= needed;
        let enough_for_one_bit = cached && self.buffer.dirty() >= self.ftl.units_per_superpage(Stream::Cache);
        if !(enough || enough_for_one_bit) {
            return None;
        }
        let most = self.parameters.buffer.programs_per_die;
        let mut second = None;
        let mut die = self.next_die;
        for _ in 0..dies {
            let waiting = self.programs_of[die as usize];
            let stream = if waiting < most { self.ftl.host_stream(die) } else { None };
            if stream.is_some_and(|stream| enough || stream == Stream::Cache) {
                if waiting == 0 {
                    second = Some(die);
                    break;
                }
                second = second.or(Some(die));
            }
            die = if die + 1 == dies { 0 } else { die + 1 };
        }
        let chosen = second?;
        self.next_die = if chosen + 1 == dies { 0 } else { chosen + 1 };
        Some(chosen)
    }

    /// Appends units to the die's superpage until it is full or no unit for that die waits. Returns whether any was
    /// appended.
    fn fill(&mut self, die: DieIndex) -> bool {
        let Some(first) = self.buffer.first_unit() else { return self.pad_if_dynamic(die) };
        let mut appended = false;
        if !self.ftl.joins_begun(die, first) {
            self.pad(die);
            appended = true;
        }
        let Some(stream) = self.ftl.host_stream_for(die, first) else { return appended };
        loop {
            match self.buffer.first_unit() {
                None => return self.pad_if_dynamic(die) || appended,
                Some(unit) if self.ftl.bound_die(unit).is_some_and(|bound| bound != die) => return appended,
                Some(unit) if !self.ftl.joins_begun(die, unit) => return appended,
                Some(_) => {}
            }
            let Some((entry, wanted)) = self.buffer_mut().take() else { return appended };
            appended = true;
            if !wanted {
                self.settle(entry);
                continue;
            }
            let unit = self.buffer.entry(entry).unit;
            let place = self.ftl.append(stream, die, unit).expect("the die has room");
            let open = &mut self.open[die as usize];
            let first = std::mem::replace(&mut open.first, entry);
            self.buffer_mut().set_next(entry, first);
            if let Some(superpage) = place.completed {
                self.program_host(die, superpage);
                return true;
            }
        }
    }

    /// Pads a partly filled superpage for which no further unit waits, if dies are chosen freely.
    fn pad_if_dynamic(&mut self, die: DieIndex) -> bool {
        let open = self.open[die as usize].first != NONE;
        if open && self.ftl.bound_die(self.buffer.entry(self.open[die as usize].first).unit).is_none() {
            self.pad(die);
        }
        open
    }

    fn pad(&mut self, die: DieIndex) {
        let begun = self.ftl.pad(Stream::Host, die).or_else(|| self.ftl.pad(Stream::Cache, die));
        if let Some(superpage) = begun {
            self.program_host(die, superpage);
        }
    }

    /// Pads partly filled superpages if a flush waits for them, or if the buffer is full of them.
    fn pad_what_must_leave(&mut self) {
        let stuck = self.buffer.free() == 0 && self.programs_under_way == 0 && self.buffer.dirty() == 0;
        if !stuck && (self.flushes.is_empty() || self.buffer.dirty() > 0) {
            return;
        }
        for die in 0..self.open.len() as u32 {
            if self.open[die as usize].first != NONE {
                self.pad(die);
            }
        }
    }

    fn program_host(&mut self, die: DieIndex, superpage: Superpage) {
        let first = std::mem::replace(&mut self.open[die as usize].first, NONE);
        self.programs_of[die as usize] += 1;
        self.programs_under_way += 1;
        self.program(die, superpage, Stream::Host, first);
        self.collect(die);
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
