//! A part of the device that may hold a file system: all of it, a partition, or a logical volume.

use std::sync::Arc;

use chronodisk_store::StoreError;

use super::blocks::Blocks;
use super::claims;
use super::classifier::{Classifier, Counts, Judged, Memory, Refusal, Standing, Verdict, Write};
use super::kinds::{Found, Site, holds_btrfs};
use super::names::NameRule;
use super::notes::{Notes, dropped_units};
use super::units::{VolumeBytes, VolumeUnit};
use super::volume::{Lens, Volume};
use super::{Class, UNIT_BYTES};
use crate::len_of;

/// Knowledge of a part's content.
#[derive(Debug)]
enum Known {
    Nothing,
    NotUnderstood {
        /// The file system has checksums of contents, which generated ones would contradict.
        verifies_contents: bool,
    },
    Understood(Box<dyn Classifier>),
}

/// Options of all parts of a device.
#[derive(Clone, Debug)]
pub(crate) struct PartOptions {
    /// A journal is kept but not read.
    pub(crate) ignore_journal: bool,
    /// The client's kernel flags contents of files.
    pub(crate) notified: bool,
    /// Rules by file name.
    pub(crate) names: Arc<[NameRule]>,
}

/// A volume, and its file system. Addresses are the volume's: [`Part::lens`] maps them to the device's if they differ.
#[derive(Debug)]
pub(crate) struct Part {
    volume: Volume,
    lens: Option<Arc<Lens>>,
    /// Its byte range, and how a file system in it is followed.
    site: Site,
    /// The blocks that begin in it. If the last block reaches into another part, those bytes are beyond the file
    /// system's end.
    start: VolumeUnit,
    end: VolumeUnit,
    known: Known,
    /// Not followed because of a neighbouring part.
    given_up: bool,
    /// The client's kernel flags contents of files.
    notified: bool,
    /// Counters of earlier file systems.
    past: Counts,
    notices: Vec<String>,
}

impl Part {
    /// A volume with unknown contents.
    pub(crate) fn new(volume: Volume, options: &PartOptions) -> Self {
        let (start_bytes, end_bytes) = volume.bounds();
        let PartOptions { ignore_journal, notified, ref names } = *options;
        Part {
            lens: volume.lens(),
            volume,
            start: VolumeUnit(start_bytes.div_ceil(UNIT_BYTES)),
            end: VolumeUnit(end_bytes.div_ceil(UNIT_BYTES)),
            site: Site { start_bytes, end_bytes, ignore_journal, names: Arc::clone(names) },
            known: Known::Nothing,
            given_up: false,
            notified,
            past: Counts::default(),
            notices: Vec::new(),
        }
    }

    /// The part's place on the device.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The address mapping for [`Blocks`] while this part works.
    pub(crate) fn lens(&self) -> Option<Arc<Lens>> {
        self.lens.clone()
    }

    /// First block of the part.
    pub(crate) fn first_unit(&self) -> VolumeUnit {
        self.start
    }

    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Whether no file system was found, supported or not.
    pub(crate) fn knows_nothing(&self) -> bool {
        matches!(self.known, Known::Nothing)
    }

    /// Counters, including earlier file systems'.
    pub(crate) fn counts(&self) -> Counts {
        match &self.known {
            Known::Understood(classifier) => self.past.with(classifier.counts()),
            Known::Nothing | Known::NotUnderstood { .. } => self.past,
        }
    }

    /// Memory of the classifier.
    pub(crate) fn memory(&self) -> Memory {
        match &self.known {
            Known::Understood(classifier) => classifier.memory(),
            Known::Nothing | Known::NotUnderstood { .. } => Memory::default(),
        }
    }

    /// Looks for a file system in an opened image.
    pub(crate) fn open(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.look(blocks)?;
        match &mut self.known {
            Known::Understood(classifier) => classifier.opened(blocks),
            Known::Nothing | Known::NotUnderstood { .. } => Ok(()),
        }
    }

    /// Looks for a file system where a volume has just been found.
    pub(crate) fn begin(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.look(blocks)?;
        match &mut self.known {
            Known::Understood(classifier) => classifier.appeared(blocks),
            Known::Nothing | Known::NotUnderstood { .. } => Ok(()),
        }
    }

