//! Memory with a budget in front of a file.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::loading::Loading;
use crate::preload::{AccessList, Preload};
use crate::{Extent, FileStore, Store, StoreError, check_extent, check_range, len_of};

/// Keeps what was used last in memory, and everything in a file.
///
/// The memory holds pages of [`PAGE_BYTES`] in the order of their last use (LRU). A page that was
/// written stays in memory alone until it has to make room, until its neighbours are written back,
/// or until a flush; then it goes to the file together with the written pages around it. So what
/// was flushed is in the file and survives the end of this process, and a crash of the host, too,
/// if the file is durable. What was not flushed may be lost, as in a device with a volatile cache;
/// an orderly end writes it back.
///
/// Memory never exceeds the budget by more than [`OVERHEAD_BYTES`].
///
/// With an [`AccessList`] of an earlier run it also says which pages will be needed next, see
/// [`next_preload`](Self::next_preload).
#[derive(Debug)]
pub struct OverflowStore {
    file: FileStore,
    frames: Frames,
    /// Only ever looked up, never iterated.
    resident: HashMap<u64, u32>,
    dirty: BTreeSet<u64>,
    /// Pages on their way from the file and to it; reused, so that the steady state allocates
    /// nothing.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    preload: Option<Preload>,
    loading: Loading,
    statistics: OverflowStatistics,
}

/// Unit in which the contents come and go.
pub const PAGE_BYTES: u64 = 4096;
/// What a page in memory takes at most, with its share of the tables.
pub const FRAME_BYTES: u64 = PAGE_BYTES + 128;
/// What is used whatever the budget: runs of pages on their way, and the fewest pages that make
/// sense.
pub const OVERHEAD_BYTES: u64 = 2 * RUN_PAGES * PAGE_BYTES + FRAMES_MIN as u64 * FRAME_BYTES + CHUNK_BYTES as u64;

/// Most pages that are read or written with one system call.
const RUN_PAGES: u64 = 64;
/// Fewest pages in memory.
const FRAMES_MIN: u32 = 64;
/// Memory is taken in pieces of this size as it is needed.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_FRAMES: u32 = (CHUNK_BYTES / PAGE_BYTES as usize) as u32;

/// What an overflow store did.
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
    /// Pages that were brought in ahead of their use.
    pub preloaded: u64,
}

