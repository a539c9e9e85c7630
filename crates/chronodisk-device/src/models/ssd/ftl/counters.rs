//! Counters of a flash translation layer.

use super::Stream;

/// Counts from the erased drive on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FtlCounters {
    /// Units that the host had written to where cells have all their bits.
    pub(crate) host_units: u64,
    /// Units that it had written to where they have one.
    pub(crate) cached_units: u64,
    /// Units moved out of the SLC pool.
    pub(crate) emptied_units: u64,
    /// Units moved to win space.
    pub(crate) moved_units: u64,
    /// Units of the mapping table written.
    pub(crate) mapping_units: u64,
    /// Units moved to level wear.
    pub(crate) levelled_units: u64,
    /// Slots programmed as padding.
    pub(crate) padded_units: u64,
    /// Units that a trim unmapped.
    pub(crate) trimmed_units: u64,
    /// Superblocks collected to win space.
    pub(crate) collections: u64,
    /// Superblocks collected to level wear.
    pub(crate) levellings: u64,
    /// Superblocks with one bit in a cell emptied.
    pub(crate) emptyings: u64,
    /// Superblocks erased.
    pub(crate) erases: u64,
    /// Logical blocks merged from logs.
    pub(crate) merges: u64,
    /// Partial merges among them: the log itself was completed.
    pub(crate) partial_merges: u64,
    /// Logs that became a logical block's data unchanged.
    pub(crate) switches: u64,
    /// Slots of superblocks that were closed before they were full.
    pub(crate) unused_units: u64,
}

impl FtlCounters {
    pub(super) fn count(&mut self, stream: Stream) {
        *match stream {
            Stream::Host => &mut self.host_units,
            Stream::Collector => &mut self.moved_units,
            Stream::Mapping => &mut self.mapping_units,
            Stream::Levelling => &mut self.levelled_units,
            Stream::Cache => &mut self.cached_units,
            Stream::Emptying => &mut self.emptied_units,
        } += 1;
    }

    /// Counts in the order of the words of a saved state.
    pub(super) const WORDS: usize = 16;

    pub(super) fn words(&self) -> [u64; FtlCounters::WORDS] {
        [
            self.host_units,
            self.moved_units,
            self.mapping_units,
            self.levelled_units,
            self.padded_units,
            self.trimmed_units,
            self.collections,
            self.levellings,
            self.erases,
            self.cached_units,
            self.emptied_units,
            self.emptyings,
            self.merges,
            self.switches,
            self.unused_units,
            self.partial_merges,
        ]
    }

    /// Limited so that no life of a drive overflows them.
    pub(super) fn from_words(words: [u64; FtlCounters::WORDS]) -> Self {
        let words = words.map(|word| word.min(1 << 60));
        let [host_units, moved_units, mapping_units, levelled_units, padded_units, trimmed_units, ..] = words;
        let [.., collections, levellings, erases, _, _, _, _, _, _, _] = words;
        let [.., cached_units, emptied_units, emptyings, merges, switches, unused_units, partial_merges] = words;
        FtlCounters {
            host_units,
            moved_units,
            mapping_units,
            levelled_units,
            padded_units,
            trimmed_units,
            collections,
            levellings,
            erases,
            cached_units,
            emptied_units,
            emptyings,
            merges,
            partial_merges,
            switches,
            unused_units,
        }
    }

    /// Units programmed for one that the host wrote; 1 before anything was written.
    pub(crate) fn write_amplification(&self) -> f64 {
        let host = self.host_units + self.cached_units;
        let again = self.moved_units + self.mapping_units + self.levelled_units + self.emptied_units;
        if host == 0 { 1.0 } else { (host + again + self.padded_units) as f64 / host as f64 }
    }

    /// Counts since `earlier`.
    pub(crate) fn since(&self, earlier: &FtlCounters) -> FtlCounters {
        let (now, before) = (self.words(), earlier.words());
        FtlCounters::from_words(std::array::from_fn(|word| now[word] - before[word]))
    }
}
