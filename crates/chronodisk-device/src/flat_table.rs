//! A large table of words in one piece of memory, copied by sharing.
//!
//! [`FlatTable`] is for tables with most entries in use: an entry costs its four bytes and an access one load. A clone
//! shares the memory, for any size. Later changes of either side go to a [`CowTable`] of its own, beside the shared
//! memory. Once one side is gone, the other moves its changes into the memory with its next change and is as fast as
//! before. So a fork for a prediction costs its changes, and a table without forks costs one check per change.
//!
//! ```text
//!  table ──► memory (owned, or a file mapped copy-on-write) ◄── clone
//!    └─► changes since the clone        changes since the clone ◄─┘
//! ```
//!
//! Words are little-endian in memory, as in a file.

use std::fmt;
use std::sync::Arc;

use memmap2::MmapMut;

use crate::cow_table::CowTable;
use crate::footprint;

/// Memory of a table, such as a private mapping of a file: writes to it are not visible elsewhere.
pub trait TableMemory: AsRef<[u8]> + AsMut<[u8]> + Send + Sync {}

impl<M: AsRef<[u8]> + AsMut<[u8]> + Send + Sync> TableMemory for M {}

/// Words by index, all zero at first.
#[derive(Clone, Debug)]
pub(crate) struct FlatTable {
    memory: Arc<Memory>,
    /// The words that differ from the memory's, with [`CHANGED`] set; empty unless the memory is or was shared.
    changes: CowTable<u64>,
    len: u64,
}

enum Memory {
    Owned(Vec<u8>),
    Large(MmapMut),
    Given(Box<dyn TableMemory>),
}

/// Marks a word that was changed, which may be zero.
const CHANGED: u64 = 1 << 32;

const WORD_BYTES: usize = size_of::<u32>();

impl FlatTable {
    /// `len` words of zero, in zeroed memory of the system, which costs nothing until it is touched.
    pub(crate) fn new(len: u64) -> Self {
        FlatTable::over(Memory::Owned(vec![0; len as usize * WORD_BYTES]), len)
    }

    /// Memory that a table of that length takes, without changes that others do not see.
    pub(crate) fn bytes(len: u64) -> u64 {
        footprint::allocations_bytes(1, len.saturating_mul(WORD_BYTES as u64))
            .saturating_add(size_of::<Memory>() as u64)
    }

    /// Like [`new`](Self::new), for a table that is about to be filled in random order. It is in large pages if the
    /// system has some, so that an access needs one look-up of the address instead of several.
    pub(crate) fn new_in_large_pages(len: u64) -> Self {
        let bytes = len as usize * WORD_BYTES;
        let Ok(memory) = MmapMut::map_anon(bytes.max(1)) else { return FlatTable::new(len) };
        #[cfg(target_os = "linux")]
        // A system without large pages serves as well.
        let _refused = memory.advise(memmap2::Advice::HugePage);
        FlatTable::over(Memory::Large(memory), len)
    }

    /// The words in a given memory.
    pub(crate) fn in_memory(memory: Box<dyn TableMemory>) -> Self {
        let len = ((*memory).as_ref().len() / WORD_BYTES) as u64;
        FlatTable::over(Memory::Given(memory), len)
    }

    fn over(memory: Memory, len: u64) -> Self {
        FlatTable { memory: Arc::new(memory), changes: CowTable::new(len, 0), len }
    }

