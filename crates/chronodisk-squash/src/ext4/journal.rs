//! The journal (JBD2), read as it is written.
//!
//! Offsets are from the Linux kernel's `Documentation/filesystems/ext4/journal.rst`; numbers are big-endian. A
//! transaction counts once its commit block is written and all checksums of the journal match.

use std::collections::HashMap;

use chronodisk_store::StoreError;

use super::superblock::checksum;
use crate::blocks::Blocks;
use crate::runs::RunMap;

const MAGIC: u32 = 0xC03B_3998;
const TYPE_DESCRIPTOR: u32 = 1;
pub(crate) const TYPE_COMMIT: u32 = 2;
const TYPE_SUPERBLOCK_V1: u32 = 3;
const TYPE_SUPERBLOCK_V2: u32 = 4;
const TYPE_REVOKE: u32 = 5;
const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
const INCOMPAT_CHECKSUM_V2: u32 = 0x8;
const INCOMPAT_CHECKSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;
const INCOMPAT_KNOWN: u32 = 0x3F;
const TAG_ESCAPED: u32 = 0x1;
const TAG_SAME_UUID: u32 = 0x2;
const TAG_LAST: u32 = 0x8;

/// Content of the journal's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parameters {
    blocks: u32,
    first: u32,
    sequence: u32,
    /// Block at which the log begins; 0 if it is empty.
    start: u32,
    incompat: u32,
    checksum_seed: u32,
}

/// A transaction that is whole.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The final place of each of its blocks, and the place of its copy in the journal.
    pub(crate) tags: Vec<Tag>,
    /// Blocks whose earlier copies must not be used.
    pub(crate) revoked: Vec<u64>,
    next: u32,
}

/// A block in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) block: u64,
    pub(crate) copy: Copy,
    checksum: u32,
}

/// A copy in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Block in the journal.
    logical: u32,
    /// Whether its first four bytes were replaced, because they equal the journal's magic number.
    escaped: bool,
}

/// The journal of a file system.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Blocks of the file system by block of the journal.
    places: RunMap<u64>,
    /// The inverse map.
    logical: RunMap<u64>,
    block_bytes: usize,
    start_bytes: u64,
    parameters: Option<Parameters>,
    /// Block of the next transaction, and its number.
    head: Option<(u32, u32)>,
    /// The latest committed copy of blocks that were not written to their places since.
    copies: HashMap<u64, Copy>,
    /// The blocks with copies, by block of the journal.
    sources: HashMap<u32, u64>,
    /// A commit was seen that could not be followed.
    pub(crate) lost: bool,
}

impl Journal {
    /// A journal in the blocks that `extents` name: (block of the journal, block, count).
    pub(crate) fn new(extents: &[(u64, u64, u64)], block_bytes: u64, start_bytes: u64) -> Self {
        let (mut places, mut logical) = (RunMap::default(), RunMap::default());
        for &(from, block, len) in extents {
            places.set(from, from + len, block);
            logical.set(block, block + len, from);
        }
        Journal {
            places,
            logical,
            block_bytes: block_bytes as usize,
            start_bytes,
            parameters: None,
            head: None,
            copies: HashMap::new(),
            sources: HashMap::new(),
            lost: false,
        }
    }

    /// Whether commits can be followed as they come.
    pub(crate) fn is_followed(&self) -> bool {
        !self.lost
            && self.parameters.is_some_and(|parameters| {
                let unordered = parameters.incompat & INCOMPAT_ASYNC_COMMIT != 0 && !has_checksums(parameters.incompat);
                parameters.incompat & INCOMPAT_FAST_COMMIT == 0 && !unordered
            })
    }

