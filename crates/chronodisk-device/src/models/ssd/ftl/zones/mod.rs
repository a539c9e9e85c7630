//! A map of zones, after the NVM Express Zoned Namespace Command Set Specification (revision 1.1): a zone is written
//! from its beginning on and reset as a whole, so the host collects and the drive does not.
//!
//! A zone has a superblock on each of a number of neighbouring dies, and its program units alternate over these. So a
//! unit's place follows from its number and the zone's superblocks; neither a map of units nor an inverse is needed.
//! The least erased superblock of a die is allocated when the zone first reaches that die, and queued for erasing when
//! the zone is reset.
//!
//! | state | a write at the pointer | open | close | finish | reset |
//! |---|---|---|---|---|---|
//! | empty | implicitly open | explicitly open | refused | full | empty |
//! | implicitly open | the same, or full | explicitly open | closed | full | empty |
//! | explicitly open | the same, or full | the same | closed | full | empty |
//! | closed | implicitly open | explicitly open | closed | full | empty |
//! | full | refused | refused | refused | full | empty |
//!
//! At the limit of open zones, the implicitly open zone that was opened first is closed for another. Without one, or at
//! the limit of active (open or closed) zones, the request is refused.
//!
//! Three numbers of a zone grow one after the other: its *pointer* with each accepted write, the units that have
//! *arrived* in the buffer, and the units *appended* to a program unit. A zone that is full by its pointer stays open
//! and active until its last data have arrived, because begun program units occupy places in the buffer.
//!
//! At rest no zone is open, as after a loss of power: an open zone is closed, or empty if nothing was written to it. A
//! saved state has for each zone its state, the length written (in whole program units except for full zones), and its
//! superblocks.
//!
//! Not modelled: read-only and offline zones, zone descriptors and reports, variable limits, random write areas, and
//! the address returned by an append.

mod resting;
mod superblocks;

use std::ops::Range;

use chronodisk_sim::Status;

use super::super::geometry::DieIndex;
use super::Unit;
use super::blocks::SuperblockIndex;
use super::parameters::{FtlParameters, ZoneParameters};
use crate::flat_table::FlatTable;
use crate::footprint;
pub(super) use resting::RestingZones;

/// Number of a zone in the drive.
pub(crate) type ZoneIndex = u32;

/// States of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ZoneState {
    /// The zone is not written.
    Empty,
    /// A write has opened it.
    ImplicitlyOpen,
    /// The host has opened it.
    ExplicitlyOpen,
    /// Can be written on; begun, or opened before.
    Closed,
    /// Can only be read or reset.
    Full,
}

impl ZoneState {
    const ALL: [ZoneState; 5] =
        [ZoneState::Empty, ZoneState::ImplicitlyOpen, ZoneState::ExplicitlyOpen, ZoneState::Closed, ZoneState::Full];

    fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
    }
}

/// Words of a zone.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Word {
    State,
    /// Units of accepted writes.
    Pointer,
    /// Units that are, or were, in the buffer.
    Arrived,
    /// Units that have a slot.
    Appended,
    /// For the caller of this layer: the first unit of the partly filled program unit, plus one.
    Begun,
}

/// Words of a zone's record, a power of two for the sake of addressing.
const RECORD_WORDS: u32 = 8;

/// State of all zones.
#[derive(Clone, Debug)]
pub(crate) struct Zones {
    parameters: ZoneParameters,
    units_per_superpage: u32,
    /// Groups of dies over which the zones go in turn.
    groups: u32,
    records: FlatTable,
    /// Superblock plus one, by zone and index among its dies.
    superblocks: FlatTable,
    /// Open zones in the order of opening.
    open: Vec<ZoneIndex>,
    closed: u32,
    /// Number of full zones whose last data have not arrived.
    filling: u32,
}

impl Zones {
    /// Empty zones; `None` without zones.
    pub(super) fn new(parameters: &FtlParameters) -> Option<Self> {
        let zone = parameters.zones()?;
        let zones = u64::from(parameters.logical_units / zone.size_units);
        Some(Zones {
            parameters: zone,
            units_per_superpage: parameters.geometry.units_per_superpage(),
            groups: parameters.geometry.dies() / zone.dies,
            records: FlatTable::new(zones * u64::from(RECORD_WORDS)),
            superblocks: FlatTable::new(zones * u64::from(zone.dies)),
            open: Vec::with_capacity(zone.most_open as usize + 1),
            closed: 0,
            filling: 0,
        })
    }

