//! Where the stores of several devices keep their blocks together, equal ones at equal addresses once.
//!
//! Mirrors write the same bytes to the same address of each member. Before a store keeps a block, it is compared, byte
//! by byte, with what the others have at that address; so no pair of devices need be named, and a member that differs
//! has its own copy.
//!
//! In a file each device has a map of its own. A place that a device no longer needs is its own still until its map
//! says so: what another device has there, too, is neither overwritten nor given away before, so each map that a kill
//! leaves behind finds its bytes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_store::StoreError;
use chronodisk_store::host::Host;

use super::arena::Arena;
use super::backing::{Released, append_changes};
use super::block::{Block, slots_of};
use super::header::Header;
use super::map_log::MapLog;
use super::places::Places;
use super::runs::{RunMap, RunValue};
use super::slot_file::{SlotFile, map_path};
use super::{SLOT_BYTES, UNIT_BYTES, UNIT_SLOTS, image_error};

/// Memory for the stores of several devices, at most so many bytes for all of them; clones are the same memory.
#[derive(Clone, Debug)]
pub struct JointMemory(Joint);

/// What the devices have in common.
#[derive(Clone, Debug)]
struct Joint(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    bytes: Bytes,
    /// How many devices beyond the first have what is at places, if any, by slots.
    others: RunMap<Others>,
    /// What each device has, without zeros and what is made up.
    held: Vec<RunMap<Block>>,
}

#[derive(Debug)]
enum Bytes {
    Memory { arena: Arena, budget_bytes: u64 },
    File(SlotFile),
}

/// So many devices beyond the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Others(u32);

impl RunValue for Others {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

/// One device's part of it.
#[derive(Debug)]
pub(crate) struct Member {
    joint: Joint,
    index: usize,
    /// In a file: the device's map, and what it gave back since that was written.
    map: Option<(MapLog, Released)>,
}

impl JointMemory {
    /// At most `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        let bytes = Bytes::Memory { arena: Arena::new(budget_bytes), budget_bytes };
        JointMemory(Joint::new(bytes, RunMap::default()))
    }

    /// One more device.
    pub(crate) fn member(&self) -> Member {
        self.0.member(RunMap::default(), None)
    }
}

/// Makes an image of several devices, which must not exist.
pub(crate) fn create(
    host: &Arc<dyn Host>,
    path: &Path,
    header: &mut Header,
    power_cut: bool,
) -> Result<Vec<Member>, StoreError> {
    let mut file = SlotFile::create(host, path, header, power_cut)?;
    let log = |index| {
        let mut log = MapLog::create(host, &map_path(path, header.capacities_bytes.len(), index), header.identity)?;
        if power_cut { log.sync().map(|()| log) } else { Ok(log) }
    };
    let logs: Vec<MapLog> = (0..header.capacities_bytes.len()).map(log).collect::<Result<_, StoreError>>()?;
    file.write_header(header)?;
    let joint = Joint::new(Bytes::File(file), RunMap::default());
    let member = |log| joint.member(RunMap::default(), Some((log, Released::default())));
    Ok(logs.into_iter().map(member).collect())
}

/// Reads the maps of an image of several devices that was opened.
pub(crate) fn open(
    path: &Path,
    mut file: SlotFile,
    header: &Header,
    writable: bool,
) -> Result<Vec<(Member, RunMap<Block>)>, StoreError> {
    let mut maps = Vec::new();
    for (index, capacity_bytes) in header.capacities_bytes.iter().enumerate() {
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        let committed = file.commit_of(index);
        maps.push(MapLog::open(
            file.host(),
            &map_path(path, header.capacities_bytes.len(), index),
            writable,
            file.power_cut,
            header.identity,
            units,
            committed,
        )?);
    }
    let (mut slots, mut others) = (RunMap::default(), RunMap::default());
    for (index, (_, map)) in maps.iter().enumerate() {
        file.check(map)?;
        claim(map, &mut slots, &mut others).map_err(|unit| {
            let reason = format!("a place of block {unit} of device {index} is another block's on another device");
            image_error(path, reason)
        })?;
    }
    file.use_places(slots.all().map(|(start, end, _)| (start, end - start)))?;
    let joint = Joint::new(Bytes::File(file), others);
    let member = |(log, map): (MapLog, RunMap<Block>)| {
        let mut held = RunMap::default();
        let stored = map.all().filter(|run| slots_of(run.2, 1).is_some());
        stored.for_each(|(start, end, block)| held.set(start, end, block));
        (joint.member(held, Some((log, Released::default()))), map)
    };
    Ok(maps.into_iter().map(member).collect())
}

