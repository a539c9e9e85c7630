//! Memory in which the stores of several devices keep their blocks, equal ones at equal addresses once.
//!
//! Mirrors write the same bytes to the same address of each member. Before a store keeps a block, it is compared, byte
//! by byte, with what the others have at that address; so no pair of devices need be named, and a member that differs
//! has its own copy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arena::Arena;
use super::blocks::{Block, slots_of};
use super::runs::{RunMap, RunValue};
use super::{SLOT_BYTES, UNIT_BYTES, UNIT_SLOTS};

/// Memory for the stores of several devices, at most so many bytes for all of them; clones are the same memory.
#[derive(Clone, Debug)]
pub struct JointMemory {
    inner: Arc<Mutex<Inner>>,
    budget_bytes: u64,
}

#[derive(Debug)]
struct Inner {
    arena: Arena,
    /// How many devices beyond the first have what is at a place, if any, by its first slot.
    others: BTreeMap<u64, u32>,
    /// What each device has, without zeros and what is made up.
    held: Vec<RunMap<Block>>,
}

/// One device's part of it.
#[derive(Debug)]
pub(crate) struct Member {
    memory: JointMemory,
    index: usize,
}

impl JointMemory {
    /// At most `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        let inner = Inner { arena: Arena::new(budget_bytes), others: BTreeMap::new(), held: Vec::new() };
        JointMemory { inner: Arc::new(Mutex::new(inner)), budget_bytes }
    }

    /// One more device.
    pub(crate) fn member(&self) -> Member {
        let mut inner = self.inner();
        inner.held.push(RunMap::default());
        Member { memory: self.clone(), index: inner.held.len() - 1 }
    }

    /// A store that panicked left every count as it was, because each operation changes them at its end.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.memory.budget_bytes
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.memory.inner()
    }

    pub(crate) fn take(&self, len: u64, unit: u64) -> Option<(u64, u64)> {
        self.inner().arena.take(len, unit)
    }

    /// Gives places back that never were any block's.
    pub(crate) fn give(&self, start: u64, len: u64) {
        self.inner().arena.give(start, len);
    }

    pub(crate) fn read(&self, place: u64, skip_bytes: u64, bytes: &mut [u8]) {
        self.inner().arena.read(place, skip_bytes, bytes);
    }

    pub(crate) fn write(&self, place: u64, bytes: &[u8]) {
        self.inner().arena.write(place, bytes);
    }

    /// Slots in use, and bytes of memory for all and for their tables.
    pub(crate) fn sizes(&self) -> (u64, u64, u64) {
        let inner = self.inner();
        let places = inner.arena.places();
        let entry_bytes = size_of::<(u64, u32)>() * 3 / 2;
        let held: u64 = inner.held.iter().map(RunMap::memory_bytes).sum();
        let tables = places.memory_bytes() + held + (inner.others.len() * entry_bytes) as u64;
        (places.used(), inner.arena.memory_bytes(), tables)
    }

    /// Whether so many blocks find room that need one range of slots each.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        self.inner().arena.places().has_room(units, UNIT_SLOTS)
    }

    /// Slots behind all that are used.
    pub(crate) fn growth(&self) -> u64 {
        self.inner().arena.places().growth()
    }

    /// Whether another device has what is at a place, too.
    pub(crate) fn is_shared(&self, place: u64) -> bool {
        self.inner().others.contains_key(&place)
    }

    /// The block that some device, this one among them, has at an address, if these are its bytes. This device has it
    /// from then on.
    pub(crate) fn join(&self, unit: u64, bytes: &[u8]) -> Option<Block> {
        let mut inner = self.inner();
        let there = |held: &RunMap<Block>| held.at(unit, unit + 1).0;
        let own = there(&inner.held[self.index]);
        let is_same = |&block: &Block| {
            let len_bytes = match block {
                Block::Kept { .. } => UNIT_BYTES,
                Block::Packed { stored_bytes, .. } => u64::from(stored_bytes),
                Block::Zeroed | Block::Generated => return false,
            };
            let place = slots_of(block, 1).map(|slots| slots.0);
            len_bytes == bytes.len() as u64 && place.is_some_and(|place| inner.arena.holds(place, bytes))
        };
        let block = own.filter(is_same).or_else(|| inner.held.iter().filter_map(there).find(is_same))?;
        let (place, _) = slots_of(block, 1)?;
        if own.and_then(|own| slots_of(own, 1)).is_none_or(|(own, _)| own != place) {
            *inner.others.entry(place).or_insert(0) += 1;
        }
        Some(block)
    }

    /// This device has this at an address from now on.
    pub(crate) fn note(&self, unit: u64, block: Block) {
        self.inner().held[self.index].set(unit, unit + 1, block);
    }

    /// This device no longer has what it had between two addresses; what no other one has is free.
    pub(crate) fn release(&self, start: u64, end: u64, block: Block) {
        let mut inner = self.inner();
        inner.held[self.index].remove(start, end);
        for unit in start..end {
            let Some((place, len)) = slots_of(block.advanced(unit - start), 1) else { return };
            if let Some(others) = inner.others.get_mut(&place) {
                *others -= 1;
                if *others == 0 {
                    inner.others.remove(&place);
                }
                continue;
            }
            inner.arena.give(place, len);
        }
    }

    /// Of the bytes that a device's blocks take, how many others have, too, and how many of these are not its part, if
    /// each of them has an equal one.
    pub(crate) fn shared_bytes(&self, map: &RunMap<Block>) -> (u64, u64) {
        let inner = self.inner();
        let (mut shared, mut of_others) = (0, 0);
        for (start, end, block) in map.all() {
            let Some((place, len)) = slots_of(block, end - start) else { continue };
            let slots = if matches!(block, Block::Kept { .. }) { UNIT_SLOTS } else { len };
            for (_, &others) in inner.others.range(place..place + len) {
                shared += slots * SLOT_BYTES;
                of_others += slots * SLOT_BYTES * u64::from(others) / (u64::from(others) + 1);
            }
        }
        (shared, of_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::squash::class::Class;

    fn keep(member: &Member, unit: u64, bytes: &[u8]) -> Block {
        let block = member.join(unit, bytes).unwrap_or_else(|| {
            let (place, _) = member.take(UNIT_SLOTS, UNIT_SLOTS).unwrap();
            member.write(place, bytes);
            Block::Kept { place, class: Class::Everything }
        });
        member.note(unit, block);
        block
    }

    #[test]
    fn equal_blocks_are_one_until_both_are_given_up() {
        let memory = JointMemory::new(1 << 20);
        let (first, second) = (memory.member(), memory.member());
        let bytes = [7; 4096];
        let block = keep(&first, 5, &bytes);
        assert_eq!(keep(&first, 5, &bytes), block);
        assert_eq!(keep(&second, 5, &bytes), block);
        assert!(keep(&second, 6, &bytes) != block, "at another address");
        let mut map = RunMap::default();
        map.set(5, 6, block);
        assert_eq!(first.shared_bytes(&map), (4096, 2048));
        assert_eq!(first.sizes().0, 16);
        first.release(5, 6, block);
        assert_eq!((first.sizes().0, second.shared_bytes(&map)), (16, (0, 0)));
        second.release(5, 6, block);
        assert_eq!(first.sizes().0, 8);
        assert_eq!(first.join(5, &bytes), None, "nobody has it");
    }
}
