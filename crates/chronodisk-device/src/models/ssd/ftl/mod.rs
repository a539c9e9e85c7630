//! The flash translation layer: places of units, and garbage collection. It has no notion of time.
//!
//! It is a state machine: events go in, consequences come out. The caller decides on time: the device model gives every
//! read, program and erase its duration, and ageing makes the same calls as fast as possible.
//!
//! ```text
//!  write:    append ──► superpage complete? ──► (program) ──► programmed
//!  collect:  start_collection ──► next_moves ──► (read) ──► relocate ──► superpage complete? ──► as above
//!                                     └─ none left, all relocated ──► (erase) ──► erased
//! ```
//!
//! With [`SlcCache`], the first superblocks of each die store one bit per cell and are a pool of their own. The host's
//! data go there while there is room ([`Ftl::host_stream`]), and a collection with a reason of its own moves them to
//! the other superblocks.
//!
//! With [`Allocation::LogBlock`] whole blocks are mapped, and writes go to logs first: see `log_blocks`. With
//! [`Allocation::Zones`] the host writes zones in order and resets them: see `zones`.
//!
//! Modelled: a page map, ideal or demand-cached; a block map with logs; a map of zones; a map from slots back to units;
//! for each die a frontier per [`Stream`], superblocks by use, free ones by wear, collection by policy, static and
//! dynamic wear levelling, TRIM. A unit is mapped to its new slot once it is appended, while its data are still in the
//! controller: a read before the end of the program gets the data from there, or waits. A unit that is overwritten or
//! trimmed between a collector's read and its [`Ftl::relocate`] is stale and is not written.
//!
//! Not modelled: contents of data (the store's task); bad blocks; the power failure that a half-written superpage would
//! have to survive.
//!
//! Bounded: no call does more than the units of a superblock or the superblocks of a die. The exception is
//! [`Ftl::trim`], which visits the mapped units in its range and skips unmapped regions ([`REGION_UNITS`]) in one step.
//! [`FtlParameters::check`] reserves superblocks in every die, so a collection always gains space, and the host is
//! never refused for ever ([`Ftl::has_room`]).
//!
//! A clone shares all tables, so its cost does not depend on the capacity.

pub(crate) mod ageing;
#[cfg(test)]
mod ageing_tests;
mod blocks;
mod collection;
mod collector;
mod counters;
pub(super) mod fixed_point;
mod log_blocks;
mod mapping_cache;
mod parameters;
mod permutation;
mod reverse;
pub(crate) mod state;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
mod untimed;
mod victims;
mod zones;
#[cfg(test)]
mod zones_tests;

use std::ops::Range;
use std::sync::Arc;

use super::geometry::{DieIndex, Slot};
use crate::flat_table::FlatTable;
use crate::footprint;
pub(crate) use blocks::SuperblockIndex;
use blocks::{BlockUse, Blocks, Field};
pub(crate) use collection::{CollectionReason, Move, Urgency};
pub(crate) use counters::FtlCounters;
use log_blocks::LogBlocks;
use mapping_cache::MappingCache;
pub(crate) use parameters::{
    Allocation, AllocationOrder, CollectorParameters, FtlParameters, Mapping, SlcCache, VictimPolicy, WearLevelling,
    ZoneParameters,
};
use reverse::Reverse;
pub(crate) use untimed::Untimed;
use victims::Victims;
pub(crate) use zones::ZoneIndex;
use zones::Zones;

/// Number of an addressed unit. The host's units begin at 0; units of a mapping table in flash follow.
pub(crate) type Unit = u32;

/// The writer: each stream has a superblock of its own open in each die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stream {
    /// The host's data.
    Host,
    /// Data that the collector moves to win space.
    Collector,
    /// Pages of the mapping table.
    Mapping,
    /// Data that don't change, moved to superblocks with many erases.
    Levelling,
    /// The host's data in the cache, whose cells have one bit.
    Cache,
    /// Data that the collector moves out of the cache.
    Emptying,
}

impl Stream {
    /// All streams, in the order of their numbers.
    pub(crate) const ALL: [Stream; 6] =
        [Stream::Host, Stream::Collector, Stream::Mapping, Stream::Levelling, Stream::Cache, Stream::Emptying];
}