    /// Most memory for the zones of a drive; zero without zones.
    pub(super) fn bytes_max(parameters: &FtlParameters) -> u64 {
        let Some(zone) = parameters.zones() else { return 0 };
        let zones = u64::from(parameters.logical_units / zone.size_units);
        footprint::sum([
            FlatTable::bytes(zones * u64::from(RECORD_WORDS)),
            FlatTable::bytes(zones.saturating_mul(zone.dies.into())),
            footprint::array_bytes::<ZoneIndex>(u64::from(zone.most_open) + 1),
        ])
    }

    fn get(&self, zone: ZoneIndex, word: Word) -> u32 {
        self.records.get(zone * RECORD_WORDS + word as u32)
    }

    fn set(&mut self, zone: ZoneIndex, word: Word, value: u32) {
        self.records.set(zone * RECORD_WORDS + word as u32, value);
    }

    /// State of a zone.
    pub(crate) fn state(&self, zone: ZoneIndex) -> ZoneState {
        ZoneState::ALL[self.get(zone, Word::State) as usize]
    }

    /// The zone leaves its state for another; the lists follow.
    fn become_(&mut self, zone: ZoneIndex, state: ZoneState) {
        let before = self.state(zone);
        if before.is_open() && !state.is_open() {
            self.open.retain(|&open| open != zone);
        }
        if !before.is_open() && state.is_open() {
            self.open.push(zone);
        }
        self.closed -= u32::from(before == ZoneState::Closed);
        self.closed += u32::from(state == ZoneState::Closed);
        self.set(zone, Word::State, state as u32);
    }

    fn active(&self) -> u32 {
        self.open.len() as u32 + self.closed + self.filling
    }

    /// Opens a zone that is not full, for a write or explicitly.
    fn open(&mut self, zone: ZoneIndex, state: ZoneState) -> Result<(), Status> {
        let before = self.state(zone);
        if before == ZoneState::Empty && self.active() >= self.parameters.most_active {
            return Err(Status::TooManyActiveZones);
        }
        if !before.is_open() && self.open.len() as u32 + self.filling >= self.parameters.most_open {
            let first = self.open.iter().copied().find(|&open| self.state(open) == ZoneState::ImplicitlyOpen);
            self.become_(first.ok_or(Status::TooManyOpenZones)?, ZoneState::Closed);
        }
        if !(before.is_open() && state == ZoneState::ImplicitlyOpen) {
            self.become_(zone, state);
        }
        Ok(())
    }

    /// The place of a zone among the dies, and its first die.
    fn first_die(&self, zone: ZoneIndex) -> DieIndex {
        zone % self.groups * self.parameters.dies
    }
}

/// Place of a unit in its zone, without the superblock.
#[derive(Clone, Copy, Debug)]
struct InZone {
    zone: ZoneIndex,
    /// Place among the zone's dies.
    place: u32,
    /// Units before it in the superblock.
    in_superblock: u32,
}

/// A unit that was put into its slot.
#[derive(Clone, Copy, Debug)]
struct Placed {
    superblock: SuperblockIndex,
    die: DieIndex,
    in_superblock: u32,
    /// The zone takes no further program unit of this superblock.
    is_last: bool,
}

impl Zones {
    /// The zone of a unit.
    pub(crate) fn of(&self, unit: Unit) -> ZoneIndex {
        unit / self.parameters.size_units
    }

    /// The units of a zone that can be written.
    pub(crate) fn units(&self, zone: ZoneIndex) -> Range<Unit> {
        let first = zone * self.parameters.size_units;
        first..first + self.parameters.capacity_units
    }

    /// The dies that a zone is on.
    pub(crate) fn dies(&self, zone: ZoneIndex) -> Range<DieIndex> {
        let first = self.first_die(zone);
        first..first + self.parameters.dies
    }

    /// Number of open zones, and of open or closed ones.
    pub(crate) fn in_use(&self) -> (u32, u32) {
        (self.open.len() as u32, self.open.len() as u32 + self.closed)
    }

    /// The place of a unit; `None` for one that can't be written.
    fn place(&self, unit: Unit) -> Option<InZone> {
        let (size_units, dies) = (self.parameters.size_units, self.parameters.dies);
        let (zone, offset) = (unit / size_units, unit % size_units);
        if offset >= self.parameters.capacity_units {
            return None;
        }
        let per_superpage = self.units_per_superpage;
        let superpage = offset / per_superpage;
        let in_superblock = superpage / dies * per_superpage + offset % per_superpage;
        Some(InZone { zone, place: superpage % dies, in_superblock })
    }

    /// The superblock of a unit that was appended, and its place there.
    fn look_up(&self, unit: Unit) -> Option<(SuperblockIndex, u32)> {
        let InZone { zone, place, in_superblock } = self.place(unit)?;
        if unit % self.parameters.size_units >= self.get(zone, Word::Appended) {
            return None;
        }
        Some((self.superblock(zone, place)?, in_superblock))
    }

