//! Classifies the blocks of a file system: one implementation for each [kind](super::kinds) of file system, in a folder
//! of its own.

use std::fmt::Debug;

use chronodisk_store::StoreError;

use super::UNIT_BYTES;
use super::blocks::Blocks;
use super::class::Class;
use super::units::{VolumeBytes, VolumeUnit};
use crate::len_of;

/// Verdict on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep(Class),
    Drop,
    Wait,
}

/// A run of blocks with one verdict: (first, end, verdict).
pub(crate) type Judged = (VolumeUnit, VolumeUnit, Verdict);

/// Why a superblock can't be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The device has no such superblock.
    Absent,
    /// The superblock is damaged, or uses unsupported features.
    NotUnderstood(String),
}

/// Whether the file system in a volume still is the one that its classifier follows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Standing {
    /// The file system is the same.
    Same,
    /// Another file system may be there, or none.
    Gone,
    /// The file system is the same, but can't be followed any longer, for this reason.
    NotUnderstood(String),
}

/// A write of whole blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    /// The first block.
    pub(crate) unit: VolumeUnit,
    /// The bytes of the blocks.
    pub(crate) bytes: &'a [u8],
    /// The requested range; other bytes of the blocks are unchanged.
    pub(crate) range: VolumeBytes,
    /// Verdicts on the blocks.
    pub(crate) judged: &'a [Judged],
}

/// Blocks as they were before a write, by numbers that the classifier assigns.
pub(crate) type Old = Vec<(u64, Vec<u8>)>;

/// Counters of a classifier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Commits that were followed.
    pub(crate) commits: u64,
    /// Number of scans of all metadata.
    pub(crate) scans: u64,
    /// Entries in tables.
    pub(crate) entries: u64,
    /// Blocks of files to be kept that were squashed before their names were known.
    pub(crate) late_units: u64,
    /// Blocks dropped because of the client's claims.
    pub(crate) claimed_units: u64,
}

impl Counts {
    /// Sum of two counters.
    pub(crate) fn with(self, other: Counts) -> Counts {
        Counts {
            commits: self.commits + other.commits,
            scans: self.scans + other.scans,
            entries: self.entries + other.entries,
            late_units: self.late_units + other.late_units,
            claimed_units: self.claimed_units + other.claimed_units,
        }
    }
}

/// Memory that a classifier takes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) classifier_bytes: u64,
    /// Memory of the reader of the journal or the log.
    pub(crate) journal_bytes: u64,
}

/// Follows one file system, and classifies its blocks. Addresses are the volume's.
///
/// Order of calls at a write: `judge`, `before_write`, then the blocks are kept, dropped or left unclassified, then
/// `written`.
pub(crate) trait Classifier: Debug + Send {
    /// Begins to follow the file system: its superblock was found, and stored blocks may be classified.
    fn begin(&mut self, blocks: &mut Blocks) -> Result<Standing, StoreError>;

    /// Runs after the image was opened: all its blocks may be read.
    fn opened(&mut self, _blocks: &mut Blocks) -> Result<(), StoreError> {
        Ok(())
    }

    /// The volume was found on a device in use; the tool that made it may still be at work.
    fn appeared(&mut self, _blocks: &mut Blocks) -> Result<(), StoreError> {
        Ok(())
    }

    /// Verdicts on whole blocks from `unit` on, for a write that follows.
    fn judge(&self, unit: VolumeUnit, bytes: &[u8]) -> Vec<Judged>;

    /// Reads blocks before a write if the classifier needs to compare them with the new ones.
    fn before_write(&self, _write: &Write<'_>, _blocks: &mut Blocks) -> Result<Old, StoreError> {
        Ok(Old::new())
    }

    /// Called after a write.
    fn written(&mut self, write: &Write<'_>, old: Old, blocks: &mut Blocks) -> Result<Standing, StoreError>;

    /// Classifies as many blocks as possible, because many are unclassified.
    fn relieve(&mut self, _blocks: &mut Blocks) -> Result<(), StoreError> {
        Ok(())
    }

    /// Called after a range was discarded (`discard`) or zeroed.
    fn cleared(&mut self, range: VolumeBytes, discard: bool, blocks: &mut Blocks) -> Result<Standing, StoreError>;

    /// Changes generated contents of a range of blocks so that the file system's checks accept them. `bytes` are the
    /// volume's from `offset_bytes` on.
    fn correct(
        &mut self,
        _units: (VolumeUnit, VolumeUnit),
        _offset_bytes: u64,
        _bytes: &mut [u8],
        _blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    /// Classifies as many blocks as possible, because of a flush.
    fn flush(&mut self, _blocks: &mut Blocks) -> Result<Standing, StoreError> {
        Ok(Standing::Same)
    }

    /// Keeps the unclassified blocks that a recovery of the file system would show and that must not be lost. Returns
    /// false if these are unknown, so that all must be kept.
    fn keep_committed(&self, blocks: &mut Blocks) -> Result<bool, StoreError>;

    /// Decides as much as possible, given that no further write comes. Unused blocks of a clean file system are dropped
    /// only if the device shows that it was unmounted. Otherwise, returns the number of blocks whose contents may
    /// belong to files to be kept, if there are such rules: all blocks that still wait must be kept then.
    fn close(&mut self, blocks: &mut Blocks) -> Result<Option<u64>, StoreError>;

    /// Sentences about how well the file system is followed.
    fn doubts(&self) -> Vec<&'static str>;

    fn memory(&self) -> Memory;

    fn counts(&self) -> Counts;
}

/// Judges whole blocks from `unit` on. `verdict(first, end, bytes)` returns the verdict for `first`, and the end of the
/// run with this verdict.
pub(crate) fn judge_runs(
    unit: VolumeUnit,
    bytes: &[u8],
    verdict: impl Fn(VolumeUnit, VolumeUnit, &[u8]) -> (Verdict, VolumeUnit),
) -> Vec<Judged> {
    let end = unit + len_of(bytes) / UNIT_BYTES;
    let mut judged: Vec<Judged> = Vec::new();
    let mut at = unit;
    while at < end {
        let (verdict, run_end) = verdict(at, end, &bytes[((at - unit) * UNIT_BYTES) as usize..]);
        match judged.last_mut() {
            Some((_, last_end, last)) if *last == verdict => *last_end = run_end,
            _ => judged.push((at, run_end, verdict)),
        }
        at = run_end;
    }
    judged
}
