//! Writes, and the promises about them.

use std::collections::BTreeMap;
use std::ops::Range;

pub const BLOCK_BYTES: usize = 4096;
/// Blocks of the device that are used.
pub const BLOCKS: u64 = 1024;

/// The number of a write; zero for a block that was never written.
type Write = u64;

pub struct Ledger {
    pub has_cache: bool,
    /// For each block, which writes it may have after a kill, the last one at the end.
    possible: Vec<Vec<Write>>,
    under_way: BTreeMap<Write, (Range<u64>, bool)>,
    next: Write,
    promised: u64,
}

impl Ledger {
    pub fn new(has_cache: bool) -> Self {
        let possible = vec![vec![0]; BLOCKS as usize];
        Ledger { has_cache, possible, under_way: BTreeMap::new(), next: 1, promised: 0 }
    }

    /// A write of up to so many blocks that overlaps no other: its number, its first block and its bytes.
    pub fn compose(&mut self, random: &mut Random, longest: u64, fua: bool) -> Option<(Write, u64, Vec<u8>)> {
        let count = 1 + random.below(longest);
        let first = random.below(BLOCKS - count + 1);
        let blocks = first..first + count;
        if self.under_way.values().any(|(other, _)| other.start < blocks.end && blocks.start < other.end) {
            return None;
        }
        let write = self.next;
        self.next += 1;
        let bytes = blocks.clone().flat_map(|block| contents(write, block)).collect();
        self.sent(write, blocks, fua);
        Some((write, first, bytes))
    }

    /// Records a write that is on its way.
    pub fn sent(&mut self, write: Write, blocks: Range<u64>, fua: bool) {
        for block in blocks.clone() {
            self.possible[block as usize].push(write);
        }
        self.under_way.insert(write, (blocks, fua));
    }

    /// Records the completion of a write.
    pub fn completed(&mut self, write: Write) {
        let (blocks, fua) = self.under_way.remove(&write).expect("it was under way");
        if fua || !self.has_cache {
            self.promised += 1;
            for block in blocks {
                self.possible[block as usize] = vec![write];
            }
        }
    }

    /// Records the completion of a flush with no other request under way.
    pub fn flushed(&mut self) {
        self.promised += 1;
        for possible in &mut self.possible {
            possible.drain(..possible.len() - 1);
        }
    }

    /// Requests in flight will not complete.
    pub fn killed(&mut self) {
        self.under_way.clear();
    }

    /// Number of promises so far.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Compares each block with its possible contents; the value found is the only possibility from then on.
    pub fn check(&mut self, blocks: &[u8]) -> Result<(), String> {
        for (block, (found, possible)) in (0..).zip(blocks.chunks(BLOCK_BYTES).zip(&mut self.possible)) {
            let Some(write) = possible.iter().copied().find(|write| contents(*write, block) == found) else {
                let word = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
                return Err(format!("block {block} has write {}, expected one of {possible:?}", word >> 16));
            };
            *possible = vec![write];
        }
        Ok(())
    }
}

/// A block as a write leaves it: each of its words says which write and which block.
fn contents(write: Write, block: u64) -> Vec<u8> {
    let word = if write == 0 { 0 } else { write << 16 | block };
    word.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }
}
