//! The state of a flash translation layer at rest, and its serialisation.
//!
//! At rest no operation is in progress: no program, no collection, no partly appended superpage. The state then
//! consists of the two maps, a record for each superblock, the open superblocks and the counters. The lists of free
//! superblocks and candidates are rebuilt from these in a fixed order, and the mapping cache is empty. So a loaded
//! drive behaves like the saved one.
//!
//! ```text
//!  header (4 KiB) │ dies and counters │ superblocks │ map: unit → slot │ reverse: slot → unit
//!                                                    │ with zones: zones │ nothing
//! ```
//!
//! Sections begin at multiples of 4 KiB, so that the maps can be mapped copy-on-write. All numbers are little-endian.
//! Each section and the header have a checksum, XXH64 (Collet). A file is hostile until it is checked: sizes against
//! the profile's, and every entry of the map against its slot. An accepted state is one that the drive can reach.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use twox_hash::XxHash64;

use super::blocks::{Blocks, Field, Pools, RestingBlock};
use super::log_blocks::{self, LogBlocks};
use super::mapping_cache::MappingCache;
use super::reverse::Reverse;
use super::victims::Victims;
use super::zones::{RestingZones, Zones};
use super::{BlockUse, Die, Frontier, Ftl, FtlCounters, FtlParameters, REGION_UNITS, Sizes, Stream, Unit, regions_of};
use crate::flat_table::{FlatTable, TableMemory};

/// A drive at rest.
pub(crate) struct Resting {
    pub(super) parameters: Arc<FtlParameters>,
    pub(super) map: FlatTable,
    pub(super) reverse: Reverse,
    pub(super) blocks: Vec<RestingBlock>,
    /// Frontiers by die and stream.
    pub(super) frontiers: Vec<[Option<Frontier>; Stream::ALL.len()]>,
    pub(super) counters: FtlCounters,
    /// Present for a zoned drive, whose maps have no entries.
    pub(super) zones: Option<RestingZones>,
}

/// Source of the bytes of a saved state.
pub trait StateSource {
    /// Bytes in all.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the bytes as separate memory: a private mapping, or a copy. It must lie within [`len`](Self::len).
    ///
    /// # Errors
    /// A sentence that gives the reason.
    fn part(&self, offset: u64, len: u64) -> Result<Box<dyn TableMemory>, String>;
}

impl StateSource for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn part(&self, offset: u64, len: u64) -> Result<Box<dyn TableMemory>, String> {
        Ok(Box::new(self[offset as usize..(offset + len) as usize].to_vec()))
    }
}

