//! The map of an image's blocks, as a file: append-only, checksummed, with generations.
//!
//! `image-format.md` describes the format. An appended record is never changed. When the log has grown well
//! beyond its content, a new one with the next generation replaces it in one step.

use std::path::Path;
use std::sync::Arc;

use chronodisk_store::host::{Host, OpenMode};
use chronodisk_store::image_files::append_name;
use chronodisk_store::{FileOperation, StoreError, StoreFile};

use super::block::Block;
use super::bytes::{u32_at, u64_at};
use super::class::Class;
use super::header::{Commit, has_header_only};
use super::runs::RunMap;
use super::slot_file::PLACES_MAX;
use super::{UNIT_BYTES, UNIT_SLOTS, image_error};
use crate::crc32c;

const MAGIC: &[u8; 8] = b"CDSQMAP\0";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"RECD");
const RECORD_HEADER_BYTES: u64 = 32;
const ENTRY_BYTES: u64 = 32;
/// Most entries of a record, so that a reader needs little memory.
const RECORD_ENTRIES_MAX: usize = 1 << 14;
/// A log below this size is never rewritten.
const REWRITE_MIN_BYTES: u64 = 1 << 20;

/// An entry for a range of blocks; `None` for empty blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) block: Option<Block>,
}

impl Entry {
    /// Lets a map say so.
    fn apply(self, map: &mut RunMap<Block>) {
        match self.block {
            Some(block) => map.set(self.start, self.end, block),
            None => map.remove(self.start, self.end),
        }
    }
}

/// The log of an open image.
#[derive(Debug)]
pub(crate) struct MapLog {
    file: StoreFile,
    identity: u64,
    generation: u64,
    sequence: u64,
    len_bytes: u64,
    /// A log of this length is not rewritten, because that failed.
    rewrite_min_bytes: u64,
    /// The log took its name, and a power cut may take it away again.
    renamed: bool,
}

impl MapLog {
    /// Makes an empty file an empty log.
    pub(crate) fn begin(file: StoreFile, identity: u64) -> Result<Self, StoreError> {
        MapLog::begin_with(file, identity, 1, std::iter::empty())
    }