/// What is at a slot: which eighth of which block, or which slot of which compressed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtSlot {
    Of(u64),
    OfPacked { unit: u64, stored_bytes: u16, slot: u64 },
}

impl RunValue for AtSlot {
    fn advanced(self, by: u64) -> Self {
        match self {
            AtSlot::Of(eighth) => AtSlot::Of(eighth.wrapping_add(by)),
            AtSlot::OfPacked { unit, stored_bytes, slot } => AtSlot::OfPacked { unit, stored_bytes, slot: slot + by },
        }
    }
}

/// One more device has what its map names. A block that has places of another block of an earlier device is the error.
fn claim(map: &RunMap<Block>, slots: &mut RunMap<AtSlot>, others: &mut RunMap<Others>) -> Result<(), u64> {
    for (start, end, block) in map.all() {
        let Some((place, len)) = slots_of(block, end - start) else { continue };
        let at_slot = match block {
            Block::Packed { stored_bytes, .. } => AtSlot::OfPacked { unit: start, stored_bytes, slot: 0 },
            _ => AtSlot::Of(start.wrapping_mul(UNIT_SLOTS)),
        };
        for (from, to, there) in slots.pieces(place, place + len) {
            // A block is another device's as a whole, or not at all.
            let whole = match block {
                Block::Packed { .. } => (from, to) == (place, place + len),
                _ => (from - place).is_multiple_of(UNIT_SLOTS) && (to - place).is_multiple_of(UNIT_SLOTS),
            };
            if there != at_slot.advanced(from - place) || !whole {
                return Err(start);
            }
            let counts: Vec<_> = others.pieces(from, to).collect();
            others.set(from, to, Others(1));
            counts.into_iter().for_each(|(from, to, Others(count))| others.set(from, to, Others(count + 1)));
        }
        slots.set(place, place + len, at_slot);
    }
    Ok(())
}

impl Joint {
    fn new(bytes: Bytes, others: RunMap<Others>) -> Self {
        Joint(Arc::new(Mutex::new(Inner { bytes, others, held: Vec::new() })))
    }

    fn member(&self, held: RunMap<Block>, map: Option<(MapLog, Released)>) -> Member {
        let mut inner = self.inner();
        inner.held.push(held);
        Member { joint: self.clone(), index: inner.held.len() - 1, map }
    }

    /// A store that panicked left every count as it was, because each operation changes them at its end.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bytes {
    fn places(&self) -> &Places {
        match self {
            Bytes::Memory { arena, .. } => arena.places(),
            Bytes::File(file) => &file.places,
        }
    }

    fn take(&mut self, len: u64, unit: u64) -> Option<(u64, u64)> {
        match self {
            Bytes::Memory { arena, .. } => arena.take(len, unit),
            Bytes::File(file) => file.places.take(len, unit),
        }
    }

    fn give(&mut self, start: u64, len: u64) {
        match self {
            Bytes::Memory { arena, .. } => arena.give(start, len),
            Bytes::File(file) => file.give(start, len),
        }
    }

    /// Whether a place begins with these bytes, of one block at most.
    fn hold(&self, place: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        match self {
            Bytes::Memory { arena, .. } => Ok(arena.holds(place, bytes)),
            Bytes::File(file) => file.holds(place, bytes),
        }
    }
}

impl Inner {
    /// One device less has these slots; what no other one has is free.
    fn give_up(&mut self, place: u64, len: u64) {
        let (mut at, end) = (place, place + len);
        for (from, to, Others(count)) in self.others.pieces(place, end).collect::<Vec<_>>() {
            if at < from {
                self.bytes.give(at, from - at);
            }
            match count {
                1 => self.others.remove(from, to),
                more => self.others.set(from, to, Others(more - 1)),
            }
            at = to;
        }
        if at < end {
            self.bytes.give(at, end - at);
        }
    }
}

