//! The log, read as it is written, in the form of version 2 on little-endian machines.
//!
//! Offsets are from `struct xlog_rec_header`, `xlog_op_header`, `xfs_inode_log_format` and `xfs_buf_log_format`
//! (Linux, `fs/xfs/libxfs/xfs_log_format.h`). Headers of records and operations are big-endian, items little-endian.
//!
//! The log is a ring of sectors. A record has its place and its cycle, so the place of the next one follows from the
//! last one. A record counts once it is complete and its checksum matches; until then the sectors written ahead of it
//! are remembered. Its operations add regions to transactions, which count at their commit. The kernel's recovery ends
//! at the same place.
//!
//! An unknown item ends the reading: [`Log::is_lost`], until an unmount restarts the log.

use std::collections::{HashMap, HashSet};

use chronodisk_store::StoreError;

use super::superblock::{Superblock, u32_at, u64_at};
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::crc32c;
use crate::runs::RunMap;
use crate::units::VolumeUnit;

const MAGIC: u32 = 0xFEED_BABE;
const SECTOR_BYTES: usize = 512;
const UNIT_SECTORS: usize = UNIT_BYTES as usize / SECTOR_BYTES;
const SECTOR_WORD_BYTES: usize = 4;
const VERSION: u32 = 2;
const FORMAT_LITTLE_ENDIAN: u32 = 1;
/// `XLOG_MAX_RECORD_BSIZE`, and the part of a record whose first words a header's sector holds.
const RECORD_MAX_BYTES: u32 = 256 << 10;
const HEADER_COVERS_BYTES: u32 = 32 << 10;
const CYCLE_DATA_AT: usize = 44;
const CYCLE_DATA_WORDS: usize = 64;
const CHECKSUM_AT: usize = 32;
/// Bytes of a header's first sector under the checksum, and of the others. 32-bit processors omit a word.
const CHECKED_BYTES: [usize; 2] = [328, 324];
const CHECKED_MORE_BYTES: usize = 260;

const OPERATION_BYTES: usize = 12;
const START: u8 = 0x01;
const COMMIT: u8 = 0x02;
const CONTINUE: u8 = 0x04;
const WAS_CONTINUED: u8 = 0x08;
const END: u8 = 0x10;
const UNMOUNT: u8 = 0x20;
const CLIENTS: [u8; 2] = [0x69, 0xAA];

const TRANSACTION_HEADER_BYTES: usize = 16;
const TRANSACTION_MAGIC: &[u8] = b"NART";
/// More regions than an item can have.
const REGIONS_MAX: usize = 1 << 12;

const ITEM_INODE: u16 = 0x123B;
const ITEM_BUFFER: u16 = 0x123C;
/// Frees of extents, reverse maps, reference counts, attributes, quota, unlinked and new inodes: none of them contains
/// the places of contents.
const ITEMS_IGNORED: [u16; 12] =
    [0x1236, 0x1237, 0x1238, 0x123D, 0x123E, 0x123F, 0x1240, 0x1241, 0x1242, 0x1243, 0x1246, 0x1247];
/// Intents to change the maps of files, and their completions.
const ITEMS_INTENDED: [u16; 2] = [0x1244, 0x1248];
const ITEMS_DONE: [u16; 2] = [0x1245, 0x1249];

const INODE_FORMAT_BYTES: usize = 56;
const CORE_BYTES: usize = 176;
const FIELD_CORE: u32 = 0x1;
const FIELD_LOCAL_OR_EXTENTS: u32 = 0x2 | 0x4;
const FIELD_TREE: u32 = 0x8;
const FIELD_OWNER_CHANGES: u32 = 0x200;

const BUFFER_MAP_AT: usize = 20;
const BUFFER_CHUNK_BYTES: usize = 128;
const BUFFER_CANCELLED: u16 = 0x2;
/// Buffers of inodes, whose contents are logged with the inodes, and of quota.
const BUFFER_IGNORED: u16 = 0x1 | 0x4 | 0x8 | 0x10;

/// The data fork of a logged inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fork {
    /// The fork as stored on the device: entries, or extents.
    AsIs(Vec<u8>),
    /// The root of an extent tree, with the header that it has in memory.
    Tree(Vec<u8>),
}

