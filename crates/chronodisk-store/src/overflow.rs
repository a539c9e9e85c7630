//! Memory with a budget in front of a file.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

pub use crate::frames::PAGE_BYTES;
use crate::frames::{CHUNK_BYTES, Frames};
use crate::loading::Loading;
use crate::preload::{AccessList, Preload};
use crate::{Extent, FileStore, Store, StoreError, check_extent, check_range, len_of};

/// Keeps recently used pages in memory, and everything in a file.
///
/// The memory holds pages of [`PAGE_BYTES`] with LRU eviction. The file's [`Durability`](crate::Durability) decides on
/// its use:
///
/// * *Without a volatile cache* every write reaches the file before it completes, and the memory is a read cache.
/// * *With one* a written (dirty) page stays in memory only, until it is evicted, until its neighbours are written
///   back, or until a flush. Then it goes to the file together with the dirty pages around it. Its space in the file is
///   reserved before the write completes, so a full disk is an error of the write and not of a later one, of a flush or
///   of the end. An orderly end writes all dirty pages back.
///
/// A page that can't be written back stays in memory. Reads of it succeed; flushes and the end fail until it is
/// written. Without support for reservation (`fallocate`), the host's disk may turn out to be full at a write-back.
///
/// Memory exceeds the budget by at most [`OVERHEAD_BYTES`].
///
/// With an [`AccessList`] of an earlier run it also predicts the next pages, see [`next_preload`](Self::next_preload).
#[derive(Debug)]
pub struct OverflowStore {
    file: FileStore,
    frames: Frames,
    /// Looked up by page, never iterated.
    resident: HashMap<u64, u32>,
    dirty: BTreeSet<u64>,
    /// Buffers for pages read from the file and written to it; reused, to avoid allocations.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// The file has everything that was acknowledged; no page is ever dirty.
    write_through: bool,
    preload: Option<Preload>,
    loading: Loading,
    statistics: OverflowStatistics,
}

/// Largest memory of a page, with its share of the tables.
pub const FRAME_BYTES: u64 = PAGE_BYTES + 128;
/// Memory used at any budget: runs of pages in transit, and the smallest useful number of pages.
pub const OVERHEAD_BYTES: u64 = 2 * RUN_PAGES * PAGE_BYTES + FRAMES_MIN as u64 * FRAME_BYTES + CHUNK_BYTES as u64;

/// Most pages that are read or written with one system call.
const RUN_PAGES: u64 = 64;
/// Fewest pages in memory.
const FRAMES_MIN: u32 = 64;
/// Pages that are searched for a clean one to evict, if dirty ones can't be written back.
const CLEAN_SEARCH_PAGES: usize = 1024;

/// Counters of an overflow store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverflowStatistics {
    /// Pages that were wanted and in memory.
    pub hits: u64,
    /// Pages that were wanted and had to be read from the file first.
    pub misses: u64,
    /// Pages that made room.
    pub evictions: u64,
    /// Pages that were written to the file.
    pub written_back: u64,
    /// Attempts to write a page to the file that failed; the page stays in memory.
    pub write_back_failures: u64,
    /// Pages that were brought in ahead of their use.
    pub preloaded: u64,
}

impl OverflowStore {
    /// Memory of `budget_bytes` in front of `file`.
    #[must_use]
    pub fn new(file: FileStore, budget_bytes: u64) -> Self {
        let count = u32::try_from(budget_bytes / FRAME_BYTES).unwrap_or(u32::MAX - 1).max(FRAMES_MIN);
        OverflowStore {
            write_through: file.durability().write_through,
            file,
            frames: Frames::new(count),
            resident: HashMap::new(),
            dirty: BTreeSet::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            preload: None,
            loading: Loading::default(),
            statistics: OverflowStatistics::default(),
        }
    }

    /// Expects the accesses of an earlier run, and preloads their pages.
    pub fn set_preload(&mut self, accesses: AccessList) {
        self.preload = Some(Preload::new(accesses, u64::from(self.frames.count_max) / 2));
    }

