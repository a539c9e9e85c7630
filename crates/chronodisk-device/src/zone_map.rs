//! The zones of a device as its host sees them: which requests take effect, and where a report says the pointers are.
//!
//! A model decides about a request when the drive has understood it; the bytes move when the request arrives. A
//! [`ZoneMap`] decides at the arrival, by the same rules (NVM Express Zoned Namespace Command Set Specification,
//! revision 1.1), so that no refused byte is kept. It is as strict as any drive may be: a zone counts as open until the
//! requests that fill, finish or reset it have completed, and takes no other request while it is finished or reset. So
//! a model that sees the accepted requests in the order of their arrival accepts all of them.
//!
//! A conventional zone has no pointer. It takes writes anywhere, and no operation of zones (INCITS 550, Zoned Block
//! Commands). A write may go on in the next zone if that is conventional, too. Such drives have no limit of active
//! zones. Then a zone is not open once it is full, whether its last write has completed or not.
//!
//! Not modelled: read-only and offline zones.

use chronodisk_sim::{Op, Request, Status};

use crate::{ZoneLayout, footprint};

/// States of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneCondition {
    /// Nothing was written.
    #[default]
    Empty,
    /// A write has opened it.
    ImplicitlyOpen,
    /// The host has opened it.
    ExplicitlyOpen,
    /// Begun, or opened before.
    Closed,
    /// Can only be read or reset.
    Full,
    /// Conventional: it has no write pointer, and stays so.
    NoPointer,
}

impl ZoneCondition {
    /// Whether the zone is open, implicitly or explicitly.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, ZoneCondition::ImplicitlyOpen | ZoneCondition::ExplicitlyOpen)
    }
}

/// A zone as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// First sector.
    pub start: u64,
    /// Sectors that can be written.
    pub capacity_sectors: u64,
    /// Sectors written, from the beginning of the zone on.
    pub written_sectors: u64,
    /// State.
    pub condition: ZoneCondition,
}

#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    condition: ZoneCondition,
    written_sectors: u64,
    /// Writes and appends that have not completed.
    writes: u32,
    /// Resets and finishes that have not completed.
    changes: u32,
}

impl Zone {
    /// A zone that is neither open nor closed, but for which the drive still works.
    fn lingers(&self) -> bool {
        matches!(self.condition, ZoneCondition::Empty | ZoneCondition::Full) && (self.writes > 0 || self.changes > 0)
    }

    fn is_active(&self) -> bool {
        self.condition.is_open() || self.condition == ZoneCondition::Closed || self.lingers()
    }
}

/// All zones of a device.
#[derive(Clone, Debug)]
pub struct ZoneMap {
    layout: ZoneLayout,
    zones: Vec<Zone>,
    /// In the order in which they were opened.
    open: Vec<u32>,
    active: u32,
    lingering: u32,
}

impl ZoneMap {
    /// The zones of a device of this capacity, all empty.
    #[must_use]
    pub fn new(layout: ZoneLayout, capacity_sectors: u64) -> Self {
        let count = usize::try_from(capacity_sectors / layout.size_sectors);
        ZoneMap::with(layout, vec![Zone::default(); count.expect("a device's zones fit the address space")])
    }

    fn with(layout: ZoneLayout, mut zones: Vec<Zone>) -> Self {
        let conventional = zones.iter_mut().take(layout.conventional as usize);
        conventional.for_each(|zone| zone.condition = ZoneCondition::NoPointer);
        ZoneMap { layout, zones, open: Vec::new(), active: 0, lingering: 0 }
    }

    /// The same zones, all empty.
    #[must_use]
    pub(crate) fn emptied(&self) -> Self {
        let zones = vec![Zone::default(); self.zones.len()];
        ZoneMap::with(self.layout, zones)
    }