/// The slots of one program command, all appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Superpage {
    /// The superblock.
    pub(crate) superblock: SuperblockIndex,
    /// Number of the superpage in the superblock.
    pub(crate) index: u32,
}

/// Place of an appended unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    /// Slot of the unit.
    pub(crate) slot: Slot,
    /// The superpage, if this was its last slot: it can be programmed, and [`Ftl::programmed`] is to be called when
    /// that has been done.
    pub(crate) completed: Option<Superpage>,
}

/// The state of a flash translation layer.
#[derive(Clone, Debug)]
pub(crate) struct Ftl {
    parameters: Arc<FtlParameters>,
    sizes: Sizes,
    /// Slot of each unit, plus one; zero if it has none.
    map: FlatTable,
    /// The unit of each slot.
    reverse: Reverse,
    /// Mapped units of each region of [`REGION_UNITS`].
    regions: FlatTable,
    blocks: Blocks,
    victims: Victims,
    /// The superblocks with one bit in a cell that may be emptied.
    slc_victims: Option<Victims>,
    /// Roles of superblocks with a block map; `None` without one.
    logs: Option<LogBlocks>,
    /// The zones of a zoned drive.
    zones: Option<Zones>,
    dies: Vec<Die>,
    cache: Option<MappingCache>,
    counters: FtlCounters,
}

/// Units of a region, whose mapped units are counted, so that a trim can skip unmapped regions: 4 TB of units of 4 KiB
/// are 238,000 regions.
const REGION_UNITS: u32 = 4_096;

fn regions_of(units: u32) -> u64 {
    u64::from(units.div_ceil(REGION_UNITS))
}

/// Sizes derived from the geometry.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    units_per_superblock: u32,
    units_per_superpage: u32,
    blocks_per_die: u32,
    slc_superblocks: u32,
    slc_units_per_superblock: u32,
    slc_units_per_superpage: u32,
    valid_limit: u32,
}

impl Sizes {
    fn of(parameters: &FtlParameters) -> Self {
        let geometry = &parameters.geometry;
        Sizes {
            units_per_superblock: geometry.units_per_superblock(),
            units_per_superpage: geometry.units_per_superpage(),
            blocks_per_die: geometry.blocks_per_plane,
            slc_superblocks: parameters.slc_superblocks(),
            slc_units_per_superblock: geometry.slc_units_per_superblock(),
            slc_units_per_superpage: geometry.slc_units_per_superpage(),
            valid_limit: parameters.valid_units_per_die_limit(),
        }
    }

    /// Units that a program command of the stream writes.
    #[inline]
    fn superpage(&self, stream: Stream) -> u32 {
        if stream == Stream::Cache { self.slc_units_per_superpage } else { self.units_per_superpage }
    }

    /// Units of a superblock of the stream.
    #[inline]
    fn superblock(&self, stream: Stream) -> u32 {
        if stream == Stream::Cache { self.slc_units_per_superblock } else { self.units_per_superblock }
    }

    /// Free superblocks of a die that the host may not use: the collector's, and one for data moved out of the SLC
    /// pool, which frees none of these superblocks.
    #[inline]
    fn reserve(&self) -> u32 {
        COLLECTOR_RESERVE + u32::from(self.slc_superblocks > 0)
    }
}

/// The state of a die.
#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// Valid units.
    valid: u32,
    /// Frontiers by stream.
    frontiers: [Option<Frontier>; Stream::ALL.len()],
    victim: Option<collector::Victim>,
    levelling: collector::LevellingSearch,
}

/// An open superblock.
#[derive(Clone, Copy, Debug)]
struct Frontier {
    superblock: SuperblockIndex,
    /// Units appended, fewer than the superblock has.
    appended: u32,
}

/// Free superblocks of a die that only the collector may take: with one, it can always empty a victim.
const COLLECTOR_RESERVE: u32 = 1;

