//! Where kept blocks lie: compactly in memory, or in a file.

use std::path::Path;
use std::sync::Arc;

use chronodisk_store::StoreError;
use chronodisk_store::host::Host;

use super::arena::Arena;
use super::block::Block;
use super::header::Header;
use super::joint::Member;
use super::map_log::{Entry, MapLog};
use super::runs::RunMap;
use super::slot_file::{SlotFile, map_path, used_places};
use super::{SLOT_BYTES, UNIT_BYTES, UNIT_SLOTS, slots_of};

/// Keeps bytes at places, counted in slots.
#[derive(Debug)]
pub(crate) enum Backing {
    Memory {
        arena: Arena,
        budget_bytes: u64,
    },
    /// Where other devices' blocks are, too, in memory or in a file.
    Joint(Member),
    File(Box<ImageFile>),
}

impl Backing {
    pub(crate) fn memory(budget_bytes: u64) -> Self {
        Backing::Memory { arena: Arena::new(budget_bytes), budget_bytes }
    }

    /// Takes up to `len` slots in one range, a multiple of `unit`.
    pub(crate) fn take(&mut self, len: u64, unit: u64) -> Option<(u64, u64)> {
        match self {
            Backing::Memory { arena, .. } => arena.take(len, unit),
            Backing::Joint(joint) => joint.take(len, unit),
            Backing::File(image) => image.file.places.take(len, unit),
        }
    }

    /// Gives slots back; in a file they are free once the record that says so is safe.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        match self {
            Backing::Memory { arena, .. } => arena.give(start, len),
            Backing::Joint(joint) => joint.give(start, len),
            Backing::File(image) => image.released.push(start, len),
        }
    }

    /// A device's blocks between two are no longer these.
    pub(crate) fn release(&mut self, start: u64, end: u64, block: Block) {
        let Some((place, len)) = slots_of(block, end - start) else { return };
        match self {
            Backing::Joint(joint) => joint.release(start, end, block),
            Backing::Memory { .. } | Backing::File(_) => self.give(place, len),
        }
    }

    /// The place where other devices' blocks are, too, if it is such.
    pub(crate) fn joint(&self) -> Option<&Member> {
        match self {
            Backing::Joint(joint) => Some(joint),
            Backing::Memory { .. } | Backing::File(_) => None,
        }
    }

    /// Whether a block that is kept is overwritten where it is. In a file it is not: the map that a kill leaves behind
    /// names places whose bytes must be the ones that were committed.
    pub(crate) fn overwrites(&self) -> bool {
        match self {
            Backing::Memory { .. } => true,
            Backing::Joint(joint) => joint.overwrites(),
            Backing::File(_) => false,
        }
    }

    /// Fills `bytes` with blocks from `unit` on, of which the first is at `place`, without its first `skip_bytes`.
    pub(crate) fn read(&mut self, unit: u64, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.read(place, skip_bytes, bytes);
                Ok(())
            }
            Backing::Joint(joint) => joint.read(unit, place, skip_bytes, bytes),
            Backing::File(image) => image.file.read_units(unit, place, skip_bytes, bytes),
        }
    }

    /// Fills `stored` with a compressed block.
    pub(crate) fn read_packed(&mut self, unit: u64, place: u64, stored: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.read(place, 0, stored);
                Ok(())
            }
            Backing::Joint(joint) => joint.read_packed(unit, place, stored),
            Backing::File(image) => image.file.read_packed(unit, place, stored),
        }
    }

    /// Writes blocks from `unit` on, or one compressed block.
    pub(crate) fn write(&mut self, unit: u64, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.write(place, bytes);
                Ok(())
            }
            Backing::Joint(joint) => joint.write(unit, place, bytes),
            Backing::File(image) => image.file.write(unit, place, bytes),
        }
    }

    /// Whether so many blocks find room that need one range of slots each, whatever lies around it.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        match self {
            Backing::Memory { arena, .. } => arena.places().has_room(units, UNIT_SLOTS),
            Backing::Joint(joint) => joint.has_room(units),
            Backing::File(image) => image.file.places.has_room(units, UNIT_SLOTS),
        }
    }

    /// Slots behind all that are used.
    pub(crate) fn growth(&self) -> u64 {
        match self {
            Backing::Memory { arena, .. } => arena.places().growth(),
            Backing::Joint(joint) => joint.growth(),
            Backing::File(image) => image.file.places.growth(),
        }
    }

    /// Slots in use, by all devices that share them.
    pub(crate) fn used(&self) -> u64 {
        match self {
            Backing::Memory { arena, .. } => arena.places().used(),
            Backing::Joint(joint) => joint.used(),
            Backing::File(image) => image.file.places.used() - image.released.slots,
        }
    }

    /// Memory in bytes: that of kept blocks, and that of the tables of places.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        match self {
            Backing::Memory { arena, .. } => (arena.memory_bytes(), arena.places().memory_bytes()),
            Backing::Joint(joint) => joint.memory_bytes(),
            Backing::File(image) => (0, image.file.memory_bytes() + image.released.memory_bytes()),
        }
    }

    pub(crate) fn budget_bytes(&self) -> Option<u64> {
        match self {
            Backing::Memory { budget_bytes, .. } => Some(*budget_bytes),
            Backing::Joint(joint) => joint.budget_bytes(),
            Backing::File(_) => None,
        }
    }

    /// Bytes that the backing takes from the host besides what is used: the map's log.
    pub(crate) fn log_bytes(&self) -> u64 {
        match self {
            Backing::Memory { .. } => 0,
            Backing::Joint(joint) => joint.log_bytes(),
            Backing::File(image) => image.log_bytes(),
        }
    }

    /// Whether so much was given back that the record of it should not wait for a flush.
    pub(crate) fn wants_record(&self) -> bool {
        match self {
            Backing::Memory { .. } => false,
            Backing::Joint(joint) => joint.wants_record(),
            Backing::File(image) => image.released.are_many(),
        }
    }

    /// Whether the bytes outlive this process.
    pub(crate) fn is_file(&self) -> bool {
        match self {
            Backing::Memory { .. } => false,
            Backing::Joint(joint) => joint.is_file(),
            Backing::File(_) => true,
        }
    }

    /// Nothing is on its way: gives the host back everything that is not used.
    pub(crate) fn punch(&mut self) -> Result<(), StoreError> {
        match self {
            Backing::Memory { .. } => Ok(()),
            Backing::Joint(joint) => joint.punch(),
            Backing::File(image) => image.file.punch(),
        }
    }

    /// What changed in `map` is safe, in a file; places given back before can be taken again.
    pub(crate) fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        match self {
            Backing::Memory { .. } => {
                changed.clear();
                Ok(())
            }
            Backing::Joint(joint) => joint.record(map, changed),
            Backing::File(image) => image.record(map, changed),
        }
    }
}

