//! Sets of sectors, as ranges.

use std::ops::Range;

use chronodisk_sim::{Op, Request};

/// Sectors as ranges in ascending order that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectorSet(Vec<Range<u64>>);

impl SectorSet {
    /// The set without a sector.
    pub(crate) const EMPTY: SectorSet = SectorSet(Vec::new());

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in ascending order.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    pub(crate) fn into_ranges(self) -> Vec<Range<u64>> {
        self.0
    }

    /// Number of sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|other| other.end < range.start);
        let to = self.0.partition_point(|other| other.start <= range.end);
        let joined = match self.0.get(from..to) {
            Some([first, .., last]) => first.start.min(range.start)..last.end.max(range.end),
            Some([only]) => only.start.min(range.start)..only.end.max(range.end),
            _ => range,
        };
        self.0.splice(from..to, [joined]);
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let from = self.0.partition_point(|other| other.end <= range.start);
        let to = self.0.partition_point(|other| other.start < range.end);
        if from >= to || range.is_empty() {
            return;
        }
        let before = self.0[from].start..range.start;
        let after = range.end..self.0[to - 1].end;
        let left = [before, after].into_iter().filter(|rest| !rest.is_empty());
        self.0.splice(from..to, left);
    }

    /// The parts of a range that are in the set.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = self.0.partition_point(|other| other.end <= range.start);
        let overlapping = self.0[from..].iter().take_while(move |other| other.start < range.end);
        overlapping.map(move |other| other.start.max(range.start)..other.end.min(range.end))
    }

    /// The sectors that are in both sets.
    pub(crate) fn and(&self, other: &SectorSet) -> SectorSet {
        SectorSet(other.0.iter().flat_map(|range| self.within(range.clone())).collect())
    }

    /// Whether one range of the set holds this range.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let index = self.0.partition_point(|other| other.end < range.end);
        range.is_empty() || self.0.get(index).is_some_and(|other| other.start <= range.start)
    }
}

impl FromIterator<Range<u64>> for SectorSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut sorted: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut set: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match set.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => set.push(range),
            }
        }
        SectorSet(set)
    }
}

/// Whether a request changes the contents of its sectors. Zone operations are not considered.
pub(crate) fn changes(op: Op) -> bool {
    matches!(op, Op::Write | Op::Discard | Op::WriteZeroes)
}

/// The sectors that a request changes; an empty range if it changes none.
pub(crate) fn changed(request: &Request) -> Range<u64> {
    if changes(request.op) { request.lba.0..request.end().0 } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..20), 1..60)) {
            let (mut set, mut sectors) = (SectorSet::EMPTY, BTreeSet::new());
            for (insert, first, count) in steps {
                let range = first..first + count;
                if insert {
                    set.insert(range.clone());
                    sectors.extend(range.clone());
                } else {
                    set.remove(range.clone());
                    sectors.retain(|sector| !range.contains(sector));
                }
                prop_assert!(set.ranges().iter().cloned().flatten().eq(sectors.iter().copied()));
                prop_assert!(set.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert!(set.within(range.clone()).flatten().eq(sectors.range(range.clone()).copied()));
                prop_assert_eq!(set.covers(&range), range.clone().all(|sector| sectors.contains(&sector)));
                let one: SectorSet = [range.clone()].into_iter().collect();
                prop_assert!(set.and(&one).0.into_iter().flatten().eq(set.within(range.clone()).flatten()));
                prop_assert_eq!(set.and(&set), set.clone());
                prop_assert_eq!(set.sectors(), sectors.len() as u64);
                prop_assert_eq!(set.ranges().iter().rev().cloned().collect::<SectorSet>(), set.clone());
            }
        }
    }
}