    /// The next page to preload, if there is one within half of the memory. Read it from the
    /// [`file_reader`](Self::file_reader) without this store's lock, and pass it to [`finish_load`](Self::finish_load).
    pub fn next_preload(&mut self) -> Option<u64> {
        let preload = self.preload.as_mut()?;
        while let Some(page) = preload.next() {
            match self.resident.get(&page) {
                // The page is needed soon, so it must not be evicted before.
                Some(frame) => self.frames.touch(*frame),
                None => {
                    self.loading.begin(page);
                    return Some(page);
                }
            }
        }
        None
    }

    /// A page that [`next_preload`](Self::next_preload) named was read, or could not be.
    pub fn finish_preload(&mut self, page: u64, bytes: Option<&[u8]>) {
        if self.finish_load(page, bytes) {
            self.statistics.preloaded += 1;
        }
    }

    /// Copies from memory, from `offset_bytes` on up to the first absent page, and returns the number of bytes.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`].
    pub fn read_resident(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<usize, StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_of(bytes))?;
        let mut done = 0;
        while done < bytes.len() {
            let position = offset_bytes + done as u64;
            let Some(frame) = self.resident.get(&(position / PAGE_BYTES)).copied() else { break };
            let start = (position % PAGE_BYTES) as usize;
            let len = (PAGE_BYTES as usize - start).min(bytes.len() - done);
            self.statistics.hits += 1;
            self.frames.touch(frame);
            bytes[done..done + len].copy_from_slice(&self.frames.bytes(frame)[start..start + len]);
            done += len;
        }
        Ok(done)
    }

    /// The first contiguous absent pages of a range. The caller reads them from the [`file_reader`](Self::file_reader)
    /// without this store's lock, and [finishes](Self::finish_load) each. Empty if none is absent.
    pub fn begin_load(&mut self, offset_bytes: u64, len_bytes: u64) -> Range<u64> {
        let end = (offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
        let first = (offset_bytes / PAGE_BYTES..end).find(|page| !self.resident.contains_key(page)).unwrap_or(end);
        let run = self.absent_run(first, end);
        self.statistics.misses += run.end - run.start;
        run.clone().for_each(|page| self.loading.begin(page));
        run
    }

    /// A page in transit was read, or could not be. Keeps it, unless it was loaded or changed meanwhile or no page can
    /// be evicted. Returns whether the bytes equal the device's contents.
    pub fn finish_load(&mut self, page: u64, bytes: Option<&[u8]>) -> bool {
        let valid = self.loading.finish(page);
        let Some(bytes) = bytes.filter(|_| valid && !self.resident.contains_key(&page)) else { return false };
        self.keep(page, bytes);
        true
    }

    /// An absent page that a write to this range covers partly, and therefore needs. `None` if all writes go to the
    /// file.
    #[must_use]
    pub fn missing_for_write(&self, offset_bytes: u64, len_bytes: u64) -> Option<u64> {
        if self.write_through {
            return None;
        }
        let end_bytes = offset_bytes + len_bytes;
        let ends = [(offset_bytes, offset_bytes / PAGE_BYTES), (end_bytes, end_bytes / PAGE_BYTES)];
        let partial = ends.into_iter().filter(|(bytes, _)| len_bytes > 0 && !bytes.is_multiple_of(PAGE_BYTES));
        partial.map(|(_, page)| page).find(|page| !self.resident.contains_key(page))
    }

    /// Writes all dirty pages to the file.
    ///
    /// # Errors
    /// [`StoreError::Io`], the first one; failed pages stay in memory, and all others are written.
    pub fn write_back_all(&mut self) -> Result<(), StoreError> {
        let mut first_error = Ok(());
        let mut next = 0;
        while let Some(page) = self.dirty.range(next..).next().copied() {
            let run = self.dirty_run(page);
            next = run.end;
            if let Err(error) = self.write_back(run.clone()) {
                // Some of its pages may be writable to the file nevertheless.
                let alone = if run.end - run.start > 1 { run } else { 0..0 };
                alone.for_each(|page| drop(self.write_back(page..page + 1)));
                first_error = first_error.and(Err(error));
            }
        }
        first_error
    }

    /// Like [`Store::write`], but before the acknowledgement [`FileStore::settle`] must be called on a
    /// [`file_reader`](Self::file_reader), without this store's lock.
    ///
    /// # Errors
    /// Like [`Store::write`].
    pub fn write_unsettled(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_of(bytes))?;
        self.note_access(offset_bytes, len_of(bytes));
        match self.write_through {
            true => self.write_to_file(offset_bytes, bytes),
            false => self.write_to_memory(offset_bytes, bytes),
        }
    }

    /// A reader of the file that does not need this store.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the host has no further descriptor.
    pub fn file_reader(&self) -> Result<FileStore, StoreError> {
        self.file.duplicate()
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> OverflowStatistics {
        self.statistics
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.frames.in_use() * FRAME_BYTES + (self.incoming.capacity() + self.outgoing.capacity()) as u64
    }

    /// A run of dirty pages that contains this one.
    fn dirty_run(&self, page: u64) -> Range<u64> {
        let before = self.dirty.range(..page).rev().zip(1..RUN_PAGES / 2);
        let start = before.take_while(|(dirty, back)| **dirty + back == page).last().map_or(page, |(dirty, _)| *dirty);
        let run = self.dirty.range(start..).zip(start..start + RUN_PAGES).take_while(|(dirty, page)| **dirty == *page);
        start..start + run.count() as u64
    }

    /// Writes a run of dirty pages to the file.
    fn write_back(&mut self, run: Range<u64>) -> Result<(), StoreError> {
        self.outgoing.clear();
        for page in run.clone() {
            self.outgoing.extend_from_slice(self.frames.bytes(self.resident[&page]));
        }
        let start_bytes = run.start * PAGE_BYTES;
        let len_bytes = (run.end * PAGE_BYTES).min(self.file.capacity_bytes()) - start_bytes;
        if let Err(error) = self.file.write_unsettled(start_bytes, &self.outgoing[..len_bytes as usize]) {
            self.statistics.write_back_failures += run.end - run.start;
            return Err(error);
        }
        self.statistics.written_back += run.end - run.start;
        for page in run {
            self.dirty.remove(&page);
        }
        Ok(())
    }

    /// An empty frame: a free one, or that of the least recently used page. If that page is dirty and can't be written
    /// back, a clean page is evicted.
    fn make_room(&mut self) -> Result<u32, StoreError> {
        if let Some(frame) = self.frames.take_free() {
            return Ok(frame);
        }
        let mut leaving = self.frames.oldest();
        let page = self.frames.page_of(leaving);
        if self.dirty.contains(&page)
            && let Err(error) = self.write_back(self.dirty_run(page))
        {
            let mut oldest = self.frames.oldest_first().take(CLEAN_SEARCH_PAGES);
            leaving = oldest.find(|frame| !self.dirty.contains(&self.frames.page_of(*frame))).ok_or(error)?;
        }
        self.resident.remove(&self.frames.page_of(leaving));
        self.frames.unlink(leaving);
        self.statistics.evictions += 1;
        Ok(leaving)
    }

    /// The page is in this frame, which was made for it.
    fn hold(&mut self, page: u64, frame: u32, bytes: &[u8]) {
        let len = bytes.len().min(PAGE_BYTES as usize);
        let target = self.frames.bytes_mut(frame);
        target[..len].copy_from_slice(&bytes[..len]);
        target[len..].fill(0);
        self.frames.link(frame, page);
        self.frames.set_backed(frame, false);
        self.resident.insert(page, frame);
    }

    /// Stores a page of the file in memory, if there is room.
    fn keep(&mut self, page: u64, bytes: &[u8]) {
        // The page is in the file, so without room it is read again on demand.
        if let Ok(frame) = self.make_room() {
            self.hold(page, frame, bytes);
        }
    }

    /// Reads pages from the file that are not in memory, and keeps them; `each` sees every one.
    fn load_run(&mut self, pages: Range<u64>, mut each: impl FnMut(u64, &[u8])) -> Result<(), StoreError> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let loaded = self.read_file(&pages, &mut incoming);
        if loaded.is_ok() {
            for (page, bytes) in pages.zip(incoming.chunks(PAGE_BYTES as usize)) {
                each(page, bytes);
                self.keep(page, bytes);
            }
        }
        self.incoming = incoming;
        loaded
    }

    fn read_file(&mut self, pages: &Range<u64>, incoming: &mut Vec<u8>) -> Result<(), StoreError> {
        let start_bytes = pages.start * PAGE_BYTES;
        let len_bytes = (pages.end * PAGE_BYTES).min(self.file.capacity_bytes()) - start_bytes;
        incoming.clear();
        incoming.resize(len_bytes as usize, 0);
        self.file.read(start_bytes, incoming)
    }

    /// The run of absent pages from `first` on, before `end`.
    fn absent_run(&self, first: u64, end: u64) -> Range<u64> {
        let end = end.min(first + RUN_PAGES);
        let absent = (first..end).take_while(|page| !self.resident.contains_key(page)).count() as u64;
        first..first + absent
    }

    /// Notes an access that was made, or will be made once its pages are loaded. The preload follows it.
    pub fn note_access(&mut self, offset_bytes: u64, len_bytes: u64) {
        if let Some(preload) = &mut self.preload
            && len_bytes > 0
        {
            preload.accessed(offset_bytes / PAGE_BYTES);
        }
    }

    /// The file has the bytes before memory has, so that no page is dirty.
    fn write_to_file(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_unsettled(offset_bytes, bytes);
        self.loading.changed_range(pages_of(offset_bytes, len_of(bytes)));
        if written.is_err() {
            // The extent of the failed write is unknown.
            self.forget(pages_of(offset_bytes, len_of(bytes)));
            return written;
        }
        for (page, start, part) in parts(offset_bytes, bytes) {
            if let Some(frame) = self.resident.get(&page).copied() {
                self.statistics.hits += 1;
                self.frames.touch(frame);
                self.frames.bytes_mut(frame)[start..start + part.len()].copy_from_slice(part);
            } else if part.len() == PAGE_BYTES as usize {
                self.keep(page, part);
            }
        }
        Ok(())
    }

    fn write_to_memory(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.reserve(offset_bytes, len_of(bytes))?;
        parts(offset_bytes, bytes).try_for_each(|(page, start, part)| self.write_part(page, start, part))
    }

    /// Whether the file is known to have space for a page.
    fn is_backed(&self, page: u64) -> bool {
        self.resident.get(&page).is_some_and(|frame| self.frames.is_backed(*frame))
    }

    /// Sets the file's space aside for the pages of a range that become dirty, unless they have it.
    fn reserve(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        let mut pages = pages_of(offset_bytes, len_bytes);
        while !pages.is_empty() && self.is_backed(pages.start) {
            pages.start += 1;
        }
        while !pages.is_empty() && self.is_backed(pages.end - 1) {
            pages.end -= 1;
        }
        if pages.is_empty() {
            return Ok(());
        }
        let start_bytes = pages.start * PAGE_BYTES;
        self.file.reserve(start_bytes, (pages.end * PAGE_BYTES).min(self.file.capacity_bytes()) - start_bytes)
    }

    fn write_part(&mut self, page: u64, start: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let frame = match self.resident.get(&page).copied() {
            Some(frame) => {
                self.statistics.hits += 1;
                self.frames.touch(frame);
                frame
            }
            None => self.bring_for_write(page, bytes.len() == PAGE_BYTES as usize)?,
        };
        self.frames.bytes_mut(frame)[start..start + bytes.len()].copy_from_slice(bytes);
        self.frames.set_backed(frame, true);
        self.dirty.insert(page);
        self.loading.changed(page);
        Ok(())
    }

    /// Makes an absent page resident, with its contents unless the write replaces all of them.
    fn bring_for_write(&mut self, page: u64, is_whole: bool) -> Result<u32, StoreError> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let read = match is_whole {
            true => {
                incoming.clear();
                Ok(())
            }
            false => {
                self.statistics.misses += 1;
                self.read_file(&(page..page + 1), &mut incoming)
            }
        };
        let frame = read.and_then(|()| self.make_room());
        if let Ok(frame) = frame {
            self.hold(page, frame, &incoming);
        }
        self.incoming = incoming;
        frame
    }

    /// Zeros of a part of a page, in memory and, if that is where writes go, in the file.
    fn zero_part(&mut self, from: u64, to: u64) -> Result<(), StoreError> {
        const ZEROS: &[u8] = &[0; PAGE_BYTES as usize];
        self.write_to_memory(from, &ZEROS[..(to - from) as usize])
    }

    /// Like [`Store::write_zeroes`], but the caller must settle the file afterwards.
    fn clear_unsettled(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        if self.write_through {
            // The pages come back when they are needed.
            let cleared = self.file.clear_unsettled(offset_bytes, len_bytes);
            self.forget(pages_of(offset_bytes, len_bytes));
            self.loading.changed_range(pages_of(offset_bytes, len_bytes));
            return cleared;
        }
        let end_bytes = offset_bytes + len_bytes;
        let whole = offset_bytes.div_ceil(PAGE_BYTES)..end_bytes / PAGE_BYTES;
        let head_end = end_bytes.min(whole.start * PAGE_BYTES);
        let tail_start = head_end.max(whole.end * PAGE_BYTES);
        for (from, to) in [(offset_bytes, head_end), (tail_start, end_bytes)] {
            if from < to {
                self.zero_part(from, to)?;
            }
        }
        if whole.start < whole.end {
            let cleared = self.file.clear_unsettled(whole.start * PAGE_BYTES, (whole.end - whole.start) * PAGE_BYTES);
            self.loading.changed_range(whole.clone());
            // Dirty pages stay if the file may not contain zeros.
            match cleared.is_ok() {
                true => self.forget(whole),
                false => self.forget_clean(whole),
            }
            return cleared;
        }
        Ok(())
    }

    /// Drops pages, so that the file's contents count.
    fn forget(&mut self, pages: Range<u64>) {
        let written: Vec<u64> = self.dirty.range(pages.clone()).copied().collect();
        written.iter().for_each(|page| {
            self.dirty.remove(page);
        });
        self.forget_clean(pages);
    }

    /// Removes pages from memory that are clean.
    fn forget_clean(&mut self, pages: Range<u64>) {
        // Iterate over the smaller set: the range's pages, or those in memory.
        if pages.end - pages.start <= self.frames.in_use() {
            pages.for_each(|page| self.forget_page(page));
        } else {
            for frame in 0..self.frames.count() {
                if let Some(page) = self.frames.page_if_used(frame)
                    && pages.contains(&page)
                {
                    self.forget_page(page);
                }
            }
        }
    }

    fn forget_page(&mut self, page: u64) {
        if self.dirty.contains(&page) {
            return;
        }
        if let Some(frame) = self.resident.remove(&page) {
            self.frames.unlink(frame);
            self.frames.free(frame);
        }
    }
}

