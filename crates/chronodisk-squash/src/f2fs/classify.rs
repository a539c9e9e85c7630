//! Verdicts on blocks by their identification and by checkpoints.

use chronodisk_store::StoreError;

use super::{Checkpoint, F2fs};
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::classifier::{Classifier, Counts, Judged, Memory, Old, Refusal, Standing, Verdict, Write, judge_runs};
use crate::kinds::{BEGINNING_BYTES, Found, Kind, Site, touches};
use crate::len_of;
use crate::units::{VolumeBytes, VolumeUnit};

/// F2FS.
pub(crate) const KIND: Kind = Kind { name: "f2fs", superblock_bytes: BEGINNING_BYTES, find };

fn find(site: &Site, blocks: &mut Blocks) -> Result<Found, StoreError> {
    const BY_NAMES: &str = "F2FS: names of files are not read, and something goes by names";
    Ok(match F2fs::find(blocks, site.start_bytes, site.end_bytes)? {
        Ok(_) if !site.names.is_empty() => Err(Refusal::NotUnderstood(BY_NAMES.to_owned())),
        found => found.map(|f2fs| Box::new(f2fs) as Box<dyn Classifier>),
    })
}

impl Classifier for F2fs {
    /// Nodes written before the superblock are found when all nodes are read.
    fn begin(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        let start = self.start();
        let mut bytes = [0; UNIT_BYTES as usize];
        for (from, to) in blocks.stored_pieces(start, VolumeUnit(self.end_bytes.div_ceil(UNIT_BYTES))) {
            for unit in from.up_to(to) {
                // A program asked for it.
                if blocks.is_noted(unit) {
                    continue;
                }
                blocks.read(unit.offset_bytes(), &mut bytes)?;
                if let Verdict::Keep(class) = self.verdict(unit - start, &bytes) {
                    blocks.settle(unit, unit + 1, class)?;
                }
            }
        }
        self.checkpoint = Checkpoint::read(&self.superblock, &mut self.reader(blocks))?;
        Ok(Standing::Same)
    }

    fn opened(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.scan(false, blocks)
    }

    fn judge(&self, unit: VolumeUnit, bytes: &[u8]) -> Vec<Judged> {
        judge_runs(unit, bytes, |at, _, bytes| (self.verdict(at - self.start(), &bytes[..UNIT_BYTES as usize]), at + 1))
    }

    fn written(&mut self, write: &Write<'_>, _old: Old, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.unscanned = true;
        let start = self.start();
        for &(from, to, verdict) in write.judged {
            match verdict {
                Verdict::Keep(_) => self.fresh.set(from - start, to - start, ()),
                Verdict::Drop | Verdict::Wait => self.fresh.remove(from - start, to - start),
            }
        }
        // Areas of fixed places have no nodes.
        self.fresh.remove(0, self.superblock.main);
        let standing = self.superblock_touched(write.range, blocks)?;
        if standing == Standing::Same {
            let first = write.unit - start;
            self.checkpoints_touched(first, first + len_of(write.bytes) / UNIT_BYTES, blocks)?;
        }
        Ok(standing)
    }

    fn cleared(&mut self, range: VolumeBytes, _discard: bool, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        self.unscanned = true;
        let inside = range.offset_bytes.saturating_sub(self.start_bytes);
        let (from, to) = (inside.div_ceil(UNIT_BYTES), (inside + range.len_bytes) / UNIT_BYTES);
        if from < to {
            self.fresh.remove(from, to);
        }
        let standing = self.superblock_touched(range, blocks)?;
        if standing == Standing::Same {
            self.checkpoints_touched(inside / UNIT_BYTES, (inside + range.len_bytes).div_ceil(UNIT_BYTES), blocks)?;
        }
        Ok(standing)
    }

    fn flush(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if self.may_be_done() {
            self.scan(false, blocks)?;
        }
        Ok(Standing::Same)
    }

    /// Nodes written since the last checkpoint may be recovered, with their blocks.
    fn keep_committed(&self, _blocks: &mut Blocks) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Names are not read, so no file is to be kept by its name.
    fn close(&mut self, blocks: &mut Blocks) -> Result<Option<u64>, StoreError> {
        self.scan(true, blocks)?;
        Ok(None)
    }

    fn doubts(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn memory(&self) -> Memory {
        Memory { classifier_bytes: self.memory_bytes(), journal_bytes: 0 }
    }

    fn counts(&self) -> Counts {
        Counts { commits: self.commits, scans: self.scans, entries: self.fresh.len() as u64, ..Counts::default() }
    }
}

impl F2fs {
    /// Looks for another superblock after a range was written or cleared.
    fn superblock_touched(&self, range: VolumeBytes, blocks: &mut Blocks) -> Result<Standing, StoreError> {
        if !touches(self.start_bytes, &BEGINNING_BYTES, range) {
            return Ok(Standing::Same);
        }
        match F2fs::find(blocks, self.start_bytes, self.end_bytes)? {
            Ok(found) if found.superblock == self.superblock => Ok(Standing::Same),
            _ => Ok(Standing::Gone),
        }
    }
}
