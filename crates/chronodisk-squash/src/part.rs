//! A part of the device that may hold a file system: all of it, a partition, or a logical volume.

use std::sync::Arc;

use chronodisk_store::StoreError;

use super::blocks::Blocks;
use super::btrfs::Btrfs;
use super::ext4::{Ext4, News};
use super::names::NameRule;
use super::notes::Notes;
use super::runs::RunMap;
use super::volume::{Lens, Volume};
use super::xfs::Xfs;
use super::{Class, UNIT_BYTES};
use crate::len_of;

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep(Class),
    Drop,
    Wait,
}

/// Why a superblock can't be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is none.
    Absent,
    /// There is one that is not understood.
    NotUnderstood(String),
}

/// What is known of what is in a part.
#[derive(Debug)]
enum Known {
    Nothing,
    NotUnderstood,
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
    Btrfs(Box<Btrfs>),
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

/// Blocks in a row of which the same becomes: the first, the one behind the last, and what.
pub(crate) type Judged = (u64, u64, Verdict);

/// Whatever part of it a superblock of a known kind may take, counted from a part's beginning.
const SUPERBLOCK_BYTES: u64 = 4096;

/// A volume, and what is known of the file system in it. Addresses are the volume's: [`Part::lens`] says where its
/// blocks lie, if they lie elsewhere on the device.
#[derive(Debug)]
pub(crate) struct Part {
    volume: Volume,
    lens: Option<Arc<Lens>>,
    start_bytes: u64,
    end_bytes: u64,
    /// The blocks that begin in it; what the last one holds of another part is beyond the file system's end.
    start: u64,
    end: u64,
    known: Known,
    /// Not understood because of what lies beside it.
    given_up: bool,
    ignore_journal: bool,
    names: Arc<[NameRule]>,
    /// Blocks came that a scan might tell apart, since the last one.
    unscanned: bool,
    /// Commits and scans of file systems that are gone, and units of theirs that were squashed before their names
    /// were known.
    commits: u64,
    scans: u64,
    late_units: u64,
    notices: Vec<String>,
}

impl Part {
    /// A volume of which nothing is known; a journal there is not read if `ignore_journal`, and `names` say which files
    /// are treated in another way.
    pub(crate) fn new(volume: Volume, ignore_journal: bool, names: &Arc<[NameRule]>) -> Self {
        let (start_bytes, end_bytes) = volume.bounds();
        Part {
            lens: volume.lens(),
            volume,
            start_bytes,
            end_bytes,
            start: start_bytes.div_ceil(UNIT_BYTES),
            end: end_bytes.div_ceil(UNIT_BYTES),
            known: Known::Nothing,
            given_up: false,
            ignore_journal,
            names: Arc::clone(names),
            unscanned: false,
            commits: 0,
            scans: 0,
            late_units: 0,
            notices: Vec::new(),
        }
    }

    /// Where it lies.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// What [`Blocks`] must be looked at through while it is at work.
    pub(crate) fn lens(&self) -> Option<Arc<Lens>> {
        self.lens.clone()
    }

    /// Its first block.
    pub(crate) fn first_unit(&self) -> u64 {
        self.start
    }

    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Whether there is no file system that is known, understood or not.
    pub(crate) fn knows_nothing(&self) -> bool {
        matches!(self.known, Known::Nothing)
    }