impl Ftl {
    /// An erased drive.
    ///
    /// # Panics
    /// If the parameters don't [`check`](FtlParameters::check).
    pub(crate) fn new(parameters: Arc<FtlParameters>, seed: u64) -> Self {
        if let Err((key, problem)) = parameters.check() {
            panic!("{key}: {problem}");
        }
        let geometry = parameters.geometry;
        let sizes = Sizes::of(&parameters);
        Ftl {
            sizes,
            map: FlatTable::new(u64::from(parameters.mapped_units())),
            reverse: Reverse::new(&parameters),
            regions: FlatTable::new(regions_of(parameters.mapped_units())),
            blocks: Blocks::new(&geometry, sizes.slc_superblocks),
            victims: Victims::of(&parameters, seed),
            slc_victims: Victims::of_slc(&parameters),
            logs: LogBlocks::new(&parameters),
            zones: Zones::new(&parameters),
            dies: vec![Die::default(); geometry.dies() as usize],
            cache: MappingCache::new(&parameters),
            counters: FtlCounters::default(),
            parameters,
        }
    }

    /// Most memory that the state of such a drive takes.
    pub(crate) fn bytes_max(parameters: &FtlParameters) -> u64 {
        let geometry = &parameters.geometry;
        let dies = u64::from(geometry.dies());
        let mapped = parameters.mapped_units();
        footprint::sum([
            footprint::DEVICE_BYTES,
            FlatTable::bytes(mapped.into()),
            FlatTable::bytes(Reverse::bytes(parameters) / 4),
            FlatTable::bytes(regions_of(mapped)),
            Blocks::bytes_max(geometry, Sizes::of(parameters).slc_superblocks),
            Victims::bytes_max(parameters),
            LogBlocks::bytes_max(parameters),
            Zones::bytes_max(parameters),
            footprint::array_bytes::<Die>(dies),
            MappingCache::bytes_max(parameters),
        ])
    }

    /// Its parameters.
    pub(crate) fn parameters(&self) -> &FtlParameters {
        &self.parameters
    }

    /// Work so far does not count.
    pub(crate) fn forget_counters(&mut self) {
        self.counters = FtlCounters::default();
    }

    /// Its counters.
    pub(crate) fn counters(&self) -> &FtlCounters {
        &self.counters
    }

    /// The slot of a unit; `None` if it was never written, or trimmed since. [`access_mapping`](Self::access_mapping)
    /// gives the cost of the lookup.
    #[inline]
    pub(crate) fn lookup(&self, unit: Unit) -> Option<Slot> {
        if self.zones.is_some() {
            return self.look_up_in_zone(unit);
        }
        self.map.get(unit).checked_sub(1)
    }

    /// The die on which a unit of the host must be written, if allocation is static.
    pub(crate) fn bound_die(&self, unit: Unit) -> Option<DieIndex> {
        self.parameters.bound_die(unit)
    }

    /// Whether the stream's next unit can be appended on a die. If its superpage is partly filled, it can. Otherwise
    /// the collector may first have to free a superblock there, or the die may have its share of valid data.
    pub(crate) fn has_room(&self, stream: Stream, die: DieIndex) -> bool {
        let state = &self.dies[die as usize];
        let frontier = state.frontiers[stream as usize];
        if frontier.is_some_and(|frontier| !frontier.appended.is_multiple_of(self.sizes.superpage(stream))) {
            return true;
        }
        let room_for_more = state.valid + self.sizes.units_per_superpage <= self.sizes.valid_limit;
        match stream {
            Stream::Host | Stream::Mapping => {
                room_for_more && (frontier.is_some() || self.spare_superblocks(die) > self.sizes.reserve())
            }
            Stream::Collector | Stream::Levelling | Stream::Emptying => frontier.is_some() || self.blocks.free(die) > 0,
            Stream::Cache => {
                self.sizes.slc_superblocks > 0
                    && room_for_more
                    && (frontier.is_some() || self.free_slc_superblocks(die) > 0)
            }
        }
    }

    /// The stream of the host's next unit on a die. A partly filled superpage comes first, then the SLC pool, then
    /// the ordinary superblocks. `None` if there is no room.
    #[inline]
    pub(crate) fn host_stream(&self, die: DieIndex) -> Option<Stream> {
        let cached =
            self.sizes.slc_superblocks > 0 && self.begun(Stream::Host, die) == 0 && self.has_room(Stream::Cache, die);
        if cached {
            return Some(Stream::Cache);
        }
        self.has_room(Stream::Host, die).then_some(Stream::Host)
    }

