//! Timing of zones: commands of a zoned drive, and the path of data out of its write buffer.
//!
//! A command takes effect on its zone when the controller has decoded it, and is refused then if it is invalid. Written
//! data join the zone's partly filled program unit as soon as they are in the buffer, and occupy the buffer until the
//! unit has been programmed. The buffer has room for one program unit of each zone that may be active. It keeps its
//! contents without power, so only a finish pads a unit. A reset and a finish wait until earlier writes are in the
//! buffer. A reset completes when the zone is empty. Its superblocks are erased when their dies have no other work, or
//! before the host's work if no other superblock is free.

use chronodisk_sim::{Op, Status};

use super::device::Ssd;
use super::ftl::{Stream, Superpage, ZoneIndex};
use super::geometry::DieIndex;
use super::pool::NONE;
use crate::{ZoneCondition, ZoneReport};

impl Ssd {
    /// Handles a decoded command of a zoned drive, except reads and flushes.
    pub(super) fn zone_command(&mut self, number: u32) {
        let request = self.commands[number].request;
        if !self.units.is_aligned(&request) {
            return self.refuse(number, Status::InvalidField);
        }
        let (first, end) = self.units.of(&request);
        match request.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                match self.ftl.zones_mut().write(first, end - first, request.op == Op::ZoneAppend) {
                    Ok(place) => {
                        let command = &mut self.commands[number];
                        command.request.lba.0 = self.units.first_sector(place);
                        (command.next_unit, command.next_arrival) = (place, place);
                        command.end_unit = place + (end - first);
                        self.write(number);
                    }
                    Err(status) => self.refuse(number, status),
                }
            }
            Op::ZoneReset | Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish => self.manage_zone(number, request.op),
            _ => self.refuse(number, Status::Unsupported),
        }
    }

    /// Opens, closes, finishes or resets a zone for the host.
    fn manage_zone(&mut self, number: u32, op: Op) {
        let (first, _) = self.units.of(&self.commands[number].request);
        let zone = self.ftl.zones().of(first);
        if first != self.ftl.zones().units(zone).start {
            return self.refuse(number, Status::InvalidField);
        }
        let done = match op {
            Op::ZoneOpen => self.ftl.zones_mut().open_by_host(zone),
            Op::ZoneClose => self.ftl.zones_mut().close_by_host(zone),
            _ => {
                self.zone_waiters.push(number);
                return self.go_on_with_zones();
            }
        };
        match done {
            Ok(()) => self.answer(number, self.now),
            Err(status) => self.refuse(number, status),
        }
    }

    /// The zones of a new drive are as they were before a loss of power: program units that were complete have been
    /// programmed, and the rest of a zone is in the buffer, which keeps its contents. Full zones come first, since each
    /// is active for a moment.
    pub(super) fn fill_zones(&mut self, zones: &[ZoneReport]) {
        let is_full = |zone: &ZoneReport| zone.condition == ZoneCondition::Full;
        for full in [true, false] {
            for zone in zones.iter().filter(|zone| is_full(zone) == full && (full || zone.written_sectors > 0)) {
                let number = self.ftl.zones().of(self.units.unit_of(zone.start));
                let rest = self.ftl.fill_zone(number, self.units.holding(zone.written_sectors), full);
                self.buffer_mut().admit(rest.end - rest.start);
                rest.clone().for_each(|unit| self.buffer_mut().put(unit));
                if !rest.is_empty() {
                    self.ftl.zones_mut().arrived(rest.start, rest.end - rest.start);
                    self.destage_zones();
                }
            }
        }
        self.ftl.forget_counters();
    }

    /// Completes a command with an error.
    fn refuse(&mut self, number: u32, status: Status) {
        self.commands[number].status = status;
        self.answer(number, self.now);
    }

    /// Resets and finishes the zones whose earlier writes are in the buffer, in order of arrival.
    fn go_on_with_zones(&mut self) {
        if self.zone_waiters.is_empty() {
            return;
        }
        let mut waiters = std::mem::take(&mut self.zone_waiters);
        waiters.retain(|&number| {
            let request = self.commands[number].request;
            let zone = self.ftl.zones().of(self.units.of(&request).0);
            let settled = self.ftl.zones().is_settled(zone);
            if settled {
                if request.op == Op::ZoneReset {
                    self.reset_zone(zone)
                } else {
                    self.finish_zone(zone)
                }
                self.answer(number, self.now);
            }
            !settled
        });
        self.zone_waiters = waiters;
    }

    fn reset_zone(&mut self, zone: ZoneIndex) {
        let mut entry = self.ftl.zones().begun(zone).unwrap_or(NONE);
        self.ftl.reset_zone(zone);
        let units = self.ftl.zones().units(zone);
        self.buffer_mut().trim(units);
        while entry != NONE {
            let next = self.buffer.entry(entry).next;
            self.settle(entry);
            entry = next;
        }
        self.admit();
        self.ftl.zones().dies(zone).for_each(|die| self.collect(die));
    }

    fn finish_zone(&mut self, zone: ZoneIndex) {
        if let Some(superpage) = self.ftl.finish_zone(zone) {
            self.program_zone(zone, superpage);
        }
    }

    /// Appends buffered units to their zones' partly filled program units, and programs full ones.
    pub(super) fn destage_zones(&mut self) {
        while let Some(unit) = self.buffer.first_unit() {
            let Some(appended) = self.ftl.append_to_zone(unit) else { break };
            let Some((entry, wanted)) = self.buffer_mut().take() else { break };
            debug_assert!(wanted, "only what was appended is reset");
            let zone = self.ftl.zones().of(unit);
            let begun = self.ftl.zones().begun(zone).unwrap_or(NONE);
            self.buffer_mut().set_next(entry, begun);
            self.ftl.zones_mut().set_begun(zone, Some(entry));
            if let Some(superpage) = appended.completed {
                self.program_zone(zone, superpage);
            }
        }
        self.go_on_with_zones();
    }

    fn program_zone(&mut self, zone: ZoneIndex, superpage: Superpage) {
        let first = self.ftl.zones().begun(zone).unwrap_or(NONE);
        self.ftl.zones_mut().set_begun(zone, None);
        let die: DieIndex = self.parameters.geometry().die_of_superblock(superpage.superblock);
        self.destager.program_begun(die);
        self.program(die, superpage, Stream::Host, first);
    }
}
