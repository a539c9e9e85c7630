//! A flash translation layer without time: every program and erase ends at once.

use super::super::geometry::DieIndex;
use super::{Appended, Ftl, Move, Stream, Unit, Urgency, ZoneIndex};

/// Writes for the host, and collects whenever the thresholds ask for it.
#[derive(Clone, Debug)]
pub(crate) struct Untimed {
    ftl: Ftl,
    /// The die that dynamic allocation writes to.
    die: DieIndex,
    /// Reused, so that it is allocated once.
    moves: Vec<Move>,
}

impl Untimed {
    /// Drives `ftl`, which must have no program or collection in progress.
    pub(crate) fn new(ftl: Ftl) -> Self {
        Untimed { ftl, die: 0, moves: Vec::new() }
    }

    /// The state.
    pub(crate) fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// The state, at rest.
    pub(crate) fn into_ftl(self) -> Ftl {
        self.ftl
    }

    /// The host writes a unit.
    pub(crate) fn write(&mut self, unit: Unit) {
        self.look_up_to_change(unit);
        match self.ftl.bound_die(unit) {
            Some(die) => self.write_to(die, unit),
            None => {
                let dies = self.ftl.dies();
                let mut around = (self.die..dies).chain(0..self.die);
                let die = around.find(|&die| self.ftl.host_stream(die).is_some());
                self.write_to(die.expect("a checked drive has a die with room"), unit);
            }
        }
    }

    /// Writes a unit of the host to the given die. Returns whether there was room; there is none if the die has its
    /// share of valid data.
    pub(crate) fn write_on(&mut self, die: DieIndex, unit: Unit) -> bool {
        let room = self.ftl.host_stream(die).is_some();
        if room {
            self.look_up_to_change(unit);
            self.write_to(die, unit);
        }
        room
    }

    /// Appends a unit of the host on a die; the next superpage goes to the next die.
    fn write_to(&mut self, die: DieIndex, unit: Unit) {
        if !self.ftl.joins_begun(die, unit) {
            self.pad(die);
            self.collect(die);
        }
        let stream = self.ftl.host_stream_for(die, unit).expect("the collector keeps room");
        self.put_on(stream, die, unit);
        self.die = if self.ftl.begun(stream, die) == 0 { (die + 1) % self.ftl.dies() } else { die };
    }

    /// Resets a zone and writes all of it. At most one zone less than permitted is active.
    pub(crate) fn rewrite_zone(&mut self, zone: ZoneIndex) {
        self.ftl.reset_zone(zone);
        self.ftl.zones().dies(zone).for_each(|die| self.collect(die));
        let units = self.ftl.zones().units(zone);
        let count = units.end - units.start;
        self.ftl.zones_mut().write(units.start, count, false).expect("the zone is empty, and can be active");
        self.ftl.zones_mut().arrived(units.start, count);
        for unit in units {
            let appended = self.ftl.append_to_zone(unit).expect("a die has a superblock for each of its zones");
            self.end_program(appended);
        }
    }

    /// Looks a unit up for a change of its place, with the effects on the mapping cache.
    fn look_up_to_change(&mut self, unit: Unit) {
        let access = self.ftl.access_mapping(unit, true);
        if let Some(part) = access.write_back {
            self.put(Stream::Mapping, part.unit % self.ftl.dies(), part.unit);
        }
    }

    /// The host trims some units.
    #[cfg(test)]
    pub(crate) fn trim(&mut self, units: std::ops::Range<Unit>) {
        self.ftl.trim(units);
    }

    /// Writes the changes that are only in the controller's memory.
    pub(crate) fn settle(&mut self) {
        for unit in self.ftl.changed_mapping() {
            self.put(Stream::Mapping, unit % self.ftl.dies(), unit);
        }
        for die in 0..self.ftl.dies() {
            self.pad(die);
            self.ftl.close_logs(die);
        }
    }

    /// Completes the superpages that are begun on a die.
    fn pad(&mut self, die: DieIndex) {
        for stream in Stream::ALL {
            if let Some(superpage) = self.ftl.pad(stream, die) {
                self.ftl.programmed(superpage);
            }
        }
    }

    /// Appends on the first die that has room.
    fn put(&mut self, stream: Stream, start: DieIndex, unit: Unit) {
        let die = self.ftl.die_with_room(stream, start).expect("a checked drive has a die with room");
        self.put_on(stream, die, unit);
    }

    fn put_on(&mut self, stream: Stream, die: DieIndex, unit: Unit) {
        let appended = self.ftl.append(stream, die, unit).expect("the collector keeps room");
        self.end_program(appended);
        self.collect(die);
    }

    /// Collects on a die until the collector is content.
    fn collect(&mut self, die: DieIndex) {
        while self.ftl.urgency(die) != Urgency::None && self.ftl.start_collection(die).is_some() {
            self.moves.clear();
            self.ftl.next_moves(die, usize::MAX, &mut self.moves);
            for index in 0..self.moves.len() {
                let appended = self.ftl.relocate(die, self.moves[index]);
                self.end_program(appended.expect("nothing changes between read and move"));
            }
            if !self.ftl.is_merging(die) {
                self.ftl.erased(die);
            } else if let Some(superpage) = self.ftl.end_merge(die) {
                self.ftl.programmed(superpage);
            }
        }
    }

    fn end_program(&mut self, appended: Appended) {
        if let Some(superpage) = appended.completed {
            self.ftl.programmed(superpage);
        }
    }
}