    /// Units that a program command of the stream writes.
    #[cfg(test)]
    pub(crate) fn units_per_superpage(&self, stream: Stream) -> u32 {
        self.sizes.superpage(stream)
    }

    /// Whether a superblock has one bit in a cell.
    #[inline]
    pub(crate) fn is_slc(&self, superblock: SuperblockIndex) -> bool {
        self.blocks.pools().is_slc(superblock)
    }

    /// Free superblocks of a die with one bit in a cell.
    pub(crate) fn free_slc_superblocks(&self, die: DieIndex) -> u32 {
        match self.sizes.slc_superblocks {
            0 => 0,
            _ => self.blocks.free(self.blocks.pools().slc(die)),
        }
    }

    /// The first die with room from `start` on, in the order of numbers and around.
    pub(crate) fn die_with_room(&self, stream: Stream, start: DieIndex) -> Option<DieIndex> {
        let dies = self.dies.len() as DieIndex;
        (start..dies).chain(0..start.min(dies)).find(|&die| self.has_room(stream, die))
    }

    /// Free units in the stream's partly filled superpage on a die; zero without one.
    pub(crate) fn begun(&self, stream: Stream, die: DieIndex) -> u32 {
        let per_superpage = self.sizes.superpage(stream);
        let appended = self.dies[die as usize].frontiers[stream as usize].map_or(0, |frontier| frontier.appended);
        (per_superpage - appended % per_superpage) % per_superpage
    }

    /// Puts a unit into the next slot of a stream on a die, and maps it there. `None` if there is no room.
    ///
    /// # Panics
    /// If there is no such unit.
    pub(crate) fn append(&mut self, stream: Stream, die: DieIndex, unit: Unit) -> Option<Appended> {
        if stream == Stream::Host {
            self.choose_log(die, unit);
        }
        if !self.has_room(stream, die) {
            return None;
        }
        let frontier = self.frontier(stream, die);
        let slot = frontier.superblock * self.sizes.units_per_superblock + frontier.appended;
        self.reverse.set(slot, unit);
        let before = self.map.get(unit);
        self.map.set(unit, slot + 1);
        match before.checked_sub(1) {
            Some(before) => self.invalidate(before),
            None => {
                let region = unit / REGION_UNITS;
                self.regions.set(region, self.regions.get(region) + 1);
            }
        }
        let valid = self.blocks.get(frontier.superblock, Field::Valid);
        self.blocks.set(frontier.superblock, Field::Valid, valid + 1);
        self.dies[die as usize].valid += 1;
        self.counters.count(stream);
        Some(Appended { slot, completed: self.advance(stream, die, frontier) })
    }

    /// Pads the partly filled superpage of a stream on a die, so that it can be programmed; `None` without one.
    pub(crate) fn pad(&mut self, stream: Stream, die: DieIndex) -> Option<Superpage> {
        let padding = self.begun(stream, die);
        let mut completed = None;
        for _ in 0..padding {
            let frontier = self.frontier(stream, die);
            completed = self.advance(stream, die, frontier);
        }
        self.counters.padded_units += u64::from(padding);
        completed
    }

    /// The program of a superpage has ended.
    ///
    /// # Panics
    /// If the superblock has no program under way.
    pub(crate) fn programmed(&mut self, superpage: Superpage) {
        let superblock = superpage.superblock;
        self.blocks.end_program(superblock);
        if self.blocks.is_candidate(superblock) && !self.is_of_zone(superblock) {
            let die = self.die_of(superblock);
            match &mut self.slc_victims {
                Some(victims) if self.blocks.pools().is_slc(superblock) => {
                    victims.add(&mut self.blocks, die, superblock);
                }
                _ => self.victims.add(&mut self.blocks, die, superblock),
            }
        }
    }

