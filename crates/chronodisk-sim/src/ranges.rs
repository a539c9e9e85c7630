//! Sets of numbers.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, kept as ranges that do not touch. Its memory grows with the number of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// The end of each range by its beginning.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// An empty set.
    #[must_use]
    pub const fn new() -> Self {
        RangeSet { ends: BTreeMap::new() }
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&before, &until)) = self.ends.range(..=end).next_back()
            && until >= start
        {
            self.ends.remove(&before);
            start = start.min(before);
            end = end.max(until);
        }
        self.ends.insert(start, end);
    }

    /// Whether the set has no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether the number is in the set.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.ends.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// The parts of a range that are not in the set, in ascending order.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let Range { start, end } = range;
        // A range that begins earlier may reach into this one.
        let first = self.ends.range(..=start).next_back().map_or(start, |(&before, _)| before);
        let mut at = start;
        let mut inside = self.ends.range(first..end.max(first));
        std::iter::from_fn(move || {
            while at < end {
                let Some((&next, &until)) = inside.next() else {
                    let gap = at..end;
                    at = end;
                    return Some(gap);
                };
                let gap = at..next;
                at = at.max(until);
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RandomStream;

    #[test]
    fn ranges_that_touch_are_joined() {
        let mut set = RangeSet::new();
        for range in [10..20, 30..40, 20..25, 5..5, 0..1] {
            set.insert(range);
        }
        assert_eq!(
            set.ends.iter().map(|(&start, &end)| (start, end)).collect::<Vec<_>>(),
            [(0, 1), (10, 25), (30, 40)]
        );
        set.insert(24..31);
        assert_eq!(set.ends.len(), 2);
        assert_eq!(set.gaps(0..50).collect::<Vec<_>>(), [1..10, 40..50]);
        assert_eq!(set.gaps(12..30).count(), 0);
        assert_eq!(set.gaps(7..7).count(), 0);
    }

    #[test]
    fn it_equals_a_table_of_flags() {
        let mut stream = RandomStream::new(1, "test", "ranges");
        for _ in 0..200 {
            let (mut set, mut flags) = (RangeSet::new(), [false; 64]);
            for _ in 0..12 {
                let start = stream.below(60);
                let end = start + stream.below(64 - start);
                set.insert(start..end);
                flags[start as usize..end as usize].fill(true);
            }
            assert!((0..64).all(|number| set.contains(number) == flags[number as usize]));
            let start = stream.below(64);
            let end = start + stream.below(64 - start);
            let missing: Vec<u64> = set.gaps(start..end).flatten().collect();
            let expected: Vec<u64> = (start..end).filter(|&number| !flags[number as usize]).collect();
            assert_eq!(missing, expected, "{set:?} {start}..{end}");
        }
    }
}
