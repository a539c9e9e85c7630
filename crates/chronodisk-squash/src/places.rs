//! Free places of a backing.

use std::collections::{BTreeMap, BTreeSet};

/// Free and used places, counted in slots.
///
/// An allocation uses the smallest free range that holds it, otherwise space after the last used slot. If there is
/// none, the largest free range serves a part of it.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// First slot of the unlimited free range at the end.
    end: u64,
    limit: u64,
    free: BTreeMap<u64, u64>,
    /// The free ranges as (length, start).
    by_len: BTreeSet<(u64, u64)>,
    used: u64,
}

impl Places {
    /// `limit` slots from 0 on, all free.
    pub(crate) fn new(limit: u64) -> Self {
        Places { end: 0, limit, free: BTreeMap::new(), by_len: BTreeSet::new(), used: 0 }
    }

    /// Slots below the limit, with exactly these ranges in use: (start, length) in ascending order. A range that
    /// overlaps the previous one, or reaches beyond the limit, is the error.
    pub(crate) fn with_used(limit: u64, used: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, (u64, u64)> {
        let mut places = Places::new(limit);
        for (start, len) in used {
            if start < places.end || start.checked_add(len).is_none_or(|end| end > limit) {
                return Err((start, len));
            }
            if start > places.end {
                places.insert(places.end, start - places.end);
            }
            places.end = start + len;
            places.used += len;
        }
        Ok(places)
    }

    /// Memory of the free ranges, in bytes. Each is in two trees whose nodes are two thirds full.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.free.len() * 2 * size_of::<(u64, u64)>() * 3 / 2) as u64
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Slots not in use, below the limit.
    pub(crate) fn available(&self) -> u64 {
        self.limit - self.used
    }

    /// Whether this number of ranges of `unit` slots could be allocated, one after the other.
    pub(crate) fn has_room(&self, count: u64, unit: u64) -> bool {
        let mut missing = count.saturating_sub(self.growth() / unit);
        // Take the longest first. Each holds at least one, so there are at most as many steps as ranges.
        for (len, _) in self.by_len.iter().rev().take_while(|(len, _)| *len >= unit) {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(len / unit);
        }
        missing == 0
    }

    /// Free slots after the last used one, below the limit.
    pub(crate) fn growth(&self) -> u64 {
        self.limit - self.end
    }

    /// The slot after the last used one.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The free ranges, in ascending order: start and length.
    pub(crate) fn free_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.free.iter().map(|(&start, &len)| (start, len))
    }

    /// Takes up to `len` slots in one range, a multiple of `unit`; returns start and length.
    pub(crate) fn take(&mut self, len: u64, unit: u64) -> Option<(u64, u64)> {
        debug_assert!(len > 0 && len.is_multiple_of(unit));
        if let Some(&(free_len, start)) = self.by_len.range((len, 0)..).next() {
            self.delete(start, free_len);
            if free_len > len {
                self.insert(start + len, free_len - len);
            }
            self.used += len;
            return Some((start, len));
        }
        let growth = (self.limit - self.end).min(len);
        let largest = self.by_len.last().copied().filter(|_| growth < len);
        let cut = |len: u64| len - len % unit;
        match largest {
            Some((free_len, start)) if cut(free_len) > cut(growth) => {
                let len = cut(free_len);
                self.delete(start, free_len);
                if free_len > len {
                    self.insert(start + len, free_len - len);
                }
                self.used += len;
                Some((start, len))
            }
            _ if cut(growth) > 0 => {
                let (start, len) = (self.end, cut(growth));
                self.end += len;
                self.used += len;
                Some((start, len))
            }
            _ => None,
        }
    }

    /// Frees an allocated range.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        debug_assert!(start + len <= self.end && self.used >= len);
        self.used -= len;
        let (mut first, mut last) = (start, start + len);
        if let Some((&before, &before_len)) = self.free.range(..start).next_back() {
            debug_assert!(before + before_len <= start, "given back twice");
            if before + before_len == start {
                self.delete(before, before_len);
                first = before;
            }
        }
        if let Some(&after_len) = self.free.get(&last) {
            self.delete(last, after_len);
            last += after_len;
        }
        if last == self.end {
            self.end = first;
        } else {
            self.insert(first, last - first);
        }
    }

    fn insert(&mut self, start: u64, len: u64) {
        self.free.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn delete(&mut self, start: u64, len: u64) {
        self.free.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_smallest_range_that_fits_is_taken_and_neighbours_join() {
        let mut places = Places::new(100);
        let taken: Vec<_> = [10, 4, 10, 6, 10].iter().map(|&len| places.take(len, 1).unwrap()).collect();
        assert_eq!(taken, [(0, 10), (10, 4), (14, 10), (24, 6), (30, 10)]);
        places.give(10, 4);
        places.give(24, 6);
        assert_eq!(places.take(5, 1), Some((24, 5)));
        assert_eq!(places.take(4, 1), Some((10, 4)));
        places.give(0, 10);
        places.give(10, 4);
        assert_eq!(places.take(14, 1), Some((0, 14)));
        assert_eq!(places.take(80, 8), Some((40, 56)));
        assert_eq!(places.take(8, 8), None);
        assert_eq!(places.take(8, 1), Some((96, 4)));
    }

    #[test]
    fn used_ranges_that_overlap_are_told() {
        assert_eq!(Places::with_used(100, [(0, 10), (20, 5)]).unwrap().take(10, 1), Some((10, 10)));
        assert_eq!(Places::with_used(100, [(0, 10), (9, 5)]).unwrap_err(), (9, 5));
        assert_eq!(Places::with_used(100, [(90, 11)]).unwrap_err(), (90, 11));
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice(steps in prop::collection::vec((any::<bool>(), 1..9u64), 0..80)) {
            let mut places = Places::new(200);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (take, number) in steps {
                if take {
                    if let Some((start, len)) = places.take(number, 1) {
                        prop_assert!(start + len <= 200 && len <= number);
                        prop_assert!(held.iter().all(|&(other, n)| start + len <= other || other + n <= start));
                        held.push((start, len));
                    }
                } else if !held.is_empty() {
                    let (start, len) = held.swap_remove(number as usize % held.len());
                    places.give(start, len);
                }
                prop_assert_eq!(places.used(), held.iter().map(|held| held.1).sum::<u64>());
                // Regardless of the order of allocation, there is room for this number of ranges of at most 8 slots.
                let fitting = (1..).take_while(|&count| places.has_room(count, 8)).count() as u64;
                let mut others = places.clone();
                let taken = (0..fitting).filter(|index| others.take(1 + (index * number) % 8, 1).is_some()).count();
                prop_assert_eq!(taken as u64, fitting);
                let mut whole = places.clone();
                let taken = std::iter::from_fn(|| whole.take(8, 8)).count();
                prop_assert_eq!(taken as u64, fitting);
            }
            held.drain(..).for_each(|(start, len)| places.give(start, len));
            prop_assert_eq!((places.end(), places.used()), (0, 0));
        }
    }
}
