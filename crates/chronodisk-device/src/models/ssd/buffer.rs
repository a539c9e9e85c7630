//! The write buffer: written units that are not yet in flash.
//!
//! A unit occupies a place from the instant at which its data may cross the link until its program has ended. Units
//! waiting for a program form a FIFO. A unit overwritten there is merged; one with its program in progress gets a
//! second place.
//!
//! A place is freed when its program ends. In a ring it is freed once all earlier units' programs have ended too: one
//! slow program then holds finished places back, and their release admits a burst.

use std::ops::Range;

use super::ftl::Unit;
use super::pool::NONE;
use super::units::{UnitSectors, WHOLE_UNIT};
use crate::footprint;

/// The places.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    entries: Vec<Entry>,
    /// First entry of each chain of equal hashes.
    chains: Vec<u32>,
    chain_bits: u32,
    /// Entries that are not in use, linked.
    unused: u32,
    /// Places that no admitted data need.
    free: u32,
    /// List of the units that wait for a program.
    first_dirty: u32,
    last_dirty: u32,
    dirty: u32,
    /// Entries in use.
    held: u32,
    next_order: u64,
    ring: Option<Ring>,
}

/// Released places of a ring behind one that is still in use.
#[derive(Clone, Debug)]
struct Ring {
    /// A bit for each place, by the unit's order, from the first unreleased one to the next order.
    done: Vec<u64>,
    /// Places, a power of two and at least as many as the buffer has.
    places: u64,
    /// The first order whose unit is not released.
    first: u64,
}

impl Ring {
    fn new(units: u32) -> Self {
        let places = u64::from(units.next_power_of_two().max(u64::BITS));
        Ring { done: vec![0; (places / u64::from(u64::BITS)) as usize], places, first: 1 }
    }

    fn word(&mut self, order: u64) -> (&mut u64, u64) {
        let place = order % self.places;
        let bits = u64::from(u64::BITS);
        (&mut self.done[(place / bits) as usize], 1 << (place % bits))
    }

    /// Ends the use of a unit. Returns the number of places that become free.
    fn retire(&mut self, order: u64) -> u32 {
        let (word, bit) = self.word(order);
        *word |= bit;
        let mut freed = 0;
        loop {
            let first = self.first;
            let (word, bit) = self.word(first);
            if *word & bit == 0 {
                return freed;
            }
            *word &= !bit;
            self.first += 1;
            freed += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) unit: Unit,
    /// Following one of its line, its program or the unused.
    pub(super) next: u32,
    chain: u32,
    state: State,
    /// Number of the unit in order of arrival.
    pub(super) order: u64,
    /// The sectors written.
    sectors: UnitSectors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Dirty,
    /// In a superpage that is, or will be, programmed.
    Leaving,
    /// Trimmed while it waited.
    Dropped,
}

impl Buffer {
    pub(super) fn new(units: u32, in_order: bool) -> Self {
        let chain_bits = units.next_power_of_two().trailing_zeros();
        let entry = |number| {
            let next = if number + 1 < units { number + 1 } else { NONE };
            Entry { unit: 0, next, chain: NONE, state: State::Dropped, order: 0, sectors: 0 }
        };
        Buffer {
            entries: (0..units).map(entry).collect(),
            chains: vec![NONE; 1 << chain_bits],
            chain_bits,
            unused: 0,
            free: units,
            first_dirty: NONE,
            last_dirty: NONE,
            dirty: 0,
            held: 0,
            next_order: 1,
            ring: in_order.then(|| Ring::new(units)),
        }
    }

    /// Most memory of a buffer of this number of units.
    pub(super) fn bytes_max(units: u32) -> u64 {
        let chains = u64::from(units).saturating_mul(2);
        footprint::sum([
            footprint::array_bytes::<Entry>(units.into()),
            footprint::array_bytes::<u32>(chains),
            // The ring: a bit for each place.
            footprint::array_bytes::<u64>(chains / u64::from(u64::BITS) + 1),
        ])
    }

    /// Places for which data can still be admitted.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Units that wait for a program, trimmed ones included.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Units that wait for a program or its end.
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// A number after all entries so far.
    pub(super) fn order(&self) -> u64 {
        self.next_order
    }

    /// The order of the first that waits for a program.
    pub(super) fn first_order(&self) -> Option<u64> {
        (self.first_dirty != NONE).then(|| self.entries[self.first_dirty as usize].order)
    }

