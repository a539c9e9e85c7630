//! Counters of a squashing store.

use super::Class;
use super::image::savings;

/// Activity and content of a squashing store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SquashStatistics {
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Bytes dropped at once.
    pub dropped_bytes: u64,
    /// Bytes of unclassified blocks, now and at most.
    pub waiting_bytes: u64,
    /// See `waiting_bytes`.
    pub waiting_max_bytes: u64,
    /// Bytes kept at the limit of unclassified blocks, or at a flush because they might be metadata.
    pub spilled_bytes: u64,
    /// Bytes of the device that are kept, by class.
    pub kept_bytes: Vec<(Class, u64)>,
    /// Bytes of the device that are generated when read.
    pub generated_bytes: u64,
    /// Bytes of the device that were written and are zeros.
    pub zeroed_bytes: u64,
    /// Space of kept blocks, with the map of an image; an equal share of blocks shared with other devices.
    pub stored_bytes: u64,
    /// Bytes of kept blocks that are shared with other devices and stored once.
    pub shared_bytes: u64,
    /// Commits of a journal that were followed.
    pub commits: u64,
    /// Number of scans of all metadata.
    pub scans: u64,
    /// Entries of the tables of blocks and of the classifier.
    pub table_entries: u64,
    /// Bytes of files to be kept that had been squashed before the files had their names.
    pub late_bytes: u64,
    /// Bytes dropped because the client's kernel called them contents of files, and no classifier knew them.
    pub claimed_bytes: u64,
}

impl SquashStatistics {
    /// Share of a full store's space that this one saves.
    #[must_use]
    pub fn savings(&self) -> Option<f64> {
        let kept: u64 = self.kept_bytes.iter().map(|(_, bytes)| bytes).sum();
        savings(self.stored_bytes, kept + self.generated_bytes)
    }
}
