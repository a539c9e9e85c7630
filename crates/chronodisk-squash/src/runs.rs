//! A map from positions to values that are the same, or count upwards, over long ranges.

use std::collections::BTreeMap;

/// A value that holds for a range of positions.
pub(crate) trait RunValue: Copy + PartialEq {
    /// The value `by` positions later in the same run.
    fn advanced(self, by: u64) -> Self;
}

/// A set: positions have no value besides membership.
impl RunValue for () {
    fn advanced(self, _by: u64) -> Self {}
}

/// A number that counts upwards with the position.
impl RunValue for u64 {
    fn advanced(self, by: u64) -> Self {
        self.wrapping_add(by)
    }
}

/// Values by position; adjacent values that continue each other are one entry.
///
/// Every operation costs a search plus the touched entries, for any lengths.
#[derive(Clone, Debug)]
pub(crate) struct RunMap<V> {
    /// By first position: the end (exclusive), and the value at the first position.
    runs: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RunMap<V> {
    fn default() -> Self {
        RunMap { runs: BTreeMap::new() }
    }
}

impl<V: RunValue> RunMap<V> {
    /// Count of entries.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Memory of the entries, in bytes, in a tree whose nodes are two thirds full.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.runs.len() * size_of::<(u64, (u64, V))>() * 3 / 2) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// The value at `position`, and the end of the range to which the answer applies, at most `limit`.
    pub(crate) fn at(&self, position: u64, limit: u64) -> (Option<V>, u64) {
        debug_assert!(position < limit);
        if let Some((&start, &(end, value))) = self.runs.range(..=position).next_back()
            && position < end
        {
            return (Some(value.advanced(position - start)), end.min(limit));
        }
        let next = self.runs.range(position..limit).next().map_or(limit, |(&start, _)| start);
        (None, next)
    }

    /// The entries between `start` and `end`, cut there, in order.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, V)> + '_ {
        let first = match self.runs.range(..=start).next_back() {
            Some((&first, &(run_end, _))) if run_end > start => first,
            _ => start,
        };
        self.runs.range(first..end.max(first)).map(move |(&run_start, &(run_end, value))| {
            let from = run_start.max(start);
            (from, run_end.min(end), value.advanced(from - run_start))
        })
    }

    /// All entries in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64, V)> + '_ {
        self.runs.iter().map(|(&start, &(end, value))| (start, end, value))
    }

    /// Sets the positions from `start` to `end` to values that begin with `value`.
    pub(crate) fn set(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        if let Some((&run_start, &(run_end, run_value))) = self.runs.range(..=start).next_back()
            && run_end >= end
            && run_value.advanced(start - run_start) == value
        {
            return;
        }
        self.remove(start, end);
        let (mut first, mut last, mut first_value) = (start, end, value);
        if let Some((&before, &(before_end, before_value))) = self.runs.range(..start).next_back()
            && before_end == start
            && before_value.advanced(start - before) == value
        {
            (first, first_value) = (before, before_value);
        }
        if let Some(&(after_end, after_value)) = self.runs.get(&end)
            && value.advanced(end - start) == after_value
        {
            self.runs.remove(&end);
            last = after_end;
        }
        self.runs.insert(first, (last, first_value));
    }

    /// Leaves the positions from `start` up to `end` without values.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&run_start, &(run_end, value))) = self.runs.range(..start).next_back()
            && run_end > start
        {
            self.runs.insert(run_start, (start, value));
            if run_end > end {
                self.runs.insert(end, (run_end, value.advanced(end - run_start)));
                return;
            }
        }
        while let Some((&run_start, &(run_end, value))) = self.runs.range(start..end).next() {
            self.runs.remove(&run_start);
            if run_end > end {
                self.runs.insert(end, (run_end, value.advanced(end - run_start)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_plain_array(steps in prop::collection::vec((0..40u64, 0..12u64, 0..4u64), 0..60)) {
            let mut runs = RunMap::<u64>::default();
            let mut plain = [None; 60];
            for (start, len, kind) in steps {
                let end = start + len;
                for position in start..end {
                    // Multiples of 1,000 that count upwards, so that neighbours continue each other now and then.
                    plain[position as usize] = (kind > 0).then_some(kind / 2 * 1_000 + position);
                }
                if kind > 0 { runs.set(start, end, kind / 2 * 1_000 + start) } else { runs.remove(start, end) }
            }
            let mut from_pieces = [None; 60];
            for (start, end, value) in runs.pieces(0, 60) {
                (start..end).for_each(|at| from_pieces[at as usize] = Some(value + at - start));
            }
            prop_assert_eq!(from_pieces, plain);
            for (at, value) in plain.iter().enumerate() {
                prop_assert_eq!(&runs.at(at as u64, 60).0, value);
            }
            let middle: Vec<u64> = runs.pieces(17, 31).flat_map(|(start, end, _)| start..end).collect();
            let expected: Vec<u64> = (17..31).filter(|&at| plain[at as usize].is_some()).collect();
            prop_assert_eq!(middle, expected);
            // No two entries that could be one.
            let mut before: Option<(u64, u64, u64)> = None;
            for (start, end, value) in runs.all() {
                if let Some((first, stop, older)) = before {
                    prop_assert!(stop < start || older.advanced(stop - first) != value);
                }
                before = Some((start, end, value));
            }
        }
    }
}