    /// The unit of the first that waits for a program.
    pub(super) fn first_unit(&self) -> Option<Unit> {
        (self.first_dirty != NONE).then(|| self.entries[self.first_dirty as usize].unit)
    }

    /// Keeps places for data that will come.
    pub(super) fn admit(&mut self, units: u32) {
        self.free -= units;
    }

    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    pub(super) fn set_next(&mut self, number: u32, next: u32) {
        self.entries[number as usize].next = next;
    }

    fn chain(&self, unit: Unit) -> usize {
        // Multiplicative hashing: Knuth, The Art of Computer Programming, volume 3, 6.4.
        (u64::from(unit.wrapping_mul(0x9e37_79b1)) << self.chain_bits >> 32) as usize
    }

    fn find(&self, unit: Unit) -> u32 {
        let mut number = self.chains[self.chain(unit)];
        while number != NONE && self.entries[number as usize].unit != unit {
            number = self.entries[number as usize].chain;
        }
        number
    }

    /// Whether the unit's data are in the buffer.
    pub(super) fn holds(&self, unit: Unit) -> bool {
        self.held > 0 && self.find(unit) != NONE
    }

    /// The units whose programs have not ended and their written sectors. A unit may come twice.
    pub(super) fn unwritten(&self) -> impl Iterator<Item = (Unit, UnitSectors)> + '_ {
        let held = self.entries.iter().filter(|entry| entry.state != State::Dropped);
        held.map(|entry| (entry.unit, entry.sectors))
    }

    /// As [`put_sectors`](Self::put_sectors), for a whole unit.
    pub(super) fn put(&mut self, unit: Unit) {
        self.put_sectors(unit, WHOLE_UNIT);
    }

    /// Data of some sectors of a unit, for which a place was kept, have come.
    pub(super) fn put_sectors(&mut self, unit: Unit, sectors: UnitSectors) {
        let before = self.find(unit);
        if before != NONE {
            let entry = &mut self.entries[before as usize];
            if entry.state == State::Dirty {
                entry.sectors |= sectors;
                self.free += 1;
                return;
            }
            // Units being programmed are no longer found by reads.
            self.unchain(before);
        }
        let number = self.unused;
        let chain = self.chain(unit);
        let entry = &mut self.entries[number as usize];
        self.unused = entry.next;
        let order = self.next_order;
        *entry = Entry { unit, next: NONE, chain: self.chains[chain], state: State::Dirty, order, sectors };
        self.next_order += 1;
        self.chains[chain] = number;
        match self.last_dirty {
            NONE => self.first_dirty = number,
            last => self.entries[last as usize].next = number,
        }
        self.last_dirty = number;
        self.dirty += 1;
        self.held += 1;
    }

    /// Takes the first out of the line, to be programmed: its number, and whether it still has to be.
    pub(super) fn take(&mut self) -> Option<(u32, bool)> {
        let number = self.first_dirty;
        if number == NONE {
            return None;
        }
        let entry = &mut self.entries[number as usize];
        self.first_dirty = entry.next;
        entry.next = NONE;
        let wanted = entry.state == State::Dirty;
        if wanted {
            entry.state = State::Leaving;
        }
        if self.first_dirty == NONE {
            self.last_dirty = NONE;
        }
        self.dirty -= 1;
        Some((number, wanted))
    }

