//! The mapping table in flash, with a cache of its entries in memory (DFTL: Gupta, Kim, Urgaonkar, ASPLOS 2009).
//!
//! The cache has single entries with LRU eviction. An evicted dirty entry is written back: its translation unit is
//! read, updated with all dirty entries of the cache, and written. Moves of the collector change cached entries; for
//! the others the table in flash is assumed to be updated at once, as in MQSim.

use super::{Ftl, FtlParameters, Mapping, Unit};
use crate::flat_table::FlatTable;
use crate::footprint;

use super::super::geometry::Slot;

/// Flash accesses needed to look up a unit's slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappingAccess {
    /// First step, to make room in the cache: the translation unit to be written, by an append to
    /// [`Stream::Mapping`](super::Stream::Mapping).
    pub(crate) write_back: Option<TranslationUnit>,
    /// Second step: the translation unit to be read; `None` if the entry is in memory.
    pub(crate) read: Option<TranslationUnit>,
}

/// A part of the mapping table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TranslationUnit {
    /// Address of the translation unit.
    pub(crate) unit: Unit,
    /// Slot from which it is read; `None` if it was never written, and need not be read.
    pub(crate) slot: Option<Slot>,
}

/// The entries in memory.
#[derive(Clone, Debug)]
pub(super) struct MappingCache {
    capacity: u32,
    len: u32,
    entries_per_unit: u32,
    first_translation_unit: Unit,
    /// Words by entry, see [`Word`].
    entries: FlatTable,
    /// First entry of each chain of equal hashes, plus one.
    chains: FlatTable,
    /// First changed entry of each translation unit, plus one.
    changed: FlatTable,
    newest: Link,
    oldest: Link,
}

/// Number of an entry plus one; zero for none.
type Link = u32;

#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Word {
    Unit,
    Newer,
    Older,
    /// Following entry of the chain.
    Chain,
    /// Whether it was changed.
    Changed,
    /// Another changed entry of the same translation unit.
    NextChanged,
}

const ENTRY_WORDS: u32 = 8;

impl Ftl {
    /// Looks up the mapping of a host's unit, and maybe changes it. Returns the necessary flash accesses. The entry is
    /// in memory afterwards.
    pub(crate) fn access_mapping(&mut self, unit: Unit, change: bool) -> MappingAccess {
        let Some(cache) = &mut self.cache else {
            return MappingAccess::default();
        };
        let entry = cache.find(unit);
        if entry != 0 {
            cache.unlink_by_use(entry);
            cache.link_as_newest(entry);
            if change {
                cache.mark_changed(entry);
            }
            return MappingAccess::default();
        }
        let write_back = cache.insert(unit, change);
        let read = cache.first_translation_unit + unit / cache.entries_per_unit;
        let part = |unit| TranslationUnit { unit, slot: self.lookup(unit) };
        MappingAccess { write_back: write_back.map(part), read: Some(part(read)) }
    }
}

impl Ftl {
    /// All translation units changed in memory, to be written. Afterwards all are clean.
    pub(crate) fn changed_mapping(&mut self) -> Vec<Unit> {
        self.cache.as_mut().map_or_else(Vec::new, MappingCache::clean)
    }
}

impl MappingCache {
    pub(super) fn new(parameters: &FtlParameters) -> Option<Self> {
        let Mapping::DemandCached { entries } = parameters.mapping else {
            return None;
        };
        let capacity = entries.min(parameters.logical_units);
        Some(MappingCache {
            capacity,
            len: 0,
            entries_per_unit: parameters.entries_per_unit(),
            first_translation_unit: parameters.logical_units,
            entries: FlatTable::new(u64::from(capacity) * u64::from(ENTRY_WORDS)),
            chains: FlatTable::new(u64::from(capacity.next_power_of_two())),
            changed: FlatTable::new(u64::from(parameters.translation_units())),
            newest: 0,
            oldest: 0,
        })
    }

    /// Most memory for the cached part of the mapping; zero if all of it is in memory.
    pub(super) fn bytes_max(parameters: &FtlParameters) -> u64 {
        let Mapping::DemandCached { entries } = parameters.mapping else { return 0 };
        let capacity = u64::from(entries.min(parameters.logical_units));
        footprint::sum([
            FlatTable::bytes(capacity * u64::from(ENTRY_WORDS)),
            FlatTable::bytes(capacity.next_power_of_two()),
            FlatTable::bytes(parameters.translation_units().into()),
        ])
    }

