//! A common backing of several devices' stores, with equal blocks at equal addresses stored once.
//!
//! Mirrors write the same bytes to the same address of each member. Before a store keeps a block, it is compared, byte
//! by byte, with the other members' blocks at that address. So pairs of devices need not be named, and a differing
//! member gets its own copy.
//!
//! In a file each device has a map of its own. A place that a device has freed stays in use until its map records that.
//! A place shared with another device is neither overwritten nor reused before, so after a kill each map finds its
//! bytes.

use chronodisk_store::StoreError;

use super::backing::{Backing, Pool};
use super::block::{Block, slots_of};
use super::runs::RunMap;
use super::sharing::Others;
use super::{SLOT_BYTES, UNIT_BYTES};

/// Memory shared by the stores of several devices, with one limit in bytes. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct JointMemory(Pool);

impl JointMemory {
    /// Memory of at most `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        JointMemory(Pool::memory(budget_bytes))
    }

    /// The backing of a further device.
    pub(crate) fn member(&self) -> Backing {
        self.0.backing(true, RunMap::default(), None)
    }
}

impl Backing {
    /// Whether another device shares a place.
    pub(crate) fn is_shared(&self, place: u64) -> bool {
        self.inner().others.at(place, place + 1).0.is_some()
    }

    /// The block of any device at an address, this one included, if it has these bytes. This device shares it from then
    /// on.
    pub(crate) fn join(&self, unit: u64, bytes: &[u8]) -> Result<Option<Block>, StoreError> {
        if !self.is_joint() {
            return Ok(None);
        }
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
            if len_bytes != bytes.len() as u64 || !inner.medium.hold(place, bytes)? {
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

    /// Records this device's block at an address.
    pub(crate) fn note(&self, unit: u64, block: Block) {
        if self.is_joint() {
            self.inner().held[self.index].set(unit, unit + 1, block);
        }
    }

    /// Bytes of a device's blocks that are shared with other devices, and the part of them that is charged to the
    /// others when each device is charged an equal share.
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
    use crate::UNIT_SLOTS;
    use crate::class::Class;

    fn keep(member: &Backing, unit: u64, bytes: &[u8]) -> Block {
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