    /// Most memory of the zones of a device of this capacity, with a copy that a fork has changed.
    pub(crate) fn bytes_max(layout: &ZoneLayout, capacity_sectors: u64) -> u64 {
        let zones = capacity_sectors / layout.size_sectors;
        let tables = [footprint::array_bytes::<Zone>(zones), footprint::array_bytes::<u32>(zones)];
        footprint::sum(tables.into_iter().chain(tables))
    }

    /// Open zones, and active ones.
    pub(crate) fn in_use(&self) -> (u32, u32) {
        (self.open.len() as u32, self.active)
    }

    /// The zones, which are all empty, begin so, as after a loss of power: sectors written, and whether it is full, by
    /// zone.
    ///
    /// # Errors
    /// The first that can't be.
    pub fn begin_with(&mut self, zones: &[(u64, bool)], block_sectors: u64) -> Result<(), String> {
        if zones.len() != self.zones.len() {
            return Err(format!("{} zones; expected {}", zones.len(), self.zones.len()));
        }
        for (zone, &(written_sectors, full)) in (0..).zip(zones) {
            if self.is_conventional(zone) {
                match (written_sectors, full) {
                    (0, false) => continue,
                    _ => return Err(format!("zone {zone} is conventional, and has a write pointer")),
                }
            }
            let capacity = self.layout.capacity_sectors;
            let is_filled = written_sectors == capacity;
            if written_sectors > capacity || !written_sectors.is_multiple_of(block_sectors) || is_filled && !full {
                return Err(format!("zone {zone} has {written_sectors} of {capacity} sectors written"));
            }
            let condition = match (full, written_sectors) {
                (true, _) => ZoneCondition::Full,
                (false, 0) => ZoneCondition::Empty,
                (false, _) => ZoneCondition::Closed,
            };
            self.become_(zone, condition, |it| it.written_sectors = written_sectors);
        }
        match is_within(self.active, self.layout.most_active) {
            true => Ok(()),
            false => Err(format!("{} zones are active; at most {} can be", self.active, self.layout.most_active)),
        }
    }

    /// Whether a zone is conventional.
    #[must_use]
    pub fn is_conventional(&self, zone: u32) -> bool {
        zone < self.layout.conventional
    }

    /// A zone after a loss of power: sectors written, and whether it is full.
    #[must_use]
    pub fn at_rest(&self, zone: u32) -> (u64, bool) {
        let it = &self.zones[zone as usize];
        (it.written_sectors, it.condition == ZoneCondition::Full)
    }