impl Store for OverflowStore {
    fn capacity_bytes(&self) -> u64 {
        self.file.capacity_bytes()
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_of(bytes))?;
        self.note_access(offset_bytes, len_of(bytes));
        let end_bytes = offset_bytes + len_of(bytes);
        let end = end_bytes.div_ceil(PAGE_BYTES);
        let mut page = offset_bytes / PAGE_BYTES;
        // Copies the part of the page that is in the range to its place in the buffer.
        let mut copy = |page: u64, contents: &[u8]| {
            let page_bytes = page * PAGE_BYTES;
            let from = offset_bytes.max(page_bytes);
            let to = end_bytes.min(page_bytes + PAGE_BYTES);
            bytes[(from - offset_bytes) as usize..(to - offset_bytes) as usize]
                .copy_from_slice(&contents[(from - page_bytes) as usize..(to - page_bytes) as usize]);
        };
        while page < end && offset_bytes < end_bytes {
            if let Some(frame) = self.resident.get(&page).copied() {
                self.statistics.hits += 1;
                self.frames.touch(frame);
                copy(page, self.frames.bytes(frame));
                page += 1;
                continue;
            }
            let run = self.absent_run(page, end);
            page = run.end;
            self.statistics.misses += run.end - run.start;
            self.load_run(run, &mut copy)?;
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_unsettled(offset_bytes, bytes)?;
        self.file.settle()
    }