    /// Commits that were followed, scans, and entries in tables.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let (commits, scans, entries) = match &self.known {
            Known::Ext4(ext4) => (ext4.commits, ext4.scans, ext4.entries()),
            Known::Btrfs(btrfs) => (btrfs.commits, 0, btrfs.entries()),
            Known::Xfs(xfs) => (xfs.commits(), 0, xfs.entries()),
            _ => (0, 0, 0),
        };
        (self.commits + commits, self.scans + scans, entries)
    }

    /// Units of files to be kept that were squashed before their names were known.
    pub(crate) fn late_units(&self) -> u64 {
        match &self.known {
            Known::Ext4(ext4) => self.late_units + ext4.late_units(),
            Known::Btrfs(btrfs) => self.late_units + btrfs.late_units(),
            Known::Xfs(xfs) => self.late_units + xfs.late_units(),
            _ => self.late_units,
        }
    }

    /// Memory in bytes: that of the classifier, and that of the journal's reader.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        match &self.known {
            Known::Ext4(ext4) => ext4.memory_bytes(),
            Known::Btrfs(btrfs) => (btrfs.memory_bytes(), 0),
            Known::Xfs(xfs) => xfs.memory_bytes(),
            Known::Nothing | Known::NotUnderstood => (0, 0),
        }
    }

    /// Looks for a file system, and reads all of it.
    pub(crate) fn open(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.look(blocks)?;
        self.rescan(Occasion::Work, blocks)
    }

    /// Looks for a file system where a volume has just been found, and reads all of one that is mounted there already,
    /// as on a volume that grows. Others are read at the next flush, when their tool is done.
    pub(crate) fn begin(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.look(blocks)?;
        match &self.known {
            Known::Ext4(ext4) if !ext4.is_clean() => self.rescan(Occasion::Work, blocks),
            _ => Ok(()),
        }
    }

    /// What becomes of whole blocks from `unit` on.
    pub(crate) fn judge(&self, unit: u64, bytes: &[u8]) -> Vec<Judged> {
        let end = unit + len_of(bytes) / UNIT_BYTES;
        let mut judged: Vec<Judged> = Vec::new();
        let mut at = unit;
        while at < end {
            let from = ((at - unit) * UNIT_BYTES) as usize;
            let (verdict, run_end) = match &self.known {
                Known::Nothing => (Verdict::Wait, end),
                Known::NotUnderstood => (Verdict::Keep(Class::Everything), end),
                Known::Ext4(ext4) => ext4.verdict(at, end, ext4.is_followed()),
                Known::Xfs(xfs) => (xfs.verdict(at, &bytes[from..from + UNIT_BYTES as usize]), at + 1),
                Known::Btrfs(btrfs) => btrfs.verdict(at, &bytes[from..]),
            };
            match judged.last_mut() {
                Some((_, last_end, last)) if *last == verdict => *last_end = run_end,
                _ => judged.push((at, run_end, verdict)),
            }
            at = run_end;
        }
        judged
    }

    /// Writes whole blocks, of which `offset_bytes` and `len_bytes` were asked for. Returns how many bytes were
    /// dropped.
    pub(crate) fn write(
        &mut self,
        unit: u64,
        bytes: &[u8],
        offset_bytes: u64,
        len_bytes: u64,
        blocks: &mut Blocks,
        notes: Option<&mut Notes>,
    ) -> Result<u64, StoreError> {
        let old = match &self.known {
            Known::Ext4(ext4) => ext4.before_write(offset_bytes, len_bytes, blocks)?,
            _ => Vec::new(),
        };
        let mut dropped_bytes = 0;
        let mut judged = self.judge(unit, bytes);
        if let Some(notes) = notes {
            judged = notes.hear(unit, bytes, judged);
        }
        let before = match &self.known {
            Known::Xfs(xfs) => xfs.before_write(unit, bytes, &judged, blocks)?,
            _ => Vec::new(),
        };
        for &(from, to, verdict) in &judged {
            let part = &bytes[((from - unit) * UNIT_BYTES) as usize..((to - unit) * UNIT_BYTES) as usize];
            match verdict {
                Verdict::Keep(class) => blocks.keep(from, part, class)?,
                Verdict::Drop => {
                    blocks.squash(from, to);
                    dropped_bytes += len_of(part);
                }
                Verdict::Wait => {
                    self.unscanned = true;
                    // What a tool that makes a file system writes before its superblock are metadata, most likely.
                    blocks.wait(from, part, matches!(self.known, Known::Nothing))?;
                }
            }
        }
        if let Known::Btrfs(btrfs) = &mut self.known {
            btrfs.written(unit, bytes, &judged);
            btrfs.look_at(unit, bytes, blocks)?;
        }
        if let Known::Xfs(xfs) = &mut self.known {
            xfs.written(unit, bytes, &before, &judged, blocks)?;
        }
        self.superblock_touched(offset_bytes, len_bytes, blocks)?;
        self.notice_doubts();
        if let Known::Ext4(ext4) = &mut self.known {
            let news = ext4.after_write(offset_bytes, len_bytes, old, blocks)?;
            self.act_upon(&news, blocks)?;
        }
        let unknown = matches!(&self.known, Known::Ext4(ext4) if ext4.needs_scan());
        if unknown && self.unscanned && blocks.waiting_is_half_full() {
            self.rescan(Occasion::Work, blocks)?;
        }
        Ok(dropped_bytes)
    }

    /// A range was given back, or zeroed.
    pub(crate) fn cleared(
        &mut self,
        offset_bytes: u64,
        len_bytes: u64,
        discard: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        if let Known::Ext4(ext4) = &mut self.known {
            if discard {
                ext4.discarded(offset_bytes, len_bytes);
            } else {
                ext4.zeroed(offset_bytes, len_bytes);
            }
        }
        if let Known::Btrfs(btrfs) = &mut self.known {
            btrfs.cleared(offset_bytes, len_bytes);
        }
        if let Known::Xfs(xfs) = &mut self.known {
            xfs.cleared(offset_bytes, len_bytes, discard);
        }
        self.superblock_touched(offset_bytes, len_bytes, blocks)
    }

    /// Gives what was made up in blocks between two the form that the file system checks it for; `bytes` are those of
    /// the device from `offset_bytes` on.
    pub(crate) fn correct(
        &mut self,
        (start, end): (u64, u64),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        match &mut self.known {
            Known::Btrfs(btrfs) => btrfs.correct((start, end), offset_bytes, bytes, blocks),
            Known::Ext4(ext4) => {
                ext4.correct((start, end), offset_bytes, bytes, blocks);
                Ok(())
            }
            Known::Xfs(xfs) => xfs.correct((start, end), offset_bytes, bytes, blocks),
            _ => Ok(()),
        }
    }

    /// Keeps what a flush promises.
    pub(crate) fn flush(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if let Known::Ext4(ext4) = &self.known
            && self.unscanned
            && (ext4.needs_scan() || ext4.is_clean())
        {
            // Names that a tool has not written yet must not be missed.
            let done = ext4.is_clean() && !ext4.goes_by_names();
            let occasion = if done { Occasion::CleanFlush } else { Occasion::Work };
            self.rescan(occasion, blocks)?;
        }
        // What waits while a journal is followed is no metadata; else it might be, and was promised.
        if matches!(&self.known, Known::Ext4(ext4) if ext4.is_followed()) {
            return Ok(());
        }
        if matches!(&self.known, Known::Xfs(xfs) if xfs.keep_committed(blocks)?) {
            return Ok(());
        }
        if let Known::Btrfs(btrfs) = &mut self.known
            && btrfs.is_unsettled()
            && let Err(refusal) = btrfs.read_layout(blocks)?
        {
            self.found(Err(refusal), blocks)?;
        }
        self.notice_doubts();
        blocks.spill(self.start, self.end)
    }

    /// Keeps what a device without a volatile cache promises after each write: what waits and might be metadata.
    pub(crate) fn keep_doubtful(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        match &self.known {
            Known::Ext4(ext4) if ext4.is_followed() => Ok(()),
            Known::Xfs(xfs) if xfs.keep_committed(blocks)? => Ok(()),
            _ => blocks.spill(self.start, self.end),
        }
    }

    /// Nothing is on its way any more: drops what a clean file system does not need.
    pub(crate) fn close(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if matches!(&self.known, Known::Ext4(ext4) if ext4.is_clean()) && blocks.has_unclassified(self.start, self.end)
        {
            self.rescan(Occasion::Rest, blocks)?;
        }
        match &mut self.known {
            Known::Btrfs(btrfs) => btrfs.close(blocks),
            Known::Xfs(xfs) => xfs.close(self.end, blocks),
            _ => Ok(()),
        }
    }

    /// From now on everything is kept.
    pub(crate) fn give_up(&mut self, reason: &str, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.given_up = true;
        self.found(Err(Refusal::NotUnderstood(reason.to_owned())), blocks)
    }

    /// The reason to give it up, if it was, is gone.
    pub(crate) fn reconsider(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if std::mem::take(&mut self.given_up) { self.look(blocks) } else { Ok(()) }
    }

    /// A range was written or cleared: perhaps the superblock is another one now.
    fn superblock_touched(&mut self, offset_bytes: u64, len_bytes: u64, blocks: &mut Blocks) -> Result<(), StoreError> {
        let at_first =
            offset_bytes < self.start_bytes + SUPERBLOCK_BYTES && offset_bytes + len_bytes > self.start_bytes;
        let touched = match &self.known {
            Known::Ext4(_) | Known::Xfs(_) => at_first,
            _ => at_first || Btrfs::touches_superblock(self.start_bytes, offset_bytes, len_bytes),
        };
        if touched && !self.given_up { self.superblock_written(blocks) } else { Ok(()) }
    }

    fn superblock_written(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        match &mut self.known {
            Known::Nothing | Known::NotUnderstood => self.look(blocks),
            Known::Xfs(xfs) => match Xfs::find(blocks, self.start_bytes, self.end_bytes)? {
                Ok(found) if found.same_layout(xfs) => Ok(()),
                _ => self.look(blocks),
            },
            // Another file system may take its place, and leave its superblock.
            Known::Btrfs(btrfs) if !holds_ext4_or_xfs(blocks, self.start_bytes, self.end_bytes)? => {
                match Btrfs::find(blocks, self.start_bytes, self.end_bytes)? {
                    Ok(found) if btrfs.is_same(&found) => match btrfs.superblock_written(found, blocks)? {
                        Ok(()) => Ok(()),
                        Err(refusal) => self.found(Err(refusal), blocks),
                    },
                    _ => self.look(blocks),
                }
            }
            Known::Btrfs(_) => self.look(blocks),
            Known::Ext4(ext4) => {
                // What came until now was of a file system at rest, and can be told apart for good.
                if ext4.leaves_rest(blocks)? && (self.unscanned || ext4.needs_scan()) {
                    self.rescan(Occasion::Rest, blocks)?;
                }
                let Known::Ext4(ext4) = &mut self.known else { return Ok(()) };
                if ext4.superblock_written(blocks)? { Ok(()) } else { self.look(blocks) }
            }
        }
    }

    /// Looks for a file system; the next flush reads it.
    pub(crate) fn look(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if !self.start_bytes.is_multiple_of(UNIT_BYTES) {
            return self.give_up("its partition begins within a block of 4 KiB", blocks);
        }
        let (start_bytes, end_bytes) = (self.start_bytes, self.end_bytes);
        let mut known = Ext4::find(blocks, start_bytes, end_bytes)?
            .map(|ext4| ext4.with_journal_ignored(self.ignore_journal).with_names(&self.names))
            .and_then(|ext4| match ext4.names_are_hidden() {
                Some(reason) => Err(Refusal::NotUnderstood(reason.to_owned())),
                None => Ok(Known::Ext4(Box::new(ext4))),
            });
        if matches!(known, Err(Refusal::Absent)) {
            let xfs = Xfs::find(blocks, start_bytes, end_bytes)?.map(|xfs| xfs.with_names(&self.names));
            known = xfs.map(|xfs| Known::Xfs(Box::new(xfs)));
        }
        if matches!(known, Err(Refusal::Absent)) {
            let btrfs =
                Btrfs::find(blocks, start_bytes, end_bytes)?.map(|btrfs| btrfs.with_names(&self.names, blocks.seed()));
            known = btrfs.map(|btrfs| Known::Btrfs(Box::new(btrfs)));
        }
        self.found(known, blocks)
    }

    fn found(&mut self, found: Result<Known, Refusal>, blocks: &mut Blocks) -> Result<(), StoreError> {
        let (commits, scans, _) = self.counts();
        (self.commits, self.scans, self.late_units) = (commits, scans, self.late_units());
        match found {
            Ok(known) => self.known = known,
            Err(Refusal::Absent) => self.known = Known::Nothing,
            Err(Refusal::NotUnderstood(reason)) => {
                self.notice(format!("everything is kept, because the file system is not understood: {reason}"));
                blocks.settle(self.start, self.end, Class::Everything)?;
                self.known = Known::NotUnderstood;
            }
        }
        match &mut self.known {
            Known::Ext4(_) => {
                self.unscanned = true;
                self.notice_doubts();
                Ok(())
            }
            // What came before its superblock says by itself what it is.
            Known::Xfs(_) => self.judge_again(blocks),
            Known::Btrfs(btrfs) => match btrfs.read_layout(blocks)? {
                Ok(()) => {
                    self.notice_doubts();
                    Ok(())
                }
                Err(refusal) => self.found(Err(refusal), blocks),
            },
            Known::Nothing | Known::NotUnderstood => Ok(()),
        }
    }

    /// Says what should be said about how well the file system is understood.
    fn notice_doubts(&mut self) {
        let doubts = match &self.known {
            Known::Ext4(ext4) => ext4.doubts(),
            Known::Btrfs(btrfs) => btrfs.doubts(),
            _ => None,
        };
        if let Some(doubt) = doubts {
            self.notice(format!("the file system is followed only in part: {doubt}"));
        }
    }

    fn notice(&mut self, notice: String) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Settles all that is stored by what the blocks say that they are.
    fn judge_again(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        let mut bytes = [0; UNIT_BYTES as usize];
        let mut waiting = Vec::new();
        let by_names = matches!(&self.known, Known::Xfs(xfs) if xfs.keeps_by_names());
        for (from, to) in blocks.stored_pieces(self.start, self.end) {
            for unit in from..to {
                // A program asked for it; or an earlier run went by names, and this one does not.
                if blocks.is_noted(unit) || blocks.is_raw(unit) && !by_names {
                    continue;
                }
                blocks.read(unit * UNIT_BYTES, &mut bytes)?;
                for (from, to, verdict) in self.judge(unit, &bytes) {
                    match verdict {
                        Verdict::Keep(class) => blocks.settle(from, to, class)?,
                        Verdict::Drop => blocks.squash(from, to),
                        Verdict::Wait => waiting.push((from, to)),
                    }
                }
            }
        }
        match &mut self.known {
            Known::Xfs(xfs) => xfs.begin_names(&waiting, self.end, blocks),
            _ => Ok(()),
        }
    }

    /// Reads all metadata, and settles every block that they tell of.
    fn rescan(&mut self, occasion: Occasion, blocks: &mut Blocks) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &mut self.known else { return Ok(()) };
        let drop_data = ext4.scan(blocks, occasion != Occasion::Work)?;
        let guarded = occasion != Occasion::Rest && !ext4.is_followed();
        self.unscanned = false;
        self.apply(self.start, self.end, drop_data, guarded, blocks)?;
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        if !drop_data || occasion == Occasion::Work {
            return Ok(());
        }
        for (start, end) in ext4.free_blocks(blocks)? {
            let (from, to) = self.inside(ext4.units_of(start, end));
            for unit in from..to {
                let unused = ext4.verdict(unit, unit + 1, true).0 == Verdict::Wait;
                // What was never known to be anything may be so new that its inode is still on its way.
                if unused && (occasion == Occasion::Rest || blocks.is_kept_metadata(unit)) {
                    blocks.squash(unit, unit + 1);
                }
            }
        }
        Ok(())
    }

    /// A range of blocks as far as it lies in this part.
    fn inside(&self, (from, to): (u64, u64)) -> (u64, u64) {
        let from = from.max(self.start);
        (from, to.min(self.end).max(from))
    }

    fn act_upon(&mut self, news: &News, blocks: &mut Blocks) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        if ext4.lost_journal() {
            self.notice("a commit of the journal could not be read; until it is begun anew, more is kept".to_owned());
        }
        if news.scanned {
            return self.apply(self.start, self.end, true, true, blocks);
        }
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        let ranges = news.claimed.all().map(|(start, end, ())| self.inside(ext4.units_of(start, end)));
        let ranges: Vec<_> = ranges.collect();
        for (start, end, ()) in news.freed.all() {
            let (from, to) = self.inside(ext4.units_of(start, end));
            // A block smaller than a unit may have neighbours that are not free.
            let unused = (from..to).filter(|&unit| matches!(ext4.verdict(unit, unit + 1, true).0, Verdict::Wait));
            for unit in unused.filter(|&unit| blocks.is_kept_metadata(unit)).collect::<Vec<_>>() {
                blocks.squash(unit, unit + 1);
            }
        }
        // Until all is at rest, or a commit says so, an inode's name may be on its way.
        let drop_data = ext4.is_followed() || !ext4.goes_by_names();
        for (from, to) in ranges {
            self.apply(from, to, drop_data, news.guarded, blocks)?;
        }
        Ok(())
    }

    /// Acts upon what is known of the blocks between two.
    fn apply(
        &self,
        start: u64,
        end: u64,
        drop_data: bool,
        guarded: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let Known::Ext4(ext4) = &self.known else { return Ok(()) };
        let mut at = start;
        while at < end {
            let (verdict, run_end) = ext4.verdict(at, end, drop_data);
            match verdict {
                Verdict::Keep(class) => blocks.settle(at, run_end, class)?,
                Verdict::Drop => {
                    drop_units(ext4, blocks, at, run_end, guarded)?;
                    let made_up = ext4.made_up_units(at, run_end);
                    made_up.into_iter().for_each(|(from, to)| blocks.squash_written(from, to));
                }
                Verdict::Wait => {}
            }
            at = run_end;
        }
        Ok(())
    }
}