/// A change of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Inode {
        number: u64,
        core: [u8; CORE_BYTES],
        fork: Option<Fork>,
    },
    /// Parts of a block: where they begin in it, and their bytes.
    Block {
        sector: u64,
        len_bytes: u64,
        parts: Vec<(usize, Vec<u8>)>,
    },
    /// Earlier log items of these sectors are cancelled.
    Cancelled {
        sector: u64,
        sectors: u64,
    },
}

/// A transaction that is committed.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// The number of the record that it begins in, which inodes and blocks carry at their places.
    pub(super) lsn: u64,
    pub(super) items: Vec<Item>,
}

/// A possibly incomplete transaction.
#[derive(Debug, Default)]
struct Transaction {
    lsn: u64,
    header: Vec<u8>,
    /// Regions of items, and how many each should have.
    items: Vec<(usize, Vec<Vec<u8>>)>,
}

/// Place of a record, and its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    cycle: u32,
    sector: u64,
}

impl Position {
    fn lsn(self) -> u64 {
        u64::from(self.cycle) << 32 | self.sector
    }

    fn of(lsn: u64) -> Self {
        Position { cycle: (lsn >> 32) as u32, sector: lsn & 0xFFFF_FFFF }
    }
}

/// A record that is whole.
struct Record {
    tail: Position,
    next: Position,
    operations: u32,
    payload: Vec<u8>,
}

impl Record {
    fn is_unmount(&self) -> bool {
        self.operations == 1 && self.payload.get(9).is_some_and(|flags| flags & UNMOUNT != 0)
    }
}

/// The log of a file system.
#[derive(Debug)]
pub(super) struct Log {
    start_bytes: u64,
    sectors: u64,
    /// Place of the next record.
    head: Option<Position>,
    /// Whether an unmount wrote the last record.
    at_rest: bool,
    lost: bool,
    /// Sectors at the head and after it that seem to belong to unread records.
    ahead: RunMap<()>,
    transactions: HashMap<u32, Transaction>,
    transactions_bytes: u64,
    /// Changes of maps that the kernel would make when it recovers the file system.
    intended: HashSet<(u16, u64)>,
}

impl Log {
    /// The log of a file system that begins at `start_bytes`, before any of it is read.
    pub(super) fn new(start_bytes: u64, superblock: &Superblock) -> Self {
        Log {
            start_bytes: start_bytes + superblock.log_start * superblock.block_bytes,
            sectors: superblock.log_blocks * superblock.block_bytes / SECTOR_BYTES as u64,
            head: None,
            at_rest: false,
            lost: false,
            ahead: RunMap::default(),
            transactions: HashMap::new(),
            transactions_bytes: 0,
            intended: HashSet::new(),
        }
    }

    /// Metadata are known from the log, not from their places.
    pub(super) fn is_read(&self) -> bool {
        self.head.is_some() && !self.lost && !self.at_rest
    }

    /// The file system was unmounted, and everything is at its place.
    pub(super) fn is_at_rest(&self) -> bool {
        self.head.is_some() && !self.lost && self.at_rest
    }

    /// Whether the log is known as far as a recovery would read it.
    pub(super) fn is_followed(&self) -> bool {
        self.is_read() && self.ahead.is_empty() && self.intended.is_empty()
    }