    fn try_read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_of(bytes))?;
        let pages = offset_bytes / PAGE_BYTES..(offset_bytes + len_of(bytes)).div_ceil(PAGE_BYTES);
        if !pages.into_iter().all(|page| self.resident.contains_key(&page)) {
            return Err(StoreError::WouldWait);
        }
        self.note_access(offset_bytes, len_of(bytes));
        self.read_resident(offset_bytes, bytes).map(|_| ())
    }

    fn try_write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_of(bytes))?;
        match self.missing_for_write(offset_bytes, len_of(bytes)) {
            Some(_) => Err(StoreError::WouldWait),
            None => self.write(offset_bytes, bytes),
        }
    }

    fn flush_waits(&self) -> bool {
        self.file.flush_waits()
    }

    fn write_waits(&self) -> bool {
        self.file.write_waits()
    }

    /// Zeroes a range, and sets its whole pages aside in the file.
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear_unsettled(offset_bytes, len_bytes)?;
        let whole = offset_bytes.div_ceil(PAGE_BYTES)..(offset_bytes + len_bytes) / PAGE_BYTES;
        if !whole.is_empty() {
            self.file.reserve(whole.start * PAGE_BYTES, (whole.end - whole.start) * PAGE_BYTES)?;
        }
        self.file.settle()
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear_unsettled(offset_bytes, len_bytes)?;
        self.file.settle()
    }

    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes(), offset_bytes, len_bytes)?;
        let end_bytes = offset_bytes + len_bytes;
        let page = offset_bytes / PAGE_BYTES;
        let run = self.dirty.range(page..).zip(page..).take_while(|(dirty, page)| **dirty == *page).count() as u64;
        if run > 0 {
            let len_bytes = end_bytes.min((page + run) * PAGE_BYTES) - offset_bytes;
            return Ok(Extent { len_bytes, allocated: true });
        }
        let next_dirty_bytes = self.dirty.range(page..).next().map_or(end_bytes, |dirty| dirty * PAGE_BYTES);
        self.file.extent(offset_bytes, end_bytes.min(next_dirty_bytes) - offset_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.write_back_all()?;
        self.file.flush()
    }

    /// Bytes of disk; [`memory_bytes`](OverflowStore::memory_bytes) is bounded by the budget.
    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        self.file.allocated_bytes()
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

impl Drop for OverflowStore {
    fn drop(&mut self) {
        // `drop` can't return an error. A caller that needs it closes the store first.
        let _ = self.write_back_all();
    }
}

/// The pages that a range touches.
fn pages_of(offset_bytes: u64, len_bytes: u64) -> Range<u64> {
    match len_bytes {
        0 => 0..0,
        _ => offset_bytes / PAGE_BYTES..(offset_bytes + len_bytes).div_ceil(PAGE_BYTES),
    }
}

/// The parts of a write: the page, where the part begins in it, and its bytes.
fn parts(offset_bytes: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset_bytes + done as u64;
        let start = (position % PAGE_BYTES) as usize;
        let len = (PAGE_BYTES as usize - start).min(bytes.len() - done);
        let part = &bytes[done..done + len];
        done += len;
        (len > 0).then_some((position / PAGE_BYTES, start, part))
    })
}