    /// Notes that the controller itself changed a unit's mapping.
    pub(super) fn changed_if_cached(&mut self, unit: Unit) {
        let entry = if unit < self.first_translation_unit { self.find(unit) } else { 0 };
        if entry != 0 {
            self.mark_changed(entry);
        }
    }

    fn clean(&mut self) -> Vec<Unit> {
        let parts = (0..self.changed.len() as u32).filter(|&part| self.changed.get(part) != 0).collect::<Vec<_>>();
        parts.iter().for_each(|&part| self.clean_part(part));
        parts.iter().map(|part| self.first_translation_unit + part).collect()
    }

    fn clean_part(&mut self, part: u32) {
        let mut changed = self.changed.get(part);
        while changed != 0 {
            self.set(changed, Word::Changed, 0);
            changed = self.get(changed, Word::NextChanged);
        }
        self.changed.set(part, 0);
    }

    fn get(&self, entry: Link, word: Word) -> u32 {
        self.entries.get((entry - 1) * ENTRY_WORDS + word as u32)
    }

    fn set(&mut self, entry: Link, word: Word, value: u32) {
        self.entries.set((entry - 1) * ENTRY_WORDS + word as u32, value);
    }

    /// The chain of a unit: multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
    fn chain(&self, unit: Unit) -> u32 {
        let bits = self.chains.len().trailing_zeros();
        ((u64::from(unit.wrapping_mul(0x9e37_79b1)) << bits) >> 32) as u32
    }

    fn find(&self, unit: Unit) -> Link {
        let mut entry = self.chains.get(self.chain(unit));
        while entry != 0 && self.get(entry, Word::Unit) != unit {
            entry = self.get(entry, Word::Chain);
        }
        entry
    }

    /// Returns a place for another entry, evicting the least recently used one if all are in use, and the translation
    /// unit to write for that.
    fn take_place(&mut self) -> (Link, Option<Unit>) {
        if self.len < self.capacity {
            self.len += 1;
            return (self.len, None);
        }
        let entry = self.oldest;
        let part = self.get(entry, Word::Unit) / self.entries_per_unit;
        let write_back = self.get(entry, Word::Changed) != 0;
        if write_back {
            self.clean_part(part);
        }
        self.unlink_by_use(entry);
        self.unlink_from_chain(entry);
        (entry, write_back.then_some(self.first_translation_unit + part))
    }

    fn insert(&mut self, unit: Unit, change: bool) -> Option<Unit> {
        let (entry, write_back) = self.take_place();
        let chain = self.chain(unit);
        self.set(entry, Word::Unit, unit);
        self.set(entry, Word::Changed, 0);
        let following = self.chains.get(chain);
        self.set(entry, Word::Chain, following);
        self.chains.set(chain, entry);
        self.link_as_newest(entry);
        if change {
            self.mark_changed(entry);
        }
        write_back
    }

    fn mark_changed(&mut self, entry: Link) {
        if self.get(entry, Word::Changed) == 0 {
            let part = self.get(entry, Word::Unit) / self.entries_per_unit;
            let next = self.changed.get(part);
            self.set(entry, Word::Changed, 1);
            self.set(entry, Word::NextChanged, next);
            self.changed.set(part, entry);
        }
    }

    fn link_as_newest(&mut self, entry: Link) {
        let older = self.newest;
        self.set(entry, Word::Newer, 0);
        self.set(entry, Word::Older, older);
        match older {
            0 => self.oldest = entry,
            older => self.set(older, Word::Newer, entry),
        }
        self.newest = entry;
    }

    fn unlink_by_use(&mut self, entry: Link) {
        let (newer, older) = (self.get(entry, Word::Newer), self.get(entry, Word::Older));
        match newer {
            0 => self.newest = older,
            newer => self.set(newer, Word::Older, older),
        }
        match older {
            0 => self.oldest = newer,
            older => self.set(older, Word::Newer, newer),
        }
    }

    fn unlink_from_chain(&mut self, entry: Link) {
        let following = self.get(entry, Word::Chain);
        let chain = self.chain(self.get(entry, Word::Unit));
        let mut before = self.chains.get(chain);
        if before == entry {
            self.chains.set(chain, following);
            return;
        }
        while self.get(before, Word::Chain) != entry {
            before = self.get(before, Word::Chain);
        }
        self.set(before, Word::Chain, following);
    }
}