    /// Memory that it takes, in bytes. Of a transaction it holds where the copies of its blocks are; they are in the
    /// journal, which is kept.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // A hash table has a control byte for each entry.
        let copies = self.copies.capacity() * (size_of::<(u64, Copy)>() + 1);
        let sources = self.sources.capacity() * (size_of::<(u32, u64)>() + 1);
        self.places.memory_bytes() + self.logical.memory_bytes() + (copies + sources) as u64
    }

    /// The block of the journal that lies there.
    pub(crate) fn logical_of(&self, block: u64) -> Option<u32> {
        self.logical.at(block, block + 1).0.map(|logical| logical as u32)
    }

    /// The latest committed copy of a block, if it is newer than the block at its place.
    pub(crate) fn copy_of(&self, block: u64) -> Option<Copy> {
        self.copies.get(&block).copied()
    }

    /// A block was written to its place, which is as new as any copy.
    pub(crate) fn written_in_place(&mut self, start: u64, end: u64) {
        if self.copies.is_empty() {
            return;
        }
        for block in start..end {
            if let Some(copy) = self.copies.remove(&block) {
                self.sources.remove(&copy.logical);
            }
        }
    }

    /// Forgets the copy in a block of the journal that was overwritten.
    pub(crate) fn overwritten(&mut self, logical: u32) {
        if let Some(block) = self.sources.remove(&logical) {
            self.copies.remove(&block);
        }
    }

    /// Reads the journal's superblock. Returns whether it is supported.
    pub(crate) fn read_superblock(&mut self, blocks: &mut Blocks) -> Result<bool, StoreError> {
        let mut bytes = vec![0; self.block_bytes];
        let exact = self.read(blocks, 0, &mut bytes)?;
        let before = self.parameters;
        self.parameters = if exact { self.parse_superblock(&bytes) } else { None };
        if let Some(parameters) = self.parameters {
            if parameters.start == 0 {
                // All metadata are at their places.
                self.copies.clear();
                self.sources.clear();
                self.head = None;
            }
            if before.is_some_and(|before| before.start == 0) || self.lost {
                self.head = None;
                self.lost = false;
            }
        }
        Ok(self.parameters.is_some())
    }

    fn parse_superblock(&self, bytes: &[u8]) -> Option<Parameters> {
        let kind = u32_at(bytes, 4);
        let known = u32_at(bytes, 0) == MAGIC && (kind == TYPE_SUPERBLOCK_V1 || kind == TYPE_SUPERBLOCK_V2);
        let incompat = if kind == TYPE_SUPERBLOCK_V2 { u32_at(bytes, 40) } else { 0 };
        let blocks = u32_at(bytes, 16);
        let first = u32_at(bytes, 20);
        let sane = u32_at(bytes, 12) as usize == self.block_bytes
            && incompat & !INCOMPAT_KNOWN == 0
            && first >= 1
            && first < blocks
            && self.places.pieces(0, u64::from(blocks)).map(|(from, to, _)| to - from).sum::<u64>()
                == u64::from(blocks);
        if !known || !sane {
            return None;
        }
        let fast_commit_blocks = match (incompat & INCOMPAT_FAST_COMMIT != 0, u32_at(bytes, 84)) {
            (false, _) => 0,
            (true, 0) => FAST_COMMIT_BLOCKS_DEFAULT,
            (true, count) => count,
        };
        Some(Parameters {
            blocks: blocks.checked_sub(fast_commit_blocks).filter(|&blocks| blocks > first)?,
            first,
            sequence: u32_at(bytes, 24),
            start: u32_at(bytes, 28),
            incompat,
            checksum_seed: checksum(!0, &bytes[48..64]),
        })
    }

    /// The next complete transactions. `seen` is the number of a commit block that was written just now: if it can't be
    /// reached from them, the journal is lost.
    pub(crate) fn advance(
        &mut self,
        blocks: &mut Blocks,
        seen: Option<u32>,
    ) -> Result<Option<Transaction>, StoreError> {
        let Some(parameters) = self.parameters else {
            self.lost = true;
            return Ok(None);
        };
        let begin =
            |parameters: &Parameters| (parameters.start != 0).then_some((parameters.start, parameters.sequence));
        let Some((at, sequence)) = self.head.or_else(|| begin(&parameters)) else {
            self.lost |= seen.is_some();
            return Ok(None);
        };
        if let Some(transaction) = self.transaction(blocks, &parameters, at, sequence)? {
            self.head = Some((transaction.next, sequence.wrapping_add(1)));
            return Ok(Some(transaction));
        }
        self.head = Some((at, sequence));
        // The number of a later transaction shows that this one was missed.
        self.lost |= seen.is_some_and(|seen| (seen.wrapping_sub(sequence) as i32) >= 0);
        Ok(None)
    }

    /// Whether the journal lies in the blocks that `extents` name.
    pub(crate) fn lies_in(&self, extents: &[(u64, u64, u64)]) -> bool {
        let mut places = RunMap::<u64>::default();
        extents.iter().for_each(|&(from, block, len)| places.set(from, from + len, block));
        places.all().eq(self.places.all())
    }

    /// Blocks with a copy that is newer than the block at its place.
    pub(crate) fn copied_blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.copies.keys().copied()
    }

    /// Puts a transaction's blocks in view.
    pub(crate) fn enter(&mut self, transaction: &Transaction) {
        for tag in &transaction.tags {
            if let Some(old) = self.copies.insert(tag.block, tag.copy) {
                self.sources.remove(&old.logical);
            }
            self.sources.insert(tag.copy.logical, tag.block);
        }
        for block in &transaction.revoked {
            if let Some(copy) = self.copies.remove(block) {
                self.sources.remove(&copy.logical);
            }
        }
    }

    /// Reads a copy as it will be at its place.
    pub(crate) fn read_copy(&self, blocks: &mut Blocks, copy: Copy, bytes: &mut [u8]) -> Result<bool, StoreError> {
        let exact = self.read(blocks, copy.logical, bytes)?;
        if copy.escaped {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
        Ok(exact)
    }

    fn read(&self, blocks: &mut Blocks, logical: u32, bytes: &mut [u8]) -> Result<bool, StoreError> {
        match self.places.at(u64::from(logical), u64::from(logical) + 1).0 {
            Some(block) => blocks.read(self.start_bytes + block * self.block_bytes as u64, bytes),
            None => Ok(false),
        }
    }

    /// The transaction that begins at a block of the journal; `None` if it is incomplete.
    fn transaction(
        &self,
        blocks: &mut Blocks,
        parameters: &Parameters,
        start: u32,
        sequence: u32,
    ) -> Result<Option<Transaction>, StoreError> {
        let mut transaction = Transaction::default();
        let mut bytes = vec![0; self.block_bytes];
        let mut at = start;
        // No transaction is longer than the journal.
        let mut left = parameters.blocks;
        while left > 0 && (parameters.first..parameters.blocks).contains(&at) {
            if !self.read(blocks, at, &mut bytes)? || u32_at(&bytes, 0) != MAGIC || u32_at(&bytes, 8) != sequence {
                return Ok(None);
            }
            let before = transaction.tags.len();
            match u32_at(&bytes, 4) {
                TYPE_DESCRIPTOR if tail_is_right(&bytes, parameters) => {
                    tags(&bytes, parameters, at, &mut transaction.tags);
                }
                TYPE_REVOKE if tail_is_right(&bytes, parameters) => {
                    revoked(&bytes, parameters, &mut transaction.revoked)
                }
                TYPE_COMMIT if commit_is_right(&mut bytes, parameters) => {
                    transaction.next = next(at, 1, parameters);
                    let whole = self.copies_are_right(blocks, parameters, sequence, &transaction.tags)?;
                    return Ok(whole.then_some(transaction));
                }
                _ => return Ok(None),
            }
            let count = (transaction.tags.len() - before) as u32 + 1;
            at = next(at, count, parameters);
            left = left.saturating_sub(count);
        }
        Ok(None)
    }

    fn copies_are_right(
        &self,
        blocks: &mut Blocks,
        parameters: &Parameters,
        sequence: u32,
        tags: &[Tag],
    ) -> Result<bool, StoreError> {
        if !has_checksums(parameters.incompat) {
            return Ok(true);
        }
        let whole = parameters.incompat & INCOMPAT_CHECKSUM_V3 != 0;
        let seed = checksum(parameters.checksum_seed, &sequence.to_be_bytes());
        let mut bytes = vec![0; self.block_bytes];
        for tag in tags {
            let exact = self.read(blocks, tag.copy.logical, &mut bytes)?;
            let sum = checksum(seed, &bytes);
            if !exact || tag.checksum != if whole { sum } else { sum & 0xFFFF } {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The kernel's `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;

/// Type and number of a block of the journal that is not a copy.
pub(crate) fn header(bytes: &[u8]) -> Option<(u32, u32)> {
    (u32_at(bytes, 0) == MAGIC).then(|| (u32_at(bytes, 4), u32_at(bytes, 8)))
}

fn has_checksums(incompat: u32) -> bool {
    incompat & (INCOMPAT_CHECKSUM_V2 | INCOMPAT_CHECKSUM_V3) != 0
}

/// The block `count` blocks after another one; the journal is a ring.
fn next(at: u32, count: u32, parameters: &Parameters) -> u32 {
    let len = parameters.blocks - parameters.first;
    parameters.first + (at - parameters.first + count % len) % len
}

/// Reads a descriptor's tags up to the first invalid one.
fn tags(bytes: &[u8], parameters: &Parameters, at: u32, tags: &mut Vec<Tag>) {
    const HEADER_BYTES: usize = 12;
    const UUID_BYTES: usize = 16;
    let v3 = parameters.incompat & INCOMPAT_CHECKSUM_V3 != 0;
    let wide = parameters.incompat & INCOMPAT_64BIT != 0;
    let tag_bytes = match (v3, parameters.incompat & INCOMPAT_CHECKSUM_V2 != 0) {
        (true, _) => 16,
        (false, v2) => 8 + 2 * usize::from(v2) + 4 * usize::from(wide),
    };
    let end = bytes.len() - if has_checksums(parameters.incompat) { 4 } else { 0 };
    let mut position = HEADER_BYTES;
    let mut count = 1;
    while position + tag_bytes <= end && count < parameters.blocks - parameters.first {
        let tag = &bytes[position..position + tag_bytes];
        let short = |at: usize| u32::from(u16::from_be_bytes([tag[at], tag[at + 1]]));
        let (flags, sum) = if v3 { (u32_at(tag, 4), u32_at(tag, 12)) } else { (short(6), short(4)) };
        let high = if wide { u64::from(u32_at(tag, 8)) << 32 } else { 0 };
        let copy = Copy { logical: next(at, count, parameters), escaped: flags & TAG_ESCAPED != 0 };
        tags.push(Tag { block: u64::from(u32_at(tag, 0)) | high, copy, checksum: sum });
        count += 1;
        position += tag_bytes + if flags & TAG_SAME_UUID == 0 { UUID_BYTES } else { 0 };
        if flags & TAG_LAST != 0 {
            break;
        }
    }
}

fn revoked(bytes: &[u8], parameters: &Parameters, revoked: &mut Vec<u64>) {
    let entry_bytes = if parameters.incompat & INCOMPAT_64BIT != 0 { 8 } else { 4 };
    let end = (u32_at(bytes, 12) as usize).min(bytes.len());
    for entry in bytes.get(16..end).unwrap_or_default().chunks_exact(entry_bytes) {
        revoked.push(entry.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)));
    }
}

/// The checksum in the last four bytes of a descriptor or revoke block.
fn tail_is_right(bytes: &[u8], parameters: &Parameters) -> bool {
    if !has_checksums(parameters.incompat) {
        return true;
    }
    let tail = bytes.len() - 4;
    checksum(checksum(parameters.checksum_seed, &bytes[..tail]), &[0; 4]) == u32_at(bytes, tail)
}

/// The checksum of a commit block, which counts as zero itself.
fn commit_is_right(bytes: &mut [u8], parameters: &Parameters) -> bool {
    if !has_checksums(parameters.incompat) {
        return true;
    }
    let stored = u32_at(bytes, 16);
    bytes[16..20].fill(0);
    checksum(parameters.checksum_seed, bytes) == stored
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