/// Freed places that wait for the next record take at most so much of a file.
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

    /// Whether they take so much that their record should not wait for a flush.
    pub(crate) fn are_many(&self) -> bool {
        self.slots * SLOT_BYTES > RELEASED_MAX_BYTES
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<(u64, u64)>()) as u64
    }
}

/// What changed is in the log of a map.
pub(crate) fn append_changes(
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

/// The files of an image of one device: kept blocks, and the log of the map.
#[derive(Debug)]
pub(crate) struct ImageFile {
    file: SlotFile,
    log: MapLog,
    released: Released,
}

impl ImageFile {
    /// Makes an image that must not exist.
    pub(crate) fn create(
        host: &Arc<dyn Host>,
        path: &Path,
        header: &mut Header,
        power_cut: bool,
    ) -> Result<Self, StoreError> {
        let mut file = SlotFile::create(host, path, header, power_cut)?;
        let mut log = MapLog::create(host, &map_path(path, 1, 0), header.identity)?;
        if power_cut {
            log.sync()?;
        }
        file.write_header(header)?;
        Ok(ImageFile { file, log, released: Released::default() })
    }

    /// Reads the map of an image that was opened.
    pub(crate) fn open(
        mut file: SlotFile,
        header: &Header,
        capacity_bytes: u64,
        writable: bool,
    ) -> Result<(Self, RunMap<Block>), StoreError> {
        let map_path = map_path(file.path(), 1, 0);
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        let committed = file.commit_of(0);
        let (log, map) =
            MapLog::open(file.host(), &map_path, writable, file.power_cut, header.identity, units, committed)?;
        file.use_places(used_places(&map))?;
        Ok((ImageFile { file, log, released: Released::default() }, map))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.log.generation()
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.len_bytes()
    }

    /// Bytes on the host.
    pub(crate) fn host_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.file.host_bytes()? + self.log.host_bytes()?)
    }

    /// Blocks first, then the record that names their places, then the commit, then the places are free that the
    /// record frees.
    fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        self.file.before_record()?;
        append_changes(&mut self.log, map, changed, self.file.power_cut)?;
        self.file.commit(0, self.log.commit())?;
        let end_before = self.file.places.end();
        for (start, len) in self.released.take() {
            self.file.give(start, len);
        }
        self.file.shrink(end_before)
    }
}

/// What the map says between two blocks, holes included.
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
