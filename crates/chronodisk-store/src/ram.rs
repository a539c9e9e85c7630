//! Sparse memory with a budget.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{Extent, Store, StoreError, check_extent, check_range, len_of};

/// Keeps written data in pages of 4 KiB. Unwritten and zero pages take no memory.
///
/// The pages hang in tables of 512, so that one lookup in the ordered map serves 2 MiB. Pages and tables count against
/// the budget, so the memory of the process grows by no more, allocator overhead aside.
#[derive(Debug)]
pub struct RamStore {
    capacity_bytes: u64,
    budget_bytes: u64,
    allocated_bytes: u64,
    tables: BTreeMap<u64, Table>,
}

impl RamStore {
    /// An empty store of `capacity_bytes` that may take `budget_bytes` of memory.
    #[must_use]
    pub fn new(capacity_bytes: u64, budget_bytes: u64) -> Self {
        RamStore { capacity_bytes, budget_bytes, allocated_bytes: 0, tables: BTreeMap::new() }
    }

    fn page(&self, page_index: u64) -> Option<&Page> {
        let (table_index, slot) = split(page_index);
        self.tables.get(&table_index)?.pages[slot].as_deref()
    }

    fn page_mut(&mut self, page_index: u64) -> Option<&mut Page> {
        let (table_index, slot) = split(page_index);
        self.tables.get_mut(&table_index)?.pages[slot].as_deref_mut()
    }

    /// Memory that parts of a range would add, if the parts selected by `stays` leave an absent page absent.
    fn growth_bytes(&self, offset_bytes: u64, len_bytes: u64, stays: impl Fn(&Part) -> bool) -> u64 {
        let mut growth_bytes = 0;
        let mut table_added = None;
        for part in parts(offset_bytes, len_bytes) {
            if self.page(part.page_index).is_some() || stays(&part) {
                continue;
            }
            growth_bytes += PAGE_BYTES;
            let (table_index, _) = split(part.page_index);
            if table_added != Some(table_index) && !self.tables.contains_key(&table_index) {
                growth_bytes += TABLE_BYTES;
                table_added = Some(table_index);
            }
        }
        growth_bytes
    }

    fn check_budget(&self, offset_bytes: u64, needed_bytes: u64) -> Result<(), StoreError> {
        if needed_bytes <= self.budget_bytes.saturating_sub(self.allocated_bytes) {
            return Ok(());
        }
        Err(StoreError::BudgetExceeded {
            offset_bytes,
            needed_bytes,
            allocated_bytes: self.allocated_bytes,
            budget_bytes: self.budget_bytes,
        })
    }

    /// The page, made of zeros if it was absent.
    fn make_page(&mut self, page_index: u64) -> &mut Page {
        let (table_index, slot) = split(page_index);
        let allocated_bytes = &mut self.allocated_bytes;
        let table = self.tables.entry(table_index).or_insert_with(|| {
            *allocated_bytes += TABLE_BYTES;
            Table::new()
        });
        table.pages[slot].get_or_insert_with(|| {
            *allocated_bytes += PAGE_BYTES;
            table.page_count += 1;
            Box::new([0; PAGE_BYTES as usize])
        })
    }

    fn zero_part(&mut self, part: &Part) {
        let Some(page) = self.page_mut(part.page_index) else { return };
        page[part.in_page.clone()].fill(0);
        if is_zero(page) {
            self.free_page(part.page_index);
        }
    }

    fn free_page(&mut self, page_index: u64) {
        let (table_index, slot) = split(page_index);
        let Some(table) = self.tables.get_mut(&table_index) else { return };
        if table.pages[slot].take().is_none() {
            return;
        }
        self.allocated_bytes -= PAGE_BYTES;
        table.page_count -= 1;
        if table.page_count == 0 {
            self.tables.remove(&table_index);
            self.allocated_bytes -= TABLE_BYTES;
        }
    }

