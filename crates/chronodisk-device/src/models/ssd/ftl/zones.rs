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

use chronodisk_sim::Status;

use super::super::geometry::{DieIndex, Slot};
use super::blocks::{BlockUse, Field, RestingBlock, SuperblockIndex};
use super::collection::{Collection, CollectionReason, Urgency};
use super::collector::Victim;
use super::parameters::{FtlParameters, ZoneParameters};
use super::{Appended, Ftl, Stream, Superpage, Unit};
use crate::flat_table::FlatTable;
use crate::footprint;

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
pub(super) struct Zones {
    parameters: ZoneParameters,
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

    fn state(&self, zone: ZoneIndex) -> ZoneState {
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

/// The zones of a drive at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RestingZones {
    parameters: ZoneParameters,
    zones: Vec<RestingZone>,
    /// Superblock plus one, by zone and index among its dies.
    superblocks: Vec<u32>,
}

/// A zone of a drive at rest: empty, closed or full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RestingZone {
    state: ZoneState,
    written: u32,
}

/// Words of a zone at rest before its superblocks: state and units written.
const RESTING_WORDS: u32 = 2;

impl RestingZones {
    /// Words of a kept state.
    pub(super) fn word_count(zone: ZoneParameters, logical_units: u32) -> u64 {
        u64::from(logical_units / zone.size_units) * u64::from(RESTING_WORDS + zone.dies)
    }

    /// The words of each zone: its state, units written, and its superblocks by place, plus one.
    pub(super) fn words(&self) -> impl Iterator<Item = u32> {
        let superblocks = self.superblocks.chunks(self.parameters.dies as usize);
        let zones = self.zones.iter().zip(superblocks);
        zones.flat_map(|(zone, superblocks)| {
            [zone.state as u32, zone.written].into_iter().chain(superblocks.iter().copied())
        })
    }

    /// Decodes zones from words.
    ///
    /// # Errors
    /// The invalid part.
    pub(super) fn of_words(parameters: ZoneParameters, words: Vec<u32>) -> Result<Self, &'static str> {
        let (mut zones, mut superblocks) = (Vec::new(), Vec::new());
        for words in words.chunks_exact((RESTING_WORDS + parameters.dies) as usize) {
            let Some(&state) = ZoneState::ALL.get(words[0] as usize) else {
                return Err("a zone is in no known state");
            };
            zones.push(RestingZone { state, written: words[1] });
            superblocks.extend(&words[RESTING_WORDS as usize..]);
        }
        Ok(RestingZones { parameters, zones, superblocks })
    }

    /// Valid units of each superblock, where zones and superblocks agree.
    ///
    /// # Errors
    /// Where they don't.
    pub(super) fn valid(&self, parameters: &FtlParameters, blocks: &[RestingBlock]) -> Result<Vec<u32>, &'static str> {
        let geometry = &parameters.geometry;
        let ZoneParameters { capacity_units, dies, most_active, .. } = self.parameters;
        let per_superpage = geometry.units_per_superpage();
        let groups = geometry.dies() / dies;
        if self.zones.iter().filter(|zone| zone.state == ZoneState::Closed).count() > most_active as usize {
            return Err("more zones are active than can be");
        }
        let mut valid = vec![0; blocks.len()];
        let superblocks = self.superblocks.chunks(dies as usize);
        for ((number, zone), superblocks) in (0..).zip(&self.zones).zip(superblocks) {
            let written = zone.written;
            let sound = match zone.state {
                ZoneState::Empty => written == 0,
                ZoneState::Closed => (1..capacity_units).contains(&written) && written.is_multiple_of(per_superpage),
                ZoneState::Full => written <= capacity_units,
                ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen => false,
            };
            if !sound {
                return Err("a zone is in no state that it could be in at rest");
            }
            for (place, superblock) in (0..dies).zip(superblocks) {
                let (superpages, rest) = (written / per_superpage, written % per_superpage);
                let here = (superpages + dies - 1 - place) / dies;
                let units = here * per_superpage + if superpages % dies == place { rest } else { 0 };
                let Some(superblock) = superblock.checked_sub(1) else {
                    match units {
                        0 => continue,
                        _ => return Err("a zone has no superblock where it was written"),
                    }
                };
                // The place of its next program unit there.
                let ended = zone.state == ZoneState::Full || place + here * dies >= capacity_units / per_superpage;
                let expected = if ended { BlockUse::Closed } else { BlockUse::Open };
                let fits = units > 0
                    && superblock < geometry.superblocks()
                    && geometry.die_of_superblock(superblock) == number % groups * dies + place
                    && valid[superblock as usize] == 0
                    && blocks[superblock as usize].state == expected;
                if !fits {
                    return Err("a superblock is of no zone that it could be of");
                }
                valid[superblock as usize] = units;
            }
        }
        let of_nobody = |(block, valid): (&RestingBlock, &u32)| block.state == BlockUse::Open && *valid == 0;
        match blocks.iter().zip(&valid).any(of_nobody) {
            true => Err("a superblock is open for no zone"),
            false => Ok(valid),
        }
    }
}

