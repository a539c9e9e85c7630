//! A large table that is copied by sharing.
//!
//! [`CowTable`] is an array of small values, most of them equal. It is a tree of pages behind shared pointers: a clone
//! copies one pointer, for any capacity, and the first change of a page that a clone still uses copies that page and
//! the pages above it. Pages with only the common value are absent, so memory grows with the number of different values
//! and not with the capacity.
//!
//! ```text
//!  CowTable ──► inner page of 64 ──► inner page of 64 ──► leaf of 128 values
//!  clone ─────┘
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::footprint;

/// An array of values by index, all the same at first.
#[derive(Clone, Debug)]
pub(crate) struct CowTable<T> {
    root: Option<Page<T>>,
    /// Inner pages on the way to a leaf.
    height: u32,
    len: u64,
    common: T,
}

#[derive(Clone, Debug)]
enum Page<T> {
    Inner(Arc<Inner<T>>),
    Leaf(Arc<Leaf<T>>),
}

#[derive(Clone, Debug)]
struct Inner<T> {
    children: [Option<Page<T>>; FANOUT],
    /// Children that are there, at least one.
    used: u32,
}

#[derive(Clone, Debug)]
struct Leaf<T> {
    values: [T; LEAF],
    /// Values that differ from the common one, at least one.
    used: u32,
}

const LEAF_BITS: u32 = 7;
const LEAF: usize = 1 << LEAF_BITS;
const FANOUT_BITS: u32 = 6;
const FANOUT: usize = 1 << FANOUT_BITS;

impl<T: Copy + PartialEq> CowTable<T> {
    /// `len` values that are all `common`.
    pub(crate) fn new(len: u64, common: T) -> Self {
        let mut height = 0;
        while (len.saturating_sub(1)) >> (LEAF_BITS + FANOUT_BITS * height) > 0 {
            height += 1;
        }
        CowTable { root: None, height, len, common }
    }

    /// Most memory that a table of that length takes: when every leaf is there.
    pub(crate) fn bytes_max(len: u64) -> u64 {
        // Strong and weak counts are stored beside an `Arc`'s value.
        let shared_bytes = |bytes: usize| (bytes + 2 * size_of::<usize>()) as u64;
        let mut pages = len.div_ceil(LEAF as u64);
        let mut bytes = footprint::allocations_bytes(pages, shared_bytes(size_of::<Leaf<T>>()));
        while pages > 1 {
            pages = pages.div_ceil(FANOUT as u64);
            let inner = footprint::allocations_bytes(pages, shared_bytes(size_of::<Inner<T>>()));
            bytes = bytes.saturating_add(inner);
        }
        bytes
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If the table is not that long.
    pub(crate) fn get(&self, index: u64) -> T {
        assert!(index < self.len, "index {index} in a table of {}", self.len);
        let (mut page, mut height) = (self.root.as_ref(), self.height);
        loop {
            match page {
                None => return self.common,
                Some(Page::Leaf(leaf)) => return leaf.values[index as usize % LEAF],
                Some(Page::Inner(inner)) => {
                    page = inner.children[child_of(index, height)].as_ref();
                    height -= 1;
                }
            }
        }
    }

    /// Puts a value at `index`.
    ///
    /// # Panics
    /// If the table is not that long.
    pub(crate) fn set(&mut self, index: u64, value: T) {
        assert!(index < self.len, "index {index} in a table of {}", self.len);
        set(&mut self.root, self.height, index, value, self.common);
    }

    /// Replaces the values from `first` to before `end`, in order. `change` gets each index and value, and returns the
    /// new value.
    /// # Panics
    /// If the table is shorter.
    pub(crate) fn change(&mut self, first: u64, end: u64, mut change: impl FnMut(u64, T) -> T) {
        assert!(end <= self.len, "indices up to {end} in a table of {}", self.len);
        if first < end {
            change_below(&mut self.root, self.height, 0, first..end, self.common, &mut change);
        }
    }

    /// Whether all values are the common one.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Calls `visit` for every value that differs from the common one, with its index, in order.
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(u64, T)) {
        for_each(self.root.as_ref(), self.height, 0, self.common, visit);
    }
}