    /// Number of words.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The word at `index`.
    ///
    /// # Panics
    /// If the table is not that long.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> u32 {
        if !self.changes.is_empty() {
            let word = self.changes.get(u64::from(index));
            if word & CHANGED != 0 {
                return word as u32;
            }
        }
        u32::from_le_bytes(self.memory.words()[index as usize])
    }

    /// Puts a word at `index`.
    ///
    /// # Panics
    /// If the table is not that long.
    #[inline]
    pub(crate) fn set(&mut self, index: u32, word: u32) {
        match self.own() {
            Some(words) => words[index as usize] = word.to_le_bytes(),
            None => self.changes.set(u64::from(index), CHANGED | u64::from(word)),
        }
    }

    /// All words for bulk changes; `None` if they are shared.
    #[inline]
    pub(crate) fn own(&mut self) -> Option<&mut [[u8; WORD_BYTES]]> {
        if !self.changes.is_empty() {
            self.put_changes_into_memory();
        }
        Arc::get_mut(&mut self.memory).map(Memory::words_mut)
    }

    #[cold]
    fn put_changes_into_memory(&mut self) {
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            let words = memory.words_mut();
            self.changes.for_each(&mut |index, word| words[index as usize] = (word as u32).to_le_bytes());
            self.changes = CowTable::new(self.len, 0);
        }
    }

    /// Passes all words to `sink` in order, as the bytes for [`in_memory`](Self::in_memory), in pieces of at most
    /// [`PIECE_BYTES`].
    ///
    /// # Errors
    /// The errors of `sink`.
    pub(crate) fn write<E>(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut changed = Vec::new();
        let pieces = self.memory.words().chunks(PIECE_BYTES / WORD_BYTES);
        for (piece, first) in pieces.zip((0u32..).step_by(PIECE_BYTES / WORD_BYTES)) {
            if self.changes.is_empty() {
                sink(piece.as_flattened())?;
            } else {
                changed.clear();
                (first..).take(piece.len()).for_each(|index| changed.extend(self.get(index).to_le_bytes()));
                sink(&changed)?;
            }
        }
        Ok(())
    }
}

/// Longest piece that [`FlatTable::write`] hands out.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

impl Memory {
    #[inline]
    fn words(&self) -> &[[u8; WORD_BYTES]] {
        let bytes: &[u8] = match self {
            Memory::Owned(bytes) => bytes,
            Memory::Large(memory) => memory,
            Memory::Given(memory) => (**memory).as_ref(),
        };
        bytes.as_chunks().0
    }

    #[inline]
    fn words_mut(&mut self) -> &mut [[u8; WORD_BYTES]] {
        let bytes: &mut [u8] = match self {
            Memory::Owned(bytes) => bytes,
            Memory::Large(memory) => memory,
            Memory::Given(memory) => (**memory).as_mut(),
        };
        bytes.as_chunks_mut().0
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", self.words().len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_clone_shares_the_memory_until_one_side_is_gone() {
        let mut table = FlatTable::new(1_000);
        table.set(3, 7);
        let mut clone = table.clone();
        clone.set(3, 8);
        table.set(4, 9);
        assert_eq!([table.get(3), table.get(4), clone.get(3), clone.get(4)], [7, 9, 8, 0]);
        assert!(Arc::ptr_eq(&table.memory, &clone.memory));
        assert!(clone.own().is_none());
        drop(table);
        clone.set(5, 1);
        assert!(clone.changes.is_empty(), "the changes are in the memory now");
        assert_eq!([clone.get(3), clone.get(4), clone.get(5)], [8, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn beyond_the_end_is_refused() {
        FlatTable::new(128).get(128);
    }

    proptest! {
        #[test]
        fn it_is_an_array_and_so_is_each_clone(
            len in 1u32..2_000,
            steps in prop::collection::vec((any::<u32>(), 0u32..3, 0u8..20), 1..300),
        ) {
            let new = if len % 2 == 0 { FlatTable::new } else { FlatTable::new_in_large_pages };
            let first = new(len.into());
            let mut alive = vec![(first, vec![0u32; len as usize])];
            for (index, word, what) in steps {
                let index = index % len;
                let chosen = word as usize % alive.len();
                match what {
                    0 => alive.push(alive[chosen].clone()),
                    1 if alive.len() > 1 => drop(alive.swap_remove(chosen)),
                    2 => {
                        let mut bytes = Vec::new();
                        let kept: Result<(), ()> = alive[chosen].0.write(&mut |piece| {
                            bytes.extend_from_slice(piece);
                            Ok(())
                        });
                        prop_assert!(kept.is_ok());
                        alive[chosen].0 = FlatTable::in_memory(Box::new(bytes));
                    }
                    _ => {
                        alive[chosen].0.set(index, word);
                        alive[chosen].1[index as usize] = word;
                    }
                }
            }
            for (table, model) in &alive {
                prop_assert_eq!(table.len(), u64::from(len));
                prop_assert!((0..len).all(|index| table.get(index) == model[index as usize]));
            }
        }
    }
}
