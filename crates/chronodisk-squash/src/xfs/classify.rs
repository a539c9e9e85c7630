//! Verdicts on blocks by their identification and by names.

use chronodisk_store::StoreError;

use super::Xfs;
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::classifier::{Classifier, Counts, Judged, Memory, Old, Standing, Verdict, Write, judge_runs};
use crate::kinds::{BEGINNING_BYTES, Found, Kind, Site, touches};
use crate::units::{VolumeBytes, VolumeUnit};

/// XFS.
pub(crate) const KIND: Kind = Kind { name: "xfs", superblock_bytes: BEGINNING_BYTES, find };

fn find(site: &Site, blocks: &mut Blocks) -> Result<Found, StoreError> {
    let found = Xfs::find(blocks, site.start_bytes, site.end_bytes)?;
    Ok(found.map(|xfs| Box::new(xfs.with_names(&site.names)) as Box<dyn Classifier>))
}

impl Classifier for Xfs {
    /// Blocks written before the superblock identify themselves.
    fn begin(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        let mut bytes = [0; UNIT_BYTES as usize];
        let mut waiting = Vec::new();
        for (from, to) in blocks.stored_pieces(VolumeUnit::of_byte(self.start_bytes), self.end()) {
            for unit in from.up_to(to) {
                // A program asked for it; or an earlier run went by names, and this one does not.
                if blocks.is_noted(unit) || blocks.is_raw(unit) && !self.keeps_by_names() {
                    continue;
                }
                blocks.read(unit.offset_bytes(), &mut bytes)?;
                match self.verdict(unit, &bytes) {
                    Verdict::Keep(class) => blocks.settle(unit, unit + 1, class)?,
                    Verdict::Drop => blocks.squash(unit, unit + 1),
                    Verdict::Wait => waiting.push((unit, unit + 1)),
                }
            }
        }
        self.begin_names(&waiting, self.end(), blocks)?;
        Ok(Standing::Same)
    }

    fn judge(&self, unit: VolumeUnit, bytes: &[u8]) -> Vec<Judged> {
        judge_runs(unit, bytes, |at, _, bytes| (self.verdict(at, &bytes[..UNIT_BYTES as usize]), at + 1))
    }

    fn before_write(&self, write: &Write<'_>, blocks: &mut Blocks) -> Result<Old, StoreError> {
        self.blocks_before(write, blocks)
    }

    fn written(&mut self, write: &Write<'_>, old: Old, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.names_written(write, &old, blocks)?;
        self.superblock_touched(write.range, blocks)
    }

    fn relieve(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.squash_unwanted(blocks);
        Ok(())
    }

    fn cleared(&mut self, range: VolumeBytes, discard: bool, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.names_cleared(range, discard);
        self.superblock_touched(range, blocks)
    }

    fn correct(
        &mut self,
        units: (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        self.correct_files(units, offset_bytes, bytes, blocks)
    }

    fn keep_committed(&self, blocks: &mut Blocks) -> Result<bool, StoreError> {
        self.keep_unnamed(blocks)
    }

    fn close(&mut self, blocks: &mut Blocks) -> Result<Option<u64>, StoreError> {
        let undecided_units = self.decide_all(self.end(), blocks)?;
        Ok(undecided_units.filter(|_| self.keeps_by_names()))
    }

    fn doubts(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn memory(&self) -> Memory {
        let (classifier_bytes, journal_bytes) = self.memory_bytes();
        Memory { classifier_bytes, journal_bytes }
    }

    fn counts(&self) -> Counts {
        Counts { commits: self.commits(), entries: self.entries(), late_units: self.late_units(), ..Counts::default() }
    }
}

impl Xfs {
    /// The end of the volume, in blocks.
    fn end(&self) -> VolumeUnit {
        VolumeUnit(self.end_bytes.div_ceil(UNIT_BYTES))
    }

    /// Looks for another superblock after a range was written or cleared.
    fn superblock_touched(&self, range: VolumeBytes, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if !touches(self.start_bytes, &BEGINNING_BYTES, range) {
            return Ok(Standing::Same);
        }
        match Xfs::find(blocks, self.start_bytes, self.end_bytes)? {
            Ok(found) if found.same_layout(self) => Ok(Standing::Same),
            _ => Ok(Standing::Gone),
        }
    }
}
