//! Maps btrfs's logical addresses to places on the device.
//!
//! Nodes and contents of files have *logical* addresses. Ranges of these, chunks, lie on the device in one or
//! more copies (`struct btrfs_chunk`, Linux, `include/uapi/linux/btrfs_tree.h`), and each is of one kind.

use std::collections::BTreeMap;

use super::key::{KEY_BYTES, Key};
use super::superblock::Superblock;
use crate::UNIT_BYTES;
use crate::bytes::u64_at;
use crate::runs::{RunMap, RunValue};

/// Contents of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Contents of files, and the space cache of version 1.
    Data,
    /// Nodes.
    Nodes,
    /// Nodes and contents of files.
    Mixed,
}

/// The kind of the chunk at a block of the device, and the block's logical address in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkBlock {
    pub(crate) kind: Kind,
    pub(crate) logical: u64,
}

impl RunValue for ChunkBlock {
    fn advanced(self, by: u64) -> Self {
        ChunkBlock { logical: self.logical.wrapping_add(by), ..self }
    }
}

/// A chunk's copies on this device, by their first bytes.
#[derive(Debug)]
struct Chunk {
    len_bytes: u64,
    copies: Vec<u64>,
}

/// All chunks of a file system.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// Chunks by logical address.
    chunks: BTreeMap<u64, Chunk>,
    /// Chunks by block of the device, counted from the beginning of the file system.
    places: RunMap<ChunkBlock>,
}

const TYPE_DATA: u64 = 1;
const TYPE_SYSTEM: u64 = 1 << 1;
const TYPE_METADATA: u64 = 1 << 2;
const TYPE_RAID0: u64 = 1 << 3;
const TYPE_RAID10: u64 = 1 << 6;
const TYPE_RAID5: u64 = 1 << 7;
const TYPE_RAID6: u64 = 1 << 8;
const TYPE_STRIPED: u64 = TYPE_RAID0 | TYPE_RAID10 | TYPE_RAID5 | TYPE_RAID6;
/// The chunk types DATA, SYSTEM and METADATA, and the profiles up to RAID1C4.
const TYPE_KNOWN: u64 = 0x7FF;

const HEADER_BYTES: usize = 48;
const COPY_BYTES: usize = 32;
pub(crate) const KEY_TYPE: u8 = 228;

impl Chunks {
    /// The chunks in the superblock itself, which hold the chunk tree; or their fault.
    pub(crate) fn of_system(superblock: &Superblock) -> Result<Self, String> {
        let mut chunks = Chunks::default();
        let mut rest = &superblock.system_chunks[..];
        while !rest.is_empty() {
            let len = rest.get(KEY_BYTES + HEADER_BYTES - 4..).and_then(|counts| counts.first_chunk::<2>());
            let len = len.map(|&count| HEADER_BYTES + COPY_BYTES * usize::from(u16::from_le_bytes(count)));
            let item = len.and_then(|len| rest.get(KEY_BYTES..KEY_BYTES + len));
            let Some(item) = item else { return Err("its system chunks are cut off".to_owned()) };
            chunks.add(Key::at(rest, 0).offset, item, superblock)?;
            rest = &rest[KEY_BYTES + item.len()..];
        }
        Ok(chunks)
    }

