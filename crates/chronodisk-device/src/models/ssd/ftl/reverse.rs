//! The unit of each slot: the inverse of the map, in fewer bits than a unit's number where memory is limited.
//!
//! A slot stores the low bits of its unit's number, and the map gives the rest: of the units with these low bits, the
//! slot holds the one mapped to it, if any. So a table of few bits is exact. Its cost is a lookup of several units'
//! slots when a superblock is collected. With all bits it is one lookup.
//!
//! Stale slots and slots never written need no marker: no unit maps to them.

use super::{FtlParameters, Unit};
use crate::flat_table::{FlatTable, TableMemory};
use crate::models::ssd::geometry::Slot;

/// Bits of the maps per unit: 8.25 bytes, four of them for the map from units to slots.
const BITS_PER_UNIT: u64 = 66;
const MAP_BITS_PER_UNIT: u64 = 32;

/// The table never leaves more than 2 to the power of this many units to look at for a slot.
const BITS_LEFT_OUT_MOST: u32 = 6;

const WORD_BITS: u64 = u32::BITS as u64;

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Reverse {
    words: FlatTable,
    entry: Entry,
    units: u32,
}

/// Layout of the entries in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    bits: u32,
}

impl Entry {
    /// Bits for all units' numbers, or fewer if the flash has so many slots that the maps would take more than
    /// [`BITS_PER_UNIT`].
    fn of(parameters: &FtlParameters) -> Self {
        Entry::for_sizes(parameters.addressed_units(), parameters.geometry.slots())
    }

    fn for_sizes(units: u32, slots: u32) -> Self {
        let needed = u32::BITS - (units - 1).max(1).leading_zeros();
        let room = (BITS_PER_UNIT - MAP_BITS_PER_UNIT) * u64::from(units) / u64::from(slots);
        let least = needed.saturating_sub(BITS_LEFT_OUT_MOST).max(1);
        Entry { bits: (room as u32).clamp(least, needed) }
    }

    fn words(self, slots: u32) -> u64 {
        (u64::from(slots) * u64::from(self.bits)).div_ceil(WORD_BITS)
    }

    /// The word in which a slot's bits begin, and the number of other bits before them.
    #[inline]
    fn place(self, slot: Slot) -> (u32, u32) {
        let first = u64::from(slot) * u64::from(self.bits);
        ((first / WORD_BITS) as u32, (first % WORD_BITS) as u32)
    }

    #[inline]
    fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Two words with a unit's low bits inserted. The second counts only if the bits reach into it.
    #[inline]
    fn with(self, words: [u32; 2], shift: u32, unit: Unit) -> [u32; 2] {
        let both = u64::from(words[0]) | u64::from(words[1]) << WORD_BITS;
        let both = both & !(self.mask() << shift) | (u64::from(unit) & self.mask()) << shift;
        [both as u32, (both >> WORD_BITS) as u32]
    }

    #[inline]
    fn reaches_into_second(self, shift: u32) -> bool {
        shift + self.bits > u32::BITS
    }

    /// Notes that a unit was put into a slot.
    #[inline]
    pub(super) fn put(self, words: &mut [[u8; 4]], slot: Slot, unit: Unit) {
        let (word, shift) = self.place(slot);
        let word = word as usize;
        if self.reaches_into_second(shift) {
            let before = [u32::from_le_bytes(words[word]), u32::from_le_bytes(words[word + 1])];
            let after = self.with(before, shift, unit);
            (words[word], words[word + 1]) = (after[0].to_le_bytes(), after[1].to_le_bytes());
        } else {
            words[word] = self.with([u32::from_le_bytes(words[word]), 0], shift, unit)[0].to_le_bytes();
        }
    }
}

impl Reverse {
    /// A table without units in slots: no unit maps to any slot.
    pub(super) fn new(parameters: &FtlParameters) -> Self {
        let words = FlatTable::new(Reverse::bytes(parameters) / 4);
        Reverse { words, entry: Entry::of(parameters), units: parameters.addressed_units() }
    }

    /// Like [`new`](Self::new), for a table that is about to be filled.
    pub(super) fn new_in_large_pages(parameters: &FtlParameters) -> Self {
        let entry = Entry::of(parameters);
        let words = FlatTable::new_in_large_pages(entry.words(parameters.geometry.slots()));
        Reverse { words, entry, units: parameters.addressed_units() }
    }

    /// The table in a given memory of [`bytes`](Self::bytes).
    pub(super) fn in_memory(memory: Box<dyn TableMemory>, parameters: &FtlParameters) -> Self {
        let entry = Entry::of(parameters);
        Reverse { words: FlatTable::in_memory(memory), entry, units: parameters.addressed_units() }
    }

