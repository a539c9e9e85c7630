//! The kinds of file systems that are understood. A new one is a folder, and a line here.

use std::ops::Range;
use std::sync::Arc;

use chronodisk_store::StoreError;

use super::blocks::Blocks;
use super::classifier::{Classifier, Refusal};
use super::names::NameRule;
use super::units::VolumeBytes;
use super::{btrfs, ext4, f2fs, xfs};

/// Kinds of file systems, in the order of the search; the first one with a superblock is used.
const KINDS: [&Kind; 4] = [&ext4::KIND, &xfs::KIND, &f2fs::KIND, &btrfs::KIND];

/// The part of a volume's beginning that may contain a superblock.
pub(crate) const BEGINNING_BYTES: Range<u64> = 0..4096;

/// A kind of file system.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Place of its superblock, counted from a volume's beginning.
    pub(crate) superblock_bytes: Range<u64>,
    /// Looks for it.
    pub(crate) find: fn(&Site, &mut Blocks) -> Result<Found, StoreError>,
}

/// The classifier of a file system that was found.
pub(crate) type Found = Result<Box<dyn Classifier>, Refusal>;

/// Byte range that may hold a file system, and options for following it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) start_bytes: u64,
    pub(crate) end_bytes: u64,
    /// A journal is kept but not read.
    pub(crate) ignore_journal: bool,
    /// Rules by file name.
    pub(crate) names: Arc<[NameRule]>,
}

/// Whether a range of a volume's bytes touches another one, which is counted from the volume's beginning.
pub(crate) fn touches(start_bytes: u64, of: &Range<u64>, range: VolumeBytes) -> bool {
    range.offset_bytes < start_bytes + of.end && range.end_bytes() > start_bytes + of.start
}

impl Site {
    /// A range with default options.
    pub(crate) fn plain(start_bytes: u64, end_bytes: u64) -> Self {
        Site { start_bytes, end_bytes, ignore_journal: false, names: [].into() }
    }

    /// Looks for a file system.
    pub(crate) fn find(&self, blocks: &mut Blocks) -> Result<Found, StoreError> {
        for kind in KINDS {
            let found = (kind.find)(self, blocks)?;
            if !matches!(found, Err(Refusal::Absent)) {
                return Ok(found);
            }
        }
        Ok(Err(Refusal::Absent))
    }

    /// Whether a range of bytes touches a place where some superblock may be.
    pub(crate) fn is_touched(&self, range: VolumeBytes) -> bool {
        KINDS.iter().any(|kind| touches(self.start_bytes, &kind.superblock_bytes, range))
    }
}

/// Whether a range holds a superblock, supported or not.
pub(crate) fn holds_file_system(blocks: &mut Blocks, start_bytes: u64, end_bytes: u64) -> Result<bool, StoreError> {
    Ok(!matches!(Site::plain(start_bytes, end_bytes).find(blocks)?, Err(Refusal::Absent)))
}

/// Whether a volume holds a superblock of btrfs, supported or not.
pub(crate) fn holds_btrfs(site: &Site, blocks: &mut Blocks) -> Result<bool, StoreError> {
    Ok(!matches!((btrfs::KIND.find)(site, blocks)?, Err(Refusal::Absent)))
}

/// Whether a range holds a superblock of another kind, supported or not.
pub(crate) fn holds_another(
    kind: &Kind,
    blocks: &mut Blocks,
    start_bytes: u64,
    end_bytes: u64,
) -> Result<bool, StoreError> {
    let site = Site::plain(start_bytes, end_bytes);
    for other in KINDS.iter().filter(|other| other.name != kind.name) {
        if !matches!((other.find)(&site, blocks)?, Err(Refusal::Absent)) {
            return Ok(true);
        }
    }
    Ok(false)
}