impl Member {
    /// The most that memory may take; a file takes what it needs.
    pub(crate) fn budget_bytes(&self) -> Option<u64> {
        match self.inner().bytes {
            Bytes::Memory { budget_bytes, .. } => Some(budget_bytes),
            Bytes::File(_) => None,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.joint.inner()
    }

    pub(crate) fn take(&self, len: u64, unit: u64) -> Option<(u64, u64)> {
        self.inner().bytes.take(len, unit)
    }

    /// Gives places back that never were any block's.
    pub(crate) fn give(&self, start: u64, len: u64) {
        self.inner().bytes.give(start, len);
    }

    /// See [`super::backing::Backing::overwrites`].
    pub(crate) fn overwrites(&self) -> bool {
        !self.is_file()
    }

    pub(crate) fn is_file(&self) -> bool {
        self.map.is_some()
    }

    pub(crate) fn read(&self, unit: u64, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.inner().bytes {
            Bytes::Memory { arena, .. } => {
                arena.read(place, skip_bytes, bytes);
                Ok(())
            }
            Bytes::File(file) => file.read_units(unit, place, skip_bytes, bytes),
        }
    }

    pub(crate) fn read_packed(&self, unit: u64, place: u64, stored: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.inner().bytes {
            Bytes::Memory { arena, .. } => {
                arena.read(place, 0, stored);
                Ok(())
            }
            Bytes::File(file) => file.read_packed(unit, place, stored),
        }
    }

    pub(crate) fn write(&self, unit: u64, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match &mut self.inner().bytes {
            Bytes::Memory { arena, .. } => {
                arena.write(place, bytes);
                Ok(())
            }
            Bytes::File(file) => file.write(unit, place, bytes),
        }
    }

    /// Gives the host back everything that is not used.
    pub(crate) fn punch(&self) -> Result<(), StoreError> {
        match &mut self.inner().bytes {
            Bytes::Memory { .. } => Ok(()),
            Bytes::File(file) => file.punch(),
        }
    }

    /// Bytes on the host: of the blocks of all devices, and of this one's map.
    pub(crate) fn host_bytes(&self) -> Result<(u64, u64), StoreError> {
        let map_bytes = self.map.as_ref().map_or(Ok(0), |(log, _)| log.host_bytes())?;
        match &self.inner().bytes {
            Bytes::Memory { .. } => Ok((0, map_bytes)),
            Bytes::File(file) => Ok((file.host_bytes()?, map_bytes)),
        }
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u64 {
        self.inner().bytes.places().used()
    }

    /// Bytes of memory for all devices' blocks, and for their tables.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let inner = self.inner();
        let held: u64 = inner.held.iter().map(RunMap::memory_bytes).sum();
        let released = self.map.as_ref().map_or(0, |(_, released)| released.memory_bytes());
        let tables = inner.bytes.places().memory_bytes() + held + inner.others.memory_bytes() + released;
        match &inner.bytes {
            Bytes::Memory { arena, .. } => (arena.memory_bytes(), tables),
            Bytes::File(file) => (0, tables - file.places.memory_bytes() + file.memory_bytes()),
        }
    }

    /// Whether so many blocks find room that need one range of slots each.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        self.inner().bytes.places().has_room(units, UNIT_SLOTS)
    }

    /// Slots behind all that are used.
    pub(crate) fn growth(&self) -> u64 {
        self.inner().bytes.places().growth()
    }

    /// Whether another device has what is at a place, too.
    pub(crate) fn is_shared(&self, place: u64) -> bool {
        self.inner().others.at(place, place + 1).0.is_some()
    }