    /// Bytes of the table; zero with zones, whose slots' units follow from their places.
    pub(super) fn bytes(parameters: &FtlParameters) -> u64 {
        match parameters.zones() {
            None => Entry::of(parameters).words(parameters.geometry.slots()) * 4,
            Some(_) => 0,
        }
    }

    /// The table's words, as saved.
    pub(super) fn words(&self) -> &FlatTable {
        &self.words
    }

    /// The whole table for changes of many entries; `None` if it is shared.
    pub(super) fn own(&mut self) -> Option<(Entry, &mut [[u8; 4]])> {
        Some((self.entry, self.words.own()?))
    }

    /// Whether no two units have the same bits.
    pub(super) fn is_whole(&self) -> bool {
        u64::from(self.units - 1) <= self.entry.mask()
    }

    /// Notes that a unit was put into a slot.
    #[inline]
    pub(super) fn set(&mut self, slot: Slot, unit: Unit) {
        let entry = self.entry;
        if let Some(words) = self.words.own() {
            entry.put(words, slot, unit);
            return;
        }
        let (word, shift) = entry.place(slot);
        let two = entry.reaches_into_second(shift);
        let second = if two { self.words.get(word + 1) } else { 0 };
        let after = entry.with([self.words.get(word), second], shift, unit);
        self.words.set(word, after[0]);
        if two {
            self.words.set(word + 1, after[1]);
        }
    }

    /// The low bits that a slot keeps.
    #[inline]
    fn bits_at(&self, slot: Slot) -> u32 {
        let (word, shift) = self.entry.place(slot);
        let mut both = u64::from(self.words.get(word));
        if self.entry.reaches_into_second(shift) {
            both |= u64::from(self.words.get(word + 1)) << WORD_BITS;
        }
        (both >> shift & self.entry.mask()) as u32
    }

    /// Whether a slot keeps this unit's bits.
    #[inline]
    pub(super) fn may_hold(&self, slot: Slot, unit: Unit) -> bool {
        u64::from(unit) & self.entry.mask() == u64::from(self.bits_at(slot))
    }

    /// The unit mapped to a slot; `None` if there is none.
    #[inline]
    pub(super) fn look(&self, map: &FlatTable, slot: Slot) -> (Unit, bool) {
        let last = self.units - 1;
        let first = self.bits_at(slot);
        if self.is_whole() {
            let unit = first.min(last);
            return (unit, map.get(unit) == slot + 1);
        }
        let alike = (u64::from(first)..self.units.into()).step_by(1 << self.entry.bits);
        let found = alike.map(|unit| unit as Unit).find(|&unit| map.get(unit) == slot + 1);
        (found.unwrap_or(last), found.is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::VictimPolicy;
    use super::super::tests::parameters;
    use super::*;
    use crate::contract::cases;

    #[test]
    fn bits_are_those_of_the_numbers_unless_the_spare_is_large() {
        // One and four terabytes of 4 KiB units, with this number of slots per unit.
        let bits = |units: u32, slots: f64| Entry::for_sizes(units, (f64::from(units) * slots) as u32).bits;
        assert_eq!([1.07, 1.12, 1.28, 1.39].map(|slots| bits(244_140_625, slots)), [28, 28, 26, 24]);
        assert_eq!([1.07, 1.12, 1.28, 1.39].map(|slots| bits(976_562_500, slots)), [30, 30, 26, 24]);
        // The least possible: a drive with hardly any data.
        assert_eq!((bits(1_000_000, 100.0), bits(1, 50.0)), (14, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(32)))]

        #[test]
        fn a_slot_holds_the_unit_that_is_mapped_to_it(
            part in 1u32..20,
            puts in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 1..200),
        ) {
            let mut parameters = parameters(VictimPolicy::Greedy);
            parameters.logical_units /= part;
            let (units, slots) = (parameters.addressed_units(), parameters.geometry.slots());
            let mut map = FlatTable::new(u64::from(units));
            let mut reverse = Reverse::new(&parameters);
            let mut held = vec![None; slots as usize];
            let mut shared = Vec::new();
            for (slot, unit, share) in puts {
                let (slot, unit) = (slot % slots, unit % units);
                if held[slot as usize].is_some() {
                    continue;
                }
                if let Some(before) = map.get(unit).checked_sub(1) {
                    held[before as usize] = None;
                }
                map.set(unit, slot + 1);
                reverse.set(slot, unit);
                held[slot as usize] = Some(unit);
                // A clone takes the other way to the words.
                if share {
                    shared.push(reverse.clone());
                } else {
                    shared.clear();
                }
            }
            for slot in 0..slots {
                let (unit, valid) = reverse.look(&map, slot);
                prop_assert_eq!(valid.then_some(unit), held[slot as usize]);
                prop_assert!(held[slot as usize].is_none_or(|unit| reverse.may_hold(slot, unit)));
            }
        }
    }
}