    /// Releases an entry whose program has ended, or that needed none. In a ring, its place is free after all earlier
    /// ones.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        if self.entries[number as usize].state == State::Leaving {
            self.unchain(number);
        }
        let entry = &mut self.entries[number as usize];
        entry.state = State::Dropped;
        entry.next = self.unused;
        self.unused = number;
        self.free += match &mut self.ring {
            Some(ring) => ring.retire(entry.order),
            None => 1,
        };
        self.held -= 1;
    }

    /// The host no longer needs these units.
    pub(super) fn trim(&mut self, units: Range<Unit>) {
        if self.held == 0 {
            return;
        }
        if units.len() <= self.entries.len() {
            units.for_each(|unit| self.drop_unit(unit));
            return;
        }
        for number in 0..self.entries.len() {
            let Entry { unit, state, .. } = self.entries[number];
            if state != State::Dropped && units.contains(&unit) && self.find(unit) == number as u32 {
                self.drop_unit(unit);
            }
        }
    }

    fn drop_unit(&mut self, unit: Unit) {
        let number = self.find(unit);
        if number != NONE {
            self.unchain(number);
            let entry = &mut self.entries[number as usize];
            // An entry keeps its place until its program has ended.
            entry.state = State::Dropped;
        }
    }

    /// Removes an entry from its chain, if it is in one.
    fn unchain(&mut self, number: u32) {
        let Entry { unit, chain: next, .. } = self.entries[number as usize];
        let chain = self.chain(unit);
        let mut at = self.chains[chain];
        if at == number {
            self.chains[chain] = next;
            return;
        }
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            if entry.chain == number {
                entry.chain = next;
                return;
            }
            at = entry.chain;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_unit_written_again_is_merged_unless_it_is_leaving() {
        let mut buffer = Buffer::new(4, false);
        buffer.admit(3);
        buffer.put(7);
        buffer.put(7);
        assert_eq!((buffer.free(), buffer.dirty()), (2, 1));
        assert_eq!(buffer.take(), Some((0, true)));
        buffer.put(7);
        assert_eq!((buffer.free(), buffer.dirty(), buffer.held()), (2, 1, 2));
        buffer.release(0);
        assert!(buffer.holds(7), "the newer one is still there");
        assert_eq!((buffer.free(), buffer.held()), (3, 1));
    }

    #[test]
    fn what_was_trimmed_is_not_programmed() {
        let mut buffer = Buffer::new(4, false);
        buffer.admit(2);
        buffer.put(1);
        buffer.put(2);
        buffer.trim(0..1_000_000);
        assert!(!buffer.holds(1) && !buffer.holds(2));
        assert_eq!(buffer.take(), Some((0, false)));
        buffer.release(0);
        assert_eq!((buffer.free(), buffer.dirty(), buffer.held()), (3, 1, 1));
    }

    #[test]
    fn in_a_ring_a_slow_program_holds_back_the_places_of_later_ones() {
        let mut buffer = Buffer::new(4, true);
        buffer.admit(3);
        (1..4).for_each(|unit| buffer.put(unit));
        let [first, second, third] = [(); 3].map(|()| buffer.take().unwrap().0);
        buffer.release(second);
        buffer.release(third);
        assert_eq!((buffer.free(), buffer.held()), (1, 1));
        buffer.release(first);
        assert_eq!((buffer.free(), buffer.held()), (4, 0));
    }

    proptest! {
        #[test]
        fn it_holds_what_was_put_and_not_released(
            in_order in any::<bool>(),
            steps in prop::collection::vec((0u8..4, 0u32..12), 1..300),
        ) {
            let mut buffer = Buffer::new(8, in_order);
            let (mut waiting, mut waiting_orders, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
            // The number of the put whose data a read of the unit must return.
            let mut newest = BTreeMap::<u32, usize>::new();
            for (at, (step, unit)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 if buffer.free() > 0 => {
                        buffer.admit(1);
                        let order = buffer.order();
                        buffer.put(unit);
                        if !waiting.iter().any(|&(other, _)| other == unit) {
                            waiting.push((unit, at));
                            waiting_orders.push(order);
                            newest.insert(unit, at);
                        }
                    }
                    2 => if let Some((number, wanted)) = buffer.take() {
                        prop_assert!(wanted);
                        let (unit, put) = waiting.remove(0);
                        prop_assert_eq!(buffer.entry(number).unit, unit);
                        leaving.push((number, unit, put, waiting_orders.remove(0)));
                    },
                    3 if !leaving.is_empty() => {
                        let (number, unit, put, _) = leaving.remove(unit as usize % leaving.len());
                        buffer.release(number);
                        if newest.get(&unit) == Some(&put) {
                            newest.remove(&unit);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(buffer.held() as usize, waiting.len() + leaving.len());
                // In a ring, all from the oldest that is held on have their places.
                let orders = waiting_orders.iter().chain(leaving.iter().map(|(_, _, _, order)| order));
                let taken = match orders.min() {
                    Some(oldest) if in_order => (buffer.order() - oldest) as u32,
                    _ => buffer.held(),
                };
                prop_assert_eq!(buffer.free(), 8 - taken);
                prop_assert!((0..12).all(|unit| buffer.holds(unit) == newest.contains_key(&unit)));
            }
        }
    }
}
