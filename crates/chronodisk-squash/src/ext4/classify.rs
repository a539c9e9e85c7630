//! Verdicts on blocks by the state of the file system.

use chronodisk_store::StoreError;

use super::{Ext4, News};
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::class::Class;
use crate::classifier::{Classifier, Counts, Judged, Memory, Old, Refusal, Standing, Verdict, Write, judge_runs};
use crate::kinds::{BEGINNING_BYTES, Found, Kind, Site, touches};
use crate::runs::RunMap;
use crate::units::{VolumeBytes, VolumeUnit};

/// ext2, ext3 and ext4.
pub(crate) const KIND: Kind = Kind { name: "ext4", superblock_bytes: BEGINNING_BYTES, find };

fn find(site: &Site, blocks: &mut Blocks) -> Result<Found, StoreError> {
    let found = Ext4::find(blocks, site.start_bytes, site.end_bytes)?;
    Ok(found.and_then(|ext4| {
        let ext4 = ext4.with_journal_ignored(site.ignore_journal).with_names(&site.names);
        match ext4.names_are_hidden() {
            Some(reason) => Err(Refusal::NotUnderstood(reason.to_owned())),
            None => Ok(Box::new(ext4) as Box<dyn Classifier>),
        }
    }))
}

/// Reason for reading all metadata again, which decides how far they are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// A tool or a kernel is at work, so some metadata may not be written yet.
    Work,
    /// A flush while the file system is marked clean: most likely a tool is done.
    CleanFlush,
    /// A clean file system is about to be mounted, or the device is closed: all metadata are written.
    Rest,
}

impl Classifier for Ext4 {
    /// Nothing happens yet: the file system is read at the next flush.
    fn begin(&mut self, _blocks: &mut Blocks) -> Result<Standing, StoreError> {
        Ok(Standing::Same)
    }

    fn opened(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.rescan(Occasion::Work, blocks)
    }

    /// A file system that is mounted already, as on a volume that grows, is read at once. Others are read at the next
    /// flush, when their tool is done.
    fn appeared(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if self.is_clean() { Ok(()) } else { self.rescan(Occasion::Work, blocks) }
    }

    fn judge(&self, unit: VolumeUnit, bytes: &[u8]) -> Vec<Judged> {
        judge_runs(unit, bytes, |at, end, _| self.verdict(at, end, self.is_followed()))
    }

    fn before_write(&self, write: &Write<'_>, blocks: &mut Blocks) -> Result<Old, StoreError> {
        self.tables_before(write.range, blocks)
    }

    fn written(&mut self, write: &Write<'_>, old: Old, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.unscanned |= write.judged.iter().any(|judged| judged.2 == Verdict::Wait);
        if self.superblock_touched(write.range, blocks)? == Standing::Gone {
            return Ok(Standing::Gone);
        }
        let news = self.after_write(write.range, old, blocks)?;
        self.act_upon(&news, blocks)?;
        Ok(Standing::Same)
    }

    fn relieve(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if self.needs_scan && self.unscanned { self.rescan(Occasion::Work, blocks) } else { Ok(()) }
    }

    fn cleared(&mut self, range: VolumeBytes, discard: bool, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if discard {
            self.discarded(range);
        } else {
            self.zeroed(range);
        }
        self.superblock_touched(range, blocks)
    }

    fn correct(
        &mut self,
        units: (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        self.correct_files(units, offset_bytes, bytes, blocks);
        Ok(())
    }

    fn flush(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if self.unscanned && (self.needs_scan || self.is_clean()) {
            // Names that a tool has not written yet must not be missed.
            let done = self.is_clean() && !self.goes_by_names();
            self.rescan(if done { Occasion::CleanFlush } else { Occasion::Work }, blocks)?;
        }
        Ok(Standing::Same)
    }

    /// While a journal is followed, unclassified blocks are no metadata. Otherwise they may be, and were promised.
    fn keep_committed(&self, _blocks: &mut Blocks) -> Result<bool, StoreError> {
        Ok(self.is_followed())
    }

    /// A kernel takes the mark of a clean file system away before it writes anything else, and a recovery sets it.
    fn close(&mut self, blocks: &mut Blocks) -> Result<Option<u64>, StoreError> {
        let (start, end) = self.bounds();
        if !self.is_clean() {
            if !self.keeps_by_names() {
                return Ok(None);
            }
            blocks.spill(start, end)?;
            let undecided = blocks.pieces_of(start, end, Class::Unclassified);
            return Ok(Some(undecided.into_iter().map(|(from, to)| to - from).sum()));
        }
        if blocks.has_unclassified(start, end) {
            self.rescan(Occasion::Rest, blocks)?;
        }
        Ok(None)
    }

    fn doubts(&self) -> Vec<&'static str> {
        self.sentences_of_doubt()
    }

    fn memory(&self) -> Memory {
        let (classifier_bytes, journal_bytes) = self.memory_bytes();
        Memory { classifier_bytes, journal_bytes }
    }

    fn counts(&self) -> Counts {
        Counts {
            commits: self.commits,
            scans: self.scans,
            entries: self.entries(),
            late_units: self.late_units(),
            ..Counts::default()
        }
    }
}