/// Whether a superblock is between two bytes of the device, understood or not.
pub(crate) fn holds_file_system(blocks: &mut Blocks, start_bytes: u64, end_bytes: u64) -> Result<bool, StoreError> {
    let btrfs = Btrfs::find(blocks, start_bytes, end_bytes)?.map(drop);
    Ok(btrfs != Err(Refusal::Absent) || holds_ext4_or_xfs(blocks, start_bytes, end_bytes)?)
}

/// Whether a superblock of ext4 or XFS is there, understood or not.
fn holds_ext4_or_xfs(blocks: &mut Blocks, start_bytes: u64, end_bytes: u64) -> Result<bool, StoreError> {
    let absent = Err(Refusal::Absent);
    let ext4 = Ext4::find(blocks, start_bytes, end_bytes)?.map(drop);
    let xfs = Xfs::find(blocks, start_bytes, end_bytes)?.map(drop);
    Ok(ext4 != absent || xfs != absent)
}

/// Drops what is stored of the blocks between two, but for what looks like metadata: all of that if
/// `guarded`, else what was kept as metadata before.
fn drop_units(ext4: &Ext4, blocks: &mut Blocks, start: u64, end: u64, guarded: bool) -> Result<(), StoreError> {
    let mut bytes = [0; UNIT_BYTES as usize];
    let mut dropped = RunMap::<()>::default();
    for (from, to) in blocks.stored_pieces(start, end) {
        for unit in from..to {
            // A program asked for it; or an earlier run went by names, and this one does not.
            if blocks.is_noted(unit) || blocks.is_raw(unit) && !ext4.keeps_by_names() {
                continue;
            }
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