    /// The die of a unit, the number of its zone on this die, and its place in the superblock; `None` for a unit that
    /// can't be written.
    fn place_as_written(&self, unit: Unit) -> Option<(DieIndex, u32, u32)> {
        let InZone { zone, place, in_superblock } = self.place(unit)?;
        Some((self.first_die(zone) + place, zone / self.groups, in_superblock))
    }

    /// A zone's superblock at a place among its dies.
    fn superblock(&self, zone: ZoneIndex, place: u32) -> Option<SuperblockIndex> {
        self.superblocks.get(zone * self.parameters.dies + place).checked_sub(1)
    }

    /// Puts an arrived unit into its slot. A zone without a superblock on the unit's die gets a free one by
    /// `take_superblock`. `None` if that die has no free one.
    ///
    /// # Panics
    /// If earlier units of the zone were not appended.
    fn append(
        &mut self,
        unit: Unit,
        take_superblock: impl FnOnce(DieIndex) -> Option<SuperblockIndex>,
    ) -> Option<Placed> {
        let InZone { zone, place, in_superblock } = self.place(unit).expect("a write ends within its zone");
        let ZoneParameters { size_units, capacity_units, dies, .. } = self.parameters;
        let appended = self.get(zone, Word::Appended);
        assert_eq!(unit % size_units, appended, "units of a zone are appended in order");
        let die = self.first_die(zone) + place;
        let superblock = match self.superblock(zone, place) {
            Some(superblock) => superblock,
            None => {
                let superblock = take_superblock(die)?;
                self.superblocks.set(zone * dies + place, superblock + 1);
                superblock
            }
        };
        self.set(zone, Word::Appended, appended + 1);
        // The next program unit of this superblock would be a round over the dies later.
        let is_last = capacity_units - (appended + 1) <= (dies - 1) * self.units_per_superpage;
        Some(Placed { superblock, die, in_superblock, is_last })
    }

    /// A zone is full, as the host has finished it. Returns the number of units that complete its partly filled
    /// program unit; `None` if the zone was full.
    ///
    /// # Panics
    /// If the zone is not [settled](Self::is_settled).
    fn finish(&mut self, zone: ZoneIndex) -> Option<u32> {
        assert!(self.is_settled(zone), "data of zone {zone} are on their way");
        if self.state(zone) == ZoneState::Full {
            return None;
        }
        self.become_(zone, ZoneState::Full);
        let (appended, per_superpage) = (self.get(zone, Word::Appended), self.units_per_superpage);
        Some((per_superpage - appended % per_superpage) % per_superpage)
    }

    /// The last appended unit of a zone that has any.
    fn last_appended(&self, zone: ZoneIndex) -> Unit {
        self.units(zone).start + self.get(zone, Word::Appended) - 1
    }

    /// A zone becomes empty.
    ///
    /// # Panics
    /// If the zone is not [settled](Self::is_settled).
    fn reset(&mut self, zone: ZoneIndex) {
        assert!(self.is_settled(zone), "data of zone {zone} are on their way");
        self.become_(zone, ZoneState::Empty);
        for word in [Word::Pointer, Word::Arrived, Word::Appended, Word::Begun] {
            self.set(zone, word, 0);
        }
        let dies = self.parameters.dies;
        (zone * dies..(zone + 1) * dies).for_each(|place| self.superblocks.set(place, 0));
    }