impl OverflowStore {
    /// Memory of `budget_bytes` in front of `file`.
    #[must_use]
    pub fn new(file: FileStore, budget_bytes: u64) -> Self {
        let count = u32::try_from(budget_bytes / FRAME_BYTES).unwrap_or(u32::MAX - 1).max(FRAMES_MIN);
        OverflowStore {
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

    /// Expects the accesses of an earlier run again, and preloads what they need.
    pub fn set_preload(&mut self, accesses: AccessList) {
        self.preload = Some(Preload::new(accesses, u64::from(self.frames.count_max) / 2));
    }

    /// The next page that should be brought in ahead of its use, if there is one within the half
    /// of the memory: read it from the [`file_reader`](Self::file_reader), without this store in
    /// hand, and give it to [`finish_load`](Self::finish_load).
    pub fn next_preload(&mut self) -> Option<u64> {
        let preload = self.preload.as_mut()?;
        while let Some(page) = preload.next() {
            match self.resident.get(&page) {
                // It will be needed soon and must not make room until then.
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
    ///
    /// # Errors
    /// [`StoreError::Io`] if a page that makes room can't be written back.
    pub fn finish_preload(&mut self, page: u64, bytes: Option<&[u8]>) -> Result<(), StoreError> {
        if self.finish_load(page, bytes)? {
            self.statistics.preloaded += 1;
        }
        Ok(())
    }

    /// Copies what is in memory from `offset_bytes` on, up to the first page that is not; tells how
    /// many bytes those are.
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

    /// The first pages of a range, as many as come together, that are absent: the caller reads them
    /// from the [`file_reader`](Self::file_reader), without this store in hand, and
    /// [finishes](Self::finish_load) each. Empty if none is absent.
    pub fn begin_load(&mut self, offset_bytes: u64, len_bytes: u64) -> Range<u64> {
        let end = (offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
        let first = (offset_bytes / PAGE_BYTES..end).find(|page| !self.resident.contains_key(page)).unwrap_or(end);
        let run = self.absent_run(first, end);
        self.statistics.misses += run.end - run.start;
        run.clone().for_each(|page| self.loading.begin(page));
        run
    }

    /// A page on its way was read, or could not be. Keeps it unless it came or changed meanwhile;
    /// tells whether the bytes are what the device has there.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a page that makes room can't be written back.
    pub fn finish_load(&mut self, page: u64, bytes: Option<&[u8]>) -> Result<bool, StoreError> {
        let valid = self.loading.finish(page);
        let Some(bytes) = bytes.filter(|_| valid && !self.resident.contains_key(&page)) else { return Ok(false) };
        let frame = self.make_resident(page)?;
        let len = bytes.len().min(PAGE_BYTES as usize);
        let target = self.frames.bytes_mut(frame);
        target[..len].copy_from_slice(&bytes[..len]);
        target[len..].fill(0);
        Ok(true)
    }

    /// A page of which a write to this range needs the rest, because it covers it in part only,
    /// and which is not in memory.
    #[must_use]
    pub fn missing_for_write(&self, offset_bytes: u64, len_bytes: u64) -> Option<u64> {
        let end_bytes = offset_bytes + len_bytes;
        let ends = [(offset_bytes, offset_bytes / PAGE_BYTES), (end_bytes, end_bytes / PAGE_BYTES)];
        let partial = ends.into_iter().filter(|(bytes, _)| len_bytes > 0 && !bytes.is_multiple_of(PAGE_BYTES));
        partial.map(|(_, page)| page).find(|page| !self.resident.contains_key(page))
    }

    /// Writes everything to the file that is in memory alone.
    ///
    /// # Errors
    /// [`StoreError::Io`]; what could not be written stays in memory.
    pub fn write_back_all(&mut self) -> Result<(), StoreError> {
        while let Some(first) = self.dirty.first().copied() {
            self.write_back_around(first)?;
        }
        Ok(())
    }

    /// Reads the file without this store.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the host gives no further descriptor.
    pub fn file_reader(&self) -> Result<FileStore, StoreError> {
        self.file.duplicate()
    }

    /// What was done so far.
    #[must_use]
    pub fn statistics(&self) -> OverflowStatistics {
        self.statistics
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.frames.in_use() * FRAME_BYTES + (self.incoming.capacity() + self.outgoing.capacity()) as u64
    }

    /// Writes a run of written pages that contains this one to the file.
    fn write_back_around(&mut self, page: u64) -> Result<(), StoreError> {
        let before = self.dirty.range(..page).rev().zip(1..RUN_PAGES / 2);
        let start = before.take_while(|(dirty, back)| **dirty + back == page).last().map_or(page, |(dirty, _)| *dirty);
        let run = self.dirty.range(start..).zip(start..start + RUN_PAGES).take_while(|(dirty, page)| **dirty == *page);
        let end = start + run.count() as u64;
        self.outgoing.clear();
        for page in start..end {
            self.outgoing.extend_from_slice(self.frames.bytes(self.resident[&page]));
        }
        let len_bytes = (end * PAGE_BYTES).min(self.file.capacity_bytes()) - start * PAGE_BYTES;
        self.file.write(start * PAGE_BYTES, &self.outgoing[..len_bytes as usize])?;
        for page in start..end {
            self.dirty.remove(&page);
        }
        self.statistics.written_back += end - start;
        Ok(())
    }

    /// A frame for a page that has none; its contents are anything.
    fn make_resident(&mut self, page: u64) -> Result<u32, StoreError> {
        let frame = match self.frames.take_free() {
            Some(frame) => frame,
            None => {
                let oldest = self.frames.oldest();
                let leaving = self.frames.page_of(oldest);
                if self.dirty.contains(&leaving) {
                    self.write_back_around(leaving)?;
                }
                self.resident.remove(&leaving);
                self.frames.unlink(oldest);
                self.statistics.evictions += 1;
                oldest
            }
        };
        self.frames.link(frame, page);
        self.resident.insert(page, frame);
        Ok(frame)
    }

    /// Reads pages from the file that are not in memory, and keeps them; `each` sees every one.
    fn load_run(&mut self, pages: Range<u64>, mut each: impl FnMut(u64, &[u8])) -> Result<(), StoreError> {
        let start_bytes = pages.start * PAGE_BYTES;
        let len_bytes = (pages.end * PAGE_BYTES).min(self.file.capacity_bytes()) - start_bytes;
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.clear();
        incoming.resize(len_bytes as usize, 0);
        let loaded = self.file.read(start_bytes, &mut incoming).and_then(|()| {
            for (page, bytes) in pages.zip(incoming.chunks(PAGE_BYTES as usize)) {
                each(page, bytes);
                let frame = self.make_resident(page)?;
                let target = self.frames.bytes_mut(frame);
                target[..bytes.len()].copy_from_slice(bytes);
                target[bytes.len()..].fill(0);
            }
            Ok(())
        });
        self.incoming = incoming;
        loaded
    }

    /// The run of absent pages from `first` on, before `end`.
    fn absent_run(&self, first: u64, end: u64) -> Range<u64> {
        let end = end.min(first + RUN_PAGES);
        let absent = (first..end).take_while(|page| !self.resident.contains_key(page)).count() as u64;
        first..first + absent
    }

    /// Something was read or written, or will be when it was fetched: the preload follows.
    pub fn note_access(&mut self, offset_bytes: u64, len_bytes: u64) {
        if let Some(preload) = &mut self.preload
            && len_bytes > 0
        {
            preload.accessed(offset_bytes / PAGE_BYTES);
        }
    }

    /// The page's contents are no longer what the file says.
    fn note_change(&mut self, page: u64) {
        self.loading.changed(page);
    }

    fn write_part(&mut self, page: u64, start: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let frame = match self.resident.get(&page).copied() {
            Some(frame) => {
                self.statistics.hits += 1;
                self.frames.touch(frame);
                frame
            }
            None if bytes.len() == PAGE_BYTES as usize => self.make_resident(page)?,
            None => {
                self.statistics.misses += 1;
                self.load_run(page..page + 1, |_, _| {})?;
                self.resident[&page]
            }
        };
        self.frames.bytes_mut(frame)[start..start + bytes.len()].copy_from_slice(bytes);
        self.dirty.insert(page);
        self.note_change(page);
        Ok(())
    }

    /// Forgets pages that the file will say are zero.
    fn forget(&mut self, pages: Range<u64>) {
        let written: Vec<u64> = self.dirty.range(pages.clone()).copied().collect();
        written.iter().for_each(|page| {
            self.dirty.remove(page);
        });
        // Whichever is fewer: the pages of the range, or those in memory.
        if pages.end - pages.start <= self.frames.in_use() {
            pages.for_each(|page| self.forget_page(page));
        } else {
            for frame in 0..self.frames.pages.len() as u32 {
                if let Some(page) = self.frames.page_if_used(frame)
                    && pages.contains(&page)
                {
                    self.forget_page(page);
                }
            }
        }
    }

    fn forget_page(&mut self, page: u64) {
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
        // The part of the page that is in the range goes to its place in the buffer.
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
        check_range(self.capacity_bytes(), offset_bytes, len_of(bytes))?;
        self.note_access(offset_bytes, len_of(bytes));
        let mut done = 0;
        while done < bytes.len() {
            let position = offset_bytes + done as u64;
            let start = (position % PAGE_BYTES) as usize;
            let len = (PAGE_BYTES as usize - start).min(bytes.len() - done);
            self.write_part(position / PAGE_BYTES, start, &bytes[done..done + len])?;
            done += len;
        }
        Ok(())
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

    /// Whole pages are set aside in the file.
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.write_zeroes(offset_bytes, len_bytes)?;
        let whole = offset_bytes.div_ceil(PAGE_BYTES)..(offset_bytes + len_bytes) / PAGE_BYTES;
        match whole.is_empty() {
            true => Ok(()),
            false => self.file.reserve_zeroes(whole.start * PAGE_BYTES, (whole.end - whole.start) * PAGE_BYTES),
        }
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes(), offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let end_bytes = offset_bytes + len_bytes;
        let whole = offset_bytes.div_ceil(PAGE_BYTES)..end_bytes / PAGE_BYTES;
        let head_end = end_bytes.min(whole.start * PAGE_BYTES);
        let tail_start = head_end.max(whole.end * PAGE_BYTES);
        const ZEROS: &[u8] = &[0; PAGE_BYTES as usize];
        for (from, to) in [(offset_bytes, head_end), (tail_start, end_bytes)] {
            if from < to {
                self.write_part(from / PAGE_BYTES, (from % PAGE_BYTES) as usize, &ZEROS[..(to - from) as usize])?;
            }
        }
        if whole.start < whole.end {
            self.file.write_zeroes(whole.start * PAGE_BYTES, (whole.end - whole.start) * PAGE_BYTES)?;
            self.forget(whole.clone());
            self.loading.changed_range(whole);
        }
        Ok(())
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
        // Nobody is there to be told; who wants to know flushes first.
        let _ = self.write_back_all();
    }
}

/// The pages in memory, in the order of their last use.
#[derive(Debug)]
struct Frames {
    count_max: u32,
    chunks: Vec<Box<[u8]>>,
    /// The page of each frame; [`NO_PAGE`] where the frame is free.
    pages: Vec<u64>,
    newer: Vec<u32>,
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
    free: Vec<u32>,
}

const NO_FRAME: u32 = u32::MAX;
const NO_PAGE: u64 = u64::MAX;

impl Frames {
    fn new(count_max: u32) -> Self {
        Frames {
            count_max,
            chunks: Vec::new(),
            pages: Vec::new(),
            newer: Vec::new(),
            older: Vec::new(),
            newest: NO_FRAME,
            oldest: NO_FRAME,
            free: Vec::new(),
        }
    }

    fn in_use(&self) -> u64 {
        (self.pages.len() - self.free.len()) as u64
    }

    fn bytes(&self, frame: u32) -> &[u8] {
        let start = (frame % CHUNK_FRAMES) as usize * PAGE_BYTES as usize;
        &self.chunks[(frame / CHUNK_FRAMES) as usize][start..start + PAGE_BYTES as usize]
    }

    fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        let start = (frame % CHUNK_FRAMES) as usize * PAGE_BYTES as usize;
        &mut self.chunks[(frame / CHUNK_FRAMES) as usize][start..start + PAGE_BYTES as usize]
    }

    /// A frame that holds nothing, as long as there may be more of them.
    fn take_free(&mut self) -> Option<u32> {
        if let Some(frame) = self.free.pop() {
            return Some(frame);
        }
        let frame = self.pages.len() as u32;
        if frame >= self.count_max {
            return None;
        }
        if frame.is_multiple_of(CHUNK_FRAMES) {
            let frames = CHUNK_FRAMES.min(self.count_max - frame) as usize;
            self.chunks.push(vec![0; frames * PAGE_BYTES as usize].into_boxed_slice());
        }
        self.pages.push(NO_PAGE);
        self.newer.push(NO_FRAME);
        self.older.push(NO_FRAME);
        Some(frame)
    }

    fn page_of(&self, frame: u32) -> u64 {
        self.pages[frame as usize]
    }

    fn page_if_used(&self, frame: u32) -> Option<u64> {
        Some(self.pages[frame as usize]).filter(|page| *page != NO_PAGE)
    }

    fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The frame holds this page, the newest.
    fn link(&mut self, frame: u32, page: u64) {
        self.pages[frame as usize] = page;
        self.newer[frame as usize] = NO_FRAME;
        self.older[frame as usize] = self.newest;
        match self.newest {
            NO_FRAME => self.oldest = frame,
            newest => self.newer[newest as usize] = frame,
        }
        self.newest = frame;
    }

    /// The frame holds nothing.
    fn unlink(&mut self, frame: u32) {
        let (newer, older) = (self.newer[frame as usize], self.older[frame as usize]);
        match newer {
            NO_FRAME => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NO_FRAME => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        self.pages[frame as usize] = NO_PAGE;
    }

    fn free(&mut self, frame: u32) {
        self.free.push(frame);
    }

    fn touch(&mut self, frame: u32) {
        if self.newest == frame {
            return;
        }
        let page = self.page_of(frame);
        self.unlink(frame);
        self.link(frame, page);
    }
}