    /// Verdicts on whole blocks from `unit` on, with the client's claims. These count without a classifier, unless the
    /// file system verifies contents.
    pub(crate) fn judge(&self, unit: VolumeUnit, bytes: &[u8], claims: &[Judged]) -> Vec<Judged> {
        let end = unit + len_of(bytes) / UNIT_BYTES;
        let all = |verdict| vec![(unit, end, verdict)];
        match &self.known {
            Known::Understood(classifier) => classifier.judge(unit, bytes),
            Known::NotUnderstood { verifies_contents: true } => all(Verdict::Keep(Class::Everything)),
            // A kernel that flags contents writes metadata otherwise.
            _ if self.notified => claims::overrule((unit, end, Verdict::Keep(Class::OtherMetadata)), claims),
            Known::Nothing => all(Verdict::Wait),
            Known::NotUnderstood { verifies_contents: false } => all(Verdict::Keep(Class::Everything)),
        }
    }

    /// Writes whole blocks for a request of `range`, with the client's claims. Returns the number of bytes dropped.
    pub(crate) fn write(
        &mut self,
        unit: VolumeUnit,
        bytes: &[u8],
        range: VolumeBytes,
        claims: &[Judged],
        blocks: &mut Blocks,
        notes: Option<&mut Notes>,
    ) -> Result<u64, StoreError> {
        let mut judged = self.judge(unit, bytes, claims);
        if !matches!(self.known, Known::Understood(_)) {
            self.past.claimed_units += dropped_units(&judged);
        }
        if let Some(notes) = notes {
            judged = notes.hear(unit, bytes, judged);
        }
        let write = Write { unit, bytes, range, judged: &judged };
        let Known::Understood(classifier) = &self.known else {
            let dropped_bytes = self.act_upon(&write, blocks)?;
            self.look_if_touched(range, blocks)?;
            self.relieve(blocks)?;
            return Ok(dropped_bytes);
        };
        let old = classifier.before_write(&write, blocks)?;
        let dropped_bytes = self.act_upon(&write, blocks)?;
        if let Known::Understood(classifier) = &mut self.known {
            let standing = classifier.written(&write, old, blocks)?;
            self.stand(standing, blocks)?;
        }
        self.notice_doubts();
        self.relieve(blocks)?;
        Ok(dropped_bytes)
    }

    /// Applies the verdicts on a write's blocks. Returns the number of bytes dropped.
    fn act_upon(&self, write: &Write<'_>, blocks: &mut Blocks) -> Result<u64, StoreError> {
        let mut dropped_bytes = 0;
        for &(from, to, verdict) in write.judged {
            let range = ((from - write.unit) * UNIT_BYTES) as usize..((to - write.unit) * UNIT_BYTES) as usize;
            let part = &write.bytes[range];
            match verdict {
                Verdict::Keep(class) => blocks.keep(from, part, class)?,
                Verdict::Drop => {
                    blocks.squash(from, to);
                    dropped_bytes += len_of(part);
                }
                // Blocks that a tool writes before its superblock are metadata, most likely.
                Verdict::Wait => blocks.wait(from, part, self.knows_nothing())?,
            }
        }
        Ok(dropped_bytes)
    }

    /// Classifies blocks if many are unclassified.
    fn relieve(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        match &mut self.known {
            Known::Understood(classifier) if blocks.waiting_is_half_full() => classifier.relieve(blocks),
            _ => Ok(()),
        }
    }

    /// Called after a range was discarded (`discard`) or zeroed.
    pub(crate) fn cleared(&mut self, range: VolumeBytes, discard: bool, blocks: &mut Blocks) -> Result<(), StoreError> {
        let Known::Understood(classifier) = &mut self.known else {
            return self.look_if_touched(range, blocks);
        };
        let standing = classifier.cleared(range, discard, blocks)?;
        self.stand(standing, blocks)
    }

