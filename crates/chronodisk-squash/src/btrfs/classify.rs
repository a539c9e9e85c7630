//! Classifies blocks by their chunks.

use chronodisk_store::StoreError;

use super::Btrfs;
use super::superblock::{LEN_BYTES, PLACES_BYTES};
use crate::blocks::Blocks;
use crate::classifier::{Classifier, Counts, Judged, Memory, Old, Refusal, Standing, Write, judge_runs};
use crate::kinds::{BEGINNING_BYTES, Found, Kind, Site, holds_another, touches};
use crate::units::{VolumeBytes, VolumeUnit};

/// btrfs.
pub(crate) const KIND: Kind =
    Kind { name: "btrfs", superblock_bytes: PLACES_BYTES[0]..PLACES_BYTES[0] + LEN_BYTES as u64, find };

fn find(site: &Site, blocks: &mut Blocks) -> Result<Found, StoreError> {
    let found = Btrfs::find(blocks, site.start_bytes, site.end_bytes)?;
    Ok(found.map(|btrfs| Box::new(btrfs.with_names(&site.names, blocks.seed())) as Box<dyn Classifier>))
}

/// The standing of a file system after a refusal to follow it.
fn standing(result: Result<(), Refusal>) -> Standing {
    match result {
        Ok(()) => Standing::Same,
        Err(Refusal::Absent) => Standing::Gone,
        Err(Refusal::NotUnderstood(reason)) => Standing::NotUnderstood(reason),
    }
}

impl Classifier for Btrfs {
    fn begin(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        Ok(standing(self.read_layout(blocks)?))
    }

    /// Contents that were undecided when the image was closed still are.
    fn opened(&mut self, _blocks: &mut Blocks) -> Result<(), StoreError> {
        (self.watched, self.in_use) = (true, self.undecided_units() > 0);
        Ok(())
    }

    fn judge(&self, unit: VolumeUnit, bytes: &[u8]) -> Vec<Judged> {
        judge_runs(unit, bytes, |at, _, bytes| self.verdict(at, bytes))
    }

    fn written(&mut self, write: &Write<'_>, _old: Old, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.note_judged(write.unit, write.bytes, write.judged);
        self.look_at(write.unit, write.bytes, blocks)?;
        self.superblock_touched(write.range, blocks)
    }

    fn cleared(&mut self, range: VolumeBytes, _discard: bool, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.forget(range);
        self.superblock_touched(range, blocks)
    }

    fn correct(
        &mut self,
        units: (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        self.correct_sums(units, offset_bytes, bytes, blocks)
    }

    fn flush(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if self.unsettled { Ok(standing(self.read_layout(blocks)?)) } else { Ok(Standing::Same) }
    }

    fn keep_committed(&self, _blocks: &mut Blocks) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn close(&mut self, blocks: &mut Blocks) -> Result<Option<u64>, StoreError> {
        self.settle_rest(blocks)
    }

    fn doubts(&self) -> Vec<&'static str> {
        self.sentence_of_doubt().into_iter().collect()
    }

    fn memory(&self) -> Memory {
        Memory { classifier_bytes: self.memory_bytes(), journal_bytes: 0 }
    }

    fn counts(&self) -> Counts {
        Counts { commits: self.commits, entries: self.entries(), late_units: self.late_units(), ..Counts::default() }
    }
}

impl Btrfs {
    /// Looks for another superblock after a range was written or cleared.
    fn superblock_touched(&mut self, range: VolumeBytes, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        let touched =
            [BEGINNING_BYTES, KIND.superblock_bytes].iter().any(|place| touches(self.start_bytes, place, range));
        if !touched {
            return Ok(Standing::Same);
        }
        // Another file system may take its place, and leave its superblock.
        if holds_another(&KIND, blocks, self.start_bytes, self.end_bytes)? {
            return Ok(Standing::Gone);
        }
        match Btrfs::find(blocks, self.start_bytes, self.end_bytes)? {
            Ok(found) if self.is_same(&found) => Ok(standing(self.superblock_written(found, blocks)?)),
            _ => Ok(Standing::Gone),
        }
    }
}