    /// Ignores the log until it is begun again.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.ahead.clear();
        self.transactions.clear();
        self.transactions_bytes = 0;
        self.intended.clear();
    }

    /// Whether a range of the device overlaps the log.
    pub(super) fn is_touched(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        let (from, to) = self.sectors_of(offset_bytes, len_bytes);
        from < to
    }

    /// Forgets the log, which was cleared.
    pub(super) fn forget(&mut self) {
        self.lose();
        self.head = None;
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.transactions_bytes + self.ahead.memory_bytes()
    }

    /// The sectors of the log among bytes of the device.
    fn sectors_of(&self, offset_bytes: u64, len_bytes: u64) -> (u64, u64) {
        let from = offset_bytes.max(self.start_bytes) - self.start_bytes;
        let to = (offset_bytes + len_bytes).max(self.start_bytes) - self.start_bytes;
        (from / SECTOR_BYTES as u64, to.div_ceil(SECTOR_BYTES as u64).min(self.sectors))
    }

    /// Reads the log from the tail of its last record on, as a recovery does.
    pub(super) fn open(&mut self, blocks: &mut Blocks) -> Result<Vec<Checkpoint>, StoreError> {
        let mut newest: Option<(Position, Position)> = None;
        let (from, to) = (self.start_bytes, self.start_bytes + self.sectors * SECTOR_BYTES as u64);
        for (from, to) in blocks.stored_pieces(VolumeUnit::of_byte(from), VolumeUnit(to.div_ceil(UNIT_BYTES))) {
            let (from, to) = self.sectors_of(from.offset_bytes(), (to - from) * UNIT_BYTES);
            for first in (from..to).step_by(UNIT_SECTORS) {
                let bytes = self.read(first, (to - first).min(UNIT_SECTORS as u64), blocks)?;
                for (bytes, sector) in bytes.chunks_exact(SECTOR_BYTES).zip(first..) {
                    let position = Position { cycle: u32_at(bytes, 4), sector };
                    let newer = newest.is_none_or(|(newest, _)| newest.lsn() < position.lsn());
                    if newer
                        && u32_at(bytes, 0) == MAGIC
                        && let Some(record) = self.record(position, blocks)?
                    {
                        newest = Some((position, record.tail));
                    }
                }
            }
        }
        let Some((newest, tail)) = newest else { return Ok(Vec::new()) };
        let mut committed = Vec::new();
        self.head = Some(tail);
        // The tail is at most one cycle behind, and no record is read twice.
        let mut reached = false;
        for _ in 0..self.sectors {
            let Some(head) = self.head.filter(|_| !self.lost) else { break };
            let Some(record) = self.record(head, blocks)? else { break };
            reached |= head == newest;
            self.take(head, &record, &mut committed);
        }
        if !reached {
            self.lose();
        }
        Ok(if self.lost { Vec::new() } else { committed })
    }

    /// Looks for transactions that are whole now that bytes of the device were written.
    pub(super) fn written(
        &mut self,
        offset_bytes: u64,
        len_bytes: u64,
        blocks: &mut Blocks,
    ) -> Result<Vec<Checkpoint>, StoreError> {
        let (from, to) = self.sectors_of(offset_bytes, len_bytes);
        if from >= to {
            return Ok(Vec::new());
        }
        let bytes = self.read(from, to - from, blocks)?;
        let mut unmounts = Vec::new();
        for (bytes, sector) in bytes.chunks_exact(SECTOR_BYTES).zip(from..) {
            let is_header = u32_at(bytes, 0) == MAGIC;
            let cycle = u32_at(bytes, if is_header { 4 } else { 0 });
            if is_header && u32_at(bytes, 40) == 1 && u64_at(bytes, 16) == (Position { cycle, sector }).lsn() {
                unmounts.push(Position { cycle, sector });
            }
            // The kernel clears sectors after the head with an earlier cycle.
            let newer = self.head.is_some_and(|head| cycle >= head.cycle.saturating_add((sector < head.sector).into()));
            if newer && !self.lost {
                self.ahead.set(sector, sector + 1, ());
            } else {
                self.ahead.remove(sector, sector + 1);
            }
            // At a mount the kernel clears sectors after the head, with headers of an earlier cycle; tools write zeros.
            self.at_rest &= !is_header && cycle == 0;
        }
        let mut committed = Vec::new();
        while let Some(head) = self.head.filter(|_| !self.lost) {
            let Some(record) = self.record(head, blocks)? else { break };
            self.take(head, &record, &mut committed);
        }
        for position in unmounts {
            // The write may share a block with an earlier one.
            if self.head.is_some_and(|head| position.lsn() < head.lsn()) {
                continue;
            }
            if let Some(record) = self.record(position, blocks)?.filter(Record::is_unmount) {
                self.lose();
                self.lost = false;
                self.take(position, &record, &mut committed);
            }
        }
        Ok(committed)
    }

    /// Applies the next record of the log.
    fn take(&mut self, position: Position, record: &Record, committed: &mut Vec<Checkpoint>) {
        let end = if record.next.cycle == position.cycle { record.next.sector } else { self.sectors };
        self.ahead.remove(position.sector, end);
        if record.next.cycle != position.cycle {
            self.ahead.remove(0, record.next.sector);
        }
        self.head = Some(record.next);
        self.at_rest = record.is_unmount();
        if self.at_rest {
            self.transactions.clear();
            self.transactions_bytes = 0;
            self.intended.clear();
        } else if self.operations(position.lsn(), record, committed).is_none() {
            self.lose();
        }
    }

    /// The record at a position; `None` if it is incomplete.
    fn record(&self, at: Position, blocks: &mut Blocks) -> Result<Option<Record>, StoreError> {
        if at.sector >= self.sectors {
            return Ok(None);
        }
        let header = self.read(at.sector, 1, blocks)?;
        let (len, size) = (u32_at(&header, 12), u32_at(&header, 320));
        let own = u32_at(&header, 0) == MAGIC && u32_at(&header, 4) == at.cycle && u64_at(&header, 16) == at.lsn();
        let understood = u32_at(&header, 8) == VERSION && u32_at(&header, 300) == FORMAT_LITTLE_ENDIAN;
        let header_sectors = u64::from(size.div_ceil(HEADER_COVERS_BYTES).max(1));
        let sectors = u64::from(len).div_ceil(SECTOR_BYTES as u64);
        let fits = size <= RECORD_MAX_BYTES
            && sectors > 0
            && sectors <= header_sectors * CYCLE_DATA_WORDS as u64
            && header_sectors + sectors <= self.sectors;
        if !own || !understood || !fits {
            return Ok(None);
        }
        let headers = self.read(at.sector, header_sectors, blocks)?;
        let mut payload = self.read(at.sector + header_sectors, sectors, blocks)?;
        payload.truncate(len as usize);
        let operations = u32_at(&header, 40);
        let right = CHECKED_BYTES.iter().any(|&len| checksum(&headers, &payload, len) == headers[CHECKSUM_AT..][..4]);
        restore_words(&headers, &mut payload);
        let end = at.sector + header_sectors + sectors;
        let next = Position { cycle: at.cycle.wrapping_add((end >= self.sectors).into()), sector: end % self.sectors };
        let record = Record { tail: Position::of(u64_at(&header, 24)), next, operations, payload };
        // Tools write no checksum.
        let by_tool = headers[CHECKSUM_AT..][..4] == [0; 4] && record.is_unmount();
        Ok((right || by_tool).then_some(record))
    }

    /// Reads sectors of the log, which is a ring.
    fn read(&self, sector: u64, count: u64, blocks: &mut Blocks) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; count as usize * SECTOR_BYTES];
        let first = sector % self.sectors;
        let split = (count.min(self.sectors - first) as usize) * SECTOR_BYTES;
        let (head, tail) = bytes.split_at_mut(split);
        blocks.read(self.start_bytes + first * SECTOR_BYTES as u64, head)?;
        if !tail.is_empty() {
            blocks.read(self.start_bytes, tail)?;
        }
        Ok(bytes)
    }

    /// Executes a record's operations; `None` if one is unknown.
    fn operations(&mut self, lsn: u64, record: &Record, committed: &mut Vec<Checkpoint>) -> Option<()> {
        let mut rest = &record.payload[..];
        for _ in 0..record.operations {
            let (head, behind) = rest.split_at_checked(OPERATION_BYTES)?;
            let (bytes, behind) = behind.split_at_checked(u32_at(head, 4) as usize)?;
            rest = behind;
            if !CLIENTS.contains(&head[8]) {
                return None;
            }
            self.operation(lsn, u32_at(head, 0), head[9], bytes, committed)?;
        }
        // Open transactions can't be larger than the log.
        (self.transactions_bytes <= self.sectors * SECTOR_BYTES as u64).then_some(())
    }

    fn operation(&mut self, lsn: u64, id: u32, flags: u8, bytes: &[u8], committed: &mut Vec<Checkpoint>) -> Option<()> {
        let Some(transaction) = self.transactions.get_mut(&id) else {
            // The rest of a transaction that began before the tail counts as little as an unmount.
            if flags & START != 0 {
                self.transactions.insert(id, Transaction { lsn, ..Transaction::default() });
                self.transactions_bytes += size_of::<Transaction>() as u64;
            }
            return Some(());
        };
        let flags = flags & !END;
        match if flags & WAS_CONTINUED != 0 { flags & !CONTINUE } else { flags } {
            0 | CONTINUE => transaction.add(bytes)?,
            WAS_CONTINUED => transaction.go_on(bytes)?,
            COMMIT => {
                let transaction = self.transactions.remove(&id)?;
                let taken_bytes = transaction.bytes() + size_of::<Transaction>() as u64;
                self.transactions_bytes = self.transactions_bytes.saturating_sub(taken_bytes);
                committed.push(self.commit(transaction)?);
                return Some(());
            }
            _ => return None,
        }
        self.transactions_bytes += bytes.len() as u64;
        Some(())
    }

    fn commit(&mut self, transaction: Transaction) -> Option<Checkpoint> {
        let mut items = Vec::new();
        for (count, regions) in transaction.items {
            let first = regions.first().filter(|_| regions.len() == count)?;
            match le16(first, 0)? {
                ITEM_INODE => items.push(inode(&regions)?),
                ITEM_BUFFER => items.extend(buffer(&regions)?),
                kind if ITEMS_INTENDED.contains(&kind) => {
                    self.intended.insert((kind, le64(first, 8)?));
                }
                kind if ITEMS_DONE.contains(&kind) => {
                    self.intended.remove(&(kind - 1, le64(first, 8)?));
                }
                kind if ITEMS_IGNORED.contains(&kind) => {}
                _ => return None,
            }
        }
        Some(Checkpoint { lsn: transaction.lsn, items })
    }
}