    /// All zones as reports show them.
    pub fn reports(&self) -> impl Iterator<Item = ZoneReport> + '_ {
        (0..self.count()).filter_map(|zone| self.report(zone))
    }

    /// Size, capacity and limits of the zones.
    #[must_use]
    pub fn layout(&self) -> &ZoneLayout {
        &self.layout
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.zones.len() as u32
    }

    /// The zone of a sector.
    #[must_use]
    pub fn zone_of(&self, sector: u64) -> u32 {
        u32::try_from(sector / self.layout.size_sectors).unwrap_or(u32::MAX)
    }

    /// A zone as a report shows it; `None` beyond the last.
    #[must_use]
    pub fn report(&self, zone: u32) -> Option<ZoneReport> {
        self.zones.get(zone as usize).map(|it| ZoneReport {
            start: u64::from(zone) * self.layout.size_sectors,
            capacity_sectors: match it.condition {
                ZoneCondition::NoPointer => self.layout.size_sectors,
                _ => self.layout.capacity_sectors,
            },
            written_sectors: it.written_sectors,
            condition: it.condition,
        })
    }

    /// The first sectors of the zones that a reset of all zones empties.
    pub fn begun(&self) -> impl Iterator<Item = u64> + '_ {
        let begun = |zone: &Zone| !matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::NoPointer);
        let size = self.layout.size_sectors;
        (0..).zip(&self.zones).filter(move |(_, zone)| begun(zone)).map(move |(zone, _)| zone * size)
    }

    /// A request arrives, its range inside the device: the sector at which its data go, which differs from the
    /// request's for an append. An accepted request takes effect at once, and is [completed](Self::completed) later.
    ///
    /// # Errors
    /// Why it is refused; the zones are unchanged then.
    pub fn admit(&mut self, request: &Request) -> Result<u64, Status> {
        let zone = self.zone_of(request.lba.0);
        let begins_zone = request.lba.0.is_multiple_of(self.layout.size_sectors);
        match request.op {
            Op::Read | Op::Flush => Ok(request.lba.0),
            Op::Discard => Err(Status::Unsupported),
            Op::Write | Op::WriteZeroes if self.is_conventional(zone) => {
                match request.lba.0 + u64::from(request.sectors) > self.layout.conventional_sectors() {
                    true => Err(Status::ZoneBoundary),
                    false => Ok(request.lba.0),
                }
            }
            _ if self.is_conventional(zone) => Err(Status::InvalidField),
            Op::Write | Op::WriteZeroes => self.write(zone, request.lba.0, request.sectors.into()),
            Op::ZoneAppend if begins_zone => self.append(zone, request.sectors.into()),
            Op::ZoneOpen if begins_zone => self.open_explicitly(zone).map(|()| request.lba.0),
            Op::ZoneClose if begins_zone => self.close(zone).map(|()| request.lba.0),
            Op::ZoneFinish if begins_zone => self.finish(zone).map(|()| request.lba.0),
            Op::ZoneReset if begins_zone => {
                self.become_(zone, ZoneCondition::Empty, |it| {
                    it.written_sectors = 0;
                    it.changes += 1;
                });
                Ok(request.lba.0)
            }
            Op::ZoneAppend | Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => Err(Status::InvalidField),
        }
    }

    /// An accepted request has completed.
    pub fn completed(&mut self, op: Op, sector: u64) {
        let zone = self.zone_of(sector);
        let condition = match self.zones.get(zone as usize) {
            Some(it) if it.condition != ZoneCondition::NoPointer => it.condition,
            _ => return,
        };
        match op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                self.become_(zone, condition, |it| it.writes = it.writes.saturating_sub(1));
            }
            Op::ZoneReset | Op::ZoneFinish => {
                self.become_(zone, condition, |it| it.changes = it.changes.saturating_sub(1));
            }
            Op::Read | Op::Flush | Op::Discard | Op::ZoneOpen | Op::ZoneClose => {}
        }
    }

    fn append(&mut self, zone: u32, sectors: u64) -> Result<u64, Status> {
        let it = &self.zones[zone as usize];
        match it.condition {
            ZoneCondition::Full => Err(Status::ZoneFull),
            _ => self.write(zone, u64::from(zone) * self.layout.size_sectors + it.written_sectors, sectors),
        }
    }

    fn write(&mut self, zone: u32, sector: u64, sectors: u64) -> Result<u64, Status> {
        let offset = sector % self.layout.size_sectors;
        let it = &self.zones[zone as usize];
        let end = offset + sectors;
        if end > self.layout.capacity_sectors {
            return Err(Status::ZoneBoundary);
        }
        if it.condition == ZoneCondition::Full {
            return Err(Status::ZoneFull);
        }
        if offset != it.written_sectors || it.changes > 0 {
            return Err(Status::ZoneInvalidWrite);
        }
        self.open(zone, ZoneCondition::ImplicitlyOpen)?;
        let condition = match end == self.layout.capacity_sectors {
            true => ZoneCondition::Full,
            false => self.zones[zone as usize].condition,
        };
        self.become_(zone, condition, |it| {
            it.written_sectors = end;
            it.writes += 1;
        });
        Ok(sector)
    }

    fn open_explicitly(&mut self, zone: u32) -> Result<(), Status> {
        let it = &self.zones[zone as usize];
        match it.condition == ZoneCondition::Full || it.changes > 0 {
            true => Err(Status::ZoneInvalidTransition),
            false => self.open(zone, ZoneCondition::ExplicitlyOpen),
        }
    }

    fn close(&mut self, zone: u32) -> Result<(), Status> {
        match self.zones[zone as usize].condition {
            ZoneCondition::Empty | ZoneCondition::Full | ZoneCondition::NoPointer => Err(Status::ZoneInvalidTransition),
            ZoneCondition::ImplicitlyOpen | ZoneCondition::ExplicitlyOpen | ZoneCondition::Closed => {
                self.become_(zone, ZoneCondition::Closed, |_| {});
                Ok(())
            }
        }
    }

    fn finish(&mut self, zone: u32) -> Result<(), Status> {
        let it = &self.zones[zone as usize];
        if it.changes > 0 {
            return Err(Status::ZoneInvalidTransition);
        }
        self.become_(zone, ZoneCondition::Full, |it| it.changes += 1);
        Ok(())
    }

    /// Opens a zone that is not full: at the limit of open zones, the implicitly open zone that was opened first is
    /// closed for it.
    fn open(&mut self, zone: u32, condition: ZoneCondition) -> Result<(), Status> {
        let before = self.zones[zone as usize];
        if before.condition.is_open() && condition == ZoneCondition::ImplicitlyOpen {
            return Ok(());
        }
        if !before.is_active() && !is_within(self.active + 1, self.layout.most_active) {
            return Err(Status::TooManyActiveZones);
        }
        // Without a limit of active zones, no buffer of the drive belongs to a zone, and a full zone is not open.
        let lingering = match self.layout.most_active {
            0 => 0,
            _ => self.lingering - u32::from(before.lingers()),
        };
        let others_open = self.open.len() as u32 + lingering;
        if !before.condition.is_open() && !is_within(others_open + 1, self.layout.most_open) {
            let implicit = |&zone: &u32| self.zones[zone as usize].condition == ZoneCondition::ImplicitlyOpen;
            let first = self.open.iter().copied().find(implicit).ok_or(Status::TooManyOpenZones)?;
            self.become_(first, ZoneCondition::Closed, |_| {});
        }
        self.become_(zone, condition, |_| {});
        Ok(())
    }

    /// Changes a zone; the counts and the list of open zones follow.
    fn become_(&mut self, zone: u32, condition: ZoneCondition, change: impl FnOnce(&mut Zone)) {
        let it = &mut self.zones[zone as usize];
        let before = *it;
        it.condition = condition;
        change(it);
        let after = *it;
        self.active = self.active - u32::from(before.is_active()) + u32::from(after.is_active());
        self.lingering = self.lingering - u32::from(before.lingers()) + u32::from(after.lingers());
        if before.condition.is_open() && !after.condition.is_open() {
            self.open.retain(|&open| open != zone);
        }
        if !before.condition.is_open() && after.condition.is_open() {
            self.open.push(zone);
        }
    }
}

