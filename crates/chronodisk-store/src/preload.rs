//! An earlier run's accesses by time: pages are loaded before their use.
//!
//! Griffin et al., "Timing-accurate storage emulation", FAST 2002, section 3.1: an emulator without enough memory for
//! its data can run a workload twice, and use the first run's accesses to load data before the second run needs them.

use crate::frames::PAGE_BYTES;

/// The data accesses of an earlier run, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    accesses: Vec<Access>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    first_page: u64,
    page_count: u32,
}

impl AccessList {
    /// From each access' first byte and length in bytes; empty ones and such beyond all devices
    /// are left out.
    pub fn new(accesses: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let access = |(offset_bytes, len_bytes): (u64, u64)| {
            let end = offset_bytes.checked_add(len_bytes)?.div_ceil(PAGE_BYTES);
            let first_page = offset_bytes / PAGE_BYTES;
            let page_count = u32::try_from(end - first_page).ok().filter(|count| *count > 0 && len_bytes > 0)?;
            Some(Access { first_page, page_count })
        };
        AccessList { accesses: accesses.into_iter().filter_map(access).collect() }
    }

    /// Number of accesses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }
}

/// Accesses that a run may skip or put in another order without losing its place in the list.
const SYNC_ACCESSES: usize = 1024;

/// Progress of the run in the list, and of the preload ahead of it.
#[derive(Debug)]
pub(crate) struct Preload {
    list: AccessList,
    /// The first access that is not thought to have happened.
    position: usize,
    /// The next page to load: index of the access, and page number from its first one.
    ahead: (usize, u32),
    /// Pages between the position and the next one to bring in, repeated ones counted again.
    pages_ahead: u64,
    pages_ahead_max: u64,
}

impl Preload {
    pub fn new(list: AccessList, pages_ahead_max: u64) -> Self {
        Preload { list, position: 0, ahead: (0, 0), pages_ahead: 0, pages_ahead_max: pages_ahead_max.max(1) }
    }

    /// The next page in the list, within the allowed distance.
    pub fn next(&mut self) -> Option<u64> {
        let (index, page) = self.ahead;
        let access = *self.list.accesses.get(index)?;
        if self.pages_ahead >= self.pages_ahead_max {
            return None;
        }
        self.pages_ahead += 1;
        self.ahead = if page + 1 < access.page_count { (index, page + 1) } else { (index + 1, 0) };
        Some(access.first_page + u64::from(page))
    }

    /// The run accessed something that begins with this page: finds its place in the list.
    pub fn accessed(&mut self, first_page: u64) {
        let window = self.list.accesses[self.position..].iter().take(SYNC_ACCESSES);
        let Some(skipped) = window.map(|access| access.first_page).position(|page| page == first_page) else { return };
        let passed = self.position..self.position + skipped + 1;
        self.position = passed.end;
        if self.ahead.0 < self.position {
            // The run is ahead of the list: passed accesses are useless.
            self.ahead = (self.position, 0);
            self.pages_ahead = 0;
            return;
        }
        let passed: u64 = self.list.accesses[passed].iter().map(|access| u64::from(access.page_count)).sum();
        self.pages_ahead = self.pages_ahead.saturating_sub(passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(preload: &mut Preload) -> Vec<u64> {
        std::iter::from_fn(|| preload.next()).collect()
    }

    fn list(first_pages: &[u64]) -> AccessList {
        AccessList::new(first_pages.iter().map(|page| (page * PAGE_BYTES, 2 * PAGE_BYTES)))
    }

    #[test]
    fn pages_come_in_order_and_no_further_ahead_than_may_be() {
        let mut preload = Preload::new(list(&[10, 20, 30]), 4);
        assert_eq!(pages(&mut preload), [10, 11, 20, 21]);
        preload.accessed(10);
        assert_eq!(pages(&mut preload), [30, 31]);
        preload.accessed(99);
        preload.accessed(30);
        assert_eq!(pages(&mut preload), []);
    }

    #[test]
    fn a_run_that_overtakes_is_followed() {
        let mut preload = Preload::new(list(&[10, 20, 30, 40]), 2);
        assert_eq!(pages(&mut preload), [10, 11]);
        preload.accessed(30);
        assert_eq!(pages(&mut preload), [40, 41]);
    }

    #[test]
    fn accesses_are_cut_at_pages() {
        let list = AccessList::new([(4095, 2), (0, 0), (u64::MAX, 9), (8192, 4096)]);
        assert_eq!(list.accesses[0], Access { first_page: 0, page_count: 2 });
        assert_eq!(list.accesses[1], Access { first_page: 2, page_count: 1 });
        assert_eq!((list.len(), list.is_empty()), (2, false));
    }
}