impl Transaction {
    fn bytes(&self) -> u64 {
        let regions = self.items.iter().flat_map(|item| &item.1);
        regions.map(|region| region.len() as u64).sum::<u64>() + self.header.len() as u64
    }

    /// A region begins: of the header, of the last item, or of another one.
    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        if self.header.len() < TRANSACTION_HEADER_BYTES && self.items.is_empty() {
            let first = self.header.is_empty() && bytes.starts_with(TRANSACTION_MAGIC);
            self.header.extend(bytes);
            return (first && bytes.len() <= TRANSACTION_HEADER_BYTES).then_some(());
        }
        match self.items.last_mut() {
            Some((count, regions)) if regions.len() < *count => regions.push(bytes.to_vec()),
            _ => {
                let count = usize::from(le16(bytes, 2)?);
                if count == 0 || count > REGIONS_MAX {
                    return None;
                }
                self.items.push((count, vec![bytes.to_vec()]));
            }
        }
        Some(())
    }

    /// Continues the last region.
    fn go_on(&mut self, bytes: &[u8]) -> Option<()> {
        match self.items.last_mut() {
            Some((_, regions)) => regions.last_mut()?.extend(bytes),
            None => {
                self.header.extend(bytes);
                return (self.header.len() <= TRANSACTION_HEADER_BYTES).then_some(());
            }
        }
        Some(())
    }
}