    /// The block that some device, this one among them, has at an address, if these are its bytes. This device has it
    /// from then on.
    pub(crate) fn join(&self, unit: u64, bytes: &[u8]) -> Result<Option<Block>, StoreError> {
        let mut inner = self.inner();
        let there = |held: &RunMap<Block>| held.at(unit, unit + 1).0;
        let own = there(&inner.held[self.index]);
        for block in own.into_iter().chain(inner.held.iter().filter_map(there)) {
            let len_bytes = match block {
                Block::Kept { .. } => UNIT_BYTES,
                Block::Packed { stored_bytes, .. } => u64::from(stored_bytes),
                Block::Zeroed | Block::Generated | Block::Damaged => continue,
            };
            let Some((place, len)) = slots_of(block, 1) else { continue };
            if len_bytes != bytes.len() as u64 || !inner.bytes.hold(place, bytes)? {
                continue;
            }
            if own.and_then(|own| slots_of(own, 1)).is_none_or(|(own, _)| own != place) {
                let count = inner.others.at(place, place + 1).0.map_or(0, |others| others.0);
                inner.others.set(place, place + len, Others(count + 1));
            }
            return Ok(Some(block));
        }
        Ok(None)
    }

    /// This device has this at an address from now on.
    pub(crate) fn note(&self, unit: u64, block: Block) {
        self.inner().held[self.index].set(unit, unit + 1, block);
    }

    /// This device no longer has what it had between two addresses; what no other one has is free, in a file once this
    /// device's map says so.
    pub(crate) fn release(&mut self, start: u64, end: u64, block: Block) {
        let mut inner = self.joint.inner();
        inner.held[self.index].remove(start, end);
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

    /// Whether so much was given back that the record of it should not wait for a flush.
    pub(crate) fn wants_record(&self) -> bool {
        self.map.as_ref().is_some_and(|(_, released)| released.are_many())
    }

    /// What changed in `map` is safe, in a file; what this device gave back before can be taken again.
    pub(crate) fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        let Some((log, released)) = &mut self.map else {
            changed.clear();
            return Ok(());
        };
        let mut inner = self.joint.inner();
        let Bytes::File(file) = &mut inner.bytes else { return Ok(()) };
        let end_before = file.places.end();
        file.before_record()?;
        append_changes(log, map, changed, file.power_cut)?;
        file.commit(self.index, log.commit())?;
        released.take().for_each(|(place, len)| inner.give_up(place, len));
        match &mut inner.bytes {
            Bytes::File(file) => file.shrink(end_before),
            Bytes::Memory { .. } => Ok(()),
        }
    }

    /// Of the bytes that a device's blocks take, how many others have, too, and how many of these are not its part, if
    /// each of them has an equal one.
    pub(crate) fn shared_bytes(&self, map: &RunMap<Block>) -> (u64, u64) {
        let inner = self.inner();
        let (mut shared, mut of_others) = (0, 0);
        for (start, end, block) in map.all() {
            let Some((place, len)) = slots_of(block, end - start) else { continue };
            for (from, to, Others(count)) in inner.others.pieces(place, place + len) {
                let (bytes, count) = ((to - from) * SLOT_BYTES, u64::from(count));
                shared += bytes;
                of_others += bytes * count / (count + 1);
            }
        }
        (shared, of_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    fn keep(member: &Member, unit: u64, bytes: &[u8]) -> Block {
        let block = member.join(unit, bytes).unwrap().unwrap_or_else(|| {
            let (place, _) = member.take(UNIT_SLOTS, UNIT_SLOTS).unwrap();
            member.write(unit, place, bytes).unwrap();
            Block::Kept { place, class: Class::Everything }
        });
        member.note(unit, block);
        block
    }

    #[test]
    fn equal_blocks_are_one_until_both_are_given_up() {
        let memory = JointMemory::new(1 << 20);
        let (mut first, mut second) = (memory.member(), memory.member());
        let bytes = [7; 4096];
        let block = keep(&first, 5, &bytes);
        assert_eq!(keep(&first, 5, &bytes), block);
        assert_eq!(keep(&second, 5, &bytes), block);
        assert!(keep(&second, 6, &bytes) != block, "at another address");
        let mut map = RunMap::default();
        map.set(5, 6, block);
        assert_eq!(first.shared_bytes(&map), (4096, 2048));
        assert_eq!(first.used(), 16);
        first.release(5, 6, block);
        assert_eq!((first.used(), second.shared_bytes(&map)), (16, (0, 0)));
        second.release(5, 6, block);
        assert_eq!(first.used(), 8);
        assert_eq!(first.join(5, &bytes).unwrap(), None, "nobody has it");
    }
}