/// Visits the values below `page`, whose first index is `first`.
fn for_each<T: Copy + PartialEq>(
    page: Option<&Page<T>>,
    height: u32,
    first: u64,
    common: T,
    visit: &mut dyn FnMut(u64, T),
) {
    match page {
        None => {}
        Some(Page::Leaf(leaf)) => {
            let differ = leaf.values.iter().zip(first..).filter(|(value, _)| **value != common);
            differ.for_each(|(&value, index)| visit(index, value));
        }
        Some(Page::Inner(inner)) => {
            let step = 1 << (LEAF_BITS + FANOUT_BITS * (height - 1));
            for (child, first) in inner.children.iter().zip((first..).step_by(step)) {
                for_each(child.as_ref(), height - 1, first, common, visit);
            }
        }
    }
}

/// Sets a value below `page`, which is at `height` above the leaves. Afterwards the page exists only if it is needed.
fn set<T: Copy + PartialEq>(page: &mut Option<Page<T>>, height: u32, index: u64, value: T, common: T) {
    if page.is_none() && value == common {
        return;
    }
    let used = match page.get_or_insert_with(|| empty(height, common)) {
        Page::Leaf(leaf) => {
            let Leaf { values, used } = Arc::make_mut(leaf);
            let place = &mut values[index as usize % LEAF];
            *used = *used + u32::from(value != common) - u32::from(*place != common);
            *place = value;
            *used
        }
        Page::Inner(inner) => {
            let Inner { children, used } = Arc::make_mut(inner);
            let child = &mut children[child_of(index, height)];
            let before = u32::from(child.is_some());
            set(child, height - 1, index, value, common);
            *used = *used + u32::from(child.is_some()) - before;
            *used
        }
    };
    if used == 0 {
        *page = None;
    }
}

/// A page at `height` above the leaves that contains only the common value.
fn empty<T: Copy>(height: u32, common: T) -> Page<T> {
    match height {
        0 => Page::Leaf(Arc::new(Leaf { values: [common; LEAF], used: 0 })),
        _ => Page::Inner(Arc::new(Inner { children: [const { None }; FANOUT], used: 0 })),
    }
}

/// Changes the values of a non-empty range below `page`, whose first index is `base`.
fn change_below<T: Copy + PartialEq>(
    page: &mut Option<Page<T>>,
    height: u32,
    base: u64,
    range: Range<u64>,
    common: T,
    change: &mut impl FnMut(u64, T) -> T,
) {
    let used = match page.get_or_insert_with(|| empty(height, common)) {
        Page::Leaf(leaf) => {
            let Leaf { values, used } = Arc::make_mut(leaf);
            for (place, index) in values.iter_mut().zip(base..).take((range.end - base) as usize) {
                if index >= range.start {
                    let value = change(index, *place);
                    *used = *used + u32::from(value != common) - u32::from(*place != common);
                    *place = value;
                }
            }
            *used
        }
        Page::Inner(inner) => {
            let Inner { children, used } = Arc::make_mut(inner);
            let step = 1 << (LEAF_BITS + FANOUT_BITS * (height - 1));
            for (child, base) in children.iter_mut().zip((base..range.end).step_by(step)) {
                if base + step as u64 > range.start {
                    let before = u32::from(child.is_some());
                    change_below(child, height - 1, base, range.clone(), common, change);
                    *used = *used + u32::from(child.is_some()) - before;
                }
            }
            *used
        }
    };
    if used == 0 {
        *page = None;
    }
}