/// Whether a limit allows a count of zones.
fn is_within(count: u32, most: u32) -> bool {
    most == 0 || count <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: ZoneLayout =
        ZoneLayout { size_sectors: 1024, capacity_sectors: 96, most_open: 2, most_active: 3, conventional: 0 };

    fn map() -> ZoneMap {
        ZoneMap::new(LAYOUT, 8 * 1024)
    }

    fn request(op: Op, lba: u64, sectors: u32) -> Request {
        Request::new(0, op, lba, sectors)
    }

    fn at_once(map: &mut ZoneMap, op: Op, lba: u64, sectors: u32) -> Result<u64, Status> {
        let place = map.admit(&request(op, lba, sectors))?;
        map.completed(op, place);
        Ok(place)
    }

    #[test]
    fn a_zone_is_written_from_its_beginning_to_its_capacity() {
        let mut map = map();
        assert_eq!(at_once(&mut map, Op::Write, 1024, 8), Ok(1024));
        assert_eq!(at_once(&mut map, Op::Write, 1024, 8), Err(Status::ZoneInvalidWrite));
        assert_eq!(at_once(&mut map, Op::ZoneAppend, 1024, 16), Ok(1032));
        assert_eq!(at_once(&mut map, Op::ZoneAppend, 1032, 16), Err(Status::InvalidField));
        let written = ZoneReport {
            start: 1024,
            capacity_sectors: 96,
            written_sectors: 24,
            condition: ZoneCondition::ImplicitlyOpen,
        };
        assert_eq!(map.report(1), Some(written));
        assert_eq!(at_once(&mut map, Op::Write, 1048, 80), Err(Status::ZoneBoundary));
        assert_eq!(at_once(&mut map, Op::Write, 1048, 72), Ok(1048));
        assert_eq!(map.report(1).unwrap().condition, ZoneCondition::Full);
        assert_eq!(at_once(&mut map, Op::Write, 1024, 8), Err(Status::ZoneFull));
        assert_eq!(at_once(&mut map, Op::ZoneAppend, 1024, 8), Err(Status::ZoneFull));
        assert_eq!(map.begun().collect::<Vec<_>>(), [1024]);
        assert_eq!(at_once(&mut map, Op::ZoneReset, 1024, 8), Ok(1024));
        assert_eq!(map.report(1).unwrap().written_sectors, 0);
        assert_eq!(at_once(&mut map, Op::Write, 1024, 8), Ok(1024));
        assert_eq!(at_once(&mut map, Op::Discard, 1024, 8), Err(Status::Unsupported));
        assert_eq!((map.count(), map.report(8)), (8, None));
    }

    #[test]
    fn limits_close_implicitly_open_zones_and_refuse_others() {
        let mut map = map();
        at_once(&mut map, Op::ZoneOpen, 0, 8).unwrap();
        at_once(&mut map, Op::Write, 1024, 8).unwrap();
        at_once(&mut map, Op::Write, 2048, 8).unwrap();
        let conditions: Vec<_> = (0..3).map(|zone| map.report(zone).unwrap().condition).collect();
        use ZoneCondition::{Closed, ExplicitlyOpen, ImplicitlyOpen};
        assert_eq!(conditions, [ExplicitlyOpen, Closed, ImplicitlyOpen]);
        assert_eq!(at_once(&mut map, Op::Write, 3072, 8), Err(Status::TooManyActiveZones));
        at_once(&mut map, Op::ZoneOpen, 2048, 8).unwrap();
        assert_eq!(at_once(&mut map, Op::Write, 1032, 8), Err(Status::TooManyOpenZones));
        at_once(&mut map, Op::ZoneClose, 0, 8).unwrap();
        assert_eq!(at_once(&mut map, Op::Write, 1032, 8), Ok(1032));
        at_once(&mut map, Op::ZoneFinish, 0, 8).unwrap();
        assert_eq!(at_once(&mut map, Op::Write, 3072, 8), Ok(3072));
        assert_eq!(at_once(&mut map, Op::ZoneOpen, 0, 8), Err(Status::ZoneInvalidTransition));
        assert_eq!(at_once(&mut map, Op::ZoneClose, 4096, 8), Err(Status::ZoneInvalidTransition));
    }

    #[test]
    fn a_conventional_zone_is_written_anywhere_and_has_no_pointer() {
        let mut map = ZoneMap::new(ZoneLayout { conventional: 2, ..LAYOUT }, 8 * 1024);
        let before: Vec<_> = map.reports().take(3).collect();
        assert_eq!(
            before.iter().map(|zone| (zone.capacity_sectors, zone.condition)).collect::<Vec<_>>(),
            [(1024, ZoneCondition::NoPointer), (1024, ZoneCondition::NoPointer), (96, ZoneCondition::Empty)]
        );
        // Again, backwards, over the capacity of other zones, and over the boundary of two conventional zones.
        for (lba, sectors) in [(512, 8), (512, 8), (0, 1024), (1016, 16), (2040, 8)] {
            assert_eq!(at_once(&mut map, Op::Write, lba, sectors), Ok(lba));
        }
        assert_eq!(at_once(&mut map, Op::Write, 2040, 16), Err(Status::ZoneBoundary));
        for op in [Op::ZoneAppend, Op::ZoneReset, Op::ZoneOpen, Op::ZoneClose, Op::ZoneFinish] {
            assert_eq!(at_once(&mut map, op, 1024, 8), Err(Status::InvalidField), "{op}");
        }
        assert_eq!(at_once(&mut map, Op::Discard, 0, 8), Err(Status::Unsupported));
        assert_eq!(at_once(&mut map, Op::Read, 2040, 16), Ok(2040));
        assert_eq!(map.reports().take(3).collect::<Vec<_>>(), before);
        // They count as neither open nor active, and a reset of all zones leaves them out.
        for zone in [2, 3] {
            at_once(&mut map, Op::ZoneOpen, zone * 1024, 8).unwrap();
        }
        assert_eq!(at_once(&mut map, Op::ZoneOpen, 4096, 8), Err(Status::TooManyOpenZones));
        assert_eq!(map.begun().collect::<Vec<_>>(), [2048, 3072]);
        assert_eq!(map.at_rest(0), (0, false));
        let mut kept: Vec<_> = (0..map.count()).map(|zone| map.at_rest(zone)).collect();
        let mut again = ZoneMap::new(ZoneLayout { conventional: 2, ..LAYOUT }, 8 * 1024);
        again.begin_with(&kept, 8).unwrap();
        assert_eq!(again.reports().take(2).collect::<Vec<_>>(), before[..2]);
        for wrong in [(8, false), (0, true)] {
            kept[1] = wrong;
            let refused = ZoneMap::new(ZoneLayout { conventional: 2, ..LAYOUT }, 8 * 1024).begin_with(&kept, 8);
            assert_eq!(refused.unwrap_err(), "zone 1 is conventional, and has a write pointer");
        }
    }

    #[test]
    fn zero_is_no_limit() {
        let mut map = ZoneMap::new(ZoneLayout { most_open: 2, most_active: 0, ..LAYOUT }, 8 * 1024);
        for zone in 0..8 {
            at_once(&mut map, Op::Write, zone * 1024, 8).unwrap();
        }
        for zone in 0..8 {
            map.admit(&request(Op::Write, zone * 1024 + 8, 88)).expect("zones that are being filled are not open");
        }
        map = ZoneMap::new(*map.layout(), 8 * 1024);
        for zone in 0..8 {
            at_once(&mut map, Op::Write, zone * 1024, 8).unwrap();
        }
        let open = |map: &ZoneMap| map.reports().filter(|zone| zone.condition.is_open()).count();
        assert_eq!((map.active, open(&map)), (8, 2));
        let mut map = ZoneMap::new(ZoneLayout { most_open: 0, most_active: 0, ..LAYOUT }, 8 * 1024);
        for zone in 0..8 {
            at_once(&mut map, Op::ZoneOpen, zone * 1024, 8).unwrap();
        }
        assert_eq!(open(&map), 8);
    }

    #[test]
    fn a_zone_stays_active_until_what_fills_or_resets_it_has_completed() {
        let mut map = map();
        for zone in [0, 1] {
            map.admit(&request(Op::Write, zone * 1024, 96)).unwrap();
        }
        assert_eq!(map.admit(&request(Op::Write, 2048, 8)), Err(Status::TooManyOpenZones));
        map.completed(Op::Write, 0);
        map.admit(&request(Op::Write, 2048, 8)).unwrap();
        map.admit(&request(Op::ZoneReset, 0, 8)).unwrap();
        assert_eq!(map.admit(&request(Op::Write, 0, 8)), Err(Status::ZoneInvalidWrite));
        assert_eq!(map.admit(&request(Op::ZoneOpen, 0, 8)), Err(Status::ZoneInvalidTransition));
        map.completed(Op::ZoneReset, 0);
        map.completed(Op::Write, 1024);
        map.admit(&request(Op::Write, 0, 8)).unwrap();
    }
}