    /// Adds the chunk at a logical address; or returns its fault.
    pub(crate) fn add(&mut self, logical: u64, item: &[u8], superblock: &Superblock) -> Result<(), String> {
        let fault = |fault: &str| Err(fault.to_owned());
        if item.len() < HEADER_BYTES {
            return fault("a chunk is cut off");
        }
        let (len_bytes, bits) = (u64_at(item, 0), u64_at(item, 24));
        let copies = usize::from(u16::from_le_bytes([item[44], item[45]]));
        if item.len() != HEADER_BYTES + COPY_BYTES * copies {
            return fault("a chunk is cut off");
        }
        if bits & TYPE_STRIPED != 0 {
            return fault("striped chunks");
        }
        let kind = match (bits & TYPE_DATA != 0, bits & (TYPE_METADATA | TYPE_SYSTEM) != 0) {
            _ if bits & !TYPE_KNOWN != 0 => return fault("chunks of an unknown kind"),
            (true, true) => Kind::Mixed,
            (true, false) => Kind::Data,
            (false, true) => Kind::Nodes,
            (false, false) => return fault("chunks of an unknown kind"),
        };
        let own = item[HEADER_BYTES..].chunks_exact(COPY_BYTES);
        let own = own.filter(|copy| u64_at(copy, 0) == superblock.device).map(|copy| u64_at(copy, 8));
        let chunk = Chunk { len_bytes, copies: own.collect() };
        // If the next chunk of nodes lay where they can't be read, a later node could not be found.
        if kind != Kind::Data
            && (chunk.copies.is_empty() || superblock.devices > 1 && copies as u64 != superblock.devices)
        {
            return fault("nodes that are not on each of its devices");
        }
        let node_bytes = superblock.node_bytes;
        let aligned = |bytes: u64| bytes.is_multiple_of(node_bytes);
        if len_bytes == 0 || !aligned(len_bytes) || !aligned(logical) || !chunk.copies.iter().all(|&at| aligned(at)) {
            return fault("chunks that begin or end within a node");
        }
        let inside = |at: u64, end: u64| at.checked_add(len_bytes).is_some_and(|last| last <= end);
        if !inside(logical, u64::MAX) || !chunk.copies.iter().all(|&at| inside(at, superblock.total_bytes)) {
            return fault("a chunk reaches beyond the device");
        }
        let before = self.chunks.range(..logical + len_bytes).next_back();
        if before.is_some_and(|(start, known)| start + known.len_bytes > logical) {
            return fault("chunks overlap");
        }
        for &at in &chunk.copies {
            let (start, end) = (at / UNIT_BYTES, (at + len_bytes) / UNIT_BYTES);
            if self.places.pieces(start, end).next().is_some() {
                return fault("chunks overlap");
            }
            self.places.set(start, end, ChunkBlock { kind, logical: logical / UNIT_BYTES });
        }
        self.chunks.insert(logical, chunk);
        Ok(())
    }

    /// The chunk at a block, and the end of the range to which the answer applies, at most `limit`.
    pub(crate) fn at(&self, block: u64, limit: u64) -> (Option<ChunkBlock>, u64) {
        self.places.at(block, limit)
    }

    /// The pieces of chunks in a range of blocks.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, ChunkBlock)> + '_ {
        self.places.pieces(start, end)
    }

    /// First bytes of all copies of the `len_bytes` from a logical address on, if one chunk has them.
    pub(crate) fn copies(&self, logical: u64, len_bytes: u64) -> impl Iterator<Item = u64> + '_ {
        let chunk = self.chunks.range(..=logical).next_back();
        let chunk = chunk
            .filter(|(start, chunk)| logical.checked_add(len_bytes).is_some_and(|end| end - *start <= chunk.len_bytes));
        chunk.into_iter().flat_map(move |(start, chunk)| chunk.copies.iter().map(move |at| at + (logical - start)))
    }

    /// The logical addresses of all chunks: first byte and end.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.chunks.iter().map(|(&start, chunk)| (start, start + chunk.len_bytes))
    }

    /// The ranges of logical addresses that hold nodes: first byte and end.
    pub(crate) fn node_ranges(&self) -> Vec<(u64, u64)> {
        let holds_nodes = |chunk: &Chunk| {
            let first = chunk.copies.first().map(|at| at / UNIT_BYTES);
            first.is_some_and(|first| self.places.at(first, first + 1).0.is_some_and(|place| place.kind != Kind::Data))
        };
        let nodes = self.chunks.iter().filter(|(_, chunk)| holds_nodes(chunk));
        nodes.map(|(&start, chunk)| (start, start + chunk.len_bytes)).collect()
    }

    /// Memory that the tables take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes() + (self.chunks.len() * size_of::<(u64, Chunk)>()) as u64
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        (self.chunks.len() + self.places.len()) as u64
    }
}