/// An inode and its data fork; `None` if they are not supported.
fn inode(regions: &[Vec<u8>]) -> Option<Item> {
    let format = regions.first().filter(|format| format.len() == INODE_FORMAT_BYTES)?;
    let fields = le32(format, 4)?;
    if fields & FIELD_CORE == 0 || fields & FIELD_OWNER_CHANGES != 0 {
        return None;
    }
    let core = core_on_device(regions.get(1)?.as_slice().try_into().ok()?);
    let data = || regions.get(2)?.get(..usize::from(le16(format, 10)?)).map(<[u8]>::to_vec);
    let fork = match (fields & FIELD_LOCAL_OR_EXTENTS != 0, fields & FIELD_TREE != 0) {
        (true, true) => return None,
        (true, false) => Some(Fork::AsIs(data()?)),
        (false, true) => Some(Fork::Tree(data()?)),
        (false, false) => None,
    };
    Some(Item::Inode { number: le64(format, 16)?, core, fork })
}

/// Offset and length of each number in an inode's core, except single bytes and the UUID.
const CORE_NUMBERS: [(usize, usize); 28] = [
    (0, 2),
    (2, 2),
    (6, 2),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 4),
    (76, 4),
    (80, 2),
    (84, 4),
    (88, 2),
    (90, 2),
    (92, 4),
    (96, 4),
    (104, 8),
    (112, 8),
    (120, 8),
    (128, 4),
    (144, 8),
    (152, 8),
];