    /// The first present page in a range, at a cost that does not grow with the length of the range.
    fn next_page(&self, first: u64, end: u64) -> Option<u64> {
        if first >= end {
            return None;
        }
        // Each table holds at least one page. In the first table, all of them may be before the range.
        self.tables.range(split(first).0..=split(end - 1).0).take(2).find_map(|(&table_index, table)| {
            let table_first = table_index * TABLE_PAGES;
            (first.max(table_first)..end.min(table_first + TABLE_PAGES))
                .find(|&page_index| table.pages[(page_index - table_first) as usize].is_some())
        })
    }

    /// The first page from `first` up to `end` that is not there, or `end`; not further than
    /// [`EXTENT_PAGES_MAX`].
    fn next_gap(&self, first: u64, end: u64) -> u64 {
        let end = end.min(first + EXTENT_PAGES_MAX);
        let mut page_index = first;
        while page_index < end {
            let (table_index, slot) = split(page_index);
            let Some(table) = self.tables.get(&table_index) else { return page_index };
            match table.pages[slot..].iter().position(Option::is_none) {
                Some(gap) => return end.min(page_index + gap as u64),
                None => page_index = (table_index + 1) * TABLE_PAGES,
            }
        }
        end
    }

    /// Frees whole pages from `first` up to `end`. The cost grows with the existing pages, not with the length of the
    /// range.
    fn free_pages(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let tables: Vec<u64> = self.tables.range(split(first).0..=split(end - 1).0).map(|(&index, _)| index).collect();
        for table_index in tables {
            let table_first = table_index * TABLE_PAGES;
            for page_index in first.max(table_first)..end.min(table_first + TABLE_PAGES) {
                self.free_page(page_index);
            }
        }
    }
}

impl Store for RamStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        for part in parts(offset_bytes, len_of(bytes)) {
            let target = &mut bytes[part.in_buffer];
            match self.page(part.page_index) {
                Some(page) => target.copy_from_slice(&page[part.in_page]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        // An absent page stays absent if only zeros are written to it.
        let stays = |part: &Part| is_zero(&bytes[part.in_buffer.clone()]);
        self.check_budget(offset_bytes, self.growth_bytes(offset_bytes, len_of(bytes), stays))?;
        for part in parts(offset_bytes, len_of(bytes)) {
            let written = &bytes[part.in_buffer.clone()];
            if !is_zero(written) {
                self.make_page(part.page_index)[part.in_page].copy_from_slice(written);
            }
        }
        // Zeros last: a page of the same write may need a table that they empty, and the growth must not exceed the
        // checked one.
        for part in parts(offset_bytes, len_of(bytes)) {
            if is_zero(&bytes[part.in_buffer.clone()]) {
                self.zero_part(&part);
            }
        }
        Ok(())
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let end_bytes = offset_bytes + len_bytes;
        let first_whole = offset_bytes.div_ceil(PAGE_BYTES);
        let end_whole = end_bytes / PAGE_BYTES;
        self.free_pages(first_whole, end_whole);
        let head_end = end_bytes.min(first_whole.saturating_mul(PAGE_BYTES));
        let tail_start = head_end.max(end_whole * PAGE_BYTES);
        for (start, end) in [(offset_bytes, head_end), (tail_start, end_bytes)] {
            for part in parts(start, end - start) {
                self.zero_part(&part);
            }
        }
        Ok(())
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        // More pages than the budget has are not worth counting.
        let pages_max = self.budget_bytes / PAGE_BYTES + 2;
        let counted_bytes = len_bytes.min(pages_max.saturating_mul(PAGE_BYTES));
        self.check_budget(offset_bytes, self.growth_bytes(offset_bytes, counted_bytes, |_| false))?;
        for part in parts(offset_bytes, len_bytes) {
            self.make_page(part.page_index)[part.in_page].fill(0);
        }
        Ok(())
    }

    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes, offset_bytes, len_bytes)?;
        let first = offset_bytes / PAGE_BYTES;
        let end = (offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
        let allocated = self.page(first).is_some();
        let until = if allocated { self.next_gap(first, end) } else { self.next_page(first, end).unwrap_or(end) };
        // Saturates only if the range ends the extent.
        let reach_bytes = until.saturating_mul(PAGE_BYTES) - offset_bytes;
        Ok(Extent { len_bytes: reach_bytes.min(len_bytes), allocated })
    }