    /// The superblocks of a zone.
    fn superblocks(&self, zone: ZoneIndex) -> impl Iterator<Item = SuperblockIndex> + use<'_> {
        (0..self.parameters.dies).filter_map(move |place| self.superblock(zone, place))
    }

    /// Accepts a write, and returns its first unit. An append names the zone by its first unit.
    ///
    /// # Errors
    /// Status of the refusal.
    pub(crate) fn write(&mut self, first: Unit, units: u32, append: bool) -> Result<Unit, Status> {
        let ZoneParameters { size_units, capacity_units, .. } = self.parameters;
        let (zone, offset) = (first / size_units, first % size_units);
        let full = self.state(zone) == ZoneState::Full;
        let pointer = self.get(zone, Word::Pointer);
        if append && offset != 0 {
            return Err(Status::InvalidField);
        }
        let begin = match append {
            true if full => return Err(Status::ZoneFull),
            true => pointer,
            false => offset,
        };
        if begin.checked_add(units).is_none_or(|end| end > capacity_units) {
            return Err(Status::ZoneBoundary);
        }
        if full {
            return Err(Status::ZoneFull);
        }
        if begin != pointer {
            return Err(Status::ZoneInvalidWrite);
        }
        self.open(zone, ZoneState::ImplicitlyOpen)?;
        self.set(zone, Word::Pointer, pointer + units);
        if pointer + units == capacity_units {
            self.become_(zone, ZoneState::Full);
            self.filling += 1;
        }
        Ok(zone * size_units + pointer)
    }

    /// Data of writes that were let in are in the buffer.
    pub(crate) fn arrived(&mut self, first: Unit, units: u32) {
        let zone = self.of(first);
        let arrived = self.get(zone, Word::Arrived) + units;
        self.set(zone, Word::Arrived, arrived);
        if self.state(zone) == ZoneState::Full && arrived == self.get(zone, Word::Pointer) {
            self.filling -= 1;
        }
    }

    /// Content of a zone's begun program unit: see [`set_begun`](Self::set_begun).
    pub(crate) fn begun(&self, zone: ZoneIndex) -> Option<u32> {
        self.get(zone, Word::Begun).checked_sub(1)
    }

    /// Notes a number for a zone.
    pub(crate) fn set_begun(&mut self, zone: ZoneIndex, begun: Option<u32>) {
        self.set(zone, Word::Begun, begun.map_or(0, |begun| begun + 1));
    }

    /// Whether all accepted writes of a zone have slots, so that it can be reset or finished.
    pub(crate) fn is_settled(&self, zone: ZoneIndex) -> bool {
        self.get(zone, Word::Pointer) == self.get(zone, Word::Appended)
    }

    /// Opens a zone for the host.
    ///
    /// # Errors
    /// Status of the refusal.
    pub(crate) fn open_by_host(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.state(zone) {
            ZoneState::Full => Err(Status::ZoneInvalidTransition),
            _ => self.open(zone, ZoneState::ExplicitlyOpen),
        }
    }

    /// The host closes a zone.
    ///
    /// # Errors
    /// One that is empty or full.
    pub(crate) fn close_by_host(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.state(zone) {
            ZoneState::Empty | ZoneState::Full => return Err(Status::ZoneInvalidTransition),
            _ => self.become_(zone, ZoneState::Closed),
        }
        Ok(())
    }
}

impl FtlParameters {
    /// Whether zones fit the flash and each other.
    pub(super) fn check_zones(&self, zone: ZoneParameters) -> Result<(), (&'static str, String)> {
        let geometry = &self.geometry;
        let per_superpage = geometry.units_per_superpage();
        if zone.dies == 0 || !geometry.dies().is_multiple_of(zone.dies) {
            let message = format!("{} dies; expected a divisor of the drive's {}", zone.dies, geometry.dies());
            return Err(("zone-dies", message));
        }
        let most = u64::from(geometry.units_per_superblock()) * u64::from(zone.dies);
        if zone.capacity_units == 0
            || !zone.capacity_units.is_multiple_of(per_superpage)
            || u64::from(zone.capacity_units) > most
        {
            let message = format!(
                "{} mapping units; expected a multiple of a program unit's {per_superpage}, at most {most}",
                zone.capacity_units
            );
            return Err(("zone-capacity", message));
        }
        if zone.size_units < zone.capacity_units {
            return Err(("zone-size", "expected at least the capacity of a zone".to_owned()));
        }
        let zones = self.logical_units / zone.size_units;
        if zones == 0 || !self.logical_units.is_multiple_of(zone.size_units) {
            return Err(("capacity", "expected a multiple of the size of a zone".to_owned()));
        }
        let of_a_die = zones.div_ceil(geometry.dies() / zone.dies);
        if of_a_die > geometry.blocks_per_plane {
            let message = format!("{zones} zones take {of_a_die} blocks of a plane, which has fewer");
            return Err(("capacity", message));
        }
        if !(1..=MOST_ACTIVE).contains(&zone.most_active) {
            return Err(("active-zones", format!("{}; expected 1 to {MOST_ACTIVE}", zone.most_active)));
        }
        if !(1..=zone.most_active).contains(&zone.most_open) {
            return Err(("open-zones", format!("{}; expected 1 to {}", zone.most_open, zone.most_active)));
        }
        let excluded = [
            (self.slc_cache.is_some(), "slc-cache"),
            (self.mapping != super::Mapping::Ideal, "mapping-cache-entries"),
            (self.wear.move_at_difference.is_some(), "level-wear-at-difference"),
        ];
        match excluded.into_iter().find(|(given, _)| *given) {
            Some((_, key)) => Err((key, "expected none where there are zones".to_owned())),
            None => Ok(()),
        }
    }
}

/// More active zones than any drive has; a lookup searches all open ones.
const MOST_ACTIVE: u32 = 1_024;
