//! Storage of kept blocks: compactly in memory, or in a file.
//!
//! Several devices may share a place, with equal blocks stored once (see [`super::joint`]). A single device has a
//! backing of its own, without comparisons.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_store::StoreError;
use chronodisk_store::host::Host;
use chronodisk_store::image_files::{map_path, sums_path};

use super::arena::Arena;
use super::block::{Block, slots_of};
use super::header::Header;
use super::map_log::{Entry, MapLog};
use super::new_image::NewImage;
use super::places::Places;
use super::runs::RunMap;
use super::sharing::{Others, claim_all};
use super::slot_file::{SlotFile, used_places};
use super::{SLOT_BYTES, UNIT_BYTES, UNIT_SLOTS};

/// Keeps one device's bytes at places, counted in slots.
#[derive(Debug)]
pub(crate) struct Backing {
    pool: Pool,
    pub(super) index: usize,
    /// Whether other devices' blocks may be there, too.
    is_joint: bool,
    /// In a file: the device's map, and the slots released since it was written.
    map: Option<(MapLog, Released)>,
}

/// Common part of the devices of a backing.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Mutex<Inner>>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) medium: Medium,
    /// Number of devices beyond the first that share places, by slots.
    pub(super) others: RunMap<Others>,
    /// Kept blocks of each device, without zeros and generated ones; only if several devices are possible.
    pub(super) held: Vec<RunMap<Block>>,
}

#[derive(Debug)]
pub(super) enum Medium {
    Memory { arena: Arena, budget_bytes: u64 },
    File(SlotFile),
}

/// Makes an image of one device or of several, which must not exist.
pub(crate) fn create(
    host: &Arc<dyn Host>,
    path: &Path,
    header: &mut Header,
    power_cut: bool,
) -> Result<Vec<Backing>, StoreError> {
    let (mut new, file) = NewImage::begin(host, path, power_cut)?;
    let sums = new.file(&sums_path(path))?;
    let mut file = SlotFile::begin(file, sums, header, power_cut)?;
    let count = header.capacities_bytes.len();
    let mut log = |index| {
        let mut log = MapLog::begin(new.file(&map_path(path, count, index))?, header.identity)?;
        if power_cut { log.sync().map(|()| log) } else { Ok(log) }
    };
    let logs: Vec<MapLog> = (0..count).map(&mut log).collect::<Result<_, StoreError>>()?;
    file.write_header(header)?;
    new.finish();
    let pool = Pool::new(Medium::File(file), RunMap::default());
    let backing = |log| pool.backing(count > 1, RunMap::default(), Some((log, Released::default())));
    Ok(logs.into_iter().map(backing).collect())
}

/// Reads the maps of an image that was opened.
pub(crate) fn open(
    path: &Path,
    mut file: SlotFile,
    header: &Header,
    writable: bool,
) -> Result<Vec<(Backing, RunMap<Block>)>, StoreError> {
    let count = header.capacities_bytes.len();
    let mut maps = Vec::new();
    for (index, capacity_bytes) in header.capacities_bytes.iter().enumerate() {
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        let committed = file.commit_of(index);
        let path = map_path(path, count, index);
        maps.push(MapLog::open(file.host(), &path, writable, file.power_cut, header.identity, units, committed)?);
    }
    let others = match &maps[..] {
        [(_, map)] => {
            file.use_places(used_places(map))?;
            RunMap::default()
        }
        several => claim_all(path, &mut file, several.iter().map(|(_, map)| map))?,
    };
    let pool = Pool::new(Medium::File(file), others);
    let backing = |(log, map): (MapLog, RunMap<Block>)| {
        let mut held = RunMap::default();
        let stored = map.all().filter(|run| count > 1 && slots_of(run.2, 1).is_some());
        stored.for_each(|(start, end, block)| held.set(start, end, block));
        (pool.backing(count > 1, held, Some((log, Released::default()))), map)
    };
    Ok(maps.into_iter().map(backing).collect())
}

impl Pool {
    fn new(medium: Medium, others: RunMap<Others>) -> Self {
        Pool(Arc::new(Mutex::new(Inner { medium, others, held: Vec::new() })))
    }

    /// Memory, at most `budget_bytes`.
    pub(crate) fn memory(budget_bytes: u64) -> Self {
        Pool::new(Medium::Memory { arena: Arena::new(budget_bytes), budget_bytes }, RunMap::default())
    }

    /// The backing of a further device, whose blocks before are `held`.
    pub(super) fn backing(&self, is_joint: bool, held: RunMap<Block>, map: Option<(MapLog, Released)>) -> Backing {
        let mut inner = self.inner();
        inner.held.push(held);
        Backing { pool: self.clone(), index: inner.held.len() - 1, is_joint, map }
    }