    /// Nothing to do: memory does not survive the process.
    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.allocated_bytes)
    }

    fn budget_bytes(&self) -> Option<u64> {
        Some(self.budget_bytes)
    }
}

const PAGE_BYTES: u64 = 4096;
const TABLE_PAGES: u64 = 512;
/// Most pages that one question about allocation looks at: 128 MiB.
const EXTENT_PAGES_MAX: u64 = 64 * TABLE_PAGES;
/// Size of a table: a pointer per page.
const TABLE_BYTES: u64 = TABLE_PAGES * size_of::<Option<Box<Page>>>() as u64;

type Page = [u8; PAGE_BYTES as usize];

#[derive(Debug)]
struct Table {
    page_count: u32,
    pages: Box<[Option<Box<Page>>]>,
}

impl Table {
    fn new() -> Self {
        Table { page_count: 0, pages: (0..TABLE_PAGES).map(|_| None).collect() }
    }
}

/// The table of a page and the page's slot in it.
fn split(page_index: u64) -> (u64, usize) {
    (page_index / TABLE_PAGES, (page_index % TABLE_PAGES) as usize)
}

/// The part of a range of bytes that lies in one page.
struct Part {
    page_index: u64,
    in_page: Range<usize>,
    in_buffer: Range<usize>,
}