impl Ext4 {
    /// The volume's blocks: first and end.
    fn bounds(&self) -> (VolumeUnit, VolumeUnit) {
        (VolumeUnit(self.start_bytes.div_ceil(UNIT_BYTES)), VolumeUnit(self.end_bytes.div_ceil(UNIT_BYTES)))
    }

    /// Looks for another superblock after a range was written or cleared.
    fn superblock_touched(&mut self, range: VolumeBytes, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if !touches(self.start_bytes, &BEGINNING_BYTES, range) {
            return Ok(Standing::Same);
        }
        // Blocks written so far are of a file system at rest, and can be classified finally.
        if self.leaves_rest(blocks)? && (self.unscanned || self.needs_scan) {
            self.rescan(Occasion::Rest, blocks)?;
        }
        Ok(if self.superblock_written(blocks)? { Standing::Same } else { Standing::Gone })
    }

    /// Reads all metadata, and settles every block that they tell of.
    fn rescan(&mut self, occasion: Occasion, blocks: &mut Blocks) -> Result<(), StoreError> {
        let drop_data = self.scan(blocks, occasion != Occasion::Work)?;
        let guarded = occasion != Occasion::Rest && !self.is_followed();
        self.unscanned = false;
        self.apply(self.bounds(), drop_data, guarded, blocks)?;
        if !drop_data || occasion == Occasion::Work {
            return Ok(());
        }
        for (start, end) in self.free_blocks(blocks)? {
            let (from, to) = self.inside(self.units_of(start, end));
            for unit in from.up_to(to) {
                let unused = self.verdict(unit, unit + 1, true).0 == Verdict::Wait;
                // A block without any known use may be so new that its inode is not written yet.
                if unused && (occasion == Occasion::Rest || blocks.is_kept_metadata(unit)) {
                    blocks.squash(unit, unit + 1);
                }
            }
        }
        Ok(())
    }

    /// The part of a range of blocks that lies in the volume.
    fn inside(&self, (from, to): (VolumeUnit, VolumeUnit)) -> (VolumeUnit, VolumeUnit) {
        let (start, end) = self.bounds();
        let from = from.max(start);
        (from, to.min(end).max(from))
    }

    fn act_upon(&self, news: &News, blocks: &mut Blocks) -> Result<(), StoreError> {
        if news.scanned {
            return self.apply(self.bounds(), true, true, blocks);
        }
        for (start, end, ()) in news.freed.all() {
            let (from, to) = self.inside(self.units_of(start, end));
            // A block smaller than a unit may have neighbours that are not free.
            let unused = from.up_to(to).filter(|&unit| matches!(self.verdict(unit, unit + 1, true).0, Verdict::Wait));
            for unit in unused.filter(|&unit| blocks.is_kept_metadata(unit)).collect::<Vec<_>>() {
                blocks.squash(unit, unit + 1);
            }
        }
        // An inode's name may still arrive, until all metadata are written or a commit has it.
        let drop_data = self.is_followed() || !self.goes_by_names();
        for (start, end, ()) in news.claimed.all() {
            self.apply(self.inside(self.units_of(start, end)), drop_data, news.guarded, blocks)?;
        }
        Ok(())
    }

    /// Applies the known uses of a range of blocks.
    fn apply(
        &self,
        (start, end): (VolumeUnit, VolumeUnit),
        drop_data: bool,
        guarded: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let mut at = start;
        while at < end {
            let (verdict, run_end) = self.verdict(at, end, drop_data);
            match verdict {
                Verdict::Keep(class) => blocks.settle(at, run_end, class)?,
                Verdict::Drop => {
                    self.drop_units(at, run_end, guarded, blocks)?;
                    let made_up = self.made_up_units(at, run_end);
                    made_up.into_iter().for_each(|(from, to)| blocks.squash_written(from, to));
                }
                Verdict::Wait => {}
            }
            at = run_end;
        }
        Ok(())
    }

    /// Drops the stored blocks in a range, except those that look like metadata: all of these if `guarded`, otherwise
    /// those kept as metadata before.
    fn drop_units(
        &self,
        start: VolumeUnit,
        end: VolumeUnit,
        guarded: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let mut bytes = [0; UNIT_BYTES as usize];
        let mut dropped = RunMap::<()>::default();
        for (from, to) in blocks.stored_pieces(start, end) {
            for unit in from.up_to(to) {
                // A program asked for it; or an earlier run went by names, and this one does not.
                if blocks.is_noted(unit) || blocks.is_raw(unit) && !self.keeps_by_names() {
                    continue;
                }
                if guarded || blocks.is_kept_metadata(unit) {
                    blocks.read(unit.offset_bytes(), &mut bytes)?;
                    if self.looks_like_metadata(&bytes, guarded) {
                        continue;
                    }
                }
                dropped.set(unit.0, unit.0 + 1, ());
            }
        }
        for (from, to, ()) in dropped.all() {
            blocks.squash(VolumeUnit(from), VolumeUnit(to));
        }
        Ok(())
    }
}
