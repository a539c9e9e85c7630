//! The squashing store: blocks, and a classifier that says what becomes of them.

use std::path::Path;

use super::backing::{Backing, ImageFile};
use super::blocks::{Block, Blocks};
use super::content::Content;
use super::ext4::{Ext4, News, Refusal, Verdict};
use super::image::{Sizes, savings};
use super::runs::RunMap;
use super::{Class, ContentKind, SLOT_BYTES, SquashMode, UNIT_BYTES, image_error};
use crate::{Extent, Store, StoreError, check_extent, check_range, len_of};

/// How a squashing store behaves.
#[derive(Clone, Copy, Debug)]
pub struct SquashOptions {
    /// What is kept; an existing image says so itself.
    pub mode: SquashMode,
    /// What dropped blocks read as; an existing image says so itself.
    pub content: ContentKind,
    /// Seed of that; an existing image says so itself.
    pub seed: u64,
    /// Memory for blocks that can't be told apart yet, in bytes; what exceeds it is kept.
    pub unclassified_bytes: u64,
    /// A flush reaches the medium of the host's file system.
    pub durable: bool,
}

impl Default for SquashOptions {
    fn default() -> Self {
        SquashOptions {
            mode: SquashMode::Classified,
            content: ContentKind::Zeros,
            seed: 1,
            unclassified_bytes: UNCLASSIFIED_BYTES_DEFAULT,
            durable: false,
        }
    }
}

/// The most that waited in the original system when it read the journal (section 3.1.2: 240 MB).
const UNCLASSIFIED_BYTES_DEFAULT: u64 = 240 << 20;

/// What a squashing store did, and what it holds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SquashStatistics {
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Bytes of those that were dropped at once.
    pub dropped_bytes: u64,
    /// Bytes that wait to be told apart, now and at most.
    pub waiting_bytes: u64,
    /// See `waiting_bytes`.
    pub waiting_max_bytes: u64,
    /// Bytes that were kept because too many waited, or because a flush must keep what might be metadata.
    pub spilled_bytes: u64,
    /// Bytes of the device that are kept, by class.
    pub kept_bytes: Vec<(Class, u64)>,
    /// Bytes of the device that are made up when they are read.
    pub generated_bytes: u64,
    /// Bytes of the device that were written and are zeros.
    pub zeroed_bytes: u64,
    /// What kept blocks take, with the map of an image.
    pub stored_bytes: u64,
    /// Commits of a journal that were followed.
    pub commits: u64,
    /// Times that all metadata were read.
    pub scans: u64,
    /// Entries of the tables of blocks and of the classifier.
    pub table_entries: u64,
}

impl SquashStatistics {
    /// The share of what a full store would take that this one does not.
    #[must_use]
    pub fn savings(&self) -> Option<f64> {
        let kept: u64 = self.kept_bytes.iter().map(|(_, bytes)| bytes).sum();
        savings(self.stored_bytes, kept + self.generated_bytes)
    }
}

/// Keeps what a classifier calls metadata, and makes up the rest.
///
/// What was kept before a flush survives the end of this process if the store is an image, and a crash
/// of the host if it is durable. Blocks that wait while a journal is followed are contents of files that
/// no committed inode has yet; a flush does not keep them.
#[derive(Debug)]
pub struct SquashStore {
    capacity_bytes: u64,
    mode: SquashMode,
    blocks: Blocks,
    known: Known,
    notices: Vec<String>,
    written_bytes: u64,
    dropped_bytes: u64,
    /// Commits and scans of file systems that are gone.
    commits: u64,
    scans: u64,
    /// Blocks came that a scan might tell apart, since the last one.
    unscanned: bool,
}

/// What is known of what is on the device.
#[derive(Debug)]
enum Known {
    Nothing,
    NotUnderstood,
    Ext4(Box<Ext4>),
}

/// Why all metadata are read again, which says how far they can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// Something is at work, and some of it may not be there yet.
    Work,
    /// A flush while the file system says that it is clean: most likely a tool is done.
    CleanFlush,
    /// A clean file system is about to be mounted, or the device is closed: nothing is on its way.
    Rest,
}

/// Where a file system begins.
const START_BYTES: u64 = 0;