/// Cuts a range of bytes at page boundaries.
fn parts(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = Part> {
    let mut done_bytes = 0;
    std::iter::from_fn(move || {
        if done_bytes == len_bytes {
            return None;
        }
        let position = offset_bytes + done_bytes;
        let start = position % PAGE_BYTES;
        let len = (PAGE_BYTES - start).min(len_bytes - done_bytes);
        let part = Part {
            page_index: position / PAGE_BYTES,
            in_page: start as usize..(start + len) as usize,
            in_buffer: done_bytes as usize..(done_bytes + len) as usize,
        };
        done_bytes += len;
        Some(part)
    })
}

/// Whether all bytes are zero.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // Compares each byte with the one before it. The C library does this fast even in builds without optimisation: mkfs
    // writes gigabytes of zeros.
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && rest == &bytes[..rest.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_byte_that_is_not_zero_is_seen_wherever_it_is() {
        assert!(is_zero(&[]) && is_zero(&[0]) && !is_zero(&[7]) && !is_zero(&[7; 100]));
        for len in [1, 2, 63, 64, 65, 4_096] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for place in [0, len / 2, len - 1] {
                bytes[place] = 1;
                assert!(!is_zero(&bytes), "{place} of {len}");
                bytes[place] = 0;
            }
        }
    }

    #[test]
    fn a_write_beyond_the_budget_changes_nothing() {
        let mut store = RamStore::new(MIB, TABLE_BYTES + 2 * PAGE_BYTES);
        store.write(100, b"before").unwrap();
        let error = store.write(0, &[7; 3 * PAGE_BYTES as usize]).unwrap_err();
        assert!(matches!(error, StoreError::BudgetExceeded { needed_bytes: 8192, .. }), "{error}");
        let mut bytes = [1; 8];
        store.read(99, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0before\0");
        assert_eq!(store.allocated_bytes().unwrap(), TABLE_BYTES + PAGE_BYTES);
        store.write(PAGE_BYTES, &[7; PAGE_BYTES as usize]).unwrap();
    }

    #[test]
    fn zeros_take_no_space_and_free_it() {
        let mut store = RamStore::new(MIB, MIB);
        store.write(0, &[0; 20_000]).unwrap();
        assert_eq!(store.allocated_bytes().unwrap(), 0);
        store.write(5_000, &[1; 10]).unwrap();
        assert_eq!(store.allocated_bytes().unwrap(), TABLE_BYTES + PAGE_BYTES);
        store.write(5_000, &[0; 10]).unwrap();
        assert_eq!(store.allocated_bytes().unwrap(), 0);
    }

    #[test]
    fn reserved_space_is_there_for_later_writes() {
        let mut store = RamStore::new(1 << 40, TABLE_BYTES + 3 * PAGE_BYTES);
        store.write(PAGE_BYTES, &[7; PAGE_BYTES as usize]).unwrap();
        store.reserve_zeroes(PAGE_BYTES + 1, PAGE_BYTES).unwrap();
        assert_eq!(store.extent(0, MIB).unwrap(), Extent { len_bytes: PAGE_BYTES, allocated: false });
        assert_eq!(store.extent(PAGE_BYTES, MIB).unwrap(), Extent { len_bytes: 2 * PAGE_BYTES, allocated: true });
        let mut bytes = [1; 2 * PAGE_BYTES as usize];
        store.read(PAGE_BYTES, &mut bytes).unwrap();
        assert_eq!(bytes[0], 7);
        assert!(is_zero(&bytes[1..]));
        // Neither the same amount again nor the whole device fits, and the contents stay.
        for (offset_bytes, len_bytes) in [(4 * PAGE_BYTES, 2 * PAGE_BYTES), (PAGE_BYTES, (1 << 40) - PAGE_BYTES)] {
            let error = store.reserve_zeroes(offset_bytes, len_bytes).unwrap_err();
            assert!(matches!(error, StoreError::BudgetExceeded { .. }), "{error}");
        }
        assert_eq!(store.allocated_bytes().unwrap(), TABLE_BYTES + 2 * PAGE_BYTES);
        store.write(PAGE_BYTES + 2, &[9; 4096]).unwrap();
        store.discard(0, MIB).unwrap();
        assert_eq!(store.allocated_bytes().unwrap(), 0);
    }

    #[test]
    fn discarding_a_huge_empty_device_is_cheap() {
        let capacity_bytes = 1 << 60;
        let mut store = RamStore::new(capacity_bytes, MIB);
        store.write(capacity_bytes - 1, &[1]).unwrap();
        store.write(77, &[1]).unwrap();
        store.discard(0, capacity_bytes).unwrap();
        assert_eq!(store.allocated_bytes().unwrap(), 0);
    }

    #[test]
    fn extents_end_where_pages_end() {
        let mut store = RamStore::new(1 << 60, 256 * MIB);
        let extent = |len_bytes, allocated| Extent { len_bytes, allocated };
        assert_eq!(store.extent(0, 1 << 60).unwrap(), extent(1 << 60, false));
        // The end of one table and the beginning of the next.
        store.write(2 * MIB - 1, &[1, 1]).unwrap();
        store.write((1 << 60) - 1, &[1]).unwrap();
        let (page, first) = (PAGE_BYTES, 2 * MIB - PAGE_BYTES);
        assert_eq!(store.extent(0, 1 << 60).unwrap(), extent(first, false));
        assert_eq!(store.extent(100, 200).unwrap(), extent(200, false));
        assert_eq!(store.extent(first + 1, 1 << 59).unwrap(), extent(2 * page - 1, true));
        assert_eq!(store.extent(first, 10).unwrap(), extent(10, true));
        let after = first + 2 * page;
        assert_eq!(store.extent(after, (1 << 60) - after).unwrap(), extent((1 << 60) - page - after, false));
        assert_eq!(store.extent((1 << 60) - page, page).unwrap(), extent(page, true));
        assert!(matches!(store.extent(0, 0), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.extent(1, 1 << 60), Err(StoreError::OutOfRange { .. })));
    }

    #[test]
    fn nothing_reaches_beyond_the_capacity() {
        let mut store = RamStore::new(1000, MIB);
        assert!(matches!(store.write(999, &[1, 2]), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.read(u64::MAX, &mut [0; 2]), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.discard(2, u64::MAX), Err(StoreError::OutOfRange { .. })));
        store.write(999, &[1]).unwrap();
        store.write(1000, &[]).unwrap();
    }
}