impl Zones {
    /// The zones' persistent state; all accepted data have been programmed.
    ///
    /// # Panics
    /// If some have not.
    pub(super) fn at_rest(&self) -> RestingZones {
        let count = self.records.len() as u32 / RECORD_WORDS;
        let zones = (0..count).map(|zone| {
            let written = self.get(zone, Word::Appended);
            assert_eq!(self.get(zone, Word::Pointer), written, "data of zone {zone} are on their way");
            assert_eq!(self.get(zone, Word::Begun), 0, "a program unit of zone {zone} is begun");
            let state = match (self.state(zone), written) {
                (ZoneState::Full, _) => ZoneState::Full,
                (_, 0) => ZoneState::Empty,
                _ => ZoneState::Closed,
            };
            RestingZone { state, written }
        });
        let superblocks = (0..self.superblocks.len() as u32).map(|place| self.superblocks.get(place));
        RestingZones { parameters: self.parameters, zones: zones.collect(), superblocks: superblocks.collect() }
    }

    /// The zones that go on from these, if the drive has zones.
    pub(super) fn from_rest(parameters: &FtlParameters, resting: &RestingZones) -> Option<Self> {
        let mut zones = Zones::new(parameters)?;
        for (number, zone) in (0..).zip(&resting.zones) {
            zones.become_(number, zone.state);
            for word in [Word::Pointer, Word::Arrived, Word::Appended] {
                zones.set(number, word, zone.written);
            }
        }
        for (place, &superblock) in (0..).zip(&resting.superblocks) {
            zones.superblocks.set(place, superblock);
        }
        Some(zones)
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

impl Ftl {
    /// Whether the drive has zones.
    #[inline]
    pub(crate) fn has_zones(&self) -> bool {
        self.zones.is_some()
    }

    fn zones(&self) -> &Zones {
        self.zones.as_ref().expect("the drive has zones")
    }

    fn zones_mut(&mut self) -> &mut Zones {
        self.zones.as_mut().expect("the drive has zones")
    }

    /// The zone of a unit.
    pub(crate) fn zone_of(&self, unit: Unit) -> ZoneIndex {
        unit / self.zones().parameters.size_units
    }

    /// The units of a zone that can be written.
    pub(crate) fn units_of_zone(&self, zone: ZoneIndex) -> std::ops::Range<Unit> {
        let parameters = &self.zones().parameters;
        let first = zone * parameters.size_units;
        first..first + parameters.capacity_units
    }

    /// The dies that a zone is on.
    pub(crate) fn dies_of_zone(&self, zone: ZoneIndex) -> std::ops::Range<DieIndex> {
        let zones = self.zones();
        let first = zones.first_die(zone);
        first..first + zones.parameters.dies
    }

    /// State of a zone.
    #[cfg(test)]
    pub(crate) fn zone_state(&self, zone: ZoneIndex) -> ZoneState {
        self.zones().state(zone)
    }

    /// Open zones, and open or closed ones.
    pub(crate) fn zones_in_use(&self) -> Option<(u32, u32)> {
        self.zones.as_ref().map(|zones| (zones.open.len() as u32, zones.open.len() as u32 + zones.closed))
    }

    fn in_zone(&self, unit: Unit) -> Option<InZone> {
        let parameters = &self.zones().parameters;
        let (zone, offset) = (unit / parameters.size_units, unit % parameters.size_units);
        if offset >= parameters.capacity_units {
            return None;
        }
        let per_superpage = self.sizes.units_per_superpage;
        let superpage = offset / per_superpage;
        let in_superblock = superpage / parameters.dies * per_superpage + offset % per_superpage;
        Some(InZone { zone, place: superpage % parameters.dies, in_superblock })
    }

    /// The slot of a unit that was appended to its zone.
    pub(super) fn look_up_in_zone(&self, unit: Unit) -> Option<Slot> {
        let zones = self.zones();
        let InZone { zone, place, in_superblock } = self.in_zone(unit)?;
        if unit % zones.parameters.size_units >= zones.get(zone, Word::Appended) {
            return None;
        }
        let superblock = zones.superblocks.get(zone * zones.parameters.dies + place).checked_sub(1)?;
        Some(superblock * self.sizes.units_per_superblock + in_superblock)
    }

    /// The slot of a unit if all zones had been written once in the order of their numbers; `None` for a unit that
    /// can't be written.
    pub(crate) fn slot_in_zone_as_written(&self, unit: Unit) -> Option<Slot> {
        let zones = self.zones();
        let InZone { zone, place, in_superblock } = self.in_zone(unit)?;
        let die = zones.first_die(zone) + place;
        let superblock = die * self.sizes.blocks_per_die + zone / zones.groups;
        Some(superblock * self.sizes.units_per_superblock + in_superblock)
    }

    /// Accepts a write, and returns its first unit. An append names the zone by its first unit.
    ///
    /// # Errors
    /// Status of the refusal.
    pub(crate) fn write_to_zone(&mut self, first: Unit, units: u32, append: bool) -> Result<Unit, Status> {
        let zones = self.zones_mut();
        let ZoneParameters { size_units, capacity_units, .. } = zones.parameters;
        let (zone, offset) = (first / size_units, first % size_units);
        let full = zones.state(zone) == ZoneState::Full;
        let pointer = zones.get(zone, Word::Pointer);
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
        zones.open(zone, ZoneState::ImplicitlyOpen)?;
        zones.set(zone, Word::Pointer, pointer + units);
        if pointer + units == capacity_units {
            zones.become_(zone, ZoneState::Full);
            zones.filling += 1;
        }
        Ok(zone * size_units + pointer)
    }

    /// Data of writes that were let in are in the buffer.
    pub(crate) fn arrived_in_zone(&mut self, first: Unit, units: u32) {
        let zones = self.zones_mut();
        let zone = first / zones.parameters.size_units;
        let arrived = zones.get(zone, Word::Arrived) + units;
        zones.set(zone, Word::Arrived, arrived);
        if zones.state(zone) == ZoneState::Full && arrived == zones.get(zone, Word::Pointer) {
            zones.filling -= 1;
        }
    }

    /// Puts an arrived unit into its slot; `None` if the zone needs a superblock of a die without free ones, until one
    /// is erased there.
    ///
    /// # Panics
    /// If earlier units of the zone were not appended.
    pub(crate) fn append_to_zone(&mut self, unit: Unit) -> Option<Appended> {
        let InZone { zone, place, in_superblock } = self.in_zone(unit).expect("a write ends within its zone");
        let zones = self.zones.as_mut().expect("the drive has zones");
        let ZoneParameters { size_units, capacity_units, dies, .. } = zones.parameters;
        let appended = zones.get(zone, Word::Appended);
        assert_eq!(unit % size_units, appended, "units of a zone are appended in order");
        let die = zones.first_die(zone) + place;
        let superblock = match zones.superblocks.get(zone * dies + place).checked_sub(1) {
            Some(superblock) => superblock,
            None => {
                let superblock = self.blocks.take_free(die, false)?;
                self.blocks.set_use(superblock, BlockUse::Open);
                zones.superblocks.set(zone * dies + place, superblock + 1);
                superblock
            }
        };
        zones.set(zone, Word::Appended, appended + 1);
        let valid = self.blocks.get(superblock, Field::Valid);
        self.blocks.set(superblock, Field::Valid, valid + 1);
        self.dies[die as usize].valid += 1;
        self.counters.count(Stream::Host);
        let per_superpage = self.sizes.units_per_superpage;
        let completed = (in_superblock + 1).is_multiple_of(per_superpage).then(|| {
            self.blocks.begin_program(superblock);
            // The next program unit of this superblock would be a round over the dies later.
            if capacity_units - (appended + 1) <= (dies - 1) * per_superpage {
                self.blocks.close(die, superblock);
            }
            Superpage { superblock, index: in_superblock / per_superpage }
        });
        Some(Appended { slot: superblock * self.sizes.units_per_superblock + in_superblock, completed })
    }

    /// Content of a zone's begun program unit: see [`Ftl::set_begun_in_zone`].
    pub(crate) fn begun_in_zone(&self, zone: ZoneIndex) -> Option<u32> {
        self.zones().get(zone, Word::Begun).checked_sub(1)
    }

    /// Notes a number for a zone.
    pub(crate) fn set_begun_in_zone(&mut self, zone: ZoneIndex, begun: Option<u32>) {
        self.zones_mut().set(zone, Word::Begun, begun.map_or(0, |begun| begun + 1));
    }

    /// Whether all accepted writes of a zone have slots, so that it can be reset or finished.
    pub(crate) fn zone_is_settled(&self, zone: ZoneIndex) -> bool {
        let zones = self.zones();
        zones.get(zone, Word::Pointer) == zones.get(zone, Word::Appended)
    }

    /// So many units of an empty zone of a new drive are written, and it is closed, or full: programs end at once.
    /// Returns the last units of a closed zone, which begin a program unit: their writes are let in, and have not
    /// arrived.
    ///
    /// # Panics
    /// If the zone is not empty, or one more can't be active.
    pub(crate) fn fill_zone(&mut self, zone: ZoneIndex, units: u32, full: bool) -> std::ops::Range<Unit> {
        let first = self.units_of_zone(zone).start;
        let per_superpage = self.sizes.units_per_superpage;
        let capacity_units = self.zones().parameters.capacity_units;
        // A finish completes a begun program unit with nothing.
        let programmed = match full {
            true => units.next_multiple_of(per_superpage).min(capacity_units),
            false => units / per_superpage * per_superpage,
        };
        if programmed > 0 {
            self.write_to_zone(first, programmed, false).expect("the zone is empty, and can be active");
            self.arrived_in_zone(first, programmed);
            for unit in first..first + programmed {
                let appended = self.append_to_zone(unit).expect("a new drive has free superblocks");
                if let Some(superpage) = appended.completed {
                    self.programmed(superpage);
                }
            }
        }
        if full {
            let begun = self.finish_zone(zone);
            debug_assert!(begun.is_none(), "only whole program units were written");
            return first..first;
        }
        let rest = first + programmed..first + units;
        if !rest.is_empty() {
            self.write_to_zone(rest.start, rest.end - rest.start, false).expect("it fits, and can be active");
        }
        self.close_zone(zone).expect("it is open");
        rest
    }

    /// Opens a zone for the host.
    ///
    /// # Errors
    /// Status of the refusal.
    pub(crate) fn open_zone(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        let zones = self.zones_mut();
        match zones.state(zone) {
            ZoneState::Full => Err(Status::ZoneInvalidTransition),
            _ => zones.open(zone, ZoneState::ExplicitlyOpen),
        }
    }

    /// The host closes a zone.
    ///
    /// # Errors
    /// One that is empty or full.
    pub(crate) fn close_zone(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        let zones = self.zones_mut();
        match zones.state(zone) {
            ZoneState::Empty | ZoneState::Full => return Err(Status::ZoneInvalidTransition),
            _ => zones.become_(zone, ZoneState::Closed),
        }
        Ok(())
    }

    /// Finishes a zone for the host: pads a partly filled program unit, which must then be programmed.
    ///
    /// # Panics
    /// If the zone is not [settled](Self::zone_is_settled).
    pub(crate) fn finish_zone(&mut self, zone: ZoneIndex) -> Option<Superpage> {
        assert!(self.zone_is_settled(zone), "data of zone {zone} are on their way");
        let zones = self.zones_mut();
        if zones.state(zone) == ZoneState::Full {
            return None;
        }
        zones.become_(zone, ZoneState::Full);
        let appended = zones.get(zone, Word::Appended);
        let per_superpage = self.sizes.units_per_superpage;
        let padding = (per_superpage - appended % per_superpage) % per_superpage;
        let completed = (padding > 0).then(|| {
            let last = self.units_of_zone(zone).start + appended - 1;
            let slot = self.look_up_in_zone(last).expect("it was appended");
            let superblock = slot / self.sizes.units_per_superblock;
            self.blocks.begin_program(superblock);
            Superpage { superblock, index: slot % self.sizes.units_per_superblock / per_superpage }
        });
        self.counters.padded_units += u64::from(padding);
        for place in self.places_of_zone(zone) {
            if let Some(superblock) = self.superblock_at(place)
                && self.blocks.use_of(superblock) == BlockUse::Open
            {
                self.blocks.close(self.die_of(superblock), superblock);
            }
        }
        completed
    }

    /// Resets a zone; its superblocks are then to be erased.
    ///
    /// # Panics
    /// If the zone is not [settled](Self::zone_is_settled).
    pub(crate) fn reset_zone(&mut self, zone: ZoneIndex) {
        assert!(self.zone_is_settled(zone), "data of zone {zone} are on their way");
        for place in self.places_of_zone(zone) {
            let Some(superblock) = self.superblock_at(place) else { continue };
            let die = self.die_of(superblock);
            let valid = self.blocks.get(superblock, Field::Valid);
            self.blocks.set(superblock, Field::Valid, 0);
            self.dies[die as usize].valid -= valid;
            self.counters.trimmed_units += u64::from(valid);
            if self.blocks.use_of(superblock) == BlockUse::Open {
                self.blocks.close(die, superblock);
            }
            // Superblocks with programs in progress follow at the programs' end.
            if self.blocks.is_candidate(superblock) {
                self.victims.add(&mut self.blocks, die, superblock);
            }
        }
        let places = self.places_of_zone(zone);
        let zones = self.zones_mut();
        zones.become_(zone, ZoneState::Empty);
        for word in [Word::Pointer, Word::Arrived, Word::Appended, Word::Begun] {
            zones.set(zone, word, 0);
        }
        places.for_each(|place| zones.superblocks.set(place, 0));
    }

    /// Range of a zone's entries in the table of superblocks.
    fn places_of_zone(&self, zone: ZoneIndex) -> std::ops::Range<u32> {
        let dies = self.zones().parameters.dies;
        zone * dies..(zone + 1) * dies
    }

    fn superblock_at(&self, place: u32) -> Option<SuperblockIndex> {
        self.zones().superblocks.get(place).checked_sub(1)
    }

    /// With zones, pending erases of a die matter only while it has no free superblock.
    pub(super) fn urgency_of_erases(&self, die: DieIndex) -> Urgency {
        let waiting = self.victims.candidates(die) > 0 || self.dies[die as usize].victim.is_some();
        match self.blocks.free(die) {
            _ if !waiting => Urgency::None,
            0 => Urgency::Urgent,
            _ => Urgency::Background,
        }
    }

    /// With zones: chooses a superblock to be erased.
    pub(super) fn start_erase(&mut self, die: DieIndex) -> Option<Collection> {
        let superblock = self.victims.choose(&mut self.blocks, die)?;
        self.victims.remove(&mut self.blocks, die, superblock);
        self.blocks.set_use(superblock, BlockUse::Victim);
        let reason = CollectionReason::Space;
        self.dies[die as usize].victim = Some(Victim::to_erase(superblock));
        Some(Collection { superblock, valid: 0, reason })
    }

    /// Whether a superblock holds data of a zone, so that it can't be erased.
    #[inline]
    pub(super) fn is_of_zone(&self, superblock: SuperblockIndex) -> bool {
        self.zones.is_some() && self.blocks.get(superblock, Field::Valid) > 0
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