impl SquashStore {
    /// A store in memory that takes at most `budget_bytes`, besides what waits and the tables.
    #[must_use]
    pub fn in_memory(capacity_bytes: u64, budget_bytes: u64, options: &SquashOptions) -> Self {
        let content = Content { kind: options.content, seed: options.seed };
        SquashStore::new(
            capacity_bytes,
            options.mode,
            RunMap::default(),
            Backing::memory(budget_bytes),
            content,
            options,
        )
    }

    /// A new image.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists.
    pub fn create(path: impl AsRef<Path>, capacity_bytes: u64, options: &SquashOptions) -> Result<Self, StoreError> {
        let content = Content { kind: options.content, seed: options.seed };
        let image = ImageFile::create(path.as_ref(), capacity_bytes, content, options.mode, options.durable)?;
        let backing = Backing::File(Box::new(image));
        Ok(SquashStore::new(capacity_bytes, options.mode, RunMap::default(), backing, content, options))
    }

    /// Opens an image of a device of `capacity_bytes`.
    ///
    /// # Errors
    /// [`StoreError::Image`] says what is wrong with it; [`StoreError::InUse`], [`StoreError::Io`].
    pub fn open(path: impl AsRef<Path>, capacity_bytes: u64, options: &SquashOptions) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let (image, header, map) = ImageFile::open(path, true, options.durable)?;
        if header.capacity_bytes != capacity_bytes {
            let held = header.capacity_bytes;
            let reason = format!("the image is of a device of {held} bytes, expected {capacity_bytes}");
            return Err(image_error(path, reason));
        }
        let backing = Backing::File(Box::new(image));
        let mut store = SquashStore::new(capacity_bytes, header.mode, map, backing, header.content, options);
        if store.mode == SquashMode::Classified {
            store.look_for_file_system()?;
            store.rescan(Occasion::Work)?;
        }
        Ok(store)
    }

    fn new(
        capacity_bytes: u64,
        mode: SquashMode,
        map: RunMap<Block>,
        backing: Backing,
        content: Content,
        options: &SquashOptions,
    ) -> Self {
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        SquashStore {
            capacity_bytes,
            mode,
            blocks: Blocks::new(units, map, backing, content, options.unclassified_bytes),
            known: Known::Nothing,
            notices: Vec::new(),
            written_bytes: 0,
            dropped_bytes: 0,
            commits: 0,
            scans: 0,
            unscanned: false,
        }
    }

    /// What was done, and what is held.
    #[must_use]
    pub fn squash_statistics(&self) -> SquashStatistics {
        let sizes = Sizes::of(self.blocks.map());
        let (commits, scans, entries) = match &self.known {
            Known::Ext4(ext4) => (ext4.commits, ext4.scans, ext4.entries()),
            _ => (0, 0, 0),
        };
        SquashStatistics {
            written_bytes: self.written_bytes,
            dropped_bytes: self.dropped_bytes,
            waiting_bytes: self.blocks.waiting_bytes(),
            waiting_max_bytes: self.blocks.waiting_max_bytes,
            spilled_bytes: self.blocks.spilled_bytes,
            kept_bytes: sizes.kept_bytes,
            generated_bytes: sizes.generated_bytes - self.blocks.waiting_bytes(),
            zeroed_bytes: sizes.zeroed_bytes,
            stored_bytes: sizes.stored_bytes + self.blocks.waiting_bytes() + self.blocks.backing().log_bytes(),
            commits: self.commits + commits,
            scans: self.scans + scans,
            table_entries: entries + self.blocks.map().len() as u64,
        }
    }

    /// Writes whole blocks, of which `offset_bytes` and `len_bytes` were asked for.
    fn write_units(&mut self, unit: u64, bytes: &[u8], offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        let end = unit + len_of(bytes) / UNIT_BYTES;
        self.check_room(unit, end, bytes)?;
        let old = match &self.known {
            Known::Ext4(ext4) => ext4.before_write(offset_bytes, len_bytes, &mut self.blocks)?,
            _ => Vec::new(),
        };
        let mut at = unit;
        while at < end {
            let (verdict, run_end) = self.verdict(at, end);
            let part = &bytes[((at - unit) * UNIT_BYTES) as usize..((run_end - unit) * UNIT_BYTES) as usize];
            match verdict {
                Verdict::Keep(class) => self.blocks.keep(at, part, class)?,
                Verdict::Drop => {
                    self.blocks.squash(at, run_end);
                    self.dropped_bytes += len_of(part);
                }
                Verdict::Wait => {
                    self.unscanned = true;
                    self.blocks.wait(at, part)?;
                }
            }
            at = run_end;
        }
        if Ext4::touches_superblock(START_BYTES, offset_bytes, len_bytes) {
            self.superblock_written()?;
        }
        if let Known::Ext4(ext4) = &mut self.known {
            let news = ext4.after_write(offset_bytes, len_bytes, old, &mut self.blocks)?;
            self.act_upon(&news)?;
        }
        let unknown = matches!(&self.known, Known::Ext4(ext4) if ext4.needs_scan());
        if unknown && self.unscanned && self.blocks.waiting_is_half_full() {
            self.rescan(Occasion::Work)?;
        }
        self.blocks.record_if_due()
    }

    /// An error before anything changes, if what must be kept might not find room.
    fn check_room(&self, unit: u64, end: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if self.blocks.has_ample_room(end - unit) {
            return Ok(());
        }
        let mut needed = Vec::new();
        let mut at = unit;
        while at < end {
            let (verdict, run_end) = self.verdict(at, end);
            let part = &bytes[((at - unit) * UNIT_BYTES) as usize..((run_end - unit) * UNIT_BYTES) as usize];
            if verdict != Verdict::Drop {
                needed.push((at, part));
            }
            at = run_end;
        }
        self.blocks.check_room(&needed)
    }

    fn verdict(&self, unit: u64, end: u64) -> (Verdict, u64) {
        match &self.known {
            Known::Nothing => (Verdict::Wait, end),
            Known::NotUnderstood => (Verdict::Keep(Class::Everything), end),
            Known::Ext4(ext4) => ext4.verdict(unit, end, ext4.is_followed()),
        }
    }

    fn superblock_written(&mut self) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &mut self.known else { return self.look_for_file_system() };
        // What came until now was of a file system at rest, and can be told apart for good.
        if ext4.leaves_rest(&mut self.blocks)? && (self.unscanned || ext4.needs_scan()) {
            self.rescan(Occasion::Rest)?;
        }
        let Known::Ext4(ext4) = &mut self.known else { return Ok(()) };
        match ext4.superblock_written(&mut self.blocks)? {
            None => {}
            Some(found) => self.found(found)?,
        }
        Ok(())
    }

    fn look_for_file_system(&mut self) -> Result<(), StoreError> {
        let found = Ext4::find(&mut self.blocks, START_BYTES)?;
        self.found(found)
    }

    fn found(&mut self, found: Result<Ext4, Refusal>) -> Result<(), StoreError> {
        if let Known::Ext4(old) = &self.known {
            self.commits += old.commits;
            self.scans += old.scans;
        }
        self.known = match found {
            Ok(ext4) => {
                if let Some(doubt) = ext4.doubts() {
                    self.notice(format!("the file system is followed only in part: {doubt}"));
                }
                self.unscanned = true;
                Known::Ext4(Box::new(ext4))
            }
            Err(Refusal::Absent) => Known::Nothing,
            Err(Refusal::NotUnderstood(reason)) => {
                self.notice(format!("everything is kept, because the file system is not understood: {reason}"));
                self.blocks.settle_waiting(Class::Everything)?;
                Known::NotUnderstood
            }
        };
        Ok(())
    }

    fn notice(&mut self, notice: String) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Reads all metadata, and settles every block that they tell of.
    fn rescan(&mut self, occasion: Occasion) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &mut self.known else { return Ok(()) };
        let drop_data = ext4.scan(&mut self.blocks, occasion != Occasion::Work)?;
        let guarded = occasion != Occasion::Rest && !ext4.is_followed();
        self.unscanned = false;
        self.apply(0, self.blocks.units(), drop_data, guarded)?;
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        if !drop_data || occasion == Occasion::Work {
            return Ok(());
        }
        for (start, end) in ext4.free_blocks(&mut self.blocks)? {
            let (from, to) = ext4.units_of(start, end);
            for unit in from..to {
                let unused = ext4.verdict(unit, unit + 1, true).0 == Verdict::Wait;
                // What was never known to be anything may be so new that its inode is still on its way.
                if unused && (occasion == Occasion::Rest || self.blocks.is_kept_metadata(unit)) {
                    self.blocks.squash(unit, unit + 1);
                }
            }
        }
        Ok(())
    }

    fn act_upon(&mut self, news: &News) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        if ext4.lost_journal() {
            self.notice("a commit of the journal could not be read; until it is begun anew, more is kept".to_owned());
        }
        if news.scanned {
            return self.apply(0, self.blocks.units(), true, true);
        }
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        let ranges: Vec<_> = news.claimed.all().map(|(start, end, ())| ext4.units_of(start, end)).collect();
        for (start, end, ()) in news.freed.all() {
            let (from, to) = ext4.units_of(start, end);
            // A block smaller than a unit may have neighbours that are not free.
            let unused = (from..to).filter(|&unit| matches!(ext4.verdict(unit, unit + 1, true).0, Verdict::Wait));
            for unit in unused.filter(|&unit| self.blocks.is_kept_metadata(unit)).collect::<Vec<_>>() {
                self.blocks.squash(unit, unit + 1);
            }
        }
        for (from, to) in ranges {
            self.apply(from, to, true, news.guarded)?;
        }
        Ok(())
    }

    /// Acts upon what is known of the blocks between two.
    fn apply(&mut self, start: u64, end: u64, drop_data: bool, guarded: bool) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        let end = end.min(self.blocks.units());
        let mut at = start;
        while at < end {
            let (verdict, run_end) = ext4.verdict(at, end, drop_data);
            match verdict {
                Verdict::Keep(class) => self.blocks.settle(at, run_end, class)?,
                Verdict::Drop => drop_units(ext4, &mut self.blocks, at, run_end, guarded)?,
                Verdict::Wait => {}
            }
            at = run_end;
        }
        Ok(())
    }

    /// Gives a range back, or zeroes it; `whole` does so to whole blocks, and is told of them.
    fn clear(&mut self, offset_bytes: u64, len_bytes: u64, discard: bool) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let end_bytes = offset_bytes + len_bytes;
        let first = offset_bytes.div_ceil(UNIT_BYTES);
        // The last block of the device may be cut off.
        let last = if end_bytes == self.capacity_bytes { self.blocks.units() } else { end_bytes / UNIT_BYTES };
        if first >= last {
            return self.write(offset_bytes, &vec![0; len_bytes as usize]);
        }
        if offset_bytes < first * UNIT_BYTES {
            self.write(offset_bytes, &vec![0; (first * UNIT_BYTES - offset_bytes) as usize])?;
        }
        if discard {
            self.blocks.forget(first, last);
        } else {
            self.blocks.zero(first, last);
        }
        if last * UNIT_BYTES < end_bytes {
            self.write(last * UNIT_BYTES, &vec![0; (end_bytes - last * UNIT_BYTES) as usize])?;
        }
        if let Known::Ext4(ext4) = &mut self.known {
            if discard {
                ext4.discarded(offset_bytes, len_bytes);
            } else {
                ext4.zeroed(offset_bytes, len_bytes);
            }
        }
        if Ext4::touches_superblock(START_BYTES, offset_bytes, len_bytes) {
            self.superblock_written()?;
        }
        self.blocks.record_if_due()
    }
}