/// Reason why a saved state was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The bytes are no saved state, or were truncated or changed.
    Damaged(String),
    /// The state has another version of the format.
    Version(u32),
    /// The state belongs to another profile or capacity.
    OtherDevice,
    /// The bytes could not be had.
    Unreadable(String),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Damaged(what) => write!(f, "not a sound state of a flash drive: {what}"),
            StateError::Version(version) => {
                write!(f, "a state in version {version} of the format; expected version {VERSION}")
            }
            StateError::OtherDevice => f.write_str("a state of another profile or capacity"),
            StateError::Unreadable(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StateError {}

/// First bytes of a saved state.
const MAGIC: &[u8; 16] = b"chronodisk-flash";

/// Seed of the checksums.
const CHECKSUM_SEED: u64 = 0;

/// Version of the format.
const VERSION: u32 = 5;

/// Length of the header, and alignment of the sections.
const HEADER_BYTES: usize = 4_096;

const SECTIONS: usize = 4;

/// Bytes of a die: for each stream its open superblock plus one, and the units appended to it.
const DIE_BYTES: usize = Stream::ALL.len() * 8;

/// Bytes of a superblock: use, closing, erases, logical block plus one, units in order.
const BLOCK_BYTES: usize = 20;

fn damaged<T>(what: impl Into<String>) -> Result<T, StateError> {
    Err(StateError::Damaged(what.into()))
}

impl Resting {
    /// The resting state of a drive without operations in progress.
    pub(crate) fn of(ftl: Ftl) -> Self {
        let superblocks = 0..ftl.parameters.geometry.superblocks();
        let blocks = superblocks.map(|superblock| RestingBlock {
            state: ftl.blocks.use_of(superblock),
            closing: ftl.blocks.get(superblock, Field::Closing),
            erases: ftl.blocks.get(superblock, Field::Erases),
            home: ftl.logs.as_ref().map_or(0, |logs| logs.home(superblock)),
            in_order: ftl.logs.as_ref().map_or(0, |logs| logs.in_order(superblock)),
        });
        Resting {
            blocks: blocks.collect(),
            frontiers: ftl.dies.iter().map(|die| die.frontiers).collect(),
            counters: ftl.counters,
            zones: ftl.zones.as_ref().map(Zones::at_rest),
            map: ftl.map,
            reverse: ftl.reverse,
            parameters: ftl.parameters,
        }
    }

    /// The small sections: dies with counters, superblocks, and zones if there are any.
    fn small_sections(&self) -> Vec<Vec<u8>> {
        let mut dies = Vec::with_capacity(self.frontiers.len() * DIE_BYTES + FtlCounters::WORDS * 8);
        for frontier in self.frontiers.iter().flatten() {
            let words = frontier.map_or([0, 0], |frontier| [frontier.superblock + 1, frontier.appended]);
            dies.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        dies.extend(self.counters.words().iter().flat_map(|word| word.to_le_bytes()));
        let mut blocks = Vec::with_capacity(self.blocks.len() * BLOCK_BYTES);
        for block in &self.blocks {
            let words = [block.state as u32, block.closing, block.erases, block.home, block.in_order];
            blocks.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        let zones = self.zones.iter().map(|zones| zones.words().flat_map(u32::to_le_bytes).collect());
        [dies, blocks].into_iter().chain(zones).collect()
    }

    /// Bytes of a saved state.
    pub(crate) fn written_bytes(parameters: &FtlParameters) -> u64 {
        let sections = section_lengths(parameters);
        HEADER_BYTES as u64 + sections.iter().map(|&length| length + padding(length) as u64).sum::<u64>()
    }

    /// Passes the bytes of the saved state to `sink`, in order; `device` identifies its profile and capacity.
    ///
    /// # Errors
    /// The errors of `sink`.
    pub(crate) fn write<E>(&self, device: u64, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let small = self.small_sections();
        let lengths = section_lengths(&self.parameters);
        let tables = [&self.map, self.reverse.words()];
        let table_of = |section: usize| tables[section + tables.len() - SECTIONS];
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((HEADER_BYTES as u32).to_le_bytes());
        header.extend(device.to_le_bytes());
        for (section, length) in lengths.into_iter().enumerate() {
            let checksum = match small.get(section) {
                Some(bytes) => XxHash64::oneshot(CHECKSUM_SEED, bytes),
                None => checksum_of_table(table_of(section)),
            };
            header.extend(length.to_le_bytes());
            header.extend(checksum.to_le_bytes());
        }
        header.resize(HEADER_BYTES - 8, 0);
        header.extend(XxHash64::oneshot(CHECKSUM_SEED, &header).to_le_bytes());
        sink(&header)?;
        for (section, length) in lengths.into_iter().enumerate() {
            match small.get(section) {
                Some(bytes) => sink(bytes)?,
                None => table_of(section).write(sink)?,
            }
            sink(&[0; HEADER_BYTES][..padding(length)])?;
        }
        Ok(())
    }

    /// Reads and checks a saved state with these parameters; `device` identifies its profile and capacity. Also returns
    /// the header's checksum, which covers the whole state.
    pub(crate) fn read(
        parameters: &Arc<FtlParameters>,
        device: u64,
        source: &(impl StateSource + ?Sized),
    ) -> Result<(Self, u64), StateError> {
        let part = |offset: u64, len: u64| {
            if offset.checked_add(len).is_none_or(|end| end > source.len()) {
                return damaged("it ends too early");
            }
            let memory = source.part(offset, len).map_err(StateError::Unreadable)?;
            if (*memory).as_ref().len() as u64 == len { Ok(memory) } else { damaged("it ends too early") }
        };
        let header = part(0, HEADER_BYTES as u64)?;
        let (header, checksum) = (*header).as_ref().split_at(HEADER_BYTES - 8);
        if !header.starts_with(MAGIC) {
            return damaged("it does not begin as one");
        }
        let mut numbers = Numbers(&header[MAGIC.len()..]);
        let version = numbers.u32();
        if version != VERSION {
            return Err(StateError::Version(version));
        }
        let fingerprint = XxHash64::oneshot(CHECKSUM_SEED, header);
        if fingerprint.to_le_bytes() != checksum {
            return damaged("its header is not the written one");
        }
        if numbers.u32() != HEADER_BYTES as u32 {
            return damaged("its header has another length");
        }
        if numbers.u64() != device {
            return Err(StateError::OtherDevice);
        }
        let mut sections = Vec::with_capacity(SECTIONS);
        let mut offset = HEADER_BYTES as u64;
        for expected in section_lengths(parameters) {
            let (length, checksum) = (numbers.u64(), numbers.u64());
            if length != expected {
                return damaged(format!("a section has {length} bytes; expected {expected}"));
            }
            let memory = part(offset, length)?;
            if XxHash64::oneshot(CHECKSUM_SEED, (*memory).as_ref()) != checksum {
                return damaged("a section is not the written one");
            }
            sections.push(memory);
            offset += length + padding(length) as u64;
        }
        let [dies, blocks, map, reverse] =
            <[_; SECTIONS]>::try_from(sections).unwrap_or_else(|_| unreachable!("each section was read"));
        let geometry = &parameters.geometry;
        let mut numbers = Numbers((*dies).as_ref());
        let frontiers = (0..geometry.dies()).map(|_| {
            Stream::ALL.map(|_| {
                let (superblock, appended) = (numbers.u32(), numbers.u32());
                superblock.checked_sub(1).map(|superblock| Frontier { superblock, appended })
            })
        });
        let frontiers = frontiers.collect();
        let counters = FtlCounters::from_words(std::array::from_fn(|_| numbers.u64()));
        let read_blocks = resting_blocks((*blocks).as_ref(), geometry.superblocks())?;
        let zones = parameters.zones().map(|zone| RestingZones::of_words(zone, words_of((*map).as_ref())));
        let map = if zones.is_some() { FlatTable::new(0) } else { FlatTable::in_memory(map) };
        let resting = Resting {
            parameters: Arc::clone(parameters),
            zones: zones.transpose().or_else(damaged)?,
            map,
            reverse: Reverse::in_memory(reverse, parameters),
            blocks: read_blocks,
            frontiers,
            counters,
        };
        Ok((resting, fingerprint))
    }
}

impl Ftl {
    /// Makes a drive from a state at rest.
    ///
    /// # Errors
    /// The inconsistency of the state.
    pub(crate) fn from_resting(resting: Resting, seed: u64) -> Result<Ftl, StateError> {
        let counts = match &resting.zones {
            Some(zones) => Counts {
                valid: zones.valid(&resting.parameters, &resting.blocks).or_else(damaged)?,
                regions: FlatTable::new(0),
            },
            None => {
                check_unwritten(&resting)?;
                Counts::of(&resting.map, &resting.reverse, &resting.parameters)?
            }
        };
        Ftl::from_counted(resting, counts, seed)
    }

    /// Like [`Ftl::from_resting`], for a state with known counts and consistent maps.
    pub(super) fn from_counted(resting: Resting, counts: Counts, seed: u64) -> Result<Ftl, StateError> {
        let Counts { valid, regions } = counts;
        let Resting { parameters, map, reverse, blocks: resting_blocks, frontiers, counters, zones } = resting;
        let geometry = parameters.geometry;
        let sizes = Sizes::of(&parameters);
        let mut blocks = Blocks::in_use(&geometry, sizes.slc_superblocks);
        let mut victims = Victims::of(&parameters, seed);
        let mut slc_victims = Victims::of_slc(&parameters);
        let homes = resting_blocks.iter().map(|block| (block.state, block.home, block.in_order));
        let logs = log_blocks::with_homes(&parameters, homes, &map).or_else(damaged)?;
        match frontiers.iter().flatten().any(Option::is_some) {
            true if logs.is_some() => return damaged("a log is open in a drive at rest"),
            true if zones.is_some() => return damaged("a superblock is open for no zone"),
            _ => {}
        }
        for (superblock, resting) in (0..).zip(&resting_blocks) {
            blocks.set(superblock, Field::Valid, valid[superblock as usize]);
            blocks.set(superblock, Field::Erases, resting.erases.min(ERASES_MOST));
        }
        blocks.begin_wear_at_least();
        let mut dies = vec![Die::default(); geometry.dies() as usize];
        for ((state, frontiers), die) in dies.iter_mut().zip(frontiers).zip(0..) {
            let of_die = die * geometry.blocks_per_plane..(die + 1) * geometry.blocks_per_plane;
            state.frontiers = frontiers;
            state.valid = valid[of_die.start as usize..of_die.end as usize].iter().sum();
            if zones.is_none() {
                check_frontiers(&frontiers, of_die.clone(), &resting_blocks, &sizes, blocks.pools())?;
            }
            // From the last to the first, so that the first is used first.
            for superblock in of_die.clone().rev() {
                match resting_blocks[superblock as usize].state {
                    BlockUse::Victim => return damaged("a superblock is being collected"),
                    BlockUse::Free if valid[superblock as usize] > 0 => {
                        return damaged("a free superblock holds data");
                    }
                    BlockUse::Free => {
                        let pool = blocks.pools().of(die, superblock);
                        blocks.put_free(pool, superblock, parameters.wear.dynamic);
                    }
                    state => blocks.set_use(superblock, state),
                }
            }
            // Only the host empties zones.
            let is_kept = |superblock: u32| zones.is_some() && valid[superblock as usize] > 0;
            for superblock in closed_in_order(of_die, &resting_blocks) {
                let pool = blocks.pools().of(die, superblock);
                blocks.close(pool, superblock);
                match &mut slc_victims {
                    _ if is_kept(superblock) => {}
                    Some(victims) if pool != die => victims.add(&mut blocks, die, superblock),
                    _ => victims.add(&mut blocks, die, superblock),
                }
            }
        }
        if zones.is_none() {
            check_room(&blocks, &dies, &sizes, logs.as_ref())?;
        }
        let zones = zones.and_then(|zones| Zones::from_rest(&parameters, &zones));
        Ok(Ftl {
            cache: MappingCache::new(&parameters),
            parameters,
            sizes,
            map,
            reverse,
            regions,
            blocks,
            victims,
            slc_victims,
            logs,
            zones,
            dies,
            counters,
        })
    }
}

/// The superblocks of a section.
fn resting_blocks(section: &[u8], superblocks: u32) -> Result<Vec<RestingBlock>, StateError> {
    let mut numbers = Numbers(section);
    let mut blocks = Vec::with_capacity(superblocks as usize);
    for _ in 0..superblocks {
        let Some(state) = BlockUse::from_code(numbers.u32()) else {
            return damaged("a superblock is of no known use");
        };
        let (closing, erases) = (numbers.u32(), numbers.u32());
        let (home, in_order) = (numbers.u32(), numbers.u32());
        blocks.push(RestingBlock { state, closing, erases, home, in_order });
    }
    Ok(blocks)
}

/// The closed superblocks among these, in the order of their closing.
fn closed_in_order(superblocks: Range<u32>, resting: &[RestingBlock]) -> Vec<u32> {
    let is_closed = |superblock: &u32| resting[*superblock as usize].state == BlockUse::Closed;
    let mut closed: Vec<u32> = superblocks.filter(is_closed).collect();
    closed.sort_by_key(|&superblock| resting[superblock as usize].closing);
    closed
}

/// Beyond the endurance of any flash. Larger counts could only overflow.
const ERASES_MOST: u32 = 1 << 30;

/// Counts derived from a state's maps.
pub(super) struct Counts {
    /// Valid units of each superblock.
    pub(super) valid: Vec<u32>,
    /// Mapped units of each region.
    pub(super) regions: FlatTable,
}

impl Counts {
    /// Counts, and checks that every mapped unit has a slot that refers to it, and every such slot one unit.
    fn of(map: &FlatTable, reverse: &Reverse, parameters: &FtlParameters) -> Result<Self, StateError> {
        let geometry = &parameters.geometry;
        let (slc_superblocks, slc_units) = (parameters.slc_superblocks(), geometry.slc_units_per_superblock());
        let mut valid = vec![0; geometry.superblocks() as usize];
        let (units, slots) = (map.len() as u32, geometry.slots());
        // A slot with a unit's whole number can hold no other unit.
        let mut taken = if reverse.is_whole() { Vec::new() } else { vec![0u64; slots.div_ceil(u64::BITS) as usize] };
        let mut regions = FlatTable::new(regions_of(units));
        for (region, first) in (0..).zip((0..units).step_by(REGION_UNITS as usize)) {
            let mut mapped = 0;
            for unit in first..units.min(first.saturating_add(REGION_UNITS)) {
                let Some(slot) = map.get(unit).checked_sub(1) else { continue };
                if slot >= slots {
                    return damaged("a unit is mapped to a slot that the drive does not have");
                }
                if !reverse.may_hold(slot, unit) {
                    return damaged("a unit is mapped to a slot that does not hold it");
                }
                if let Some(word) = taken.get_mut((slot / u64::BITS) as usize) {
                    let bit = 1 << (slot % u64::BITS);
                    if *word & bit != 0 {
                        return damaged("two units are mapped to one slot");
                    }
                    *word |= bit;
                }
                let superblock = geometry.superblock_of(slot);
                if superblock % geometry.blocks_per_plane < slc_superblocks
                    && slot - geometry.first_slot(superblock) >= slc_units
                {
                    return damaged("a unit is mapped to a slot that has no cells of its own");
                }
                valid[superblock as usize] += 1;
                mapped += 1;
            }
            regions.set(region, mapped);
        }
        Ok(Counts { valid, regions })
    }

    /// Counts kept by a drive.
    pub(super) fn by(ftl: &Ftl) -> Self {
        let superblocks = 0..ftl.parameters.geometry.superblocks();
        Counts {
            valid: superblocks.map(|superblock| ftl.blocks.get(superblock, Field::Valid)).collect(),
            regions: ftl.regions.clone(),
        }
    }

    /// Counts of a state in which exactly these units are mapped, with this number in each superblock.
    pub(super) fn of_mapped(ranges: [Range<Unit>; 2], addressed: u32, valid: Vec<u32>) -> Self {
        let mut regions = FlatTable::new(regions_of(addressed));
        for range in ranges {
            for region in range.start / REGION_UNITS..range.end.div_ceil(REGION_UNITS) {
                let first = region * REGION_UNITS;
                let mapped = range.end.min(first.saturating_add(REGION_UNITS)) - range.start.max(first);
                regions.set(region, regions.get(region) + mapped);
            }
        }
        Counts { valid, regions }
    }
}

/// Checks that no unit is mapped to an unwritten part of an open superblock, which would be written again.
fn check_unwritten(resting: &Resting) -> Result<(), StateError> {
    let geometry = &resting.parameters.geometry;
    // Another check covers whether a superblock can be open at all.
    let open = resting.frontiers.iter().flatten().flatten().filter(|open| open.superblock < geometry.superblocks());
    for Frontier { superblock, appended } in open {
        let first = geometry.first_slot(*superblock);
        let mut unwritten = (*appended..geometry.units_per_superblock()).map(|place| first + place);
        if unwritten.any(|slot| resting.reverse.look(&resting.map, slot).1) {
            return damaged("a unit is mapped to a slot that was not written");
        }
    }
    Ok(())
}

/// Checks that each open superblock is open for one stream, and in a place where its next superpage begins.
fn check_frontiers(
    frontiers: &[Option<Frontier>; Stream::ALL.len()],
    of_die: Range<u32>,
    blocks: &[RestingBlock],
    sizes: &Sizes,
    pools: Pools,
) -> Result<(), StateError> {
    let open = of_die.clone().filter(|&superblock| blocks[superblock as usize].state == BlockUse::Open).count();
    let mut seen: Vec<u32> = Vec::with_capacity(Stream::ALL.len());
    for (stream, frontier) in Stream::ALL.into_iter().zip(frontiers) {
        let Some(Frontier { superblock, appended }) = *frontier else { continue };
        let fits = of_die.contains(&superblock)
            && blocks[superblock as usize].state == BlockUse::Open
            && !seen.contains(&superblock)
            && pools.is_slc(superblock) == (stream == Stream::Cache)
            && (1..sizes.superblock(stream)).contains(&appended)
            && appended.is_multiple_of(sizes.superpage(stream));
        if !fits {
            return damaged("an open superblock is in no state that it could be in");
        }
        seen.push(superblock);
    }
    if open == seen.len() { Ok(()) } else { damaged("a superblock is open without a stream") }
}

/// Checks that the collector can work on each die.
fn check_room(blocks: &Blocks, dies: &[Die], sizes: &Sizes, logs: Option<&LogBlocks>) -> Result<(), StateError> {
    for (die, number) in dies.iter().zip(0..) {
        let set_aside = logs.map_or(0, |logs| logs.set_aside(number));
        if blocks.free(number) < super::COLLECTOR_RESERVE + set_aside || die.valid > sizes.valid_limit {
            return damaged("a die has no room for the collector to work");
        }
    }
    Ok(())
}

/// Bytes of each section.
fn section_lengths(parameters: &FtlParameters) -> [u64; SECTIONS] {
    let geometry = &parameters.geometry;
    let zones = parameters.zones().map(|zone| RestingZones::word_count(zone, parameters.logical_units) * 4);
    [
        u64::from(geometry.dies()) * DIE_BYTES as u64 + FtlCounters::WORDS as u64 * 8,
        u64::from(geometry.superblocks()) * BLOCK_BYTES as u64,
        zones.unwrap_or(u64::from(parameters.mapped_units()) * 4),
        Reverse::bytes(parameters),
    ]
}

/// Bytes from the end of a section to the beginning of the next.
fn padding(length: u64) -> usize {
    (HEADER_BYTES - (length % HEADER_BYTES as u64) as usize) % HEADER_BYTES
}

fn checksum_of_table(table: &FlatTable) -> u64 {
    use std::hash::Hasher;
    let mut hasher = XxHash64::with_seed(CHECKSUM_SEED);
    let hashed: Result<(), std::convert::Infallible> = table.write(&mut |piece| {
        hasher.write(piece);
        Ok(())
    });
    match hashed {
        Ok(()) => hasher.finish(),
    }
}

/// The words of a section.
fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| Numbers(word).u32()).collect()
}

/// Numbers one after the other, in bytes known to be long enough.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u32(&mut self) -> u32 {
        let (first, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        u32::from_le_bytes(*first)
    }

    fn u64(&mut self) -> u64 {
        let (first, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        u64::from_le_bytes(*first)
    }
}

/// Recomputes the checksums of a modified state, as far as its header is readable; for tests.
#[cfg(any(test, feature = "test-utils"))]
pub fn reseal_state(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let table = MAGIC.len() + 16;
    let mut offset = HEADER_BYTES as u64;
    for section in 0..SECTIONS {
        let entry = table + section * 16;
        let length = Numbers(&bytes[entry..]).u64();
        let Some(end) = offset.checked_add(length).filter(|&end| end <= bytes.len() as u64) else { break };
        let checksum = XxHash64::oneshot(CHECKSUM_SEED, &bytes[offset as usize..end as usize]);
        bytes[entry + 8..entry + 16].copy_from_slice(&checksum.to_le_bytes());
        offset = end + padding(length) as u64;
    }
    let checksum = XxHash64::oneshot(CHECKSUM_SEED, &bytes[..HEADER_BYTES - 8]);
    bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}