    /// Changes generated contents of a range of blocks so that the file system's checks accept them. `bytes` are the
    /// volume's from `offset_bytes` on.
    pub(crate) fn correct(
        &mut self,
        units: (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        match &mut self.known {
            Known::Understood(classifier) => classifier.correct(units, offset_bytes, bytes, blocks),
            Known::Nothing | Known::NotUnderstood { .. } => Ok(()),
        }
    }

    /// Keeps the blocks that a flush promises.
    pub(crate) fn flush(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if let Known::Understood(classifier) = &mut self.known {
            let standing = classifier.flush(blocks)?;
            if classifier.keep_committed(blocks)? {
                return Ok(());
            }
            self.stand(standing, blocks)?;
            self.notice_doubts();
        }
        blocks.spill(self.start, self.end)
    }

    /// Keeps the blocks that a device without a volatile cache promises after each write: unclassified ones that may be
    /// metadata.
    pub(crate) fn keep_doubtful(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        match &self.known {
            Known::Understood(classifier) if classifier.keep_committed(blocks)? => Ok(()),
            _ => blocks.spill(self.start, self.end),
        }
    }

    /// Drops unused blocks of a clean file system, given that no further write comes. If it was not unmounted, contents
    /// without a file are kept, because they may belong to a file to be kept.
    pub(crate) fn close(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        let Known::Understood(classifier) = &mut self.known else { return Ok(()) };
        let undecided_units = classifier.close(blocks)?;
        self.notice_doubts();
        let Some(units) = undecided_units else { return Ok(()) };
        blocks.spill(self.start, self.end)?;
        let undecided = match units * UNIT_BYTES {
            0 => String::new(),
            bytes => format!(", and so are {bytes} bytes that no file has yet"),
        };
        self.notice(format!("the file system was not unmounted: files to be kept are kept as synchronised{undecided}"));
        Ok(())
    }

    /// Keeps all blocks from now on.
    pub(crate) fn give_up(&mut self, reason: &str, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.given_up = true;
        self.found(Err(Refusal::NotUnderstood(reason.to_owned())), blocks)
    }

    /// Looks for a file system again, because the reason of [`Part::give_up`] is gone.
    pub(crate) fn reconsider(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if std::mem::take(&mut self.given_up) { self.look(blocks) } else { Ok(()) }
    }

    /// Looks for a superblock after a write or clear of a range where no file system is followed.
    fn look_if_touched(&mut self, range: VolumeBytes, blocks: &mut Blocks) -> Result<(), StoreError> {
        if !self.given_up && self.site.is_touched(range) { self.look(blocks) } else { Ok(()) }
    }

    fn stand(&mut self, standing: Standing, blocks: &mut Blocks) -> Result<(), StoreError> {
        match standing {
            Standing::Same => Ok(()),
            Standing::Gone => self.look(blocks),
            Standing::NotUnderstood(reason) => self.found(Err(Refusal::NotUnderstood(reason)), blocks),
        }
    }

    /// Looks for a file system.
    pub(crate) fn look(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        if !self.site.start_bytes.is_multiple_of(UNIT_BYTES) {
            return self.give_up("its partition begins within a block of 4 KiB", blocks);
        }
        let found = self.site.find(blocks)?;
        self.found(found, blocks)
    }

    fn found(&mut self, found: Found, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.past = Counts { entries: 0, ..self.counts() };
        self.known = match found {
            Ok(classifier) => Known::Understood(classifier),
            Err(Refusal::Absent) => Known::Nothing,
            Err(Refusal::NotUnderstood(reason)) => {
                let verifies_contents = holds_btrfs(&self.site, blocks)?;
                // Otherwise the client's claims are enough.
                if verifies_contents || !self.notified {
                    self.notice(format!("everything is kept, because the file system is not understood: {reason}"));
                }
                blocks.settle(self.start, self.end, Class::Everything)?;
                Known::NotUnderstood { verifies_contents }
            }
        };
        let Known::Understood(classifier) = &mut self.known else { return Ok(()) };
        match classifier.begin(blocks)? {
            Standing::NotUnderstood(reason) => self.found(Err(Refusal::NotUnderstood(reason)), blocks),
            Standing::Same | Standing::Gone => {
                self.notice_doubts();
                Ok(())
            }
        }
    }

    /// Reports restrictions of following the file system.
    fn notice_doubts(&mut self) {
        let Known::Understood(classifier) = &self.known else { return };
        classifier.doubts().into_iter().for_each(|doubt| self.notice(doubt.to_owned()));
    }

    fn notice(&mut self, notice: String) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }
}
