//! The checksums of an image's kept blocks, in a file of their own: one for each, by the slot at which the block
//! begins.
//!
//! A checksum covers the block's number and its bytes as they are stored, so that bytes of another block at the same
//! place are noticed, too. Slots are never overwritten while a map that survives a kill names them; so the checksum of
//! a block is written before the record that names its place.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use chronodisk_store::host::{Allocation, Host, OpenMode};
use chronodisk_store::{StoreError, StoreFile};

use super::bytes::{u32_at, u64_at};
use super::header::has_header_only;
use super::image_error;
use crate::crc32c;

/// The file of checksums, with the most recently used ones in memory.
#[derive(Debug)]
pub(crate) struct Sums {
    file: StoreFile,
    len_bytes: u64,
    chunks: HashMap<u64, Box<Chunk>>,
    /// Parts of chunks that are not in the file yet.
    dirty: BTreeMap<u64, Range<usize>>,
}

const MAGIC: &[u8; 8] = b"CDSQSUM\0";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 4096;
const CHUNK_SUMS: u64 = 1024;
const CHUNK_BYTES: u64 = 4 * CHUNK_SUMS;
/// Chunks in memory: 16 MiB, for 2 GiB of kept blocks.
const CHUNKS_MAX: usize = 4096;

type Chunk = [u32; CHUNK_SUMS as usize];

/// The checksum of a block; never zero, which means none.
pub(crate) fn sum_of(unit: u64, stored: &[u8]) -> u32 {
    match crc32c::crc32c_append(crc32c::crc32c(&unit.to_le_bytes()), stored) {
        0 => u32::MAX,
        sum => sum,
    }
}

impl Sums {
    /// Makes an empty file one of checksums.
    pub(crate) fn begin(file: StoreFile, identity: u64) -> Result<Self, StoreError> {
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&identity.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..24]);
        header[24..28].copy_from_slice(&checksum.to_le_bytes());
        file.write(0, &header)?;
        Ok(Sums { file, len_bytes: HEADER_BYTES, chunks: HashMap::new(), dirty: BTreeMap::new() })
    }

    /// Whether a file of checksums is empty, or was never completed.
    pub(crate) fn is_empty(file: &StoreFile) -> Result<bool, StoreError> {
        has_header_only(file, HEADER_BYTES, MAGIC)
    }

    pub(crate) fn open(host: &Arc<dyn Host>, path: &Path, writable: bool, identity: u64) -> Result<Self, StoreError> {
        let file = StoreFile::open(host, path, if writable { OpenMode::ReadWrite } else { OpenMode::Read })?;
        let len_bytes = file.size()?.len_bytes;
        let mut header = [0; 28];
        if len_bytes < HEADER_BYTES || file.read(0, &mut header).is_err() || &header[..8] != MAGIC {
            return Err(image_error(path, "these are no checksums of a squashed image".to_owned()));
        }
        if u32_at(&header, 24) != crc32c::crc32c(&header[..24]) || u32_at(&header, 8) != VERSION {
            return Err(image_error(path, "the header of the checksums is damaged".to_owned()));
        }
        if u64_at(&header, 16) != identity {
            return Err(image_error(path, "the checksums are those of another image".to_owned()));
        }
        Ok(Sums { file, len_bytes, chunks: HashMap::new(), dirty: BTreeMap::new() })
    }

    /// The checksums of blocks from a place on, each at the block's first slot; zero at other slots.
    pub(crate) fn from(&mut self, place: u64) -> Result<&[u32], StoreError> {
        Ok(&self.chunk(place / CHUNK_SUMS)?[(place % CHUNK_SUMS) as usize..])
    }

    /// Sets the checksums of blocks at a place and at regular distances after it.
    pub(crate) fn set_from(
        &mut self,
        place: u64,
        step: u64,
        sums: impl IntoIterator<Item = u32>,
    ) -> Result<(), StoreError> {
        let (mut place, mut sums) = (place, sums.into_iter().peekable());
        while sums.peek().is_some() {
            let (index, first) = (place / CHUNK_SUMS, (place % CHUNK_SUMS) as usize);
            let mut end = first;
            let slots = self.chunk(index)?[first..].iter_mut().step_by(step as usize);
            for (slot, sum) in slots.zip(&mut sums) {
                *slot = sum;
                end = (place % CHUNK_SUMS) as usize + 1;
                place += step;
            }
            let dirty = self.dirty.entry(index).or_insert(first..end);
            *dirty = dirty.start.min(first)..dirty.end.max(end);
        }
        Ok(())
    }

    /// Writes the dirty sums to the file.
    pub(crate) fn write_back(&mut self) -> Result<(), StoreError> {
        while let Some((&index, dirty)) = self.dirty.first_key_value() {
            let sums = &self.chunks[&index][dirty.clone()];
            let mut bytes = [0; CHUNK_BYTES as usize];
            for (bytes, sum) in bytes.chunks_exact_mut(4).zip(sums) {
                bytes.copy_from_slice(&sum.to_le_bytes());
            }
            let at_bytes = HEADER_BYTES + index * CHUNK_BYTES + 4 * dirty.start as u64;
            self.file.write(at_bytes, &bytes[..4 * sums.len()])?;
            self.len_bytes = self.len_bytes.max(at_bytes + 4 * sums.len() as u64);
            self.dirty.pop_first();
        }
        Ok(())
    }

    /// Makes written sums survive a power cut.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync()
    }

    /// The file's name survives a power cut.
    pub(crate) fn sync_folder(&self) -> Result<(), StoreError> {
        self.file.sync_folder()
    }

    /// Bytes on the host.
    pub(crate) fn host_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.file.size()?.allocated_bytes)
    }

    /// Memory that the checksums take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.chunks.len() as u64 * (CHUNK_BYTES + 32)
    }

    /// Returns the space of checksums to the host for a range in which no block begins.
    pub(crate) fn forget(&mut self, start: u64, end: u64) -> Result<(), StoreError> {
        let (first, last) = (start.div_ceil(CHUNK_SUMS), end / CHUNK_SUMS);
        if first >= last {
            return Ok(());
        }
        self.chunks.retain(|index, _| !(first..last).contains(index));
        self.dirty.retain(|index, _| !(first..last).contains(index));
        let (from, to) = (HEADER_BYTES + first * CHUNK_BYTES, HEADER_BYTES + last * CHUNK_BYTES);
        let to = to.min(self.len_bytes);
        if from < to {
            self.file.allocate(Allocation::Punch, from, to - from)?;
        }
        Ok(())
    }

    /// The file takes another name, in place of the file that had it.
    pub(crate) fn rename(&mut self, to: &Path) -> Result<(), StoreError> {
        self.file.rename(to)
    }

    fn chunk(&mut self, index: u64) -> Result<&mut Chunk, StoreError> {
        if self.chunks.len() >= CHUNKS_MAX && !self.chunks.contains_key(&index) {
            self.write_back()?;
            self.chunks.clear();
        }
        match self.chunks.entry(index) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut chunk: Chunk = [0; CHUNK_SUMS as usize];
                let at_bytes = HEADER_BYTES + index * CHUNK_BYTES;
                let there_bytes = self.len_bytes.saturating_sub(at_bytes).min(CHUNK_BYTES);
                let mut bytes = [0; CHUNK_BYTES as usize];
                self.file.read(at_bytes, &mut bytes[..there_bytes as usize])?;
                for (sum, bytes) in chunk.iter_mut().zip(bytes.chunks_exact(4)) {
                    *sum = u32_at(bytes, 0);
                }
                Ok(entry.insert(Box::new(chunk)))
            }
        }
    }
}