/// The log has an inode's numbers as the processor has them.
fn core_on_device(mut core: [u8; CORE_BYTES]) -> [u8; CORE_BYTES] {
    for (at, len) in CORE_NUMBERS {
        core[at..at + len].reverse();
    }
    core
}

/// A block's logged parts if they matter here; `None` if they are not supported.
fn buffer(regions: &[Vec<u8>]) -> Option<Option<Item>> {
    let format = regions.first()?;
    let (flags, sectors, sector) = (le16(format, 4)?, u64::from(le16(format, 6)?), le64(format, 8)?);
    if flags & BUFFER_CANCELLED != 0 {
        return Some(Some(Item::Cancelled { sector, sectors }));
    }
    if flags & BUFFER_IGNORED != 0 {
        return Some(None);
    }
    let words = le32(format, 16)? as usize;
    let map = format.get(BUFFER_MAP_AT..BUFFER_MAP_AT.checked_add(words.checked_mul(4)?)?)?;
    let is_logged = |chunk: usize| map.get(chunk / 8).is_some_and(|byte| byte & 1 << (chunk % 8) != 0);
    let len_bytes = sectors * SECTOR_BYTES as u64;
    let (mut parts, mut chunk) = (Vec::new(), 0);
    // Chunks in a row are one region, or several.
    for region in &regions[1..] {
        while !is_logged(chunk) {
            chunk += 1;
            if chunk >= map.len() * 8 {
                return None;
            }
        }
        let count = region.len() / BUFFER_CHUNK_BYTES;
        let whole = count > 0 && region.len().is_multiple_of(BUFFER_CHUNK_BYTES);
        let end_bytes = ((chunk + count) * BUFFER_CHUNK_BYTES) as u64;
        if !whole || end_bytes > len_bytes || !(chunk..chunk + count).all(is_logged) {
            return None;
        }
        parts.push((chunk * BUFFER_CHUNK_BYTES, region.clone()));
        chunk += count;
    }
    (!(chunk..map.len() * 8).any(is_logged)).then_some(Some(Item::Block { sector, len_bytes, parts }))
}

/// Computes a record's checksum as stored.
fn checksum(headers: &[u8], payload: &[u8], checked_bytes: usize) -> [u8; 4] {
    let (first, more) = headers.split_at(SECTOR_BYTES);
    let sum = crc32c::crc32c(&first[..CHECKSUM_AT]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    let sum = crc32c::crc32c_append(sum, &first[CHECKSUM_AT + 4..checked_bytes]);
    let more = more.chunks_exact(SECTOR_BYTES);
    let sum = more.fold(sum, |sum, header| crc32c::crc32c_append(sum, &header[..CHECKED_MORE_BYTES]));
    crc32c::crc32c_append(sum, payload).to_le_bytes()
}

/// Restores the first word of each sector, which the cycle number replaces on the device.
fn restore_words(headers: &[u8], payload: &mut [u8]) {
    for (sector, index) in payload.chunks_mut(SECTOR_BYTES).zip(0..) {
        let header = &headers[index / CYCLE_DATA_WORDS * SECTOR_BYTES..];
        let first = if index < CYCLE_DATA_WORDS { CYCLE_DATA_AT } else { SECTOR_WORD_BYTES };
        let word = &header[first + index % CYCLE_DATA_WORDS * SECTOR_WORD_BYTES..][..SECTOR_WORD_BYTES];
        let len = sector.len().min(SECTOR_WORD_BYTES);
        sector[..len].copy_from_slice(&word[..len]);
    }
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