    /// A store that panicked left every count as it was, because each operation changes them at its end.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium {
    fn places(&self) -> &Places {
        match self {
            Medium::Memory { arena, .. } => arena.places(),
            Medium::File(file) => &file.places,
        }
    }

    fn take(&mut self, len: u64, unit: u64) -> Option<(u64, u64)> {
        match self {
            Medium::Memory { arena, .. } => arena.take(len, unit),
            Medium::File(file) => file.places.take(len, unit),
        }
    }

    fn give(&mut self, start: u64, len: u64) {
        match self {
            Medium::Memory { arena, .. } => arena.give(start, len),
            Medium::File(file) => file.give(start, len),
        }
    }

    /// Whether a place begins with these bytes, of one block at most.
    pub(super) fn hold(&self, place: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        match self {
            Medium::Memory { arena, .. } => Ok(arena.holds(place, bytes)),
            Medium::File(file) => file.holds(place, bytes),
        }
    }
}

impl Inner {
    /// Removes one device's share of these slots; slots without a device become free.
    fn give_up(&mut self, place: u64, len: u64) {
        let (mut at, end) = (place, place + len);
        for (from, to, Others(count)) in self.others.pieces(place, end).collect::<Vec<_>>() {
            if at < from {
                self.medium.give(at, from - at);
            }
            match count {
                1 => self.others.remove(from, to),
                more => self.others.set(from, to, Others(more - 1)),
            }
            at = to;
        }
        if at < end {
            self.medium.give(at, end - at);
        }
    }
}

impl Backing {
    /// Memory of a device alone, at most `budget_bytes`.
    pub(crate) fn memory(budget_bytes: u64) -> Self {
        Pool::memory(budget_bytes).backing(false, RunMap::default(), None)
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.pool.inner()
    }

    /// Whether other devices' blocks may be there, too.
    pub(crate) fn is_joint(&self) -> bool {
        self.is_joint
    }

    /// Budget of the memory; `None` for a file.
    pub(crate) fn budget_bytes(&self) -> Option<u64> {
        match self.inner().medium {
            Medium::Memory { budget_bytes, .. } => Some(budget_bytes),
            Medium::File(_) => None,
        }
    }

    /// Takes up to `len` slots in one range, a multiple of `unit`.
    pub(crate) fn take(&self, len: u64, unit: u64) -> Option<(u64, u64)> {
        self.inner().medium.take(len, unit)
    }

    /// Frees places that were never used by a block.
    pub(crate) fn give(&self, start: u64, len: u64) {
        self.inner().medium.give(start, len);
    }

    /// Whether a kept block is overwritten in place. In a file it is not: after a kill, the map names places whose
    /// bytes must still be the committed ones.
    pub(crate) fn overwrites(&self) -> bool {
        !self.is_file()
    }

    /// Whether the bytes outlive this process.
    pub(crate) fn is_file(&self) -> bool {
        self.map.is_some()
    }

    /// Fills `bytes` with blocks from `unit` on, the first one at `place`, without its first `skip_bytes`.
    pub(crate) fn read(&self, unit: u64, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.inner().medium {
            Medium::Memory { arena, .. } => {
                arena.read(place, skip_bytes, bytes);
                Ok(())
            }
            Medium::File(file) => file.read_units(unit, place, skip_bytes, bytes),
        }
    }

    /// Fills `stored` with a compressed block.
    pub(crate) fn read_packed(&self, unit: u64, place: u64, stored: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.inner().medium {
            Medium::Memory { arena, .. } => {
                arena.read(place, 0, stored);
                Ok(())
            }
            Medium::File(file) => file.read_packed(unit, place, stored),
        }
    }

    /// Writes blocks from `unit` on, or one compressed block.
    pub(crate) fn write(&self, unit: u64, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match &mut self.inner().medium {
            Medium::Memory { arena, .. } => {
                arena.write(place, bytes);
                Ok(())
            }
            Medium::File(file) => file.write(unit, place, bytes),
        }
    }

    /// Returns all unused space to the host.
    pub(crate) fn punch(&self) -> Result<(), StoreError> {
        match &mut self.inner().medium {
            Medium::Memory { .. } => Ok(()),
            Medium::File(file) => file.punch(),
        }
    }

    /// Bytes on the host: of the blocks of all devices, and of this one's map.
    pub(crate) fn host_bytes(&self) -> Result<(u64, u64), StoreError> {
        let map_bytes = self.map.as_ref().map_or(Ok(0), |(log, _)| log.host_bytes())?;
        match &self.inner().medium {
            Medium::Memory { .. } => Ok((0, map_bytes)),
            Medium::File(file) => Ok((file.host_bytes()?, map_bytes)),
        }
    }