fn child_of(index: u64, height: u32) -> usize {
    (index >> (LEAF_BITS + FANOUT_BITS * (height - 1))) as usize % FANOUT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn pages<T>(page: Option<&Page<T>>) -> usize {
        match page {
            None => 0,
            Some(Page::Leaf(_)) => 1,
            Some(Page::Inner(inner)) => 1 + inner.children.iter().map(|child| pages(child.as_ref())).sum::<usize>(),
        }
    }

    fn root(table: &CowTable<u32>) -> &Arc<Inner<u32>> {
        match &table.root {
            Some(Page::Inner(inner)) => inner,
            _ => panic!("a table of this length has inner pages"),
        }
    }

    #[test]
    fn a_clone_shares_all_pages_but_those_that_change() {
        let mut table = CowTable::new(1 << 33, 0u32);
        for index in 0..1_000u64 {
            table.set(index * 8_388_607, 1);
        }
        let mut clone = table.clone();
        assert!(Arc::ptr_eq(root(&table), root(&clone)));
        clone.set(5, 7);
        assert_eq!((table.get(5), clone.get(5)), (0, 7));
        let shared = |a: &CowTable<u32>, b: &CowTable<u32>| {
            let pairs = root(a).children.iter().zip(&root(b).children);
            pairs
                .filter(|pair| matches!(pair, (Some(Page::Inner(a)), Some(Page::Inner(b))) if Arc::ptr_eq(a, b)))
                .count()
        };
        assert_eq!(shared(&table, &clone) + 1, shared(&table, &table), "one page below the root is another");
    }

    #[test]
    fn memory_is_given_back() {
        let mut table = CowTable::new(1 << 33, 0u32);
        for index in 0..10_000u64 {
            table.set(index * 100_003, 9);
        }
        for index in 0..10_000u64 {
            table.set(index * 100_003, 0);
        }
        assert_eq!(pages(table.root.as_ref()), 0);
    }

    #[test]
    #[should_panic(expected = "index 128 in a table of 128")]
    fn beyond_the_end_is_refused() {
        CowTable::new(128, 0u8).get(128);
    }

    proptest! {
        #[test]
        fn it_is_an_array_and_so_is_each_clone(
            len in prop_oneof![1u64..1_000, Just(1 << 13), Just((1 << 13) + 1), Just(1 << 40)],
            steps in prop::collection::vec((any::<u64>(), 0u8..3, prop::bool::weighted(0.1)), 1..300),
            runs in prop::collection::vec(0u64..400, 1..4),
        ) {
            let mut table = CowTable::new(len, 0u8);
            let mut model = BTreeMap::new();
            let mut kept = Vec::new();
            for (index, value, keep) in steps {
                let index = if index % 3 == 0 { index % len.min(300) } else { index % len };
                table.set(index, value);
                model.insert(index, value);
                if keep {
                    kept.push((table.clone(), model.clone()));
                    let end = len.min(index + runs[kept.len() % runs.len()]);
                    let mut seen = Vec::new();
                    table.change(index, end, |index, before| {
                        seen.push((index, before));
                        (index % 2) as u8 * value
                    });
                    let expected = (index..end).map(|index| (index, model.get(&index).copied().unwrap_or(0)));
                    prop_assert_eq!(seen, expected.collect::<Vec<_>>());
                    model.extend((index..end).map(|index| (index, (index % 2) as u8 * value)));
                }
            }
            kept.push((table, model));
            for (table, model) in &kept {
                for (&index, &value) in model {
                    prop_assert_eq!(table.get(index), value);
                }
                let different = model.values().filter(|&&value| value != 0).count();
                let mut visited = Vec::new();
                table.for_each(&mut |index, value| visited.push((index, value)));
                let kept = model.iter().filter(|(_, value)| **value != 0).map(|(&index, &value)| (index, value));
                prop_assert_eq!(visited, kept.collect::<Vec<_>>());
                prop_assert_eq!(table.is_empty(), different == 0);
                prop_assert!(pages(table.root.as_ref()) <= different * (table.height as usize + 1));
            }
        }
    }
}