/// Drops what is stored of the blocks between two, but for what looks like metadata: all of that if
/// `guarded`, else what was kept as metadata before.
fn drop_units(ext4: &Ext4, blocks: &mut Blocks, start: u64, end: u64, guarded: bool) -> Result<(), StoreError> {
    let mut bytes = [0; UNIT_BYTES as usize];
    let mut dropped = RunMap::<()>::default();
    for (from, to) in blocks.stored_pieces(start, end) {
        for unit in from..to {
            if guarded || blocks.is_kept_metadata(unit) {
                blocks.read(unit * UNIT_BYTES, &mut bytes)?;
                if ext4.looks_like_metadata(&bytes, guarded) {
                    continue;
                }
            }
            dropped.set(unit, unit + 1, ());
        }
    }
    for (from, to, ()) in dropped.all() {
        blocks.squash(from, to);
    }
    Ok(())
}

impl Store for SquashStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        self.blocks.read(offset_bytes, bytes).map(drop)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.written_bytes += len_of(bytes);
        let (unit, skip) = (offset_bytes / UNIT_BYTES, (offset_bytes % UNIT_BYTES) as usize);
        let end = (offset_bytes + len_of(bytes)).div_ceil(UNIT_BYTES);
        let whole: Vec<u8>;
        let units = if skip == 0 && len_of(bytes).is_multiple_of(UNIT_BYTES) {
            bytes
        } else {
            let mut around = vec![0; ((end - unit) * UNIT_BYTES) as usize];
            self.blocks.read(unit * UNIT_BYTES, &mut around)?;
            around[skip..skip + bytes.len()].copy_from_slice(bytes);
            whole = around;
            &whole
        };
        if self.mode == SquashMode::Exact {
            self.blocks.check_room(&[(unit, units)])?;
            self.blocks.keep_packed(unit, units, Class::Exact)?;
            return self.blocks.record_if_due();
        }
        self.write_units(unit, units, offset_bytes, len_of(bytes))
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(offset_bytes, len_bytes, false)
    }

    /// Zeros take no space until they are overwritten, and whether the budget has room then is not known.
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(offset_bytes, len_bytes, false)
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(offset_bytes, len_bytes, true)
    }

    /// What is made up counts as taking space, because it does not read as zeros.
    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes, offset_bytes, len_bytes)?;
        let (unit, limit) = (offset_bytes / UNIT_BYTES, (offset_bytes + len_bytes).div_ceil(UNIT_BYTES));
        let (block, end) = self.blocks.map().at(unit, limit);
        let allocated = !matches!(block, None | Some(Block::Zeroed));
        Ok(Extent { len_bytes: (end * UNIT_BYTES - offset_bytes).min(len_bytes), allocated })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if let Known::Ext4(ext4) = &self.known
            && self.unscanned
            && (ext4.needs_scan() || ext4.is_clean())
        {
            let occasion = if ext4.is_clean() { Occasion::CleanFlush } else { Occasion::Work };
            self.rescan(occasion)?;
        }
        // What waits while a journal is followed is no metadata; else it might be, and was promised.
        if !matches!(&self.known, Known::Ext4(ext4) if ext4.is_followed()) {
            self.blocks.spill()?;
        }
        self.blocks.record()
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        let blocks = &self.blocks;
        Ok(blocks.backing().used() * SLOT_BYTES + blocks.waiting_bytes() + blocks.backing().log_bytes())
    }

    fn budget_bytes(&self) -> Option<u64> {
        self.blocks.backing().budget_bytes().map(|bytes| bytes + self.blocks.waiting_budget_bytes())
    }

    /// What a clean file system does not need is dropped, the rest is safe.
    fn close(&mut self) -> Result<(), StoreError> {
        if matches!(&self.known, Known::Ext4(ext4) if ext4.is_clean()) && self.blocks.has_unclassified() {
            self.rescan(Occasion::Rest)?;
        }
        self.flush()
    }

    fn statistics(&self) -> Vec<(String, f64)> {
        let statistics = self.squash_statistics();
        let mut named: Vec<(String, f64)> = [
            ("written [bytes]", statistics.written_bytes),
            ("dropped-at-once [bytes]", statistics.dropped_bytes),
            ("waiting [bytes]", statistics.waiting_bytes),
            ("waiting-max [bytes]", statistics.waiting_max_bytes),
            ("spilled [bytes]", statistics.spilled_bytes),
            ("generated [bytes]", statistics.generated_bytes),
            ("zeroed [bytes]", statistics.zeroed_bytes),
            ("stored [bytes]", statistics.stored_bytes),
            ("commits", statistics.commits),
            ("scans", statistics.scans),
            ("table-entries", statistics.table_entries),
        ]
        .map(|(name, value)| (format!("squash-{name}"), value as f64))
        .into();
        let kept = statistics.kept_bytes.iter();
        named.extend(kept.map(|(class, bytes)| (format!("squash-kept-{} [bytes]", class.name()), *bytes as f64)));
        named.extend(statistics.savings().map(|share| ("squash-savings [share]".to_owned(), share)));
        named
    }

    fn notices(&self) -> Vec<String> {
        let mut notices = self.notices.clone();
        let nothing = matches!(self.known, Known::Nothing) && self.mode == SquashMode::Classified;
        if nothing && self.written_bytes > 0 {
            notices.push("everything is kept, because there is no file system that is known".to_owned());
        }
        notices
    }
}

impl Drop for SquashStore {
    /// What was written stays written, as in any file; who wants to know of errors closes it before.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