    /// Slots in use by all devices, without a single device's released ones.
    pub(crate) fn used(&self) -> u64 {
        let released = self.map.as_ref().filter(|_| !self.is_joint).map_or(0, |(_, released)| released.slots);
        self.inner().medium.places().used() - released
    }

    /// Bytes of memory for all devices' blocks, and for their tables.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let inner = self.inner();
        let held: u64 = inner.held.iter().map(RunMap::memory_bytes).sum();
        let released = self.map.as_ref().map_or(0, |(_, released)| released.memory_bytes());
        let tables = inner.medium.places().memory_bytes() + held + inner.others.memory_bytes() + released;
        match &inner.medium {
            Medium::Memory { arena, .. } => (arena.memory_bytes(), tables),
            Medium::File(file) => (0, tables - file.places.memory_bytes() + file.memory_bytes()),
        }
    }

    /// Whether there is room for this number of blocks, each in a range of slots.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        self.inner().medium.places().has_room(units, UNIT_SLOTS)
    }

    /// Slots behind the last used one.
    pub(crate) fn growth(&self) -> u64 {
        self.inner().medium.places().growth()
    }

    /// Releases this device's block in a range of addresses. Slots without a device become free; in a file, after this
    /// device's map records that.
    pub(crate) fn release(&mut self, start: u64, end: u64, block: Block) {
        let mut inner = self.pool.inner();
        if self.is_joint {
            inner.held[self.index].remove(start, end);
        }
        let Some((place, len)) = slots_of(block, end - start) else { return };
        match &mut self.map {
            Some((_, released)) => released.push(place, len),
            None => inner.give_up(place, len),
        }
    }

    /// Bytes of the device's map in a file.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.map.as_ref().map_or(0, |(log, _)| log.len_bytes())
    }

    /// Generation of the device's map in a file.
    pub(crate) fn generation(&self) -> u64 {
        self.map.as_ref().map_or(0, |(log, _)| log.generation())
    }

    /// Whether the freed space is large enough to write its record before the next flush.
    pub(crate) fn wants_record(&self) -> bool {
        self.map.as_ref().is_some_and(|(_, released)| released.are_many())
    }

    /// Makes the changes of `map` durable, in a file; slots released before can be reused.
    pub(crate) fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        let Some((log, released)) = &mut self.map else {
            changed.clear();
            return Ok(());
        };
        let mut inner = self.pool.inner();
        let Medium::File(file) = &mut inner.medium else { return Ok(()) };
        let end_before = file.places.end();
        file.before_record()?;
        append_changes(log, map, changed, file.power_cut)?;
        file.commit(self.index, log.commit())?;
        released.take().for_each(|(place, len)| inner.give_up(place, len));
        match &mut inner.medium {
            Medium::File(file) => file.shrink(end_before),
            Medium::Memory { .. } => Ok(()),
        }
    }
}

/// Most space of a file occupied by freed places that wait for the next record.
const RELEASED_MAX_BYTES: u64 = 32 << 20;

/// Places that were given back since the last record of a map, and are free after the next.
#[derive(Debug, Default)]
pub(crate) struct Released {
    places: Vec<(u64, u64)>,
    slots: u64,
}

impl Released {
    pub(crate) fn push(&mut self, start: u64, len: u64) {
        self.places.push((start, len));
        self.slots += len;
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.slots = 0;
        self.places.drain(..)
    }

    /// Whether they occupy so much space that their record should be written before the next flush.
    pub(crate) fn are_many(&self) -> bool {
        self.slots * SLOT_BYTES > RELEASED_MAX_BYTES
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<(u64, u64)>()) as u64
    }
}

/// Appends changes to a map's log.
fn append_changes(
    log: &mut MapLog,
    map: &RunMap<Block>,
    changed: &mut RunMap<()>,
    power_cut: bool,
) -> Result<(), StoreError> {
    if !changed.is_empty() {
        log.append(changed.all().flat_map(|(start, end, ())| entries(map, start, end)))?;
        if log.wants_rewrite(map) {
            log.rewrite(map, power_cut)?;
        }
        changed.clear();
    }
    if power_cut { log.sync() } else { Ok(()) }
}

/// The map's entries in a range of blocks, holes included.
fn entries(map: &RunMap<Block>, start: u64, end: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut at = start;
    for (from, to, block) in map.pieces(start, end) {
        if at < from {
            entries.push(Entry { start: at, end: from, block: None });
        }
        entries.push(Entry { start: from, end: to, block: Some(block) });
        at = to;
    }
    if at < end {
        entries.push(Entry { start: at, end, block: None });
    }
    entries
}