    fn begin_with(
        file: StoreFile,
        identity: u64,
        generation: u64,
        entries: impl Iterator<Item = Entry>,
    ) -> Result<Self, StoreError> {
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&identity.to_le_bytes());
        header[24..32].copy_from_slice(&generation.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..32]);
        header[32..36].copy_from_slice(&checksum.to_le_bytes());
        file.write(0, &header)?;
        let mut log = MapLog::at_start(file, identity, generation);
        log.append(entries)?;
        Ok(log)
    }

    /// Whether a file is a log without a record, perhaps with an incomplete header.
    pub(crate) fn is_empty(file: &StoreFile) -> Result<bool, StoreError> {
        has_header_only(file, HEADER_BYTES, MAGIC)
    }

    fn at_start(file: StoreFile, identity: u64, generation: u64) -> Self {
        let rewrite_min_bytes = REWRITE_MIN_BYTES;
        MapLog { file, identity, generation, sequence: 0, len_bytes: HEADER_BYTES, rewrite_min_bytes, renamed: false }
    }

    /// Reads a log into a map. An incomplete record at the end is truncated, because it was never acknowledged. Any
    /// other error is reported, and so is a log that ends before the last commit. With `power_cut`, a `writable` map's
    /// content then survives a power cut.
    pub(crate) fn open(
        host: &Arc<dyn Host>,
        path: &Path,
        writable: bool,
        power_cut: bool,
        identity: u64,
        units: u64,
        committed: Commit,
    ) -> Result<(Self, RunMap<Block>), StoreError> {
        let file = StoreFile::open(host, path, if writable { OpenMode::ReadWrite } else { OpenMode::Read })?;
        let file_bytes = file.size()?.len_bytes;
        let (generation, mut map) = (read_header(&file, path, identity)?, RunMap::default());
        let mut log = MapLog::at_start(file, identity, generation);
        let mut committed_bytes = 0;
        loop {
            if log.commit() == committed {
                committed_bytes = log.len_bytes;
            }
            match log.read_record(file_bytes, units) {
                Ok(Some(entries)) => entries.into_iter().for_each(|entry| entry.apply(&mut map)),
                Ok(None) => break,
                // After the last commit, a power cut may leave any of the later records.
                Err(StoreError::Image { .. }) if committed.generation > 0 && log.commit() >= committed => break,
                Err(error) => return Err(error),
            }
        }
        if log.commit() < committed {
            return Err(image_error(path, log.missing(committed)));
        }
        if writable && log.len_bytes < file_bytes {
            log.file.set_len(log.len_bytes, FileOperation::Open)?;
        }
        if writable && power_cut && log.commit() > committed {
            log.write_again(committed_bytes)?;
            log.renamed = log.generation > committed.generation;
            log.sync()?;
        }
        Ok((log, map))
    }

    /// Rewrites the bytes from an offset on. After a failed synchronisation the host may show bytes that are not on the
    /// medium and count as clean, so that no later synchronisation would write them.
    fn write_again(&self, from_bytes: u64) -> Result<(), StoreError> {
        const PIECE_BYTES: u64 = 1 << 20;
        let mut piece = Vec::new();
        for at_bytes in (from_bytes..self.len_bytes).step_by(PIECE_BYTES as usize) {
            piece.resize((self.len_bytes - at_bytes).min(PIECE_BYTES) as usize, 0);
            self.file.read(at_bytes, &mut piece)?;
            self.file.write(at_bytes, &piece)?;
        }
        Ok(())
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes on the host.
    pub(crate) fn host_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.file.size()?.allocated_bytes)
    }

    /// The end of the log and its generation.
    pub(crate) fn commit(&self) -> Commit {
        Commit { generation: self.generation, sequence: self.sequence }
    }

    /// Message about missing committed records.
    fn missing(&self, committed: Commit) -> String {
        format!(
            "the map ends at record {} of generation {}, but record {} of generation {} was committed; `chronodisk image \
             repair` goes back to what is there",
            self.sequence, self.generation, committed.sequence, committed.generation
        )
    }

    /// Appends changes.
    pub(crate) fn append(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), StoreError> {
        let mut record = Vec::new();
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            record.clear();
            record.resize(RECORD_HEADER_BYTES as usize, 0);
            entries.by_ref().take(RECORD_ENTRIES_MAX).for_each(|entry| encode(&entry, &mut record));
            let count = (record.len() as u64 - RECORD_HEADER_BYTES) / ENTRY_BYTES;
            let payload_checksum = crc32c::crc32c(&record[RECORD_HEADER_BYTES as usize..]);
            record[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
            record[4..8].copy_from_slice(&(count as u32).to_le_bytes());
            record[8..16].copy_from_slice(&(self.sequence + 1).to_le_bytes());
            record[16..24].copy_from_slice(&self.generation.to_le_bytes());
            record[24..28].copy_from_slice(&payload_checksum.to_le_bytes());
            let header_checksum = crc32c::crc32c(&record[..28]);
            record[28..32].copy_from_slice(&header_checksum.to_le_bytes());
            self.file.write(self.len_bytes, &record)?;
            self.len_bytes += record.len() as u64;
            self.sequence += 1;
        }
        Ok(())
    }

    /// Makes all appended records durable.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync()?;
        if self.renamed {
            self.file.sync_folder()?;
            self.renamed = false;
        }
        Ok(())
    }

    /// Whether much of the log is outdated.
    pub(crate) fn wants_rewrite(&self, map: &RunMap<Block>) -> bool {
        self.len_bytes > self.rewrite_min_bytes && self.len_bytes > 4 * map.len() as u64 * ENTRY_BYTES
    }

    /// Replaces the log by a shorter one with the same content, if the host permits; otherwise the old log stays
    /// complete.
    pub(crate) fn rewrite(&mut self, map: &RunMap<Block>, power_cut: bool) -> Result<(), StoreError> {
        let path = self.file.path().to_owned();
        let beside = append_name(&path, ".new");
        let entries = map.all().map(|(start, end, block)| Entry { start, end, block: Some(block) });
        let host = Arc::clone(self.file.host());
        let written = StoreFile::create_again(&host, &beside)
            .and_then(|file| MapLog::begin_with(file, self.identity, self.generation + 1, entries))
            .and_then(|log| if power_cut { log.file.sync().map(|()| log) } else { Ok(log) })
            .and_then(|mut log| log.file.rename(&path).map(|()| log));
        match written {
            Ok(log) => *self = MapLog { renamed: true, ..log },
            Err(_) => {
                let _ = host.remove(&beside);
                self.rewrite_min_bytes = 2 * self.len_bytes;
            }
        }
        Ok(())
    }

    /// Replaces a damaged log by one with this content, of the generation after `after`.
    pub(crate) fn replace(
        host: &Arc<dyn Host>,
        path: &Path,
        identity: u64,
        after: u64,
        map: &RunMap<Block>,
    ) -> Result<Self, StoreError> {
        let entries = map.all().map(|(start, end, block)| Entry { start, end, block: Some(block) });
        let file = StoreFile::create_again(host, &append_name(path, ".new"))?;
        let mut log = MapLog::begin_with(file, identity, after + 1, entries)?;
        log.file.sync()?;
        log.file.rename(path)?;
        log.file.sync_folder()?;
        Ok(log)
    }

    /// Reads the valid part of a log; returns its end, its content, and the reason of the end.
    pub(crate) fn salvage(
        host: &Arc<dyn Host>,
        path: &Path,
        identity: u64,
        units: u64,
    ) -> Result<(Commit, RunMap<Block>, Option<String>), StoreError> {
        let file = StoreFile::open(host, path, OpenMode::Read)?;
        let file_bytes = file.size()?.len_bytes;
        let (generation, mut reason) = match read_header(&file, path, identity) {
            Ok(generation) => (generation, None),
            // Each record contains the generation, too.
            Err(StoreError::Image { reason, .. }) => {
                let mut first = [0; RECORD_HEADER_BYTES as usize];
                let read = file.read(HEADER_BYTES, &mut first);
                (read.map_or(0, |()| u64_at(&first, 16)), Some(reason))
            }
            Err(error) => return Err(error),
        };
        let mut log = MapLog::at_start(file, identity, generation);
        let mut map = RunMap::default();
        loop {
            match log.read_record(file_bytes, units) {
                Ok(Some(entries)) => entries.into_iter().for_each(|entry| entry.apply(&mut map)),
                Ok(None) => break,
                Err(StoreError::Image { reason: at_record, .. }) => {
                    reason = Some(at_record);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((log.commit(), map, reason))
    }

    /// The next record's entries; `None` at the end.
    fn read_record(&mut self, file_bytes: u64, units: u64) -> Result<Option<Vec<Entry>>, StoreError> {
        let at = self.len_bytes;
        let Some(rest) = file_bytes.checked_sub(at + RECORD_HEADER_BYTES) else { return Ok(None) };
        let mut header = [0; RECORD_HEADER_BYTES as usize];
        self.file.read(at, &mut header)?;
        let Some((sequence, count, payload_checksum)) = self.record_header(&header) else {
            return self.end_of_log(at, file_bytes, "a record's header is damaged");
        };
        if sequence != self.sequence + 1 {
            let reason =
                format!("record {sequence} at byte {at} of the map where record {} belongs", self.sequence + 1);
            return Err(image_error(self.file.path(), reason));
        }
        let payload_bytes = count as u64 * ENTRY_BYTES;
        if payload_bytes > rest {
            return Ok(None);
        }
        let mut payload = vec![0; payload_bytes as usize];
        self.file.read(at + RECORD_HEADER_BYTES, &mut payload)?;
        if crc32c::crc32c(&payload) != payload_checksum {
            return match payload_bytes == rest {
                true => Ok(None),
                false => {
                    Err(image_error(self.file.path(), format!("record {sequence} at byte {at} of the map is damaged")))
                }
            };
        }
        let decoded: Option<Vec<Entry>> =
            payload.chunks_exact(ENTRY_BYTES as usize).map(|entry| decode(entry, units)).collect();
        let Some(entries) = decoded else {
            let reason = format!("record {sequence} at byte {at} of the map says what can't be");
            return Err(image_error(self.file.path(), reason));
        };
        self.sequence = sequence;
        self.len_bytes = at + RECORD_HEADER_BYTES + payload_bytes;
        Ok(Some(entries))
    }

    /// Sequence number, count of entries, and their checksum, of a record of this generation.
    fn record_header(&self, header: &[u8; RECORD_HEADER_BYTES as usize]) -> Option<(u64, usize, u32)> {
        let count = u32_at(header, 4) as usize;
        let valid = u32_at(header, 0) == RECORD_MAGIC
            && u64_at(header, 16) == self.generation
            && u32_at(header, 28) == crc32c::crc32c(&header[..28])
            && (1..=RECORD_ENTRIES_MAX).contains(&count);
        valid.then(|| (u64_at(header, 8), count, u32_at(header, 24)))
    }

    /// A crash leaves an invalid header at the end. If a complete record follows it, the log is damaged.
    fn end_of_log(&self, at: u64, file_bytes: u64, reason: &str) -> Result<Option<Vec<Entry>>, StoreError> {
        // A crash loses at most the data of one flush.
        let mut rest = vec![0; (file_bytes - at).min(SEARCHED_BYTES) as usize];
        self.file.read(at, &mut rest)?;
        let found = rest.windows(RECORD_HEADER_BYTES as usize).skip(1).any(|window| {
            u32_at(window, 0) == RECORD_MAGIC
                && self.record_header(window.try_into().expect("a window's length")).is_some()
        });
        match found {
            true => Err(image_error(self.file.path(), format!("{reason}, at byte {at} of the map"))),
            false => Ok(None),
        }
    }
}

/// Distance within which a complete record is searched after a damaged header.
const SEARCHED_BYTES: u64 = 64 << 20;

fn read_header(file: &StoreFile, path: &Path, identity: u64) -> Result<u64, StoreError> {
    let mut header = [0; HEADER_BYTES as usize];
    if file.read(0, &mut header).is_err() || &header[..8] != MAGIC {
        return Err(image_error(path, "this is no map of a squashed image".to_owned()));
    }
    if u32_at(&header, 32) != crc32c::crc32c(&header[..32]) {
        return Err(image_error(path, "the map's header is damaged".to_owned()));
    }
    let version = u32_at(&header, 8);
    if version != VERSION {
        let reason = format!("the map has version {version} of its format, and this program knows {VERSION}");
        return Err(image_error(path, reason));
    }
    if u64_at(&header, 16) != identity {
        return Err(image_error(path, "the map is that of another image".to_owned()));
    }
    Ok(u64_at(&header, 24))
}

const NOTHING: u8 = 0;
const ZEROED: u8 = 1;
const GENERATED: u8 = 2;
const KEPT: u8 = 3;
const PACKED: u8 = 4;
const DAMAGED: u8 = 5;

fn encode(entry: &Entry, record: &mut Vec<u8>) {
    let (kind, class, stored_bytes, place) = match entry.block {
        None => (NOTHING, 0, 0, 0),
        Some(Block::Zeroed) => (ZEROED, 0, 0, 0),
        Some(Block::Generated) => (GENERATED, 0, 0, 0),
        Some(Block::Damaged) => (DAMAGED, 0, 0, 0),
        Some(Block::Kept { place, class }) => (KEPT, class.code(), 0, place),
        Some(Block::Packed { place, stored_bytes, class }) => (PACKED, class.code(), stored_bytes, place),
    };
    record.extend_from_slice(&[kind, class]);
    record.extend_from_slice(&stored_bytes.to_le_bytes());
    record.extend_from_slice(&[0; 4]);
    for number in [entry.start, entry.end - entry.start, place] {
        record.extend_from_slice(&number.to_le_bytes());
    }
}

fn decode(bytes: &[u8], units: u64) -> Option<Entry> {
    let (start, len, place) = (u64_at(bytes, 8), u64_at(bytes, 16), u64_at(bytes, 24));
    let end = start.checked_add(len).filter(|&end| end > start && end <= units)?;
    let stored_bytes = u16::from_le_bytes([bytes[2], bytes[3]]);
    // Whether the file reaches so far is checked once all records are read.
    let slots = if bytes[0] == KEPT { len.checked_mul(UNIT_SLOTS)? } else { UNIT_SLOTS };
    place.checked_add(slots).filter(|&end| end <= PLACES_MAX)?;
    let block = match bytes[0] {
        NOTHING => None,
        ZEROED => Some(Block::Zeroed),
        GENERATED => Some(Block::Generated),
        DAMAGED => Some(Block::Damaged),
        KEPT => Some(Block::Kept { place, class: Class::from_code(bytes[1])? }),
        PACKED if len == 1 && (1..UNIT_BYTES).contains(&u64::from(stored_bytes)) => {
            Some(Block::Packed { place, stored_bytes, class: Class::from_code(bytes[1])? })
        }
        _ => return None,
    };
    Some(Entry { start, end, block })
}