    /// Discards the data of these units.
    ///
    /// # Panics
    /// If there are no such units.
    pub(crate) fn trim(&mut self, units: Range<Unit>) {
        let mut begin = units.start;
        while begin < units.end {
            let region = begin / REGION_UNITS;
            let region_end = units.end.min((region + 1).saturating_mul(REGION_UNITS));
            let mut mapped = self.regions.get(region);
            let before = mapped;
            for unit in begin..region_end {
                if mapped == 0 {
                    break;
                }
                if let Some(slot) = self.lookup(unit) {
                    self.map.set(unit, 0);
                    self.invalidate(slot);
                    mapped -= 1;
                    self.counters.trimmed_units += 1;
                    self.mapping_changed(unit);
                }
            }
            if mapped < before {
                self.regions.set(region, mapped);
            }
            begin = region_end;
        }
    }

    /// Dies of the drive.
    pub(crate) fn dies(&self) -> u32 {
        self.dies.len() as u32
    }

    /// Units that are mapped on a die.
    pub(crate) fn valid_units(&self, die: DieIndex) -> u32 {
        self.dies[die as usize].valid
    }

    /// Free ordinary superblocks of a die.
    pub(crate) fn free_superblocks(&self, die: DieIndex) -> u32 {
        self.blocks.free(die)
    }

    /// Times that a superblock was erased.
    #[cfg(test)]
    pub(crate) fn erases(&self, superblock: SuperblockIndex) -> u32 {
        self.blocks.get(superblock, Field::Erases)
    }

    /// Valid units of a superblock.
    #[cfg(test)]
    pub(crate) fn valid_in(&self, superblock: SuperblockIndex) -> u32 {
        self.blocks.get(superblock, Field::Valid)
    }

    /// The stream's open superblock on a die, opened now if necessary. There must be room.
    fn frontier(&mut self, stream: Stream, die: DieIndex) -> Frontier {
        if let Some(frontier) = self.dies[die as usize].frontiers[stream as usize] {
            return frontier;
        }
        let pool = if stream == Stream::Cache { self.blocks.pools().slc(die) } else { die };
        let superblock = self.blocks.take_free(pool, stream == Stream::Levelling).expect("there is room");
        self.blocks.set_use(superblock, BlockUse::Open);
        Frontier { superblock, appended: 0 }
    }

    /// Notes that a slot of the frontier was used. Returns the superpage that it completed.
    fn advance(&mut self, stream: Stream, die: DieIndex, frontier: Frontier) -> Option<Superpage> {
        let Frontier { superblock, appended } = frontier;
        let appended = appended + 1;
        let closed = appended == self.sizes.superblock(stream);
        self.dies[die as usize].frontiers[stream as usize] =
            if closed { None } else { Some(Frontier { superblock, appended }) };
        let per_superpage = self.sizes.superpage(stream);
        if !appended.is_multiple_of(per_superpage) {
            return None;
        }
        self.blocks.begin_program(superblock);
        if closed {
            let pool = self.blocks.pools().of(die, superblock);
            self.blocks.close(pool, superblock);
            if stream == Stream::Host {
                self.log_filled(die, superblock);
            }
        }
        Some(Superpage { superblock, index: appended / per_superpage - 1 })
    }

    /// A slot that was valid is so no longer.
    fn invalidate(&mut self, slot: Slot) {
        let superblock = slot / self.sizes.units_per_superblock;
        let die = self.die_of(superblock);
        self.dies[die as usize].valid -= 1;
        if self.blocks.is_candidate(superblock) && !self.is_slc(superblock) {
            self.victims.invalidated(&mut self.blocks, die, superblock);
        } else {
            // SLC superblocks are emptied in the order of their closing, regardless of their valid units.
            let valid = self.blocks.get(superblock, Field::Valid);
            self.blocks.set(superblock, Field::Valid, valid - 1);
        }
    }

    /// The controller itself changed where a unit is.
    fn mapping_changed(&mut self, unit: Unit) {
        if let Some(cache) = &mut self.cache {
            cache.changed_if_cached(unit);
        }
    }

    fn die_of(&self, superblock: SuperblockIndex) -> DieIndex {
        superblock / self.sizes.blocks_per_die
    }
}
